"""The cases of this directory on every engine: streams, a query, `----`, and the elements of its answer.

A file begins with the streams that its cases share. Elements are joined where they touch and ordered by start; instants
of 2024-01-01 are written without the date, `…` is an end that never comes. Late and rejected rows follow the elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.core.temporal import instant, show_instant
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.statements import BoundQuery
from strandline.logical.tree import streams_read
from strandline.logical.values import show
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import LONG

HERE = Path(__file__).parent
DAY = "2024-01-01 "


@dataclass(frozen=True)
class Case:
    """One query over the streams of its file, and what is expected."""

    file: str
    title: str
    streams: str
    query: str
    expected: str


def read_cases() -> Iterator[Case]:
    for path in sorted(HERE.glob("*.case")):
        streams, *parts = path.read_text().split("\n-- ")
        for part in parts:
            title, _, rest = part.partition("\n")
            query, _, expected = rest.partition("\n----")
            yield Case(path.stem, title, streams, query, expected.strip("\n"))


CASES = list(read_cases())
FILES = sorted({case.file for case in CASES})
every_case = pytest.mark.parametrize("case", CASES, ids=[f"{case.file}: {case.title}" for case in CASES])


Started = tuple[Query, frozenset[str]]  # with the streams that it reads


def start(database: Database, cases: list[Case]) -> list[Started]:
    """Start cases of one file together, in one pipeline."""
    database.sql(cases[0].streams)
    queries: list[BoundQuery] = []
    for case in cases:
        statement = parse_one(case.query)
        assert isinstance(statement, ast.Query)
        plan = bind_query(statement, database.catalog)
        queries.append(BoundQuery(f"{case.file}_{CASES.index(case)}", plan, sink=sl.Memory()))
    streams = [streams_read(query.plan) for query in queries]
    return list(zip(database.start(queries, None), streams, strict=True))


def check(started: Started, case: Case) -> None:
    query, streams = started
    assert query.await_end(180), "the query has not ended"
    assert rendered(query, streams) == case.expected


def rendered(query: Query, streams: frozenset[str]) -> str:
    """Everything that a finished query has to say, in the form of the cases."""
    lines = []
    for row in query.results("arrow").to_pylist():
        begin, end = instant(row.pop("valid_from")), row.pop("valid_until")
        interval = f"[{show_instant(begin)}, {'…' if end is None else show_instant(instant(end))})"
        payload = " | ".join(map(show_value, row.values()))
        lines.append((begin, payload, f"{payload}   {interval.replace(DAY, '')}"))
    found = [line for *_, line in sorted(lines)]
    for stream in sorted(streams):
        for row in query.late(stream).to_pylist():
            found.append(f"late {stream}: {' | '.join(map(show_value, row.values()))}")
        for row in query.rejected(stream).to_pylist():
            found.append(f"rejected {stream}: row {row['row']}, {row['reason']}")
    return "\n".join(found)


def show_value(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(show_value, value))}]"
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return show(value)  # type: ignore[arg-type]  # what Arrow gives is what SQL has


CUTS = [(1, 1), (2, 3), (1000, 2)]  # rows of a batch and shards


def cases_and_cuts() -> Iterator[Any]:
    """Every case, cut in one way by default, and in all ways where there is time."""
    for number, case in enumerate(CASES):
        for batch_rows, shards in CUTS if LONG else [CUTS[number % len(CUTS)]]:
            yield pytest.param(case, batch_rows, shards, id=f"{case.file}: {case.title}-{batch_rows}-{shards}")


@pytest.mark.parametrize(("case", "batch_rows", "shards"), [*cases_and_cuts()])
def test_on_the_local_engine(case: Case, batch_rows: int, shards: int) -> None:
    with sl.connect(engine="local", batch_rows=batch_rows, shards=shards) as database:
        (started,) = start(database, [case])
        check(started, case)


@pytest.mark.parametrize("file", FILES)
def test_together_on_the_local_engine(file: str) -> None:
    """Queries that share streams run in one pipeline and do not notice."""
    cases = [case for case in CASES if case.file == file]
    with sl.connect(engine="local", batch_rows=2, shards=2) as database:
        for started, case in zip(start(database, cases), cases, strict=True):
            check(started, case)


@every_case
def test_changes_add_up_to_snapshots(case: Case) -> None:
    """What came and went up to an instant is what is there: the two views of an answer agree."""
    with sl.connect(engine="local", batch_rows=2) as database:
        ((query, _),) = start(database, [case])
        assert query.await_end(60)
        changes = query.changes("arrow").to_pylist()
        there: Counter[str] = Counter()
        for at in sorted({change["time"] for change in changes}):
            for change in changes:
                if change["time"] == at:
                    payload = [value for name, value in change.items() if name not in ("time", "change")]
                    there[repr(payload)] += change["change"]
            valid = (repr(list(row.values())) for row in query.snapshot(at, "arrow").to_pylist())
            assert Counter(valid) == +there, f"at {at}"
            assert min(there.values()) >= 0


@pytest.fixture(scope="module")
def on_spark(spark_database: Database) -> Iterator[dict[Case, Started]]:
    """All cases on Spark, those of a file in one pipeline: most of a small batch is waiting, let them wait together."""
    databases = [sl.connect(spark=spark_database.spark, shards=2, batch_rows=4) for _ in FILES]
    running: dict[Case, Started] = {}
    for database, file in zip(databases, FILES, strict=True):
        cases = [case for case in CASES if case.file == file]
        running |= dict(zip(cases, start(database, cases), strict=True))
    yield running
    for database in databases:
        database.close()


@pytest.mark.spark
@every_case
def test_on_spark(case: Case, on_spark: dict[Case, Started]) -> None:
    check(on_spark[case], case)
