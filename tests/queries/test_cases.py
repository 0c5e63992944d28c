"""The cases of this directory on every engine: streams, a query, `----`, and the elements of its answer.

A file begins with the streams that its cases share. Elements are joined where they touch and ordered by start; instants
of 2024-01-01 are written without the date, `…` is an end that never comes. Late and rejected rows follow the elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

import strandline as sl
from strandline.algebra.evaluate import show
from strandline.engine import Database
from strandline.query import Query
from strandline.temporal import instant, show_instant

HERE = Path(__file__).parent
DAY = "2024-01-01 "


@dataclass(frozen=True)
class Case:
    """One query over the streams of its file, and what is expected."""

    name: str
    streams: str
    query: str
    expected: str


def read_cases() -> Iterator[Case]:
    for path in sorted(HERE.glob("*.case")):
        streams, *parts = path.read_text().split("\n-- ")
        for part in parts:
            title, _, rest = part.partition("\n")
            query, _, expected = rest.partition("\n----")
            yield Case(f"{path.stem}: {title}", streams, query, expected.strip("\n"))


CASES = list(read_cases())
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def start(database: Database, case: Case) -> Query:
    database.sql(case.streams)
    query = database.sql(case.query, name=f"case{CASES.index(case)}")
    assert isinstance(query, Query)
    return query


def rendered(database: Database, query: Query) -> str:
    """Everything that a finished query has to say, in the form of the cases."""
    lines = []
    for row in query.results("arrow").to_pylist():
        begin, end = instant(row.pop("valid_from")), row.pop("valid_until")
        until = "…" if end is None else show_instant(instant(end))
        payload = " | ".join(map(show_value, row.values()))
        lines.append((begin, payload, f"{payload}   [{show_instant(begin)}, {until})".replace(f"[{DAY}", "[").replace(f", {DAY}", ", ")))
    found = [line for *_, line in sorted(lines)]
    for stream in sorted(s.name for s in database.catalog):
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
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return show(value)  # type: ignore[arg-type]  # what Arrow gives is what SQL has


@every_case
@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
@pytest.mark.parametrize("buckets", [1, 3])
def test_on_the_local_engine(case: Case, batch_rows: int, buckets: int) -> None:
    with sl.connect(engine="local", batch_rows=batch_rows, buckets=buckets) as database:
        query = start(database, case)
        assert query.await_end(60)
        assert rendered(database, query) == case.expected


# ---- on Spark --------------------------------------------------------------------------------------------------------

AT_ONCE = 8


@pytest.fixture(scope="module")
def spark_answers(spark_database: Database) -> dict[str, str]:
    """What Spark says to all cases: several run side by side, because most of a small batch is waiting."""
    answers: dict[str, str] = {}
    for first in range(0, len(CASES), AT_ONCE):
        running = []
        for case in CASES[first : first + AT_ONCE]:
            database = sl.connect(spark=spark_database.spark, buckets=2, batch_rows=4)
            running.append((case, database, start(database, case)))
        for case, database, query in running:
            assert query.await_end(180), f"{case.name} has not ended"
            answers[case.name] = rendered(database, query)
            database.close()
    return answers


@pytest.mark.spark
@every_case
def test_on_spark(case: Case, spark_answers: dict[str, str]) -> None:
    assert spark_answers[case.name] == case.expected
