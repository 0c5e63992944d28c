"""Rows for a table: of any form, in the declared types, or refused as a whole."""

from __future__ import annotations

from collections.abc import Mapping
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


def conform_rows(table: Table, rows: Any) -> pl.DataFrame:
    """Rows of Python, Arrow, Polars or pandas with the columns of a table in their declared types; an error if a value
    does not convert: a statement is there as a whole or not at all. What a dict leaves out has its default."""
    schema = payload_schema(table)
    if isinstance(rows, pl.DataFrame) and has_schema(rows, schema) and table.kind != "temporal":
        return rows
    if table.defaults:
        rows = _with_defaults(rows, table.defaults)
    arrow = to_table(rows, list(schema), lambda what: errors.unfit_rows(table, what))
    chunk = conform(pl.DataFrame(arrow), table.input, f"rows of {table.name}", 1)
    if chunk.rejected.height:
        first = chunk.rejected.row(0, named=True)
        raise errors.unfit_rows(table, f"row {first['row']}: {first['reason']}")
    return chunk.rows.select(list(schema))


def _with_defaults(rows: Any, defaults: Mapping[str, Value]) -> Any:
    match rows:
        case Mapping():
            return {**defaults, **rows}
        case [Mapping(), *_]:
            return [{**defaults, **row} if isinstance(row, Mapping) else row for row in rows]
    return rows


def conform_keys(table: Table, keys: pl.DataFrame) -> pl.DataFrame:
    """Primary keys in their declared types; those that do not convert are in no row."""
    schema = payload_schema(table)
    return keys.select(pl.col(name).cast(schema[name], strict=False) for name in table.key).drop_nulls()
