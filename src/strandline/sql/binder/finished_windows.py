"""A stream joined with finished windows by their bounds: `b.ts >= w.window_start AND b.ts < w.window_end`.

The bounds of a finished window [T - range, T) are visible from T - 1 on for a slide. The rows between these bounds are
those that `WINDOW(RANGE range SLIDE slide)` holds at the same instants, so this is the window of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from strandline.core.temporal import show_duration
from strandline.logical import plan as logical
from strandline.logical.expressions import ColumnRef
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.sql import ast

_LOWER, _UPPER = "lower", "upper"


@dataclass(frozen=True, slots=True)
class FinishedWindow:
    """The windows that an entry of FROM has the bounds of, and the lower-case names of its columns that hold them."""

    range_us: int
    slide_us: int
    offset_us: int
    starts: frozenset[str]
    ends: frozenset[str]

    @property
    def slide(self) -> str:
        """How SLIDE is written in a window."""
        offset = f" OFFSET {show_duration(self.offset_us)}" if self.offset_us else ""
        return f" SLIDE {show_duration(self.slide_us)}{offset}"

    def over(self, place: ast.Node) -> ast.RangeWindow:
        """The window of a stream that has the rows between the bounds."""
        length, slide = (ast.Duration(us, span=place.span) for us in (self.range_us, self.slide_us))
        return ast.RangeWindow(length, slide, (), self.offset_us, span=place.span)


def find_finished_window(plan: Plan) -> FinishedWindow | None:
    """The windows whose bounds the columns of a plan hold at each instant, if there is one kind of them."""
    found = _bounds_below(plan)
    if found is None:
        return None
    node, starts, ends = found
    offset = node.offset_us % node.slide_us
    by_id = {column.id: column.name.lower() for column in schema(plan)}
    names = [frozenset(by_id[column] for column in columns) for columns in (starts, ends)]
    return FinishedWindow(node.range_us, node.slide_us, offset, *names)


def _bounds_below(plan: Plan) -> tuple[logical.WindowBounds, frozenset[str], frozenset[str]] | None:
    """The node that adds bounds, with the columns of a plan that are their starts and ends at the same instant."""
    match plan:
        case logical.WindowBounds(start=start, end=end):
            return plan, frozenset((start.id,)), frozenset((end.id,))
        case logical.Filter() | logical.Distinct() | logical.TopRows() | logical.Rank():
            return _bounds_below(plan.source)
        case logical.Aggregate(keys, _, source):
            found = _bounds_below(source)
            return found and (found[0], found[1] & frozenset(keys), found[2] & frozenset(keys))
        case logical.Map(outputs, source):
            found = _bounds_below(source)
            if found is None:
                return None
            refs = [(column.id, value.id) for column, value in outputs if isinstance(value, ColumnRef)]
            starts, ends = (frozenset(new for new, old in refs if old in columns) for columns in found[1:])
            return found[0], starts, ends
    return None


@dataclass(slots=True)
class WindowJoins:
    """Which streams a condition puts between the bounds of which finished windows, by the identity of entries."""

    bounds: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    windows: dict[int, FinishedWindow] = field(default_factory=dict)

    def add(self, stream: int, entry: int, window: FinishedWindow, bound: str) -> None:
        self.windows[entry] = window
        self.bounds.setdefault((stream, entry), set()).add(bound)

    def found(self) -> Iterator[tuple[int, FinishedWindow]]:
        """The streams that are between both bounds of windows of one kind."""
        kinds: dict[int, set[tuple[int, int, int]]] = {}
        last: dict[int, FinishedWindow] = {}
        for (stream, entry), bounds in self.bounds.items():
            if bounds == {_LOWER, _UPPER}:
                window = self.windows[entry]
                kinds.setdefault(stream, set()).add((window.range_us, window.slide_us, window.offset_us))
                last[stream] = window
        yield from ((stream, last[stream]) for stream, kind in kinds.items() if len(kind) == 1)


def bound_of(operator: str, column: str, window: FinishedWindow) -> str | None:
    """Which bound `time operator column` is: the lower one if it is `>= start`, the upper one if `< end`."""
    if operator == ">=" and column in window.starts:
        return _LOWER
    return _UPPER if operator == "<" and column in window.ends else None
