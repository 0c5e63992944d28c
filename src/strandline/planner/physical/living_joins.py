"""Uses of window joins that run, which come and go with queries.

    comes    the join has one more route, for the pairs of which both rows have times from T on; its sides have the
             columns and the bits that the use needs beside those that they have. The join of one query becomes shared
    goes     the join has the windows, the columns and the selections of those that are left

Law    the other uses have the pairs that they had

No row from T on was read before the version that has the use: all of them come with its columns and its bit, and stay
for its window. So what the state has from before is right for the others, and not looked at for the use.

A bit keeps its class as long as the class has a use. Then a use without windows holds its place, until another class
takes that: whatever rows have the bit from before are older than the T of its uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.temporal import Instant
from strandline.core.types import Column
from strandline.logical.expressions import ColumnRef, Expression, columns_of
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content
from strandline.planner.physical.plan import (
    NO_WINDOW,
    ExchangeTo,
    Fragment,
    Node,
    Pipeline,
    WindowUse,
    numbered,
    ports,
    sources,
)
from strandline.planner.physical.shared_joins import JoinChanges, Selections, SharedSide, join_sides, read_bits, route
from strandline.planner.physical.structure import goes_by, operator_ids
from strandline.planner.physical.window_joins import (
    CLASSES,
    Side,
    WindowJoin,
    digest_expression,
    digest_selection,
    find_window_joins,
)
from strandline.planner.physical.window_uses import classes, living

_EVERY_ROW: Final = "every row"  # the label of no predicate, where "" is that of the rows which the join had first


@dataclass(frozen=True, slots=True)
class JoinedPart:
    """A pipeline that runs, with joins that the part which is added uses as well: `known` are the operators that both
    have, with their ids. `moved` has the ids that operators had up to now, by those that they have."""

    running: Pipeline
    part: Pipeline
    known: Mapping[Node, str]
    moved: Mapping[str, str]


def join_running(running: Pipeline, part: Pipeline, since: Instant, fragment_ids: Iterator[str]) -> JoinedPart:
    """Let window joins of a part, which counts rows from `since` on, be uses of those that run, where they may. New
    fragments have the ids that are given."""
    moved: dict[str, str] = {}
    while (found := _find_match(running, part, since)) is not None:
        join, own, use = found
        change = _Change(running, join.with_use(own, use), fragment_ids, own)
        running = change.applied(running)
        part = change.use_in(part, use, since)
        moved |= change.moved
    return JoinedPart(running, part, _find_shared(running, part), moved)


def drop_uses(running: Pipeline, fragment_ids: Iterator[str]) -> Pipeline:
    """Let shared joins have what their routes need, and no more."""
    for found in list(find_window_joins(0, running, physical.SharedWindowJoin)):
        join = RunningJoin.of(found, running.fragments)
        if not join.is_narrower:
            continue
        if all(_reads_alone(running, found)):
            running = _Change(running, join, fragment_ids).applied(running)
        else:  # what is sent others need, too
            assert isinstance(found.node, physical.SharedWindowJoin)
            changes = JoinChanges({found.node: replace(found.node, uses=join.uses)})
            running = changes.applied(running)
    return running


def _reads_alone(running: Pipeline, found: WindowJoin) -> list[bool]:
    """For each side of a join whether what is sent to it, and its buffer, are of no other use."""
    alone: list[bool] = []
    for buffer in sources(found.node):
        chain = [found.node, *_chain(buffer)]
        own: dict[Node, Node] = dict(zip(chain[1:], chain, strict=False))
        roots = [fragment.root in own for fragment in running.fragments if fragment.stage]
        readers = [
            node == own[source]
            for fragment in running.fragments
            for node in numbered(fragment.root)
            for source in sources(node)
            if source in own
        ]
        alone.append(not any(roots) and all(readers))
    return alone


def _chain(buffer: Node) -> list[Node]:
    """What is between a join and a port, and the port."""
    below = [part for source in sources(buffer) for part in _chain(source)]
    return [buffer, *below]


# ---- a join that runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningJoin:
    """A join that runs, and what its routes need: the uses, with those that hold a place; the columns of its sides by
    the digests of their values; and the predicates of its selections by label."""

    found: WindowJoin
    uses: tuple[WindowUse, ...]
    columns: tuple[Mapping[str, Column], Mapping[str, Column]]
    predicates: tuple[Mapping[str, Expression | None], Mapping[str, Expression | None]]

    @staticmethod
    def of(found: WindowJoin, fragments: Sequence[Fragment]) -> RunningJoin:
        """The join with what routes in some fragments need."""
        node, (left, right) = found.node, found.sides
        if isinstance(node, physical.HashJoin):
            columns = _columns_by_value(left), _columns_by_value(right)
            use = WindowUse(left.window, right.window)
            return RunningJoin(found, (use,), columns, ({"": left.predicate}, {"": right.predicate}))
        routes = _routes_over(node, fragments)
        needed = {reference.id for route in routes for _, reference in route.outputs}
        needed |= {key.id for key in (*node.left_keys, *node.right_keys)}
        needed |= set() if node.condition is None else columns_of(node.condition)
        uses = _remaining_uses(node.uses, {route.use for route in routes})
        columns = _columns_by_value(left, needed), _columns_by_value(right, needed)
        return RunningJoin(found, uses, columns, (_predicates(node, left, uses, 0), _predicates(node, right, uses, 1)))

    @property
    def words(self) -> tuple[ColumnRef | None, ColumnRef | None]:
        node = self.found.node
        return (None, None) if isinstance(node, physical.HashJoin) else (node.left_word, node.right_word)

    @property
    def classes(self) -> list[tuple[str, str] | None]:
        """The classes of selections by bit; None for a bit that is free."""
        in_use = classes(living(self.uses))
        return [selections if selections in in_use else None for selections in classes(self.uses)]

    @property
    def is_narrower(self) -> bool:
        """Whether its routes need less than it has."""
        node = self.found.node
        words = sum(word is not None for word in self.words)
        has = sum(len(side.outputs) for side in self.found.sides) - words
        return isinstance(node, physical.SharedWindowJoin) and (
            node.uses != self.uses or has > sum(map(len, self.columns))
        )

    def use_of(self, own: WindowJoin) -> WindowUse | None:
        """The use that another join would be, with a label for its selections; None if there is no bit for it."""
        left, right = (self._label(number, own.sides[number].predicate) for number in (0, 1))
        selections = left, right
        has_bit = selections in self.classes or None in self.classes or len(self.classes) < CLASSES
        return WindowUse(own.sides[0].window, own.sides[1].window, selections) if has_bit else None

    def _label(self, number: int, predicate: Expression | None) -> str:
        """The label of a selection: that which it has, or a new one."""
        digest, known = digest_selection(predicate), self.predicates[number]
        same = [label for label, other in known.items() if digest_selection(other) == digest]
        return same[0] if same else digest if digest or "" not in known else _EVERY_ROW

    def with_use(self, own: WindowJoin, use: WindowUse) -> RunningJoin:
        """The join with another use."""
        uses, by_bit = (*self.uses, use), list(classes(self.uses))
        if use.selections not in self.classes and None in self.classes:
            free = use.selections if use.selections in by_bit else by_bit[self.classes.index(None)]
            uses = tuple(use if each.selections == free else each for each in self.uses)
        predicates = [
            {**known, use.selections[number]: own.sides[number].predicate}
            for number, known in enumerate(self.predicates)
        ]
        return replace(self, uses=tuple(dict.fromkeys(uses)), predicates=(predicates[0], predicates[1]))


def _columns_by_value(side: Side, needed: set[str] | None = None) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for column, expression in side.outputs:
        if needed is None or column.id in needed:
            found.setdefault(digest_expression(expression), column)
    return found


def _remaining_uses(uses: Sequence[WindowUse], routed: set[WindowUse]) -> tuple[WindowUse, ...]:
    """The uses that have a route, in the order of their bits; for a bit without one a use without windows."""
    remaining: list[WindowUse] = []
    for selections in classes(uses):
        own = [use for use in uses if use.selections == selections and use in routed]
        remaining += own or [WindowUse(NO_WINDOW, NO_WINDOW, selections)]
    while remaining[-1].is_gone:
        remaining.pop()
    return tuple(remaining)


def _predicates(
    node: physical.SharedWindowJoin, side: Side, uses: Sequence[WindowUse], number: int
) -> dict[str, Expression | None]:
    """The predicates of the selections of a side that have uses, by label."""
    labels = dict.fromkeys(use.selections[number] for use in living(uses))
    word = (node.left_word, node.right_word)[number]
    if word is None:
        (label,) = labels
        return {label: side.predicate}
    in_use, found = classes(living(uses)), dict[str, Expression | None]()
    for predicate, bits in read_bits(side.value(word.id)):
        for bit, selections in enumerate(classes(node.uses)):
            if bits >> bit & 1 and selections in in_use:
                found[selections[number]] = predicate
    return {label: found[label] for label in labels}


def _routes_over(join: Node, fragments: Sequence[Fragment]) -> set[physical.Route]:
    nodes = (node for fragment in fragments for node in numbered(fragment.root))
    return {node for node in nodes if isinstance(node, physical.Route) and node.source == join}


# ---- a join of a query that is added ---------------------------------------------------------------------------------


def _find_match(running: Pipeline, part: Pipeline, since: Instant) -> tuple[RunningJoin, WindowJoin, WindowUse] | None:
    """A join of a part with one that runs of which it may be a use, and the use; shared ones first."""
    candidates = [] if _sheds(part.fragments) else list(find_window_joins(0, part))
    if not candidates:
        return None
    running_joins = list(_find_running(running, since))
    for own in candidates:
        for found in running_joins:
            if _has_same_rows(found, own):
                join = RunningJoin.of(found, (*running.fragments, *part.fragments))
                if (use := join.use_of(own)) is not None:
                    return join, own, use
    return None


def _find_running(running: Pipeline, since: Instant) -> Iterator[WindowJoin]:
    """The joins that a query may use which begins at an instant."""
    for kind in (physical.SharedWindowJoin, physical.HashJoin):
        for found in find_window_joins(0, running, kind):
            begun = all(side.sender.since <= since for side in found.sides)
            readers = [f for f in running.fragments if not set(f.queries).isdisjoint(found.fragment.queries)]
            if begun and (kind is physical.SharedWindowJoin or _may_become_shared(found)) and not _sheds(readers):
                yield found


def _may_become_shared(found: WindowJoin) -> bool:
    """Whether the state of a join of one query may be that of a shared one."""
    # The rows of a window that slides do not have their times any more.
    slides = any(side.window[1] > 1 for side in found.sides)
    streams = {side.stream for side in found.sides}
    # Columns that are added are called by their streams; an alias may be the name of the other one.
    misleads = any(
        column.id.partition(".")[0] in streams - {side.stream} for side in found.sides for column, _ in side.outputs
    )
    return not slides and not misleads


def _has_same_rows(found: WindowJoin, own: WindowJoin) -> bool:
    return found.key == own.key and _streams_of(found) == _streams_of(own)


def _streams_of(join: WindowJoin) -> frozenset[str]:
    """The streams by whose watermark a join goes."""
    return goes_by([join.fragment.root], [join.fragment.streams])[join.node]


def _sheds(fragments: Sequence[Fragment]) -> bool:
    """Whether a query drops rows: which ones is its own."""
    return any(isinstance(node, physical.SamplingRate) for f in fragments for node in numbered(f.root))


def _find_shared(running: Pipeline, part: Pipeline) -> dict[Node, str]:
    """The shared joins of a part, and what is below them, with the ids that they have in a pipeline that runs."""
    joins = {n for f in part.fragments for n in numbered(f.root) if isinstance(n, physical.SharedWindowJoin)}
    known: dict[Node, str] = {}
    for fragment in running.fragments if joins else ():
        ids = dict(zip(numbered(fragment.root), fragment.operators, strict=True))
        for join in joins & ids.keys():
            known |= {node: ids[node] for node in numbered(join)}
    return known


# ---- the change ------------------------------------------------------------------------------------------------------


class _Change:
    """A join of a pipeline that has other uses from a version on, perhaps one in the place of a join of a part."""

    def __init__(
        self, running: Pipeline, join: RunningJoin, fragment_ids: Iterator[str], own: WindowJoin | None = None
    ) -> None:
        self._join, self._own, self._fragment_ids = join, own, fragment_ids
        self._before = join.found.node
        is_shared = isinstance(self._before, physical.SharedWindowJoin)
        self._keeps_port = [is_shared and alone for alone in _reads_alone(running, join.found)]
        self._operator = dict(zip(numbered(join.found.fragment.root), join.found.fragment.operators, strict=True))
        base = next(fragment_ids)  # no port has had this name
        taken = {column.id for side in join.found.sides for column, _ in side.outputs}
        self._sides = [
            self._make_side(number, f"{base}.{name}", taken) for number, name in enumerate(("left", "right"))
        ]
        self._after = join_sides(join.found, self._sides, join.uses, runs=True)
        self.moved: dict[str, str] = {}

    def _make_side(self, number: int, port: str, taken: set[str]) -> SharedSide:
        found, columns = self._join.found.sides[number], self._join.columns[number]
        all_values = {digest_expression(value): value for _, value in found.outputs}
        values = {digest: all_values[digest] for digest in columns}
        if self._own is not None:
            values |= {digest_expression(value): value for _, value in self._own.sides[number].outputs}
        if self._keeps_port[number]:
            port = found.exchange.port
        selections = Selections.of(self._join.predicates[number], self._join.classes, number)
        return SharedSide(port, found.stream, values, selections, taken, columns, self._join.words[number])

    def applied(self, running: Pipeline) -> Pipeline:
        """The pipeline with the join as it is now."""
        node: Node = self._after
        if isinstance(self._before, physical.HashJoin):
            node = route(self._join.found, self._join.uses[0], self._sides, node)
        changes = JoinChanges({self._before: node})
        reading = [fragment for fragment in running.fragments if self._has_join(fragment)]
        changed = {fragment.id: self._change(fragment, changes) for fragment in reading}
        senders = self._make_senders(reading)
        kept = [f for f in running.fragments if not isinstance(f.route, ExchangeTo) or f.route.port not in senders]
        fragments = [*senders.values(), *(changed.get(fragment.id, fragment) for fragment in kept)]
        read = {port.name for fragment in fragments for port in ports(fragment.root)}
        kept = [f for f in fragments if not isinstance(f.route, ExchangeTo) or f.route.port in read]
        return replace(running, fragments=tuple(sorted(kept, key=lambda fragment: fragment.stage)))

    def use_in(self, part: Pipeline, use: WindowUse, since: Instant) -> Pipeline:
        """The part with the use in the place of its own join. It may have other uses of the join."""
        assert self._own is not None
        changes = JoinChanges({self._own.node: route(self._own, use, self._sides, self._after, since)})
        if isinstance(self._before, physical.SharedWindowJoin):
            changes.joins[self._before] = self._after
        return changes.applied(part)

    def _make_senders(self, reading: Sequence[Fragment]) -> dict[str, Fragment]:
        """The fragments that send the sides, by their ports."""
        added = () if self._own is None else self._own.fragment.queries
        queries = tuple(dict.fromkeys((*(query for fragment in reading for query in fragment.queries), *added)))
        senders: dict[str, Fragment] = {}
        for side, own in zip(self._sides, self._join.found.sides, strict=True):
            sender = replace(side.sender(own, self._join.found.fragment.stage), queries=queries)
            if (sender.root, sender.route) != (own.sender.root, own.sender.route):
                fragment_id = next(self._fragment_ids)
                ids = operator_ids(sender.root, f"{fragment_id} {side.port.name}", sender.streams)
                sender = replace(sender, id=fragment_id, operators=ids)
            senders[side.port.name] = sender
        return senders

    def _has_join(self, fragment: Fragment) -> bool:
        return self._operator[self._before] in fragment.operators

    def _change(self, fragment: Fragment, changes: JoinChanges) -> Fragment:
        """A fragment that has the join with it as it is now.

        Where the join was that of one query, all operators that changed have other ids, so that nothing takes them for
        those over the join of one query. So has a buffer beside which the old one goes on."""
        root = changes.replaced(fragment.root)
        before, after = self._before, self._after
        ids = dict(zip(numbered(fragment.root), fragment.operators, strict=True))
        chains = [[_chain(side) for side in sources(join)] for join in (after, before)]
        origins = {**changes.origins, after: before}
        renamed: set[Node] = set()
        for new, old_chain, keeps in zip(*chains, self._keeps_port, strict=True):
            origins |= dict(zip(new, old_chain, strict=True))
            renamed |= set() if keeps else set(new)
        operators: list[str] = []
        for node in numbered(root):
            old = ids.get(node) or ids[origins.get(node, before)]
            if node in ids or (isinstance(before, physical.SharedWindowJoin) and node not in renamed):
                operators.append(old)
                continue
            operators.append(digest_content([old, self._sides[0].port.name, self._sides[1].port.name, node in origins]))
            if node in origins:  # a route in the place of the join has no state
                self.moved[operators[-1]] = old
        is_same = isinstance(before, physical.SharedWindowJoin) and len(operators) == len(ids)
        fragment_id = fragment.id if is_same else next(self._fragment_ids)
        return replace(fragment, id=fragment_id, root=root, operators=tuple(operators))
