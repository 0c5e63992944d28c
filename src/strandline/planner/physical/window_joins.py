"""Joins of windows over rows of streams, which are filtered and projected only: those that queries may share.

What such a join computes is read back from its plan, over the columns of the sources by their names: so joins of
queries that call their columns differently are compared, and one that runs is known from what is stored of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import (
    ColumnRef,
    Expression,
    UserCall,
    children,
    conjunction,
    conjuncts,
    extent,
    substitute,
)
from strandline.logical.plan import Outputs
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content
from strandline.planner.physical.plan import ExchangeTo, Fragment, Node, Pipeline, WindowExtent, numbered, schema
from strandline.planner.physical.structure import encode_expression

CLASSES: Final = 62  # of selections that one word has; further ones have a join of their own
_LARGEST: Final = 1_000  # nodes of an expression over the columns of a source; of a word for each class
SOURCE: Final = "source:"


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a window join: what its sender computes, over the columns of the source by their names."""

    sender: Fragment
    exchange: ExchangeTo
    stream: str
    outputs: Outputs
    predicate: Expression | None
    window: WindowExtent

    def value(self, column: str) -> Expression:
        return next(expression for output, expression in self.outputs if output.id == column)

    @property
    def selection(self) -> str:
        return digest_selection(self.predicate)


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """A join that may be shared, or is: where it is, and its sides."""

    part: int
    fragment: Fragment
    node: physical.HashJoin | physical.SharedWindowJoin
    sides: tuple[Side, Side]

    @property
    def selections(self) -> tuple[str, str]:
        return self.sides[0].selection, self.sides[1].selection

    @property
    def variant(self) -> list[Any]:
        """In what joins with one key may differ."""
        columns = [[digest_expression(expression) for _, expression in side.outputs] for side in self.sides]
        return [[list(side.window) for side in self.sides], list(self.selections), columns]

    @property
    def key(self) -> list[Any]:
        """What joins have in common that may be one."""
        values = {
            column.id: substitute(expression, _prefixed(expression, number))
            for number, side in enumerate(self.sides)
            for column, expression in side.outputs
        }
        condition = None if self.node.condition is None else digest_expression(substitute(self.node.condition, values))
        # Without keys all rows meet, so that a row which another query selects would be compared for nothing.
        selections = [] if self.node.left_keys else list(self.selections)
        return [self.fragment.stage, self.fragment.everywhere, condition, selections, *map(self._key_of, (0, 1))]

    def _key_of(self, number: int) -> list[Any]:
        side, keys = self.sides[number], (self.node.left_keys, self.node.right_keys)[number]
        moved = [digest_expression(side.value(column)) for column in side.exchange.keys]
        return [side.stream, side.exchange.mode, moved, [digest_expression(side.value(key.id)) for key in keys]]


def find_window_joins(
    number: int, part: Pipeline, kind: type[physical.HashJoin | physical.SharedWindowJoin] = physical.HashJoin
) -> Iterator[WindowJoin]:
    """The joins of a kind in a pipeline, which has a number."""
    largest = _LARGEST * (1 if kind is physical.HashJoin else CLASSES)
    streams = {stream.name: stream for stream in part.streams}
    senders = {f.route.port: f for f in part.fragments if isinstance(f.route, ExchangeTo)}
    done: set[Node] = set()
    for fragment in part.fragments:
        for node in numbered(fragment.root):
            if not isinstance(node, kind) or node in done or _calls_user_function(node.condition):
                continue
            done.add(node)
            left, right = (_find_side(side, senders, streams, largest) for side in (node.left, node.right))
            if left is not None and right is not None:
                yield WindowJoin(number, fragment, node, (left, right))


def _find_side(
    node: Node, senders: Mapping[str, Fragment], streams: Mapping[str, BaseStream], largest: int
) -> Side | None:
    """A side of a join that is a window over rows of a stream, which are filtered and projected only."""
    window = physical.POINTS
    match node:
        case physical.Reorder(physical.TimeWindow(range_us, slide_us, physical.Input(port), offset_us), "intervals"):
            window = range_us, slide_us, offset_us
        case physical.Reorder(physical.Input(port), "intervals"):
            pass
        case _:
            return None
    sender = senders.get(port)
    if sender is None or sender.stage or not isinstance(sender.route, ExchangeTo):
        return None
    if (found := _over_source(sender.root)) is None:
        return None
    source, values, predicates = found
    stream = streams[source.name.removeprefix(SOURCE)]
    if stream.has_intervals or stream.table is not None or stream.changes is not None:
        return None
    outputs = tuple((column, values[column.id]) for column in schema(sender.root))
    expressions = [*predicates, *(expression for _, expression in outputs)]
    if any(_calls_user_function(each) or extent(each).nodes > largest for each in expressions):
        return None
    return Side(sender, sender.route, stream.name, outputs, conjunction(predicates), window)


def _over_source(node: Node) -> tuple[physical.Input, dict[str, Expression], list[Expression]] | None:
    """What a sender computes over the columns of its source by their names: its columns, and which rows pass."""
    match node:
        case physical.Input(name, columns, "intervals") if name.startswith(SOURCE):
            return node, {column.id: ColumnRef(column.name, column.type) for column in columns}, []
        case physical.Filter(predicate, source) if (below := _over_source(source)) is not None:
            return *below[:2], [*below[2], substitute(predicate, below[1])]
        case physical.Project(outputs, source) if (below := _over_source(source)) is not None:
            return below[0], {column.id: substitute(value, below[1]) for column, value in outputs}, below[2]
        case _:
            return None


def _calls_user_function(expression: Expression | None) -> bool:
    """True if a function of the user's is called: it may fail, and then for the rows of its own query only."""
    if expression is None:
        return False
    return isinstance(expression, UserCall) or any(map(_calls_user_function, children(expression)))


def digest_selection(predicate: Expression | None) -> str:
    """The digest of a predicate, whatever the order of its parts; "" if there is none."""
    parts = sorted(map(digest_expression, conjuncts(predicate)))
    return digest_content([*parts]) if parts else ""


def digest_expression(expression: Expression) -> str:
    """The digest of an expression over the columns of a source."""
    return digest_content([encode_expression(expression)])


def refs(expression: Expression | None) -> Iterator[ColumnRef]:
    """The references to columns in an expression."""
    if isinstance(expression, ColumnRef):
        yield expression
    for child in () if expression is None else children(expression):
        yield from refs(child)


def _prefixed(expression: Expression, number: int) -> dict[str, Expression]:
    """The columns of a source apart from those of the other side."""
    return {ref.id: ColumnRef(f"{number} {ref.id}", ref.type) for ref in refs(expression)}
