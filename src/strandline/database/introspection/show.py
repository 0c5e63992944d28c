"""SHOW and DESCRIBE of streams, views and queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa

from strandline.connectors.sinks import Sink
from strandline.connectors.tables.feed_status import FeedStatus
from strandline.connectors.tables.feeds.feeder import TableFeeder
from strandline.core.security.redaction import HIDDEN, is_sensitive, redact
from strandline.core.security.secret import Secret
from strandline.core.table import TextTable
from strandline.core.temporal import show_duration
from strandline.core.types import Schema, Type
from strandline.database.introspection.running_graph import show_beginning
from strandline.database.introspection.text import shorten_line, show_watermark
from strandline.database.query import Query
from strandline.functions.aggregates import AGGREGATES
from strandline.functions.registry import FUNCTIONS
from strandline.logical.catalog import (
    SYSTEM,
    Argument,
    BaseStream,
    Catalog,
    ConnectorCall,
    DependentQuery,
    DerivedStream,
    Stream,
    Table,
)
from strandline.logical.explain import show_expression
from strandline.logical.expressions import Literal
from strandline.logical.schema import schema

Fact: TypeAlias = tuple[str, str | None, str | None]  # a property, what it is of, its value
_WIDE = 60  # characters of a definition in a list; DESCRIBE has all of them


def show_streams(catalog: Catalog) -> TextTable:
    """Every stream: where its rows come from, its columns, and its source or query."""
    rows = []
    for stream in catalog:
        if isinstance(stream, BaseStream):
            rows.append((stream.name, "source", _columns(stream), shorten_line(show_source(stream.source), _WIDE)))
        elif isinstance(stream, DerivedStream) and not (stream.is_view or stream.is_materialized):
            rows.append((stream.name, "query", _columns(stream), shorten_line(stream.text, _WIDE)))
    return TextTable.text(("name", "kind", "columns", "definition"), rows)


def show_tables(
    catalog: Catalog, row_counts: Mapping[str, int], feeders: Mapping[str, TableFeeder] = MappingProxyType({})
) -> TextTable:
    """Every table: its kind, its columns, its primary key, how many rows it has and, where it has a source, whether
    that is read, how many of its rows were rejected and late, and why it is not read."""
    rows: list[tuple[object, ...]] = []
    for table in catalog:
        if isinstance(table, Table):
            key = ", ".join(table.key) or None
            facts = (table.name, show_table_kind(table), _columns(table), key, row_counts.get(table.name))
            feeder = feeders.get(table.name)
            position = None if feeder is None else feeder.feed.position
            counts = (None, None) if position is None else (position.rejected, position.late)
            status = (None, None) if feeder is None else (feeder.status.state, feeder.status.message)
            rows.append((*facts, status[0], *counts, None if status[1] is None else shorten_line(status[1], _WIDE)))
    text, number = pa.string(), pa.int64()
    kinds = {"name": text, "kind": text, "columns": text, "key": text, "rows": number}
    return TextTable.of({**kinds, "source": text, "rejected": number, "late": number, "error": text}, rows)


def show_table_kind(table: Table) -> str:
    """What queries see of a table's changes."""
    if table.kind != "changing":
        return table.kind
    return "retroactive" if table.retroactive else "non-retroactive"


def show_views(catalog: Catalog) -> TextTable:
    """Every view, also materialized ones: its columns and its query."""
    views = (s for s in catalog if isinstance(s, DerivedStream) and (s.is_view or s.is_materialized))
    rows = [(view.name, view.word, _columns(view), shorten_line(view.text, _WIDE)) for view in views]
    return TextTable.text(("name", "kind", "columns", "definition"), rows)


def show_columns(stream: Stream) -> TextTable:
    """The columns of a stream, table or view that a query can read."""
    return TextTable.text(("column", "type"), [(name, str(kind)) for name, kind in columns_of(stream)])


def show_schema(columns: Schema) -> TextTable:
    """The columns of a query."""
    return TextTable.text(("column", "type"), [(column.name, str(column.type)) for column in columns])


def show_functions(catalog: Catalog) -> TextTable:
    """Every function and aggregate: how it is written, and what it means; then those of the program."""
    functions = {(function.name.lower(), function.usage, function.doc) for function in FUNCTIONS.values()}
    aggregates = {(function.name.lower(), function.usage, function.doc) for function in AGGREGATES.values()}
    rows = sorted(functions | aggregates)
    rows += [(name, str(function), "registered by the program") for name, function in sorted(catalog.functions.items())]
    return TextTable.text(("name", "written", "meaning"), rows)


def show_queries(queries: Iterable[Query], waiting: Sequence[DependentQuery] = ()) -> TextTable:
    """Every query that was started here, and those of a script that are going to be."""
    rows: list[tuple[object, ...]] = []
    for query in queries:
        metrics, reads = query.metrics(), _names(query.reads - {query.name})
        facts = (query.name, query.state, query.runs_in.label, reads)
        rows.append((*facts, metrics["rows_out"], metrics["progress"]))
    rows += [
        (item.name, "waiting", item.pipeline or None, _names(item.reads - {item.name}), 0, None) for item in waiting
    ]
    text, time = pa.string(), pa.timestamp("us", "UTC")
    kinds = {"name": text, "state": text, "pipeline": text, "reads": text, "rows_out": pa.int64(), "progress": time}
    return TextTable.of(kinds, rows)


def show_sinks(queries: Iterable[Query], waiting: Mapping[str, Sink]) -> TextTable:
    """Every sink by the name of its query: kind, location, guarantees and state."""
    sinks = [(query.name, query.sink, str(query.state)) for query in queries if query.has_sink]
    sinks += [(name, sink, "waiting") for name, sink in waiting.items()]
    rows = [(name, sink.kind, redact(sink.display_location), str(sink.traits), state) for name, sink, state in sinks]
    return TextTable.text(("name", "kind", "place", "traits", "state"), rows)


def show_shedding(queries: Iterable[Query]) -> TextTable:
    """Shedding by query and stream: the sampling rate, the dropped rows, and the estimated completeness."""
    rows: list[tuple[object, ...]] = []
    for query in queries:
        for item in query.shedding():
            rows.append((query.name, item.stream, item.kept, item.rows, item.dropped, item.completeness, item.lag))
    int64, float64 = pa.int64(), pa.float64()
    kinds = {"query": pa.string(), "stream": pa.string(), "kept": float64, "rows": int64, "dropped": int64}
    return TextTable.of({**kinds, "completeness": float64, "lag_seconds": float64}, rows)


def describe(stream: Stream, query: Query | None = None, feed: FeedStatus | None = None) -> TextTable:
    """Description of a stream or view, a fact per row; `query` is the one that computes it, `feed` the status of a
    table with a source."""
    facts: list[Fact] = [("kind", None, _kind(stream))]
    facts += [("column", name, _show_column(stream, name, kind)) for name, kind in columns_of(stream)]
    if isinstance(stream, BaseStream):
        facts += _source_facts(stream) if not stream.name.startswith(SYSTEM) else ()
    elif isinstance(stream, Table):
        facts += _table_facts(stream, feed)
    else:
        facts += [("reads", None, _names(stream.reads)), ("query", None, stream.text)]
        if stream.keep_us is not None:
            facts.append(("past", None, show_duration(stream.keep_us)))
        if query is not None:
            facts += _query_facts(query)
    return _fact_table(facts)


def describe_query(query: Query) -> TextTable:
    """Description of a query that has no stream of its name: a sink, or a SELECT."""
    facts: list[Fact] = [("kind", None, "sink" if query.has_sink else "query")]
    facts += [("column", column.name, str(column.type)) for column in query.columns]
    facts.append(("reads", None, _names(query.reads - {query.name})))
    if query.in_graph.text:
        facts.append(("query", None, redact(" ".join(query.in_graph.text.split()))))
    return _fact_table([*facts, *_query_facts(query)])


def _query_facts(query: Query) -> Iterator[Fact]:
    """The state of a query, where it runs, and how it began."""
    if query.has_sink:
        yield "sink", query.sink.kind, redact(query.sink.display_location)
    yield "state", None, query.state
    yield "complete up to", None, show_watermark(query.progress)
    yield "pipeline", None, query.runs_in.label
    yield "number", None, str(query.in_graph.number)
    yield "since version", None, str(query.in_graph.began)
    yield "begins", None, show_beginning(query)


def _fact_table(facts: Sequence[Fact]) -> TextTable:
    return TextTable.of(dict.fromkeys(("property", "name", "value"), pa.string()), facts)


def _show_column(stream: Stream, name: str, kind: Type) -> str:
    """The type of a column, and what a table requires of its values."""
    if not isinstance(stream, Table):
        return str(kind)
    default = f" DEFAULT {show_expression(Literal(stream.defaults[name], kind))}" if name in stream.defaults else ""
    return f"{kind}{' NOT NULL' if name in stream.required else ''}{default}"


def _source_facts(stream: BaseStream) -> Iterator[Fact]:
    yield "source", None, show_source(stream.source)
    if stream.time_column is None:
        yield "time", None, "on arrival"
    elif stream.end_column is not None:
        yield "valid from", stream.time_column, None
        yield "valid until", stream.end_column, None
    else:
        yield "time", stream.time_column, None
    if stream.time_column is not None:
        yield "disorder", None, show_duration(stream.disorder_us) if stream.disorder_us else "none"
        idle = f"after {show_duration(stream.idle_after_us)}" if stream.idle_after_us is not None else "never"
        yield "idle", None, idle
    if stream.changes is not None:
        yield "changes in", stream.changes.op_column, None
        yield from (("primary key", name, None) for name in stream.changes.key)
    if stream.bad_input.stops:
        yield "bad input", None, str(stream.bad_input)


def _table_facts(table: Table, feed: FeedStatus | None) -> Iterator[Fact]:
    yield from (("primary key", name, None) for name in table.key)
    if table.source is not None:
        yield "source", None, show_source(table.source)
    if feed is not None:
        yield "state", None, feed.state
        if feed.message is not None:
            yield from (("error", None, feed.message), ("remedy", None, feed.remedy))
    if table.kind == "temporal":
        yield "valid from", table.time_column, None
        yield "valid until", table.end_column, None
    elif table.kind == "changing":
        yield "time of a change", table.time_column, None if table.time_column else "by the clock"
        yield "past", None, "all" if table.keep_us is None else show_duration(table.keep_us)


def _kind(stream: Stream) -> str:
    if stream.name.startswith(SYSTEM):
        return "system table"
    if isinstance(stream, Table):
        return f"{show_table_kind(stream)} table"
    if isinstance(stream, BaseStream):
        return "stream from a source"
    return "stream from a query" if stream.word == "stream" else stream.word


def columns_of(stream: Stream) -> list[tuple[str, Type]]:
    if isinstance(stream, BaseStream):
        return list(stream.queried_columns)
    if isinstance(stream, Table):
        return list(stream.queried_columns)
    return [(column.name, column.type) for column in schema(stream.plan)]


def _columns(stream: Stream) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns_of(stream))


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def show_source(source: ConnectorCall) -> str:
    """A source as it is written, without its secrets."""
    options = (_option(name, value) for name, value in source.options.items())
    return f"{source.function}({', '.join([*map(_literal, source.arguments), *options])})"


def _option(name: str, value: Argument) -> str:
    written = name if re.fullmatch(r"[a-z_]\w*", name) else f'"{name}"'
    hides = is_sensitive(name) and not isinstance(value, Secret)
    return f"{written} => {_literal(HIDDEN if hides else value)}"


def _literal(value: Argument) -> str:
    if isinstance(value, Secret):
        return repr(value)
    if isinstance(value, list):
        return f"({', '.join(map(_literal, value))})"
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    return "'" + redact(value).replace("'", "''") + "'" if isinstance(value, str) else str(value)
