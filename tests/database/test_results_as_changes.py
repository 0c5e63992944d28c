"""Results as changes: an element is announced once and ended once, and what merely stays open costs nothing."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from open_results import CUT, KEYS, QUERIES, START, STREAMS, advance, rows

import strandline as sl
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.runtime.result import VALID_FROM, VALID_UNTIL


@pytest.mark.parametrize("name", QUERIES)
def test_an_element_is_announced_once_and_ended_once(name: str) -> None:
    sent: list[pa.Table] = []
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES[name], name="q", sink=sl.Callback(lambda _, table: sent.append(table)))
        db.append("s", rows(0, *((k, 1) for k in range(KEYS))))
        advance(db, query, 1)
        assert sum(table.num_rows for table in sent) == KEYS, "every key is announced"
        assert all(end is None for table in sent for end in table[VALID_UNTIL].to_pylist())
        sent.clear()
        for number in range(10):
            advance(db, query, 2 + number)
        assert sent == [], "where nothing changes, nothing is sent"
        changes = 5
        for number in range(changes):
            db.append("o" if name == "anti join" else "s", rows(20 + 5 * number, (number, 7)))
            advance(db, query, 22 + 5 * number)
        assert sum(table.num_rows for table in sent) == 2 * changes, "the end of the old element, and the new one"
        ended = [row for table in sent for row in table.to_pylist() if row[VALID_UNTIL] is not None]
        assert [row[VALID_FROM].replace(tzinfo=None) for row in ended] == [START] * changes


@pytest.mark.parametrize("name", CUT)
def test_where_operators_cut_elements_what_goes_on_is_not_sent_again(name: str) -> None:
    sent: list[pa.Table] = []
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(CUT[name], name="q", sink=sl.Callback(lambda _, table: sent.append(table)))
        db.append("s", rows(0, *((k, k) for k in range(KEYS))))
        advance(db, query, 1)
        announced = sum(table.num_rows for table in sent)
        assert announced == {"top-k": 5, "largest count": 1}.get(name, KEYS)
        sent.clear()
        for number in range(10):
            advance(db, query, 2 + number)
        assert sent == [], "where nothing changes, nothing is sent"
        db.append("s", rows(20, (KEYS - 1, KEYS)))
        advance(db, query, 30)
        assert 1 <= sum(table.num_rows for table in sent) <= 4


@pytest.mark.parametrize("name", QUERIES)
def test_a_result_in_memory_is_complete_up_to_the_watermark(name: str) -> None:
    """The same as the result of a sink that gets whole intervals, at every step and at the end."""
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES[name], name="q")
        for number in range(12):
            db.append("s", rows(number, (number % 3, number), (number % 2, number)))
            if number % 4 == 1:
                db.append("o", rows(number, (number % 3, 0)))
            advance(db, query, number + 0.9)
            at = START + timedelta(seconds=number, milliseconds=500)
            elements = query.results().to_pylist()
            until = START + timedelta(seconds=number + 0.9)
            assert all(row[VALID_UNTIL] is None or row[VALID_FROM] < row[VALID_UNTIL] for row in elements)
            valid = [row for row in elements if _is_valid(row, at)]
            assert Counter(map(_payload, valid)) == Counter(map(_payload, query.snapshot(at).to_pylist()))
            opened = [row for row in valid if row[VALID_UNTIL] is not None]
            assert name == "range" or all(row[VALID_UNTIL].replace(tzinfo=None) >= until for row in opened)
            net: Counter[str] = Counter()
            for change in query.changes().to_pylist():
                if change["time"].replace(tzinfo=None) <= at:
                    net[_payload(change)] += change["change"]
            assert +net == Counter(map(_payload, valid)), "the changes up to an instant add up to the snapshot"
        for stream in ("s", "o"):
            db.end(stream)
        assert query.await_end(30)
        whole = Counter(map(str, query.results().to_pylist()))
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        for number in range(12):
            db.append("s", rows(number, (number % 3, number), (number % 2, number)))
            if number % 4 == 1:
                db.append("o", rows(number, (number % 3, 0)))
        for stream in ("s", "o"):
            db.end(stream)
        query = db.sql(QUERIES[name], name="q")
        assert query.await_end(30)
        assert Counter(map(str, query.results().to_pylist())) == whole


def _is_valid(row: dict[str, object], at: datetime) -> bool:
    start, end = row[VALID_FROM], row[VALID_UNTIL]
    assert isinstance(start, datetime) and (end is None or isinstance(end, datetime))
    return start.replace(tzinfo=None) <= at and (end is None or at < end.replace(tzinfo=None))


def _payload(row: dict[str, object]) -> str:
    return str([value for name, value in row.items() if name not in (VALID_FROM, VALID_UNTIL, "time", "change")])


@pytest.mark.spark
@pytest.mark.parametrize("name", ["unbounded", "extreme", "last row", "anti join"])
def test_after_a_restart_what_is_open_is_announced_again(name: str, spark_database: Database, tmp_path: Path) -> None:
    """Memory has lost what was open: it is whole again from the first batch on."""

    def start() -> tuple[Database, Query]:
        db = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "checkpoint")
        db.sql(STREAMS)
        return db, db.sql(QUERIES[name], name="q")

    db, query = start()
    with db:
        db.append("s", rows(0, (1, 1), (2, 1), (3, 1)))
        db.append("s", rows(2, (1, 5)))
        advance(db, query, 3)
        before = query.snapshot(form="polars").sort("k")
    db, query = start()
    with db:
        advance(db, query, 4)
        assert query.snapshot(START + timedelta(seconds=3.5), "polars").sort("k").equals(before)
        db.append("o" if name == "anti join" else "s", rows(5, (3, 8)))
        advance(db, query, 5.5)
        changed = query.snapshot(START + timedelta(seconds=5.2), "polars")
        others = before.filter(before["k"] != 3).sort("k", changed.columns[1])
        assert changed.filter(changed["k"] != 3).sort("k", changed.columns[1]).equals(others)
        assert not changed.filter(changed["k"] == 3).equals(before.filter(before["k"] == 3))
