"""The output columns of a plan, derived from the tree."""

from __future__ import annotations

from strandline.core.types import Column, Schema
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


def schema(plan: Plan) -> Schema:
    """The columns of the elements that a plan produces."""
    match plan:
        case Scan(_, _, columns):
            return columns
        case TimeWindow() | CountWindow() | SessionWindow() | Granularity() | Changes() | TopRows():
            return schema(plan.source)
        case Filter() | Distinct():
            return schema(plan.source)
        case Rank(place, _, _, _, source):
            return (*schema(source), place)
        case Map(outputs, _):
            return tuple(column for column, _ in outputs)
        case Join() | OuterJoin():
            return schema(plan.left) + schema(plan.right)
        case SemiJoin():
            return schema(plan.left)
        case MarkJoin(mark, _, left, _):
            return (*schema(left), mark)
        case Aggregate(keys, aggregates, source):
            by_id = {column.id: column for column in schema(source)}
            return tuple(by_id[key] for key in keys) + tuple(column for column, _ in aggregates)
        case Union(columns, _) | SetOperation(_, columns, _, _):
            return columns


def column(plan: Plan, id: str) -> Column:
    return next(c for c in schema(plan) if c.id == id)
