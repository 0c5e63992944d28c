"""Queries that put off work, of a shared join or of fragments: watermarks of their own, metrics, and a drop."""

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
from strandline.runtime import fragment_turns
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.scheduling.strategies import StrategyName

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


# ---- fragments -------------------------------------------------------------------------------------------------------

COUNTED = "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 5 SECONDS) GROUP BY k"


@pytest.mark.parametrize("strategy", ["fifo", "round-robin", "chain"])
def test_fragments_put_off_input(strategy: StrategyName, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are those of a run that puts off nothing; each query has a watermark of its own meanwhile."""
    monkeypatch.setattr(fragment_turns, "PART_ROWS", 5)
    text = "SELECT p.v, q.v AS w FROM s WINDOW(RANGE 9 SECONDS) p JOIN t WINDOW(RANGE 9 SECONDS) q ON p.k = q.k"
    waited = 0
    with sl.connect(engine="local", batch_seconds=1e-6, batch_rows=30, strategy=strategy) as database:
        for stream in ("s", "t"):
            database.sql(f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        streams = [stream for stream in database.catalog if isinstance(stream, BaseStream)]
        bound = [
            BoundQuery(name, bind_over(query, streams), frozenset(read))
            for name, query, read in (("joined", text, "st"), ("counted", COUNTED, "s"))
        ]
        queries = {query.name: query for query in database.start(bound, None)}
        for stream in ("s", "t"):
            database.append(stream, ROWS)
            database.end(stream)
        while not all(query.ended for query in queries.values()):
            waited += any(query.metrics()["work_left"] > 0 for query in queries.values())
            time.sleep(0.0005)
        assert waited
        joined, counted = queries["joined"], queries["counted"]
        assert joined.await_end(30) and counted.await_end(30)
        assert pairs(joined) == sorted((v, w) for k, v, _ in ROWS for m, w, _ in ROWS if k == m and abs(v - w) < 9)
        metrics = joined.metrics()
        assert metrics["work_left"] == 0
        assert 0 < metrics["response_p50"] <= metrics["response_p99"] <= metrics["response_max"]
        starts = counted.results()["valid_from"].to_pylist()
        assert len(starts) >= len(ROWS), "each row begins an interval"


def test_a_strategy_needs_a_length_of_batches() -> None:
    with pytest.raises(sl.StrandlineError, match="strategy"):
        sl.connect(engine="local", strategy="chain")


def test_an_unknown_strategy() -> None:
    with pytest.raises(sl.StrandlineError, match="strategy"):
        sl.connect(engine="local", batch_seconds=1, strategy="lifo")  # type: ignore[arg-type]
