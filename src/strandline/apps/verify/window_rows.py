"""The rows that a window holds at an instant, as a query of an oracle over a table of all rows with their times.

    no window, NOW            at <= t < until
    RANGE r SLIDE s           T - r <= at < T,  T the last multiple of s up to t + 1
    ROWS n SLIDE s            of the c rows up to t, by time and then by arrival, those with T - n < number <= T,
                              T the last multiple of s up to c; PARTITION BY: of each partition
    SESSION g                 the rows up to t behind the last pause of g or more

Every row has its own time with it, `at_us`: look-ups go by that.
"""

from __future__ import annotations

from typing import assert_never

from strandline.apps.verify import sql_text
from strandline.core.types import Schema
from strandline.sql import ast


def held_rows(table: str, columns: Schema, window: ast.Window | None, now: str, *, arrived: bool) -> str:
    """The rows of a table that a window holds at the instant `now`. Rows of one instant are ordered by arrival or,
    where that is undefined, by their values."""
    listed = ", ".join((*(f"r.{c.id}" for c in columns), "r.at_us"))
    match window:
        case None | ast.NowWindow():
            return f"SELECT r.* FROM {table} AS r WHERE {is_valid('r', now)}"
        case ast.RangeWindow(length, slide, _, offset):
            last = sql_text.last_multiple(f"({now} + 1)", slide.microseconds if slide else 1, offset)
            since = "" if length is None else f"r.at_us >= {last} - {length.microseconds} AND "
            return f"SELECT r.* FROM {table} AS r WHERE {since}r.at_us < {last}"
        case ast.RowsWindow(partition, rows, slide):
            partition_by = sql_text.partition_clause(partition, columns)
            by = "e.seq" if arrived else ", ".join(f"e.{c.id} ASC NULLS LAST" for c in columns)
            numbered = (
                f"SELECT e.*, row_number() OVER ({partition_by} ORDER BY e.at_us, {by}) AS number, "
                f"count(*) OVER ({partition_by}) AS c FROM {table} AS e WHERE e.at_us <= {now}"
            )
            last = sql_text.last_multiple("r.c", slide)
            return f"SELECT {listed} FROM ({numbered}) AS r WHERE r.number > {last} - {rows} AND r.number <= {last}"
        case ast.SessionWindow(partition, gap):
            partition_by = sql_text.partition_clause(partition, columns)
            later = f"lead(e.at_us) OVER ({partition_by} ORDER BY e.at_us)"
            followed = f"SELECT e.*, {later} AS later FROM {table} AS e WHERE e.at_us <= {now}"
            pause = f"CASE WHEN coalesce(e.later, {now}) - e.at_us >= {gap.microseconds} THEN 1 ELSE 0 END"
            # In order of time backwards: the pauses between a row and now. Rows of one instant count alike.
            pauses = (
                f"SELECT e.*, sum({pause}) OVER ({partition_by} ORDER BY e.at_us DESC) AS pauses FROM ({followed}) AS e"
            )
            return f"SELECT {listed} FROM ({pauses}) AS r WHERE r.pauses = 0"
        case _:
            assert_never(window)


def is_valid(alias: str, at: str) -> str:
    """The condition that a row is valid at an instant."""
    return f"{alias}.at_us <= {at} AND {at} < {alias}.until_us"
