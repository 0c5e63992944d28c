"""A script under test: its queries run as always, and are then held against a database."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from strandline.apps.verify.check import Question, Verdict, check, smallest_failing
from strandline.apps.verify.judge import Database
from strandline.apps.verify.on_duckdb import DuckDB
from strandline.apps.verify.on_postgresql import PostgreSQL
from strandline.apps.verify.record import Recorded, record
from strandline.apps.verify.server import temporary_server
from strandline.apps.verify.world import Place, base_streams
from strandline.connectors.sinks import Memory
from strandline.core.errors import QueryError, SetupError
from strandline.core.temporal import FOREVER
from strandline.database.database import Database as Engine
from strandline.database.database import connected_groups
from strandline.database.query import Query
from strandline.database.script import Script, read_script
from strandline.logical.catalog import BaseStream, Catalog
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.sql import ast
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.scaled_aggregates import as_if_whole
from strandline.sql.parser.statements import parse


@dataclass(frozen=True, slots=True)
class Plea:
    """A query that was run and its input, unless one of its streams is stamped on arrival."""

    question: Question
    query: Query
    streams: tuple[Recorded, ...]
    by_arrival: str | None = None


@contextmanager
def judge(name: str, dsn: str | None) -> Iterator[Database]:
    """Open the oracle; a PostgreSQL server is started for it if none is named."""
    if name == "duckdb":
        database: Database = DuckDB()
        try:
            yield database
        finally:
            database.close()
    elif name == "postgresql" and dsn is not None:
        database = PostgreSQL(dsn)
        try:
            yield database
        finally:
            database.close()
    elif name == "postgresql":
        with temporary_server() as where, judge(name, where) as database:
            yield database
    else:
        raise SetupError(f'unknown oracle "{name}"', code="usage", hint="Oracles are duckdb and postgresql.")


def verify(
    engine: Engine,
    text: str,
    database: Database,
    *,
    only: str | None = None,
    seconds: float | None = None,
    most: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Verdict]:
    """Run the queries of a script, all or the one called `only`, until their sources end or the time is up."""
    script = read_script(engine, text)
    questions = _questions(script, text, engine.catalog, only)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="strandline-verify-") as directory:
        pleas = _run(engine, questions, Path(directory), seconds, note)
        for plea in pleas:
            if plea.by_arrival is not None:
                reason = f'rows of "{plea.by_arrival}" are stamped on arrival, which cannot be repeated'
                verdicts.append(Verdict(plea.question.name, unchecked=reason))
                continue
            note(f"running {plea.question.name} on {database.dialect.name}")
            verdict = check(database, plea.question, plea.streams, _elements(plea.query), plea.query.progress, most)
            if not verdict.known and not plea.query.ended and verdict.unchecked is None:
                verdict = replace(verdict, unchecked="no instant was complete when the run was stopped")
            if not verdict.equal:
                note(f"shrinking the failing input of {plea.question.name}")
                verdict = replace(verdict, smallest=smallest_failing(database, plea.question, plea.streams))
            verdicts.append(verdict)
    return verdicts


def _questions(script: Script, text: str, catalog: Catalog, only: str | None) -> list[Question]:
    """The queries of a script, each with its name resolution."""
    place = Place(catalog)
    named: dict[str, tuple[ast.Query, Place]] = {}
    bare: list[tuple[ast.Query, Place]] = []
    for statement in as_if_whole(with_definitions(tuple(parse(text)), catalog.functions)):
        match statement:
            case ast.CreateStreamAs(name, query):
                named[name.name.lower()] = query, place
                place = place.with_query(name.name, query)
            case ast.CreateSink(name, _, query):  # the result is compared here, and goes nowhere else
                named[name.name.lower()] = query, place
            case ast.CreateView(name, columns, query, _):
                place = place.with_query(name.name, query, columns)
            case (
                ast.CreateStream()
                | ast.Drop()
                | ast.DropSink()
                | ast.Explain()
                | ast.ExplainAnalyze()
                | ast.Show()
                | ast.Describe()
            ):
                pass
            case _ if ast.reads_system(statement):
                pass
            case ast.Set():
                pass
            case ast.Allowing(query, _):  # here it loses nothing
                bare.append((query, place))
            case _:
                bare.append((statement, place))
    nameless = iter(bare)
    found = []
    for label, plan in script.queries:
        query, around = named[label.lower()] if label.lower() in named else next(nameless)
        found.append(Question(label, query, plan, around))
    chosen = [question for question in found if only is None or question.name.lower() == only.lower()]
    if not chosen:
        known = ", ".join(question.name for question in found)
        raise QueryError(
            "the script has no query" if only is None else f'the script has no query "{only}"',
            code="no-query",
            hint=f"Queries are {known}." if known else "Add a SELECT, or CREATE STREAM name AS SELECT ….",
        )
    return chosen


def _run(
    engine: Engine, questions: Sequence[Question], place: Path, seconds: float | None, note: Callable[[str], None]
) -> list[Plea]:
    queries: dict[str, Query] = {}
    places: dict[str, Path] = {}
    for number, group in enumerate(connected_groups([(q.name, q.plan) for q in questions])):
        checkpoint = place / f"run{number}"
        for query in engine.start([(name, plan, Memory(keep=None)) for name, plan in group], checkpoint):
            queries[query.name], places[query.name] = query, checkpoint
    _wait(list(queries.values()), seconds, note)
    pleas = []
    recorded: dict[tuple[Path, str], Recorded] = {}
    for question in questions:
        query, checkpoint = queries[question.name], places[question.name]
        by_arrival: str | None = None
        # All streams that the query is written over: also those that its plan can do without.
        for name in base_streams(question.query, question.place):
            stream = question.place.catalog.get(name)
            assert isinstance(stream, BaseStream), "rows come from base streams"
            if stream.time_column is None:
                by_arrival = stream.name
            elif (checkpoint, name) not in recorded:
                late = query.late(stream.name, "polars")
                count = None if query.ended else _rows_read(query, stream.name)
                recorded[checkpoint, name] = record(stream, checkpoint / "sources" / stream.name, late, count)
        mine = tuple(value for (path, _), value in recorded.items() if path == checkpoint)
        pleas.append(Plea(question, query, mine, by_arrival))
    return pleas


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
    return frame.select(*(pl.col(name).alias(id) for name, id in names.items()), start.alias(FROM), end.alias(UNTIL))
