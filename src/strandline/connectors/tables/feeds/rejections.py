"""Rejected rows of a feed: rows that cannot be in the table, with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk
from strandline.connectors.tables.periods import overlapping_rows
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import Mask


def reject_nulls(chunk: Chunk, table: Table, is_insertion: Mask | None = None) -> Chunk:
    """Reject rows without a key, which could not be found again, and insertions with NULL in a column that is NOT NULL.
    Of a deletion only the key counts; None if there are none."""
    rows = chunk.rows
    bad = [_is_null(rows, name) for name in table.key]
    reasons = [f"the PRIMARY KEY ({', '.join(table.key)}) is NULL"] * len(bad)
    for name in table.required:
        bad.append(_is_null(rows, name) if is_insertion is None else _is_null(rows, name) & is_insertion)
        reasons.append(f'column "{name}" is NULL, and declared NOT NULL')
    rejected = np.logical_or.reduce(bad) if bad else np.zeros(rows.height, np.bool_)
    if not rejected.any():
        return chunk
    first = np.argmax(bad, axis=0)[rejected]  # the first reason of each row
    described = _describe(rows.filter(pl.Series(rejected)), table, pl.Series([reasons[number] for number in first]))
    return replace(chunk, rows=rows.filter(pl.Series(~rejected)), rejected=pl.concat([chunk.rejected, described]))


def _is_null(rows: pl.DataFrame, name: str) -> Mask:
    column = rows.get_column(name)
    if not column.null_count():
        return np.zeros(rows.height, np.bool_)
    is_null: Mask = column.is_null().to_numpy()
    return is_null


def reject_overlaps(rows: pl.DataFrame, table: Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Reject rows that begin while another row of their key is valid; returns the others, and the rejected ones."""
    overlaps = pl.Series(overlapping_rows(rows, table))
    reason = f"the period overlaps that of another row with this ({', '.join(table.key)})"
    return rows.filter(~overlaps), _describe(rows.filter(overlaps), table, reason)


def _describe(rows: pl.DataFrame, table: Table, reason: str | pl.Series) -> pl.DataFrame:
    return rows.select(
        pl.lit(f"rows of {table.name}").alias("place"),
        pl.lit(None, pl.Int64).alias("row"),
        pl.lit(reason, pl.String()).alias("reason"),
        pl.struct([name for name, _ in table.columns]).struct.json_encode().alias("content"),
    )
