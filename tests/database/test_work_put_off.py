"""Queries over a shared join that puts off work: watermarks of their own, metrics, and one that is dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import strandline as sl
from strandline.apps.bench.generated_streams import bind_over
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.statements import BoundQuery
from strandline.logical.catalog import BaseStream
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator

WINDOWS = {"small": 2, "large": 40}
ROWS = [(n % 3, n, f"2024-01-01 00:{n // 60:02d}:{n % 60:02d}") for n in range(120)]


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 5)
    with sl.connect(engine="local", batch_seconds=1e-6, batch_rows=30) as database:
        for stream in ("s", "t"):
            database.sql(f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        yield database


def start(db: Database) -> dict[str, Query]:
    """Queries with windows of their own, together."""
    streams = [stream for stream in db.catalog if isinstance(stream, BaseStream)]
    text = "SELECT p.v, q.v AS w FROM s WINDOW(RANGE {0} SECONDS) p JOIN t WINDOW(RANGE {0} SECONDS) q ON p.k = q.k"
    bound = [
        BoundQuery(name, bind_over(text.format(window), streams), frozenset(("s", "t")))
        for name, window in WINDOWS.items()
    ]
    return {query.name: query for query in db.start(bound, None)}


def expected(name: str) -> list[tuple[int, int]]:
    window = WINDOWS[name]
    return sorted((v, w) for k, v, _ in ROWS for m, w, _ in ROWS if k == m and abs(v - w) < window)


def pairs(query: Query) -> list[tuple[int, int]]:
    table = query.results()
    return sorted(zip(table["v"].to_pylist(), table["w"].to_pylist(), strict=True))


def feed(db: Database, query: Query) -> None:
    """Give all rows, and wait until some of the work is put off."""
    for stream in ("s", "t"):
        db.append(stream, ROWS)
    until = time.monotonic() + 30
    while not query.metrics()["work_left"]:
        assert time.monotonic() < until, "nothing waits"
        time.sleep(0.001)


def test_each_query_has_a_watermark_of_its_own(db: Database) -> None:
    queries = start(db)
    feed(db, queries["large"])
    for stream in ("s", "t"):
        db.end(stream)
    behind = 0
    while not queries["large"].ended:
        large, small = queries["large"].progress, queries["small"].progress  # in this order: both go on
        behind += large < small
        assert large <= small or queries["small"].ended  # then it is dropped between the two looks
    assert behind
    for name, query in queries.items():
        assert query.await_end(30)
        assert pairs(query) == expected(name)
        metrics = query.metrics()
        assert metrics["work_left"] == 0
        assert 0 < metrics["response_p50"] <= metrics["response_p99"] <= metrics["response_max"]


@pytest.mark.parametrize("dropped", ["small", "large"])
def test_a_query_is_dropped_while_work_waits(db: Database, dropped: str) -> None:
    queries = start(db)
    feed(db, queries["large"])
    queries.pop(dropped).stop()
    for stream in ("s", "t"):
        db.end(stream)
    ((name, query),) = queries.items()
    assert query.await_end(30)
    assert pairs(query) == expected(name)
    assert query.metrics()["work_left"] == 0
