"""Lexer: the words, numbers, texts and symbols of a script, each with its span.

Keywords are ordinary words here; the parser gives them their meaning. `Cursor` is a position in the tokens; numbers and
durations are converted at the end.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Final, TypeVar

from strandline.core.errors import ParseError, Span
from strandline.core.temporal import UNITS
from strandline.core.types import MAX_PRECISION

T = TypeVar("T")

# Durations stay far within int64, so that adding one to any instant of a row cannot overflow.
MAX_DURATION_US: Final = 2**61


class Kind(Enum):
    WORD = auto()  # an unquoted name or keyword
    QUOTED = auto()  # a name in double quotes
    NUMBER = auto()
    TEXT = auto()  # a text in single quotes
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text. `value` is its denotation: quotes removed, doubled quotes made single."""

    kind: Kind
    value: str
    span: Span

    @property
    def keyword(self) -> str:
        """The word in upper case; empty for tokens that cannot be a keyword."""
        return self.value.upper() if self.kind is Kind.WORD else ""

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return "the end of the text"
        shown = " ".join(self.span.text[self.span.start : self.span.end].split())
        return shown if len(shown) <= 40 else f"{shown[:40]}…"


_BLANK: Final = re.compile(r"(?:\s+|--[^\n]*)+")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_WORD: Final = re.compile(r"[^\W\d][\w$]*")
_NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTED: Final = {"'": re.compile(r"'([^']*(?:''[^']*)*)'"), '"': re.compile(r'"([^"]*(?:""[^"]*)*)"')}
# Longer symbols first: the expression takes the first alternative that fits.
_SYMBOL: Final = re.compile(r"<>|<<|>>|!=|!~\*|!~|~\*|<=|>=|=>|==|\|\||::|[-+*/%=<>(),.;\[\]~&|#^]")

_AMOUNT: Final = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)\s*([A-Za-z]*)\s*(?:,\s*(?=.))?")

_STRAY_HINTS: Final = {
    "`": 'Quote names with double quotes: "name".',
    "“": "Use straight quotes: 'text', \"name\".",
    "”": "Use straight quotes: 'text', \"name\".",
    "‘": "Use straight quotes: 'text', \"name\".",
    "’": "Use straight quotes: 'text', \"name\".",
    "{": "A window is written WINDOW(RANGE 10 SECONDS) or [RANGE 10 SECONDS].",
}


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, comments and blanks left out, with one END token right after the last of them."""
    tokens: list[Token] = []
    at = _skip_blanks(text, 0)
    while at < len(text):
        token = _token(text, at)
        tokens.append(token)
        at = _skip_blanks(text, token.span.end)
    end = tokens[-1].span.end if tokens else 0
    tokens.append(Token(Kind.END, "", Span(text, end, end)))
    return tokens


def _token(text: str, at: int) -> Token:
    first = text[at]
    if first in _QUOTED:
        return _quoted(text, at)
    if match := _WORD.match(text, at):
        return Token(Kind.WORD, match.group(), Span(text, at, match.end()))
    if match := _NUMBER.match(text, at):
        return _number(text, at, match.end())
    if match := _SYMBOL.match(text, at):
        return Token(Kind.SYMBOL, match.group(), Span(text, at, match.end()))
    raise _error(f"unexpected character {first!r}", "bad-character", Span(text, at, at + 1), _STRAY_HINTS.get(first))


def _number(text: str, at: int, end: int) -> Token:
    # `10SECONDS` and `1e` are more likely typos than a number beside a name, so they are not split silently.
    if rest := _WORD.match(text, end):
        hint = f"Put a blank after the number: {text[at:end]} {rest.group()}."
        raise _error(
            f"trailing characters after a number: {rest.group()}", "bad-number", Span(text, at, rest.end()), hint
        )
    return Token(Kind.NUMBER, text[at:end], Span(text, at, end))


def _quoted(text: str, at: int) -> Token:
    quote = text[at]
    match = _QUOTED[quote].match(text, at)
    what = "text" if quote == "'" else "name"
    if match is None:
        line_end = text.find("\n", at)
        span = Span(text, at, len(text) if line_end < 0 else line_end)
        raise _error(f"unterminated quoted {what}", "unclosed-quote", span, f"Close it with {quote}.")
    span = Span(text, at, match.end())
    value = match.group(1).replace(quote * 2, quote)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _error(f"quoted {what} is not valid Unicode", "bad-character", span, "It holds half of a surrogate pair.")
    if what == "name" and not value:
        raise _error("empty quoted name", "empty-name", span, None)
    return Token(Kind.TEXT if quote == "'" else Kind.QUOTED, value, span)


def _skip_blanks(text: str, at: int) -> int:
    """The place of the next token: after blanks, `--` comments and nested `/* */` comments."""
    while True:
        if match := _BLANK.match(text, at):
            at = match.end()
        if not text.startswith("/*", at):
            return at
        at = _comment_end(text, at)


def _comment_end(text: str, at: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _error("unterminated comment", "unclosed-comment", Span(text, at, at + 2), "Close it with */.")


def _error(message: str, code: str, span: Span, hint: str | None) -> ParseError:
    return ParseError(message, code=code, hint=hint, span=span)


class Cursor:
    """A position in the tokens of a text: lookahead, advance, and errors about expected tokens."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        if token.kind is not Kind.END:
            self.at += 1
        return token

    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    def sees(self, *keywords: str) -> bool:
        """True if the next tokens are these keywords."""
        return all(self.peek(i).keyword == word for i, word in enumerate(keywords))

    def sees_any(self, keywords: Container[str]) -> bool:
        return self.token.keyword in keywords

    def sees_symbol(self, symbol: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind is Kind.SYMBOL and token.value == symbol

    def accept(self, *keywords: str) -> bool:
        """Move over these keywords if all of them are next."""
        if not self.sees(*keywords):
            return False
        self.at += len(keywords)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.sees_symbol(symbol):
            return False
        self.at += 1
        return True

    def expect(self, *keywords: str, hint: str | None = None) -> None:
        for keyword in keywords:
            if not self.accept(keyword):
                raise self.unexpected(keyword, hint)

    def expect_symbol(self, symbol: str, hint: str | None = None) -> None:
        if not self.accept_symbol(symbol):
            raise self.unexpected(symbol, hint)

    def since(self, start: Token) -> Span:
        """From `start` to the last token that was taken."""
        return start.span.to(self.tokens[max(self.at - 1, 0)].span)

    def listed(self, element: Callable[[], T]) -> tuple[T, ...]:
        """One or more elements between commas."""
        elements = [element()]
        while self.accept_symbol(","):
            elements.append(element())
        return tuple(elements)

    def closing(self, opening: int) -> int:
        """The position of the parenthesis that closes the one at `opening`, or of the last token."""
        depth = 0
        for position in range(opening, len(self.tokens)):
            token = self.tokens[position]
            if token.kind is Kind.SYMBOL and token.value in "()":
                depth += 1 if token.value == "(" else -1
                if depth == 0:
                    return position
        return len(self.tokens) - 1

    def unexpected(self, wanted: str, hint: str | None = None) -> ParseError:
        return self.error(f"expected {wanted}, found {self.token}", "syntax", self.token.span, hint)

    def error(self, message: str, code: str, span: Span, hint: str | None = None) -> ParseError:
        return ParseError(message, code=code, hint=hint, span=span)

    def refusal(self, feature: str, span: Span, hint: str) -> ParseError:
        """Error for a feature of SQL that is not supported."""
        return self.error(f"{feature} is not supported", "not-supported", span, hint)


# ---- values ----------------------------------------------------------------------------------------------------------


def plain_number(digits: str, span: Span) -> int | float | str:
    """A number of a source argument: whole numbers and exponents as numbers, decimals as their text."""
    if "e" in digits.lower():
        value = float(digits)
        if math.isfinite(value):
            return value
    elif "." in digits:
        return digits
    elif len(digits) <= MAX_PRECISION:
        return int(digits)
    raise ParseError("the number is too large", code="number-too-large", hint="Quote it as a text.", span=span)


def unit_size(word: str) -> int | None:
    """The microseconds of a unit in singular or plural, in any case; None for anything else."""
    upper = word.upper()
    return UNITS.get(upper) or UNITS.get(upper.removesuffix("S"))


def unit_hint(word: str) -> str:
    upper = word.upper().removesuffix("S")
    if upper in ("MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY"):
        return "Months and years vary in length; use DAYS."
    near = difflib.get_close_matches(upper, UNITS, n=1)
    return f"Did you mean {near[0]}S?" if near else f"Units are {', '.join(f'{unit}S' for unit in UNITS)}."


def amounts_of(text: str) -> list[tuple[str, str]] | None:
    """The (number, unit) pairs of an interval text such as '1 hour 30 minutes'; None if it is not one."""
    amounts: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _AMOUNT.match(text, at)
        if match is None:
            return None
        amounts.append((match.group(1), match.group(2)))
        at = match.end()
    bare = [unit for _, unit in amounts if not unit]
    return amounts if amounts and (not bare or len(amounts) == 1) else None


def microseconds_of(amounts: list[tuple[str, str]], span: Span) -> int:
    """The sum of (number, unit) pairs, which must be a whole number of microseconds."""
    total = Fraction(0)
    for number, unit in amounts:
        size = unit_size(unit)
        if size is None:
            raise ParseError(f"unknown unit of time {unit}", code="unknown-unit", hint=unit_hint(unit), span=span)
        if len(number) > 2 * MAX_PRECISION or "e" in number.lower():
            hint = "Write it without an exponent, in a larger or smaller unit."
            raise ParseError("the duration must be a plain number", code="bad-duration", hint=hint, span=span)
        total += Fraction(number) * size
    if total.denominator != 1:
        hint = "Time has a resolution of one microsecond."
        raise ParseError(
            "the duration must be a whole number of microseconds", code="bad-duration", hint=hint, span=span
        )
    if abs(total) > MAX_DURATION_US:
        raise ParseError("duration out of range", code="bad-duration", hint="Use at most 70,000 years.", span=span)
    return int(total)
