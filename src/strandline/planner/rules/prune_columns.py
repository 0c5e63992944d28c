"""Column pruning: keep only the columns that an operator above reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from strandline.logical import plan as logical
from strandline.logical.expressions import columns_of
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import keeps_arrival_order
from strandline.logical.schema import column_ids, pass_on, schema
from strandline.logical.tree import streams_read, walk


def prune_columns(plan: Plan) -> Plan:
    """μ(S) = μ(μ'(S)) where μ' drops columns that nothing above reads: fewer bytes are read, moved and kept.

    Distinct, set operations, changes, change feeds and the top of the plan need all their columns.

    An unread mark removes its join, too, but not the only scan of a stream: an aggregate without keys has a value from
    the first element of any stream that the query reads.
    """
    needed = column_ids(plan)
    pruned = _prune(plan, needed, may_drop_joins=True)
    begins = any(isinstance(node, logical.Aggregate) and not node.keys for node in walk(plan))
    return (
        _prune(plan, needed, may_drop_joins=False) if begins and streams_read(pruned) != streams_read(plan) else pruned
    )


def _prune(plan: Plan, needed: frozenset[str], may_drop_joins: bool) -> Plan:
    def prune(source: Plan, required: frozenset[str]) -> Plan:
        return _prune(source, required, may_drop_joins)

    def prune_in_order(source: Plan, ids: tuple[str, ...]) -> Plan:
        """Unions and set operations match columns by position, so their inputs must have them in order."""
        pruned = prune(source, frozenset(ids))
        columns = {c.id: c for c in schema(pruned)}
        return pruned if tuple(columns) == ids else logical.Map(pass_on(columns[i] for i in ids), pruned)

    match plan:
        case logical.Scan(changes=feed) if feed is not None:  # a deletion names the row that ends by all of its columns
            return _narrow(plan, needed)
        case logical.Scan(_, _, columns):
            return replace(plan, columns=tuple(c for c in columns if c.id in needed))
        case logical.Filter(predicate, source):
            pruned = logical.Filter(predicate, prune(source, needed | columns_of(predicate)))
            return _narrow(pruned, needed)
        case logical.Map(outputs, source):
            kept = tuple((c, e) for c, e in outputs if c.id in needed)
            below = frozenset().union(*(columns_of(e) for _, e in kept))
            return logical.Map(kept, prune(source, below))
        case logical.Unnest(_, array, ordinal, _, source):
            number = None if ordinal is None or ordinal.id not in needed else ordinal
            below = (needed & column_ids(source)) | {array}
            return _narrow(replace(plan, ordinal=number, source=prune(source, below)), needed)
        case logical.CountWindow(partition, _, _, source) | logical.SessionWindow(partition, _, source):
            read = needed | frozenset(partition)
            if isinstance(plan, logical.CountWindow) and not keeps_arrival_order(source):
                read = column_ids(source)  # which rows are the last is a question of their values
            return _narrow(replace(plan, source=prune(source, read)), needed)
        case logical.Rank(rank_column, partition, order, limit, source) if rank_column.id not in needed:
            # The ranks themselves are not read.
            return prune(source if limit is None else logical.TopRows(partition, order, limit, source), needed)
        case logical.TopRows(partition, order, _, source) | logical.Rank(_, partition, order, _, source):
            read = needed.union(partition, (key.column.id for key in order))
            below = read - {plan.rank_column.id} if isinstance(plan, logical.Rank) else read
            return _narrow(replace(plan, source=prune(source, below)), needed)
        case logical.Over():
            return _prune_over(plan, needed, prune)
        case logical.Changes(_, source):  # a change of an unread column is a change all the same
            return _narrow(replace(plan, source=prune(source, column_ids(source))), needed)
        case logical.WindowBounds(start=start, end=end):
            if not needed & {start.id, end.id}:
                return prune(plan.source, needed)
            return _narrow(replace(plan, source=prune(plan.source, needed - {start.id, end.id})), needed)
        case logical.TimeWindow() | logical.Granularity():
            return replace(plan, source=prune(plan.source, needed))
        case logical.MarkJoin(mark, _, left, _) if mark.id not in needed and may_drop_joins:
            return prune(left, needed)
        case logical.Lookup(_, found, _, source, _) if found is not None and found.id not in needed and may_drop_joins:
            return prune(source, needed)
        case logical.Lookup(_, _, predicate, source, table):
            read = needed | columns_of(predicate)
            source, table = (prune(side, read & column_ids(side)) for side in (source, table))
            return replace(plan, source=source, table=table)
        case logical.Join() | logical.OuterJoin() | logical.SemiJoin() | logical.MarkJoin():
            required = needed | columns_of(plan.predicate)
            sides = [prune(side, required & column_ids(side)) for side in (plan.left, plan.right)]
            return replace(plan, left=sides[0], right=sides[1])
        case logical.Apply():
            raise AssertionError("the binder has replaced every Apply by joins")
        case logical.Aggregate(keys, aggregates, source):
            kept_aggregates = tuple((c, a) for c, a in aggregates if c.id in needed)
            arguments = frozenset(column.id for _, a in kept_aggregates for column in a.columns)
            return logical.Aggregate(keys, kept_aggregates, prune(source, frozenset(keys) | arguments))
        case logical.Distinct(source):
            return logical.Distinct(prune(source, column_ids(source)))
        case logical.Union(columns, sources):
            at = [i for i, c in enumerate(columns) if c.id in needed]
            inputs = (prune_in_order(source, tuple(schema(source)[i].id for i in at)) for source in sources)
            return logical.Union(tuple(columns[i] for i in at), tuple(inputs))
        case logical.SetOperation(kind, columns, left, right):
            sides = [prune_in_order(side, tuple(c.id for c in schema(side))) for side in (left, right)]
            return logical.SetOperation(kind, columns, sides[0], sides[1])


def _prune_over(plan: logical.Over, needed: frozenset[str], prune: Callable[[Plan, frozenset[str]], Plan]) -> Plan:
    """Window functions that are not read are not computed; rows that wait for later ones still do."""
    calls = tuple((column, call) for column, call in plan.calls if column.id in needed)
    columns = frozenset(column.id for column, _ in plan.calls)
    if not calls and not plan.waits:
        return prune(plan.source, needed)
    order = frozenset(key.column.id for key in plan.order)
    arguments = frozenset(column.id for _, call in calls for column in call.columns)
    read = (needed - columns).union(plan.partition, order, plan.ties, arguments)
    return _narrow(replace(plan, calls=calls, source=prune(plan.source, read)), needed)


def _narrow(plan: Plan, needed: frozenset[str]) -> Plan:
    """Drop the columns that only the operator just passed has read: they need not cross the exchange."""
    columns = schema(plan)
    if all(c.id in needed for c in columns):
        return plan
    return logical.Map(pass_on(c for c in columns if c.id in needed), plan)
