"""Time granularity of an expression: the hour of a timestamp is constant over all instants of that hour.

Law    where `granule(e)` is g, the value of e at an instant t is its value at any other t' with t // g = t' // g
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.core.temporal import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from strandline.functions.definitions.datetimes import trunc_unit
from strandline.functions.definitions.formatting import Digits, Name, Piece, pieces
from strandline.logical.expressions import Call, Cast, ColumnRef, Expression, Literal, children

_OF_PART: Final[Mapping[str, int]] = {
    **dict.fromkeys(("year", "isoyear", "quarter", "month", "week", "day", "doy", "dow", "isodow"), DAY),
    **dict.fromkeys(("decade", "century", "millennium"), DAY),
    "hour": HOUR,
    "minute": MINUTE,
}
# Units and parts that are not here change with the day.
_OF_UNIT: Final[Mapping[str, int]] = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
}
_OF_PIECE: Final[Mapping[str, int]] = {
    **_OF_UNIT,
    **dict.fromkeys(("half", "hour of half"), HOUR),
    "second of day": SECOND,
}


def granule(expression: Expression) -> int:
    """The length of the granules within which the expression is constant, if it reads one column of instants."""
    match expression:
        case ColumnRef():
            return MICROSECOND
        case Literal():
            return DAY
        case Call(function, (ColumnRef(),), _) if function in _OF_PART:
            return _OF_PART[function]
        case Call("date_trunc", (Literal(str(unit), _), ColumnRef()), _):
            return _OF_UNIT.get(trunc_unit(unit) or "", DAY)
        case Call("to_char", (ColumnRef(), Literal(str(form), _)), _):
            return min((_of_piece(piece) for piece in pieces(form)), default=DAY)
        case Cast(ColumnRef(_, source), target) if (source.name, target.name) == ("TIMESTAMP", "DATE"):
            return DAY
    return min((granule(child) for child in children(expression)), default=DAY)


def _of_piece(piece: Piece) -> int:
    match piece:
        case Digits(part) | Name(part):
            return _OF_PIECE.get(part, DAY)
    return DAY
