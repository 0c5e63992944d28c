"""Window joins that queries share: those over the same streams, with the same keys and condition, become one.

Law    `share_window_joins(parts)` computes what the parts do, query by query

    q1   HashJoin                                   q1   Route 1 s
           Reorder · TimeWindow 1 s · Exchange s           SharedWindowJoin for 1 s, 5 s
           Reorder · TimeWindow 1 s · Exchange t             Reorder · Exchange s
    q2   the same with 5 s                                   Reorder · Exchange t
                                                    q2   Route 5 s, over the same operator

The sender of a side has the columns of all uses. Where the uses select different rows, each row carries a word with a
bit for each class of selections, and those without a bit are not sent. A join that no other query has stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from strandline.core.types import BIGINT, BOOLEAN, Column
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import (
    Call,
    Case,
    ColumnRef,
    Expression,
    Literal,
    UserCall,
    children,
    columns_of,
    conjunction,
    conjuncts,
    extent,
    substitute,
)
from strandline.logical.plan import Outputs
from strandline.logical.schema import pass_on
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content
from strandline.planner.physical.plan import (
    ExchangeTo,
    Fragment,
    Node,
    Pipeline,
    WindowExtent,
    WindowUse,
    numbered,
    ports,
    schema,
    sources,
    with_sources,
)
from strandline.planner.physical.structure import encode_expression, free_id

CLASSES: Final = 62  # of selections that one word has; further ones have a join of their own
_LARGEST: Final = 1_000  # nodes of an expression over the columns of a source
_SOURCE: Final = "source:"


@dataclass(frozen=True, slots=True)
class _Side:
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
        """The predicate, whatever the order of its parts; "" if there is none."""
        parts = sorted(_digest(part) for part in conjuncts(self.predicate))
        return digest_content([*parts]) if parts else ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A join that may be shared: where it is, and its sides."""

    part: int
    fragment: Fragment
    node: physical.HashJoin
    sides: tuple[_Side, _Side]

    @property
    def selections(self) -> tuple[str, str]:
        return self.sides[0].selection, self.sides[1].selection

    @property
    def variant(self) -> list[Any]:
        """In what joins with one key may differ."""
        columns = [[_digest(expression) for _, expression in side.outputs] for side in self.sides]
        return [[list(side.window) for side in self.sides], list(self.selections), columns]

    @property
    def key(self) -> list[Any]:
        """What joins have in common that may be one."""
        values = {
            column.id: substitute(expression, _prefixed(expression, number))
            for number, side in enumerate(self.sides)
            for column, expression in side.outputs
        }
        condition = None if self.node.condition is None else _digest(substitute(self.node.condition, values))
        # Without keys all rows meet, so that a row which another query selects would be compared for nothing.
        selections = [] if self.node.left_keys else list(self.selections)
        return [self.fragment.stage, self.fragment.everywhere, condition, selections, *map(self._key_of, (0, 1))]

    def _key_of(self, number: int) -> list[Any]:
        side, keys = self.sides[number], (self.node.left_keys, self.node.right_keys)[number]
        moved = [_digest(side.value(column)) for column in side.exchange.keys]
        return [side.stream, side.exchange.mode, moved, [_digest(side.value(key.id)) for key in keys]]


def share_window_joins(parts: Sequence[Pipeline], scopes: Sequence[str]) -> list[Pipeline]:
    """The parts of a pipeline with one operator in place of window joins that differ in their windows, selections or
    columns only. Those with other scopes stay apart."""
    groups: dict[str, list[_Candidate]] = {}
    for number, (part, scope) in enumerate(zip(parts, scopes, strict=True)):
        for candidate in _find_candidates(number, part):
            groups.setdefault(digest_content([scope, *candidate.key]), []).append(candidate)
    changes = [_Changes() for _ in parts]
    for key, candidates in groups.items():
        for chunk, some in enumerate(_limit_classes(candidates)):
            if len({digest_content(candidate.variant) for candidate in some}) > 1:
                _share(digest_content([key, chunk]), some, changes)
    return [change.applied(part) for part, change in zip(parts, changes, strict=True)]


class _Changes:
    """The joins of a part that are replaced, and the senders of the shared ones by their ports."""

    def __init__(self) -> None:
        self.joins: dict[Node, Node] = {}
        self.senders: dict[str, Fragment] = {}

    def applied(self, part: Pipeline) -> Pipeline:
        if not self.joins:
            return part
        kept = [replace(fragment, root=self._replaced(fragment.root)) for fragment in part.fragments]
        read = {port.name for fragment in kept for port in ports(fragment.root)}
        kept = [f for f in kept if not isinstance(f.route, ExchangeTo) or f.route.port in read]
        return replace(part, fragments=(*self.senders.values(), *kept))

    def _replaced(self, node: Node) -> Node:
        if isinstance(node, physical.HashJoin) and node in self.joins:
            return self.joins[node]
        inputs = sources(node)
        changed = tuple(map(self._replaced, inputs))
        if isinstance(node, physical.Project) and (routed := _project(node.outputs, changed[0])) is not None:
            return routed
        unchanged = all(one is other for one, other in zip(changed, inputs, strict=True))
        return node if unchanged else with_sources(node, changed)


def _project(outputs: Outputs, node: Node) -> Node | None:
    """The columns of a route that a projection passes on, as a route: it takes no others."""
    if not isinstance(node, physical.Route) or not outputs:
        return None
    columns = {column.id: reference for column, reference in node.outputs}
    passed = [(column, columns[value.id]) for column, value in outputs if isinstance(value, ColumnRef)]
    return replace(node, outputs=tuple(passed)) if len(passed) == len(outputs) else None


# ---- joins that may be shared ----------------------------------------------------------------------------------------


def _find_candidates(number: int, part: Pipeline) -> Iterator[_Candidate]:
    streams = {stream.name: stream for stream in part.streams}
    senders = {f.route.port: f for f in part.fragments if isinstance(f.route, ExchangeTo)}
    done: set[Node] = set()
    for fragment in part.fragments:
        for node in numbered(fragment.root):
            if not isinstance(node, physical.HashJoin) or node in done or _calls_user_function(node.condition):
                continue
            done.add(node)
            left, right = (_find_side(side, senders, streams) for side in (node.left, node.right))
            if left is not None and right is not None:
                yield _Candidate(number, fragment, node, (left, right))


def _find_side(node: Node, senders: Mapping[str, Fragment], streams: Mapping[str, BaseStream]) -> _Side | None:
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
    stream = streams[source.name.removeprefix(_SOURCE)]
    if stream.has_intervals or stream.table is not None or stream.changes is not None:
        return None
    outputs = tuple((column, values[column.id]) for column in schema(sender.root))
    expressions = [*predicates, *(expression for _, expression in outputs)]
    if any(_calls_user_function(each) or extent(each).nodes > _LARGEST for each in expressions):
        return None
    return _Side(sender, sender.route, stream.name, outputs, conjunction(predicates), window)


def _over_source(node: Node) -> tuple[physical.Input, dict[str, Expression], list[Expression]] | None:
    """What a sender computes over the columns of its source by their names: its columns, and which rows pass."""
    match node:
        case physical.Input(name, columns, "intervals") if name.startswith(_SOURCE):
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


def _limit_classes(candidates: Sequence[_Candidate]) -> list[list[_Candidate]]:
    """The candidates, with no more classes of selections together than a word has bits."""
    classes = {selections: i // CLASSES for i, selections in enumerate(dict.fromkeys(c.selections for c in candidates))}
    chunks: list[list[_Candidate]] = [[] for _ in range(max(classes.values()) + 1)]
    for candidate in candidates:
        chunks[classes[candidate.selections]].append(candidate)
    return chunks


# ---- the shared join -------------------------------------------------------------------------------------------------


def _share(key: str, candidates: Sequence[_Candidate], changes: Sequence[_Changes]) -> None:
    """Put one join in place of some."""
    first = candidates[0]
    uses = _uses(candidates)
    classes = list(dict.fromkeys(use.selections for use in uses))
    taken: set[str] = set()
    sides: list[_SharedSide] = []
    for number, name in enumerate(("left", "right")):
        own = [candidate.sides[number] for candidate in candidates]
        masks = {use.selections[number]: 0 for use in uses}
        for bit, selections in enumerate(classes):
            masks[selections[number]] |= 1 << bit
        sides.append(_SharedSide(f"{key[:16]}.{name}", own, masks, taken))
    left, right = sides
    keys = [
        tuple(side.column_of(own.value(ref.id)) for ref in refs)
        for side, own, refs in zip(sides, first.sides, (first.node.left_keys, first.node.right_keys), strict=True)
    ]
    condition = first.node.condition and substitute(first.node.condition, _columns(first, sides))
    inputs = physical.Reorder(left.port), physical.Reorder(right.port)
    distinct = tuple(dict.fromkeys(uses))
    join = physical.SharedWindowJoin(keys[0], keys[1], condition, left.word, right.word, *inputs, distinct)
    for candidate, use in zip(candidates, uses, strict=True):
        columns = _columns(candidate, sides)
        node: Node = physical.Route(use, tuple((c, columns[c.id]) for c in schema(candidate.node)), join)
        if use.left[1] > 1 or use.right[1] > 1:
            node = physical.Reorder(node)
        change = changes[candidate.part]
        change.joins[candidate.node] = node
        for side, replaced in zip(sides, candidate.sides, strict=True):
            change.senders[side.port.name] = side.sender(replaced, candidate.fragment.stage)


def _columns(candidate: _Candidate, sides: Sequence[_SharedSide]) -> dict[str, ColumnRef]:
    """The columns of the shared join for those of a join."""
    return {
        column.id: side.column_of(expression)
        for side, own in zip(sides, candidate.sides, strict=True)
        for column, expression in own.outputs
    }


def _uses(candidates: Sequence[_Candidate]) -> list[WindowUse]:
    """The use of each candidate; selections count where they differ."""
    differ = [len({candidate.sides[number].selection for candidate in candidates}) > 1 for number in (0, 1)]
    uses: list[WindowUse] = []
    for candidate in candidates:
        left, right = (s if differs else "" for s, differs in zip(candidate.selections, differ, strict=True))
        uses.append(WindowUse(candidate.sides[0].window, candidate.sides[1].window, (left, right)))
    return uses


class _SharedSide:
    """The sender of a side for all uses. `masks` are the bits of each selection; one selection needs no word."""

    def __init__(self, port: str, sides: Sequence[_Side], masks: Mapping[str, int], taken: set[str]) -> None:
        self._stream = sides[0].stream
        values = {_digest(expression): expression for side in sides for _, expression in side.outputs}
        in_order = sorted(values.items(), key=lambda item: _place(*item))
        predicates = {side.selection: side.predicate for side in sides}
        named = sorted({name for e in (*values.values(), *predicates.values()) for name in columns_of(e)})
        types = {ref.id: ref.type for e in (*values.values(), *predicates.values()) for ref in _refs(e)}
        self._source = tuple(Column(self._free(name, taken), name, types[name]) for name in named)
        self._refs = {column.name: ColumnRef(column.id, column.type) for column in self._source}
        self._columns = {digest: self._column(digest, value, taken) for digest, value in in_order}
        self._outputs: Outputs = tuple(
            (self._columns[digest], substitute(value, self._refs)) for digest, value in in_order
        )
        self.word: ColumnRef | None = None
        if len(predicates) == 1:
            self._root = self._filtered(*predicates.values())
        else:
            column = Column(self._free("word", taken), "word", BIGINT)
            self.word = ColumnRef(column.id, BIGINT)
            self._root = self._marked(column, predicates, masks)
        self.port = physical.Input(port, schema(self._root))

    def column_of(self, expression: Expression) -> ColumnRef:
        column = self._columns[_digest(expression)]
        return ColumnRef(column.id, column.type)

    def sender(self, own: _Side, stage: int) -> Fragment:
        """The fragment in place of that which has sent a side."""
        keys = tuple(self.column_of(own.value(key)).id for key in own.exchange.keys)
        route = ExchangeTo(self.port.name, stage, own.exchange.mode, keys)
        return replace(own.sender, root=self._root, route=route)

    def _free(self, name: str, taken: set[str]) -> str:
        column_id = free_id(f"{self._stream}.{name}", taken)
        taken.add(column_id)
        return column_id

    def _column(self, digest: str, value: Expression, taken: set[str]) -> Column:
        if isinstance(value, ColumnRef):
            return next(column for column in self._source if column.name == value.id)
        return Column(self._free(digest[:8], taken), "value", value.type)

    def _filtered(self, predicate: Expression | None) -> Node:
        """All uses have one selection."""
        node: Node = physical.Input(f"{_SOURCE}{self._stream}", self._source)
        if predicate is not None:
            node = physical.Filter(substitute(predicate, self._refs), node)
        return node if self._outputs == pass_on(schema(node)) else physical.Project(self._outputs, node)

    def _marked(self, word: Column, predicates: Mapping[str, Expression | None], masks: Mapping[str, int]) -> Node:
        """Rows with the bits of the selections that they satisfy, and only those that satisfy one."""
        node: Node = physical.Input(f"{_SOURCE}{self._stream}", self._source)
        bits = [_bits(p and substitute(p, self._refs), masks[selection]) for selection, p in predicates.items()]
        marked = word, reduce(lambda one, two: Call("+", (one, two), BIGINT), bits)
        computes = any(not isinstance(expression, ColumnRef) for _, expression in self._outputs)
        node = physical.Project((*(pass_on(self._source) if computes else self._outputs), marked), node)
        if None not in predicates.values():
            some = Call("<>", (ColumnRef(word.id, BIGINT), Literal(0, BIGINT)), BOOLEAN)
            node = physical.Filter(some, node)
        return physical.Project((*self._outputs, *pass_on((word,))), node) if computes else node


def _bits(predicate: Expression | None, mask: int) -> Expression:
    bits = Literal(mask, BIGINT)
    return bits if predicate is None else Case(((predicate, bits),), Literal(0, BIGINT), BIGINT)


def _place(digest: str, expression: Expression) -> tuple[bool, str]:
    """Columns of the source by name, then what is computed: the order of queries does not matter."""
    return (False, expression.id) if isinstance(expression, ColumnRef) else (True, digest)


def _digest(expression: Expression) -> str:
    return digest_content([encode_expression(expression)])


def _refs(expression: Expression | None) -> Iterator[ColumnRef]:
    if isinstance(expression, ColumnRef):
        yield expression
    for child in () if expression is None else children(expression):
        yield from _refs(child)


def _prefixed(expression: Expression, number: int) -> dict[str, Expression]:
    """The columns of a source apart from those of the other side."""
    return {ref.id: ColumnRef(f"{number} {ref.id}", ref.type) for ref in _refs(expression)}
