"""Row times in the SQL of an oracle: when the rows of a part of FROM came (`logical/properties/row_time.py`)."""

from __future__ import annotations

from enum import Enum

from strandline.logical.catalog import BaseStream, Catalog, Table
from strandline.logical.plan import Plan
from strandline.logical.properties.row_time import without_row_time
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.sql import ast


class RowTimes(Enum):
    """Row times of some rows: all came now, each has its own in the column `at_us`, or they have none."""

    now = "now"
    own = "own"
    none = "none"


def row_times_of_stream(stream: BaseStream, window: ast.Window | None) -> RowTimes:
    """Row times of a base stream in a window, or of a table."""
    is_instant = isinstance(window, ast.NowWindow | None) and stream.table is None
    has_intervals = stream.has_intervals or stream.changes is not None
    return RowTimes.now if is_instant and not has_intervals else RowTimes.own


def row_times_of_query(plan: Plan, window: ast.Window | None) -> RowTimes:
    """Row times of a query in a window."""
    if is_chronon_stream(plan):
        return RowTimes.now if isinstance(window, ast.NowWindow | None) else RowTimes.own
    return RowTimes.own if without_row_time(plan) is None else RowTimes.none


def later(now: str, *row_times: str | None) -> str | None:
    """The row time of a pair: the later one, which is now if a row comes now."""
    known = [time for time in row_times if time is not None]
    if now in known:
        return now
    return f"greatest({', '.join(known)})" if len(known) > 1 else next(iter(known), None)


def has_tables(catalog: Catalog) -> bool:
    return any(isinstance(stream, Table) for stream in catalog)
