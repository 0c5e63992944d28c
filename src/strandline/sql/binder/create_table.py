"""What CREATE TABLE declares: columns, key, the kind of the table, and the time of its changes.

There is no query in it, so it needs nothing of the binder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.core.temporal import SECOND
from strandline.logical.catalog import ConnectorCall, SourceSchema, StreamStatistics, Table, TableKind
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.expressions import Value
from strandline.sql import ast
from strandline.sql.binder.create_stream import bind_connector, written
from strandline.sql.binder.declared_columns import Columns, DeclaredColumns, declare_columns
from strandline.sql.binder.insert_values import evaluate_default
from strandline.sql.binder.scope import VALIDITY

# A silent feed of a table follows the streams after this time: it must not hold queries back.
IDLE_AFTER_US: Final = 5 * SECOND


def bind_create_table(statement: ast.CreateTable, source_schema: SourceSchema | None = None) -> Table:
    """The table that CREATE TABLE declares; the source itself is not checked, and there is no directory yet.

    Omitted columns are those that the source provides. Its time is not taken from there: a table without ORDERED BY is
    changed by the clock.
    """
    declared = _declare(statement, source_schema)
    _check_clauses(statement)
    key = _bind_key(statement, declared)
    statistics_of_table(statement, source_schema)
    time_column = None if statement.time_column is None else declared.find_time(statement.time_column)
    kind: TableKind = "changing"
    if statement.constant or statement.end_column is not None:
        kind = "constant" if statement.constant else "temporal"
    idle_after_us = None
    if time_column is not None and kind == "changing":
        idle_after_us = statement.idle_after.microseconds if statement.idle_after else IDLE_AFTER_US
    changes = _bind_changes(statement, declared, time_column, key)
    # The operation and the time of a change are not columns of the row that it changes.
    hidden = () if changes is None else (changes.op_column, time_column)
    table = Table(
        name=statement.name.name,
        columns=tuple(column for column in declared.columns if column[0] not in hidden),
        key=key,
        kind=kind,
        retroactive=statement.retroactive is not False,
        source=None if statement.source is None else _bind_source(statement, statement.source, source_schema),
        time_column=time_column,
        end_column=declared.find_end(statement.time_column, statement.end_column),
        disorder_us=_bind_disorder(statement, time_column, source_schema),
        idle_after_us=idle_after_us,
        changes=changes,
        keep_us=statement.keep.microseconds if statement.keep else None,
        source_columns=declared.columns if changes is not None else (),
        required=_bind_required(statement, declared, key, hidden),
    )
    return replace(table, defaults=_bind_defaults(statement, declared, table))


def bind_filled_table(statement: ast.CreateTableAs, columns: Columns) -> Table:
    """The table that CREATE TABLE … AS declares, whose query has these columns."""
    span = statement.query.span
    definitions = (
        ast.ColumnDefinition(ast.Identifier(name, span=span), ast.TypeName(kind, span=span), span=span)
        for name, kind in columns
    )
    declared = ast.CreateTable(
        statement.name,
        tuple(definitions),
        statement.key,
        statement.required,
        statement.defaults,
        time_column=statement.time_column,
        end_column=statement.end_column,
        constant=statement.constant,
        retroactive=statement.retroactive,
        keep=statement.keep,
        hints=statement.hints,
        span=statement.span,
    )
    return bind_create_table(declared)


def _bind_disorder(statement: ast.CreateTable, time_column: str | None, source_schema: SourceSchema | None) -> int:
    if statement.within is not None:
        return statement.within.microseconds
    if statement.columns or source_schema is None or time_column is None or statement.end_column is not None:
        return 0
    return source_schema.disorder_us if time_column == source_schema.time_column else 0


def _bind_source(
    statement: ast.CreateTable, source: ast.Connector, source_schema: SourceSchema | None
) -> ConnectorCall:
    call = bind_connector(source)
    if statement.columns or source_schema is None:
        return call
    return replace(call, options={**source_schema.options, **call.options})


def table_declaration(name: str, columns: Columns, key: Sequence[str], source: str | None) -> str:
    """The statement that would declare a registered DataFrame: mistakes are shown in it."""
    parts = [f"{written(column)} {kind}" for column, kind in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(written, key))})")
    clause = "" if source is None else f" SOURCE {source}()"
    return f"CREATE TABLE {written(name)} ({', '.join(parts)}){clause}"


def statistics_of_table(statement: ast.CreateTable, source_schema: SourceSchema | None = None) -> StreamStatistics:
    """Statistics of `WITH (…)`, for the planner: `rate` is that of changes."""
    declared = _declare(statement, source_schema)
    return declared.statistics(statement.hints, statement.end_column is not None, source_schema)


def _declare(statement: ast.CreateTable, source_schema: SourceSchema | None) -> DeclaredColumns:
    declared = declare_columns("table", statement.name, statement.columns, statement.source, source_schema)
    times = (statement.time_column, statement.end_column)
    is_interval = all(
        time is not None and time.name.lower() == word for time, word in zip(times, VALIDITY, strict=True)
    )
    for column in statement.columns:
        if not (is_interval and column.name.name.lower() in VALIDITY):
            check_column_name(column.name)
    return declared


def check_column_name(name: ast.Identifier) -> None:
    """Refuse a column that would hide the interval of its rows, or a column of the log."""
    if name.name.lower() in VALIDITY or name.name.startswith("@"):
        hint = (
            "Every row of a table has valid_from and valid_until, and names with @ are internal; choose another name."
        )
        raise name.error(f'the column name "{name.name}" is reserved', "reserved-name", hint)


def _check_clauses(statement: ast.CreateTable) -> None:
    """Refuse clauses that say nothing together."""
    temporal = statement.end_column is not None
    if statement.source is None:
        hint = "Add a SOURCE, or give the times in statements: INSERT … AT TIMESTAMP '…'."
        if statement.time_column is not None and not temporal:
            raise statement.time_column.error("ORDERED BY needs a SOURCE", "clause-without-source", hint)
        if statement.changes is not None:
            raise statement.changes.error("CHANGES IN needs a SOURCE", "clause-without-source", hint)
    exclusive = {
        "VALID FROM … UNTIL": statement.end_column,
        "ORDERED BY": None if temporal else statement.time_column,
        "CHANGES IN": statement.changes,
    }
    given = [(clause, node) for clause, node in exclusive.items() if node is not None]
    if statement.constant and given:
        clause, node = given[0]
        hint = "Remove one of them: a constant table is the same at all times."
        raise node.error(f"CONSTANT and {clause} exclude each other", "conflicting-clauses", hint)
    if statement.constant and statement.retroactive is not None:
        hint = "Remove one of them: a constant table has no changes."
        word = "RETROACTIVE" if statement.retroactive else "NON RETROACTIVE"
        raise statement.error(f"CONSTANT and {word} exclude each other", "conflicting-clauses", hint)
    if temporal and statement.changes is not None:
        hint = "Remove CHANGES IN, or use ORDERED BY: a row ends where another says so, or at a time it brings along."
        raise statement.changes.error(
            "CHANGES IN and VALID FROM … UNTIL exclude each other", "conflicting-clauses", hint
        )


def _bind_key(statement: ast.CreateTable, declared: DeclaredColumns) -> tuple[str, ...]:
    """The primary key, which may stand in the column list or after CHANGES IN."""
    key = declared.find_all(statement.key)
    feed_key = () if statement.changes is None else declared.find_all(statement.changes.key)
    if key and feed_key and set(key) != set(feed_key):
        assert statement.changes is not None, "the key of a feed comes from its clause"
        hint = "Declare the PRIMARY KEY once, in the list of columns."
        raise statement.changes.error("two different primary keys", "conflicting-clauses", hint)
    return key or feed_key


def _bind_required(
    statement: ast.CreateTable, declared: DeclaredColumns, key: tuple[str, ...], hidden: tuple[str | None, ...]
) -> tuple[str, ...]:
    """The columns outside the key that are NOT NULL, in their order. The operation and the time of a change are never
    NULL in a row that takes effect."""
    names = {declared.find(column)[0] for column in statement.required}
    return tuple(name for name, _ in declared.columns if name in names and name not in key and name not in hidden)


def _bind_defaults(statement: ast.CreateTable, declared: DeclaredColumns, table: Table) -> dict[str, Value]:
    """The values of DEFAULT, which are constants."""
    if statement.defaults and statement.source is not None:
        hint = "Leave it out: rows of a source are what they are, and NULL where it has nothing."
        raise statement.defaults[0].error("DEFAULT and SOURCE exclude each other", "conflicting-clauses", hint)
    return {
        declared.find(item.column)[0]: evaluate_default(table, declared.find(item.column)[0], item.value)
        for item in statement.defaults
    }


def _bind_changes(
    statement: ast.CreateTable, declared: DeclaredColumns, time_column: str | None, key: tuple[str, ...]
) -> ChangeFeed | None:
    if statement.changes is None:
        return None
    identifiers = statement.key or statement.changes.key
    feed = declared.change_feed(statement.changes, identifiers, time_column)
    assert feed.key == key, "a table and its feed have one key"
    return feed
