"""The shorter ways to the values of expressions, held against the plain one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.expressions.test_expressions import LAW, Rows, cases, check, frame_of, same
from strandline.core.temporal import DAY, HOUR, MINUTE, SECOND
from strandline.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, Type
from strandline.functions.datetimes import PARTS, TRUNC_UNITS
from strandline.functions.registry import resolve
from strandline.functions.subexpressions import Parts
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal
from strandline.runtime.expressions import optimize as economy
from strandline.runtime.expressions.compile import compile_expression, evaluate_columns, filter_frame
from strandline.runtime.expressions.optimize import granule
from strandline.runtime.kernels import distinct_values
from strandline.runtime.kernels.distinct_values import encode_distinct, runs

TEXT, OTHER = ColumnRef("text", VARCHAR), ColumnRef("other", VARCHAR)
NUMBER, AT = ColumnRef("number", BIGINT), ColumnRef("at", TIMESTAMP)
FORMS = ["YYYY-MM-DD", "HH24:MI", "HH12 AM", "SS", "SSSS", "MS", "US", "IYYY-IW-ID", "DDD J Q CC Mon Dy", '"at" HH24']


def literal(value: str | int | bool) -> Literal:
    kinds: dict[type, Type] = {str: VARCHAR, int: INT, bool: BOOLEAN}
    return Literal(value, kinds[type(value)])


def call(name: str, *arguments: Expression) -> Expression:
    found = resolve(name, [argument.type for argument in arguments])
    pairs = zip(arguments, found.argument_types, strict=True)
    return Call(found.function, tuple(a if a.type == kind else Cast(a, kind) for a, kind in pairs), found.result)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way is taken that can be taken, however little it saves."""
    for name in ("MIN_SAVING_NS", "BY_RUNS", "BY_NUMBERS", "BY_TEXTS", "WHERE_TAKEN"):
        monkeypatch.setattr(economy, name, 0)
    monkeypatch.setattr(distinct_values, "MIN_ROWS_PER_VALUE", 1)
    monkeypatch.setattr(distinct_values, "MAX_DISTINCT_FRACTION", 1.0)


def plainly(frame: pl.DataFrame, expression: Expression) -> list[object]:
    return frame.with_columns(compile_expression(expression).alias("result"))["result"].to_list()


# ---- the law of all ways ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("always")
@LAW
@given(cases(depth=3))
def test_the_shorter_ways_lead_to_the_same_values(case: tuple[Expression, Rows]) -> None:
    expression, content = case
    check(expression, content * 3)


@pytest.mark.usefixtures("always")
@LAW
@given(cases(depth=2), st.data())
def test_what_is_asked_for_twice_is_the_same_in_both_places(case: tuple[Expression, Rows], data: st.DataObject) -> None:
    expression, content = case
    chosen = data.draw(st.sampled_from([None, True, False]))
    twice = Case(((Literal(chosen, BOOLEAN), expression),), expression, expression.type)
    check(twice, content)
    if content:
        frame = frame_of(content)
        both = evaluate_columns(frame, [("one", expression), ("two", expression), ("three", twice)])
        assert all(same(a, b) and same(b, c) for a, b, c in both.rows())


@pytest.mark.usefixtures("always")
@LAW
@given(cases(depth=2), cases(depth=2))
def test_a_filter_keeps_the_same_rows(one: tuple[Expression, Rows], two: tuple[Expression, Rows]) -> None:
    known = [call("is_null", expression) for expression, _ in (one, two)]
    predicate = call("and", known[0], call("not", known[1]))
    content = [{**first, **second} for first, second in zip(one[1], two[1], strict=False)]
    if content:
        frame = frame_of(content).with_row_index("row number")
        kept = frame.filter(pl.Series(plainly(frame, predicate), dtype=pl.Boolean))
        assert filter_frame(frame, predicate).equals(kept)


# ---- few values ------------------------------------------------------------------------------------------------------

MANY = 20_000


def mixed(values: int) -> pl.DataFrame:
    """Rows with so many different texts, numbers and minutes, and NULLs."""
    dice = Random(values)
    texts = [None, "", *(f"https://host/{n}/b/?id={n * 7}&x={'ß' * (n % 5)}" for n in range(values - 2))]
    picked = [dice.randrange(values) for _ in range(MANY)]
    return pl.DataFrame(
        {
            "text": [texts[n] for n in picked],
            "other": [texts[(n * 31 + 7) % values] for n in picked],
            "number": [None if n == 3 else n for n in picked],
            "at": [
                None if n % 997 == 5 else datetime(1969, 12, 31, 22) + timedelta(seconds=n * 0.7) for n in range(MANY)
            ],
        },
        schema={"text": pl.String, "other": pl.String, "number": pl.Int64, "at": pl.Datetime("us")},
    )


DEAR = [
    call("split_part", TEXT, literal("/"), literal(4)),
    call("split_part", TEXT, literal("/"), literal(-1)),
    call("split_part", TEXT, literal("/"), literal(0)),
    call("split_part", TEXT, literal("//"), Cast(NUMBER, INT)),
    call("split_part", TEXT, OTHER, literal(1)),
    call("match", TEXT, literal("id=([0-9]+)")),
    call("upper", call("||", TEXT, call("lpad", OTHER, literal(40)))),
    Cast(NUMBER, VARCHAR),
    call("lpad", Cast(NUMBER, VARCHAR), literal(9), literal("0")),
    call("to_char", AT, literal("YYYY-MM-DD HH24:MI")),
    call("to_char", AT, literal("HH24:MI:SS.US")),
    Case(
        (
            (call("=", call("lower", TEXT), literal("")), literal("empty")),
            (call(">", NUMBER, literal(40)), call("regexp_replace", OTHER, literal("[0-9]"), literal("#"))),
        ),
        call("initcap", call("left", TEXT, literal(12))),
        VARCHAR,
    ),
]


@pytest.mark.parametrize("values", [2, 300, MANY])
def test_columns_of_few_and_of_many_values(values: int) -> None:
    frame = mixed(values)
    outputs = [(f"output {number}", expression) for number, expression in enumerate(DEAR)]
    result = evaluate_columns(frame, outputs, keep=["number"])
    assert result.columns == [*(name for name, _ in outputs), "number"]
    for name, expression in outputs:
        assert result[name].to_list() == plainly(frame, expression)
    predicate = call("and", call("like", TEXT, literal("%7%")), call("<", NUMBER, literal(values // 2)))
    assert filter_frame(frame, predicate).equals(frame.filter(compile_expression(predicate)))


@pytest.mark.parametrize("column", ["text", "number", "at"])
@pytest.mark.parametrize("encode", [runs, encode_distinct])
def test_each_row_has_the_value_of_its_code(
    column: str, encode: Callable[[pl.Series], distinct_values.DistinctValues | None]
) -> None:
    values = mixed(40)[column]
    values = values.to_physical() // HOUR if column == "at" else values
    values = values.sort() if encode is runs else values
    found = encode(values)
    assert found is not None
    assert len(found.rows) < len(values) // distinct_values.MIN_ROWS_PER_VALUE
    assert found.decode(values.to_frame()[found.rows]).to_series().equals(values)


def test_many_values_are_not_encoded() -> None:
    values = pl.Series([f"text {n}" for n in range(MANY)])
    assert runs(values) is None
    assert encode_distinct(values) is None


def test_texts_with_one_hash_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Series, "hash", lambda texts: pl.Series([7] * len(texts), dtype=pl.UInt64))
    assert encode_distinct(mixed(40)["text"]) is None


# ---- granules --------------------------------------------------------------------------------------------------------

OF_TIME = [
    *(call(part, AT) for part in PARTS),
    *(call("date_trunc", literal(unit), AT) for unit in TRUNC_UNITS),
    *(call("to_char", AT, literal(form)) for form in FORMS),
    Cast(AT, DATE),
    Cast(AT, VARCHAR),
    call("hour", call("date_trunc", literal("day"), AT)),
    call("+", call("hour", AT), call("minute", AT)),
    call("hour", call("+", AT, Literal(90 * MINUTE, Type("INTERVAL")))),
]


@pytest.mark.parametrize("expression", OF_TIME, ids=str)
def test_an_expression_is_constant_within_its_granule(expression: Expression) -> None:
    length, dice = granule(expression), Random(1)
    starts = [dice.randrange(-9_000_000, 9_000_000) * HOUR // length * length for _ in range(300)]
    starts += [dice.randrange(-10_000, 10_000) * length for _ in range(300)]
    moments = [[start + dice.randrange(length) for start in starts] for _ in range(2)] + [starts]
    frames = [pl.DataFrame({"at": pl.Series(some).cast(pl.Datetime("us"))}) for some in moments]
    first, *others = (plainly(frame, expression) for frame in frames)
    assert all(first == other for other in others)


def test_granules() -> None:
    found = [granule(call("to_char", AT, literal(form))) for form in FORMS[:7]]
    assert found == [DAY, MINUTE, HOUR, SECOND, SECOND, 1_000, 1]
    assert granule(call("hour", AT)) == HOUR
    assert granule(call("hour", call("date_trunc", literal("day"), AT))) == DAY
    assert granule(call("second", AT)) == 1


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_parts_are_counted_once_and_used_as_often_as_asked_for() -> None:
    lower = call("lower", TEXT)
    parts = Parts([call("||", lower, lower), call("length", lower)])
    (shared,) = parts.shared(1)
    assert parts.all[shared].expression == lower
    assert parts.all[shared].uses == 3
    assert [parts.written(root, {}) for root in parts.roots] == [call("||", lower, lower), call("length", lower)]
    assert parts.written(parts.roots[1], {shared: OTHER}) == call("length", OTHER)


def test_zero_and_minus_zero_are_different_parts() -> None:
    double = ColumnRef("double", DOUBLE)
    outputs = [(str(zero), Call("atan2", (Literal(zero, DOUBLE), double), DOUBLE)) for zero in (0.0, -0.0)]
    frame = pl.DataFrame({"double": [-1.0] * MANY * 10})
    assert len(Parts([e for _, e in outputs]).shared(0)) == 0
    result = evaluate_columns(frame, outputs)
    assert result.row(0)[0] == -result.row(0)[1] > 0


def test_only_rows_that_come_to_a_choice_pay_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = mixed(MANY)
    heights = []
    optimize = economy.optimize

    def noted(frame: pl.DataFrame, *arguments: object) -> economy.Optimized:
        heights.append(frame.height)
        return optimize(frame, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(economy, "optimize", noted)
    pattern = call("match", TEXT, literal("id=([0-9]+)"))
    choice = Case(((call("<", NUMBER, literal(MANY - 500)), literal("small")),), pattern, VARCHAR)
    assert evaluate_columns(frame, [("r", choice)])["r"].to_list() == plainly(frame, choice)
    assert heights == [frame.filter((pl.col("number") < MANY - 500).fill_null(False).not_()).height]
