"""Copies of plans with fresh column ids, one for each use of a named query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from strandline.core.types import Column
from strandline.logical.expressions import AggregateCall, ColumnRef, Expression, substitute
from strandline.logical.plan import (
    Aggregate,
    Changes,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Rank,
    Scan,
    SemiJoin,
    SessionWindow,
    SetOperation,
    TimeWindow,
    TopRows,
    Union,
)
from strandline.logical.tree import transform_up


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

    def arguments(call: AggregateCall) -> AggregateCall:
        order = tuple(replace(key, column=renamed(key.column)) for key in call.order)
        return replace(call, argument=None if call.argument is None else renamed(call.argument), order=order)

    def change(node: Plan) -> Plan:
        match node:
            case Scan(_, _, columns):
                return replace(node, columns=tuple(map(define, columns)))
            case Filter(predicate, source):
                return Filter(substitute(predicate, refs), source)
            case Join(predicate, left, right):
                return Join(None if predicate is None else substitute(predicate, refs), left, right)
            case OuterJoin():
                return replace(node, predicate=substitute(node.predicate, refs))
            case SemiJoin(_, predicate, _, _):
                return replace(node, predicate=None if predicate is None else substitute(predicate, refs))
            case MarkJoin(mark, predicate, _, _):
                asked = None if predicate is None else substitute(predicate, refs)
                return replace(node, mark=define(mark), predicate=asked)
            case Map(outputs, source):
                values = [substitute(value, refs) for _, value in outputs]
                return Map(tuple((define(c), v) for (c, _), v in zip(outputs, values, strict=True)), source)
            case Aggregate(keys, aggregates, source):
                calls = tuple((define(column), arguments(call)) for column, call in aggregates)
                return Aggregate(tuple(names[key] for key in keys), calls, source)
            case Union(columns, inputs):
                return Union(tuple(map(define, columns)), inputs)
            case SetOperation(_, columns, _, _):
                return replace(node, columns=tuple(map(define, columns)))
            case CountWindow(partition, _, _, _) | SessionWindow(partition, _, _):
                return replace(node, partition=tuple(names[key] for key in partition))
            case TopRows() | Rank():
                partition = tuple(names[key] for key in node.partition)
                order = tuple(replace(key, column=renamed(key.column)) for key in node.order)
                if isinstance(node, Rank):
                    return replace(node, place=define(node.place), partition=partition, order=order)
                return replace(node, partition=partition, order=order)
            case TimeWindow() | Distinct() | Granularity() | Changes():
                return node
            case _:
                assert_never(node)

    return transform_up(plan, change)
