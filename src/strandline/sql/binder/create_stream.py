"""What CREATE STREAM declares of a source: columns, time, and the promise about its order.

There is no query in it, so it needs nothing of the binder.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from strandline.core.errors import BindError
from strandline.core.types import Type
from strandline.logical.catalog import BadInputPolicy, BaseStream, ConnectorCall, SourceSchema, StreamStatistics
from strandline.logical.change_feed import ChangeFeed
from strandline.sql import ast
from strandline.sql.binder.scope import suggestion
from strandline.sql.lexer import RESERVED

Columns: TypeAlias = tuple[tuple[str, Type], ...]

TIME_TYPES: Final = ("TIMESTAMP", "DATE", "BIGINT")


def bind_create_stream(statement: ast.CreateStream, source_schema: SourceSchema | None = None) -> BaseStream:
    """The stream that `CREATE STREAM name (columns) SOURCE …` declares; the source itself is not checked.

    Omitted columns, time and order are those that the source provides.
    """
    columns = _columns(statement, source_schema)
    time_column = None if statement.time_column is None else _time_column(statement, columns, statement.time_column)
    disorder_us = statement.within.microseconds if statement.within else 0
    if not statement.columns and source_schema is not None:
        if time_column is None:
            time_column = source_schema.time_column
        if time_column == source_schema.time_column and statement.within is None:
            disorder_us = source_schema.disorder_us
    clause = statement.bad_input
    policy = BadInputPolicy() if clause is None else BadInputPolicy(clause.stops, clause.most_rows, clause.most_share)
    return BaseStream(
        name=statement.name.name,
        columns=columns,
        source=bind_connector(statement.source),
        time_column=time_column,
        disorder_us=disorder_us,
        idle_after_us=statement.idle_after.microseconds if statement.idle_after else None,
        end_column=_end_column(statement, columns),
        statistics=_statistics(statement, columns, source_schema),
        bad_input=policy,
        changes=None if statement.changes is None else _change_feed(statement, statement.changes, columns, time_column),
    )


def _statistics(statement: ast.CreateStream, columns: Columns, source_schema: SourceSchema | None) -> StreamStatistics:
    """Statistics of `WITH (…)`, completed by those of the source."""
    rate = source_schema.rate if source_schema is not None else None
    length: float | None = None
    values: dict[str, float] = {}
    names = {name.lower(): name for name, _ in columns}
    for hint in statement.hints:
        if hint.name.name.lower() == "rate":
            rate = hint.value
        elif hint.name.name.lower() == "length" and statement.end_column is not None:
            length = hint.value
        elif hint.column is not None:
            name = names.get(hint.column.name.lower())
            if name is None:
                raise _unknown_column(statement, columns, hint.column)
            values[name] = hint.value
        else:
            listing = (
                "Hints are rate, in rows per second, distinct(column), its number of distinct values, and for streams"
                " with VALID FROM length, the mean validity in seconds."
            )
            raise hint.name.error(f'unknown hint "{hint.name.name}"', "unknown-hint", listing)
    return StreamStatistics(rate, values, length)


def declaration(
    name: str,
    ordered_by: str | None,
    until: str | None,
    within: str | timedelta | None,
    idle_after: str | timedelta | None,
) -> str:
    """The statement that would declare a registered DataFrame if SQL could name one: mistakes are shown in it."""
    words = [f"CREATE STREAM {_written(name)} SOURCE dataframe()"]
    if until is not None:
        # Without a begin the parser reports what is missing.
        begin = "" if ordered_by is None else f"FROM {_written(ordered_by)} "
        words.append(f"VALID {begin}UNTIL {_written(until)}")
    elif ordered_by is not None:
        words.append(f"ORDERED BY {_written(ordered_by)}")
    for clause, duration in (("WITHIN", within), ("IDLE AFTER", idle_after)):
        if isinstance(duration, timedelta):
            words.append(f"{clause} {duration // timedelta(microseconds=1)} MICROSECONDS")
        elif duration is not None:
            words.append(f"{clause} {duration}")
    return " ".join(words)


def _written(name: str) -> str:
    """A name as SQL has it, in quotes only where it needs them."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


def bind_connector(connector: ast.Connector) -> ConnectorCall:
    """A source or sink with its values; whether it exists, or is allowed, is not checked."""
    options = {_folded(name): value.value for name, value in connector.options}
    return ConnectorCall(
        _folded(connector.function), tuple(argument.value for argument in connector.arguments), options
    )


def _columns(statement: ast.CreateStream, source_schema: SourceSchema | None) -> Columns:
    if not statement.columns:
        if source_schema is None:
            hint = f"Declare the columns: CREATE STREAM {statement.name.name} (column TYPE, …) SOURCE …."
            message = f"{statement.source.function.name}() needs a column list"
            raise statement.source.error(message, "columns-missing", hint)
        return source_schema.columns
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.name.lower() in seen:
            raise column.name.error(f'duplicate column "{column.name.name}"', "duplicate-column")
        seen.add(column.name.name.lower())
    return tuple((column.name.name, column.type.type) for column in statement.columns)


def _end_column(statement: ast.CreateStream, columns: Columns) -> str | None:
    if statement.end_column is None or statement.time_column is None:
        return None
    end = _time_column(statement, columns, statement.end_column)
    if end == _time_column(statement, columns, statement.time_column):
        hint = "Name two columns: an interval excludes its end, so the row would never be valid."
        message = f'"{end}" is both the start and the end of an interval'
        raise statement.end_column.error(message, "empty-interval", hint)
    return end


def _change_feed(
    statement: ast.CreateStream, clause: ast.ChangesIn, columns: Columns, time_column: str | None
) -> ChangeFeed:
    if statement.end_column is not None:
        hint = (
            "Remove CHANGES IN, or use ORDERED BY: an element ends where a row says so, or at a time it brings along."
        )
        raise clause.error("CHANGES IN and VALID FROM … UNTIL exclude each other", "conflicting-clauses", hint)
    op_column, kind = _column(statement, columns, clause.op_column)
    if kind.name != "VARCHAR":
        hint = "Declare it VARCHAR, with values such as 'insert' and 'delete', '+' and '-', or 'c', 'u' and 'd'."
        message = f'the operation column "{op_column}" cannot be of type {kind}'
        raise clause.op_column.error(message, "operation-column-type", hint)
    key: list[str] = []
    for identifier in clause.key:
        name, _ = _column(statement, columns, identifier)
        if name in (op_column, time_column):
            what = "operation" if name == op_column else "time"
            hint = "Name columns that identify a row while it changes."
            raise identifier.error(f'"{name}" is the {what} of a change, not part of a key', "bad-key", hint)
        if name in key:
            raise identifier.error(f'duplicate column "{name}"', "duplicate-column")
        key.append(name)
    if all(name in (op_column, time_column) for name, _ in columns):
        hint = "Declare further columns: the operation and the time are not part of the rows that queries see."
        raise clause.error("a change feed needs columns that change", "columns-missing", hint)
    return ChangeFeed(op_column, tuple(key))


def _column(statement: ast.CreateStream, columns: Columns, identifier: ast.Identifier) -> tuple[str, Type]:
    column = next((column for column in columns if identifier.matches(column[0])), None)
    if column is None:
        raise _unknown_column(statement, columns, identifier)
    return column


def _unknown_column(statement: ast.CreateStream, columns: Columns, identifier: ast.Identifier) -> BindError:
    hint = suggestion(identifier.name, [name for name, _ in columns], "Columns are")
    message = f'column "{identifier.name}" does not exist in stream "{statement.name.name}"'
    return identifier.error(message, "unknown-column", hint)


def _time_column(statement: ast.CreateStream, columns: Columns, identifier: ast.Identifier) -> str:
    name, kind = _column(statement, columns, identifier)
    if kind.name not in TIME_TYPES:
        hint = "Use a TIMESTAMP, a DATE, or a BIGINT in microseconds since 1970."
        raise identifier.error(f'the time column "{name}" cannot be of type {kind}', "time-column-type", hint)
    return name


def _folded(name: ast.Identifier) -> str:
    return name.name if name.quoted else name.name.lower()
