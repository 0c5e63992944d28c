"""Arithmetic: sums, products, quotients, and the bits of whole numbers.

Arithmetic that has no result yields NULL: one bad row must not stop a continuous query. That is division by zero and
whatever does not fit its type. DOUBLE follows IEEE 754 otherwise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from strandline.core.lazy import pl
from strandline.core.types import BIGINT, DATE, DOUBLE, INT, INTERVAL, MAX_PRECISION, TIMESTAMP, Type, decimal
from strandline.functions import decimals
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import (
    Function,
    FunctionError,
    Types,
    all_of,
    exact,
    fixed,
    integer_digits,
    numeric,
)
from strandline.logical.expressions import Call, Cast, Expression, Literal
from strandline.logical.values import CHRONON, EXACT, in_calendar
from strandline.runtime.kernels import columns
from strandline.runtime.kernels.columns import LEAST_INT64, let

# ---- typing ----------------------------------------------------------------------------------------------------------


def _sum_rule(types: Types) -> tuple[Types, Type] | None:
    if (pair := exact(types)) is None:
        return numeric()(types)
    scale = max(part.scale for part in pair)
    return pair, decimal(max(map(integer_digits, pair)) + scale + 1, scale)


def _plus_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("TIMESTAMP" | "DATE"), Type("INTERVAL")) | (Type("TIMESTAMP"), Type("NULL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("INTERVAL"), Type("TIMESTAMP" | "DATE")) | (Type("NULL"), Type("TIMESTAMP")):
            return (INTERVAL, TIMESTAMP), TIMESTAMP
        case (Type("DATE"), Type("INT" | "BIGINT" | "NULL")):
            return (DATE, BIGINT), DATE
        case (Type("INT" | "BIGINT" | "NULL"), Type("DATE")):
            return (BIGINT, DATE), DATE
        case (Type("INTERVAL"), Type("INTERVAL" | "NULL")) | (Type("NULL"), Type("INTERVAL")):
            return (INTERVAL, INTERVAL), INTERVAL
    return _sum_rule(types)


def _minus_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("DATE"), Type("DATE" | "NULL")) | (Type("NULL"), Type("DATE")):
            return (DATE, DATE), INT
        case (Type("DATE"), Type("INT" | "BIGINT")):
            return (DATE, BIGINT), DATE
        case (Type("TIMESTAMP" | "DATE"), Type("INTERVAL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("TIMESTAMP" | "DATE" | "NULL"), Type("TIMESTAMP")) | (Type("TIMESTAMP"), Type("DATE" | "NULL")):
            return (TIMESTAMP, TIMESTAMP), INTERVAL
        case (Type("INTERVAL"), Type("INTERVAL" | "NULL")) | (Type("NULL"), Type("INTERVAL")):
            return (INTERVAL, INTERVAL), INTERVAL
    return _sum_rule(types)


def _times_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("INTERVAL"), Type("INT" | "BIGINT" | "NULL")):
            return (INTERVAL, BIGINT), INTERVAL
        case (Type("INT" | "BIGINT" | "NULL"), Type("INTERVAL")):
            return (BIGINT, INTERVAL), INTERVAL
    if (pair := exact(types)) is None:
        return numeric()(types)
    left, right = pair
    if left.scale + right.scale > MAX_PRECISION:
        raise FunctionError(
            f"the product of {left} and {right} has more than {MAX_PRECISION} digits after the point",
            "CAST one of them to DOUBLE or to a DECIMAL of smaller scale.",
        )
    return pair, decimal(left.precision + right.precision, left.scale + right.scale)


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _add(left: Any, right: Any) -> Any:
    match left, right:
        case Decimal(), Decimal():
            return EXACT.add(left, right)
        case (datetime(), int()) | (int(), datetime()):
            moment, span = (left, right) if isinstance(left, datetime) else (right, left)
            return in_calendar(lambda: moment + span * CHRONON)
        case (date(), int()) | (int(), date()):
            day, days = (left, right) if isinstance(left, date) else (right, left)
            return in_calendar(lambda: day + timedelta(days=days))
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    match left, right:
        case datetime(), datetime():
            return (left - right) // CHRONON
        case date(), date():
            return (left - right).days
    return _add(left, _negate(right))


def _divide(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, Decimal):
        return EXACT.remainder(left, right)
    if isinstance(left, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _negate(value: Any) -> Any:
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _shift_left(value: int, places: int) -> int | None:
    """The lowest 64 bits, of which the first is the sign."""
    return ((value << places) + 2**63) % 2**64 - 2**63 if 0 <= places < 64 else None


# ---- over columns ----------------------------------------------------------------------------------------------------


def _limit(expression: Expression) -> int:
    """No value of this integer expression is further from zero."""
    match expression:
        case Literal(int(value), _):
            return abs(value)
        case Cast(operand, _) if operand.type.name == "INT":
            return 2**31
        case Call("+" | "-", (left, right), _):
            return min(_limit(left) + _limit(right), 2**63)
        case Call("*", (left, right), _):
            return min(_limit(left) * _limit(right), 2**63)
    return 2**63


def _int64(call: Call, exact: Callable[[pl.Expr, pl.Expr], pl.Expr], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Integer + - *: 64 bits where the operands cannot overflow, else 128 bits and NULL where 64 do not suffice."""
    if _limit(call) < 2**63:
        return exact(left, right)
    return exact(left.cast(pl.Int128), right.cast(pl.Int128)).cast(pl.Int64, strict=False)


def _plus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left + right
        case "DECIMAL":
            return decimals.total(call, decimals.unscaled(left), decimals.unscaled(right))
        case "TIMESTAMP" | "DATE":
            first, second = (left, right) if call.arguments[0].type == call.type else (right, left)
            return _moved(call.type, first, second)
    return _int64(call, lambda a, b: a + b, left, right)


def _minus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name, call.arguments[0].type.name:
        case "DOUBLE", _:
            return left - right
        case "DECIMAL", _:
            return decimals.total(call, decimals.unscaled(left), 0 - decimals.unscaled(right))
        case "TIMESTAMP" | "DATE", _:
            return _moved(call.type, left, -right)
        case ("INTERVAL", "TIMESTAMP") | ("INT", "DATE"):
            return left.to_physical() - right.to_physical()
    return _int64(call, lambda a, b: a - b, left, right)


def _moved(kind: Type, moment: pl.Expr, shift: pl.Expr) -> pl.Expr:
    """A DATE or TIMESTAMP some days or microseconds later, NULL outside of the calendar."""
    # 64 bits may wrap around, also when the shift was negated, but then the sum is far outside of the calendar.
    moved = moment.to_physical().cast(pl.Int64) + shift
    if kind.name == "DATE":
        return columns.within(moved, columns.FIRST_DAY, columns.LAST_DAY, pl.Int64()).cast(pl.Int32).cast(pl.Date)
    return columns.within(moved, columns.FIRST_INSTANT, columns.LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us"))


def _times(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left * right
        case "DECIMAL":
            return decimals.product(call, decimals.unscaled(left), decimals.unscaled(right))
    return _int64(call, lambda a, b: a * b, left, right)


def _divide_columns(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if call.type.name == "DOUBLE":
        return columns.quotient(left, right)
    # Polars rounds quotients down: one more where that is not toward zero.
    return let(
        (left, right),
        lambda a, b: a // b,
        lambda a, b, q: q + ((q * b != a) & ((a < 0) != (b < 0))).cast(pl.Int64),
        lambda a, b, _, q: pl.when((a != LEAST_INT64) | (b != -1)).then(q),
    )


def _remainder_columns(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return columns.together(_fmod, left, right, kind=DOUBLE)
        case "DECIMAL":
            return decimals.scaled(_whole_remainder(decimals.unscaled(left), decimals.unscaled(right)), call.type)
    return _whole_remainder(left, right)


def _whole_remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder with the sign of the dividend; Polars' has the sign of the divisor."""
    return let(
        (left, right),
        lambda a, b: a % b,
        lambda a, b, r: pl.when((r != 0) & ((r < 0) != (a < 0))).then(r - b).otherwise(r),
    )


def _fmod(pair: Sequence[pl.Series]) -> pl.Series:
    """The exact remainder of DOUBLEs; Polars computes it from the rounded quotient."""
    left, right = pair
    with np.errstate(invalid="ignore"):
        result = pl.Series(np.fmod(left.to_numpy(), right.to_numpy()))
    return pl.select(pl.when(left.is_not_null() & (right != 0)).then(result)).to_series()


def _negate_columns(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name in ("BIGINT", "INTERVAL"):
        return let((value,), lambda v: pl.when(v != LEAST_INT64).then(-v))
    return -value


def _shifted(shift: np.ufunc) -> Callable[..., pl.Expr]:
    """Bits moved; NULL unless the number of places is 0 to 63."""

    def column(pair: Sequence[pl.Series]) -> pl.Series:
        value, places = (columns.stretched(column, pair) for column in pair)
        possible = value.is_not_null() & places.is_between(0, 63)
        amount = places.fill_null(0).cast(pl.Int64).to_numpy() & 63
        moved = shift(value.fill_null(0).to_numpy(), amount)
        return pl.select(pl.when(possible).then(pl.Series(moved))).to_series()

    return lambda _, value, places: columns.together(column, value, places, kind=BIGINT)


def _gcds(pair: Sequence[pl.Series]) -> pl.Series:
    """NULL where it is 2 to the power of 63."""
    one, two = (columns.stretched(column, pair) for column in pair)
    present = one.is_not_null() & two.is_not_null()
    divisor = pl.Series(np.gcd(one.fill_null(0).to_numpy(), two.fill_null(0).to_numpy()))
    return pl.select(pl.when(present & (divisor >= 0)).then(divisor)).to_series()


def _lcm(_: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    # The divisor as 128 bits: that of the least BIGINT and itself has no 64.
    return let(
        (left, right),
        lambda a, b: columns.together(_gcds, a, b, kind=BIGINT).cast(pl.Int128).fill_null(2**63),
        lambda a, b, g: pl.when(g == 0).then(0).otherwise(a.cast(pl.Int128) // g * b.cast(pl.Int128)).abs(),
        lambda a, b, g, product: product.cast(pl.Int64, strict=False),
    )


# ---- in DuckDB -------------------------------------------------------------------------------------------------------


def _duckdb_decimals(call: SqlCall) -> str:
    """Sums and products of DECIMALs: plain where every result fits the type, else by way of whole numbers."""
    (left, right), sign, kind = call.expression.arguments, call.expression.function, call.expression.type
    if kind.precision < MAX_PRECISION:
        wide = f"CAST({{0}} AS DECIMAL({MAX_PRECISION},{left.type.scale}))" if sign == "*" else "{0}"
        return call.spelled(f"CAST({wide} {sign} {{1}} AS {{t}})")
    whole = f"{{h}}unscaled({{0}}), {'-' if sign == '-' else ''}{{h}}unscaled({{1}})"
    if sign == "*":
        return call.spelled(f"CAST({{h}}decimal_product({whole}, {{p}}, {{s}}) AS {{t}})")
    shifts = f"{kind.scale - left.type.scale}, {kind.scale - right.type.scale}"
    return call.spelled(f"CAST({{h}}decimal_sum({whole}, {shifts}, {{p}}, {{s}}) AS {{t}})")


# ---- declarations ----------------------------------------------------------------------------------------------------

_BIGINTS = all_of(BIGINT, BIGINT)
_SHIFT = fixed(BIGINT, BIGINT, INT)

FAMILY: Final = (
    Function("+", "a + b", "Sum; also TIMESTAMP + INTERVAL and DATE + days.", 2, 2, _plus_rule, _add, _plus,
             sql={"BIGINT, BIGINT": "{h}add({0}, {1})",
                  "TIMESTAMP, BIGINT": "{h}later({0}, {1})", "BIGINT, TIMESTAMP": "{h}later({1}, {0})",
                  "DATE, BIGINT": "{h}days_later({0}, {1})", "BIGINT, DATE": "{h}days_later({1}, {0})"},
             duckdb={"DECIMAL, DECIMAL": _duckdb_decimals, "DOUBLE, DOUBLE": "({0} + {1})"},
             postgresql={"DECIMAL, DECIMAL": "{h}fit({0} + {1}, {p}, {s})",
                         "DOUBLE, DOUBLE": "{h}add_double({0}, {1})"}),
    Function("-", "a - b", "Difference; also between TIMESTAMPs (INTERVAL) and DATEs (days).",
             2, 2, _minus_rule, _subtract, _minus,
             sql={"BIGINT, BIGINT": "{h}subtract({0}, {1})",
                  "TIMESTAMP, BIGINT": "{h}later({0}, {h}subtract(CAST(0 AS BIGINT), {1}))",
                  "TIMESTAMP, TIMESTAMP": "{h}subtract({h}micros({0}), {h}micros({1}))",
                  "DATE, BIGINT": "{h}days_later({0}, {h}subtract(CAST(0 AS BIGINT), {1}))",
                  "DATE, DATE": "CAST({0} - {1} AS INTEGER)"},
             duckdb={"DECIMAL, DECIMAL": _duckdb_decimals, "DOUBLE, DOUBLE": "({0} - {1})"},
             postgresql={"DECIMAL, DECIMAL": "{h}fit({0} - {1}, {p}, {s})",
                         "DOUBLE, DOUBLE": "{h}add_double({0}, -{1})"}),
    Function("*", "a * b", "Product; also INTERVAL * integer.", 2, 2, _times_rule,
             lambda a, b: EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b, _times,
             sql={"BIGINT, BIGINT": "{h}multiply({0}, {1})"},
             duckdb={"DECIMAL, DECIMAL": _duckdb_decimals, "DOUBLE, DOUBLE": "({0} * {1})"},
             postgresql={"DECIMAL, DECIMAL": "{h}fit({0} * {1}, {p}, {s})",
                         "DOUBLE, DOUBLE": "{h}multiply_double({0}, {1})"}),
    Function("/", "a / b", "Quotient; of integers, truncated toward zero. NULL if b is 0.",
             2, 2, lambda types: _BIGINTS(types) or all_of(DOUBLE, DOUBLE)(types), _divide, _divide_columns,
             sql={"BIGINT, BIGINT": "{h}quotient({0}, {1})"},
             duckdb={"DOUBLE, DOUBLE": "({0} / nullif({1}, 0e0))"},
             postgresql={"DOUBLE, DOUBLE": "{h}divide_double({0}, nullif({1}, 0))"}),
    Function("%", "a % b", "Remainder with the sign of a. NULL if b is 0.",
             2, 2, numeric(), _remainder, _remainder_columns, aliases=("mod",),
             sql={"BIGINT, BIGINT": "{h}remainder({0}, {1})"},
             duckdb={"DECIMAL, DECIMAL": "CAST({0} % nullif({1}, 0) AS DECIMAL({p},{s}))",
                     "DOUBLE, DOUBLE": "{h}remainder_double({0}, {1})"},
             postgresql={"DECIMAL, DECIMAL": "{h}fit({0} % nullif({1}, 0), {p}, {s})",
                         "DOUBLE, DOUBLE": "{h}remainder_double({0}, nullif({1}, 0))"}),
    Function("neg", "-a", "The number or INTERVAL with the other sign.", 1, 1,
             lambda types: (types, INTERVAL) if types == (INTERVAL,) else numeric()(types), _negate, _negate_columns,
             sql={"BIGINT": "{h}subtract(CAST(0 AS BIGINT), {0})", "*": "(-{0})"}),
    Function("&", "a & b", "The bits that both whole numbers have.", 2, 2, _BIGINTS, operator.and_,
             lambda _, a, b: a & b, sql="({0} & {1})"),
    Function("|", "a | b", "The bits that one or both have.", 2, 2, _BIGINTS, operator.or_, lambda _, a, b: a | b,
             sql="({0} | {1})"),
    Function("#", "a # b", "The bits that one has and the other has not.",
             2, 2, _BIGINTS, operator.xor, lambda _, a, b: a ^ b, duckdb="xor({0}, {1})", postgresql="({0} # {1})"),
    Function("~", "~a", "All 64 bits inverted.", 1, 1, _BIGINTS, operator.invert, lambda _, a: -1 - a, sql="(~{0})"),
    Function("<<", "a << n", "The 64 bits of a, n places to the left; NULL unless n is 0 to 63.",
             2, 2, _SHIFT, _shift_left, _shifted(np.left_shift),
             sql="{h}shift_left({0}, {1})"),
    Function(">>", "a >> n", "The 64 bits of a, n places to the right, the sign kept; NULL unless n is 0 to 63.",
             2, 2, _SHIFT, lambda a, n: a >> n if 0 <= n < 64 else None, _shifted(np.right_shift),
             sql="CASE WHEN {1} BETWEEN 0 AND 63 THEN {0} >> {1} END"),
    Function("div", "div(a, b)", "The quotient of whole numbers, truncated toward zero. NULL if b is 0.",
             2, 2, _BIGINTS, _divide, _divide_columns, sql="{h}quotient({0}, {1})"),
    Function("gcd", "gcd(a, b)", "The greatest common divisor of whole numbers.",
             2, 2, _BIGINTS, math.gcd, lambda _, a, b: columns.together(_gcds, a, b, kind=BIGINT),
             sql="{h}gcd({0}, {1})"),
    Function("lcm", "lcm(a, b)", "The least common multiple of whole numbers; NULL beyond BIGINT.",
             2, 2, _BIGINTS, math.lcm, _lcm, sql="{h}lcm({0}, {1})"),
)  # fmt: skip
