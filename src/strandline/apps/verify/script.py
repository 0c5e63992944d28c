"""A script under test: its queries run as always, and are then held against a database."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from strandline.apps.verify.check import Verdict, check
from strandline.apps.verify.dataset import NameScope, QueryUnderTest, base_streams
from strandline.apps.verify.on_duckdb import DuckDBOracle
from strandline.apps.verify.on_postgresql import PostgreSQLOracle
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.record import Recorded, record, record_table
from strandline.apps.verify.server import temporary_server
from strandline.apps.verify.shrink import smallest_failing
from strandline.connectors.sinks import Memory
from strandline.core.errors import QueryError, SetupError, SourceError
from strandline.core.temporal import FOREVER
from strandline.database.database import Database as Engine
from strandline.database.query import Query
from strandline.database.script import DeferredStatements
from strandline.database.script_changes import connected_groups
from strandline.database.statements import BoundQuery
from strandline.logical.catalog import BaseStream, Table
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.sql import ast
from strandline.sql.binder.clock import open_windows
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.scaled_aggregates import as_if_whole
from strandline.sql.parser.statements import parse


@dataclass(frozen=True, slots=True)
class VerifyCase:
    """A query that was run and its input; `unchecked` is the reason why its input cannot be had again, if so."""

    tested_query: QueryUnderTest
    query: Query
    streams: tuple[Recorded, ...]
    unchecked: str | None = None


@contextmanager
def open_oracle(name: str, dsn: str | None) -> Iterator[OracleDatabase]:
    """Open the oracle; a PostgreSQL server is started for it if none is named."""
    with ExitStack() as stack:
        match name:
            case "duckdb":
                yield stack.enter_context(closing(DuckDBOracle()))
            case "postgresql":
                where = stack.enter_context(temporary_server()) if dsn is None else dsn
                yield stack.enter_context(closing(PostgreSQLOracle(where)))
            case _:
                raise SetupError(f'unknown oracle "{name}"', code="usage", hint="Oracles are duckdb and postgresql.")


def verify(
    engine: Engine,
    text: str,
    database: OracleDatabase,
    *,
    only: str | None = None,
    seconds: float | None = None,
    most: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Verdict]:
    """Run the queries of a script, all or the one called `only`, until their sources end or the time is up."""
    tested_queries = _tested_queries(engine, parse(text), only)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="strandline-verify-") as directory:
        for case in _run(engine, tested_queries, Path(directory), seconds, note):
            tested_query, query = case.tested_query, case.query
            if case.unchecked is not None:
                verdicts.append(Verdict(tested_query.name, unchecked=case.unchecked))
                continue
            note(f"running {tested_query.name} on {database.dialect.name}")
            verdict = check(database, tested_query, case.streams, _elements(query), query.progress, most, note)
            if not verdict.total_instants and not query.ended and verdict.unchecked is None:
                verdict = replace(verdict, unchecked="no instant was complete when the run was stopped")
            if not verdict.equal:
                note(f"shrinking the failing input of {tested_query.name}")
                verdict = replace(verdict, smallest=smallest_failing(database, tested_query, case.streams))
            verdicts.append(verdict)
    return verdicts


def _tested_queries(engine: Engine, statements: Sequence[ast.Statement], only: str | None) -> list[QueryUnderTest]:
    """The queries of a script, each with what names mean where it stands."""
    script = DeferredStatements(engine)
    script.run(statements)
    query_scopes: dict[int, tuple[ast.Query, NameScope]] = {}
    scope = NameScope(engine.catalog)
    judged = as_if_whole(with_definitions(tuple(statements), engine.catalog.functions))
    tested = {id(bound.statement) for bound in script.queries}
    for statement, as_written in zip(statements, judged, strict=True):
        is_tested = id(statement) in tested or isinstance(statement, ast.CreateView)
        whole = open_windows(as_written, engine.catalog) if is_tested else as_written
        match whole:
            case ast.CreateStreamAs(name, query):
                query_scopes[id(statement)] = query, scope
                scope = scope.with_query(name.name, query)
            case ast.CreateView(name, columns, query):
                scope = scope.with_query(name.name, query, columns)
            case (
                ast.CreateSink(_, _, query) | ast.QueryWithShedding(query) | ast.QueryWithStart(query)
            ):  # results are judged here, and whole
                query_scopes[id(statement)] = query, scope
            case query if isinstance(query, ast.Query):
                query_scopes[id(statement)] = query, scope
    tested_queries = []
    for bound in script.queries:
        query, name_scope = query_scopes[id(bound.statement)]
        tested_queries.append(QueryUnderTest(bound.name, query, bound.plan, name_scope))
    chosen = [
        tested_query for tested_query in tested_queries if only is None or tested_query.name.lower() == only.lower()
    ]
    if not chosen:
        names = ", ".join(tested_query.name for tested_query in tested_queries)
        raise QueryError(
            "the script has no query" if only is None else f'the script has no query "{only}"',
            code="no-query",
            hint=f"Queries are {names}." if names else "Add a SELECT, or CREATE STREAM name AS SELECT ….",
        )
    return chosen


def _run(
    engine: Engine,
    tested_queries: Sequence[QueryUnderTest],
    directory: Path,
    seconds: float | None,
    note: Callable[[str], None],
) -> list[VerifyCase]:
    queries: dict[str, Query] = {}
    checkpoints: dict[str, Path] = {}
    bound = [
        BoundQuery(tested_query.name, tested_query.plan, sink=Memory(keep=None)) for tested_query in tested_queries
    ]
    for number, group in enumerate(connected_groups(bound)):
        checkpoint = directory / f"run{number}"
        for query in engine.start(group, checkpoint):
            queries[query.name], checkpoints[query.name] = query, checkpoint
    _wait(list(queries.values()), seconds, note)
    cases = []
    recorded: dict[tuple[Path, str, frozenset[str]], Recorded] = {}
    for tested_query in tested_queries:
        query, checkpoint = queries[tested_query.name], checkpoints[tested_query.name]
        unchecked: str | None = None
        mine: dict[str, Recorded] = {}
        # All streams that the query is written over: also those that its plan can do without.
        for name in base_streams(tested_query.query, tested_query.name_scope):
            stream = tested_query.name_scope.catalog.get(name)
            if isinstance(stream, Table):
                try:
                    mine[name] = _record_table(engine, stream, query)
                except SourceError as error:
                    unchecked = f'the log of table "{stream.name}" cannot be read again: {error.message}'
                continue
            assert isinstance(stream, BaseStream), "rows come from base streams"
            if stream.time_column is None:
                unchecked = f'rows of "{stream.name}" are stamped on arrival, which cannot be repeated'
                continue
            # Of a stream that may be idle, other rows are late for queries that wait for other streams.
            waits_for = frozenset(query.heartbeats()) if stream.idle_after_us is not None else frozenset()
            if (key := (checkpoint, name, waits_for)) not in recorded:
                is_read = stream.name in query.heartbeats()
                late = query.late(stream.name, "polars") if is_read else pl.DataFrame()
                count = None if query.ended else _rows_read(query, stream.name)
                recorded[key] = record(stream, checkpoint / "sources" / stream.name, late, count)
            mine[name] = recorded[key]
        cases.append(VerifyCase(tested_query, query, tuple(mine.values()), unchecked))
    return cases


def _record_table(engine: Engine, table: Table, query: Query) -> Recorded:
    """The elements of a table for a query. One that the plan skips counts as it is now."""
    store, status = engine.tables.store(table), query.heartbeats().get(table.name)
    end, base = (store.reach, store.reach) if status is None or status.base < 0 else (status.rows, status.base)
    nothing = pl.DataFrame(store.log_schema.empty_table())
    return record_table(table, pl.concat([nothing, *store.read(0, end)]), base)


def _rows_read(query: Query, stream: str) -> int:
    """Rows of a stream that a run has read. Of a stream that its plan skips, as many as of all others."""
    counts = [query.metrics()[kind] for kind in ("rows_in", "late", "rejected")]
    if stream in counts[0]:
        return sum(count[stream] for count in counts)
    return sum(sum(count.values()) for count in counts)


def _wait(queries: list[Query], seconds: float | None, note: Callable[[str], None]) -> None:
    """Wait until all sources have ended, the time is up, or Ctrl-C; the results so far are compared.

    Time counts from the first rows on, without the start of Spark.
    """
    until: float | None = None
    try:
        while not all(query.await_end(0.1) for query in queries):
            rows = max(sum(query.metrics()["rows_in"].values()) for query in queries)
            note(f"running: {rows:,} rows in")
            if until is None and seconds is not None and rows:
                until = time.monotonic() + seconds
            if until is not None and time.monotonic() > until:
                break
    except KeyboardInterrupt:
        note("stopping")
    for query in queries:
        query.stop()


def _elements(query: Query) -> pl.DataFrame:
    """The result by position: c1, c2, …, and the interval of each row in microseconds."""
    frame: pl.DataFrame = query.results("polars")
    names = {name: f"c{n}" for n, name in enumerate(frame.columns[:-2], 1)}
    start, end = (pl.col(name).dt.epoch("us").fill_null(FOREVER) for name in frame.columns[-2:])
    return frame.select(
        *(pl.col(name).alias(column_id) for name, column_id in names.items()), start.alias(FROM), end.alias(UNTIL)
    )
