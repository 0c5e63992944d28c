"""SQL types, columns and schemas, and their Arrow types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Type:
    """An SQL type. `precision` and `scale` belong to DECIMAL only, `element` to ARRAY."""

    name: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name


BOOLEAN: Final = Type("BOOLEAN")
INT: Final = Type("INT")  # 32 bit
BIGINT: Final = Type("BIGINT")  # 64 bit
DOUBLE: Final = Type("DOUBLE")
VARCHAR: Final = Type("VARCHAR")
DATE: Final = Type("DATE")
TIMESTAMP: Final = Type("TIMESTAMP")  # microseconds, UTC
INTERVAL: Final = Type("INTERVAL")  # microseconds; only inside expressions
NULL: Final = Type("NULL")  # the type of a bare NULL, until it meets another type

MAX_PRECISION: Final = 38


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL(precision, scale), with the precision capped at what Arrow and PostgreSQL users can rely on."""
    return Type("DECIMAL", min(precision, MAX_PRECISION), scale)


def array_of(element: Type) -> Type:
    """The arrays of values of a type, printed as `INT[]`."""
    return Type("ARRAY", element=element)


def is_numeric(kind: Type) -> bool:
    return kind.name in ("INT", "BIGINT", "DOUBLE", "DECIMAL")


def is_integer(kind: Type) -> bool:
    return kind.name in ("INT", "BIGINT")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a plan: `id` is unique within the plan, `name` is shown in results."""

    id: str
    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.id} {self.type}"


Schema: TypeAlias = tuple[Column, ...]


_ARROW_TYPES: Final = {
    BOOLEAN: pa.bool_(),
    INT: pa.int32(),
    BIGINT: pa.int64(),
    INTERVAL: pa.int64(),
    DOUBLE: pa.float64(),
    VARCHAR: pa.large_string(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us"),
    NULL: pa.null(),
}


def arrow_type(kind: Type) -> pa.DataType:
    """The Arrow type that holds values of an SQL type."""
    if kind.element is not None:
        return pa.large_list(arrow_type(kind.element))
    return pa.decimal128(kind.precision, kind.scale) if kind.name == "DECIMAL" else _ARROW_TYPES[kind]


def common_type(left: Type, right: Type) -> Type | None:
    """The type in which values of both types can be compared or stored together, or None."""
    if left == right:
        return left
    if left == NULL:
        return right
    if right == NULL:
        return left
    names = {left.name, right.name}
    if is_numeric(left) and is_numeric(right):
        if "DOUBLE" in names:
            return DOUBLE
        if "DECIMAL" in names:
            one, two = as_decimal(left), as_decimal(right)
            scale = max(one.scale, two.scale)
            return decimal(max(one.precision - one.scale, two.precision - two.scale) + scale, scale)
        return BIGINT
    if names == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    return None


def as_decimal(kind: Type) -> Type:
    """The DECIMAL that holds every value of an integer type; a DECIMAL itself."""
    match kind.name:
        case "INT":
            return decimal(10, 0)
        case "BIGINT":
            return decimal(19, 0)
    return kind
