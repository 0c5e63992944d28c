"""Which functions there are, what they return, and what they mean for single values."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    TIMESTAMP,
    VARCHAR,
    Type,
    array_of,
    decimal,
)
from strandline.functions.aggregates import AGGREGATES, aggregate, aggregate_type
from strandline.functions.evaluate import evaluate
from strandline.functions.registry import ALIASES, FUNCTIONS, check, resolve
from strandline.functions.signatures import FunctionError, castable, meet
from strandline.logical.expressions import AggregateCall, Call, Case, Cast, ColumnRef, Expression, Literal, Value
from strandline.logical.values import compare, parse, show

NAN, INF = math.nan, math.inf
LEAST, GREATEST = -(2**63), 2**63 - 1
SAME_AS = {name: function.same_as for name, function in AGGREGATES.items() if function.same_as is not None}


def value(constant: Value | timedelta | Expression) -> Expression:
    """A literal of the type that SQL would give it."""
    match constant:
        case None:
            return Literal(None, NULL)
        case bool():
            return Literal(constant, BOOLEAN)
        case int():
            return Literal(constant, INT if -(2**31) <= constant < 2**31 else BIGINT)
        case float():
            return Literal(constant, DOUBLE)
        case Decimal():
            digits, scale = len(constant.as_tuple().digits), max(0, -int(constant.as_tuple().exponent))
            return Literal(constant, decimal(max(digits, scale), scale))
        case str():
            return Literal(constant, VARCHAR)
        case datetime():
            return Literal(constant, TIMESTAMP)
        case date():
            return Literal(constant, DATE)
        case timedelta():
            return Literal(constant // timedelta(microseconds=1), INTERVAL)
    assert not isinstance(constant, tuple), "arrays have no literal"
    return constant


def call(name: str, *arguments: Value | timedelta | Expression) -> Expression:
    operands = [value(argument) for argument in arguments]
    found = resolve(name, [operand.type for operand in operands])
    return Call(
        found.function,
        tuple(
            operand if operand.type == kind else Cast(operand, kind)
            for operand, kind in zip(operands, found.argument_types, strict=True)
        ),
        found.result,
    )


def same(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    return type(left) is type(right) and left == right


# ---- types -----------------------------------------------------------------------------------------------------------

D102, D53, D380 = decimal(10, 2), decimal(5, 3), decimal(38, 0)


@pytest.mark.parametrize(
    ("name", "types", "casts", "result"),
    [
        ("+", (INT, INT), (BIGINT, BIGINT), BIGINT),
        ("*", (INT, BIGINT), (BIGINT, BIGINT), BIGINT),
        ("-", (INT, DOUBLE), (DOUBLE, DOUBLE), DOUBLE),
        ("+", (D102, D53), (D102, D53), decimal(12, 3)),
        ("-", (D102, INT), (D102, decimal(10, 0)), decimal(13, 2)),
        ("*", (D102, D53), (D102, D53), decimal(15, 5)),
        ("*", (D102, DOUBLE), (DOUBLE, DOUBLE), DOUBLE),
        ("+", (D380, D102), (D380, D102), decimal(38, 2)),
        ("/", (INT, INT), (BIGINT, BIGINT), BIGINT),
        ("/", (D102, INT), (DOUBLE, DOUBLE), DOUBLE),
        ("%", (D102, INT), (decimal(12, 2), decimal(12, 2)), decimal(12, 2)),
        ("MOD", (INT, INT), (BIGINT, BIGINT), BIGINT),
        ("neg", (INT,), (BIGINT,), BIGINT),
        ("neg", (INTERVAL,), (INTERVAL,), INTERVAL),
        ("+", (TIMESTAMP, INTERVAL), (TIMESTAMP, INTERVAL), TIMESTAMP),
        ("+", (INTERVAL, DATE), (INTERVAL, TIMESTAMP), TIMESTAMP),
        ("-", (TIMESTAMP, TIMESTAMP), (TIMESTAMP, TIMESTAMP), INTERVAL),
        ("-", (TIMESTAMP, DATE), (TIMESTAMP, TIMESTAMP), INTERVAL),
        ("-", (DATE, DATE), (DATE, DATE), INT),
        ("-", (DATE, INT), (DATE, BIGINT), DATE),
        ("+", (INT, DATE), (BIGINT, DATE), DATE),
        ("*", (INT, INTERVAL), (BIGINT, INTERVAL), INTERVAL),
        ("=", (INT, INT), (INT, INT), BOOLEAN),
        ("<", (INT, BIGINT), (BIGINT, BIGINT), BOOLEAN),
        ("<", (DATE, TIMESTAMP), (TIMESTAMP, TIMESTAMP), BOOLEAN),
        (">", (TIMESTAMP, NULL), (TIMESTAMP, TIMESTAMP), BOOLEAN),
        ("=", (decimal(38, 30), BIGINT), (DOUBLE, DOUBLE), BOOLEAN),
        ("in", (INT, BIGINT, NULL), (BIGINT, BIGINT, BIGINT), BOOLEAN),
        ("coalesce", (NULL, INT, DOUBLE), (DOUBLE, DOUBLE, DOUBLE), DOUBLE),
        ("coalesce", (NULL,), (VARCHAR,), VARCHAR),
        ("NullIf", (INT, D102), (decimal(12, 2), decimal(12, 2)), decimal(12, 2)),
        ("||", (VARCHAR, INT), (VARCHAR, VARCHAR), VARCHAR),
        ("concat", (INT, DATE, NULL), (VARCHAR, VARCHAR, VARCHAR), VARCHAR),
        ("floor", (D102,), (D102,), decimal(9, 0)),
        ("round", (D102, INT), (D102, INT), decimal(11, 2)),
        ("ceiling", (INT,), (BIGINT,), BIGINT),
        ("sign", (D102,), (D102,), INT),
        ("sqrt", (INT,), (DOUBLE,), DOUBLE),
        ("CHAR_LENGTH", (VARCHAR,), (VARCHAR,), INT),
        ("substr", (VARCHAR, BIGINT), (VARCHAR, INT), VARCHAR),
        ("year", (DATE,), (TIMESTAMP,), INT),
        ("second", (TIMESTAMP,), (TIMESTAMP,), DOUBLE),
        ("is_null", (NULL,), (VARCHAR,), BOOLEAN),
        ("and", (BOOLEAN, NULL, BOOLEAN), (BOOLEAN,) * 3, BOOLEAN),
    ],
)
def test_resolve(name: str, types: tuple[Type, ...], casts: tuple[Type, ...], result: Type) -> None:
    found = resolve(name, types)
    assert (found.argument_types, found.result) == (casts, result)
    assert found.function in FUNCTIONS


@pytest.mark.parametrize(
    ("name", "types", "message", "hint"),
    [
        ("lenght", (VARCHAR,), "function lenght does not exist", "Did you mean length?"),
        ("frobnicate", (), "function frobnicate does not exist", None),
        ("sqrt", (), "sqrt does not take 0 arguments", "Write sqrt(x)."),
        ("NULLIF", (INT,), "nullif does not take 1 argument", "Write nullif(a, b)."),
        ("=", (INT, VARCHAR), "= does not accept (INT, VARCHAR)", "Write a = b. Equal."),
        ("lower", (INT,), "lower does not accept (INT)", "Write lower(s). The text in lower case."),
        ("not", (INT,), "not does not accept (INT)", "Write NOT a. The opposite truth value."),
        ("||", (INT, INT), "|| does not accept (INT, INT)", "Write a || b. Both texts together; NULL if one is NULL."),
        (
            "*",
            (decimal(38, 20), decimal(38, 20)),
            "the product of DECIMAL(38,20) and DECIMAL(38,20) has more than 38 digits after the point",
            "CAST one of them to DOUBLE or to a DECIMAL of smaller scale.",
        ),
    ],
)
def test_what_does_not_resolve_says_why(name: str, types: tuple[Type, ...], message: str, hint: str | None) -> None:
    with pytest.raises(FunctionError) as caught:
        resolve(name, types)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize("types", [(TIMESTAMP, TIMESTAMP), (DATE, DATE), (BOOLEAN, BOOLEAN), (VARCHAR, VARCHAR)])
def test_some_things_do_not_add_up(types: tuple[Type, Type]) -> None:
    with pytest.raises(FunctionError):
        resolve("+", types)


def test_arguments_that_must_be_known_are_checked() -> None:
    ts, digits = ColumnRef("ts", TIMESTAMP), ColumnRef("n", INT)
    check("date_trunc", (value("Hours"), ts))
    check("round", (value(1.5), value(2)))
    with pytest.raises(FunctionError, match="unknown unit 'fortnight'"):
        check("date_trunc", (value("fortnight"), ts))
    with pytest.raises(FunctionError, match="must be a text literal"):
        check("date_trunc", (ColumnRef("unit", VARCHAR), ts))
    with pytest.raises(FunctionError, match="must be a constant"):
        check("round", (value(1.5), digits))


def test_every_declaration_has_a_line_of_reference() -> None:
    assert set(ALIASES.values()) <= set(FUNCTIONS)
    for function in FUNCTIONS.values():
        assert function.doc.endswith(".") and "\n" not in function.doc


def test_whoever_binds_or_interprets_a_query_does_without_polars() -> None:
    modules = ("sql.binder.binder", "logical.reference.interpreter", "planner.cost", "functions.aggregates")
    code = f"import sys, {', '.join(f'strandline.{name}' for name in modules)}; print('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_meet() -> None:
    assert meet([INT, NULL, BIGINT]) == BIGINT
    assert meet([NULL, NULL]) == VARCHAR
    assert meet([D102, INT]) == decimal(12, 2)
    assert meet([decimal(38, 30), BIGINT]) == DOUBLE  # no DECIMAL holds both
    assert meet([INT, VARCHAR]) is None
    assert meet([DATE, TIMESTAMP, DATE]) == TIMESTAMP


def test_castable() -> None:
    assert castable(VARCHAR, TIMESTAMP) and castable(TIMESTAMP, VARCHAR) and castable(NULL, INTERVAL)
    assert castable(BOOLEAN, INT) and castable(BIGINT, BOOLEAN) and castable(D102, DOUBLE)
    assert not castable(BOOLEAN, DOUBLE)
    assert not castable(INT, DATE)
    assert not castable(VARCHAR, INTERVAL)
    assert castable(array_of(INT), array_of(VARCHAR)) and castable(NULL, array_of(INT))
    assert not castable(array_of(INT), VARCHAR) and not castable(VARCHAR, array_of(INT))
    assert not castable(array_of(INT), array_of(DATE))


@pytest.mark.parametrize("function", ["=", "<", "in", "nullif", "greatest"])
def test_arrays_are_not_compared(function: str) -> None:
    with pytest.raises(FunctionError, match=r"cannot compare values of type INT\[\]"):
        resolve(function, (array_of(INT), array_of(INT)))


def test_arrays_hold_plain_values() -> None:
    for kind in (array_of(INT), INTERVAL):
        with pytest.raises(FunctionError, match="array does not accept"):
            resolve("array", (kind,))


# ---- values ----------------------------------------------------------------------------------------------------------

NOON = datetime(2024, 5, 15, 12, 34, 56, 789012)

MEANING: list[tuple[Expression, Value]] = [
    (call("array", 1, None, 2), (1, None, 2)),
    (call("array", None), (None,)),
    (call("array", 1, 2.5), (1.0, 2.5)),
    (call("[]", call("array", 7, 8), 1), 7),
    (call("[]", call("array", 7, 8), 0), None),
    (call("[]", call("array", 7, 8), -1), None),
    (call("[]", call("array", 7, 8), 3), None),
    (call("cardinality", call("array", 7, None)), 2),
    (call("array_contains", call("array", 7, None), 7), True),
    (call("array_contains", call("array", 7, None), 8), None),
    (call("array_contains", call("array", 7), 8), False),
    (call("array_contains", call("array", 7), 7.0), True),
    (call("array_contains", call("array", 7), None), None),
    (call("array_contains", call("array", NAN), NAN), True),
    (call("array_to_string", call("array", 1.5, None, 2.0), "-"), "1.5-2"),
    (call("array_to_string", call("array", True, None), "-", "?"), "true-?"),
    (call("array_to_string", call("array", 1, None), "-", None), "1"),
    (call("array_to_string", call("array", 1), None), None),
    (call("+", 2**31 - 1, 1), 2**31),
    (call("+", GREATEST, 1), None),
    (call("-", LEAST, 1), None),
    (call("*", 2**40, 2**40), None),
    (call("neg", LEAST), None),
    (call("abs", LEAST), None),
    (call("/", 7, -2), -3),
    (call("/", -7, 2), -3),
    (call("/", 1, 0), None),
    (call("/", LEAST, -1), None),
    (call("%", -7, 2), -1),
    (call("%", 7, -2), 1),
    (call("%", 7, 0), None),
    (call("/", 1.0, 0.0), None),
    (call("/", 0.0, -0.0), None),
    (call("%", -5.5, 2.0), -1.5),
    (call("%", INF, 2.0), NAN),
    (call("+", 1e308, 1e308), INF),
    (call("+", Decimal("0.10"), Decimal("0.2")), Decimal("0.30")),
    (call("*", Decimal("1.5"), 2), Decimal("3.0")),
    (call("/", Decimal("1.00"), 3), 1 / 3),
    (call("%", Decimal("-7.5"), 2), Decimal("-1.5")),
    (call("+", Decimal(10**38 - 1), 1), None),
    (call("+", Decimal(10**38 - 1), 0), Decimal(10**38 - 1)),
    (call("*", Decimal(10**37), 11), None),
    (call("=", NAN, NAN), True),
    (call(">", NAN, INF), True),
    (call("<", NAN, 1.0), False),
    (call("=", 0.0, -0.0), True),
    (call("=", None, None), None),
    (call("=", 1, Decimal("1.00")), True),
    (call("<", "Z", "a"), True),
    (call("<", "\uffff", "\U0001f600"), True),
    (call("<", False, True), True),
    (call("=", date(2024, 1, 1), datetime(2024, 1, 1)), True),
    (call("and", False, None), False),
    (call("and", True, None), None),
    (call("or", True, None), True),
    (call("or", False, None), None),
    (call("not", None), None),
    (call("in", 1, 2, 1, None), True),
    (call("in", 1, 2, None), None),
    (call("in", None, 1), None),
    (call("in", 3, 1, 2), False),
    (call("is_null", None), True),
    (call("coalesce", None, None, 3, 4), 3),
    (call("nullif", 1, 1), None),
    (call("nullif", 1, None), 1),
    (call("greatest", 1.0, None, NAN), NAN),
    (call("least", 1.0, None, NAN), 1.0),
    (call("greatest", None, None), None),
    (call("sign", -0.5), -1.0),
    (call("sign", Decimal("0.00")), 0),
    (call("floor", Decimal("-9.5")), Decimal(-10)),
    (call("ceil", Decimal("9.01")), Decimal(10)),
    (call("ceil", -0.5), -0.0),
    (call("round", 0.5), 1.0),
    (call("round", -2.5), -3.0),
    (call("round", 0.49999999999999994), 0.0),
    (call("round", 2.675, 2), 2.68),
    (call("round", 1e300, 2), 1e300),
    (call("round", 1234.5, -2), 1200.0),
    (call("round", Decimal("2.345"), 2), Decimal("2.350")),
    (call("round", Decimal("-9.5")), Decimal(-10)),
    (call("round", 15, -1), 20),
    (call("round", -15, -1), -20),
    (call("sqrt", -1.0), None),
    (call("sqrt", 2), math.sqrt(2)),
    (call("power", 2, 10), 1024.0),
    (call("power", 0.0, -1.0), None),
    (call("power", -8.0, 1 / 3), None),
    (call("power", -10.0, 309.0), -INF),
    (call("lower", "ÄB"), "äb"),
    (call("upper", "straße"), "STRASSE"),
    (call("length", "ä😀"), 2),
    (call("trim", "  a\t "), "a\t"),
    (call("ltrim", "  a "), "a "),
    (call("rtrim", "  a "), "  a"),
    (call("substring", "abc", 0, 2), "a"),
    (call("substring", "abc", -5), "abc"),
    (call("substring", "abc", 2), "bc"),
    (call("substring", "abc", 2, -1), None),
    (call("substring", "abc", 2**31 - 1, 2**31 - 1), ""),
    (call("replace", "aXbX", "X", ""), "ab"),
    (call("replace", "abc", "", "x"), "abc"),
    (call("||", "a", None), None),
    (call("||", "a", 1), "a1"),
    (call("concat", "a", None, 1.5), "a1.5"),
    (call("concat", None), ""),
    (call("starts_with", "abc", "ab"), True),
    (call("like", "a\nb", "a_b"), True),
    (call("like", "a%b", r"a\%b"), True),
    (call("like", "axb", r"a\%b"), False),
    (call("like", "ab\n", "ab"), False),
    (call("like", "a.b", "a.b"), True),
    (call("like", "axb", "a.b"), False),
    (call("like", "a\\", "a\\"), True),
    (call("like", None, "%"), None),
    (call("+", NOON, timedelta(days=1)), datetime(2024, 5, 16, 12, 34, 56, 789012)),
    (call("+", datetime.max, timedelta(microseconds=1)), None),
    (call("-", NOON, datetime(2024, 5, 15)), 45_296_789_012),
    (call("+", date(2024, 2, 28), 2), date(2024, 3, 1)),
    (call("+", date(2024, 2, 28), GREATEST), None),
    (call("-", date(2024, 3, 1), date(2024, 2, 28)), 2),
    (call("-", date(2024, 3, 1), timedelta(hours=1)), datetime(2024, 2, 29, 23)),
    (call("*", timedelta(hours=1), 36), 129_600_000_000),
    (call("neg", timedelta(hours=1)), -3_600_000_000),
    (call("date_trunc", "WEEK", NOON), datetime(2024, 5, 13)),
    (call("date_trunc", "quarters", NOON), datetime(2024, 4, 1)),
    (call("date_trunc", "milliseconds", NOON), datetime(2024, 5, 15, 12, 34, 56, 789000)),
    (call("year", date(2024, 5, 15)), 2024),
    (call("second", NOON), 56.789012),
    (call("epoch", datetime(1969, 12, 31, 23, 59, 59, 500000)), -0.5),
    (call("&", 12, 10), 8),
    (call("|", 12, 10), 14),
    (call("#", 12, 10), 6),
    (call("~", 5), -6),
    (call("<<", 1, 63), LEAST),
    (call("<<", 1, 64), None),
    (call(">>", -8, 1), -4),
    (call(">>", 8, -1), None),
    (call("trunc", -2.7), -2.0),
    (call("trunc", Decimal("-2.79"), 1), Decimal("-2.70")),
    (call("trunc", 1299, -2), 1200),
    (call("div", -7, 2), -3),
    (call("gcd", 12, -18), 6),
    (call("gcd", LEAST, 0), None),
    (call("lcm", 4, -6), 12),
    (call("lcm", GREATEST, 2), None),
    *((call("cbrt", float(n**3)), float(n)) for n in (-3, 0, 2, 4, 7, 10, 99, 12345)),
    (call("exp", 1000.0), INF),
    (call("ln", 0.0), None),
    (call("ln", NAN), NAN),
    (call("log", 1000), 3.0),
    (call("log", 2, 8), 3.0),
    (call("log", 1, 8), None),
    (call("log2", 2.0**29), 29.0),
    (call("pi"), math.pi),
    (call("sin", INF), None),
    (call("asin", 1.5), None),
    (call("atan2", 1, -1), math.atan2(1, -1)),
    (call("sinh", -1000.0), -INF),
    (call("degrees", math.pi), 180.0),
    (call("width_bucket", 5.35, 0.024, 10.06, 5), 3),
    (call("width_bucket", 10, 10, 0, 4), 1),
    (call("width_bucket", -1, 0, 10, 4), 0),
    (call("width_bucket", 10, 0, 10, 4), 5),
    (call("width_bucket", 1, 0, 0, 4), None),
    (call("isnan", NAN), True),
    (call("isfinite", INF), False),
    (call("ifnull", None, 3), 3),
    (call("left", "abcde", -2), "abc"),
    (call("left", "ab", -5), ""),
    (call("right", "abcde", 2), "de"),
    (call("right", "abcde", -2), "cde"),
    (call("right", "abc", 0), ""),
    (call("lpad", "hi", 5, "xy"), "xyxhi"),
    (call("lpad", "hello", 2), "he"),
    (call("rpad", "hi", 5, "xy"), "hixyx"),
    (call("rpad", "hi", 5, ""), "hi"),
    (call("lpad", "hi", -1), ""),
    (call("lpad", "hi", 2**31 - 1), None),
    (call("repeat", "ab", 3), "ababab"),
    (call("repeat", "ab", -1), ""),
    (call("repeat", "ab", 2**31 - 1), None),
    (call("reverse", "aé😀"), "😀éa"),
    (call("trim", "xyaxx", "yx"), "a"),
    (call("ltrim", "zzyx", "xyz"), ""),
    (call("trim", " a ", ""), " a "),
    (call("translate", "12345", "143", "ax"), "a2x5"),
    (call("overlay", "Txxxxas", "hom", 2, 4), "Thomas"),
    (call("overlay", "abc", "XY", 2), "aXY"),
    (call("overlay", "abc", "X", 0), None),
    (call("split_part", "a~@~b~@~c", "~@~", 2), "b"),
    (call("split_part", "a,b,c", ",", -1), "c"),
    (call("split_part", "a,b,c", ",", 4), ""),
    (call("split_part", "a,b,c", ",", 0), None),
    (call("split_part", "abc", "", 1), "abc"),
    (call("strpos", "hä😀x", "x"), 4),
    (call("strpos", "abc", ""), 1),
    (call("strpos", "abc", "z"), 0),
    (call("contains", "abc", "bc"), True),
    (call("ends_with", "abc", "bc"), True),
    (call("initcap", "hi THOMAS o'neil äß-ÉCOLE 2nd"), "Hi Thomas O'Neil Äß-École 2nd"),
    (call("ascii", "日"), 26085),
    (call("ascii", ""), 0),
    (call("chr", 128512), "😀"),
    (call("chr", 0), None),
    (call("chr", 0xD800), None),
    (call("md5", "abc"), "900150983cd24fb0d6963f7d28e17f72"),
    (call("octet_length", "jösé"), 6),
    (call("concat_ws", ",", "abcde", 2, None, 22), "abcde,2,22"),
    (call("concat_ws", None, "a"), None),
    (call("concat_ws", ",", None), ""),
    (call("like", "10%", "10#%", "#"), True),
    (call("like", "10x", "10#%", "#"), False),
    (call("like", "a\\b", "a\\b", ""), True),
    (call("similar", "abc", "a"), False),
    (call("similar", "abc", "%(b|d)%"), True),
    (call("similar", "abc", "(b|c)%"), False),
    (call("similar", "a.c", "a.c"), True),
    (call("similar", "abc", "a.c"), False),
    (call("similar", "^$", "^$"), True),
    (call("similar", "100%", "[0-9]+#%", "#"), True),
    (call("regexp_like", "Hello", "world"), False),
    (call("regexp_like", "Hello World", "world", "i"), True),
    (call("regexp_like", "a\nb", "a.b"), True),
    (call("regexp_like", "a\nb", "^b"), False),
    (call("regexp_like", "a\nb", "^b", "n"), True),
    (call("regexp_like", "a\n", "a$"), False),
    (call("match", "foobar", "o(.)b"), "o"),
    (call("match", "foobar", "o.b"), "oob"),
    (call("match", "foobar", "x"), None),
    (call("regexp_substr", "foobarbequebaz", "b[^b]+"), "bar"),
    (call("regexp_count", "ABCABCAXYaxy", "A."), 3),
    (call("regexp_count", "abxd", "x*"), 4),
    (call("regexp_replace", "foobarbaz", "b..", "X"), "fooXbaz"),
    (call("regexp_replace", "foobarbaz", "b..", "X", "g"), "fooXX"),
    (call("regexp_replace", "foobarbaz", "b(..)", r"X\1Y", "g"), "fooXarYXazY"),
    (call("regexp_replace", "Abc", "(?i)a", r"[\&$1\\]"), "[A$1\\]bc"),
    (call("regexp_replace", "abxd", "x*", "-", "g"), "-a-b-d-"),
    (call("date_trunc", "decade", NOON), datetime(2020, 1, 1)),
    (call("date_trunc", "centuries", NOON), datetime(2001, 1, 1)),
    (call("date_trunc", "millennium", datetime(2000, 12, 31)), datetime(1001, 1, 1)),
    (call("date_trunc", "decade", datetime(9, 1, 1)), None),
    (call("date_bin", timedelta(minutes=15), NOON, datetime(2001, 1, 1)), datetime(2024, 5, 15, 12, 30)),
    (
        call("date_bin", timedelta(minutes=15), NOON, datetime(2024, 5, 15, 12, 34, 57)),
        datetime(2024, 5, 15, 12, 19, 57),
    ),
    (call("date_bin", timedelta(0), NOON, NOON), None),
    (call("make_date", 2024, 2, 29), date(2024, 2, 29)),
    (call("make_date", 2023, 2, 29), None),
    (call("make_timestamp", 2013, 7, 15, 8, 15, 23.5), datetime(2013, 7, 15, 8, 15, 23, 500000)),
    (call("make_timestamp", 2013, 7, 15, 8, 60, 23.5), None),
    (call("make_timestamp", 2013, 7, 15, 8, 15, 60.0), datetime(2013, 7, 15, 8, 16)),
    (call("make_timestamp", 2013, 7, 15, 24, 0, 1e-6), None),
    (call("to_timestamp", 1284352323), datetime(2010, 9, 13, 4, 32, 3)),
    (call("to_timestamp", INF), None),
    (call("quarter", NOON), 2),
    (call("week", date(2021, 1, 3)), 53),
    (call("isoyear", date(2021, 1, 3)), 2020),
    (call("dow", date(2024, 5, 12)), 0),
    (call("isodow", date(2024, 5, 12)), 7),
    (call("doy", date(2024, 12, 31)), 366),
    (call("milliseconds", NOON), 56789.012),
    (call("microseconds", NOON), 56789012),
    (call("decade", NOON), 202),
    (call("century", datetime(2000, 12, 31)), 20),
    (call("millennium", datetime(2001, 1, 1)), 3),
    (call("epoch", timedelta(hours=1, microseconds=500000)), 3600.5),
    (call("to_char", NOON, "YYYY-MM-DD HH24:MI:SS.MS"), "2024-05-15 12:34:56.789"),
    (call("to_char", NOON, 'Day, DD Month YYYY "at" HH12 AM'), "Wednesday, 15 May       2024 at 12 PM"),
    (
        call("to_char", NOON, "FMDay, FMMonth FMDD Dy DY mon YY Q WW IW DDD D US"),
        "Wednesday, May 15 Wed WED may 24 2 20 20 136 4 789012",
    ),
    (Case(((value(None), value(1)), (value(True), value(2))), value(3), INT), 2),
    (Case(((value(False), value(1)),), value(None), INT), None),
]


@pytest.mark.parametrize(("expression", "wanted"), MEANING, ids=[str(number) for number in range(len(MEANING))])
def test_meaning(expression: Expression, wanted: Value) -> None:
    assert same(evaluate(expression, {}), wanted), f"{expression} is {evaluate(expression, {})!r}, not {wanted!r}"


def test_columns_are_read_from_the_row() -> None:
    assert evaluate(call("+", ColumnRef("a", INT), ColumnRef("b", INT)), {"a": 1, "b": 2}) == 3
    assert evaluate(ColumnRef("a", INT), {"a": None}) is None


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        (" 42\n", INT, 42),
        ("2147483648", INT, None),
        ("+7", BIGINT, 7),
        ("1.0", BIGINT, None),
        ("1_000", BIGINT, None),
        ("٣", BIGINT, None),
        ("", INT, None),
        ("1e3", DOUBLE, 1000.0),
        (".5", DOUBLE, 0.5),
        ("1e999", DOUBLE, None),
        ("-Infinity", DOUBLE, -INF),
        ("NaN", DOUBLE, NAN),
        ("0x10", DOUBLE, None),
        ("1.005", D102, Decimal("1.01")),
        ("-1.005", D102, Decimal("-1.01")),
        ("-0.004", D102, Decimal("0.00")),
        ("12.5e-1", D102, Decimal("1.25")),
        ("99999999.995", D102, None),
        ("1e99999999999", D102, None),
        ("Yes", BOOLEAN, True),
        ("off", BOOLEAN, False),
        ("maybe", BOOLEAN, None),
        ("2024-02-29", DATE, date(2024, 2, 29)),
        ("2023-02-29", DATE, None),
        ("2024-02-29T23:00:00+05:00", DATE, date(2024, 2, 29)),
        ("2024-02-29", TIMESTAMP, datetime(2024, 2, 29)),
        ("2024-02-29 10:11", TIMESTAMP, datetime(2024, 2, 29, 10, 11)),
        ("2024-02-29T10:11:12.5Z", TIMESTAMP, datetime(2024, 2, 29, 10, 11, 12, 500000)),
        ("2024-02-29 10:11:12.1234567-01:30", TIMESTAMP, datetime(2024, 2, 29, 11, 41, 12, 123457)),
        ("2024-12-31 23:59:59.9999999", TIMESTAMP, datetime(2025, 1, 1)),
        ("2024-02-29 24:00:00", TIMESTAMP, None),
        ("0001-01-01 00:00:00+01", TIMESTAMP, None),
        ("yesterday", TIMESTAMP, None),
        (" a ", VARCHAR, " a "),
    ],
)
def test_texts_denote_values(text: str, kind: Type, wanted: Value) -> None:
    assert same(parse(text, kind), wanted)


@pytest.mark.parametrize(
    ("constant", "text"),
    [
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1.5e15, "1.5e+15"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.25e-7, "1.25e-07"),
        (1e300, "1e+300"),
        (INF, "Infinity"),
        (NAN, "NaN"),
        (True, "true"),
        (Decimal("-0.050"), "-0.050"),
        (Decimal("1E-10"), "0.0000000001"),
        (date(5, 1, 2), "0005-01-02"),
        (datetime(2024, 5, 15), "2024-05-15 00:00:00"),
        (datetime(2024, 5, 15, 1, 2, 3, 120000), "2024-05-15 01:02:03.12"),
        (-5, "-5"),
    ],
)
def test_values_as_text(constant: Value, text: str) -> None:
    assert show(constant) == text


@pytest.mark.parametrize(
    ("constant", "kind", "wanted"),
    [
        (0.5, BIGINT, 0),
        (1.5, INT, 2),
        (2.5, INT, 2),
        (2.0**63, BIGINT, None),
        (NAN, INT, None),
        (Decimal("2.5"), INT, 3),
        (Decimal("-2.5"), INT, -3),
        (Decimal("2.345"), D102, Decimal("2.35")),
        (2.675, D102, Decimal("2.68")),
        (INF, D102, None),
        (123456789, decimal(5, 0), None),
        (True, INT, 1),
        (7, BOOLEAN, True),
        (NOON, DATE, date(2024, 5, 15)),
        (date(2024, 5, 15), TIMESTAMP, datetime(2024, 5, 15)),
        (Decimal("0.1"), DOUBLE, 0.1),
        (None, INT, None),
    ],
)
def test_casts(constant: Value, kind: Type, wanted: Value) -> None:
    assert same(evaluate(Cast(value(constant), kind), {}), wanted)


# ---- DuckDB, where it agrees with PostgreSQL -------------------------------------------------------------------------

AGREED: list[tuple[str, Expression]] = [
    ("7 // -2", call("/", 7, -2)),
    ("-7 % 2", call("%", -7, 2)),
    ("7 % -2", call("%", 7, -2)),
    ("1.10::DECIMAL(4,2) + 2.205::DECIMAL(6,3)", call("+", Decimal("1.10"), Decimal("2.205"))),
    ("1.10::DECIMAL(4,2) * 2.205::DECIMAL(6,3)", call("*", Decimal("1.10"), Decimal("2.205"))),
    ("1.10::DECIMAL(4,2) - 3", call("-", Decimal("1.10"), 3)),
    ("'nan'::DOUBLE = 'nan'::DOUBLE", call("=", NAN, NAN)),
    ("'nan'::DOUBLE > 'inf'::DOUBLE", call(">", NAN, INF)),
    ("NULL OR true", call("or", None, True)),
    ("NULL AND true", call("and", None, True)),
    ("1 IN (2, NULL)", call("in", 1, 2, None)),
    ("1 NOT IN (2, NULL)", call("not", call("in", 1, 2, None))),
    ("'B' < 'a'", call("<", "B", "a")),
    ("greatest(1, NULL, 3)", call("greatest", 1, None, 3)),
    ("least(2, NULL, 3)", call("least", 2, None, 3)),
    ("nullif(2, 2)", call("nullif", 2, 2)),
    ("concat('a', NULL, 'b')", call("concat", "a", None, "b")),
    ("'a' || NULL", call("||", "a", None)),
    ("substring('abcdef', 2, 3)", call("substring", "abcdef", 2, 3)),
    ("replace('aXbX', 'X', 'yy')", call("replace", "aXbX", "X", "yy")),
    ("upper('äb')", call("upper", "äb")),
    ("length('ä😀')", call("length", "ä😀")),
    ("trim('  a b ')", call("trim", "  a b ")),
    ("starts_with('abc', 'ab')", call("starts_with", "abc", "ab")),
    ("'50%' LIKE '50\\%' ESCAPE '\\'", call("like", "50%", "50\\%")),
    ("'a\nbc' LIKE 'a_b%'", call("like", "a\nbc", "a_b%")),
    ("round(2.5::DOUBLE)", call("round", 2.5)),
    ("round(-2.5::DOUBLE)", call("round", -2.5)),
    ("round(2.345::DECIMAL(5,3), 2)", call("round", Decimal("2.345"), 2)),
    ("floor(-1.5::DOUBLE)", call("floor", -1.5)),
    ("ceil(-1.5::DOUBLE)", call("ceil", -1.5)),
    ("sqrt(2)", call("sqrt", 2)),
    ("power(2, 0.5)", call("power", 2, 0.5)),
    ("abs(-5)", call("abs", -5)),
    ("2.5::DOUBLE::INTEGER", Cast(value(2.5), INT)),
    ("3.5::DOUBLE::INTEGER", Cast(value(3.5), INT)),
    ("2.5::DECIMAL(3,1)::INTEGER", Cast(value(Decimal("2.5")), INT)),
    ("' 12 '::INTEGER", Cast(value(" 12 "), INT)),
    ("true::VARCHAR", Cast(value(True), VARCHAR)),
    ("TIMESTAMP '2024-05-15 01:02:03.120000'::VARCHAR", Cast(value(datetime(2024, 5, 15, 1, 2, 3, 120000)), VARCHAR)),
    ("1e300::DOUBLE::VARCHAR", Cast(value(1e300), VARCHAR)),
    ("0.00001::DOUBLE::VARCHAR", Cast(value(0.00001), VARCHAR)),
    ("TIMESTAMP '2024-05-15 12:34:00' + INTERVAL 36 HOUR", call("+", datetime(2024, 5, 15, 12, 34), timedelta(1.5))),
    ("DATE '2024-02-28' + 2", call("+", date(2024, 2, 28), 2)),
    ("DATE '2024-03-01' - DATE '2024-02-28'", call("-", date(2024, 3, 1), date(2024, 2, 28))),
    *(
        (f"date_trunc('{unit}', TIMESTAMP '2024-05-15 12:34:56.789012')::TIMESTAMP", call("date_trunc", unit, NOON))
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    ),
    ("12 & 10", call("&", 12, 10)),
    ("12 | 10", call("|", 12, 10)),
    ("xor(12, 10)", call("#", 12, 10)),
    ("~5", call("~", 5)),
    ("1 << 10", call("<<", 1, 10)),
    ("-8 >> 1", call(">>", -8, 1)),
    ("trunc(-2.7::DOUBLE)", call("trunc", -2.7)),
    ("gcd(12, -18)", call("gcd", 12, -18)),
    ("lcm(4, 6)", call("lcm", 4, 6)),
    ("cbrt(8)", call("cbrt", 8)),
    ("exp(1)", call("exp", 1)),
    ("ln(10)", call("ln", 10)),
    ("log(1000)", call("log", 1000)),
    ("log10(1000)", call("log10", 1000)),
    ("log2(1024)", call("log2", 1024)),
    ("pi()", call("pi")),
    *((f"{name}(0.5)", call(name, 0.5)) for name in
      ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians")),
    ("atan2(1, -1)", call("atan2", 1, -1)),
    ("isnan('nan'::DOUBLE)", call("isnan", NAN)),
    ("isinf('-inf'::DOUBLE)", call("isinf", -INF)),
    ("isfinite('inf'::DOUBLE)", call("isfinite", INF)),
    ("ifnull(NULL, 3)", call("ifnull", None, 3)),
    ("left('abcde', -2)", call("left", "abcde", -2)),
    ("right('abcde', -2)", call("right", "abcde", -2)),
    ("lpad('hi', 7, 'xyz')", call("lpad", "hi", 7, "xyz")),
    ("rpad('hello', 2, ' ')", call("rpad", "hello", 2)),
    ("repeat('ab', 3)", call("repeat", "ab", 3)),
    ("reverse('abc')", call("reverse", "abc")),
    ("trim('xyaxx', 'yx')", call("trim", "xyaxx", "yx")),
    ("translate('12345', '143', 'ax')", call("translate", "12345", "143", "ax")),
    ("split_part('a,b,c', ',', 2)", call("split_part", "a,b,c", ",", 2)),
    ("split_part('a,b,c', ',', -1)", call("split_part", "a,b,c", ",", -1)),
    ("strpos('hä😀x', 'x')", call("strpos", "hä😀x", "x")),
    ("contains('abc', 'bc')", call("contains", "abc", "bc")),
    ("ends_with('abc', 'bc')", call("ends_with", "abc", "bc")),
    ("ascii('日')", call("ascii", "日")),
    ("chr(128512)", call("chr", 128512)),
    ("md5('abc')", call("md5", "abc")),
    ("strlen('jösé')", call("octet_length", "jösé")),
    ("concat_ws(',', 'a', NULL, 'b')", call("concat_ws", ",", "a", None, "b")),
    ("'10%' LIKE '10#%' ESCAPE '#'", call("like", "10%", "10#%", "#")),
    ("regexp_matches('Hello World', 'world', 'i')", call("regexp_like", "Hello World", "world", "i")),
    ("regexp_replace('foobarbaz', 'b(..)', 'X\\1Y', 'g')", call("regexp_replace", "foobarbaz", "b(..)", r"X\1Y", "g")),
    ("regexp_extract('foobar', 'o(.)b', 1)", call("match", "foobar", "o(.)b")),
    ("len(regexp_extract_all('ABCABCAXYaxy', 'A.'))", call("regexp_count", "ABCABCAXYaxy", "A.")),
    ("make_date(2024, 2, 29)", call("make_date", 2024, 2, 29)),
    ("make_timestamp(2013, 7, 15, 8, 15, 23.5)", call("make_timestamp", 2013, 7, 15, 8, 15, 23.5)),
    ("to_timestamp(1284352323)::TIMESTAMP", call("to_timestamp", 1284352323)),
    ("time_bucket(INTERVAL 15 MINUTE, TIMESTAMP '2024-05-15 12:34:56', TIMESTAMP '2001-01-01')",
     call("date_bin", timedelta(minutes=15), datetime(2024, 5, 15, 12, 34, 56), datetime(2001, 1, 1))),
    *((f"date_part('{part}', TIMESTAMP '2024-05-12 12:34:56')", call(part, datetime(2024, 5, 12, 12, 34, 56)))
      for part in ("year", "isoyear", "quarter", "month", "week", "day", "doy", "dow", "isodow", "hour", "minute",
                   "second", "milliseconds", "microseconds", "decade", "century", "millennium", "epoch")),
    *((f"date_trunc('{unit}', TIMESTAMP '2024-05-15 12:34:56')::TIMESTAMP", call("date_trunc", unit, NOON))
      for unit in ("decade",)),  # DuckDB's centuries begin with the years 0, 100, …
    ("strftime(TIMESTAMP '2024-05-05 09:04:06.007', '%Y-%m-%d %H:%M:%S.%g %a %b %j')",
     call("to_char", datetime(2024, 5, 5, 9, 4, 6, 7000), "YYYY-MM-DD HH24:MI:SS.MS Dy Mon DDD")),
    ("epoch(TIMESTAMP '1969-12-31 23:59:59.5')", call("epoch", datetime(1969, 12, 31, 23, 59, 59, 500000))),
    ("CASE WHEN NULL THEN 1 ELSE 2 END", Case(((value(None), value(1)),), value(2), INT)),
]  # fmt: skip


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@pytest.mark.parametrize(("sql", "expression"), AGREED, ids=[sql for sql, _ in AGREED])
def test_duckdb_agrees(database: duckdb.DuckDBPyConnection, sql: str, expression: Expression) -> None:
    row = database.execute(f"SELECT {sql}").fetchone()
    assert row is not None
    ours = evaluate(expression, {})
    assert ours == row[0], f"{sql} is {row[0]!r} in DuckDB, {ours!r} here"


# ---- aggregates ------------------------------------------------------------------------------------------------------


_PARAMETERS: dict[str, Value] = {"percentile_cont": 0.5, "percentile_disc": 0.5, "string_agg": ", "}


def over(function: str, kind: Type, *content: Value) -> Value:
    result = aggregate_type(function, kind)
    call = AggregateCall(function, ColumnRef("x", kind), result, parameter=_PARAMETERS.get(function))
    return aggregate(call, [{"x": value} for value in content])


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        ("count", None, BIGINT),
        ("count", VARCHAR, BIGINT),
        ("sum", INT, BIGINT),
        ("sum", BIGINT, D380),
        ("sum", D102, decimal(38, 2)),
        ("sum", DOUBLE, DOUBLE),
        ("avg", INT, DOUBLE),
        ("avg", D102, DOUBLE),
        ("min", BOOLEAN, BOOLEAN),
        ("max", TIMESTAMP, TIMESTAMP),
        ("array_agg", INT, array_of(INT)),
        ("array_agg", NULL, array_of(VARCHAR)),
        ("count", array_of(INT), BIGINT),
    ],
)
def test_aggregate_types(function: str, argument: Type | None, result: Type) -> None:
    assert aggregate_type(function, argument) == result


@pytest.mark.parametrize(
    ("function", "argument", "message"),
    [
        ("sum", VARCHAR, "sum does not accept (VARCHAR)"),
        ("avg", INTERVAL, "avg does not accept (INTERVAL)"),
        ("max", None, "max needs an argument"),
        ("stddev_samp", VARCHAR, "stddev_samp does not accept (VARCHAR)"),
        ("string_agg", INT, "string_agg does not accept (INT)"),
        ("max", array_of(D102), "max does not accept (DECIMAL(10,2)[])"),
        ("array_agg", array_of(INT), "array_agg does not accept (INT[])"),
        ("array_agg", INTERVAL, "array_agg does not accept (INTERVAL)"),
    ],
)
def test_aggregates_refuse(function: str, argument: Type | None, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        aggregate_type(function, argument)
    assert caught.value.message == message


def test_an_empty_group_counts_nothing_and_has_no_other_value() -> None:
    # The binder gives those other names, and ARRAY_AGG another argument.
    for function in set(AGGREGATES) - set(SAME_AS) - {"median", "array_agg"}:
        kind = VARCHAR if function == "string_agg" else INT
        assert over(function, kind) == (0 if function == "count" else None)
        assert over(function, kind, None, None) == (0 if function == "count" else None)
    assert aggregate(AggregateCall("count", None, BIGINT), [{}, {}, {}]) == 3


def test_array_agg_keeps_nulls_that_are_values() -> None:
    call = AggregateCall("array_agg", ColumnRef("x", array_of(INT)), array_of(INT))
    assert aggregate(call, [{"x": x} for x in ((2,), None, (None,), (1,), (None,))]) == (1, 2, None, None)
    once = replace(call, distinct=True)
    assert aggregate(once, [{"x": x} for x in ((2,), None, (None,), (2,), (None,))]) == (2, None)
    assert aggregate(call, []) is aggregate(call, [{"x": None}]) is None


def test_aggregates_of_truth_values_are_the_least_and_the_greatest() -> None:
    assert SAME_AS == {"bool_and": "min", "every": "min", "bool_or": "max"}
    for function, by_order in SAME_AS.items():
        assert aggregate_type(function, BOOLEAN) == aggregate_type(by_order, BOOLEAN) == BOOLEAN


@pytest.mark.parametrize(
    ("function", "kind", "content", "wanted"),
    [
        ("count", INT, (1, None, 1), 2),
        ("sum", INT, (2**31 - 1, 2**31 - 1, None), 2**32 - 2),
        ("sum", BIGINT, (GREATEST, GREATEST), Decimal(2**64 - 2)),
        ("sum", D380, (Decimal(10**38 - 1), Decimal(1)), None),
        ("sum", D102, (Decimal("0.10"), Decimal("0.25")), Decimal("0.35")),
        ("sum", DOUBLE, (1e16, 1.0, -1e16), 1.0),
        ("sum", DOUBLE, (0.1,) * 10, 1.0),
        ("sum", DOUBLE, (1e308, 1e308, -1e308), 1e308),
        ("sum", DOUBLE, (1e308, 1e308), INF),
        ("sum", DOUBLE, (INF, 1.0), INF),
        ("sum", DOUBLE, (INF, -INF), NAN),
        ("sum", DOUBLE, (NAN, INF), NAN),
        ("avg", INT, (1, 2), 1.5),
        ("avg", BIGINT, (GREATEST, GREATEST), float(GREATEST)),
        ("avg", D102, (Decimal("0.10"), Decimal("0.20")), 0.15),
        ("avg", DOUBLE, (1e16, 1.0, -1e16), 1 / 3),
        ("avg", DOUBLE, (INF, -INF), NAN),
        ("min", DOUBLE, (NAN, 1.0), 1.0),
        ("max", DOUBLE, (NAN, INF), NAN),
        ("max", VARCHAR, ("Z", "a", None), "a"),
        ("min", BOOLEAN, (True, False), False),
        ("max", DATE, (date.min, date.max), date.max),
        ("var_pop", INT, (1, 2, 3, 4), 1.25),
        ("var_samp", INT, (1, 2, 3, 4), 5 / 3),
        ("var_samp", INT, (1,), None),
        ("stddev_pop", DOUBLE, (2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0), 2.0),
        ("stddev_samp", DOUBLE, (0.1, 0.1, 0.1), 0.0),
        ("var_pop", DOUBLE, (1.0, INF), NAN),
        ("percentile_cont", INT, (1, 2, 10, 20), 6.0),
        ("percentile_cont", DOUBLE, (INF, INF), INF),
        ("percentile_disc", VARCHAR, ("c", "a", None, "b"), "b"),
        ("mode", INT, (3, 1, 3, 1, 2), 1),
        ("string_agg", VARCHAR, ("b", None, "a"), "a, b"),
    ],
)
def test_aggregates(function: str, kind: Type, content: tuple[Value, ...], wanted: Value) -> None:
    assert same(over(function, kind, *content), wanted)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12), st.randoms())
def test_sums_of_doubles_do_not_depend_on_the_order(content: list[float], dice: random.Random) -> None:
    total, mean = over("sum", DOUBLE, *content), over("avg", DOUBLE, *content)
    shuffled = dice.sample(content, len(content))
    assert (total, mean) == (over("sum", DOUBLE, *shuffled), over("avg", DOUBLE, *shuffled))
    assert isinstance(total, float)
    assert mean == total / len(content)
    if math.isfinite(total):
        assert total == float(sum(map(Fraction, content)))


@given(st.lists(st.floats(), min_size=1))
def test_compare_is_a_total_order(content: list[float]) -> None:
    for a in content:
        assert compare(a, a) == 0
        for b in content:
            assert compare(a, b) == -compare(b, a)
    ordered = sorted((x for x in content if x == x), key=float) + [x for x in content if x != x]
    assert all(compare(a, b) <= 0 for a, b in itertools.pairwise(ordered))


@given(st.floats())
def test_a_double_comes_back_from_its_text(number: float) -> None:
    assert same(parse(show(number), DOUBLE), number)
