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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import BIGINT, BOOLEAN, Column
from strandline.logical.expressions import Call, Case, ColumnRef, Expression, Literal, columns_of, substitute
from strandline.logical.plan import Outputs
from strandline.logical.schema import pass_on
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content
from strandline.planner.physical.plan import (
    ExchangeTo,
    Fragment,
    Node,
    Pipeline,
    WindowUse,
    ports,
    schema,
    sources,
    with_sources,
)
from strandline.planner.physical.structure import free_id
from strandline.planner.physical.window_joins import (
    CLASSES,
    SOURCE,
    Side,
    WindowJoin,
    digest_expression,
    find_window_joins,
    refs,
)


def share_window_joins(parts: Sequence[Pipeline], scopes: Sequence[str]) -> list[Pipeline]:
    """The parts of a pipeline with one operator in place of window joins that differ in their windows, selections or
    columns only. Those with other scopes stay apart."""
    groups: dict[str, list[WindowJoin]] = {}
    for number, (part, scope) in enumerate(zip(parts, scopes, strict=True)):
        for candidate in find_window_joins(number, part):
            groups.setdefault(digest_content([scope, *candidate.key]), []).append(candidate)
    changes = [JoinChanges() for _ in parts]
    for key, candidates in groups.items():
        for chunk, some in enumerate(_limit_classes(candidates)):
            if len({digest_content(candidate.variant) for candidate in some}) > 1:
                _share(digest_content([key, chunk]), some, changes)
    return [change.applied(part) for part, change in zip(parts, changes, strict=True)]


@dataclass(slots=True)
class JoinChanges:
    """The joins of a part that are replaced, and the senders of the shared ones by their ports. `origins` are the nodes
    in whose place others are."""

    joins: dict[Node, Node] = field(default_factory=dict)
    senders: dict[str, Fragment] = field(default_factory=dict)
    origins: dict[Node, Node] = field(default_factory=dict)

    def applied(self, part: Pipeline) -> Pipeline:
        if not self.joins:
            return part
        kept = [replace(fragment, root=self.replaced(fragment.root)) for fragment in part.fragments]
        read = {port.name for fragment in kept for port in ports(fragment.root)}
        kept = [f for f in kept if not isinstance(f.route, ExchangeTo) or f.route.port in read]
        return replace(part, fragments=(*self.senders.values(), *kept))

    def replaced(self, node: Node) -> Node:
        """The tree with the joins that are in the place of others."""
        if isinstance(node, physical.HashJoin | physical.SharedWindowJoin) and node in self.joins:
            return self.joins[node]
        inputs = sources(node)
        changed = tuple(map(self.replaced, inputs))
        if all(one is other for one, other in zip(changed, inputs, strict=True)):
            return node
        routed = _project(node.outputs, changed[0]) if isinstance(node, physical.Project) else None
        after = with_sources(node, changed) if routed is None else routed
        self.origins[after] = node
        return after


def _project(outputs: Outputs, node: Node) -> Node | None:
    """The columns of a route that a projection passes on, as a route: it takes no others."""
    if not isinstance(node, physical.Route) or not outputs:
        return None
    columns = {column.id: reference for column, reference in node.outputs}
    passed = [(column, columns[value.id]) for column, value in outputs if isinstance(value, ColumnRef)]
    return replace(node, outputs=tuple(passed)) if len(passed) == len(outputs) else None


def _limit_classes(candidates: Sequence[WindowJoin]) -> list[list[WindowJoin]]:
    """The candidates, with no more classes of selections together than a word has bits."""
    classes = {selections: i // CLASSES for i, selections in enumerate(dict.fromkeys(c.selections for c in candidates))}
    chunks: list[list[WindowJoin]] = [[] for _ in range(max(classes.values()) + 1)]
    for candidate in candidates:
        chunks[classes[candidate.selections]].append(candidate)
    return chunks


# ---- the shared join -------------------------------------------------------------------------------------------------


def _share(key: str, candidates: Sequence[WindowJoin], changes: Sequence[JoinChanges]) -> None:
    """Put one join in place of some."""
    first = candidates[0]
    uses = _uses(candidates)
    classes = list(dict.fromkeys(use.selections for use in uses))
    taken: set[str] = set()
    sides: list[SharedSide] = []
    for number, name in enumerate(("left", "right")):
        own = [candidate.sides[number] for candidate in candidates]
        values = {digest_expression(expression): expression for side in own for _, expression in side.outputs}
        labels = [use.selections[number] for use in uses]
        predicates = {label: side.predicate for label, side in zip(labels, own, strict=True)}
        given = own[0].stream, values, Selections.of(predicates, classes, number)
        sides.append(SharedSide(f"{key[:16]}.{name}", *given, taken))
    join = join_sides(first, sides, tuple(dict.fromkeys(uses)))
    for candidate, use in zip(candidates, uses, strict=True):
        change = changes[candidate.part]
        change.joins[candidate.node] = route(candidate, use, sides, join)
        for side, replaced in zip(sides, candidate.sides, strict=True):
            change.senders[side.port.name] = side.sender(replaced, candidate.fragment.stage)


def join_sides(
    like: WindowJoin, sides: Sequence[SharedSide], uses: tuple[WindowUse, ...], *, runs: bool = False
) -> physical.SharedWindowJoin:
    """The join of two sides with the keys and the condition of another join. Of one that `runs` it has what is
    below it, too, since rows may wait there."""
    left, right = sides
    keys = [
        tuple(side.column_of(own.value(ref.id)) for ref in columns)
        for side, own, columns in zip(sides, like.sides, (like.node.left_keys, like.node.right_keys), strict=True)
    ]
    condition = like.node.condition and substitute(like.node.condition, _columns(like, sides))
    inputs: tuple[Node, Node] = physical.Reorder(left.port), physical.Reorder(right.port)
    if runs:
        inputs = _over_port(like.node.left, left.port), _over_port(like.node.right, right.port)
    return physical.SharedWindowJoin(keys[0], keys[1], condition, left.word, right.word, *inputs, uses)


def _over_port(node: Node, port: physical.Input) -> Node:
    """A chain of operators over another port."""
    if isinstance(node, physical.Input):
        return port
    (source,) = sources(node)
    return with_sources(node, (_over_port(source, port),))


def route(
    candidate: WindowJoin, use: WindowUse, sides: Sequence[SharedSide], join: Node, since: Instant = BEFORE_ALL
) -> Node:
    """What is in the place of a join that becomes a use of a shared one."""
    columns = _columns(candidate, sides)
    node = physical.Route(use, tuple((c, columns[c.id]) for c in schema(candidate.node)), join, since)
    return physical.Reorder(node) if use.left[1] > 1 or use.right[1] > 1 else node


def _columns(candidate: WindowJoin, sides: Sequence[SharedSide]) -> dict[str, ColumnRef]:
    """The columns of the shared join for those of a join, as far as it has them."""
    return {
        column.id: reference
        for side, own in zip(sides, candidate.sides, strict=True)
        for column, expression in own.outputs
        if (reference := side.find_column(expression)) is not None
    }


def _uses(candidates: Sequence[WindowJoin]) -> list[WindowUse]:
    """The use of each candidate; selections count where they differ."""
    differ = [len({candidate.sides[number].selection for candidate in candidates}) > 1 for number in (0, 1)]
    uses: list[WindowUse] = []
    for candidate in candidates:
        left, right = (s if differs else "" for s, differs in zip(candidate.selections, differ, strict=True))
        uses.append(WindowUse(candidate.sides[0].window, candidate.sides[1].window, (left, right)))
    return uses


@dataclass(frozen=True, slots=True)
class Selections:
    """The selections of a side, by label: the predicate of each, and the bits of the classes that have it."""

    predicates: Mapping[str, Expression | None]
    masks: Mapping[str, int]

    @staticmethod
    def of(
        predicates: Mapping[str, Expression | None], classes: Sequence[tuple[str, str] | None], number: int
    ) -> Selections:
        """Those of the left (0) or the right (1), of classes by bit; a bit may have none."""
        masks = dict.fromkeys(predicates, 0)
        for bit, selections in enumerate(classes):
            if selections is not None:
                masks[selections[number]] |= 1 << bit
        return Selections(predicates, masks)


class SharedSide:
    """The sender of a side for all uses, with some values by digest. One selection needs no word.

    `given` are columns that a join has which runs, and `word` that of its words: these keep their names."""

    def __init__(
        self,
        port: str,
        stream: str,
        values: Mapping[str, Expression],
        selections: Selections,
        taken: set[str],
        given: Mapping[str, Column] = MappingProxyType({}),
        word: ColumnRef | None = None,
    ) -> None:
        self._stream = stream
        added = sorted(((d, v) for d, v in values.items() if d not in given), key=lambda item: _place(*item))
        in_order = [*((digest, values[digest]) for digest in given), *added]
        predicates = selections.predicates.values()
        named = sorted({name for e in (*values.values(), *predicates) for name in columns_of(e)})
        types = {ref.id: ref.type for e in (*values.values(), *predicates) for ref in refs(e)}
        known = {value.id: given[d].id for d, value in values.items() if d in given and isinstance(value, ColumnRef)}
        self._source = tuple(Column(known.get(n) or self._free(n, taken), n, types[n]) for n in named)
        self._refs = {column.name: ColumnRef(column.id, column.type) for column in self._source}
        self._columns = {digest: self._column(digest, value, taken, given) for digest, value in in_order}
        self._outputs: Outputs = tuple(
            (self._columns[digest], substitute(value, self._refs)) for digest, value in in_order
        )
        self.word = word
        if word is None and len(selections.predicates) == 1:
            self._root = self._filtered(*predicates)
        else:
            column = Column(self._free("word", taken) if word is None else word.id, "word", BIGINT)
            self.word = ColumnRef(column.id, BIGINT)
            self._root = self._marked(column, selections)
        self.port = physical.Input(port, schema(self._root))

    def column_of(self, expression: Expression) -> ColumnRef:
        column = self.find_column(expression)
        assert column is not None, "it has the columns of all uses"
        return column

    def find_column(self, expression: Expression) -> ColumnRef | None:
        """The column with a value, if it has one."""
        column = self._columns.get(digest_expression(expression))
        return None if column is None else ColumnRef(column.id, column.type)

    def sender(self, own: Side, stage: int) -> Fragment:
        """The fragment in place of that which has sent a side."""
        keys = tuple(self.column_of(own.value(key)).id for key in own.exchange.keys)
        route = ExchangeTo(self.port.name, stage, own.exchange.mode, keys)
        return replace(own.sender, root=self._root, route=route)

    def _free(self, name: str, taken: set[str]) -> str:
        column_id = free_id(f"{self._stream}.{name}", taken)
        taken.add(column_id)
        return column_id

    def _column(self, digest: str, value: Expression, taken: set[str], given: Mapping[str, Column]) -> Column:
        if isinstance(value, ColumnRef):
            return next(column for column in self._source if column.name == value.id)
        return given.get(digest) or Column(self._free(digest[:8], taken), "value", value.type)

    def _filtered(self, predicate: Expression | None) -> Node:
        """All uses have one selection."""
        node: Node = physical.Input(f"{SOURCE}{self._stream}", self._source)
        if predicate is not None:
            node = physical.Filter(substitute(predicate, self._refs), node)
        return node if self._outputs == pass_on(schema(node)) else physical.Project(self._outputs, node)

    def _marked(self, word: Column, selections: Selections) -> Node:
        """Rows with the bits of the selections that they satisfy, and only those that satisfy one."""
        node: Node = physical.Input(f"{SOURCE}{self._stream}", self._source)
        predicates, masks = selections.predicates, selections.masks
        bits = [_bits(p and substitute(p, self._refs), masks[selection]) for selection, p in predicates.items()]
        marked = word, reduce(lambda one, two: Call("+", (one, two), BIGINT), bits)
        computes = any(not isinstance(expression, ColumnRef) for _, expression in self._outputs)
        node = physical.Project((*(pass_on(self._source) if computes else self._outputs), marked), node)
        if None not in predicates.values():
            some = Call("<>", (ColumnRef(word.id, BIGINT), Literal(0, BIGINT)), BOOLEAN)
            node = physical.Filter(some, node)
        return physical.Project((*self._outputs, *pass_on((word,))), node) if computes else node


def read_bits(word: Expression) -> list[tuple[Expression | None, int]]:
    """The predicates in the expression of a word, with their bits: the opposite of writing it."""
    match word:
        case Call("+", (one, two)):
            return [*read_bits(one), *read_bits(two)]
        case Case(((predicate, Literal(int(bits))),)):
            return [(predicate, bits)]
        case Literal(int(bits)):
            return [(None, bits)]
    raise AssertionError("a word is a sum of bits")


def _bits(predicate: Expression | None, mask: int) -> Expression:
    bits = Literal(mask, BIGINT)
    return bits if predicate is None else Case(((predicate, bits),), Literal(0, BIGINT), BIGINT)


def _place(digest: str, expression: Expression) -> tuple[bool, str]:
    """Columns of the source by name, then what is computed: the order of queries does not matter."""
    return (False, expression.id) if isinstance(expression, ColumnRef) else (True, digest)
