"""The operators and functions of the language: which there are, what they accept and what they return.

`resolve` decides types only; `evaluate.py` says what each function means. Typing follows PostgreSQL, with these
decisions: integer arithmetic is always 64 bit, DECIMAL stays exact in + - * and %, everything else is DOUBLE.

A type of NULL in `resolve` means "not known yet". A bare NULL has it, and so may a bare text literal: then
`ts > '2024-01-01'` casts the text to a TIMESTAMP, as in PostgreSQL.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from strandline.algebra.expressions import Expression, Literal, columns_of
from strandline.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MAX_PRECISION,
    NULL,
    TIMESTAMP,
    VARCHAR,
    Type,
    as_decimal,
    common_type,
    decimal,
    is_integer,
    is_numeric,
)

Types: TypeAlias = tuple[Type, ...]


class FunctionError(ValueError):
    """A function does not exist or does not accept its arguments; the caller knows the place in the text."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Resolved:
    """A function chosen for argument types: each argument is to be cast to its type in `argument_types`."""

    function: str
    argument_types: tuple[Type, ...]
    result: Type


# A typing rule gives the types to which the arguments are cast and the result type, or None if it does not apply.
Rule: TypeAlias = Callable[[Types], tuple[Types, Type] | None]


@dataclass(frozen=True, slots=True)
class Function:
    """A declaration: `usage` is how it is written, `doc` one line of reference, `most` None means any number."""

    name: str
    usage: str
    doc: str
    least: int
    most: int | None
    rule: Rule


def resolve(name: str, types: Sequence[Type]) -> Resolved:
    """The function that `name` (in any case) denotes for arguments of these types."""
    key = name.lower()
    function = FUNCTIONS.get(ALIASES.get(key, key))
    if function is None:
        raise FunctionError(f"function {key} does not exist", suggestion(key, (*FUNCTIONS, *ALIASES)))
    if len(types) < function.least or (function.most is not None and len(types) > function.most):
        raise FunctionError(f"{key} does not take {_count(len(types))}", f"Write {function.usage}.")
    found = function.rule(tuple(types))
    if found is None:
        given = ", ".join("NULL" if kind == NULL else str(kind) for kind in types)
        raise FunctionError(f"{key} does not accept ({given})", f"Write {function.usage}. {function.doc}")
    return Resolved(function.name, *found)


def check(function: str, arguments: Sequence[Expression]) -> None:
    """Refuse arguments that must be known before the query runs and are not: units and numbers of digits."""
    match function, tuple(arguments):
        case "date_trunc", (Literal(str(unit), _), _):
            if trunc_unit(unit) is None:
                raise FunctionError(
                    f"date_trunc does not know the unit '{unit}'", f"Units are {', '.join(TRUNC_UNITS)}."
                )
        case "date_trunc", _:
            raise FunctionError("the unit of date_trunc is not a text literal", "Write date_trunc('hour', ts).")
        case "round", (_, digits) if columns_of(digits):
            raise FunctionError("the number of digits of round is not a constant", "Write round(x, 2).")


def trunc_unit(text: str) -> str | None:
    """The unit of TRUNC_UNITS that `text` names in any case, singular or plural."""
    unit = text.strip().lower().removesuffix("s")
    return unit if unit in TRUNC_UNITS else None


def meet(types: Sequence[Type]) -> Type | None:
    """The type in which values of all these types can be compared or stored together, or None.

    DECIMALs that no DECIMAL can hold together become DOUBLE: less exact, but a large value does not vanish. If nothing
    is known of any type, the result is VARCHAR, as in PostgreSQL.
    """
    kind: Type | None = NULL
    for each in types:
        kind = None if kind is None else _meet(kind, each)
    return VARCHAR if kind == NULL else kind


def castable(source: Type, target: Type) -> bool:
    """Whether CAST is defined; for single values it may still yield NULL."""
    if source in (target, NULL):
        return target != NULL
    if INTERVAL in (source, target):
        return False
    if VARCHAR in (source, target):
        return True
    names = {source.name, target.name}
    return (
        (is_numeric(source) and is_numeric(target))
        or names == {"DATE", "TIMESTAMP"}
        or (BOOLEAN in (source, target) and (is_integer(source) or is_integer(target)))
    )


def _meet(left: Type, right: Type) -> Type | None:
    kind = common_type(left, right)
    if kind is not None and kind.name == "DECIMAL":
        digits = kind.precision - kind.scale
        if any(part != NULL and _integer_digits(part) > digits for part in (left, right)):
            return DOUBLE
    return kind


def _integer_digits(kind: Type) -> int:
    held = as_decimal(kind)
    return held.precision - held.scale


# ---- typing rules --------------------------------------------------------------------------------------------------


def _fixed(result: Type, *accepted: Type) -> Rule:
    """Arguments of these types, up to implicit widening; the last ones may be missing if the function allows it."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        wanted = accepted[: len(types)]
        return (wanted, result) if all(_widens(have, want) for have, want in zip(types, wanted, strict=True)) else None

    return rule


def _widens(source: Type, target: Type) -> bool:
    """Whether a value becomes a `target` without a CAST."""
    if source in (NULL, target):
        return True
    match target.name:
        case "BIGINT":
            return source == INT
        case "INT":
            return source == BIGINT  # digits and positions: out of range is NULL
        case "DOUBLE":
            return is_numeric(source)
        case "TIMESTAMP":
            return source == DATE
    return False


def _alike(result: Type | None) -> Rule:
    """Any arguments that have a common type; it is the result too if `result` is None."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        kind = meet(types)
        return None if kind is None else ((kind,) * len(types), result or kind)

    return rule


def _all(accepted: Type, result: Type) -> Rule:
    """Any number of arguments of one type."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        return ((accepted,) * len(types), result) if all(_widens(kind, accepted) for kind in types) else None

    return rule


def _any_text(types: Types) -> tuple[Types, Type] | None:
    """Everything that has a text form, as text."""
    return ((VARCHAR,) * len(types), VARCHAR) if all(castable(kind, VARCHAR) for kind in types) else None


def _text_join(types: Types) -> tuple[Types, Type] | None:
    # One side must be text: 1 || 2 is more likely a mistake than a text.
    return _any_text(types) if any(kind in (VARCHAR, NULL) for kind in types) else None


def _is_null(types: Types) -> tuple[Types, Type] | None:
    return (VARCHAR if types[0] == NULL else types[0],), BOOLEAN


def _number(types: Types) -> Type | None:
    """The type for arithmetic over these: BIGINT, DECIMAL or DOUBLE."""
    if not all(is_numeric(kind) or kind == NULL for kind in types):
        return None
    kind = meet(types)
    return BIGINT if kind in (INT, VARCHAR) else kind


def _exact(types: Types) -> tuple[Type, Type] | None:
    """Both operands as DECIMALs if one is a DECIMAL and neither is a DOUBLE."""
    if any(kind.name == "DECIMAL" for kind in types) and all(kind.name != "DOUBLE" for kind in types):
        left, right = (as_decimal(INT if kind == NULL else kind) for kind in types)
        return left, right
    return None


def _sum_rule(types: Types) -> tuple[Types, Type] | None:
    if (kind := _number(types)) is not None:
        if (pair := _exact(types)) is None:
            return (kind, kind), kind
        scale = max(part.scale for part in pair)
        return pair, decimal(max(map(_integer_digits, pair)) + scale + 1, scale)
    return None


def _product_rule(types: Types) -> tuple[Types, Type] | None:
    if (kind := _number(types)) is not None:
        if (pair := _exact(types)) is None:
            return (kind, kind), kind
        left, right = pair
        if left.scale + right.scale > MAX_PRECISION:
            raise FunctionError(
                f"the product of {left} and {right} has more than {MAX_PRECISION} digits after the point",
                "CAST one of them to DOUBLE or to a DECIMAL of smaller scale.",
            )
        return pair, decimal(left.precision + right.precision, left.scale + right.scale)
    return None


def _plus(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("TIMESTAMP" | "DATE"), Type("INTERVAL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("INTERVAL"), Type("TIMESTAMP" | "DATE")):
            return (INTERVAL, TIMESTAMP), TIMESTAMP
        case (Type("TIMESTAMP"), Type("NULL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("NULL"), Type("TIMESTAMP")):
            return (INTERVAL, TIMESTAMP), TIMESTAMP
        case (Type("DATE"), Type("INT" | "BIGINT" | "NULL")):
            return (DATE, BIGINT), DATE
        case (Type("INT" | "BIGINT" | "NULL"), Type("DATE")):
            return (BIGINT, DATE), DATE
        case (Type("INTERVAL"), Type("INTERVAL" | "NULL")) | (Type("NULL"), Type("INTERVAL")):
            return (INTERVAL, INTERVAL), INTERVAL
    return _sum_rule(types)


def _minus(types: Types) -> tuple[Types, Type] | None:
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


def _times(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("INTERVAL"), Type("INT" | "BIGINT" | "NULL")):
            return (INTERVAL, BIGINT), INTERVAL
        case (Type("INT" | "BIGINT" | "NULL"), Type("INTERVAL")):
            return (BIGINT, INTERVAL), INTERVAL
    return _product_rule(types)


def _divide(types: Types) -> tuple[Types, Type] | None:
    kind = _number(types)
    if kind is None:
        return None
    kind = BIGINT if kind == BIGINT else DOUBLE
    return (kind, kind), kind


def _modulo(types: Types) -> tuple[Types, Type] | None:
    kind = _number(types)
    return None if kind is None else ((kind, kind), kind)


def _negate(types: Types) -> tuple[Types, Type] | None:
    return (types, INTERVAL) if types == (INTERVAL,) else _same_number(types)


def _same_number(types: Types) -> tuple[Types, Type] | None:
    kind = _number(types)
    return None if kind is None else ((kind,), kind)


def _sign(types: Types) -> tuple[Types, Type] | None:
    kind = _number(types)
    return None if kind is None else ((kind,), DOUBLE if kind == DOUBLE else INT)


def _whole(types: Types) -> tuple[Types, Type] | None:
    """To a whole number; a DECIMAL may gain a digit: ceil(9.5) is 10."""
    kind = _number(types)
    if kind is None:
        return None
    return (kind,), decimal(_integer_digits(kind) + 1, 0) if kind.name == "DECIMAL" else kind


def _round(types: Types) -> tuple[Types, Type] | None:
    if len(types) == 1:
        return _whole(types)
    kind = _number(types[:1])
    if kind is None or not _widens(types[1], INT):
        return None
    return (kind, INT), decimal(kind.precision + 1, kind.scale) if kind.name == "DECIMAL" else kind


# ---- declarations --------------------------------------------------------------------------------------------------

TRUNC_UNITS: Final = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)

_TEXT = _fixed(VARCHAR, VARCHAR)
_TEXT_TEST = _fixed(BOOLEAN, VARCHAR, VARCHAR)
_TRUTH = _all(BOOLEAN, BOOLEAN)
_SECONDS = _fixed(DOUBLE, TIMESTAMP)
_PART = _fixed(INT, TIMESTAMP)
_COMPARE = _alike(BOOLEAN)

_DECLARED: Final = (
    Function("+", "a + b", "Sum; also TIMESTAMP + INTERVAL and DATE + days.", 2, 2, _plus),
    Function("-", "a - b", "Difference; also between TIMESTAMPs (INTERVAL) and DATEs (days).", 2, 2, _minus),
    Function("*", "a * b", "Product; also INTERVAL * integer.", 2, 2, _times),
    Function("/", "a / b", "Quotient; of integers, truncated toward zero. NULL if b is 0.", 2, 2, _divide),
    Function("%", "a % b", "Remainder with the sign of a. NULL if b is 0.", 2, 2, _modulo),
    Function("neg", "-a", "The number or INTERVAL with the other sign.", 1, 1, _negate),
    Function("=", "a = b", "Equal.", 2, 2, _COMPARE),
    Function("<>", "a <> b", "Not equal.", 2, 2, _COMPARE),
    Function("<", "a < b", "Less; texts compare by code point, NaN is greater than every number.", 2, 2, _COMPARE),
    Function("<=", "a <= b", "Less or equal.", 2, 2, _COMPARE),
    Function(">", "a > b", "Greater.", 2, 2, _COMPARE),
    Function(">=", "a >= b", "Greater or equal.", 2, 2, _COMPARE),
    Function("and", "a AND b", "False if one is false, else NULL if one is NULL, else true.", 2, None, _TRUTH),
    Function("or", "a OR b", "True if one is true, else NULL if one is NULL, else false.", 2, None, _TRUTH),
    Function("not", "NOT a", "The opposite truth value.", 1, 1, _TRUTH),
    Function("is_null", "a IS NULL", "Whether there is no value.", 1, 1, _is_null),
    Function(
        "in", "a IN (b, …)", "Whether a equals one of the others; NULL if none does and one is NULL.", 2, None, _COMPARE
    ),
    Function(
        "like",
        "s LIKE pattern",
        "Whether s fits the pattern: % any text, _ one character, \\ escapes.",
        2,
        2,
        _TEXT_TEST,
    ),
    Function("||", "a || b", "Both texts together; NULL if one is NULL.", 2, 2, _text_join),
    Function("coalesce", "coalesce(a, …)", "The first argument that is not NULL.", 1, None, _alike(None)),
    Function("nullif", "nullif(a, b)", "NULL if a equals b, else a.", 2, 2, _alike(None)),
    Function("greatest", "greatest(a, …)", "The greatest argument that is not NULL.", 1, None, _alike(None)),
    Function("least", "least(a, …)", "The least argument that is not NULL.", 1, None, _alike(None)),
    Function("abs", "abs(x)", "The absolute value.", 1, 1, _same_number),
    Function("sign", "sign(x)", "-1, 0 or 1.", 1, 1, _sign),
    Function("floor", "floor(x)", "The next whole number below.", 1, 1, _whole),
    Function("ceil", "ceil(x)", "The next whole number above.", 1, 1, _whole),
    Function("round", "round(x[, digits])", "x rounded half away from zero; digits may be negative.", 1, 2, _round),
    Function("sqrt", "sqrt(x)", "The square root; NULL if x is negative.", 1, 1, _fixed(DOUBLE, DOUBLE)),
    Function(
        "power",
        "power(x, y)",
        "x to the power of y; NULL if there is no real result.",
        2,
        2,
        _fixed(DOUBLE, DOUBLE, DOUBLE),
    ),
    Function("lower", "lower(s)", "The text in lower case.", 1, 1, _TEXT),
    Function("upper", "upper(s)", "The text in upper case.", 1, 1, _TEXT),
    Function("length", "length(s)", "The number of characters.", 1, 1, _fixed(INT, VARCHAR)),
    Function("trim", "trim(s)", "The text without blanks at both ends.", 1, 1, _TEXT),
    Function("ltrim", "ltrim(s)", "The text without blanks at the start.", 1, 1, _TEXT),
    Function("rtrim", "rtrim(s)", "The text without blanks at the end.", 1, 1, _TEXT),
    Function(
        "substring",
        "substring(s, from[, count])",
        "The characters from a position on, the first is 1; NULL if count is negative.",
        2,
        3,
        _fixed(VARCHAR, VARCHAR, INT, INT),
    ),
    Function(
        "replace",
        "replace(s, old, new)",
        "The text with each occurrence of old replaced.",
        3,
        3,
        _all(VARCHAR, VARCHAR),
    ),
    Function("concat", "concat(a, …)", "All arguments as one text; NULLs are skipped.", 1, None, _any_text),
    Function("starts_with", "starts_with(s, prefix)", "Whether the text begins with the prefix.", 2, 2, _TEXT_TEST),
    Function(
        "date_trunc",
        "date_trunc('unit', ts)",
        "The start of the unit that holds ts.",
        2,
        2,
        _fixed(TIMESTAMP, VARCHAR, TIMESTAMP),
    ),
    Function("year", "year(ts)", "The year.", 1, 1, _PART),
    Function("month", "month(ts)", "The month, 1 to 12.", 1, 1, _PART),
    Function("day", "day(ts)", "The day of the month.", 1, 1, _PART),
    Function("hour", "hour(ts)", "The hour, 0 to 23.", 1, 1, _PART),
    Function("minute", "minute(ts)", "The minute, 0 to 59.", 1, 1, _PART),
    Function("second", "second(ts)", "The seconds within the minute, with their fraction.", 1, 1, _SECONDS),
    Function("epoch", "epoch(ts)", "Seconds since 1970-01-01 00:00:00 UTC, with their fraction.", 1, 1, _SECONDS),
)

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType({function.name: function for function in _DECLARED})

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"mod": "%", "ceiling": "ceil", "char_length": "length", "pow": "power", "substr": "substring", "!=": "<>"}
)


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def suggestion(name: str, words: Iterable[str]) -> str | None:
    """A hint for a name that does not exist: the one that is nearest to it."""
    near = difflib.get_close_matches(name, [word for word in words if word.isidentifier()], n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else None
