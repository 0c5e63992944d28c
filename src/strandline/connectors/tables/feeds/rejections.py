"""Rejected rows of a feed: rows that cannot be in the table, with the reason."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from strandline.connectors.sources.base import Chunk
from strandline.connectors.tables.periods import overlapping_rows
from strandline.logical.catalog import Table


def reject_null_keys(chunk: Chunk, table: Table) -> Chunk:
    """Reject rows without a key: they could not be found again."""
    key = table.key
    if not key or not chunk.rows.height or not any(chunk.rows.get_column(name).null_count() for name in key):
        return chunk
    is_bad = chunk.rows.select(pl.any_horizontal(pl.col(name).is_null() for name in key)).to_series()
    rejected = _describe(chunk.rows.filter(is_bad), table, f"the PRIMARY KEY ({', '.join(key)}) is NULL")
    return replace(chunk, rows=chunk.rows.filter(~is_bad), rejected=pl.concat([chunk.rejected, rejected]))


def reject_overlaps(rows: pl.DataFrame, table: Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Reject rows that begin while another row of their key is valid; returns the others, and the rejected ones."""
    overlaps = pl.Series(overlapping_rows(rows, table))
    reason = f"the period overlaps that of another row with this ({', '.join(table.key)})"
    return rows.filter(~overlaps), _describe(rows.filter(overlaps), table, reason)


def _describe(rows: pl.DataFrame, table: Table, reason: str) -> pl.DataFrame:
    return rows.select(
        pl.lit(f"rows of {table.name}").alias("place"),
        pl.lit(None, pl.Int64).alias("row"),
        pl.lit(reason).alias("reason"),
        pl.struct([name for name, _ in table.columns]).struct.json_encode().alias("content"),
    )
