"""Lowering of aggregates: one sweep over the changes, and a separate branch for DISTINCT values."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.types import BIGINT, BOOLEAN, Column
from strandline.functions.aggregates import needs_members
from strandline.logical.expressions import AggregateCall, Call, ColumnRef, Expression, Literal
from strandline.logical.plan import Aggregates
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, schema


def has_sums(call: AggregateCall) -> bool:
    """True if the elements of a group that end together may be kept as sums."""
    return call.user is None and not needs_members(call)


def sweep(
    keys: tuple[str, ...], aggregates: Aggregates, source: Node, never_expires: bool
) -> physical.IncrementalAggregate:
    """An aggregation; `never_expires` if no element of `source` ends.

    Duplicates of DISTINCT values are removed in a separate branch: a value may stay when the row that brought it
    expires. Where none expires, the first row with a value keeps it.

    The rows go on with NULL in the columns of the distinct values, and these with NULL in all others: an aggregate
    ignores NULLs, so each reads its own input. Only keys are in all branches, so one that is also aggregated, as in
    COUNT(k) beside GROUP BY k, is aggregated as a copy that only the rows have.
    """
    if not any(call.distinct for _, call in aggregates):
        return physical.IncrementalAggregate(keys, aggregates, source)
    if never_expires and not any(call.distinct and call.order for _, call in aggregates):
        return _sweep_first_values(keys, aggregates, source)
    by_id = {column.id: column for column in schema(source)}
    here = Column(f"here {aggregates[0][0].id}", "here", BOOLEAN)  # counts rows
    plain = dict.fromkeys(c.id for _, call in aggregates if not call.distinct for c in call.columns if c.id not in keys)
    once = _distinct_values(aggregates, source)
    copies = {c.argument.id: replace(by_id[c.argument.id], id=f"copy {c.argument.id}")
              for _, c in aggregates if not c.distinct and c.argument and c.argument.id in keys}  # fmt: skip
    # The values of ARRAY_AGG are in arrays of one element each; an order is one of the elements.
    inner = {c.argument.id: Column(f"element {c.argument.id}", "element", c.argument.type.element)
             for _, c in aggregates if c.distinct and c.order and c.argument and c.argument.type.element}  # fmt: skip
    columns = (
        *(by_id[column_id] for column_id in (*keys, *plain)),
        *copies.values(),
        here,
        *once.values(),
        *inner.values(),
    )

    def branch(node: Node, expressions: dict[str, Expression]) -> Node:
        return physical.Project(tuple((c, expressions.get(c.id, Literal(None, c.type))) for c in columns), node)

    def same(*ids: str) -> dict[str, Expression]:
        return {column_id: ColumnRef(column_id, by_id[column_id].type) for column_id in ids}

    copied: dict[str, Expression] = {copy.id: ColumnRef(column_id, copy.type) for column_id, copy in copies.items()}
    branches = [branch(source, {**same(*keys, *plain), **copied, here.id: Literal(True, BOOLEAN)})]
    for column_id, column in once.items():
        values = tuple((by_id[key], value) for key, value in same(*dict.fromkeys((*keys, column_id))).items())
        value = ColumnRef(column_id, column.type)
        expressions = {**same(*keys), column.id: value}
        if column_id in inner:
            expressions[inner[column_id].id] = Call("[]", (value, Literal(1, BIGINT)), inner[column_id].type)
        branches.append(branch(physical.Distinct(physical.Project(values, source)), expressions))
    calls = tuple((column, _rerouted(call, here, copies, once, inner)) for column, call in aggregates)
    return physical.IncrementalAggregate(keys, calls, physical.UnionAll(columns, tuple(branches)))


def _sweep_first_values(keys: tuple[str, ...], aggregates: Aggregates, source: Node) -> physical.IncrementalAggregate:
    once = _distinct_values(aggregates, source)
    marked = physical.FirstOccurrence(keys, tuple((column, column_id) for column_id, column in once.items()), source)
    calls = tuple((column, _rerouted(call, None, {}, once, {})) for column, call in aggregates)
    return physical.IncrementalAggregate(keys, calls, marked)


def _distinct_values(aggregates: Aggregates, source: Node) -> dict[str, Column]:
    """The columns that have each value of a DISTINCT argument once, by the argument."""
    by_id = {column.id: column for column in schema(source)}
    arguments = [call.argument.id for _, call in aggregates if call.distinct and call.argument]
    return {argument: replace(by_id[argument], id=f"once {argument}") for argument in arguments}


def _rerouted(
    call: AggregateCall,
    here: Column | None,
    copies: dict[str, Column],
    once: dict[str, Column],
    inner: dict[str, Column],
) -> AggregateCall:
    if call.argument is None:
        return call if here is None else replace(call, argument=ColumnRef(here.id, here.type))
    if not call.distinct:
        copy = copies.get(call.argument.id)
        return call if copy is None else replace(call, argument=ColumnRef(copy.id, copy.type))
    value = ColumnRef(once[call.argument.id].id, call.argument.type)
    # The binder admits no other order for distinct values than their own.
    sorted_by = inner.get(call.argument.id)
    by = value if sorted_by is None else ColumnRef(sorted_by.id, sorted_by.type)
    order = tuple(replace(key, column=by) for key in call.order)
    return replace(call, argument=value, order=order, distinct=False)
