"""Instant columns: the columns of a chronon stream that hold the instant of each element.

The time column of a base stream is one. ASOF JOIN, OVER and the windows that follow from a condition go by such
columns: what they say about the columns, they say about the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from strandline.core.types import Column
from strandline.logical import plan as logical
from strandline.logical.expressions import ColumnRef
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.schema import schema


def instant_columns(plan: Plan, time_column: Callable[[str], str | None]) -> frozenset[str]:
    """The ids of the columns whose value is the instant at which an element is valid; `time_column` is that of a stream
    by its name. None where elements are valid for longer."""

    def below(source: Plan) -> frozenset[str]:
        return instant_columns(source, time_column)

    if not is_chronon_stream(plan):
        return frozenset()
    match plan:
        case logical.Scan(stream, _, columns):
            name = time_column(stream)
            return frozenset(column.id for column in columns if column.name == name)
        case logical.Filter() | logical.Distinct() | logical.TopRows() | logical.Rank() | logical.Lookup():
            return below(plan.source)
        case logical.WindowBounds() | logical.Unnest():
            return below(plan.source)
        case logical.Over(waits=waits):  # what waits for later rows is valid at their instant
            return frozenset() if waits else below(plan.source)
        case logical.Map(outputs, source):
            inner = below(source)
            return frozenset(c.id for c, value in outputs if isinstance(value, ColumnRef) and value.id in inner)
        case logical.Join(_, left, right):
            return below(left) | below(right)
        case logical.OuterJoin(full, _, left, _):  # a column of the optional side may be NULL
            return frozenset() if full else below(left)
        case logical.SemiJoin() | logical.MarkJoin() | logical.Apply():
            return below(plan.left)
        case logical.Aggregate(keys, _, source):
            return below(source) & frozenset(keys)
        case logical.Union(columns, inputs):
            return _in_all(columns, inputs, below)
        case logical.SetOperation(kind, columns, left, right):
            return _in_all(columns, (left, right) if kind == "union max" else (left,), below)
        case logical.Changes():
            return frozenset()  # a deletion comes after the instant of its row
        case logical.TimeWindow() | logical.CountWindow() | logical.SessionWindow() | logical.Granularity():
            raise AssertionError("elements of a window are valid for longer")
        case _:
            assert_never(plan)


def _in_all(
    columns: tuple[Column, ...], inputs: tuple[Plan, ...], below: Callable[[Plan], frozenset[str]]
) -> frozenset[str]:
    """The columns that are instants in every input, by position."""
    are_instants = [[column.id in below(source) for column in schema(source)] for source in inputs]
    by_position = zip(*are_instants, strict=True)
    return frozenset(column.id for column, held in zip(columns, by_position, strict=True) if all(held))
