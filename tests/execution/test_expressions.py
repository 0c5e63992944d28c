"""The fast path means what `algebra.evaluate` says: for every expression and every row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline.algebra.evaluate import evaluate, parse
from strandline.algebra.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, Value
from strandline.algebra.functions import FUNCTIONS, TRUNC_UNITS, FunctionError, castable, meet, resolve
from strandline.execution.expressions import cast_text, compile, evaluate_columns, filter_frame, polars_type
from strandline.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, TIMESTAMP, VARCHAR, Type, decimal

# ---- values ----------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, Type] = {
    "truth": BOOLEAN,
    "small": INT,
    "large": BIGINT,
    "double": DOUBLE,
    "money": decimal(10, 2),
    "wide": decimal(38, 0),
    "deep": decimal(38, 30),
    "unit": decimal(5, 5),
    "text": VARCHAR,
    "other": VARCHAR,
    "day": DATE,
    "ts": TIMESTAMP,
    "span": INTERVAL,
}

# Letters whose case mapping is old and settled, what LIKE, regular expressions and numbers treat specially, and some
# that need two or four bytes.
ALPHABET = "aAbzZäÄßΣσςıİ%_\\.*+?()[]{}^$|# \t\n\"'0159-eE:TZxX😀日\uffff\0"
WORDS = ("", " ", "true", "f", " ON ", "12", "-7", "+3.50", "1e3", ".5", "2.675", "nan", "-Infinity", "1e400",
         "2024-02-29", "2023-02-29", "2024-01-31 23:59:59.9999996", "2024-01-01T10:00:00+02:30", "0001-01-01 00:00+01",
         "9223372036854775808", "99999999999999999999999999999999999999.5", "a%b", "a\\%b", "%_", "ΑΣ")  # fmt: skip


def doubles() -> st.SearchStrategy[float]:
    near = st.sampled_from(
        [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 2.0, 3.0, 2.675, 1e15, 1e16, 1e-5, 123456.75, 2.0**53, 2.0**63, 1e37, 5e-324]
    )
    return near | st.floats(allow_nan=True, allow_infinity=True) | st.floats(-100, 100)


def integers(bits: int) -> st.SearchStrategy[int]:
    top = 2 ** (bits - 1)
    return st.integers(-12, 12) | st.integers(-top, top - 1) | st.sampled_from([-top, top - 1, 10**6, -(10**9)])


def decimals(kind: Type) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    unscaled = st.integers(-top, top) | st.integers(-999, 999) | st.sampled_from([top, -top, top // 2])
    return unscaled.map(lambda n: Decimal(n).scaleb(-kind.scale, Context(prec=60)))


def values(kind: Type) -> st.SearchStrategy[Value]:
    match kind.name:
        case "BOOLEAN":
            return st.booleans()
        case "INT":
            return integers(32)
        case "BIGINT" | "INTERVAL":
            return integers(64)
        case "DOUBLE":
            return doubles()
        case "DECIMAL":
            return decimals(kind)
        case "VARCHAR":
            return st.sampled_from(WORDS) | st.text(ALPHABET, max_size=6)
        case "DATE":
            return st.dates() | st.sampled_from([date.min, date.max, date(2024, 2, 29), date(1969, 12, 31)])
    return st.datetimes() | st.sampled_from(
        [datetime.min, datetime.max, datetime(2024, 2, 29, 23, 59, 59, 120000), datetime(1969, 12, 31, 23, 59, 59, 1)]
    )


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Value]]:
    row = st.fixed_dictionaries({id: st.none() | values(kind) for id, kind in COLUMNS.items()})
    return draw(st.lists(row, max_size=5))


def frame_of(content: Sequence[dict[str, Value]]) -> pl.DataFrame:
    return pl.DataFrame(
        {id: pl.Series([row[id] for row in content], dtype=polars_type(kind)) for id, kind in COLUMNS.items()}
    )


# ---- expressions -----------------------------------------------------------------------------------------------------

TYPES = (BOOLEAN, INT, BIGINT, DOUBLE, decimal(10, 2), VARCHAR, DATE, TIMESTAMP, INTERVAL)
SPECIAL = ("date_trunc", "round")  # these want a constant


def signatures() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """For each type name the functions that return it, with the type names that they take."""
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for function in FUNCTIONS.values():
        for count in range(function.least, min(function.most or 3, 3) + 1):
            accepted: dict[str, list[tuple[str, ...]]] = {}
            for types in itertools.product(TYPES, repeat=count):
                try:
                    result = resolve(function.name, types).result
                except FunctionError:
                    continue
                accepted.setdefault(result.name, []).append(tuple(kind.name for kind in types))
            for name, kinds in accepted.items():
                # A few of each function, or else the functions that take everything would crowd out the others.
                step = max(1, len(kinds) // 6)
                found.setdefault(name, []).extend((function.name, kind) for kind in kinds[::step])
    return found


SIGNATURES = signatures()


def fit(expression: Expression, kind: Type) -> Expression:
    return expression if expression.type == kind else Cast(expression, kind)


def call(name: str, *arguments: Expression) -> Expression:
    """The call that the binder would build."""
    found = resolve(name, [argument.type for argument in arguments])
    cast = tuple(fit(argument, kind) for argument, kind in zip(arguments, found.argument_types, strict=True))
    return Call(found.function, cast, found.result)


@st.composite
def expressions(draw: st.DrawFn, name: str, depth: int) -> Expression:
    """A well-typed expression whose type has this name."""
    kinds = [kind for kind in (*TYPES, *COLUMNS.values()) if kind.name == name]
    how = draw(st.sampled_from(["leaf"] if depth == 0 else ["call", "call", "call", "cast", "case", "leaf"]))
    if how == "call" and name in SIGNATURES:
        function, types = draw(st.sampled_from(SIGNATURES[name]))
        arguments = [draw(expressions(each, depth - 1)) for each in types]
        if function == "date_trunc":
            arguments[0] = Literal(draw(st.sampled_from(TRUNC_UNITS)), VARCHAR)
        if function == "round" and len(arguments) == 2:
            arguments[1] = Literal(draw(st.none() | st.integers(-45, 45) | st.integers(-400, 400)), INT)
        try:
            return call(function, *arguments)
        except FunctionError:  # a product with too many digits
            return arguments[0] if arguments[0].type.name == name else Literal(None, kinds[0])
    if how == "cast":
        source = draw(st.sampled_from([kind for kind in TYPES if castable(kind, kinds[0])]))
        return Cast(draw(expressions(source.name, depth - 1)), draw(st.sampled_from(kinds)))
    if how == "case":
        branch, other = draw(expressions(name, depth - 1)), draw(expressions(name, depth - 1))
        kind = meet([branch.type, other.type])
        if kind is not None and kind.name == name:
            condition = draw(expressions("BOOLEAN", depth - 1))
            return Case(((condition, fit(branch, kind)),), fit(other, kind), kind)
    ids = [id for id, kind in COLUMNS.items() if kind.name == name]
    if draw(st.integers(0, 4)) > 0:
        id = draw(st.sampled_from(ids))
        return ColumnRef(id, COLUMNS[id])
    kind = draw(st.sampled_from(kinds))
    return Literal(draw(st.none() | values(kind)), kind)


def any_expression(depth: int) -> st.SearchStrategy[Expression]:
    return st.sampled_from([kind.name for kind in TYPES]).flatmap(lambda name: expressions(name, depth))


def same(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def check(expression: Expression, content: Sequence[dict[str, Value]]) -> None:
    result = evaluate_columns(frame_of(content), [("result", expression)])["result"]
    assert result.dtype == polars_type(expression.type)
    wanted = [evaluate(expression, row) for row in content]
    for row, got, want in zip(content, result.to_list(), wanted, strict=True):
        assert same(got, want), f"{expression}\nover {row}\nis {got!r}, not {want!r}"


# ---- the law ---------------------------------------------------------------------------------------------------------

LAW = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@LAW
@given(any_expression(1), rows())
def test_a_function_over_columns_is_the_function_over_each_row(
    expression: Expression, content: list[dict[str, Value]]
) -> None:
    check(expression, content)


@LAW
@given(any_expression(3), rows())
def test_an_expression_over_columns_is_the_expression_over_each_row(
    expression: Expression, content: list[dict[str, Value]]
) -> None:
    check(expression, content)
