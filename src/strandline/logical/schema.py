"""The output columns of a plan, derived from the tree, and the ids of columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from strandline.core.types import Column, Schema
from strandline.logical import plan as logical
from strandline.logical.expressions import ColumnRef, Expression
from strandline.logical.plan import Plan


def schema(plan: Plan) -> Schema:
    """The columns of the elements that a plan produces."""
    match plan:
        case logical.Scan(_, _, columns):
            return columns
        case logical.Rank(rank_column, _, _, _, source):
            return (*schema(source), rank_column)
        case logical.Unnest():
            return (*schema(plan.source), *plan.added)
        case logical.Over(calls=calls, source=source):
            return (*schema(source), *(column for column, _ in calls))
        case logical.WindowBounds(start=start, end=end):
            return (*schema(plan.source), start, end)
        case logical.Map(outputs, _):
            return tuple(column for column, _ in outputs)
        case logical.Join() | logical.OuterJoin():
            return schema(plan.left) + schema(plan.right)
        case logical.SemiJoin():
            return schema(plan.left)
        case logical.MarkJoin(mark, _, left, _):
            return (*schema(left), mark)
        case logical.Lookup("inner" | "left"):
            return schema(plan.source) + schema(plan.table)
        case logical.Lookup(_, found, _, source, _):
            return schema(source) if found is None else (*schema(source), found)
        case logical.Apply(_, added, _, left, _):
            return schema(left) if added is None else (*schema(left), added)
        case logical.Aggregate(keys, aggregates, source):
            by_id = {column.id: column for column in schema(source)}
            return tuple(by_id[key] for key in keys) + tuple(column for column, _ in aggregates)
        case logical.Union(columns, _) | logical.SetOperation(_, columns, _, _):
            return columns
        case _:
            return schema(plan.source)


def column_ids(*plans: Plan) -> frozenset[str]:
    return frozenset(column.id for plan in plans for column in schema(plan))


def pass_on(columns: Iterable[Column]) -> logical.Outputs:
    """What a Map lists to keep columns as they are."""
    return tuple((column, ColumnRef(column.id, column.type)) for column in columns)


def rename(columns: Schema, names: Schema) -> logical.Outputs:
    """What a Map lists to give columns other names and ids, by position."""
    return tuple((name, ColumnRef(column.id, column.type)) for column, name in zip(columns, names, strict=True))


def filtered(plan: Plan, predicate: Expression | None) -> Plan:
    """The plan under a condition, if there is one."""
    return plan if predicate is None else logical.Filter(predicate, plan)


class Ids:
    """Hands out ids that are unique within one plan."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        # Only plain characters: array libraries read some names, such as * or ^x$, as patterns.
        base = re.sub(r"[^\w.]", "_", name.split("#")[0]) or "column"
        self.used[base] = count = self.used.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"
