"""What CREATE STREAM declares of a source: columns, time, and the promise about its order.

There is no query in it, so it needs nothing of the binder.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from strandline.logical.catalog import BadInputPolicy, BaseStream, ConnectorCall, SourceSchema
from strandline.logical.change_feed import ChangeFeed
from strandline.sql import ast
from strandline.sql.binder.declared_columns import DeclaredColumns, declare_columns
from strandline.sql.lexer import RESERVED


def bind_create_stream(statement: ast.CreateStream, source_schema: SourceSchema | None = None) -> BaseStream:
    """The stream that `CREATE STREAM name (columns) SOURCE …` declares; the source itself is not checked.

    Omitted columns, time and order are those that the source provides.
    """
    declared = declare_columns("stream", statement.name, statement.columns, statement.source, source_schema)
    time_column = None if statement.time_column is None else declared.find_time(statement.time_column)
    disorder_us = statement.within.microseconds if statement.within else 0
    source = bind_connector(statement.source)
    if not statement.columns and source_schema is not None:
        source = replace(source, options={**source_schema.options, **source.options})
        if time_column is None:
            _refuse_unclear_time(statement, source_schema)
            time_column = source_schema.time_column
        if time_column == source_schema.time_column and statement.within is None:
            disorder_us = source_schema.disorder_us
    clause = statement.bad_input
    policy = BadInputPolicy() if clause is None else BadInputPolicy(clause.stops, clause.most_rows, clause.most_share)
    return BaseStream(
        name=statement.name.name,
        columns=declared.columns,
        source=source,
        time_column=time_column,
        disorder_us=disorder_us,
        idle_after_us=statement.idle_after.microseconds if statement.idle_after else None,
        end_column=declared.find_end(statement.time_column, statement.end_column),
        statistics=declared.statistics(statement.hints, statement.end_column is not None, source_schema),
        bad_input=policy,
        changes=None
        if statement.changes is None
        else _change_feed(statement, statement.changes, declared, time_column),
    )


def _refuse_unclear_time(statement: ast.CreateStream, source_schema: SourceSchema) -> None:
    """Refuse data in which several columns may be the time."""
    if source_schema.times:
        names = list(map(written, source_schema.times))
        raise statement.source.error(
            f"{', '.join(names[:-1])} or {names[-1]} may be the time of a row of {source_schema.place}",
            "unclear-time",
            f"Add ORDERED BY and the column by which the rows are in order, as in ORDERED BY {names[0]}.",
        )


def _change_feed(
    statement: ast.CreateStream, clause: ast.ChangesIn, declared: DeclaredColumns, time_column: str | None
) -> ChangeFeed:
    if statement.end_column is not None:
        hint = (
            "Remove CHANGES IN, or use ORDERED BY: an element ends where a row says so, or at a time it brings along."
        )
        raise clause.error("CHANGES IN and VALID FROM … UNTIL exclude each other", "conflicting-clauses", hint)
    return declared.change_feed(clause, clause.key, time_column)


def declaration(
    name: str,
    ordered_by: str | None,
    until: str | None,
    within: str | timedelta | None,
    idle_after: str | timedelta | None,
) -> str:
    """The statement that would declare a registered DataFrame if SQL could name one: mistakes are shown in it."""
    words = [f"CREATE STREAM {written(name)} SOURCE dataframe()"]
    if until is not None:
        # Without a begin the parser reports what is missing.
        begin = "" if ordered_by is None else f"FROM {written(ordered_by)} "
        words.append(f"VALID {begin}UNTIL {written(until)}")
    elif ordered_by is not None:
        words.append(f"ORDERED BY {written(ordered_by)}")
    for clause, duration in (("WITHIN", within), ("IDLE AFTER", idle_after)):
        if isinstance(duration, timedelta):
            words.append(f"{clause} {duration // timedelta(microseconds=1)} MICROSECONDS")
        elif duration is not None:
            words.append(f"{clause} {duration}")
    return " ".join(words)


def written(name: str) -> str:
    """A name as SQL has it, in quotes only where it needs them."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


def bind_connector(connector: ast.Connector) -> ConnectorCall:
    """A source or sink with its values; whether it exists, or is allowed, is not checked."""
    options = {_folded(name): value.value for name, value in connector.options}
    return ConnectorCall(
        _folded(connector.function), tuple(argument.value for argument in connector.arguments), options
    )


def _folded(name: ast.Identifier) -> str:
    return name.name if name.quoted else name.name.lower()
