"""Queries over tables that are added to a pipeline that runs, and dropped from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import strandline as sl
from strandline.core.errors import CatalogError
from strandline.database.database import Database
from strandline.database.query import Query

DAY, PAST = "2100-01-01 00:00:", "2024-01-01 00:00:"  # changes by the clock are between the two
NAMED = "SELECT s.k, v, name FROM s LEFT JOIN names ON s.k = names.k"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        declare(database)
        yield database


def declare(db: Database, kind: str = "") -> None:
    db.sql("CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    db.sql("CREATE STREAM t (k VARCHAR, w BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    db.sql(f"CREATE TABLE names (k VARCHAR PRIMARY KEY, name VARCHAR) {kind}")
    db.sql("INSERT INTO names VALUES ('a', 'Anna'), ('b', 'Bert')")


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def give(db: Database, *rows: tuple[str, int, int], to: str = "s", day: str = DAY) -> None:
    db.append(to, [(k, v, f"{day}{second:02d}") for k, v, second in rows])


def rename(db: Database, key: str, name: str, second: int) -> None:
    db.sql(f"UPDATE names SET name = '{name}' WHERE k = '{key}' AT TIMESTAMP '{DAY}{second:02d}'")


def elements(query: Query) -> list[str]:
    return sorted(map(str, query.results().to_pylist()))


def first_query(db: Database, day: str = DAY) -> Query:
    first = db.sql("SELECT k, v FROM s", name="first")
    give(db, ("a", 1, 1), ("b", 2, 5), day=day)
    wait_for(lambda: first.results().num_rows == 2)
    return first


def inputs(query: Query) -> list[str]:
    return [stream.name for stream in query.pipeline.streams]


@pytest.mark.parametrize("kind", ["", "NON RETROACTIVE", "CONSTANT"])
@pytest.mark.parametrize("start", ["NOW", "EARLIEST"])
def test_a_query_over_a_table_is_added_and_has_its_own_result(kind: str, start: str) -> None:
    text = NAMED.replace("s LEFT", "s WINDOW(RANGE 10 SECONDS) LEFT")
    with sl.connect(engine="local", shards=2) as db:
        declare(db, kind)
        first = first_query(db)
        rename(db, "a", "Ada", 3)
        added = db.sql(f"{text} STARTING {start}", name="added")
        assert added._pipeline is first._pipeline
        if kind != "CONSTANT":
            rename(db, "b", "Bea", 8)
        give(db, ("a", 3, 7), ("b", 4, 9))
        db.end("s")
        assert first.await_end(20) and added.await_end(20)
        result = elements(added)
    with sl.connect(engine="local") as other:
        declare(other, kind)
        rename(other, "a", "Ada", 3)
        alone = other.sql(text)
        if kind != "CONSTANT":
            wait_for(lambda: alone.metrics()["batches"])
            rename(other, "b", "Bea", 8)
        give(other, *([("a", 1, 1), ("b", 2, 5)] if start == "EARLIEST" else []), ("a", 3, 7), ("b", 4, 9))
        other.end("s")
        assert alone.await_end(20) and elements(alone) == result and len(result) >= 2


def test_what_was_changed_before_a_query_is_added_was_always_there_for_it(db: Database) -> None:
    first_query(db, PAST)
    one = db.sql(f"{NAMED} STARTING NOW", name="one")
    db.sql("UPDATE names SET name = 'Ada' WHERE k = 'a'")  # by the clock: long after the rows
    two = db.sql(f"{NAMED} STARTING NOW", name="two")
    give(db, ("a", 3, 7), day=PAST)
    db.end("s")
    assert one.await_end(20) and two.await_end(20)
    assert [query.results()["name"].to_pylist() for query in (one, two)] == [["Anna"], ["Ada"]]


def test_what_a_dropped_query_has_read_goes_with_it(db: Database) -> None:
    first = first_query(db)
    one = db.sql(f"{NAMED} STARTING NOW", name="one")
    two = db.sql(f"{NAMED} STARTING EARLIEST", name="two")
    assert inputs(first)[:2] == ["s", "names (since version 1)"]
    with pytest.raises(CatalogError, match="names"):
        db.sql("DROP TABLE names")
    one.stop()
    give(db, ("b", 3, 8))
    wait_for(lambda: "s (from the beginning, for two)" not in inputs(first))  # it was taken over
    assert inputs(first) == ["s", "names (since version 2)"]
    two.stop()
    assert inputs(first) == ["s"] and first.state == "running"
    db.sql("DROP TABLE names")
    give(db, ("b", 4, 9))
    db.end("s")
    assert first.await_end(20) and first.results().num_rows == 4
    assert [row["name"] for row in two.results().to_pylist()][:2] == ["Anna", "Bert"]


def test_a_query_ends_with_its_streams_while_others_go_on(db: Database) -> None:
    first = first_query(db)
    other = db.sql("SELECT t.k, w, name FROM t LEFT JOIN names ON t.k = names.k STARTING NOW", name="other")
    both = db.sql("SELECT s.k FROM s WINDOW(RANGE 1 SECOND), t WINDOW(RANGE 1 SECOND) WHERE s.k = t.k", name="both")
    added = db.sql(f"{NAMED} STARTING NOW", name="added")
    assert added._pipeline is first._pipeline is both._pipeline
    give(db, ("a", 3, 7))
    db.end("s")
    assert first.await_end(20) and added.await_end(20)
    assert added.results()["name"].to_pylist() == ["Anna"]
    give(db, ("a", 3, 7), to="t")
    db.end("t")
    assert both.await_end(20) and other.await_end(20)


def test_a_table_that_is_read_first_holds_nothing_up() -> None:
    with sl.connect(engine="local", batch_rows=2) as db:
        declare(db)
        first = first_query(db)
        db.insert("names", [(str(number), "") for number in range(2_000)])
        added = db.sql(f"{NAMED} STARTING NOW", name="added")
        for number in range(10):
            give(db, ("a", number, 10 + number))
        wait_for(lambda: first.results().num_rows == 12)
        reader = next(name for name in inputs(first) if name.startswith("names"))
        assert first._pipeline.metrics.statuses[reader].rows < 2_000 and not added.results().num_rows
        added.stop()
