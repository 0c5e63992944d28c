"""Expressions over whole columns: what `algebra.evaluate` means, as Polars expressions.

Law    the value of `compile(e)` in row i of a frame = `evaluate(e, row i)`, in the type `polars_type(e.type)`

Nothing here looks at single rows, and nothing raises because of a value: where there is no result there is NULL.
DECIMALs are computed as 128-bit integers, the unscaled values, because Polars' own DECIMAL arithmetic raises when it
overflows, rounds half to even and keeps only the larger scale of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Final, TypeAlias, assert_never

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from strandline.algebra.evaluate import (
    BLANKS,
    CHRONON,
    EPOCH,
    FALSE_TEXTS,
    TIMESTAMP_TEXT,
    TRUE_TEXTS,
    WHOLE_DOUBLE,
    evaluate,
    is_strict,
    like_regex,
)
from strandline.algebra.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, Value, children
from strandline.algebra.functions import trunc_unit
from strandline.temporal import DAY, HOUR, MINUTE, SECOND
from strandline.types import MAX_PRECISION, VARCHAR, Type

Step: TypeAlias = Callable[..., pl.Expr]

_LEAST_INT64: Final = -(2**63)
_FIRST_INSTANT: Final = (datetime.min - EPOCH) // CHRONON
_LAST_INSTANT: Final = (datetime.max - EPOCH) // CHRONON
_FIRST_DAY: Final = (date.min - EPOCH.date()).days
_LAST_DAY: Final = (date.max - EPOCH.date()).days


def polars_type(kind: Type) -> pl.DataType:
    """The Polars type that holds values of an SQL type."""
    match kind.name:
        case "BOOLEAN":
            return pl.Boolean()
        case "INT":
            return pl.Int32()
        case "BIGINT" | "INTERVAL":
            return pl.Int64()
        case "DOUBLE":
            return pl.Float64()
        case "DECIMAL":
            return pl.Decimal(kind.precision, kind.scale)
        case "VARCHAR":
            return pl.String()
        case "DATE":
            return pl.Date()
        case "TIMESTAMP":
            return pl.Datetime("us")
        case "NULL":
            return pl.Null()
    raise AssertionError(f"type {kind} has no Polars form")


def evaluate_columns(
    frame: pl.DataFrame, outputs: Sequence[tuple[str, Expression]], keep: Sequence[str] = ()
) -> pl.DataFrame:
    """The outputs under their names, then the columns to keep: as many rows as `frame`, also for constants."""
    names = [name for name, _ in outputs]
    assert len({*names, *keep}) == len(names) + len(keep), "output columns have distinct names"
    if frame.height == 0:  # Polars has functions of a constant and a column that give one row here
        types = {name: polars_type(expression.type) for name, expression in outputs}
        return pl.DataFrame(schema={**types, **{name: frame.schema[name] for name in keep}})
    # `select` would give a single row if every output is constant; `with_columns` knows the height.
    computed = _spelled_out(frame).with_columns(compile(expression).alias(name) for name, expression in outputs)
    return computed.select(*names, *keep)


def filter_frame(frame: pl.DataFrame, predicate: Expression) -> pl.DataFrame:
    """The rows for which the predicate is true; not false, not unknown."""
    return _spelled_out(frame).filter(compile(predicate)) if frame.height else frame


def _spelled_out(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame without columns that Polars keeps as one value for all rows: a comparison of a constant with such
    a column forgets how many rows it stands for. Costs nothing where there are none."""
    return pl.DataFrame(frame.get_columns()) if frame.width else frame


def compile(expression: Expression) -> pl.Expr:
    """The expression over the columns of a frame that are named by their ids.

    A constant gives a single value: Polars repeats it where it meets a column, and `evaluate_columns` always does.
    """
    return _compile(_fold(expression))


def _compile(expression: Expression) -> pl.Expr:
    match expression:
        case Literal(value, kind):
            return _constant(value, kind)
        case ColumnRef(id, _):
            return pl.col(id)
        case Cast(operand, kind):
            return _cast(_compile(operand), operand.type, kind)
        case Case(branches, otherwise, _):
            result = _compile(otherwise)
            for condition, choice in reversed(branches):
                result = pl.when(_compile(condition)).then(_compile(choice)).otherwise(result)
            return result
        case Call(function, arguments, _):
            return _CALLS[function](expression, *(_compile(argument) for argument in arguments))
        case _:
            assert_never(expression)


def _fold(expression: Expression) -> Expression:
    """The expression with its constant parts as literals: functions look for literals to take a shorter way."""
    match expression:
        case Literal() | ColumnRef():
            return expression
        case Cast(operand, kind):
            folded: Expression = Cast(_fold(operand), kind)
        case Case(branches, otherwise, kind):
            parts = tuple((_fold(condition), _fold(choice)) for condition, choice in branches)
            folded = Case(parts, _fold(otherwise), kind)
        case Call(function, arguments, kind):
            folded = Call(function, tuple(_fold(argument) for argument in arguments), kind)
            if is_strict(function) and any(isinstance(a, Literal) and a.value is None for a in folded.arguments):
                return Literal(None, kind)
        case _:
            assert_never(expression)
    if all(isinstance(child, Literal) for child in children(folded)):
        return Literal(evaluate(folded, {}), folded.type)
    return folded


def cast_text(column: pl.Expr, kind: Type) -> pl.Expr:
    """The values that texts denote, blanks around them aside; NULL where they denote none."""
    if kind.name == "VARCHAR":
        return column
    text = column.str.strip_chars(BLANKS)
    match kind.name:
        case "BOOLEAN":
            words = {**dict.fromkeys(TRUE_TEXTS, True), **dict.fromkeys(FALSE_TEXTS, False)}
            return text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
        case "INT" | "BIGINT":
            return text.cast(polars_type(kind), strict=False)
        case "DOUBLE":
            return _mapped(text, _doubles_of_texts, kind)
        case "DECIMAL":
            return _mapped(text, partial(_decimals_of_texts, kind), kind)
        case "DATE":
            return _mapped(text, _dates_of_texts, kind)
        case "TIMESTAMP":
            return _mapped(text, _timestamps_of_texts, kind)
    raise AssertionError(f"no text denotes a value of type {kind}")


def _constant(value: Value, kind: Type) -> pl.Expr:
    return pl.lit(value, dtype=polars_type(kind))


def _mapped(column: pl.Expr, function: Callable[[pl.Series], pl.Series], kind: Type) -> pl.Expr:
    """A function of whole columns, where what to do depends on what the column holds."""
    return column.map_batches(function, return_dtype=polars_type(kind), is_elementwise=True)


def _let(values: Sequence[pl.Expr], *steps: Step) -> pl.Expr:
    """The last of some steps, each of which sees the values and the results of the steps before it.

    Values are computed once, however often the steps use them: nested expressions would otherwise grow exponentially.
    A struct is Polars' way to name a value inside an expression.
    """
    if len(steps) == 1 and all(value.meta.is_column() or value.meta.is_literal() for value in values):
        return steps[0](*values)
    return _bind(values, *steps)


def _bind(values: Sequence[pl.Expr], *steps: Step) -> pl.Expr:
    record = pl.struct(*(value.alias(f"_{i}") for i, value in enumerate(values)))
    fields = [pl.field(f"_{i}") for i in range(len(values))]
    for step in steps:
        name = f"_{len(fields)}"
        record = record.struct.with_fields(step(*fields).alias(name))
        fields.append(pl.field(name))
    return record.struct.field(f"_{len(fields) - 1}")


def _quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The quotient of DOUBLEs, NULL if the divisor is zero.

    Polars multiplies by the reciprocal of a literal, and 59999999 / 1e6 would not be 59.999999: a bound literal is a
    column and divides as such.
    """
    return _bind((left, right), lambda a, b: pl.when(b != 0).then(a / b))


def _within(value: pl.Expr, least: int, most: int, dtype: pl.DataType) -> pl.Expr:
    """Integers of type `dtype`, NULL outside of the bounds."""
    low, high = pl.lit(least, dtype=dtype), pl.lit(most, dtype=dtype)
    return _let((value,), lambda v: pl.when(v.is_between(low, high)).then(v))


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def _bound(expression: Expression) -> int:
    """No value of this integer expression is further from zero."""
    match expression:
        case Literal(int(value), _):
            return abs(value)
        case Cast(operand, _) if operand.type.name == "INT":
            return 2**31
        case Call("+" | "-", (left, right), _):
            return min(_bound(left) + _bound(right), 2**63)
        case Call("*", (left, right), _):
            return min(_bound(left) * _bound(right), 2**63)
    return 2**63


def _int64(call: Call, exact: Callable[[pl.Expr, pl.Expr], pl.Expr], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Integer + - *: 64 bits where the operands cannot overflow, else 128 bits and NULL where 64 do not suffice."""
    if _bound(call) < 2**63:
        return exact(left, right)
    return exact(left.cast(pl.Int128), right.cast(pl.Int128)).cast(pl.Int64, strict=False)


def _plus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left + right
        case "DECIMAL":
            return _decimal_sum(call, _unscaled(left), _unscaled(right))
        case "TIMESTAMP" | "DATE":
            first, second = (left, right) if call.arguments[0].type == call.type else (right, left)
            return _moved(call.type, first, second)
    return _int64(call, lambda a, b: a + b, left, right)


def _minus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name, call.arguments[0].type.name:
        case "DOUBLE", _:
            return left - right
        case "DECIMAL", _:
            return _decimal_sum(call, _unscaled(left), 0 - _unscaled(right))
        case "TIMESTAMP" | "DATE", _:
            return _moved(call.type, left, -right)
        case "INTERVAL", "TIMESTAMP":
            return left.to_physical() - right.to_physical()
        case "INT", "DATE":
            return left.to_physical() - right.to_physical()
    return _int64(call, lambda a, b: a - b, left, right)


def _moved(kind: Type, moment: pl.Expr, shift: pl.Expr) -> pl.Expr:
    """A DATE or TIMESTAMP some days or microseconds later, NULL outside of the calendar."""
    least, most = (_FIRST_DAY, _LAST_DAY) if kind.name == "DATE" else (_FIRST_INSTANT, _LAST_INSTANT)
    # 64 bits may wrap around, also when the shift was negated, but then the sum is far outside of the calendar.
    moved = moment.to_physical().cast(pl.Int64) + shift
    whole = _within(moved, least, most, pl.Int64())
    return (whole.cast(pl.Int32) if kind.name == "DATE" else whole).cast(polars_type(kind))


def _times(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left * right
        case "DECIMAL":
            return _decimal_product(call, _unscaled(left), _unscaled(right))
    return _int64(call, lambda a, b: a * b, left, right)


def _divide(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if call.type.name == "DOUBLE":
        return _quotient(left, right)
    # Polars rounds quotients down: one more where that is not toward zero.
    return _let(
        (left, right),
        lambda a, b: a // b,
        lambda a, b, q: q + ((q * b != a) & ((a < 0) != (b < 0))).cast(pl.Int64),
        lambda a, b, _, q: pl.when((a != _LEAST_INT64) | (b != -1)).then(q),
    )


def _remainder(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return pl.map_batches([left, right], _fmod, return_dtype=pl.Float64(), is_elementwise=True)
        case "DECIMAL":
            return _scaled(_integer_remainder(_unscaled(left), _unscaled(right)), call.type)
    return _integer_remainder(left, right)


def _integer_remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder with the sign of the dividend; Polars' has the sign of the divisor."""
    return _let(
        (left, right),
        lambda a, b: a % b,
        lambda a, b, r: pl.when((r != 0) & ((r < 0) != (a < 0))).then(r - b).otherwise(r),
    )


def _fmod(columns: Sequence[pl.Series]) -> pl.Series:
    """The exact remainder of DOUBLEs; Polars computes it from the rounded quotient."""
    left, right = columns
    with np.errstate(invalid="ignore"):
        result = pl.Series(np.fmod(left.to_numpy(), right.to_numpy()))
    return pl.select(pl.when(left.is_not_null() & (right != 0)).then(result)).to_series()


def _negate(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name in ("BIGINT", "INTERVAL"):
        return _let((value,), lambda v: pl.when(v != _LEAST_INT64).then(-v))
    return -value


def _absolute(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name == "BIGINT":
        return _let((value,), lambda v: pl.when(v != _LEAST_INT64).then(v.abs()))
    return value.abs()


def _sign(call: Call, value: pl.Expr) -> pl.Expr:
    match call.arguments[0].type.name:
        case "DOUBLE":
            return value.sign() + 0.0  # -0 becomes 0
        case "DECIMAL":
            return _unscaled(value).sign().cast(pl.Int32)
    return value.sign().cast(pl.Int32)


def _floor(call: Call, value: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return value.floor()
        case "DECIMAL":
            return _scaled(_unscaled(value) // _power_of_ten(call.arguments[0].type.scale), call.type)
    return value


def _ceil(call: Call, value: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return value.ceil()
        case "DECIMAL":
            return _scaled(0 - (0 - _unscaled(value)) // _power_of_ten(call.arguments[0].type.scale), call.type)
    return value


def _round(call: Call, value: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    match call.arguments[1:]:
        case ():
            digits = 0
        case (Literal(None, _),):
            return _constant(None, call.type)
        case (Literal(int(digits), _),):
            pass
        case _:
            raise AssertionError("the number of digits is checked when the query is bound")
    match call.type.name:
        case "DOUBLE":
            return _round_double(value, digits)
        case "DECIMAL":
            source = call.arguments[0].type
            return _round_decimal(_unscaled(value), source.scale - digits, source.scale, call.type)
    return _round_integer(value.cast(pl.Int128), -digits).cast(pl.Int64, strict=False)


def _round_double(value: pl.Expr, digits: int) -> pl.Expr:
    if digits == 0:
        return value.round(mode="half_away_from_zero")
    if digits > 308:
        return value
    if digits < -308:
        return _let((value,), lambda v: pl.when(v.is_finite()).then(0.0).otherwise(v))
    return _bind(  # the power of ten as a column: see `_quotient`
        (value, pl.lit(float(10 ** abs(digits)))),
        lambda v, power: v * power if digits > 0 else v / power,
        lambda v, power, scaled: scaled.round(mode="half_away_from_zero"),
        lambda v, power, scaled, whole: whole / power if digits > 0 else whole * power,
        lambda v, power, scaled, whole, result: pl.when(scaled.abs() < WHOLE_DOUBLE).then(result).otherwise(v),
    )


def _round_integer(value: pl.Expr, zeros: int) -> pl.Expr:
    """128-bit integers rounded half away from zero to a multiple of a power of ten."""
    if zeros <= 0:
        return value
    if zeros > MAX_PRECISION:
        return value * 0
    return _drop_digits(value, zeros) * _power_of_ten(zeros)


def _drop_digits(value: pl.Expr, digits: int) -> pl.Expr:
    """128-bit integers divided by a power of ten and rounded half away from zero."""
    if digits == 0:
        return value
    power, half = _power_of_ten(digits), _wide(5 * 10 ** (digits - 1))
    # The quotient is rounded down, the remainder is not negative: exactly a half goes up only where that is away.
    return _let(
        (value,),
        lambda v: v // power,
        lambda v, q: v - q * power,
        lambda v, q, r: q + ((r > half) | ((r == half) & (v > 0))).cast(pl.Int128),
    )


def _sqrt(_: Call, value: pl.Expr) -> pl.Expr:
    return _let((value,), lambda v: pl.when(v >= 0).then(v.sqrt()))


def _power(_: Call, base: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    return pl.map_batches([base, exponent], _powers, return_dtype=pl.Float64(), is_elementwise=True)


def _powers(columns: Sequence[pl.Series]) -> pl.Series:
    """C's power, NULL where it has no real value.

    Polars multiplies if there is a single small exponent, with other last digits: then an answer would depend on how
    the rows are cut into batches. So there are always two exponents at least.
    """
    base, exponent = (_stretched(column, columns) for column in columns)
    twice = len(base) == 1
    powers = pl.concat([base, base]).pow(pl.concat([exponent, exponent])).head(1) if twice else base.pow(exponent)
    fractional = exponent.is_finite() & (exponent != exponent.floor())
    impossible = ((base == 0) & (exponent < 0)) | ((base < 0) & fractional)
    return pl.select(pl.when(~impossible).then(powers)).to_series()


def _stretched(column: pl.Series, columns: Sequence[pl.Series]) -> pl.Series:
    """A constant as long as the column beside it."""
    height = next((len(other) for other in columns if len(other) != 1), 1)
    return column if len(column) == height else column.new_from_index(0, height)


# ---- DECIMAL -------------------------------------------------------------------------------------------------------


def _wide(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.Int128)


def _power_of_ten(exponent: int) -> pl.Expr:
    return _wide(10**exponent)


def _unscaled(value: pl.Expr) -> pl.Expr:
    """The 128-bit integers of DECIMALs: 1.25 is 125."""
    return value.to_physical()


def _scaled(value: pl.Expr, kind: Type) -> pl.Expr:
    """The opposite of `_unscaled`, for integers that are known to fit."""
    return value.reinterpret(dtype=polars_type(kind))


def _fitted(value: pl.Expr, kind: Type) -> pl.Expr:
    """The opposite of `_unscaled`; NULL where an integer has too many digits."""
    most = 10**kind.precision - 1
    return _scaled(_within(value, -most, most, pl.Int128()), kind)


def _decimal_sum(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    left_type, right_type = (argument.type for argument in call.arguments)
    if left_type.scale > right_type.scale:
        left, right, left_type, right_type = right, left, right_type, left_type
    shift = right_type.scale - left_type.scale
    whole_digits = max(kind.precision - kind.scale for kind in (left_type, right_type))
    if whole_digits + right_type.scale < MAX_PRECISION:
        return _scaled(left * _power_of_ten(shift) + right, call.type)
    if shift == 0:  # a sum that wraps around has more than 38 digits, too
        return _fitted(left + right, call.type)
    # Beyond 38 digits even an operand may overflow where the sum does not: add the digits that both have first.
    power, most = _power_of_ten(shift), 10 ** (MAX_PRECISION - shift)
    common = _let(
        (left, right),
        lambda a, b: b // power,
        lambda a, b, high: b - high * power,
        lambda a, b, high, low: a + high,
        lambda a, b, high, low, total: pl.when(total.is_between(_wide(-most), _wide(most - 1))).then(
            total * power + low
        ),
    )
    return _fitted(common, call.type)


def _decimal_product(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if sum(argument.type.precision for argument in call.arguments) <= MAX_PRECISION:
        return _scaled(left * right, call.type)
    most = _wide(10**call.type.precision - 1)
    product = _let((left, right), lambda a, b: pl.when((b == 0) | (a.abs() <= most // b.abs())).then(a * b))
    return _scaled(product, call.type)


def _round_decimal(value: pl.Expr, zeros: int, scale: int, kind: Type) -> pl.Expr:
    """Unscaled DECIMALs of scale `scale` rounded to a multiple of a power of ten, in the DECIMAL type `kind`."""
    if kind.scale < scale:  # round(x) and the like: the digits go away
        return _fitted(_drop_digits(value, scale - kind.scale), kind)
    return _fitted(_round_integer(value, zeros), kind)


# ---- comparison, logic, choice -------------------------------------------------------------------------------------


def _in(call: Call, value: pl.Expr, *items: pl.Expr) -> pl.Expr:
    known = [item.value for item in call.arguments[1:] if isinstance(item, Literal)]
    if len(known) < len(items):
        return _let((value, *items), lambda v, *each: pl.any_horizontal(v == item for item in each))
    kind = polars_type(call.arguments[0].type)
    found = value.is_in(pl.Series([item for item in known if item is not None], dtype=kind).implode())
    return pl.when(found).then(True).otherwise(None) if None in known else found


def _nullif(_: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return _let((left, right), lambda a, b: pl.when(a == b).then(None).otherwise(a))


def _greatest(call: Call, *values: pl.Expr) -> pl.Expr:
    if call.type.name != "DOUBLE":
        return pl.max_horizontal(values)
    return _pairwise(values, lambda a, b: pl.when(a.is_null() | (b > a)).then(b).otherwise(a))


def _least(call: Call, *values: pl.Expr) -> pl.Expr:
    if call.type.name != "DOUBLE":
        return pl.min_horizontal(values)
    return _pairwise(values, lambda a, b: pl.when(a.is_null() | (b < a)).then(b).otherwise(a))


def _pairwise(values: Sequence[pl.Expr], choose: Step) -> pl.Expr:
    result = values[0]
    for value in values[1:]:
        result = _let((result, value), choose)
    return result


# ---- texts ---------------------------------------------------------------------------------------------------------


def _like(call: Call, text: pl.Expr, pattern: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal(str(known), _):
            return text.str.contains(f"(?s)^{like_regex(known)}$")
    token = pl.element()
    form = (
        pl.when(token == "%")
        .then(pl.lit(".*"))
        .when(token == "_")
        .then(pl.lit("."))
        .otherwise(token.str.slice(-1).str.escape_regex())
    )
    regex = pattern.str.extract_all(r"(?s)\\.|.").list.eval(form).list.join("")
    return text.str.contains(pl.concat_str(pl.lit("(?s)^"), regex, pl.lit("$")))


def _substring(call: Call, text: pl.Expr, start: pl.Expr, count: pl.Expr | None = None) -> pl.Expr:
    first = start.cast(pl.Int64)
    if count is None:
        return _let((text, first), lambda s, a: pl.when(a.is_not_null()).then(s.str.slice(a.clip(1) - 1)))
    return _let(
        (text, first, count.cast(pl.Int64)),
        lambda s, a, n: pl.when(a.is_not_null() & (n >= 0)).then(
            s.str.slice(a.clip(1) - 1, ((a + n).clip(1) - a.clip(1)).clip(0))
        ),
    )


def _replace(call: Call, text: pl.Expr, old: pl.Expr, new: pl.Expr) -> pl.Expr:
    match call.arguments:
        case (_, Literal(str(known), _), Literal(str(by), _)):
            return text.str.replace_all(known, by, literal=True) if known else text
    return _let(
        (text, old, new),
        lambda s, a, b: pl.when((a == "") & b.is_not_null()).then(s).otherwise(s.str.split(a).list.join(b)),
    )


# ---- times ---------------------------------------------------------------------------------------------------------

_TRUNCATION: Final[Mapping[str, str]] = {
    "microsecond": "1us",
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
    "week": "1w",
    "month": "1mo",
    "quarter": "1q",
    "year": "1y",
}


def _date_trunc(call: Call, _: pl.Expr, moment: pl.Expr) -> pl.Expr:
    match call.arguments[0]:
        case Literal(str(unit), _) if (known := trunc_unit(unit)) is not None:
            return moment.dt.truncate(_TRUNCATION[known])
    raise AssertionError("the unit of date_trunc is checked when the query is bound")


def _second(_: Call, moment: pl.Expr) -> pl.Expr:
    return _quotient((moment.to_physical() % MINUTE).cast(pl.Float64), pl.lit(1e6))


def _epoch(_: Call, moment: pl.Expr) -> pl.Expr:
    return _quotient(moment.to_physical().cast(pl.Float64), pl.lit(1e6))


_CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _divide,
    "%": _remainder,
    "neg": _negate,
    "=": lambda _, a, b: a == b,
    "<>": lambda _, a, b: a != b,
    "<": lambda _, a, b: a < b,
    "<=": lambda _, a, b: a <= b,
    ">": lambda _, a, b: a > b,
    ">=": lambda _, a, b: a >= b,
    "and": lambda _, *parts: pl.all_horizontal(parts),
    "or": lambda _, *parts: pl.any_horizontal(parts),
    "not": lambda _, a: ~a,
    "is_null": lambda _, a: a.is_null(),
    "in": _in,
    "like": _like,
    "||": lambda _, a, b: pl.concat_str(a, b),
    "coalesce": lambda _, *values: pl.coalesce(values),
    "nullif": _nullif,
    "greatest": _greatest,
    "least": _least,
    "abs": _absolute,
    "sign": _sign,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "sqrt": _sqrt,
    "power": _power,
    "lower": lambda _, s: s.str.to_lowercase(),
    "upper": lambda _, s: s.str.to_uppercase(),
    "length": lambda _, s: s.str.len_chars().cast(pl.Int32),
    "trim": lambda _, s: s.str.strip_chars(" "),
    "ltrim": lambda _, s: s.str.strip_chars_start(" "),
    "rtrim": lambda _, s: s.str.strip_chars_end(" "),
    "substring": _substring,
    "replace": _replace,
    "concat": lambda _, *parts: pl.concat_str(parts, ignore_nulls=True),
    "starts_with": lambda _, s, prefix: s.str.starts_with(prefix),
    "date_trunc": _date_trunc,
    "year": lambda _, ts: ts.dt.year().cast(pl.Int32),
    "month": lambda _, ts: ts.dt.month().cast(pl.Int32),
    "day": lambda _, ts: ts.dt.day().cast(pl.Int32),
    "hour": lambda _, ts: ts.dt.hour().cast(pl.Int32),
    "minute": lambda _, ts: ts.dt.minute().cast(pl.Int32),
    "second": _second,
    "epoch": _epoch,
}


# ---- casts ---------------------------------------------------------------------------------------------------------


def _cast(value: pl.Expr, source: Type, target: Type) -> pl.Expr:
    if source == target:
        return value
    dtype = polars_type(target)
    match source.name, target.name:
        case "NULL", _:
            return value.cast(dtype)
        case _, "VARCHAR":
            return _text_of(value, source)
        case "VARCHAR", _:
            return cast_text(value, target)
        case "DOUBLE", "INT" | "BIGINT":
            return value.round(mode="half_to_even").cast(dtype, strict=False)
        case "DOUBLE", "DECIMAL":
            scaled = (value * float(10**target.scale)).round(mode="half_away_from_zero")
            return _fitted(scaled.cast(pl.Int128, strict=False), target)
        case "DECIMAL", "INT" | "BIGINT":
            return _drop_digits(_unscaled(value), source.scale).cast(dtype, strict=False)
        case "DECIMAL", "DECIMAL" if target.scale < source.scale:
            return _fitted(_drop_digits(_unscaled(value), source.scale - target.scale), target)
        case _, "BOOLEAN":
            return value != 0
    return value.cast(dtype, strict=False)


def _text_of(value: pl.Expr, source: Type) -> pl.Expr:
    match source.name:
        case "TIMESTAMP":
            return value.cast(pl.String).str.strip_chars_end("0").str.strip_chars_end(".")
        case "DOUBLE":
            return _mapped(value, _texts_of_doubles, VARCHAR)
    return value.cast(pl.String)


def _texts_of_doubles(values: pl.Series) -> pl.Series:
    """Polars writes the same digits as PostgreSQL, but 1.0 for 1, inf for Infinity, and exponents from 1e16 on.

    Numbers from 1e15 on and below 0.0001 move their point, and exponents get two digits.
    """
    texts = values.cast(pl.String).str.strip_suffix(".0")
    if ((values == 0) | values.abs().is_between(1e-4, 1e15, closed="left")).all():
        return texts
    return (
        texts.str.replace(r"inf$", "Infinity")
        .str.replace(r"^(-?)0\.0000([1-9])([0-9]*)$", "${1}${2}.${3}e-05")
        .str.replace(r"^(-?[0-9])([0-9]{15})(?:\.([0-9]+))?$", "${1}.${2}${3}e+15")
        .str.replace(r"\.?0*e\+15$", "e+15")
        .str.replace(r"\.e-05$", "e-05")
        .str.replace(r"e-([0-9])$", "e-0${1}")
    )


def _doubles_of_texts(texts: pl.Series) -> pl.Series:
    """A number too large for a DOUBLE is not Infinity; only its name is."""
    numbers = texts.cast(pl.Float64, strict=False)
    infinite = numbers.is_infinite()
    return numbers.set(infinite & ~texts.str.contains("[iI]"), None) if infinite.any() else numbers


def _decimals_of_texts(kind: Type, texts: pl.Series) -> pl.Series:
    if not texts.str.contains(rf"^[+-]?[0-9]+(?:\.[0-9]{{0,{kind.scale}}})?$").all():
        # Polars rounds half to even: a 1 far behind the last digit turns every half into more than a half.
        beyond = "0" * (kind.scale + MAX_PRECISION + 2) + "1"
        texts = (
            texts.str.replace(r"^[+-]?(?:0+\.?0*|\.0+)[eE][+-]?[0-9]+$", "0")
            .str.replace(r"^([+-]?[0-9]+)((?:[eE][+-]?[0-9]+)?)$", "${1}.${2}")
            .str.replace(r"^([+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+))((?:[eE][+-]?[0-9]+)?)$", "${1}" + beyond + "${2}")
        )
    return texts.cast(polars_type(kind), strict=False)


_PLAIN_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
_ZONED_TIMESTAMP: Final = _PLAIN_TIMESTAMP[:-1] + "(?:Z|[+-][0-9]{2}:[0-9]{2})$"


def _dates_of_texts(texts: pl.Series) -> pl.Series:
    if texts.str.contains(_PLAIN_DATE).all():
        days = texts.str.to_date("%Y-%m-%d", strict=False)
    else:
        days = _moments_of_texts(texts)["day"]
    return days.set(days < date.min, None)


def _timestamps_of_texts(texts: pl.Series) -> pl.Series:
    """Arrow parses columns of one form several times faster, but gives up at the first text that it does not like."""
    for form, kind in ((_PLAIN_TIMESTAMP, pa.timestamp("us")), (_ZONED_TIMESTAMP, pa.timestamp("us", "UTC"))):
        if texts.str.contains(form).all():
            try:
                instants = pl.Series(pc.cast(texts.to_arrow(), kind).cast(pa.int64()))
            except pa.ArrowInvalid:
                break
            return _timestamps(instants)
    moments = _moments_of_texts(texts)
    return _timestamps(moments["day"].cast(pl.Int64) * DAY + moments["shift"])


def _timestamps(instants: pl.Series) -> pl.Series:
    in_calendar = instants.is_between(_FIRST_INSTANT, _LAST_INSTANT)
    return instants.set(~in_calendar, None).cast(pl.Datetime("us"))


def _moments_of_texts(texts: pl.Series) -> pl.DataFrame:
    """The day that each text names, NULL if it is no ISO text, and the microseconds from its start to the instant."""
    parts = texts.str.extract_groups(f"^{TIMESTAMP_TEXT}$").struct.unnest()
    hour, minute, second, zone_hour, zone_minute = (
        pl.col(group).cast(pl.Int64).fill_null(0) for group in ("4", "5", "6", "9", "10")
    )
    fraction = pl.col("7").fill_null("")
    micros = fraction.str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64) + (fraction.str.slice(6, 1) >= "5")
    zone = zone_hour * HOUR + zone_minute * MINUTE
    day = pl.concat_str("1", "2", "3", separator="-").str.to_date("%Y-%m-%d", strict=False)
    valid = (hour < 24) & (minute < 60) & (second < 60) & (zone_hour < 24) & (zone_minute < 60)
    return parts.select(
        day=pl.when(valid).then(day),
        shift=hour * HOUR
        + minute * MINUTE
        + second * SECOND
        + micros
        - pl.when(pl.col("8") == "-").then(-zone).otherwise(zone),
    )
