"""The fast path means what `algebra.evaluate` says: for every expression and every row."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Context, Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
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
from strandline.functions.calendars import UNITS
from strandline.functions.casts import cast_text
from strandline.functions.datetimes import TRUNC_UNITS
from strandline.functions.evaluate import evaluate
from strandline.functions.registry import FUNCTIONS, resolve
from strandline.functions.signatures import FunctionError, castable, meet
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, Value, columns_of
from strandline.logical.values import parse
from strandline.runtime.expressions.compile import compile_expression, evaluate_columns, filter_frame
from strandline.runtime.kernels.columns import polars_type

# ---- values ----------------------------------------------------------------------------------------------------------

FIRST: dict[str, Type] = {
    "truth": BOOLEAN,
    "small": INT,
    "large": BIGINT,
    "double": DOUBLE,
    "money": decimal(10, 2),
    "wide": decimal(38, 0),
    "deep": decimal(38, 30),
    "unit": decimal(5, 5),
    "text": VARCHAR,
    "day": DATE,
    "ts": TIMESTAMP,
    "span": INTERVAL,
    "ints": array_of(INT),
    "doubles": array_of(DOUBLE),
    "words": array_of(VARCHAR),
}
COLUMNS = {
    f"{column_id}{number if number > 1 else ''}": kind for number in range(1, 7) for column_id, kind in FIRST.items()
}

# Letters whose case mapping is old and settled, what LIKE, regular expressions and numbers treat specially, and some
# that need two or four bytes.
ALPHABET = "aAbzZäÄßΣσςıİ%_\\.*+?()[]{}^$|# \t\n\"'0159-eE:TZxX😀日\uffff\0"
WORDS = ("", " ", "true", "f", " ON ", "12", "-7", "+3.50", "1e3", ".5", "2.675", "nan", "-Infinity", "1e400",
         "2024-02-29", "2023-02-29", "2024-01-31 23:59:59.9999996", "2024-01-01T10:00:00+02:30", "0001-01-01 00:00+01",
         "2024-01-01 10:00-24:00", "2024-01-01 10:60", "0e999",
         "9223372036854775808", "99999999999999999999999999999999999999.5", "a%b", "a\\%b", "%_", "ΑΣ")  # fmt: skip


def doubles() -> st.SearchStrategy[float]:
    near = st.sampled_from(
        [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 2.0, 3.0, 2.675, 1e15, 1e16, 1e-5, 123456.75, 2.0**53, 2.0**63, 1e37, 5e-324]
    )
    return near | st.floats(allow_nan=True, allow_infinity=True) | st.floats(-100, 100)


def timestamp_texts() -> st.SearchStrategy[str]:
    day = st.from_regex(r"(0000|0001|1969|2024|9999)-(0[0-9]|1[0-3])-(0[0-9]|[12][0-9]|3[0-2])", fullmatch=True)
    clock = st.from_regex(r"([Tt ](1[0-9]|2[0-4]):(0|5|6)[0-9](:(00|59|60)(\.[0159]{1,8})?)?)?", fullmatch=True)
    zone = st.sampled_from(["", "", "Z", "z", " Z", "+01", "-0130", "+05:45", "+23:59", "-24:00", "+0", "+01:60"])
    return st.tuples(day, clock, zone).map("".join)


def number_texts() -> st.SearchStrategy[str]:
    return st.from_regex(r" ?[+-]?[0-9]{0,3}(\.[0-9]{0,4})?([eE][+-]?[0-9]{1,3})? ?", fullmatch=True) | st.text(
        "015+-.eE_ nafi", max_size=6
    )


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(WORDS) | st.text(ALPHABET, max_size=6) | number_texts() | timestamp_texts()


def integers(bits: int) -> st.SearchStrategy[int]:
    top = 2 ** (bits - 1)
    return st.integers(-12, 12) | st.integers(-top, top - 1) | st.sampled_from([-top, top - 1, 10**6, -(10**9)])


def decimals(kind: Type) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    unscaled = st.integers(-top, top) | st.integers(-999, 999) | st.sampled_from([top, -top, top // 2])
    return unscaled.map(lambda n: Decimal(n).scaleb(-kind.scale, Context(prec=60)))


def values(kind: Type) -> st.SearchStrategy[Value]:
    if kind.element is not None:
        return st.lists(st.none() | values(kind.element), max_size=4).map(tuple)
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
            return texts()
        case "DATE":
            return st.dates() | st.sampled_from([date.min, date.max, date(2024, 2, 29), date(1969, 12, 31)])
    return st.datetimes() | st.sampled_from(
        [datetime.min, datetime.max, datetime(2024, 2, 29, 23, 59, 59, 120000), datetime(1969, 12, 31, 23, 59, 59, 1)]
    )


VALUES = {column_id: values(kind) for column_id, kind in COLUMNS.items()}


def frame_of(content: Sequence[dict[str, Value]]) -> pl.DataFrame:
    columns = tuple(content[0]) if content else tuple(COLUMNS)
    if not columns:
        return pl.DataFrame(height=len(content))
    return pl.DataFrame(
        {
            column_id: pl.Series([row[column_id] for row in content], dtype=polars_type(COLUMNS[column_id]))
            for column_id in columns
        }
    )


# ---- expressions -----------------------------------------------------------------------------------------------------

TYPES = (BOOLEAN, INT, BIGINT, DOUBLE, decimal(10, 2), VARCHAR, DATE, TIMESTAMP, INTERVAL, array_of(INT))


def signatures() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """For each type name the functions that return it, with the type names that they take."""
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for function in FUNCTIONS.values():
        for count in range(function.min_arguments, (function.max_arguments or 3) + 1):
            accepted: dict[str, list[tuple[str, ...]]] = {}
            # There are too many combinations of four types and more: those that it casts to, then.
            few = count <= 3
            for types in itertools.product(TYPES, repeat=count) if few else [wanted_types(function.name, count)]:
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


def wanted_types(function: str, count: int) -> tuple[Type, ...]:
    return resolve(function, (NULL,) * count).argument_types


SIGNATURES = signatures()

# Arguments that must be literals, by their places; each choice is tried.
PATTERNS = (
    "a",
    "a|ab",
    "^a*$",
    "(?i)Z|ä",
    "[[:alpha:]]+",
    r"(\d+)[.-]?(\d*)",
    "(a)?(b)?",
    "x*",
    r"[^a\s]",
    "(?n)^.$",
    "",
)
DIGITS = (-400, -308, -45, -39, -19, -2, 0, 1, 2, 6, 29, 38, 45, 308, 400, None)
REGEXP_LIKE: list[dict[int, Value]] = [{1: p, 2: flags} for p in PATTERNS for flags in ("", "i", "n")]
REGEXP_LIKE += [{1: "a", 2: None}]
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", None)
JSON_FUNCTIONS = [name for name in FUNCTIONS if name.startswith("json_")]
KNOWN: dict[str, list[dict[int, Value]]] = {
    "date_trunc": [{0: unit} for unit in TRUNC_UNITS],
    **{name: [{0: unit} for unit in UNITS] for name in ("date_diff", "timestampdiff", "date_add")},
    **{name: [{1: zone} for zone in ZONES] for name in ("from_utc_timestamp", "to_utc_timestamp")},
    **{name: [{1: path} for path in ("$.a", "$.a.b[1]", '$."x y"', "$[0]", "$[-1]", None)] for name in JSON_FUNCTIONS},
    "round": [{1: digits} for digits in DIGITS],
    "trunc": [{1: digits} for digits in DIGITS],
    "translate": [{1: "a%äb", 2: "😀."}, {1: "aab", 2: "xyz"}, {1: "", 2: "x"}, {1: None, 2: "x"}],
    "like": [{2: "\\"}, {2: "#"}, {2: ""}, {2: None}],
    "similar": [{1: "a%", 2: "\\"}, {1: "(a|b)+_?", 2: "#"}, {1: "#%%", 2: "#"}, {1: "[0-9.]*", 2: ""},
                {1: None, 2: ""}],
    "regexp_like": REGEXP_LIKE,
    "match": [{1: p} for p in PATTERNS],
    "regexp_substr": [{1: p} for p in PATTERNS],
    "regexp_count": [{1: p} for p in PATTERNS],
    "regexp_replace": [{1: p, 2: r"<\1$1\&\\\x>", 3: flags} for p in PATTERNS for flags in ("", "g", "gi")],
    "to_char": [{1: form} for form in ("", 'YYYY-MM-DD"T"HH24:MI:SS.US', "FMDay, DD Month YYYY Q",
                                       "Dy dy DY Mon W WW IW",
                                       "HH12:MI:SS AM a.m. MS", "FMMM/FMDD/YY Y YYY", "D ID DDD J CC IYYY SSSS", None)],
}  # fmt: skip


def with_known(function: str, arguments: Sequence[Expression], known: dict[int, Value]) -> list[Expression]:
    places = {place: value for place, value in known.items() if place < len(arguments)}
    kind = INT if function in ("round", "trunc") else VARCHAR
    return [Literal(places[n], kind) if n in places else argument for n, argument in enumerate(arguments)]


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
        if function in KNOWN:
            arguments = with_known(function, arguments, draw(st.sampled_from(KNOWN[function])))
        try:
            return call(function, *arguments)
        except FunctionError:  # a product with too many digits
            return arguments[0] if arguments[0].type.name == name else Literal(None, kinds[0])
    if how == "cast":
        source = draw(st.sampled_from([kind for kind in TYPES if castable(kind, kinds[0])]))
        operand, target = draw(expressions(source.name, depth - 1)), draw(st.sampled_from(kinds))
        return Cast(operand, target) if castable(operand.type, target) else Literal(None, target)
    if how == "case":
        branch, other = draw(expressions(name, depth - 1)), draw(expressions(name, depth - 1))
        kind = meet([branch.type, other.type])
        if kind is not None and kind.name == name:
            condition = draw(expressions("BOOLEAN", depth - 1))
            return Case(((condition, fit(branch, kind)),), fit(other, kind), kind)
    ids = [column_id for column_id, kind in COLUMNS.items() if kind.name == name]
    if draw(st.integers(0, 4)) > 0:
        column_id = draw(st.sampled_from(ids))
        return ColumnRef(column_id, COLUMNS[column_id])
    kind = draw(st.sampled_from(kinds))
    return Literal(draw(st.none() | values(kind)), kind)


@st.composite
def cases(draw: st.DrawFn, depth: int) -> tuple[Expression, list[dict[str, Value]]]:
    """An expression of any type, and rows with the columns that it reads."""
    expression = draw(expressions(draw(st.sampled_from([kind.name for kind in TYPES])), depth))
    row = st.fixed_dictionaries(
        {column_id: st.none() | VALUES[column_id] for column_id in sorted(columns_of(expression))}
    )
    return expression, draw(st.lists(row, max_size=5))


def same(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def check(expression: Expression, content: Sequence[dict[str, Value]]) -> None:
    compare(expression, content, frame_of(content))


def compare(expression: Expression, content: Sequence[dict[str, Value]], frame: pl.DataFrame) -> None:
    result = evaluate_columns(frame, [("result", expression)])["result"]
    assert result.dtype == polars_type(expression.type)
    wanted = [evaluate(expression, row) for row in content]
    for row, got, want in zip(content, result.to_list(), wanted, strict=True):
        assert same(got, want), f"{expression}\nover {row}\nis {got!r}, not {want!r}"


# ---- the law ---------------------------------------------------------------------------------------------------------

LAW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

Rows = list[dict[str, Value]]


@LAW
@given(cases(depth=1))
def test_a_function_over_columns_is_the_function_over_each_row(case: tuple[Expression, Rows]) -> None:
    check(*case)


@LAW
@given(cases(depth=3))
def test_an_expression_over_columns_is_the_expression_over_each_row(case: tuple[Expression, Rows]) -> None:
    check(*case)


def edges(kind: Type) -> list[Value]:
    """Values at which something may go wrong, for a denser look than random examples give."""
    if kind.element is not None:
        some = edges(kind.element)
        return [
            (),
            (None,),
            tuple(some[:2]),
            (some[0], None, some[0]),
            tuple(some),
            (1,) if kind.element == INT else (),
        ]
    match kind.name:
        case "BOOLEAN":
            return [True, False]
        case "INT":
            return [-(2**31), 2**31 - 1, 0, 1, -1, 2, -3, 7, 10, 100]
        case "BIGINT" | "INTERVAL":
            return [-(2**63), 2**63 - 1, 0, 1, -1, 2, -3, 7, 10, 2**31, 3037000500, 2**53 + 1, 86_400_000_000]
        case "DOUBLE":
            special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 2.0**63, 1e15, 1e38]
            return [*special, 0.5, -0.5, 1.5, 2.5, -2.5, 2.675, 1 / 3, 3.0, 9.0, 0.1, -7.3, 1e-5, 1.5e-7, 123456.789]
        case "DECIMAL":
            top = 10**kind.precision - 1
            unscaled = [top, -top, top // 2 + 1, 0, 1, -1, 5, -15, 25, 49, 50, -50, 149, 150, 12345]
            exact = Context(prec=60)
            return [Decimal(n).scaleb(-kind.scale, exact) for n in unscaled if abs(n) <= top]
        case "VARCHAR":
            return [*WORDS, "ab", "aab", "a", "%", "_", "a_", "\\", "A.B", "é", "😀x", "ẞß"]
        case "DATE":
            return [date.min, date.max, date(2024, 2, 29), date(1969, 12, 31), date(2023, 12, 31)]
    late = [datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(2023, 11, 5, 12, 30, 15, 250000), datetime.max]
    return [*late, datetime.min, datetime(1969, 12, 31, 23, 59, 59, 1), datetime(1900, 1, 1)]


def grid(columns: Sequence[str], height: int = 400) -> Rows:
    """All combinations of edges of these columns, or some if there are too many."""
    choices = [[None, *edges(COLUMNS[column_id])] for column_id in columns]
    if math.prod(map(len, choices)) <= 2 * height:
        return [dict(zip(columns, row, strict=True)) for row in itertools.product(*choices)]
    dice = random.Random(4)
    return [
        {column_id: dice.choice(some) for column_id, some in zip(columns, choices, strict=True)} for _ in range(height)
    ]


GRID = grid(tuple(FIRST))


def accepts(function: str, ids: Sequence[str]) -> bool:
    try:
        resolve(function, [COLUMNS[column_id] for column_id in ids])
    except FunctionError:
        return False
    return True


def calls_of(function: str) -> list[Expression]:
    """The function over columns of every combination of types it takes; the second argument also as a constant."""
    dice = random.Random(function)
    found: list[Expression] = []
    kinds = [types for signatures in SIGNATURES.values() for name, types in signatures if name == function]
    for names in kinds:
        choices = [[column_id for column_id, kind in FIRST.items() if kind.name == name] for name in names]
        ids = [dice.choice(some) for some in choices]
        while "ARRAY" in names and not accepts(function, ids):  # its elements have to fit, too
            ids = [dice.choice(some) for some in choices]
        places = [f"{column_id}{number}" if number > 1 else column_id for number, column_id in enumerate(ids, 1)]
        arguments: list[Expression] = [ColumnRef(column_id, COLUMNS[column_id]) for column_id in places]
        if function in KNOWN and with_known(function, arguments, KNOWN[function][0]) != arguments:
            found += [call(function, *with_known(function, arguments, known)) for known in KNOWN[function]]
        elif not arguments:
            found.append(call(function))
        elif "*" not in function or {"deep"} != set(ids):  # their product has too many digits
            constant = Literal(dice.choice(edges(arguments[-1].type)), arguments[-1].type)
            found += [call(function, *arguments), call(function, *arguments[:-1], constant)]
            if len(arguments) > 1:
                constant = Literal(dice.choice(edges(arguments[0].type)), arguments[0].type)
                found.append(call(function, constant, *arguments[1:]))
    return found


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_at_the_edges(function: str) -> None:
    for expression in calls_of(function):
        check(expression, grid(sorted(columns_of(expression))))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_column_with_one_value_for_all_rows_is_a_column(function: str) -> None:
    """Polars keeps such a column as one value, and has forgotten before how many rows it stands for."""
    for expression in calls_of(function):
        for row in grid(sorted(columns_of(expression)), height=4)[:8]:
            compare(expression, [row] * 3, frame_of([row])[np.zeros(3, dtype=np.int64)])


@pytest.mark.parametrize("column_id", FIRST)
def test_every_cast_at_the_edges(column_id: str) -> None:
    for target in {*TYPES, *COLUMNS.values(), decimal(38, 1), decimal(38, 38), decimal(3, 1)}:
        if castable(COLUMNS[column_id], target):
            check(Cast(ColumnRef(column_id, COLUMNS[column_id]), target), grid([column_id]))


# ---- texts of files --------------------------------------------------------------------------------------------------

TARGETS = (BOOLEAN, INT, BIGINT, DOUBLE, decimal(10, 2), decimal(38, 0), decimal(38, 20), VARCHAR, DATE, TIMESTAMP)


@LAW
@given(st.lists(st.none() | texts(), max_size=8), st.sampled_from(TARGETS))
def test_text_columns_are_parsed_as_single_texts_are(content: list[str | None], kind: Type) -> None:
    parsed = pl.DataFrame({"t": pl.Series(content, dtype=pl.String)}).select(cast_text(pl.col("t"), kind))["t"]
    assert parsed.dtype == polars_type(kind)
    for text, got in zip(content, parsed.to_list(), strict=True):
        want = None if text is None else parse(text, kind)
        assert same(got, want), f"{text!r} as {kind} is {got!r}, not {want!r}"


@pytest.mark.parametrize(
    ("kind", "plain", "odd"),
    [
        (TIMESTAMP, ["2024-02-29 12:00:00", "1999-12-31T23:59:59.5", None], "2023-02-29 12:00:00"),
        (TIMESTAMP, ["2024-02-29T12:00:00Z", "0001-01-01T00:00:00.000001+00:00", None], "0001-01-01T00:00:00+00:01"),
        (TIMESTAMP, ["2024-02-29 12:00:00"], "2024-02-29T12:00:00+02"),
        (DATE, ["2024-02-29", "0001-01-01"], "0000-12-31"),
        (decimal(6, 2), ["1.25", "-12", "+0.5", None], "1.005"),
        (DOUBLE, ["1.5", "Infinity", "-inf"], "1e999"),
    ],
)
def test_one_odd_text_does_not_change_its_neighbours(kind: Type, plain: list[str | None], odd: str) -> None:
    # Uniform columns take a shorter way; the answer must not tell which way was taken.
    for content in (plain, [*plain, odd], [odd, *plain]):
        parsed = pl.DataFrame({"t": content}, schema={"t": pl.String}).select(cast_text(pl.col("t"), kind))["t"]
        assert parsed.to_list() == [None if text is None else parse(text, kind) for text in content]


# ---- frames ----------------------------------------------------------------------------------------------------------

SMALL, LARGE, DOUBLES, TRUTH = (
    ColumnRef(column_id, COLUMNS[column_id]) for column_id in ("small", "large", "double", "truth")
)


@pytest.mark.parametrize("height", [0, 1, 3])
def test_a_constant_is_as_long_as_the_frame(height: int) -> None:
    frame = frame_of(GRID[:height])
    seven = call("+", Literal(3, INT), Literal(4, INT))
    result = evaluate_columns(frame, [("seven", seven), ("none", Literal(None, VARCHAR))], keep=["small"])
    assert result.columns == ["seven", "none", "small"]
    assert result.dtypes == [pl.Int64, pl.String, pl.Int32]
    assert result["seven"].to_list() == [7] * height
    assert result["none"].to_list() == [None] * height


def test_a_frame_without_columns_has_a_height() -> None:
    assert evaluate_columns(pl.DataFrame(height=4), [("one", Literal(1, INT))])["one"].to_list() == [1] * 4


def test_an_output_may_have_the_name_of_a_column_that_another_output_reads() -> None:
    frame = pl.DataFrame({"small": [1, 2], "large": [10, 20]}, schema={"small": pl.Int32, "large": pl.Int64})
    result = evaluate_columns(frame, [("small", LARGE), ("large", SMALL)])
    assert result.rows() == [(10, 1), (20, 2)]


def test_a_filter_keeps_true_and_drops_false_and_unknown() -> None:
    frame = frame_of(GRID).with_row_index("number")
    wanted = [number for number, row in enumerate(GRID) if row["truth"] is True]
    assert filter_frame(frame, TRUTH)["number"].to_list() == wanted
    for constant, height in ((True, len(GRID)), (False, 0), (None, 0)):
        assert filter_frame(frame, Literal(constant, BOOLEAN)).height == height


@pytest.mark.parametrize(
    "expression",
    [
        call("/", DOUBLES, Literal(3.0, DOUBLE)),
        call("power", DOUBLES, Literal(3.0, DOUBLE)),
        call("power", Cast(SMALL, DOUBLE), DOUBLES),
        call("round", DOUBLES, Literal(1, INT)),
        call("exp", DOUBLES),
        call("ln", DOUBLES),
        call("log", Literal(2.0, DOUBLE), DOUBLES),
        call("cbrt", DOUBLES),
        call("sin", DOUBLES),
        call("tanh", DOUBLES),
        call("degrees", DOUBLES),
        call("width_bucket", DOUBLES, Literal(-9.0, DOUBLE), Literal(1e3, DOUBLE), Literal(7, INT)),
        call("to_timestamp", DOUBLES),
        call("second", ColumnRef("ts", TIMESTAMP)),
        Cast(DOUBLES, VARCHAR),
        Cast(ColumnRef("text", VARCHAR), TIMESTAMP),
    ],
)
def test_how_rows_are_cut_into_frames_does_not_matter(expression: Expression) -> None:
    dice = random.Random(1)
    content = [{**row, "double": dice.uniform(-1e3, 1e3)} for row in GRID[:150]]
    whole = evaluate_columns(frame_of(content), [("r", expression)])["r"]
    pieces = [evaluate_columns(frame_of([row]), [("r", expression)])["r"][0] for row in content]
    assert all(same(one, other) for one, other in zip(whole.to_list(), pieces, strict=True))


@pytest.mark.parametrize("function", ["/", "%", "nullif", "greatest"])
def test_nesting_does_not_double_the_work(function: str) -> None:
    nested: Expression = LARGE
    for _ in range(24):
        nested = call(function, nested, LARGE)
    started = time.perf_counter()
    evaluate_columns(frame_of(GRID[:3]), [("r", nested)])
    assert time.perf_counter() - started < 5.0  # 2 ** 24 evaluations would take hours


def test_literals_stay_typed() -> None:
    for kind in TYPES:
        for value in (None, edges(kind)[0]):
            column = pl.DataFrame({"a": [1]}).select(compile_expression(Literal(value, kind)).alias("r"))["r"]
            assert column.dtype == polars_type(kind)
            assert same(column.to_list()[0], value)
