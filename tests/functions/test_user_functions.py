"""Functions of the user's: Python over Arrow columns, in queries of both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.core.errors import CheckpointError, QueryError, StrandlineError
from strandline.core.types import BIGINT, BOOLEAN, DOUBLE, INT, VARCHAR
from strandline.database.database import Database
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, UserCall
from strandline.logical.udf import UserFunction
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame

RATE = Decimal("1.19")


def vat(amount: pa.Array) -> pa.Array:
    return pc.multiply(amount, float(RATE))  # a global of this module, which workers cannot import


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local", batch_rows=2, shards=2) as database:
        declare(database)
        yield database


def declare(database: Database) -> None:
    database.sql("""
        CREATE STREAM s (k VARCHAR, n INT, x DOUBLE, m DECIMAL(10, 2), ts BIGINT)
          SOURCE rows(('a', 1, 100.0, 1.50, 0), ('b', NULL, NULL, NULL, 1), ('a', 3, 10.0, 2.25, 2))
          ORDERED BY ts""")


def answer(database: Database, query: str) -> list[tuple[object, ...]]:
    running = database.sql(query)
    running.await_end()
    return [tuple(row.values())[:-2] for row in running.results().to_pylist()]


# ---- in queries ------------------------------------------------------------------------------------------------------


def test_a_function_stands_wherever_an_expression_does(db: Database) -> None:
    db.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    assert answer(db, "SELECT VAT(x) AS gross, vat(vat(n)) AS twice FROM s") == [
        (119.0, 1.19 * 1.19),
        (None, None),
        (pytest.approx(11.9), pytest.approx(3 * 1.19 * 1.19)),
    ]
    assert answer(db, "SELECT k FROM s WHERE vat(x) > 100") == [("a",)]
    assert answer(db, "SELECT k, SUM(vat(x)) AS g FROM s [RANGE 5 MICROSECONDS] GROUP BY k HAVING vat(MAX(n)) > 2") == [
        ("a", pytest.approx(130.9)),
        ("a", pytest.approx(11.9)),
    ]
    assert answer(db, "SELECT vat(1) AS one, CASE WHEN vat(x) > 100 THEN 'dear' END AS c FROM s WHERE n = 1") == [
        (1.19, "dear")
    ]
    joined = "SELECT a.n FROM s [RANGE 9 MICROSECONDS] a JOIN s [RANGE 9 MICROSECONDS] b ON vat(a.x) = vat(b.x)"
    assert answer(db, joined) == [(1,), (3,)]


def test_a_function_of_several_columns_by_decorator(db: Database) -> None:
    @db.function(arguments=["VARCHAR", "INT"], returns="VARCHAR")  # type: ignore[untyped-decorator]
    def label(text: pa.Array, number: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(text, pc.cast(number, pa.large_string()), pa.scalar("-", pa.large_string()))

    assert label(pa.array(["x"], pa.large_string()), pa.array([1])).to_pylist() == ["x-1"], "it stays a function"
    assert answer(db, "SELECT label(k, n) AS l, label('c', 7) AS c FROM s") == [
        ("a-1", "c-7"),
        (None, "c-7"),
        ("a-3", "c-7"),
    ]


def test_results_may_differ_in_size(db: Database) -> None:
    db.function("more", lambda n: pc.add(n, pa.scalar(1, pa.int64())), arguments=["INT"], returns="INT")
    db.function("text", lambda n: n.cast(pa.string()), arguments=["INT"], returns="TEXT")
    db.function("twice", lambda m: pc.add(m, m), arguments=["DECIMAL(10, 2)"], returns="DECIMAL(12, 2)")
    db.function("nothing", lambda n: pa.nulls(len(n)), arguments=["INT"], returns="TIMESTAMP")
    query = "SELECT more(n) AS m, text(n) AS t, twice(m) AS w, nothing(n) AS o FROM s WHERE n = 1"
    assert answer(db, query) == [(2, "1", Decimal("3.00"), None)]


def test_a_stream_made_of_a_function_can_be_read(db: Database) -> None:
    db.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    db.sql("CREATE STREAM gross AS SELECT k, vat(x) AS g FROM s")
    assert answer(db, "SELECT g FROM gross WHERE g > 100") == [(119.0,)]


def test_explain_names_the_function_and_its_type(db: Database) -> None:
    db.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    assert "vat(s.x): DOUBLE > 100.0" in db.sql("EXPLAIN SELECT k FROM s WHERE vat(x) > 100")


# ---- the law ---------------------------------------------------------------------------------------------------------


def test_the_fast_path_means_what_the_slow_one_says() -> None:
    double = UserFunction("double", (BIGINT,), BIGINT, lambda n: pc.add(n, n))
    size = UserFunction("size", (VARCHAR, BIGINT), INT, lambda s, n: pc.add(pc.utf8_length(s), pc.cast(n, pa.int64())))
    n, s = ColumnRef("n", BIGINT), ColumnRef("s", VARCHAR)
    twice = UserCall(double, (UserCall(double, (n,)),))
    expressions: list[Expression] = [
        twice,
        Call("+", (twice, UserCall(double, (Literal(4, BIGINT),))), BIGINT),
        UserCall(size, (s, twice)),
    ]
    content: list[dict[str, Any]] = [{"n": 1, "s": "ä"}, {"n": None, "s": "x"}, {"n": -5, "s": None}]
    frame = pl.DataFrame(content, schema={"n": pl.Int64, "s": pl.String})
    result = evaluate_columns(frame, [(str(i), e) for i, e in enumerate(expressions)], keep=["s"])
    assert result.columns == ["0", "1", "2", "s"]
    for i, expression in enumerate(expressions):
        assert result[str(i)].to_list() == [evaluate(expression, row) for row in content]
    wanted = Call(">", (twice, Literal(0, BIGINT)), BOOLEAN)
    assert filter_frame(frame, wanted).equals(frame.head(1))


def test_the_same_call_is_made_once_per_batch() -> None:
    calls: list[int] = []

    def counted(x: pa.Array) -> pa.Array:
        calls.append(len(x))
        return x

    call = UserCall(UserFunction("counted", (DOUBLE,), DOUBLE, counted), (ColumnRef("x", DOUBLE),))
    evaluate_columns(pl.DataFrame({"x": [1.0, 2.0]}), [("a", call), ("b", Call("+", (call, call), DOUBLE))])
    assert calls == [2]
    evaluate_columns(pl.DataFrame({"x": []}, schema={"x": pl.Float64}), [("a", call)])
    assert calls == [2], "no rows, no call"


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def fails(x: pa.Array) -> pa.Array:
    raise ValueError("no such rate")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (fails, "function-failed", "function f failed: ValueError: no such rate"),
        (lambda x: x[:1], "function-result", "function f returned 1 values for 2 rows"),
        (lambda x: [1.0] * len(x), "function-result", "function f returned a list and not an Arrow array"),
        (lambda x: pc.greater(x, 1), "function-result", "function f returned bool and not DOUBLE"),
    ],
)
def test_a_function_that_fails_is_named(db: Database, body: Callable[..., Any], code: str, message: str) -> None:
    db.function("f", body, arguments=["DOUBLE"], returns="DOUBLE")
    query = db.sql("SELECT f(x) AS y FROM s")
    with pytest.raises(QueryError) as caught:
        query.await_end()
    assert (caught.value.code, caught.value.message) == (code, message)


def test_a_failure_names_the_line(db: Database) -> None:
    db.function("fails", fails, arguments=["DOUBLE"], returns="DOUBLE")
    query = db.sql("SELECT fails(x) AS y FROM s")
    with pytest.raises(QueryError) as caught:
        query.await_end()
    line = Path(__file__).read_text().splitlines().index('    raise ValueError("no such rate")') + 1
    assert caught.value.detail == f"Raised at line {line} of {__file__}."


@pytest.mark.parametrize(
    ("name", "arguments", "returns", "code"),
    [
        ("length", ["VARCHAR"], "INT", "function-exists"),
        ("Sum", ["INT"], "INT", "function-exists"),
        ("extract", ["INT"], "INT", "function-exists"),
        ("vat", ["INT"], "INT", "function-exists"),
        ("where", ["INT"], "INT", "function-name"),
        ("istream", ["INT"], "INT", "function-name"),
        ("a b", ["INT"], "INT", "function-name"),
        ("f", [], "INT", "function-arguments"),
        ("f", "INT", "INT", "bad-argument"),
        ("f", ["INTEGRE"], "INT", "unknown-type"),
        ("f", ["INT"], "DECIMAL", "missing-precision"),
        ("f", ["INT"], "INT INT", "syntax"),
    ],
)
def test_declarations_are_checked(db: Database, name: str, arguments: list[str], returns: str, code: str) -> None:
    db.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    with pytest.raises(StrandlineError) as caught:
        db.function(name, vat, arguments=arguments, returns=returns)
    assert caught.value.code == code


@pytest.mark.parametrize(("call", "given"), [("vat(k)", "VARCHAR"), ("vat(x, x)", "DOUBLE, DOUBLE"), ("vat()", "")])
def test_calls_are_checked(db: Database, call: str, given: str) -> None:
    db.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    with pytest.raises(StrandlineError) as caught:
        db.sql(f"SELECT {call} FROM s")
    assert caught.value.render() == "\n".join([
        f"error[type-mismatch]: vat does not accept ({given})",
        f"  SELECT {call} FROM s",
        "         " + "^" * len(call),
        "hint: It is declared as vat(DOUBLE) RETURNS DOUBLE.",
    ])  # fmt: skip


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_a_checkpoint_knows_a_function_by_name_and_types(tmp_path: Path) -> None:
    def run(returns: str, body: Callable[..., Any]) -> None:
        with sl.connect(engine="local", checkpoint=tmp_path / "c") as database:
            declare(database)
            database.function("f", body, arguments=["DOUBLE"], returns=returns)
            query = database.sql("SELECT f(x) AS y FROM s", name="q", sink=sl.Parquet(tmp_path / "out"))
            query.await_end()

    run("DOUBLE", lambda x: x)
    run("DOUBLE", lambda x: pc.add(x, 1.0))  # another function at another address: it is for its user to know
    with pytest.raises(CheckpointError) as caught:
        run("BIGINT", lambda x: x.cast(pa.int64()))
    assert caught.value.code == "checkpoint-foreign"


# ---- on Spark --------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_functions_travel_to_the_workers(spark_database: Database) -> None:
    database = sl.connect(spark=spark_database.spark, shards=2)
    declare(database)
    extra = 0.5
    database.function("vat", vat, arguments=["DOUBLE"], returns="DOUBLE")
    database.function("more", lambda x: pc.add(x, extra), arguments=["DOUBLE"], returns="DOUBLE")
    query = """SELECT k, SUM(more(x)) AS total FROM s [RANGE 5 MICROSECONDS] WHERE vat(x) > 11
               GROUP BY k HAVING vat(COUNT(*)) > 2"""
    assert answer(database, query) == [("a", 111.0)]
    database.function("fails", fails, arguments=["DOUBLE"], returns="DOUBLE")
    failing = database.sql("SELECT fails(x) AS y FROM s")
    with pytest.raises(QueryError) as caught:
        failing.await_end()
    assert caught.value.message == "function fails failed: ValueError: no such rate"
    assert "Traceback" not in caught.value.render()
    lock = threading.Lock()
    database.function("locked", lambda x: lock and x, arguments=["DOUBLE"], returns="DOUBLE")
    with pytest.raises(QueryError) as caught:
        database.sql("SELECT locked(x) AS y FROM s")
    assert caught.value.code == "function-not-portable" and "locked" in caught.value.message
