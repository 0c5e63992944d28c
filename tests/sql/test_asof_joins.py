"""ASOF JOIN: what it becomes, and what it refuses."""

from __future__ import annotations

import pytest

import strandline as sl

STREAMS = """
    CREATE STREAM a (k INT, v INT, ts BIGINT) SOURCE rows((1, 5, 0), (1, 6, 2), (2, 7, 4)) ORDERED BY ts;
    CREATE STREAM b (k INT, v INT, ts BIGINT) SOURCE rows((1, 50, 0), (1, 60, 1), (2, 70, 4)) ORDERED BY ts;
    CREATE TABLE t (k INT, p INT, PRIMARY KEY (k));
    INSERT INTO t VALUES (1, 100) AT TIMESTAMP '1970-01-01 00:00:00';
    UPDATE t SET p = 200 WHERE k = 1 AT TIMESTAMP '1970-01-01 00:00:00.000001';
"""


def test_the_left_side_is_kept_with_what_it_met() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        q = db.sql("SELECT a.v, b.v AS w FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts > b.ts")
        q.await_end()
        rows = [(row["v"], row["w"]) for row in q.results().to_pylist()]
    assert rows == [(5, None), (6, 60), (7, None)]


def test_a_table_is_read_as_of_the_time_of_the_row() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        found = []
        for text in (
            "SELECT a.v, t.p FROM a ASOF LEFT JOIN t ON a.k = t.k AND a.ts >= t.valid_from",
            "SELECT a.v, t.p FROM a LEFT JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k",
        ):
            q = db.sql(text)
            q.await_end()
            found.append([(row["v"], row["p"]) for row in q.results().to_pylist()])
    assert found[0] == found[1] == [(5, 100), (6, 200), (7, None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a ASOF JOIN b ON a.k = b.k", "ASOF JOIN needs one comparison of times, found none"),
        ("a ASOF JOIN b ON a.ts >= b.ts AND a.ts >= b.ts", "ASOF JOIN needs one comparison of times, found 2"),
        ("a ASOF JOIN b ON a.ts <= b.ts", "not the next one after it"),
        ("a ASOF JOIN b ON a.v >= b.v", "other columns than the time columns"),
        ("a ASOF JOIN b ON a.ts >= b.ts AND a.v <> b.v", "takes equalities and one comparison of times"),
        (
            "a ASOF JOIN b WINDOW(ROWS 2) ON a.ts >= b.ts",
            "the right side of ASOF JOIN must be a stream without a window",
        ),
        ("a WINDOW(ROWS 2) ASOF JOIN b ON a.ts >= b.ts", "the left side of ASOF JOIN must be a stream"),
        ("a ASOF JOIN t ON a.k = t.k AND a.v >= t.p", 'ASOF JOIN with table "t" goes by the times of its changes'),
        ("a ASOF FULL JOIN b ON a.ts >= b.ts", "ASOF FULL JOIN is not supported"),
    ],
)
def test_refusals_say_what_to_write(text: str, message: str) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        with pytest.raises(sl.StrandlineError) as caught:
            db.sql(f"SELECT 1 AS one FROM {text}")
    assert caught.value.code in ("asof-join", "not-supported")
    assert message in str(caught.value)
    assert caught.value.hint


def test_asof_is_a_name_elsewhere() -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        q = db.sql("SELECT asof.v AS asof FROM a asof")
        q.await_end()
        assert q.results().num_rows == 3
