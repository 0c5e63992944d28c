"""System tables, `sys.streams`, `sys.queries`, …: the running system, queried with SQL.

They are finite, so a SELECT over them, beside tables and materialized views, is executed at once
(`database/at_once.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from strandline.connectors.tables.feeds.base import FeedPosition
from strandline.connectors.tables.store import find_open_table
from strandline.core.errors import CatalogError, Span
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, to_datetime
from strandline.core.types import Type
from strandline.database.introspection.running_graph import beginning_of, graph_operators, graph_versions
from strandline.database.introspection.show import show_source, show_table_kind
from strandline.database.introspection.statistics import show_distinct
from strandline.database.query import Query
from strandline.logical.catalog import SYSTEM, Catalog, DerivedStream, Stream, Table
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.statistics_store import starts_of
from strandline.runtime.watermark import SourceStatus
from strandline.sql.binder.stored import is_stored
from strandline.sql.parser.statements import parse_type


class SystemTable(NamedTuple):
    """A table: its columns, and the function that builds its rows."""

    columns: tuple[tuple[str, Type], ...]
    rows: Callable[[Catalog, Sequence[Query]], Iterator[tuple[Any, ...]]]

    def frame(self, catalog: Catalog, queries: Sequence[Query]) -> pl.DataFrame:
        """All rows."""
        kinds = {name: polars_type(kind) for name, kind in self.columns}
        return pl.DataFrame(list(self.rows(catalog, queries)), schema=kinds, orient="row")


class SystemTables(Catalog):
    """The system tables beside what the user has stored. Other names are here only to be refused."""

    def __init__(self, others: Catalog) -> None:
        super().__init__()
        self.others = others
        self.functions, self.allow, self.notices = others.functions, others.allow, others.notices
        for name, table in TABLES.items():
            self._streams[name] = Table(name, table.columns, kind="constant")

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or name in self.others

    def get(self, name: str, span: Span | None = None) -> Stream:
        if super().__contains__(name):
            return super().get(name, span)
        if name in self.others:
            stream = self.others.get(name)
            if is_stored(stream, self.others):
                return stream
            raise CatalogError(
                f'"{stream.name}" is read together with tables of sys',
                code="system-and-streams",
                detail="Tables of sys are read once; a query over a stream is continuous.",
                hint="Query them separately.",
                span=span,
            )
        if name.lower().startswith(SYSTEM):
            raise CatalogError(
                f'unknown table "{name}"',
                code="unknown-stream",
                hint=f"Tables are {', '.join(TABLES)}.",
                span=span,
            )
        return self.others.get(name, span)  # which raises that there is none


# ---- the tables ------------------------------------------------------------------------------------------------------


def _streams(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for stream in catalog:
        if isinstance(stream, DerivedStream):
            kind = "query" if stream.word == "stream" else stream.word
            yield (stream.name, kind, " ".join(stream.text.split()), *[None] * 9)
            continue
        if isinstance(stream, Table):
            continue  # sys.tables has them
        learned = catalog.measured.get(stream.name.lower())
        measured = learned.rate if learned is not None else None
        counts: tuple[int, ...] = (0, 0, 0)
        at = lag = idle = ended = None
        status = _freshest(stream.name, queries)
        if status is not None:
            seen = starts_of(status).rate
            measured = measured if seen is None else seen
            counts, idle, ended = (status.rows, status.late, status.rejected), status.idle, status.ended
            if BEFORE_ALL < status.watermark < FOREVER:
                at = to_datetime(status.watermark)
                lag = (datetime.now(UTC) - at).total_seconds()
        rates = (stream.statistics.rate, measured)
        yield (stream.name, "source", show_source(stream.source), *rates, *counts, at, lag, idle, ended)


def _tables(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for table in catalog:
        if not isinstance(table, Table):
            continue
        store = find_open_table(Path(table.directory))
        source = None if table.source is None else show_source(table.source)
        instants = (_instant(store.last_change), _instant(store.retained_since))
        facts = (store.row_count, store.reach, *instants, _log_bytes(store.directory), source)
        feed = FeedPosition.from_text(store.feed_position)
        counts = (None, None, None) if source is None else (feed.read, feed.rejected, feed.late)
        status = store.feed_status
        state = (None, None, None) if status is None else (status.state, status.message, status.remedy)
        yield (table.name, show_table_kind(table), ", ".join(table.key) or None, *facts, *counts, *state)


def _instant(at: Instant) -> datetime | None:
    return to_datetime(at) if BEFORE_ALL < at < FOREVER else None


def _log_bytes(directory: Path) -> int:
    """Bytes of the log of a table and of its base; files may go while they are counted."""
    sizes = 0
    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):
            sizes += entry.stat().st_size if entry.name.endswith((".log", ".base")) else 0
    return sizes


def _freshest(stream: str, queries: Iterable[Query]) -> SourceStatus | None:
    """Status of a stream by the query that has read most of it."""
    statuses = (query.heartbeats().get(stream) for query in queries)
    return max((status for status in statuses if status is not None), key=lambda status: status.rows, default=None)


def _queries(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for query in queries:
        metrics, operators = query.metrics(), query.statistics().operators
        yield (
            query.name,
            query.state,
            ", ".join(sorted(query.reads - {query.name})),
            metrics["progress"],
            metrics["rows_out"],
            sum(operator.state_rows for operator in operators),
            sum(operator.state_bytes for operator in operators),
            metrics["batches"],
            sum(operator.cpu_seconds for operator in operators),
            metrics["rows_left"],
            beginning_of(query),
            query.start,
            metrics["rows_behind"],
            query.runs_in.label,
        )


def _operators(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for statistics in (query.statistics() for query in queries):
        for o in statistics.operators:
            done = (o.rows_in, o.rows_out, o.selectivity, o.cpu_seconds, o.cost_us, o.state_rows, o.state_bytes)
            yield (statistics.query, o.fragment, o.step, o.kind, o.text, *done)


def _edges(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for statistics in (query.statistics() for query in queries):
        for e in statistics.edges:
            flow = (e.rows, e.rate, e.distance, e.length, e.granule, show_distinct(e.distinct))
            yield (statistics.query, e.begin, e.end, e.form, e.pattern, e.state or None, *flow)


def _graph(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for o in graph_operators(queries):
        kept = (o.state_rows, o.state_bytes, o.cpu_seconds)
        yield (o.pipeline, o.id, o.stage, o.kind, o.text, o.structures or None, o.since, ", ".join(o.queries), *kept)


def _graph_versions(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for v in graph_versions(queries):
        yield (v.pipeline, v.version, v.first_batch, v.queries, v.operators, v.is_current)


def _metrics(catalog: Catalog, queries: Sequence[Query]) -> Iterator[tuple[Any, ...]]:
    for query in queries:
        for name, value in query.metrics().items():
            for stream, item in value.items() if isinstance(value, dict) else [(None, value)]:
                number = float(item) if isinstance(item, int | float) else None
                yield (query.name, name, stream, number, None if item is None else str(item))


def _table(columns: str, rows: Callable[[Catalog, Sequence[Query]], Iterator[tuple[Any, ...]]]) -> SystemTable:
    """A table whose columns are written as in CREATE STREAM."""
    declared = (column.split() for column in columns.split(","))
    return SystemTable(tuple((name, parse_type(kind)) for name, kind in declared), rows)


TABLES: Final[dict[str, SystemTable]] = {
    "sys.streams": _table(
        "name VARCHAR, kind VARCHAR, definition VARCHAR, rate_declared DOUBLE, rate_measured DOUBLE, rows_in BIGINT, "
        "late BIGINT, rejected BIGINT, progress TIMESTAMP, lag_seconds DOUBLE, idle BOOLEAN, ended BOOLEAN",
        _streams,
    ),
    "sys.tables": _table(
        "name VARCHAR, kind VARCHAR, key VARCHAR, rows BIGINT, changes BIGINT, last_change TIMESTAMP, "
        "retained_since TIMESTAMP, log_bytes BIGINT, source VARCHAR, read BIGINT, rejected BIGINT, late BIGINT, "
        "state VARCHAR, error VARCHAR, remedy VARCHAR",
        _tables,
    ),
    "sys.queries": _table(
        "name VARCHAR, state VARCHAR, reads VARCHAR, progress TIMESTAMP, rows_out BIGINT, state_rows BIGINT, "
        "state_bytes BIGINT, batches BIGINT, cpu_seconds DOUBLE, rows_left BIGINT, begins TIMESTAMP, "
        "start VARCHAR, rows_behind BIGINT, pipeline VARCHAR",
        _queries,
    ),
    "sys.operators": _table(
        "query VARCHAR, fragment VARCHAR, step VARCHAR, kind VARCHAR, text VARCHAR, rows_in BIGINT, rows_out BIGINT, "
        "selectivity DOUBLE, cpu_seconds DOUBLE, us_per_row DOUBLE, state_rows BIGINT, state_bytes BIGINT",
        _operators,
    ),
    "sys.edges": _table(
        "query VARCHAR, source VARCHAR, target VARCHAR, form VARCHAR, pattern VARCHAR, state VARCHAR, "
        "elements BIGINT, rate DOUBLE, distance DOUBLE, length DOUBLE, granule DOUBLE, distinct_values VARCHAR",
        _edges,
    ),
    "sys.graph": _table(
        "pipeline VARCHAR, id VARCHAR, stage BIGINT, kind VARCHAR, text VARCHAR, state VARCHAR, since_version BIGINT, "
        "queries VARCHAR, state_rows BIGINT, state_bytes BIGINT, cpu_seconds DOUBLE",
        _graph,
    ),
    "sys.graph_versions": _table(
        "pipeline VARCHAR, version BIGINT, first_batch BIGINT, queries VARCHAR, operators BIGINT, current BOOLEAN",
        _graph_versions,
    ),
    "sys.metrics": _table("query VARCHAR, name VARCHAR, stream VARCHAR, value DOUBLE, text VARCHAR", _metrics),
}
