"""Errors of tables: who else writes one, what does not fit into one, and what of its past is gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from strandline.core.errors import CatalogError, CheckpointError, QueryError, SourceError, StrandlineError
from strandline.core.temporal import Instant, show_instant
from strandline.logical.catalog import Table


def table_busy(table: Table, detail: str | None) -> CheckpointError:
    return CheckpointError(
        f'another process is writing to table "{table.name}" in {table.directory}',
        code="table-busy",
        detail=detail,
        hint="Stop it first, or give this table another directory. Nothing was changed.",
    )


def table_changed(table: Table, path: Path, declared: str, stored: str) -> CatalogError:
    return CatalogError(
        f'table "{table.name}" was created with another declaration',
        code="table-changed",
        detail=f"{path} has {stored}; declared is {declared}.",
        hint="Declare it as it was created, or DROP it first.",
    )


def table_replaced(directory: Path, position: int) -> CheckpointError:
    return CheckpointError(
        f"the table in {directory} is not the one that this query has read",
        code="table-replaced",
        detail=f"The query has read {position:,} changes of a table that was in this directory before.",
        hint="Put the directory of that table back, or start the query with a new checkpoint.",
    )


def table_missing(name: str) -> CheckpointError:
    return CheckpointError(
        f'table "{name}" is not declared',
        code="table-missing",
        detail="A query of the checkpoint reads it.",
        hint="Declare it as before, also where the query is to be dropped: its last batch may have to run again.",
    )


def table_closed(table: Table) -> QueryError:
    return QueryError(f'table "{table.name}" is closed', code="table-closed", hint="Open the database again.")


def change_too_old(table: Table, at: Instant, floor: Instant, reason: str) -> QueryError:
    return QueryError(
        f'cannot change table "{table.name}" at {show_instant(at)}',
        code="change-too-old",
        detail=f"{reason} {show_instant(floor)}: changes come in the order of their times.",
        hint="Give a later time with AT TIMESTAMP, or none for the current one.",
    )


def bad_instant(at: Instant) -> QueryError:
    return QueryError(
        f"{show_instant(at)} is not a time of a change",
        code="bad-instant",
        hint="Give a time in the years 1678 to 2261.",
    )


def duplicate_key(table: Table, keys: pl.DataFrame, detail: str = "") -> QueryError:
    """`keys` has the first key that would be there twice."""
    return QueryError(
        f'duplicate key in table "{table.name}": {show_key(table.key, keys)}',
        code="duplicate-key",
        detail=detail or "Rows of a table differ in their PRIMARY KEY at every instant. Nothing was changed.",
        hint="Change the key, or write INSERT … ON CONFLICT DO UPDATE or DO NOTHING.",
    )


def conflict_of_periods(table: Table) -> QueryError:
    return QueryError(
        f'cannot INSERT … ON CONFLICT into temporal table "{table.name}"',
        code="not-supported",
        detail="A key may be in several rows, whose periods do not overlap.",
        hint="DELETE or UPDATE the rows of the key, or write MERGE.",
    )


def null_key(table: Table, column: str) -> QueryError:
    return QueryError(
        f'NULL in column "{column}" of the PRIMARY KEY of table "{table.name}"',
        code="null-key",
        hint="Give it a value. Nothing was changed.",
    )


def null_value(table: Table, column: str, row: pl.DataFrame, number: int) -> QueryError:
    """`row` is the first of the rows with NULL, and `number` its place among those that were to be there."""
    return QueryError(
        f'NULL in column "{column}" of table "{table.name}", which is NOT NULL',
        code="null-value",
        detail=f"Row {number} is {row.row(0)!r}. Nothing was changed.",
        hint="Give it a value, or leave the row out.",
    )


def wrong_period(table: Table, reason: str, row: pl.DataFrame) -> QueryError:
    return QueryError(
        f'a row of temporal table "{table.name}" has no period: {reason}',
        code="unfit-rows",
        detail=f"The row is {row.row(0)!r}. Nothing was changed.",
        hint=f"A row is valid from {table.time_column} until right before {table.end_column}: give it an end that is "
        "later than its start, or NULL.",
    )


def merge_twice(table: Table, row: pl.DataFrame) -> QueryError:
    return QueryError(
        f'MERGE cannot change a row of table "{table.name}" a second time',
        code="merge-twice",
        detail=f"Several source rows match {show_key(row.columns, row)}. Nothing was changed.",
        hint="Make the source rows unique for the ON condition.",
    )


def unfit_rows(table: Table, what: str) -> SourceError:
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
    return SourceError(
        f'rows do not match table "{table.name}": {what}',
        code="unfit-rows",
        hint=f"It has the columns {columns}. Rows are tables of Arrow, Polars or pandas, or lists of tuples or dicts.",
    )


def not_replayable(directory: Path, start: int, first: int) -> SourceError:
    return SourceError(
        f"changes of a table before position {first} are no longer retained",
        code="not-replayable",
        detail=f"Changes from {start} on were requested; {directory} has none of them.",
        hint="KEEP says how long they are retained. Start over with a new checkpoint.",
    )


def no_longer_kept(table: Table, at: Instant, since: Instant) -> QueryError:
    return QueryError(
        f'the content of table "{table.name}" at {show_instant(at)} is no longer kept',
        code="no-longer-kept",
        detail=f"Its past is kept from {show_instant(since)} on.",
        hint="Ask for a later time, or declare the table with a longer KEEP.",
    )


def feed_failed(table: Table, failure: StrandlineError, remedy: str | None) -> SourceError:
    return SourceError(
        f'the source of table "{table.name}" has failed: {failure.message}',
        code="feed-failed",
        detail=failure.detail,
        hint=remedy,
    )


def source_changed(table: Table) -> CatalogError:
    return CatalogError(
        f'table "{table.name}" was read from another source',
        code="source-changed",
        detail=f"{table.directory} has the position in that one.",
        hint="Declare it with the source that it had, or DROP it first.",
    )


def has_source(table: Table) -> CatalogError:
    assert table.source is not None, "it has a source"
    return CatalogError(
        f'table "{table.name}" is changed by its source only',
        code="table-has-source",
        hint=f"Change the data behind {table.source.function}(), or declare a table without SOURCE.",
    )


def endless_source(table: Table, seconds: float) -> SourceError:
    assert table.source is not None, "it has a source"
    return SourceError(
        f'the source of {table.kind} table "{table.name}" does not end',
        code="endless-source",
        detail=f"{table.source.function}() has brought nothing for {seconds:.0f} seconds, and may go on.",
        hint="Bound it, as with until => 'latest' or follow => false, or declare a table that changes.",
    )


def show_key(names: Sequence[str], keys: pl.DataFrame) -> str:
    """The first key of a frame, as `(a, b) = (1, 'x')`."""
    values = keys.row(0)
    if len(names) == 1:
        return f"{names[0]} = {values[0]!r}"
    return f"({', '.join(names)}) = ({', '.join(repr(value) for value in values)})"
