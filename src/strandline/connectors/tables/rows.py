"""Rows for a table: of any form, in the declared types, or refused as a whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from strandline.connectors.rows import to_table
from strandline.connectors.sources.conversion import conform
from strandline.connectors.tables import errors
from strandline.logical.catalog import Table
from strandline.logical.expressions import Value
from strandline.runtime.kernels.columns import polars_type


def payload_schema(table: Table) -> dict[str, pl.DataType]:
    return {name: polars_type(kind) for name, kind in table.columns}


def has_schema(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> bool:
    """True if a frame has exactly these columns. Comparing schemas as such takes longer than a few rows."""
    return frame.columns == list(schema) and frame.dtypes == list(schema.values())


def conform_rows(table: Table, rows: Any, *, is_partial: bool = False) -> pl.DataFrame:
    """Rows of Python, Arrow, Polars or pandas with the columns of a table in their declared types; an error if a value
    does not convert: a statement is there as a whole or not at all. What a dict leaves out has its default, or is NULL;
    so has what a frame leaves out that `is_partial`."""
    schema = payload_schema(table)
    if isinstance(rows, pl.DataFrame) and has_schema(rows, schema) and table.kind != "temporal":
        return rows
    unfit = partial(errors.unfit_rows, table)
    arrow = to_table(rows, list(schema), unfit, default_values(table), is_partial=is_partial)
    chunk = conform(pl.DataFrame(arrow), table.input, f"rows of {table.name}", 1)
    if chunk.rejected.height:
        first = chunk.rejected.row(0, named=True)
        raise errors.unfit_rows(table, f"row {first['row']}: {first['reason']}")
    return chunk.rows.select(list(schema))


def default_values(table: Table) -> dict[str, Value]:
    """The values of columns that an insertion may leave out: their defaults, or NULL where that may be."""
    needed = {*table.key, *table.required}
    values = {name: table.defaults.get(name) for name, _ in table.columns}
    return {name: value for name, value in values.items() if value is not None or name not in needed}


def conform_keys(table: Table, keys: pl.DataFrame) -> pl.DataFrame:
    """Primary keys in their declared types; those that do not convert are in no row."""
    schema = payload_schema(table)
    return keys.select(pl.col(name).cast(schema[name], strict=False) for name in table.key).drop_nulls()
