"""Queries that are executed at once: over tables, materialized views and system tables, whose rows are all there.

Such a query is the snapshot of a continuous one at a single instant. Filters and projections over one relation are
evaluated as its rows are read; for all else the local engine computes the result, so the whole language is available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from strandline.core.table import TextTable
from strandline.core.temporal import Instant
from strandline.core.types import Column
from strandline.database.run_in_memory import run_in_memory
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.logical.expressions import Expression, SortKey
from strandline.logical.plan import Filter, Map, Plan, Scan, TopRows
from strandline.logical.schema import schema
from strandline.logical.tree import sources, transform_up, walk, with_sources
from strandline.planner.stages import optimize
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame
from strandline.runtime.kernels.batch import FROM, UNTIL, gather
from strandline.runtime.kernels.ranking import order_levels
from strandline.runtime.result import to_result

NOW: Final = 0  # the instant of asking; any would do

_Read: TypeAlias = tuple[str, Instant | None]  # a relation, and the instant at which it is read
# The rows that a scan reads, under the names of its columns; with others, too, since a count reads no column. A
# predicate over the ids of the columns says which rows are used: a reader that has an index may leave out others.
ReadRows: TypeAlias = Callable[[Scan, Expression | None], pl.DataFrame]


def execute_at_once(plan: Plan, read_rows: ReadRows) -> pl.DataFrame:
    """The rows of a result, by column id; if the plan ends with an order, in that."""
    rows = _Snapshot(read_rows).ordered(plan)
    return rows.select([column.id for column in schema(plan)])


def execute_as_table(plan: Plan, read_rows: ReadRows) -> TextTable:
    """The result of a statement, under the names of its columns."""
    columns = schema(plan)
    times = (pl.lit(NOW, pl.Int64).alias(FROM), pl.lit(NOW + 1, pl.Int64).alias(UNTIL))
    rows = execute_at_once(plan, read_rows).with_columns(times)
    return TextTable(to_result(rows, columns).select([column.name for column in columns]))


class _Snapshot:
    """Evaluates a plan at one instant. What a statement reads twice, it reads once: the rows are of one moment."""

    def __init__(self, read_rows: ReadRows) -> None:
        self._read_rows = read_rows
        self._columns: dict[_Read, dict[str, Column]] = {}  # of what is read more than once, by name
        self._shared: dict[_Read, pl.DataFrame] = {}

    def ordered(self, plan: Plan) -> pl.DataFrame:
        """The rows of a plan that may end with an order."""
        match plan:
            case TopRows(_, (), limit, source):
                return self.ordered(source)[:limit]
            case TopRows(_, order, limit, source):
                return _first_rows(self.rows(source), order, limit)
            case Map(outputs, TopRows() as ordered):  # the sort keys are not shown
                shown = [(column.id, value) for column, value in outputs]
                return evaluate_columns(self.ordered(ordered), shown, keep=(FROM,))
        return self.rows(plan)

    def rows(self, plan: Plan) -> pl.DataFrame:
        """The rows of a plan by column id, with the instant, so that there are as many where there is no column."""
        plan = optimize(transform_up(plan, _at_one_instant))
        scans = [node for node in walk(plan) if isinstance(node, Scan)]
        for read, count in Counter((scan.stream, scan.at) for scan in scans).items():
            if count > 1:
                same = (scan for scan in scans if (scan.stream, scan.at) == read)
                self._columns[read] = {column.name: column for scan in same for column in scan.columns}
        return self._local_rows(plan) if _is_local(plan) else self._computed_rows(plan)

    def _local_rows(self, plan: Plan) -> pl.DataFrame:
        """Filters and projections over the rows of a single relation."""
        match plan:
            case Scan():
                return self._scanned(plan, None)
            case Filter(predicate, Scan() as scan):
                return filter_frame(self._scanned(scan, predicate), predicate)
            case Filter(predicate, source):
                return filter_frame(self._local_rows(source), predicate)
            case Map(outputs, source):
                values = [(column.id, value) for column, value in outputs]
                return evaluate_columns(self._local_rows(source), values, keep=(FROM,))
        raise AssertionError("it has been seen to be local")

    def _scanned(self, scan: Scan, predicate: Expression | None) -> pl.DataFrame:
        read = (scan.stream, scan.at)
        if read not in self._columns:
            rows = self._read_rows(scan, predicate)
        else:
            if read not in self._shared:
                self._shared[read] = self._read_rows(replace(scan, columns=tuple(self._columns[read].values())), None)
            rows = self._shared[read]
        columns = (pl.col(column.name).alias(column.id) for column in scan.columns)
        return rows.with_columns(pl.lit(NOW, pl.Int64).alias(FROM)).select(*columns, FROM)

    def _computed_rows(self, plan: Plan) -> pl.DataFrame:
        """The result of the local engine over what is local: to it, streams of one instant."""
        streams: dict[str, BaseStream] = {}
        frames: dict[str, pl.DataFrame] = {}

        def cut(node: Plan) -> Plan:
            if not _is_local(node):
                return with_sources(node, tuple(cut(source) for source in sources(node)))
            name, columns = f"r{len(streams)}", schema(node)
            # At the border of the engine rows have their time with them, whatever it is called.
            kinds = tuple((column.id, column.type) for column in columns)
            streams[name] = BaseStream(name, kinds, ConnectorCall("stored"), FROM)
            frames[name] = self._local_rows(node)
            return Scan(name, name, tuple(replace(column, name=column.id) for column in columns))

        # Time begins for all relations, also for those without a row: a count over nothing is 0.
        elements = run_in_memory(cut(plan), list(streams.values()), frames.__getitem__, begin=NOW)
        return elements.filter((pl.col(FROM) <= NOW) & (pl.col(UNTIL) > NOW)).drop(UNTIL)


def _first_rows(frame: pl.DataFrame, order: Sequence[SortKey], limit: int) -> pl.DataFrame:
    """The first rows in their order, with those that tie with the last."""
    levels = order_levels(frame, order)
    rows = np.argsort(levels, kind="stable")
    if limit < len(rows):
        rows = rows[: np.searchsorted(levels[rows], levels[rows[limit - 1]], side="right")]
    return gather(frame, rows)


def _at_one_instant(plan: Plan) -> Plan:
    """At one instant a table is a stream of points as any other; which instant it is, the scan still says."""
    return replace(plan, intervals=False, table=None) if isinstance(plan, Scan) else plan


def _is_local(plan: Plan) -> bool:
    while isinstance(plan, Filter | Map):
        plan = plan.source
    return isinstance(plan, Scan)
