"""`valid_from` and `valid_until` in expressions: the interval of a row in the window through which it is read.

Both follow from the row's own time, so they are expressions over its time column.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias

from strandline.core.errors import Span
from strandline.core.types import INTERVAL, TIMESTAMP, Column
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import Cast, ColumnRef, Expression, Literal
from strandline.sql import ast
from strandline.sql.binder.expressions import Operand, call

Validity: TypeAlias = tuple[Expression | None, Expression | None]

EPOCH: Final = Literal(datetime(1970, 1, 1), TIMESTAMP)


def validity(stream: BaseStream, columns: tuple[Column, ...], table: ast.StreamTable) -> Validity:
    """Both, as far as they are known when the row comes: how long a window by rows keeps it is not."""
    by_name = {column.name: ColumnRef(column.id, column.type) for column in columns}
    if stream.time_column is None:
        return None, None
    begin = _instant(by_name[stream.time_column], table.span)
    end: Expression | None = None
    if stream.end_column is not None:
        end = _instant(by_name[stream.end_column], table.span)
    else:
        match table.window:
            case None | ast.NowWindow():
                end = _later(begin, 1, table.span)
            case ast.RangeWindow(length, slide):
                step = slide.microseconds if slide else 1
                end = (
                    None if length is None else _move(_later(begin, length.microseconds, table.span), step, table.span)
                )
                begin = _move(begin, step, table.span)
            case ast.RowsWindow(_, _, slide_rows) if slide_rows > 1:
                return None, None
    if table.granularity is None:
        return begin, end
    granule = table.granularity.microseconds
    rounded = [None if at is None else _up(at, granule, table.span) for at in (begin, end)]
    return rounded[0], rounded[1]


def _instant(time: ColumnRef, span: Span) -> Expression:
    match time.type.name:
        case "TIMESTAMP":
            return time
        case "DATE":
            return Cast(time, TIMESTAMP)
    return _call("+", EPOCH, _call("*", time, Literal(1, INTERVAL), span=span), span=span)


def _later(at: Expression, microseconds: int, span: Span) -> Expression:
    return _call("+", at, Literal(microseconds, INTERVAL), span=span)


def _move(at: Expression, slide: int, span: Span) -> Expression:
    """The first instant from `at` on at which a window moves: one before a multiple of its slide."""
    if slide == 1:
        return at
    return _later(_call("date_bin", Literal(slide, INTERVAL), at, EPOCH, span=span), slide - 1, span)


def _up(at: Expression, granule: int, span: Span) -> Expression:
    """The first border of a granule from `at` on."""
    return _call("date_bin", Literal(granule, INTERVAL), _later(at, granule - 1, span), EPOCH, span=span)


def _call(function: str, *values: Expression, span: Span) -> Expression:
    return call(function, [Operand(value, span) for value in values], span)
