"""Values, instants and tables as people read them: in the shell, in the results of a run, in notebooks' text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from strandline.core.errors import printable
from strandline.core.temporal import DAY, MINUTE, OPEN, SECOND, Instant, show_instant

QUIET: Final = "bright_black"
_HEAD: Final = "bold"
_WIDEST: Final = 60  # characters of one value in a table
_BETWEEN: Final = 2  # blanks between two columns
_DIGITS: Final = 10  # of a DOUBLE, at least
_FRACTION: Final = 4  # digits after the point, at least, where the number has more
_TIME_LENGTHS: Final = {DAY: 10, MINUTE: 16, SECOND: 19}  # of an instant that is a multiple


def show_double(value: float) -> str:
    """A DOUBLE: `20.0`, `0.3`, `1234567.25`; without exponent where people write none."""
    magnitude = abs(value)
    if value != value or magnitude == float("inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if magnitude >= 1e16 or 0 < magnitude < 1e-5:
        return f"{value:.{_DIGITS}g}"
    digits = min(max(_DIGITS, len(str(int(magnitude))) + _FRACTION), 17)
    text = f"{value:.{digits}g}"
    return text if "." in text or "e" in text else f"{text}.0"


def show_value(value: object) -> str:
    """A value of a result, on one line."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return show_double(value)
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
        case date():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case list():
            return f"[{', '.join(map(show_value, value))}]"
    return printable(str(value)).replace("\n", "⏎")


class Clock:
    """Instants of one column, with no more than tells them apart: without the day where all have the same (`day` then
    names it, for the head of the column), without seconds where all have none.

    `include` takes further instants, and says whether those before would now be shown otherwise.
    """

    def __init__(self, intervals: Iterable[tuple[Instant, Instant]] = ()) -> None:
        self._days: set[str] = set()
        self._unit = DAY
        self._plain = True  # all instants are within the years that dates have
        self.include(intervals)

    def include(self, intervals: Iterable[tuple[Instant, Instant]]) -> bool:
        """Take further intervals into account; an interval of one instant has no end to show."""
        before = self._form
        for start, end in intervals:
            self._include(start)
            if start + 1 < end < OPEN:
                self._include(end)
        return self._form != before

    def _include(self, at: Instant) -> None:
        shown = show_instant(at)
        self._plain &= shown[:1].isdigit() and not shown.endswith("us")
        if len(self._days) < 2:
            self._days.add(shown[:10])
        if at % self._unit:
            self._unit = next((unit for unit in (MINUTE, SECOND) if at % unit == 0 and unit <= self._unit), 1)

    @property
    def _form(self) -> tuple[bool, int, str]:
        return self._plain, self._unit, self.day

    @property
    def day(self) -> str:
        return f" on {next(iter(self._days))}" if self._plain and len(self._days) == 1 else ""

    def show(self, at: Instant) -> str:
        shown = show_instant(at)
        if not self._plain:
            return shown
        if self.day:
            return shown[11:16] if self._unit >= MINUTE else shown[11:]
        length = _TIME_LENGTHS.get(self._unit)
        return shown if length is None else shown[:length]

    def interval(self, start: Instant, end: Instant | None) -> str:
        """`[09:00, 09:05)`; `[09:00]` if it is one instant, `[09:00, …)` if the end is not known or never comes."""
        if end is None or end >= OPEN:
            return f"[{self.show(start)}, …)"
        return f"[{self.show(start)}]" if end == start + 1 else f"[{self.show(start)}, {self.show(end)})"


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a column. Numbers are aligned to the right. One that is `fixed` is never hidden."""

    name: str
    is_number: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of a row; None is NULL. The style is for all of them."""

    cells: Sequence[str | None]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns that are shown, with their widths; and the names of those that do not fit."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    hidden: tuple[str, ...] = ()


def lay_out(heads: Sequence[Head], rows: Iterable[Row], width: int | None, least: Sequence[int] = ()) -> Layout:
    """Choose the columns that fit into a width: fixed ones, then the others from the left; at least one of them.

    `least` are widths that columns have already.
    """
    widths = [max(cell_len(head.name), before) for head, before in _padded(heads, least)]
    for row in rows:
        for position, cell in enumerate(row.cells):
            widths[position] = max(widths[position], min(cell_len(_fit(cell)), _WIDEST))
    everything = tuple(range(len(heads)))
    if width is None or sum(widths) + _BETWEEN * (len(heads) - 1) <= width:
        return Layout(everything, tuple(widths))
    left = width - sum(widths[n] + _BETWEEN for n in everything if heads[n].fixed) + _BETWEEN
    shown: list[int] = []
    for position in everything:
        if heads[position].fixed:
            continue
        if shown and widths[position] + _BETWEEN > left:
            break
        shown.append(position)
        left -= widths[position] + _BETWEEN
    columns = tuple(n for n in everything if heads[n].fixed or n in shown)
    hidden = tuple(heads[n].name for n in everything if n not in columns)
    return Layout(columns, tuple(widths), hidden)


def table_lines(heads: Sequence[Head], rows: Sequence[Row], layout: Layout, with_head: bool = True) -> Iterator[Text]:
    """A table, a line for each row."""
    if with_head:
        yield _line(heads, [head.name for head in heads], layout, _HEAD)
    for row in rows:
        yield _line(heads, row.cells, layout, row.style)


def expanded_lines(heads: Sequence[Head], rows: Sequence[Row], first: int = 1) -> Iterator[Text]:
    """Every row as a block, a line for each column, with values in full."""
    width = max((cell_len(head.name) for head in heads), default=0)
    for number, row in enumerate(rows, first):
        yield Text(f"row {number:,}", style=QUIET)
        for head, cell in zip(heads, row.cells, strict=True):
            if head.name:
                name = Text(set_cell_size(printable(head.name), width + _BETWEEN), style=_HEAD)
                yield Text.assemble("  ", name, Text("NULL", style=QUIET) if cell is None else Text(cell, row.style))


def say_hidden(hidden: Sequence[str], remedy: str) -> str:
    """`3 columns hidden: a, b, c; .expand shows them`."""
    count = f"{len(hidden)} column{'' if len(hidden) == 1 else 's'} hidden"
    return f"{count}: {', '.join(map(printable, hidden))}; {remedy} shows {'it' if len(hidden) == 1 else 'them'}"


def _line(heads: Sequence[Head], cells: Sequence[str | None], layout: Layout, style: str) -> Text:
    line = Text(style=style)
    for position in layout.columns:
        cell, width = _fit(cells[position]), layout.widths[position]
        if position != layout.columns[0]:
            line.append(" " * _BETWEEN)
        cell = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
        blanks = " " * (width - cell_len(cell))
        text = Text(cell, style=QUIET) if cells[position] is None else Text(cell)
        line.append_text(Text.assemble(blanks, text) if heads[position].is_number else Text.assemble(text, blanks))
    line.rstrip()
    return line


def _fit(cell: str | None) -> str:
    if cell is None:
        return "NULL"
    return cell if cell_len(cell) <= _WIDEST else set_cell_size(cell, _WIDEST - 1) + "…"


def _padded(heads: Sequence[Head], least: Sequence[int]) -> Iterator[tuple[Head, int]]:
    return zip(heads, [*least, *[0] * (len(heads) - len(least))], strict=True)
