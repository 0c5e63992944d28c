"""Periods of the rows of a temporal table: from one of their columns until another, NULL where they never end."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.connectors.sources.conversion import validity_columns, wrong_times
from strandline.connectors.tables import errors
from strandline.core.temporal import Instant
from strandline.logical.catalog import BaseStream, Table
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, times
from strandline.runtime.kernels.grouping import group_codes


def with_periods(rows: pl.DataFrame, stream: BaseStream) -> pl.DataFrame:
    """Rows with the interval that their columns say; without those whose interval is empty."""
    dated = rows.with_columns(validity_columns(stream))
    return dated.filter((pl.col(FROM) < pl.col(UNTIL)).fill_null(False))


def check_periods(rows: pl.DataFrame, table: Table) -> None:
    """Refuse rows of a temporal table that are never valid."""
    if table.kind != "temporal":
        return
    dated = rows.with_columns(validity_columns(table.input))
    for wrong, reason in wrong_times(table.input):
        found = dated.filter(wrong)
        if found.height:
            raise errors.wrong_period(table, reason, found.select([name for name, _ in table.columns]).head(1))


def rows_valid_at(rows: pl.DataFrame, stream: BaseStream, at: Instant) -> pl.DataFrame:
    dated = with_periods(rows, stream)
    return dated.filter((pl.col(FROM) <= at) & (pl.col(UNTIL) > at)).drop(FROM, UNTIL)


def overlapping_rows(rows: pl.DataFrame, table: Table) -> Mask:
    """Rows that begin while another row of their key is valid; of several that begin together all but the first."""
    dated = rows.with_columns(validity_columns(table.input))
    start, end = times(dated, FROM), times(dated, UNTIL)
    codes, _ = group_codes(rows, table.key)
    order = np.lexsort((start, codes))
    overlaps = np.zeros(len(order), np.bool_)
    in_order = codes[order]
    # The latest end so far within a key: ranks of ends, so that those of later keys lie above all of earlier ones.
    ranks = np.unique(end, return_inverse=True)[1]
    latest = np.maximum.accumulate(ranks[order] + in_order * (len(ranks) + 1)) - in_order * (len(ranks) + 1)
    ends = np.unique(end)
    same_key = in_order[1:] == in_order[:-1]
    overlaps[order[1:]] = same_key & (start[order[1:]] < ends[np.maximum(latest[:-1], 0)])
    return overlaps
