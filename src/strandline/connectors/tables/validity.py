"""Rows of a table that are valid at an instant or between two: by its log, or by the periods of a temporal table."""

from __future__ import annotations

import polars as pl

from strandline.connectors.tables.periods import rows_valid_at, with_periods
from strandline.connectors.tables.store import TableStore
from strandline.core.temporal import Instant
from strandline.runtime.kernels.batch import FROM, UNTIL


def read_content(store: TableStore, at: Instant | None) -> pl.DataFrame:
    """The rows of a table now, or at an instant. Those of a temporal one are all there, and valid in their periods."""
    if store.table.kind == "temporal":
        rows = store.content()
        return rows if at is None else rows_valid_at(rows, store.table.input, at)
    return store.content() if at is None else store.content_at(at)


def read_history(store: TableStore, since: Instant | None, until: Instant | None) -> pl.DataFrame:
    """The rows of a table that were valid between two instants, with their validity."""
    if store.table.kind != "temporal":
        return store.history(since, until)
    rows = with_periods(store.content(), store.table.input)
    rows = rows if since is None else rows.filter(pl.col(UNTIL) > since)
    return rows if until is None else rows.filter(pl.col(FROM) < until)
