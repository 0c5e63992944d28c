"""Aggregates of the user's: initialize, merge, evaluate and perhaps an inverse, in queries of both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.core.errors import CheckpointError, QueryError, StrandlineError
from strandline.database.database import Database

NUMBER = pa.int64()


def squares(x: pa.Array) -> tuple[pa.Array, pa.Array]:
    return pc.multiply(x, x), pa.array(np.ones(len(x)), NUMBER)  # a global of this module, which workers cannot import


def added(one: Any, two: Any) -> Any:
    return tuple(map(pc.add, one, two))


def subtracted(one: Any, two: Any) -> Any:
    return tuple(map(pc.subtract, one, two))


def root(state: Any) -> pa.Array:
    return pc.sqrt(pc.divide(state[0], state[1]))


def joined(one: pa.Array, two: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(one, two, pa.scalar(">", one.type))


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local", batch_rows=2, shards=2) as database:
        declare(database)
        yield database


def declare(database: Database) -> None:
    database.sql("""
        CREATE STREAM s (k VARCHAR, n INT, x DOUBLE, ts BIGINT)
          SOURCE rows(('a', 1, 3.0, 0), ('b', NULL, NULL, 1), ('a', 3, 4.0, 2), ('b', 2, 1.0, 3), ('a', 3, 4.0, 4))
          ORDERED BY ts""")


def with_rms(database: Database, inverse: bool = True) -> Database:
    database.aggregate(
        "rms",
        arguments=["DOUBLE"],
        returns="DOUBLE",
        initialize=squares,
        merge=added,
        evaluate=root,
        inverse=subtracted if inverse else None,
    )
    return database


def with_path(database: Database) -> Database:
    database.aggregate(
        "path", arguments=["TEXT"], returns="TEXT", initialize=lambda x: x, merge=joined, evaluate=lambda x: x
    )
    return database


def answer(database: Database, query: str) -> list[tuple[object, ...]]:
    running = database.sql(query)
    running.await_end()
    return [tuple(row.values())[:-2] for row in running.results().to_pylist()]


def with_broken(database: Database, part: str, body: Callable[..., Any]) -> Database:
    """An aggregate `f` of a tuple of two, one of whose functions is another one."""
    usual = {"initialize": squares, "merge": added, "evaluate": root, "inverse": subtracted}
    bodies: dict[str, Any] = {**usual, part: body}
    database.aggregate("f", arguments=["DOUBLE"], returns="DOUBLE", **bodies)
    return database


# ---- in queries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [True, False])
def test_an_aggregate_of_groups_that_come_and_go(db: Database, inverse: bool) -> None:
    with_rms(db, inverse)
    query = db.sql("SELECT k, RMS(x) AS r FROM s [RANGE 3 MICROSECONDS] GROUP BY k")
    query.await_end()
    found = {t: {row["k"]: row["r"] for row in query.snapshot(t).to_pylist()} for t in range(8)}
    # a: 3 in [0, 3), 4 in [2, 5) and again in [4, 7); b: NULL in [1, 4), 1 in [3, 6).
    assert found == {
        0: {"a": 3.0},
        1: {"a": 3.0, "b": None},
        2: {"a": 12.5**0.5, "b": None},
        3: {"a": 4.0, "b": 1.0},
        4: {"a": 4.0, "b": 1.0},
        5: {"a": 4.0, "b": 1.0},
        6: {"a": 4.0},
        7: {},
    }


@pytest.mark.parametrize("inverse", [True, False])
def test_in_expressions_with_filter_distinct_and_order(db: Database, inverse: bool) -> None:
    with_path(with_rms(db, inverse))
    rows = answer(
        db,
        """SELECT rms(n) * 2 AS twice, rms(x) FILTER (WHERE k = 'b') AS b, RMS(DISTINCT x) AS d, path(k) AS p,
                  path(k ORDER BY n DESC NULLS LAST) AS o, path(DISTINCT k) AS u, path(NULL) AS nothing
           FROM s [RANGE 100 MICROSECONDS] HAVING rms(n) > 2.3""",
    )
    assert rows[0] == (2 * (23 / 4) ** 0.5, 1.0, (26 / 3) ** 0.5, "a>a>a>b>b", "a>a>b>a>b", "a>b", None)
    assert rows[-1] == (6.0, None, 4.0, "a", "a", "a", None)


def test_a_stream_made_of_an_aggregate_can_be_read(db: Database) -> None:
    with_rms(db).sql("CREATE VIEW v AS SELECT k, rms(x) AS r FROM s [RANGE 1 MICROSECOND] GROUP BY k")
    assert answer(db, "SELECT r FROM v WHERE r > 3") == [(4.0,), (4.0,)]


def test_explain_tells_the_type_and_the_inverse_and_what_is_kept(db: Database) -> None:
    with_path(with_rms(db))
    told = db.sql("EXPLAIN SELECT rms(x) AS r FROM s [RANGE UNBOUNDED]")
    assert "rms_x := rms(s.x): DOUBLE with inverse" in told and "grows without bound" not in told
    told = db.sql("EXPLAIN SELECT path(k) AS p FROM s [RANGE UNBOUNDED]")
    assert "path_k := path(s.k): VARCHAR\n" in told and "keeps every row" in told


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def fails(*_: Any) -> Any:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("part", "body", "what"),
    [
        ("initialize", fails, "failed: ValueError: no such thing"),
        ("merge", fails, "failed: ValueError: no such thing"),
        ("evaluate", fails, "failed: ValueError: no such thing"),
        ("inverse", fails, "failed: ValueError: no such thing"),
        ("initialize", lambda x: (x[:1], x), "returned 1 values for 4 rows"),
        ("initialize", lambda x: (), "returned an empty tuple"),
        ("initialize", lambda x: (x, x.cast(pa.float16())), "returned halffloat, which cannot be stored"),
        ("merge", lambda a, b: a[0], "returned a DoubleArray and not a tuple"),
        ("merge", lambda a, b: a[:1], "returned 1 arrays where a state has 2"),
        ("inverse", lambda a, b: (a[1], a[0]), "returned int64 and not double"),
        ("evaluate", lambda s: s, "returned a tuple and not an Arrow array"),
        ("evaluate", lambda s: pc.greater(s[0], 1), "returned bool and not DOUBLE"),
    ],
)
def test_the_part_that_fails_is_named(db: Database, part: str, body: Callable[..., Any], what: str) -> None:
    query = with_broken(db, part, body).sql("SELECT f(x) AS y FROM s [RANGE 3 MICROSECONDS]")
    with pytest.raises(QueryError) as caught:
        query.await_end()
    assert caught.value.message == f"{part} of aggregate f {what}"
    assert caught.value.code == ("function-failed" if body is fails else "function-result")


def test_a_failure_names_the_line(db: Database) -> None:
    query = with_broken(db, "merge", fails).sql("SELECT f(x) AS y FROM s [RANGE 3 MICROSECONDS]")
    with pytest.raises(QueryError) as caught:
        query.await_end()
    line = Path(__file__).read_text().splitlines().index('    raise ValueError("no such thing")') + 1
    assert caught.value.detail == f"Raised at line {line} of {__file__}."


def test_a_state_that_outgrows_its_type_is_an_error(db: Database) -> None:
    same = "DECIMAL(2, 0)"
    db.aggregate("tight", arguments=[same], returns=same, initialize=lambda m: m, merge=pc.add, evaluate=lambda m: m)
    query = db.sql("SELECT tight(CAST(n * 30 AS DECIMAL(2, 0))) AS t FROM s [RANGE 5 MICROSECONDS]")  # 30 and 90
    with pytest.raises(QueryError, match=r"merge of aggregate tight returned a value that is not a decimal128\(2, 0\)"):
        query.await_end()


@pytest.mark.parametrize(
    ("name", "arguments", "returns", "code"),
    [
        ("length", ["VARCHAR"], "INT", "function-exists"),
        ("Sum", ["INT"], "INT", "function-exists"),
        ("stddev", ["INT"], "INT", "function-exists"),
        ("Rms", ["INT"], "INT", "function-exists"),
        ("vat", ["INT"], "INT", "function-exists"),
        ("where", ["INT"], "INT", "function-name"),
        ("f", [], "INT", "function-arguments"),
        ("f", "INT", "INT", "bad-argument"),
        ("f", ["INT", "INT"], "INT", "function-arguments"),
        ("f", ["INTEGRE"], "INT", "unknown-type"),
    ],
)
def test_declarations_are_checked(db: Database, name: str, arguments: list[str], returns: str, code: str) -> None:
    with_rms(db).function("vat", lambda x: x, arguments=["DOUBLE"], returns="DOUBLE")
    with pytest.raises(StrandlineError) as caught:
        db.aggregate(name, arguments=arguments, returns=returns, initialize=squares, merge=added, evaluate=root)
    assert caught.value.code == code


def test_a_function_cannot_have_the_name_of_an_aggregate(db: Database) -> None:
    with pytest.raises(StrandlineError) as caught:
        with_rms(db).function("rms", lambda x: x, arguments=["DOUBLE"], returns="DOUBLE")
    assert caught.value.code == "function-exists"


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("rms(k)", "type-mismatch", "rms does not accept (VARCHAR)"),
        ("rms(*)", "type-mismatch", "rms does not take *"),
        ("rms(x, x)", "type-mismatch", "rms takes one argument"),
        ("rms(x ORDER BY n)", "type-mismatch", "rms does not take ORDER BY"),
        ("rms(MAX(x))", "nested-aggregate", "aggregate calls cannot be nested"),
        ("path(DISTINCT k ORDER BY n)", "aggregate-order",
         "in an aggregate with DISTINCT, ORDER BY must be by the argument"),
    ],
)  # fmt: skip
def test_calls_are_checked(db: Database, call: str, code: str, message: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        with_path(with_rms(db)).sql(f"SELECT {call} FROM s [RANGE 1 SECOND]")
    assert (caught.value.code, caught.value.message) == (code, message)
    assert "^^^" in caught.value.render()


def test_where_it_cannot_stand_it_is_an_aggregate(db: Database) -> None:
    with pytest.raises(StrandlineError) as caught:
        with_rms(db).sql("SELECT k FROM s WHERE rms(x) > 1")
    assert caught.value.code == "aggregate-not-allowed"


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_a_checkpoint_knows_an_aggregate_by_name_types_and_inverse(tmp_path: Path) -> None:
    def run(inverse: bool) -> None:
        with sl.connect(engine="local", checkpoint=tmp_path / "c") as database:
            declare(database)
            with_rms(database, inverse)
            text = "SELECT rms(x) AS y FROM s [RANGE 3 MICROSECONDS]"
            database.sql(text, name="q", sink=sl.Parquet(tmp_path / "out")).await_end()

    run(True)
    run(True)
    with pytest.raises(CheckpointError) as caught:
        run(False)
    assert caught.value.code == "checkpoint-foreign"


# ---- on Spark --------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_aggregates_travel_to_the_workers(spark_database: Database) -> None:
    database = sl.connect(spark=spark_database.spark, shards=2, batch_rows=2)
    declare(database)
    with_path(with_rms(database))
    query = """SELECT k, rms(x) AS r, path(CAST(n AS VARCHAR) ORDER BY n DESC) AS p
               FROM s [RANGE 3 MICROSECONDS] GROUP BY k"""
    with sl.connect(engine="local", batch_rows=2) as local:
        declare(local)
        wanted = answer(with_path(with_rms(local)), query)
    assert ("a", 4.0, "3>3") in wanted and ("b", None, None) in wanted
    assert sorted(map(str, answer(database, query))) == sorted(map(str, wanted))
    failing = with_broken(database, "inverse", fails).sql("SELECT f(x) AS y FROM s [RANGE 3 MICROSECONDS]")
    with pytest.raises(QueryError) as caught:
        failing.await_end()
    assert caught.value.message == "inverse of aggregate f failed: ValueError: no such thing"
    assert "Traceback" not in caught.value.render()
    lock = threading.Lock()
    int_to_int: Any = {"arguments": ["INT"], "returns": "INT", "initialize": pc.negate, "evaluate": pc.negate}
    database.aggregate("locked", **int_to_int, merge=lambda a, b: lock and a)
    with pytest.raises(QueryError) as caught:
        database.sql("SELECT locked(n) AS y FROM s [RANGE 3 MICROSECONDS]")
    assert caught.value.code == "function-not-portable" and "aggregate locked" in caught.value.message
