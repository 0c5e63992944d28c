"""Lowering of a logical plan to a physical one: algorithms, exchanges, fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from strandline.core.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR, Column, Schema, Type
from strandline.logical import plan as logical
from strandline.logical.catalog import BaseStream
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.expressions import (
    AggregateCall,
    Call,
    Case,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    columns_of,
    conjunction,
    conjuncts,
    reads_only,
)
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import (
    end_together,
    granule,
    is_chronon_stream,
    keeps_arrival_order,
    never_expires,
)
from strandline.logical.schema import pass_on, rename
from strandline.logical.schema import schema as logical_schema
from strandline.logical.tree import sources as logical_sources
from strandline.logical.tree import streams_read, walk
from strandline.planner.compaction import StateStructure
from strandline.planner.physical import plan as physical
from strandline.planner.physical.ahead import run_ahead
from strandline.planner.physical.distinct_aggregates import has_sums, sweep
from strandline.planner.physical.distribution import (
    Distribution,
    HashPartitioned,
    LoweredPlan,
    PendingWindow,
    RoundRobin,
    Single,
    SourceOrdered,
    exchange,
    gather,
    matching_keys,
    partition_by,
    partition_by_exactly,
)
from strandline.planner.physical.forms import BY_RULE, FormStrategy, assign_forms, reads_table
from strandline.planner.physical.fragments import cut_fragments
from strandline.planner.physical.operators import derive_lifetimes
from strandline.planner.physical.over import over
from strandline.planner.physical.plan import (
    MatchKind,
    Node,
    Pipeline,
    QueryPlan,
    StreamForm,
    schema,
    sources,
)
from strandline.planner.physical.shared_joins import share_window_joins
from strandline.planner.physical.structure import number_operators, share_operators
from strandline.planner.physical.update_pattern import INSTANTS, KNOWN, Lifetimes, UpdatePattern
from strandline.planner.rules.lookup import place_lookups

Keys: TypeAlias = tuple[ColumnRef, ...]

KEPT_SHARE: Final = Column("kept_share", "kept_share", DOUBLE)  # of a result that may lack rows


def lower(
    name: str,
    plan: Plan,
    streams: Sequence[BaseStream],
    shards: int,
    *,
    sheds: bool = False,
    form: StreamForm = "intervals",
    strategy: FormStrategy = BY_RULE,
    first: int = 0,
) -> Pipeline:
    """The pipeline of one query; where it `sheds`, its result has a column with the sampling rate. `form` is what its
    sink takes, `strategy` how the form of the edges is chosen. `first` is the number of fragments of the queries before
    it in the pipeline."""
    plan = place_lookups(plan)
    built, columns, read = _build(plan), logical_schema(plan), streams_read(plan)
    if reads_table(built.node):
        built = _spread(built)  # the changes of an instant are complete only at the watermark
    wanted: StreamForm = "intervals" if sheds or is_chronon_stream(plan) else form
    interval_streams = frozenset(stream.name for stream in streams if stream.has_intervals)
    built = replace(built, node=assign_forms(built.node, wanted, interval_streams, strategy))
    if sheds:
        built = replace(built, node=physical.SamplingRate(KEPT_SHARE, name, windows_of(plan), built.node))
        columns = (*columns, KEPT_SHARE)
    fragments = cut_fragments(built, name, read, first)
    return Pipeline(_used(streams, read), tuple(fragments), (QueryPlan(name, columns, read),), shards)


def combine(parts: Sequence[Pipeline], streams: Sequence[BaseStream], scopes: Sequence[str]) -> Pipeline:
    """Pipelines as one that reads each stream once, and computes once what parts of the same scope have in common.
    `scopes` has for each what must be equal beside the structure, and the streams whose watermark decides."""
    if len(parts) == 1:
        return number_operators(parts[0], scopes[0])
    # An operator of several uses goes by the streams of its queries.
    by_streams = [f"{sorted(part.queries[0].streams)} {scope}" for part, scope in zip(parts, scopes, strict=True)]
    together = run_ahead(share_window_joins(parts, by_streams), streams, scopes)
    fragments, queries = share_operators(together, scopes)
    used = _used(streams, frozenset().union(*(query.streams for query in queries)))
    return Pipeline(used, tuple(fragments), tuple(queries), parts[0].shards)


def _used(streams: Sequence[BaseStream], names: frozenset[str]) -> tuple[BaseStream, ...]:
    return tuple(stream for stream in streams if stream.name in names)


def windows_of(plan: Plan) -> tuple[tuple[str, int | None], ...]:
    """The streams that a plan reads, each with the range of the time window over it; 0 where there is none."""
    match plan:
        case logical.Scan(stream):
            return ((stream, 0),)
        case logical.TimeWindow(range_us, _, source):
            return tuple((stream, range_us) for stream, _ in windows_of(source))
        case _:
            return tuple(window for source in logical_sources(plan) for window in windows_of(source))


def _build(plan: Plan) -> LoweredPlan:
    match plan:
        case logical.Scan(stream, _, columns, _, feed) if feed is not None:
            return _folded(stream, columns, feed)
        case logical.Scan(stream, _, columns, table="changing"):
            return LoweredPlan(physical.Input(f"source:{stream}", columns, "changes"), SourceOrdered())
        case logical.Scan(stream, _, columns):
            return LoweredPlan(physical.Input(f"source:{stream}", columns), SourceOrdered())
        case logical.Filter(predicate, source):
            built = _build(source)
            return replace(built, node=physical.Filter(predicate, built.node))
        case logical.Map(outputs, source):
            built = _build(source)
            return LoweredPlan(physical.Project(outputs, built.node), _after_map(built.where, outputs))
        case logical.Unnest(element, array, ordinal, outer, source):
            built = _build(source)
            return replace(built, node=physical.Unnest(element, array, ordinal, outer, built.node))
        case logical.TimeWindow(range_us, slide_us, source, offset_us):
            built = _build(source)
            if not is_chronon_stream(source):
                length = granule(source)
                assert length is not None and range_us is not None, "the binder admits nothing else over intervals"
                built = _sampled(_spread(built), length, range_us // length)
            return _window(built, (range_us, slide_us, offset_us))
        case logical.CountWindow(partition, rows, slide, source):
            built = _partitioned(_build(source), partition)
            if not is_chronon_stream(source):
                length = granule(source)
                assert length is not None, "the binder admits nothing else over intervals"
                built = _sampled(built, length, rows, by_rows=True)
            by_value = not keeps_arrival_order(source)
            return replace(built, node=physical.CountWindow(partition, rows, slide, by_value, built.node))
        case logical.SessionWindow(partition, gap_us, source):
            built = _partitioned(_build(source), partition)
            return replace(built, node=physical.SessionWindow(partition, gap_us, built.node))
        case logical.WindowBounds():
            built = _spread(_build(plan.source))
            bounds = plan.range_us, plan.slide_us, plan.cumulative, plan.start, plan.end
            return replace(built, node=physical.WindowBounds(*bounds, built.node, plan.offset_us))
        case logical.Granularity(granule_us, source):
            return _granular(_build(source), granule_us)
        case logical.Changes("insert", source) if never_expires(source):
            return _arrivals(_build(source))
        case logical.Changes(kind, source):
            built = partition_by(_build(source), tuple(column.id for column in logical_schema(source)))
            return replace(built, node=physical.ChangeStream(kind, built.node))
        case logical.TopRows(partition, order, limit, source):
            built = _colocate(_build(source), partition, order, limit)
            return replace(built, node=physical.TopK(partition, order, limit, built.node))
        case logical.Rank(rank_column, partition, order, limit, source):
            built = _colocate(_build(source), partition, order, limit)
            return replace(built, node=physical.Rank(rank_column, partition, order, limit, built.node))
        case logical.Over():
            return over(plan, _partitioned(_build(plan.source), plan.partition))
        case logical.Join():
            return _join(plan)
        case logical.OuterJoin(full):
            return _join(plan, "full" if full else "left")
        case logical.SemiJoin(anti):
            return _join(plan, "anti" if anti else "semi")
        case logical.MarkJoin(mark):
            return _join(plan, "mark", mark)
        case logical.Lookup(mark=mark):
            return _join(plan, mark=mark)
        case logical.Apply():
            raise AssertionError("the binder has replaced every Apply by joins")
        case logical.Aggregate(keys, aggregates, source):
            built = _partitioned(_build(source), keys)
            node = sweep(keys, aggregates, built.node, never_expires(source))
            node = replace(node, panes=end_together(source) and all(has_sums(call) for _, call in node.aggregates))
            return LoweredPlan(node, _restricted(built.where, frozenset(keys)) if keys else Single())
        case logical.Distinct(source):
            built = partition_by(_build(source), tuple(column.id for column in logical_schema(source)))
            return LoweredPlan(physical.Distinct(built.node), built.where)
        case logical.Union(columns, inputs):
            return _union(columns, [_build(source) for source in inputs])
        case logical.SetOperation():
            return _set_operation(plan)


def _folded(stream: str, columns: Schema, feed: ChangeFeed) -> LoweredPlan:
    """The elements of a change feed, by the columns in which a deletion equals what it ends."""
    op_column = Column(f"op of {columns[0].id}", feed.op_column, VARCHAR)
    rows = LoweredPlan(physical.Input(f"source:{stream}", (*columns, op_column)), SourceOrdered())
    key = tuple(column.id for column in columns if column.name in feed.key)
    built = partition_by_exactly(rows, key or tuple(column.id for column in columns))
    return replace(built, node=physical.FoldChanges(stream, op_column.id, key, built.node))


def _sampled(built: LoweredPlan, length: int, repeats: int, *, by_rows: bool = False) -> LoweredPlan:
    """Elements once per granule, for a window over them."""
    # Intervals may be cut anywhere; one that begins within a granule does not determine its start.
    aligned = physical.Reorder(physical.AlignTime(length, built.node))
    return replace(built, node=physical.Split(length, repeats, aligned, by_rows))


def _spread(built: LoweredPlan) -> LoweredPlan:
    """Elements in any shard, if they are not in shards yet; the changes of a table where equal ones are."""
    if not isinstance(built.where, SourceOrdered):
        return built
    if reads_table(built.node):
        columns = tuple(column.id for column in schema(built.node))
        return partition_by_exactly(built, columns) if columns else gather(built)
    return exchange(built, "spread", ())


def _partitioned(built: LoweredPlan, partition: tuple[str, ...]) -> LoweredPlan:
    return partition_by(built, partition) if partition else gather(built)


def _colocate(
    built: LoweredPlan, partition: tuple[str, ...], order: tuple[SortKey, ...], limit: int | None
) -> LoweredPlan:
    """All elements of a partition in one shard, as far as they can be among the first."""
    if limit is None or isinstance(built.where, Single):
        return _partitioned(built, partition)
    if isinstance(built.where, SourceOrdered) and built.where.window is not None:
        range_us, slide_us, offset_us = built.where.window
        # In a window that slides with every instant each row has an instant at which it alone remains.
        if range_us is None or slide_us > 1:
            node = physical.TopKPrefilter(partition, order, limit, range_us, slide_us, built.node, offset_us)
            built = replace(built, node=node)
            return _partitioned(built, partition)
    if partition:
        return partition_by(built, partition)
    # An element outside the top k of its shard is outside the overall top k.
    built = _spread(built)
    return gather(replace(built, node=physical.TopK((), order, limit, built.node)))


def _granular(built: LoweredPlan, granule_us: int) -> LoweredPlan:
    if isinstance(built.where, SourceOrdered) and built.where.granule is None and not reads_table(built.node):
        return replace(built, where=replace(built.where, granule=granule_us))
    built = _spread(built)
    return replace(built, node=physical.Reorder(physical.AlignTime(granule_us, built.node)))


def _window(built: LoweredPlan, window: PendingWindow) -> LoweredPlan:
    if isinstance(built.where, SourceOrdered):
        # A window depends on time only, so it follows the exchange: rows travel with one timestamp instead of two.
        assert built.where == SourceOrdered(), "the binder admits a window over a chronon stream only"
        return replace(built, where=SourceOrdered(window))
    range_us, slide_us, offset_us = window
    node: Node = physical.TimeWindow(range_us, slide_us, built.node, offset_us)
    return replace(built, node=physical.Reorder(node) if slide_us > 1 else node)


def _arrivals(built: LoweredPlan) -> LoweredPlan:
    """ISTREAM of elements that never end: no interval continues another, so nothing is compared."""
    if built.where == SourceOrdered((None, 1, 0)):
        return replace(built, where=SourceOrdered())  # the rows as they were read
    built = _spread(built)
    return replace(built, node=physical.InsertStream(built.node))


def _join(
    plan: logical.Join | logical.OuterJoin | logical.SemiJoin | logical.MarkJoin | logical.Lookup,
    kind: MatchKind | None = None,
    mark: Column | None = None,
) -> LoweredPlan:
    """A join of a kind; of none, an inner join or a look-up."""
    is_inner = isinstance(plan, logical.Join) or (isinstance(plan, logical.Lookup) and plan.kind == "inner")

    def joined(l_keys: Keys, r_keys: Keys, left: LoweredPlan, right: LoweredPlan) -> Node:
        sides = left.node, right.node
        if isinstance(plan, logical.Lookup):
            return physical.LookupJoin(plan.kind, l_keys, r_keys, condition, *sides, mark, structures)
        if kind is None:
            return physical.HashJoin(l_keys, r_keys, condition, *sides, structures)
        return physical.OuterHashJoin(kind, l_keys, r_keys, condition, *sides, mark, structures=structures)

    below = logical_sources(plan)
    left, right = map(_build, below)
    structures = (_state_structure(below[0], left.node), _state_structure(below[1], right.node))
    l_values, r_values, condition = _equalities(plan.predicate, left.node, right.node)
    if not l_values and kind == "full":
        # That an element is unmatched is known only with all of the other side, and here for both.
        return LoweredPlan(joined((), (), gather(left), gather(right)), Single())
    if not l_values:
        # Any shard can pair its part of the left with all of the right.
        left = _spread(left)
        right = gather(right) if isinstance(left.where, Single) else exchange(right, "all", ())
        return LoweredPlan(joined((), (), left, right), left.where)
    left, l_keys = _with_keys(left, l_values, "left")
    right, r_keys = _with_keys(right, r_values, "right")
    l_ids, r_ids = tuple(key.id for key in l_keys), tuple(key.id for key in r_keys)
    left, right, fit = _copartition(left, l_ids, right, r_ids)
    if is_inner and isinstance(left.where, Single) and isinstance(right.where, Single):
        where: Distribution = Single()
    elif kind == "full":
        # An unmatched element of the right is placed by its own key, and has NULL for that of the left.
        where = RoundRobin()
    else:
        where = HashPartitioned(tuple(frozenset((l_ids[i], r_ids[i]) if is_inner else (l_ids[i],)) for i in fit))
    node, columns = joined(l_keys, r_keys, left, right), logical_schema(plan)
    if schema(node) != columns:  # computed keys have served
        node = physical.Project(pass_on(columns), node)
        where = _restricted(where, frozenset(column.id for column in columns))
    return LoweredPlan(node, where)


def _state_structure(plan: Plan, node: Node) -> StateStructure:
    """How the elements of a stream leave the state of the operator above it: by its update pattern. Of a strict stream
    only those elements stay whose end is known."""
    scans = [scan for scan in walk(plan) if isinstance(scan, logical.Scan)]
    with_intervals = {f"source:{scan.stream}" for scan in scans if scan.intervals}

    def derive(node: Node) -> Lifetimes:
        if isinstance(node, physical.Input):
            return KNOWN if node.name in with_intervals else INSTANTS
        return derive_lifetimes(node, [derive(source) for source in sources(node)])

    ends_in_order = derive(node).pattern in (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST)
    return "fifo" if ends_in_order else "calendar"


def _copartition(
    left: LoweredPlan, left_ids: tuple[str, ...], right: LoweredPlan, right_ids: tuple[str, ...]
) -> tuple[LoweredPlan, LoweredPlan, tuple[int, ...]]:
    """Co-partition both sides of a join, and the keys used for it; moves as few elements as possible."""
    if (fit := matching_keys(left.where, left_ids)) is not None:
        return left, partition_by_exactly(right, tuple(right_ids[i] for i in fit)), fit
    if (fit := matching_keys(right.where, right_ids)) is not None:
        return partition_by_exactly(left, tuple(left_ids[i] for i in fit)), right, fit
    return partition_by_exactly(left, left_ids), partition_by_exactly(right, right_ids), tuple(range(len(left_ids)))


def _equalities(
    predicate: Expression | None, left: Node, right: Node
) -> tuple[tuple[Expression, ...], tuple[Expression, ...], Expression | None]:
    """Take the equalities between the two sides out of a join condition."""
    l_columns, r_columns = (frozenset(c.id for c in schema(node)) for node in (left, right))
    l_keys: list[Expression] = []
    r_keys: list[Expression] = []
    non_equi_conditions: list[Expression] = []
    for part in conjuncts(predicate):
        sides = part.arguments if isinstance(part, Call) and part.function == "=" else ()
        for l_key, r_key in zip(sides, reversed(sides), strict=True):
            if reads_only(l_key, l_columns) and reads_only(r_key, r_columns):
                l_keys.append(l_key)
                r_keys.append(r_key)
                break
        else:
            non_equi_conditions.append(part)
    return tuple(l_keys), tuple(r_keys), conjunction(tuple(non_equi_conditions))


def _with_keys(
    built: LoweredPlan, keys: tuple[Expression, ...], side: str
) -> tuple[LoweredPlan, tuple[ColumnRef, ...]]:
    """Join keys as columns: keys that are expressions are computed once, before the exchange."""
    columns = schema(built.node)
    refs: list[ColumnRef] = []
    computed: list[tuple[Column, Expression]] = []
    for number, key in enumerate(keys):
        if isinstance(key, ColumnRef):
            refs.append(key)
            continue
        column = Column(f"{side} key {number} of {min(columns_of(key))}", "key", key.type)
        computed.append((column, key))
        refs.append(ColumnRef(column.id, column.type))
    if not computed:
        return built, tuple(refs)
    return replace(built, node=physical.Project((*pass_on(columns), *computed), built.node)), tuple(refs)


def _union(columns: tuple[Column, ...], inputs: list[LoweredPlan]) -> LoweredPlan:
    placed = [_spread(built) for built in inputs]
    where: Distribution = _union_place(columns, placed)
    if any(isinstance(built.where, Single) for built in placed):
        placed, where = [gather(built) for built in placed], Single()
    return LoweredPlan(physical.UnionAll(columns, tuple(built.node for built in placed)), where)


def _set_operation(plan: logical.SetOperation) -> LoweredPlan:
    """Count the duplicates of each payload on either side, then repeat it by the multiplicity of the operation."""
    keys = tuple(column.id for column in plan.columns)
    left, right = (_renamed(_build(source), plan.columns) for source in (plan.left, plan.right))
    if isinstance(left.where, Single) or isinstance(right.where, Single):
        left, right = gather(left), gather(right)
    else:
        fit = matching_keys(left.where, keys) or matching_keys(right.where, keys) or tuple(range(len(keys)))
        by = tuple(keys[i] for i in fit)
        left, right = partition_by_exactly(left, by), partition_by_exactly(right, by)
    marks = tuple(Column(f"{side} {keys[0]}", side, BOOLEAN) for side in ("left", "right"))
    marked = (_marked(side.node, plan.columns, marks, here) for here, side in enumerate((left, right)))
    node: Node = physical.UnionAll((*plan.columns, *marks), tuple(marked))
    counts = tuple(Column(f"{mark.id} copies", mark.name, BIGINT) for mark in marks)
    calls = (AggregateCall("count", ColumnRef(mark.id, BOOLEAN), BIGINT) for mark in marks)
    panes = end_together(plan.left) and end_together(plan.right)
    node = physical.IncrementalAggregate(keys, tuple(zip(counts, calls, strict=True)), node, panes=panes)
    node = physical.Repeat(_multiplicity(plan.kind, *(ColumnRef(column.id, BIGINT) for column in counts)), node)
    return LoweredPlan(physical.Project(pass_on(plan.columns), node), left.where)


def _renamed(built: LoweredPlan, columns: tuple[Column, ...]) -> LoweredPlan:
    """The same elements under other column names, by position."""
    outputs = rename(schema(built.node), columns)
    return LoweredPlan(physical.Project(outputs, built.node), _after_map(built.where, outputs))


def _marked(node: Node, columns: tuple[Column, ...], marks: tuple[Column, ...], side: int) -> Node:
    """A side of a set operation with a column that marks the side."""
    marked = [(mark, Literal(True if number == side else None, BOOLEAN)) for number, mark in enumerate(marks)]
    return physical.Project((*pass_on(columns), *marked), node)


def _multiplicity(kind: logical.SetKind, left: ColumnRef, right: ColumnRef) -> Expression:
    def call(function: str, *arguments: Expression, kind: Type = BIGINT) -> Expression:
        return Call(function, arguments, kind)

    zero, one = Literal(0, BIGINT), Literal(1, BIGINT)
    absent = call("=", right, zero, kind=BOOLEAN)
    match kind:
        case "except all":
            return call("greatest", call("-", left, right), zero)
        case "except":
            return Case(((absent, call("least", left, one)),), zero, BIGINT)
        case "except strict":
            return Case(((absent, left),), zero, BIGINT)
        case "intersect all":
            return call("least", left, right)
        case "intersect":
            return call("least", left, right, one)
        case "union max":
            return call("greatest", left, right)


def _union_place(columns: tuple[Column, ...], inputs: list[LoweredPlan]) -> HashPartitioned | RoundRobin:
    """A union of inputs hashed by the columns at the same positions is hashed alike."""
    positions: list[tuple[frozenset[int], ...]] = []
    for built in inputs:
        if not isinstance(built.where, HashPartitioned):
            return RoundRobin()
        ids = [c.id for c in schema(built.node)]
        positions.append(tuple(frozenset(i for i, c in enumerate(ids) if c in key) for key in built.where.keys))
    if len({len(p) for p in positions}) != 1:
        return RoundRobin()
    common = tuple(frozenset.intersection(*key) for key in zip(*positions, strict=True))
    if not all(common):
        return RoundRobin()
    return HashPartitioned(tuple(frozenset(columns[i].id for i in key) for key in common))


def _after_map(where: Distribution, outputs: logical.Outputs) -> Distribution:
    """A map keeps elements where they are; keys live on under the names of the columns that copy them."""
    if not isinstance(where, HashPartitioned):
        return where
    copies: dict[str, set[str]] = {}
    for column, expression in outputs:
        if isinstance(expression, ColumnRef):
            copies.setdefault(expression.id, set()).add(column.id)
    keys = tuple(frozenset(new for old in key for new in copies.get(old, ())) for key in where.keys)
    return HashPartitioned(keys) if all(keys) else RoundRobin()


def _restricted(where: Distribution, columns: frozenset[str]) -> HashPartitioned | RoundRobin | Single:
    assert not isinstance(where, SourceOrdered), "stateful operators follow an exchange"
    if not isinstance(where, HashPartitioned):
        return where
    keys = tuple(key & columns for key in where.keys)
    return HashPartitioned(keys) if all(keys) else RoundRobin()
