"""Queries that are answered at once: over tables, whose rows are all there.

Such a query is the snapshot of a continuous one at a single instant. The rows are streams of that instant, and the
local engine computes the result: the whole language is available.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from strandline.core.table import TextTable
from strandline.core.types import Type
from strandline.database.run_in_memory import run_in_memory
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.logical.plan import Map, Plan, Scan, TopRows
from strandline.logical.schema import schema
from strandline.logical.tree import transform_up, walk
from strandline.runtime.expressions.compile import evaluate_columns
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.ranking import order_ranks
from strandline.runtime.result import to_result
from strandline.sql import ast

NOW: Final = 0  # the instant of asking; any would do

# The rows of a table by its name, without times.
ReadRows: TypeAlias = Callable[[str], pl.DataFrame]


def answer_at_once(plan: Plan, read_rows: ReadRows) -> pl.DataFrame:
    """The rows of a result, by column id; if the plan ends with an order, in that."""
    rows = _in_order(transform_up(plan, _at_one_instant), read_rows)
    return rows.select([column.id for column in schema(plan)])


def answer_as_table(plan: Plan, read_rows: ReadRows, max_rows: int | None = None) -> TextTable:
    """The result of a statement: at most so many rows, under the names of its columns."""
    columns = schema(plan)
    times = (pl.lit(NOW, pl.Int64).alias(FROM), pl.lit(NOW + 1, pl.Int64).alias(UNTIL))
    rows = answer_at_once(plan, read_rows)[:max_rows].with_columns(times)
    return TextTable(to_result(rows, columns).select([column.name for column in columns]))


def without_bare_limit(query: ast.Query) -> tuple[ast.Query, int | None]:
    """A LIMIT without an order limits the display, not the result."""
    match query:
        case ast.With(_, body):
            inner, max_rows = without_bare_limit(body)
            return replace(query, body=inner), max_rows
        case ast.Ordered(inner, (), limit):
            return inner, limit
    return query, None


def _at_one_instant(plan: Plan) -> Plan:
    return replace(plan, intervals=False, table=None) if isinstance(plan, Scan) else plan


def _in_order(plan: Plan, read_rows: ReadRows) -> pl.DataFrame:
    match plan:
        case TopRows(_, order, _, _):
            frame = _snapshot(plan, read_rows)
            ranks = order_ranks(frame, order)
            return frame[np.lexsort(ranks[::-1])] if ranks else frame
        case Map(outputs, TopRows() as ordered):  # the sort keys are not shown
            shown = [(column.id, value) for column, value in outputs]
            return evaluate_columns(_in_order(ordered, read_rows), shown, keep=(FROM, UNTIL))
    return _snapshot(plan, read_rows)


def _snapshot(plan: Plan, read_rows: ReadRows) -> pl.DataFrame:
    # Time begins for all tables, also for those without a row: a count over nothing is 0.
    elements = run_in_memory(plan, _streams(plan), lambda name: _with_time(read_rows(name)), begin=NOW)
    return elements.filter((pl.col(FROM) <= NOW) & (pl.col(UNTIL) > NOW))


def _streams(plan: Plan) -> Sequence[BaseStream]:
    """What is read, as streams. At the border of the engine rows have their time with them, whatever it is called."""
    columns: dict[str, dict[str, Type]] = {}
    for scan in walk(plan):
        if isinstance(scan, Scan):
            columns.setdefault(scan.stream, {}).update({column.name: column.type for column in scan.columns})
    source = ConnectorCall("stored")
    return [BaseStream(name, tuple(kinds.items()), source, FROM) for name, kinds in columns.items()]


def _with_time(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(NOW, pl.Int64).alias(FROM))
