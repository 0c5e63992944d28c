"""Copies of plans: each use of a named query has columns of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from strandline.core.types import Column
from strandline.logical import plan as logical
from strandline.logical.expressions import AggregateCall, ColumnRef, Expression, substitute
from strandline.logical.plan import Plan
from strandline.logical.tree import map_expressions, transform_up


def freshened(plan: Plan, fresh: Callable[[str], str]) -> Plan:
    """The same plan under other ids, so that both can be in one plan."""
    names: dict[str, str] = {}
    refs: dict[str, Expression] = {}

    def define(column: Column) -> Column:
        # A Map below an Aggregate passes columns on under their ids: the same id is the same column.
        if column.id not in names:
            names[column.id] = fresh(column.id)
        refs[column.id] = ColumnRef(names[column.id], column.type)
        return replace(column, id=names[column.id])

    def renamed(column: ColumnRef) -> ColumnRef:
        return replace(column, id=names[column.id])

    def renamed_value(value: Expression) -> Expression:
        return substitute(value, refs)

    def arguments(call: AggregateCall) -> AggregateCall:
        order = tuple(replace(key, column=renamed(key.column)) for key in call.order)
        return replace(call, argument=None if call.argument is None else renamed(call.argument), order=order)

    def change(node: Plan) -> Plan:
        match node:
            case logical.Scan(_, _, columns):
                return replace(node, columns=tuple(map(define, columns)))
            case logical.Filter() | logical.Join() | logical.OuterJoin() | logical.SemiJoin():
                return map_expressions(node, renamed_value)
            case logical.MarkJoin(mark, _, _, _):
                return map_expressions(replace(node, mark=define(mark)), renamed_value)
            case logical.Apply(_, added, _, _, _):
                column = None if added is None else define(added)
                return map_expressions(replace(node, column=column), renamed_value)
            case logical.Map(outputs, source):
                values = [renamed_value(value) for _, value in outputs]
                return logical.Map(tuple((define(c), v) for (c, _), v in zip(outputs, values, strict=True)), source)
            case logical.Aggregate(keys, aggregates, source):
                calls = tuple((define(column), arguments(call)) for column, call in aggregates)
                return logical.Aggregate(tuple(names[key] for key in keys), calls, source)
            case logical.Union(columns, inputs):
                return logical.Union(tuple(map(define, columns)), inputs)
            case logical.SetOperation(_, columns, _, _):
                return replace(node, columns=tuple(map(define, columns)))
            case logical.CountWindow(partition, _, _, _) | logical.SessionWindow(partition, _, _):
                return replace(node, partition=tuple(names[key] for key in partition))
            case logical.TopRows() | logical.Rank():
                partition = tuple(names[key] for key in node.partition)
                order = tuple(replace(key, column=renamed(key.column)) for key in node.order)
                if isinstance(node, logical.Rank):
                    return replace(node, place=define(node.place), partition=partition, order=order)
                return replace(node, partition=partition, order=order)
            case logical.TimeWindow() | logical.Distinct() | logical.Granularity() | logical.Changes():
                return node
            case _:
                assert_never(node)

    return transform_up(plan, change)
