"""PRIMARY KEY and NOT NULL of a table: values that are there, and at every instant each key in one row at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.connectors.tables import errors
from strandline.connectors.tables.blocks import ID
from strandline.connectors.tables.content import RowChanges, TableContent
from strandline.connectors.tables.periods import check_periods, overlapping_rows
from strandline.logical.catalog import Table
from strandline.logical.expressions import Expression
from strandline.runtime.kernels.batch import pick
from strandline.runtime.kernels.grouping import group_codes


def is_assigned(table: Table, assignments: Sequence[tuple[str, Expression]]) -> bool:
    """True if assignments may give a row another key, or another period, or NULL where there must be a value."""
    identifying = {*table.key, *_period(table), *table.required}
    return any(name in identifying for name, _ in assignments)


def checked(changes: RowChanges, content: TableContent, table: Table) -> RowChanges:
    """The changes, if every key of the result is there once, no column is NULL that must not be, no period empty."""
    check_nulls(changes.inserted, table)
    check_periods(changes.inserted, table)
    if not table.key or not changes.inserted.height:
        return changes
    keys = pick(changes.inserted, table.key)
    numbers, existing = content.find(keys)
    stays = ~np.isin(existing.get_column(ID).to_numpy(), changes.deleted.get_column(ID).to_numpy())
    if _period(table):
        rows = changes.inserted.select(content.columns)
        there = existing.filter(pl.Series(stays)).unique(ID, maintain_order=True).select(content.columns)
        check_rows(pl.concat([there, rows], rechunk=True), table)
    elif (again := repeated(keys, table)) is not None:
        raise errors.duplicate_key(table, again)
    elif stays.any():
        raise errors.duplicate_key(table, keys[int(numbers[stays][0])])
    return changes


def check_rows(rows: pl.DataFrame, table: Table) -> None:
    """Check that rows can be the content of a table by themselves."""
    check_nulls(rows, table)
    check_periods(rows, table)
    if not table.key:
        return
    keys = pick(rows, table.key)
    again = _overlapping(rows, table) if _period(table) else repeated(keys, table)
    if again is not None:
        raise errors.duplicate_key(table, again)


def check_nulls(rows: pl.DataFrame, table: Table) -> None:
    """Refuse NULL in the key, and in columns that are NOT NULL."""
    for name in table.key:
        if rows.get_column(name).null_count():
            raise errors.null_key(table, name)
    for name in table.required:
        column = rows.get_column(name)
        if column.null_count():
            first = column.is_null().arg_max()
            assert first is not None, "a column with NULL has rows"
            payload = [column for column, _ in table.columns]
            raise errors.null_value(table, name, rows.select(payload).slice(first, 1), first + 1)


def repeated(keys: pl.DataFrame, table: Table) -> pl.DataFrame | None:
    """The first key that comes a second time; None if there is none."""
    if keys.height < 2:
        return None
    _, first = group_codes(keys, table.key)
    if len(first) == keys.height:
        return None
    again = np.ones(keys.height, np.bool_)
    again[first] = False
    return keys[int(np.flatnonzero(again)[0])]


def _period(table: Table) -> tuple[str, ...]:
    """The columns with the period of a row; none if rows are there from their insertion to their deletion."""
    if table.kind != "temporal" or table.time_column is None:
        return ()
    return (table.time_column,) if table.end_column is None else (table.time_column, table.end_column)


def _overlapping(rows: pl.DataFrame, table: Table) -> pl.DataFrame | None:
    """The first key with two rows whose periods have an instant in common; None if there is none."""
    found = np.flatnonzero(overlapping_rows(rows, table))
    return pick(rows, table.key)[int(found[0])] if len(found) else None
