"""What CREATE STREAM declares of a source: columns, time, and the promise about its order.

A room beside the binder: there is no query in it.
"""

from __future__ import annotations

from typing import Final

from strandline.catalog import BaseStream, SourceCall
from strandline.errors import BindError
from strandline.lang import ast
from strandline.lang.scope import suggestion

TIME_TYPES: Final = ("TIMESTAMP", "DATE", "BIGINT")


def bind_create_stream(statement: ast.CreateStream) -> BaseStream:
    """The stream that `CREATE STREAM name (columns) SOURCE …` declares; whether the source exists is not asked."""
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.name.lower() in seen:
            raise BindError(
                f'column "{column.name.name}" is declared twice', code="duplicate-column", span=column.name.span
            )
        seen.add(column.name.name.lower())
    return BaseStream(
        name=statement.name.name,
        columns=tuple((column.name.name, column.type.type) for column in statement.columns),
        source=bind_connector(statement.source),
        time_column=None if statement.time_column is None else _time_column(statement, statement.time_column),
        disorder_us=statement.within.microseconds if statement.within else 0,
        idle_after_us=statement.idle_after.microseconds if statement.idle_after else None,
        end_column=_end_column(statement),
    )


def bind_connector(connector: ast.Connector) -> SourceCall:
    """A source or sink with its values; whether it exists is not asked."""
    options = {_folded(name): value.value for name, value in connector.options}
    return SourceCall(_folded(connector.function), tuple(each.value for each in connector.arguments), options)


def _end_column(statement: ast.CreateStream) -> str | None:
    if statement.end_column is None or statement.time_column is None:
        return None
    end = _time_column(statement, statement.end_column)
    if end == _time_column(statement, statement.time_column):
        raise BindError(
            f'"{end}" is both the start and the end of an interval',
            code="empty-interval",
            hint="The row would never be valid: an interval does not contain its end.",
            span=statement.end_column.span,
        )
    return end


def _time_column(statement: ast.CreateStream, wanted: ast.Identifier) -> str:
    found = next((column for column in statement.columns if wanted.matches(column.name.name)), None)
    if found is None:
        names = [column.name.name for column in statement.columns]
        raise BindError(
            f'column "{wanted.name}" does not exist in stream "{statement.name.name}"',
            code="unknown-column",
            hint=suggestion(wanted.name, names, "Columns are"),
            span=wanted.span,
        )
    if found.type.type.name not in TIME_TYPES:
        raise BindError(
            f'the time column "{found.name.name}" is {found.type.type}',
            code="time-column-type",
            hint="A time column is a TIMESTAMP, a DATE, or a BIGINT in microseconds since 1970.",
            span=wanted.span,
        )
    return found.name.name


def _folded(name: ast.Identifier) -> str:
    return name.name if name.quoted else name.name.lower()
