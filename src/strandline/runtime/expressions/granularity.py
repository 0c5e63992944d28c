"""How exactly an expression looks at an instant: what asks for the hour has one value for all instants of an hour.

Law    where `granule(e)` is g, the value of e at an instant t is its value at any other t' with t // g = t' // g
"""

from __future__ import annotations

from strandline.core.temporal import DAY, MICROSECOND
from strandline.functions.registry import declaration
from strandline.logical.expressions import Call, Cast, ColumnRef, Expression, Literal, children


def granule(expression: Expression) -> int:
    """The length of the granules within which the expression is constant, if it reads one column of instants."""
    match expression:
        case ColumnRef():
            return MICROSECOND
        case Literal():
            return DAY
        case Call() if (declared := _declared_granularity(expression)) is not None:
            return declared
        case Cast(ColumnRef(_, source), target) if (source.name, target.name) == ("TIMESTAMP", "DATE"):
            return DAY
    return min((granule(child) for child in children(expression)), default=DAY)


def _declared_granularity(call: Call) -> int | None:
    """That of a function of the column itself; what is computed from the column has one of its own."""
    if not all(isinstance(argument, ColumnRef | Literal) for argument in call.arguments):
        return None
    declared = declaration(call.function).granularity
    return declared(call) if callable(declared) else declared
