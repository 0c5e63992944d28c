"""Notices of running queries: late and rejected rows, times that do not overlap, answers that stay empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline as sl
from strandline.core.temporal import DAY, HOUR, MINUTE, SECOND, instant
from strandline.database import running_notices
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.running_notices import round_up, show_length
from strandline.runtime.watermark import SourceStatus

FILTER = "SELECT x FROM s WINDOW(RANGE 1 SECOND) WHERE x > 100"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        database.shown = []  # type: ignore[attr-defined]
        database.catalog.notices.show = lambda notice: database.shown.append(str(notice))  # type: ignore[attr-defined]
        yield database


def shown(db: Database) -> list[str]:
    return db.shown  # type: ignore[attr-defined]


def declare(db: Database, name: str, seconds: list[int], *, clauses: str = "", batch: str = "") -> None:
    rows = ", ".join(
        f"({n}, '2024-01-01 {t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}')" for n, t in enumerate(seconds)
    )
    db.sql(f"CREATE STREAM {name} (x INT, ts TIMESTAMP) SOURCE rows({rows}{batch}) ORDERED BY ts {clauses}")


def run(db: Database, sql: str) -> Query:
    query: Query = db.sql(sql)
    assert query.await_end(30)
    return query


def codes(db: Database) -> list[str]:
    return [notice.code for notice in db.notices()]


# ---- late rows -------------------------------------------------------------------------------------------------------


def test_late_rows_are_said_once_with_the_within_that_keeps_them(db: Database) -> None:
    declare(db, "s", [0, 1000, 329, 1010, 900], clauses="WITHIN 5 MINUTES")
    query = run(db, "SELECT x FROM s")
    line = (
        'notice[late-rows]: 1 of 5 rows of "s" came later than WITHIN allows, the latest by 11 min 11 s; '
        "WITHIN 12 MINUTES would keep all"
    )
    assert shown(db) == [line]
    assert [str(notice) for notice in query.notices()] == [line]
    assert [str(notice) for notice in db.notices()] == [line]
    assert line in repr(query)
    query.stop()
    assert shown(db) == [line]


def test_the_remedy_keeps_all_rows(db: Database) -> None:
    declare(db, "s", [0, 1000, 329, 1010, 900], clauses="WITHIN 12 MINUTES")
    assert run(db, "SELECT x FROM s").results().num_rows == 5
    assert shown(db) == []


def test_without_within_rows_are_out_of_order(db: Database) -> None:
    declare(db, "s", [0, 10, 9])
    run(db, "SELECT x FROM s")
    assert shown(db) == [
        'notice[late-rows]: 1 of 3 rows of "s" came out of order, the latest by 1 s; WITHIN 1 SECOND would keep all'
    ]


@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_the_largest_lateness_is_the_same_in_any_batches(batch_rows: int, tmp_path: Path) -> None:
    moments = [0, 50, 20, 60, 5, 70, 69, 1]
    (tmp_path / "s.csv").write_text(
        "x,ts\n" + "".join(f"{n},2024-01-01 00:{t // 60:02d}:{t % 60:02d}\n" for n, t in enumerate(moments))
    )
    with sl.connect(engine="local", batch_rows=batch_rows) as db:
        db.catalog.notices.show = None
        db.sql(f"CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE file('{tmp_path}/s.csv') ORDERED BY ts WITHIN 10 SECONDS")
        query = run(db, "SELECT x FROM s")
        status = query.heartbeats()["s"]
        expected = [max(moments[:n]) - t for n, t in enumerate(moments) if n and max(moments[:n]) - t > 10]
        assert (status.late, status.lateness) == (len(expected), max(expected) * SECOND)


def test_the_lateness_is_part_of_the_record_of_a_batch() -> None:
    status = SourceStatus("s", late=2, lateness=50)
    assert SourceStatus.from_json(status.to_json()) == status
    older = {name: value for name, value in status.to_json().items() if name != "lateness"}
    assert SourceStatus.from_json(older).lateness == 0
    assert status.merge(SourceStatus("s", late=1, lateness=70)).lateness == 70


def test_rows_behind_a_promise_are_late_without_a_within_that_helps(db: Database) -> None:
    db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITHIN 1 HOUR")
    query = db.sql("SELECT x FROM s")
    db.append("s", [(1, "2024-01-01 00:00:00")])
    db.advance("s", "2024-01-01 01:00:00")
    db.append("s", [(2, "2024-01-01 00:30:00")])
    db.end("s")
    assert query.await_end(30)
    assert [n.code for n in query.notices()] == ["late-rows"]
    assert "WITHIN" not in shown(db)[0] and "IDLE AFTER" in shown(db)[0]


def test_a_query_that_runs_on_says_it_after_a_moment(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_notices, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(running_notices, "LOOK_SECONDS", 0.0)
    db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    query = db.sql("SELECT x FROM s")
    db.append("s", [(1, "2024-01-01 00:00:10"), (2, "2024-01-01 00:00:00")])
    deadline = time.monotonic() + 30
    while not shown(db):
        assert time.monotonic() < deadline
        query.show_notices()
        time.sleep(0.02)
    assert "1 of 2 rows" in shown(db)[0]
    assert query.is_running


# ---- rejected rows ---------------------------------------------------------------------------------------------------


def test_rejected_rows_are_counted_with_the_first_reason(db: Database, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("x,ts\n1,2024-01-01\nn/a,2024-01-02\nx,2024-01-03\n")
    db.sql(f"CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE file('{tmp_path}/s.csv') ORDERED BY ts")
    run(db, "SELECT x FROM s")
    assert shown(db) == [
        "notice[rejected-rows]: 2 of 3 rows of \"s\" were rejected, the first because of x: 'n/a' is not INT; "
        'query.rejected("s"), and _rejected/ beside results in files, has them'
    ]


# ---- times that do not overlap ---------------------------------------------------------------------------------------

JOIN = "SELECT a.x FROM a WINDOW(RANGE 10 SECONDS) {} JOIN b WINDOW(RANGE 10 SECONDS) ON a.x = b.x"


@pytest.mark.parametrize("kind", ["", "LEFT", "FULL", "SEMI", "ANTI"])
def test_joined_streams_without_a_common_time(db: Database, kind: str) -> None:
    declare(db, "a", [0, 5])
    declare(db, "b", [3600, 3610])
    run(db, JOIN.format(kind))
    assert "times-apart" in codes(db)
    assert any("a ends at 2024-01-01 00:00:05, before b begins at 2024-01-01 01:00:00" in line for line in shown(db))


def test_windows_that_reach_the_other_stream_need_no_notice(db: Database) -> None:
    declare(db, "a", [0, 5])
    declare(db, "b", [12, 20])
    run(db, JOIN.format("LEFT"))
    assert codes(db) == []


def test_a_union_of_streams_of_other_times_needs_no_notice(db: Database) -> None:
    declare(db, "a", [0, 5])
    declare(db, "b", [3600, 3610])
    run(db, "SELECT x FROM a UNION ALL SELECT x FROM b")
    assert codes(db) == []


def test_rows_that_stay_may_be_met_later(db: Database) -> None:
    declare(db, "a", [0, 5])
    declare(db, "b", [3600, 3610])
    run(db, "SELECT a.x FROM a WINDOW(ROWS 5) JOIN b WINDOW(RANGE 10 SECONDS) ON a.x = b.x")
    run(db, "SELECT a.x FROM a WINDOW(RANGE UNBOUNDED) JOIN b WINDOW(RANGE 10 SECONDS) ON a.x = b.x")
    assert codes(db) == []


# ---- answers without a row -------------------------------------------------------------------------------------------


def test_an_ended_query_without_a_row_says_why(db: Database) -> None:
    declare(db, "s", [0, 5])
    run(db, FILTER)
    assert shown(db) == [
        'notice[no-rows]: q1 ended without a row: the filter "s.x > 100" lets nothing through; '
        "query.why() shows where the rows stay"
    ]


def test_a_running_query_without_a_row_says_why_once_it_is_certain(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_notices, "EMPTY_SECONDS", 0.0)
    db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITHIN 1 HOUR")
    waiting, empty = (
        db.sql("SELECT count(*) AS n FROM s WINDOW(RANGE 1 SECOND) WHERE x < 100 GROUP BY x"),
        db.sql(FILTER),
    )
    db.append("s", [(1, "2024-01-01 00:00:00")])
    deadline = time.monotonic() + 30
    while not empty.notices() or not waiting.heartbeats()["s"].rows:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [notice.code for notice in empty.notices()] == ["no-rows"]
    assert 'the filter "s.x > 100" lets nothing through' in empty.notices()[0].text
    assert "the watermark is held at 2023-12-31 23:00:00 by s" in waiting.notices()[0].text


def test_a_query_with_rows_has_no_notice(db: Database) -> None:
    declare(db, "s", [0, 5])
    run(db, "SELECT x FROM s")
    assert shown(db) == [] and db.notices() == []


# ---- lengths of time -------------------------------------------------------------------------------------------------


def test_lengths_are_said_as_people_say_them() -> None:
    assert show_length(11 * MINUTE + 11 * SECOND) == "11 min 11 s"
    assert show_length(1) == "1 us"
    assert show_length(1_500) == "1 ms 500 us"
    assert show_length(2 * DAY) == "2 d"
    assert show_length(DAY + 3 * SECOND) == "1 d"


@pytest.mark.parametrize(
    ("length", "rounded"),
    [
        (1, 1),
        (1_999, 1_999),
        (2_001, 3_000),
        (90 * SECOND, 90 * SECOND),
        (11 * MINUTE + 11 * SECOND, 12 * MINUTE),
        (5 * HOUR + 1, 6 * HOUR),
        (3 * DAY, 3 * DAY),
    ],
)
def test_the_within_is_long_enough_and_reads_well(length: int, rounded: int) -> None:
    assert round_up(length) == rounded >= length
    assert instant("1970-01-01") == 0
