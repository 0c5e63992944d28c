"""`query.follow()`: the changes of a result for a loop, each once, in order, with bounded memory."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from open_results import CUT, QUERIES, STREAMS, advance, rows

import strandline as sl
from strandline.core.temporal import BEFORE_ALL
from strandline.database.database import Database
from strandline.database.follow import Change
from strandline.database.query import Query
from strandline.runtime import result_inbox
from strandline.runtime.result_buffer import ResultChunks
from strandline.runtime.result_inbox import ResultInbox

ALL = QUERIES | CUT


def feed(db: Database, number: int) -> None:
    db.append("s", rows(number, (number % 3, number % 5), (number % 2, number)))
    if number % 4 == 1:
        db.append("o", rows(number, (number % 3, 0)))


def expected(query: Query) -> Counter[tuple[object, ...]]:
    return Counter({tuple(row.values()): 1 for row in query.changes().to_pylist()})


def seen(changes: list[Change]) -> Counter[tuple[object, ...]]:
    return Counter((*change.row.values(), change.time, change.change) for change in changes)


@pytest.fixture(params=[0, result_inbox.ROWS_IN_MEMORY], ids=["through a file", "in memory"])
def inbox_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResultInbox.__init__, "__defaults__", (request.param,))


@pytest.mark.usefixtures("inbox_rows")
@pytest.mark.parametrize("name", ALL)
def test_a_loop_gets_every_change_once_and_in_order(name: str) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(ALL[name], name="q")
        feed(db, 0)
        advance(db, query, 0.9)
        early = query.follow()  # one that reads as they come, and one that reads at the end
        late = query.follow()
        read: list[Change] = []
        reader = threading.Thread(target=lambda: read.extend(early))
        reader.start()
        for number in range(1, 12):
            feed(db, number)
            advance(db, query, number + 0.9)
        for stream in ("s", "o"):
            db.end(stream)
        assert query.await_end(30)
        reader.join(30)
        for changes in (read, list(late)):
            assert seen(changes) == expected(query)
            assert [c.time for c in changes] == sorted(c.time for c in changes)
        assert [c.change > 0 for c in read][:1] == [True]


def test_async_loops_get_the_same() -> None:
    async def collect(query: Query) -> list[Change]:
        return [change async for change in query.follow_async()]

    async def both(query: Query) -> tuple[list[Change], list[Change]]:
        first, second, _ = await asyncio.gather(collect(query), collect(query), asyncio.to_thread(end, query))
        return first, second

    def end(query: Query) -> None:
        for number in range(5):
            feed(db, number)
            time.sleep(0.02)
        for stream in ("s", "o"):
            db.end(stream)

    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q")
        first, second = asyncio.run(both(query))
        assert seen(first) == seen(second) == expected(query)


def test_a_loop_that_is_left_lets_go_and_the_query_goes_on() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q")
        feed(db, 0)
        advance(db, query, 0.9)
        for change in query.follow():
            assert change == Change(1, change.row, datetime(2024, 1, 1, tzinfo=UTC))
            break
        gc.collect()
        assert query._running.results._inboxes == {"q": []}
        follower = query.follow()
        gone = weakref.ref(follower._inbox)
        follower.close()
        assert next(follower, None) is None
        del follower
        gc.collect()
        assert gone() is None and query.is_running


def test_a_loop_ends_with_a_stop_and_raises_what_made_a_query_fail() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q")
        threading.Timer(0.3, query.stop).start()
        assert list(query.follow()) == []
        db.function("broken", lambda values: 1 / 0, arguments=["BIGINT"], returns="BIGINT")
        failing = db.sql("SELECT broken(k) AS b FROM s", name="failing")
        feed(db, 0)
        db.end("s")
        with pytest.raises(sl.StrandlineError, match="division by zero"):
            list(failing.follow())


def test_ctrl_c_leaves_the_loop_and_the_query_goes_on() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        follower = query.follow()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            next(follower)
        assert time.monotonic() - began < 5 and query.is_running
        feed(db, 0)
        for stream in ("s", "o"):
            db.end(stream)
        assert seen(list(follower)) == expected(query)


def test_a_result_that_is_elsewhere_cannot_be_followed(tmp_path: os.PathLike[str]) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q", sink=sl.Parquet(tmp_path))
        with pytest.raises(sl.StrandlineError, match="cannot be followed here"):
            query.follow()


def test_what_is_not_taken_waits_in_a_file_and_in_order() -> None:
    empty = ResultChunks([], [], BEFORE_ALL, 0, BEFORE_ALL, False)
    inbox = ResultInbox(empty, rows_in_memory=10)
    for number in range(20):
        inbox.put([pa.table({"n": [number] * 4})], number, number + 1)
    assert sum(entry.rows for entry in inbox._entries if entry.place is None) <= 10
    assert inbox._file is not None and inbox._file.name  # the rest is there
    taken: list[int] = []
    while (chunks := inbox.take(0)) is not None:
        taken += [n for table in chunks.tables for n in table.column("n").to_pylist()]
        watermark = chunks.watermark
    assert taken == [n for n in range(20) for _ in range(4)] and watermark == 20
    inbox.put([], 20, 25)
    inbox.put([], 25, 30)
    assert len(inbox._entries) == 1  # watermarks alone do not add up
    inbox.close()
