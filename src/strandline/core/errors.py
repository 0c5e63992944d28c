"""Error classes: message, position, detail and hint.

One class per phase under one root. The statement is short, lower case and without a full stop; detail and hint are
sentences. `code` is a stable, searchable id. The CLI and the API render the same object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from strandline.core.security.redaction import hidden_ranges, moved, redact, redact_ranges


@dataclass(frozen=True, slots=True)
class Span:
    """Part of the user's text: characters `start` up to, not including, `end` of `text`."""

    text: str
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this span to the end of `other`."""
        return Span(self.text, self.start, max(self.end, other.end))


class StrandlineError(Exception):
    """The root of every error that strandline raises on purpose."""

    def __init__(
        self, message: str, *, code: str, hint: str | None = None, detail: str | None = None, span: Span | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.detail = detail
        self.span = span

    def __str__(self) -> str:
        return self.render()

    def to_json(self) -> dict[str, object]:
        """The error as plain JSON values: how it travels from one process to another."""
        span = None if self.span is None else [self.span.text, self.span.start, self.span.end]
        texts = {"message": self.message, "code": self.code, "hint": self.hint, "detail": self.detail}
        return {"class": type(self).__name__, **texts, "span": span}

    @staticmethod
    def from_json(data: object) -> StrandlineError:
        """The error of `to_json`. Anything else is a ValueError: the values only become texts of an error."""
        match data:
            case {
                "class": str(name),
                "message": str(message),
                "code": str(code),
                "hint": str() | None as hint,
                "detail": str() | None as detail,
                "span": None | [str(), int(), int()] as position,
            } if name in _CLASSES:
                span = None if position is None else Span(*position)
                return _CLASSES[name](message, code=code, hint=hint, detail=detail, span=span)
        raise ValueError("not a strandline error")

    def __reduce__(self) -> tuple[object, ...]:
        return StrandlineError.from_json, (self.to_json(),)  # keyword-only arguments need this

    def render(self) -> str:
        """The statement, the user's text with a caret below, detail and hint: fit for any terminal, without secrets."""
        statement = self.message.replace("\n", " ")
        lines = [f"error[{self.code}]: {redact(statement)}"]
        if self.span is not None:
            lines += _excerpt(self.span)
        if self.detail:
            lines.append(redact(self.detail))
        if self.hint:
            lines.append(f"hint: {redact(self.hint)}")
        return printable("\n".join(lines))


# Halves of surrogate pairs cannot be printed; control characters and bidirectional marks are invisible but have
# effects. Each becomes one replacement character, so that the caret stays in place.
_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """A text with one visible sign for each that a terminal would act on or could not show."""
    return _UNPRINTABLE.sub("\ufffd", text)


def one_line(text: str) -> str:
    return printable(text.replace("\n", "⏎").replace("\t", " "))


_AROUND: Final = 10_000  # characters before and after a line


@contextmanager
def at_place(span: Span | None) -> Iterator[None]:
    """Add this position to errors without one."""
    try:
        yield
    except StrandlineError as error:
        error.span = error.span or span
        raise


def _excerpt(span: Span) -> list[str]:
    text, start = span.text, min(span.start, len(span.text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    # A secret may span several lines: search around this one.
    around = max(0, line_start - _AROUND)
    ranges = [(first + around, last + around) for first, last in hidden_ranges(text[around : line_end + _AROUND])]
    inside = [
        (max(first, line_start) - line_start, min(last, line_end) - line_start)
        for first, last in ranges
        if first < line_end and last > line_start
    ]
    line = redact_ranges(text[line_start:line_end].replace("\t", " "), inside)
    left, right = (moved(at - line_start, inside) for at in (start, min(span.end, line_end)))
    number = text.count("\n", 0, line_start) + 1
    prefix = f"  line {number}: " if "\n" in text.strip() else "  "
    return [prefix + line, " " * (len(prefix) + left) + "^" * max(1, right - left)]


class ParseError(StrandlineError):
    """The text is not a statement of the language."""


class BindError(StrandlineError):
    """The statement names something that does not exist or does not fit."""


class CatalogError(StrandlineError):
    """A stream or query cannot be created, found or dropped."""


class PlanError(StrandlineError):
    """The query is understood, but has no plan that can run."""


class SourceError(StrandlineError):
    """An input cannot be read."""


class SinkError(StrandlineError):
    """A result cannot be written."""


class CheckpointError(StrandlineError):
    """A checkpoint is missing, foreign, damaged or not writable."""


def damaged(path: object, listed_in: object = None) -> CheckpointError:
    """A file of a checkpoint that cannot be trusted; if a damaged list may be the cause, also the list."""
    return CheckpointError(
        f"checkpoint file {path} is missing or damaged",
        code="checkpoint-damaged",
        detail=None if listed_in is None else f"It is listed in {listed_in}, which may be the damaged file instead.",
        hint="Restore the checkpoint from a backup, or start over with a new one. Nothing was overwritten.",
    )


class ScenarioError(StrandlineError):
    """A scenario file cannot be read or played."""


class SetupError(StrandlineError):
    """Java or Spark is not usable."""


class ArgumentError(StrandlineError):
    """An argument of a Python call has a wrong type or value."""


class QueryError(StrandlineError):
    """A running query failed, or lacks what was requested of it."""


_CLASSES: Final[dict[str, type[StrandlineError]]] = {
    "StrandlineError": StrandlineError,
    **{kind.__name__: kind for kind in StrandlineError.__subclasses__()},
}
