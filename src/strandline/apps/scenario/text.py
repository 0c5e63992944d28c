"""The text of a scenario and the steps that it describes.

SQL statements come first, each ended by a semicolon. Then steps: a line with a word in capitals and, indented under it,
a line per row with cells between bars, or statements that change tables. Times of a step may leave out the day that
`DAY` gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from strandline.core.errors import ScenarioError, Span
from strandline.core.temporal import FOREVER, Instant, instant

Cell: TypeAlias = str | None
Interval: TypeAlias = tuple[Instant, Instant]


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """Cells as texts, None for NULL; an element of a result has its validity interval, too."""

    cells: tuple[Cell, ...]
    interval: Interval | None
    span: Span


@dataclass(frozen=True, slots=True)
class ScenarioEvents:
    """`EVENTS stream`: rows arrive, in this order."""

    stream: str
    rows: tuple[ScenarioRow, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ChangeTables:
    """`CHANGE AT time`: statements change tables, all of them at that time. `sql` has them at their place in the file,
    with the rest blanked out."""

    at: Instant
    sql: str
    span: Span


@dataclass(frozen=True, slots=True)
class AdvanceTime:
    """`ADVANCE [stream] TO time`: no row before that time follows, of this stream or of any."""

    stream: str | None
    until: Instant
    span: Span


@dataclass(frozen=True, slots=True)
class End:
    """`END [stream]`: no row follows at all."""

    stream: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Expect:
    """Expectation at this step. `rows` of a query: at an instant, or as elements up to the watermark."""

    what: Literal["snapshot", "elements", "late", "rejected", "progress"]
    name: str
    at: Instant | None
    rows: tuple[ScenarioRow, ...]
    span: Span


Step: TypeAlias = ScenarioEvents | ChangeTables | AdvanceTime | End | Expect


@dataclass(frozen=True, slots=True)
class Scenario:
    """A parsed file: its statements as one text, with the rest blanked out, and its steps.

    `day` is the last DAY, for reports.
    """

    text: str
    sql: str
    steps: tuple[Step, ...]
    day: str | None


WORDS: Final = ("DAY", "EVENTS", "CHANGE", "ADVANCE", "END", "EXPECT")
_WORD = re.compile(rf"(?:{'|'.join(WORDS)})\b")
_NAME = r'(?P<name>"[^"]+"|[^\s"]+)'
_FORMS: Final = {
    "DAY": re.compile(r"DAY\s+(?P<time>\S+)"),
    "EVENTS": re.compile(rf"EVENTS\s+{_NAME}"),
    "CHANGE": re.compile(r"CHANGE\s+AT\s+(?P<time>.+)"),
    "ADVANCE": re.compile(rf"ADVANCE(?:\s+(?!TO\s){_NAME})?\s+TO\s+(?P<time>.+)"),
    "END": re.compile(rf"END(?:\s+{_NAME})?"),
    "EXPECT": re.compile(
        rf"EXPECT\s+(?:(?P<aside>LATE|REJECTED)\s+)?{_NAME}"
        r"(?:\s+AT\s+(?P<time>.+)|\s+COMPLETE\s+UNTIL\s+(?P<progress>.+))?"
    ),
}
_HOW: Final = {
    "DAY": "DAY 2024-01-02",
    "EVENTS": "EVENTS stream, then a row in each line that follows, indented",
    "CHANGE": "CHANGE AT 09:05:00, then INSERT, UPDATE, DELETE or MERGE in the lines that follow, indented",
    "ADVANCE": "ADVANCE TO 09:05:00, or ADVANCE stream TO 09:05:00",
    "END": "END, or END stream",
    "EXPECT": "EXPECT query AT 09:05:00, EXPECT query, EXPECT query COMPLETE UNTIL 09:05:00, EXPECT LATE stream or "
    "EXPECT REJECTED stream, then the rows",
}
_CELL = re.compile(r"\s*(?:(?P<quoted>'(?:[^']|'')*')|(?P<plain>[^|]*?))\s*(?:(?P<bar>\|)|(?:(?<=\s)--\s.*)?$)")
_INTERVAL = re.compile(r"\[\s*(?P<start>[^,\]]+?)\s*,\s*(?P<end>[^)\]]+?)\s*\)")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    start: int  # its place in the file

    @property
    def indented(self) -> bool:
        return self.text[:1].isspace()

    @property
    def empty(self) -> bool:
        bare = self.text.strip()
        return not bare or bare.startswith(("--", "#"))


def read_scenario(text: str) -> Scenario:
    """The statements and steps of a scenario, or an error that points at the line that is none of them."""
    lines = list(_lines(text))
    first = next((n for n, line in enumerate(lines) if _WORD.match(line.text)), len(lines))
    reader = _Reader(text)
    blocks: list[tuple[_Line, list[_Line]]] = []
    for line in lines[first:]:
        if line.empty:
            continue
        if line.indented and blocks:
            blocks[-1][1].append(line)
        else:
            blocks.append((line, []))
    steps = [step for head, rows in blocks for step in reader.step(head, rows)]
    return Scenario(text, text[: lines[first].start] if first < len(lines) else text, tuple(steps), reader.day)


def _lines(text: str) -> Iterator[_Line]:
    offset = 0
    for line in text.splitlines(keepends=True):
        yield _Line(line.rstrip("\n"), offset)
        offset += len(line)


class _Reader:
    """Reads step by step; the last DAY holds."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.day: str | None = None

    def step(self, head: _Line, lines: list[_Line]) -> Iterator[Step]:
        span = self._span(head)
        word = _WORD.match(head.text)
        if word is None:
            raise ScenarioError(
                "expected a step",
                code="scenario",
                hint=f"Steps begin with {', '.join(WORDS)}; rows are indented; SQL comes before the first step.",
                span=span,
            )
        form = _FORMS[word[0]].fullmatch(head.text.split(" --")[0].rstrip())
        if form is None:
            raise ScenarioError(f"invalid {word[0]}", code="scenario", hint=f"Write {_HOW[word[0]]}.", span=span)
        groups = form.groupdict()
        name = groups["name"].strip('"') if groups.get("name") else None
        time = groups.get("time")
        if lines and word[0] not in ("EVENTS", "CHANGE", "EXPECT"):
            raise ScenarioError(f"{word[0]} has no rows", code="scenario", span=self._span(lines[0]))
        match word[0]:
            case "DAY":
                self._instant(time or "", span)
                self.day = time
            case "EVENTS":
                yield ScenarioEvents(str(name), tuple(self._row(line, elements=False) for line in lines), span)
            case "CHANGE":
                yield ChangeTables(self._instant(str(time), span), self._only(lines), span)
            case "ADVANCE":
                yield AdvanceTime(name, self._instant(str(time), span), span)
            case "END":
                yield End(name, span)
            case _:
                yield self._expect(groups, str(name), lines, span)

    def _expect(self, groups: dict[str, str | None], name: str, lines: list[_Line], span: Span) -> Expect:
        aside, time, progress = groups["aside"], groups["time"], groups["progress"]
        if aside is not None and (time or progress):
            raise ScenarioError(
                f"{aside} rows cannot have a time", code="scenario", hint=f"Write EXPECT {aside} stream.", span=span
            )
        if progress is not None:
            return Expect("progress", name, self._instant(progress, span), (), span)
        rows = tuple(self._row(line, elements=time is None and aside is None) for line in lines)
        if time is not None:
            return Expect("snapshot", name, self._instant(time, span), rows, span)
        if aside is not None:
            return Expect("late" if aside == "LATE" else "rejected", name, None, rows, span)
        return Expect("elements", name, None, rows, span)

    def _row(self, line: _Line, elements: bool) -> ScenarioRow:
        text, interval = line.text.split(" -- ")[0] if elements else line.text, None
        if elements:
            intervals = list(_INTERVAL.finditer(text))
            if not intervals or text[intervals[-1].end() :].strip():
                raise ScenarioError(
                    "an element must have a validity interval",
                    code="scenario",
                    hint="Write it after the cells: a | 1  [09:00:00, 09:10:00), or … for an unbounded end.",
                    span=self._span(line),
                )
            last = intervals[-1]
            end = FOREVER if last["end"] in ("…", "...") else self._instant(last["end"], self._span(line))
            interval = (self._instant(last["start"], self._span(line)), end)
            text = text[: last.start()].rstrip().removesuffix("|")
        return ScenarioRow(tuple(self._cell(cell) for cell in split_cells(text)), interval, self._span(line))

    def _cell(self, cell: str) -> Cell:
        if cell == "NULL":
            return None
        if len(cell) > 1 and cell[0] == cell[-1] == "'":
            return cell[1:-1].replace("''", "'")
        if self.day is not None and re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", cell):
            return f"{self.day} {cell}"
        return cell

    def _instant(self, text: str, span: Span) -> Instant:
        text = text.strip().strip("'").removeprefix("TIMESTAMP").strip().strip("'")
        try:
            return instant(text if "-" in text or self.day is None else f"{self.day} {text}")
        except ValueError:
            raise ScenarioError(
                f'invalid time "{text}"',
                code="scenario",
                hint="Times are 2024-01-02 09:05:00, or 09:05:00 after DAY 2024-01-02.",
                span=span,
            ) from None

    def _only(self, lines: list[_Line]) -> str:
        """The text of lines, at their place."""
        parts, position = [], 0
        for line in lines:
            parts += [re.sub(r"\S", " ", self.text[position : line.start]), line.text]
            position = line.start + len(line.text)
        return "".join(parts)

    def _span(self, line: _Line) -> Span:
        indent = len(line.text) - len(line.text.lstrip())
        return Span(self.text, line.start + indent, line.start + max(len(line.text.rstrip()), indent + 1))


def split_cells(text: str) -> list[str]:
    """The cells of a row: between bars, except in quotes; without the comment at the end of the line."""
    cells, position = [], 0
    while cell := _CELL.match(text, position):
        cells.append(cell["quoted"] or cell["plain"] or "")
        position = cell.end()
        if not cell["bar"]:
            break
    return cells
