"""The declaration of a scalar function, and the rules of typing that declarations name.

Typing follows PostgreSQL, with these decisions: integer arithmetic is always 64 bit, DECIMAL stays exact in + - * and
%, everything else is DOUBLE.

A type of NULL means "not known yet". A bare NULL has it, and so may a bare text literal: then `ts > '2024-01-01'` casts
the text to a TIMESTAMP, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.core.lazy import pl
from strandline.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    VARCHAR,
    Type,
    as_decimal,
    common_type,
    is_integer,
    is_numeric,
)
from strandline.functions.oracles import Spellings
from strandline.logical.expressions import Call, Expression

Types: TypeAlias = tuple[Type, ...]

ARRAY_HINT: Final = "Take an element, as in a[1], or array_to_string(a, ', ')."
"""The hint where an array cannot be compared, sorted or cast."""


class FunctionError(ValueError):
    """A function does not exist or does not accept its arguments; the caller knows the places in the text.

    `argument` says which one is to blame, if it is one.
    """

    def __init__(self, message: str, hint: str | None = None, argument: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.argument = argument


# A typing rule gives the types to which the arguments are cast and the result type, or None if it does not apply.
Rule: TypeAlias = Callable[[Types], tuple[Types, Type] | None]


# Refuses arguments that must be known before the query runs and are not, by raising a FunctionError.
Check: TypeAlias = Callable[[Sequence[Expression]], None]


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function, declared completely: all that the project knows of it is in this one place.

    Law    `vectorized` over columns has in row i the value of `meaning` over row i

    usage, doc     how it is written, and one line of reference
    max_arguments  None means any number
    rule           the typing rule
    meaning        the value for single values: the reference. A strict function is NULL as soon as one argument is, and
                   its meaning sees no NULL; that of another one sees them as None
    vectorized     the same over columns: of the call and a Polars expression for each argument
    check          refuses arguments that must be known before the query runs and are not
    sql            how databases write it (`oracles.py`); `duckdb` and `postgresql` where one of them differs
    cost           nanoseconds per row; None is next to nothing (`subexpressions.py`)
    granularity    microseconds. Over a column of instants the value is the same for all instants of a granule
    """

    name: str
    usage: str
    doc: str
    min_arguments: int
    max_arguments: int | None
    rule: Rule
    meaning: Callable[..., Any]
    vectorized: Callable[..., pl.Expr]
    strict: bool = True
    check: Check | None = None
    sql: Spellings | None = None
    duckdb: Spellings | None = None
    postgresql: Spellings | None = None
    cost: int | None = None
    granularity: int | Callable[[Call], int | None] | None = None
    aliases: tuple[str, ...] = ()


def meet(types: Sequence[Type]) -> Type | None:
    """The type in which values of all these types can be compared or stored together, or None.

    DECIMALs that no DECIMAL can hold together become DOUBLE: less exact, but a large value does not vanish. If nothing
    is known of any type, the result is VARCHAR, as in PostgreSQL.
    """
    kind: Type | None = NULL
    for other in types:
        kind = None if kind is None else _meet(kind, other)
    return VARCHAR if kind == NULL else kind


def castable(source: Type, target: Type) -> bool:
    """Whether CAST is defined; for single values it may still yield NULL."""
    if source in (target, NULL):
        return target != NULL
    if INTERVAL in (source, target):
        return False
    if source.element is not None and target.element is not None:
        return castable(source.element, target.element)
    if source.element is not None or target.element is not None:
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
        if any(part != NULL and integer_digits(part) > digits for part in (left, right)):
            return DOUBLE
    return kind


def integer_digits(kind: Type) -> int:
    held = as_decimal(kind)
    return held.precision - held.scale


def fixed(result: Type, *accepted: Type) -> Rule:
    """Arguments of these types, up to implicit widening; the last ones may be missing if the function allows it."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        targets = accepted[: len(types)]
        return (targets, result) if all(map(is_implicitly_castable, types, targets)) else None

    return rule


def is_implicitly_castable(source: Type, target: Type) -> bool:
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


def alike(result: Type | None) -> Rule:
    """Any arguments that have a common type; it is the result too if `result` is None."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        kind = meet(types)
        return None if kind is None else ((kind,) * len(types), result or kind)

    return rule


def comparable(result: Type | None) -> Rule:
    """The same for arguments that have an order."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        array = next((kind for kind in types if kind.element is not None), None)
        if array is not None:
            raise FunctionError(f"cannot compare values of type {array}", ARRAY_HINT)
        return alike(result)(types)

    return rule


def all_of(accepted: Type, result: Type) -> Rule:
    """Any number of arguments of one type."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        return (
            ((accepted,) * len(types), result)
            if all(is_implicitly_castable(kind, accepted) for kind in types)
            else None
        )

    return rule


def any_text(types: Types) -> tuple[Types, Type] | None:
    """Everything that has a text form, as text."""
    return ((VARCHAR,) * len(types), VARCHAR) if all(castable(kind, VARCHAR) for kind in types) else None


def number(types: Types) -> Type | None:
    """The type for arithmetic over these: BIGINT, DECIMAL or DOUBLE."""
    if not all(is_numeric(kind) or kind == NULL for kind in types):
        return None
    kind = meet(types)
    return BIGINT if kind in (INT, VARCHAR) else kind


def numeric(result: Callable[[Type], Type] | None = None) -> Rule:
    """Numbers in the type for arithmetic over them, which is the result type too if `result` does not give another."""

    def rule(types: Types) -> tuple[Types, Type] | None:
        kind = number(types)
        return None if kind is None else ((kind,) * len(types), kind if result is None else result(kind))

    return rule


def exact(types: Types) -> tuple[Type, Type] | None:
    """Both operands as DECIMALs if one is a DECIMAL and neither is a DOUBLE."""
    if number(types) is None or all(kind.name != "DECIMAL" for kind in types) or DOUBLE in types:
        return None
    left, right = (as_decimal(INT if kind == NULL else kind) for kind in types)
    return left, right
