"""What an expression costs to compute, roughly: nanoseconds for each row, on columns of usual values.

The figures decide between strategies with the same result, never the result. They are of one machine and need to
be right only up to a factor of two: most functions cost next to nothing, and a few a hundred times as much. Those of
functions are in their declarations.
"""

from __future__ import annotations

from typing import Final

from strandline.core.types import Type
from strandline.functions.registry import declaration
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall

_CHEAP: Final = 4
_DECIMAL: Final = 12  # arithmetic of 128 bits
_USER: Final = 1_000


def own_cost(expression: Expression) -> int:
    """What the outermost step of an expression costs, its parts aside."""
    match expression:
        case Literal() | ColumnRef():
            return 0
        case UserCall():
            return _USER
        case Case(branches, _, _):
            return _CHEAP * len(branches)
        case Cast(operand, kind):
            return _cost_of_cast(operand.type, kind)
        case Call(function, arguments, kind):
            if (cost := declaration(function).cost) is not None:
                return cost
            return _DECIMAL if "DECIMAL" in (kind.name, *(a.type.name for a in arguments)) else _CHEAP


def _cost_of_cast(source: Type, target: Type) -> int:
    match source.name, target.name:
        case "VARCHAR", "TIMESTAMP" | "DATE" | "DECIMAL":
            return 400
        case "TIMESTAMP" | "DOUBLE", "VARCHAR":
            return 150
        case ("VARCHAR", _) | (_, "VARCHAR"):
            return 40
    return _DECIMAL if "DECIMAL" in (source.name, target.name) else _CHEAP
