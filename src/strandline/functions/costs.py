"""What an expression costs to compute, roughly: nanoseconds for each row, on columns of usual values.

The figures decide which of two ways to the same answer is taken, never the answer. They are of one machine and need to
be right only up to a factor of two: most functions cost next to nothing, and a few a hundred times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.core.types import Type
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall

_CHEAP: Final = 4
_DECIMAL: Final = 12  # arithmetic of 128 bits
_USER: Final = 1_000

_CALLS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("trim", "ltrim", "rtrim", "substring", "contains", "||", "concat"), 40),
    **dict.fromkeys(("lower", "upper", "strpos"), 80),
    **dict.fromkeys(("like", "similar", "regexp_like", "match", "regexp_substr", "replace", "regexp_replace"), 150),
    **dict.fromkeys(("ascii", "chr", "overlay"), 150),
    **dict.fromkeys(("split_part", "@split", "to_char", "repeat", "md5", "translate", "array_to_string"), 250),
    **dict.fromkeys(("regexp_count", "concat_ws"), 500),
    **dict.fromkeys(("lpad", "rpad", "reverse", "initcap"), 2_000),
    **dict.fromkeys(("year", "isoyear", "quarter", "month", "week", "day", "doy", "hour", "minute"), 15),
    **dict.fromkeys(("decade", "century", "millennium", "date_trunc", "date_bin", "length"), 15),
    **dict.fromkeys(("make_date", "make_timestamp", "to_timestamp"), 40),
    **dict.fromkeys(("cbrt", "power", "exp", "ln", "log", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"), 20),
}


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
            wide = "DECIMAL" in (kind.name, *(argument.type.name for argument in arguments))
            return _CALLS.get(function, _DECIMAL if wide else _CHEAP)


def _cost_of_cast(source: Type, target: Type) -> int:
    match source.name, target.name:
        case "VARCHAR", "TIMESTAMP" | "DATE" | "DECIMAL":
            return 400
        case "TIMESTAMP" | "DOUBLE", "VARCHAR":
            return 150
        case ("VARCHAR", _) | (_, "VARCHAR"):
            return 40
    return _DECIMAL if "DECIMAL" in (source.name, target.name) else _CHEAP
