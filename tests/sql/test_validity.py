"""valid_from and valid_until in expressions: what the result says of itself."""

from __future__ import annotations

from datetime import UTC

import pytest

import strandline as sl
from strandline.core.errors import BindError

STREAMS = """
CREATE STREAM t (x INT, ts TIMESTAMP) SOURCE rows((1, '1969-12-31 23:59:58'), (2, '1970-01-01 00:00:00'),
  (3, '1970-01-01 00:00:07')) ORDERED BY ts;
CREATE STREAM d (x INT, ts DATE) SOURCE rows((1, '1969-12-31'), (2, '1970-01-02')) ORDERED BY ts;
CREATE STREAM b (x INT, ts BIGINT) SOURCE rows((1, -3), (2, 0), (3, 1999999), (4, 2000000)) ORDERED BY ts;
CREATE STREAM i (x INT, a BIGINT, z BIGINT) SOURCE rows((1, -3, 4), (2, 0, NULL), (3, 1999999, 5999999))
  VALID FROM a UNTIL z;
"""
WINDOWS = (
    "",
    "WINDOW(NOW)",
    "[RANGE 3 SECONDS]",
    "[RANGE 5 SECONDS SLIDE 2 SECONDS]",
    "[RANGE 2 SECONDS SLIDE 7 SECONDS]",
    "[RANGE 9 SECONDS] GRANULARITY(4 SECONDS)",
    "[RANGE 5 SECONDS SLIDE 2 SECONDS] GRANULARITY(3 SECONDS)",
)


@pytest.mark.parametrize("stream", ["t", "d", "b"])
@pytest.mark.parametrize("window", WINDOWS)
def test_they_are_those_of_the_result(stream: str, window: str) -> None:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        query = database.sql(f"SELECT x, valid_from AS f, {stream}.valid_until AS u FROM {stream} {window}")
        query.await_end()
        rows = query.results("arrow").to_pylist()
        assert rows or "SLIDE 7" in window or "GRANULARITY" in window
        for row in rows:
            assert row["f"].replace(tzinfo=UTC) == row["valid_from"]
            assert row["u"].replace(tzinfo=UTC) == row["valid_until"]


def test_rows_that_bring_their_intervals_have_them() -> None:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        query = database.sql("SELECT valid_from AS f, valid_until AS u FROM i")
        query.await_end()
        rows = query.results("arrow").to_pylist()
        assert len(rows) == 3
        for row in rows:
            assert row["f"].replace(tzinfo=UTC) == row["valid_from"]
            assert (row["u"] and row["u"].replace(tzinfo=UTC)) == row["valid_until"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT valid_until AS u FROM t [ROWS 2]",
        "SELECT valid_until AS u FROM t [SESSION 2 SECONDS]",
        "SELECT valid_from AS f FROM t, b",
        "SELECT valid_from AS f FROM (SELECT x FROM t) q",
        "SELECT valid_until AS u FROM t [RANGE UNBOUNDED]",
    ],
)
def test_where_they_are_not_known(text: str) -> None:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        with pytest.raises(BindError) as caught:
            database.sql(text)
        assert caught.value.code == "validity"
        assert caught.value.span is not None


def test_a_column_of_that_name_comes_first() -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM v (valid_from INT, ts BIGINT) SOURCE rows((7, 0)) ORDERED BY ts")
        query = database.sql("SELECT valid_from AS f FROM v")
        query.await_end()
        assert query.results("arrow").to_pylist()[0]["f"] == 7
