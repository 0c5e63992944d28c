"""Results as users see them: payload in SELECT order, then `valid_from` and `valid_until`."""

from __future__ import annotations

from functools import lru_cache

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.core.types import Schema, arrow_type
from strandline.runtime.kernels.batch import FROM, UNTIL, Times, times

VALID_FROM, VALID_UNTIL = "valid_from", "valid_until"
INSTANT = pa.timestamp("us", tz="UTC")


@lru_cache(maxsize=4096)
def result_schema(columns: Schema) -> pa.Schema:
    """The Arrow schema of the result of a query."""
    fields = [pa.field(c.name, arrow_type(c.type)) for c in columns]
    return pa.schema([*fields, pa.field(VALID_FROM, INSTANT, nullable=False), pa.field(VALID_UNTIL, INSTANT)])


def to_result(frame: pl.DataFrame, columns: Schema) -> pa.Table:
    """Elements for the user: names of the SELECT list, UTC timestamps, NULL for an end that never comes. An end that is
    not known yet stays `OPEN`, an instant that no datetime can hold: see `with_open_ends`."""
    schema = result_schema(columns)
    arrays = [to_array(frame.get_column(c.id), field.type) for c, field in zip(columns, schema, strict=False)]
    bounds = (to_instants(times(frame, name)) for name in (FROM, UNTIL))
    return pa.Table.from_arrays([*arrays, *bounds], schema=schema)


def to_array(column: pl.Series, kind: pa.DataType) -> pa.Array:
    """A column as an Arrow array of a type, without a copy where it is of that type."""
    array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    return array if array.type == kind else array.cast(kind)


def to_instants(values: Times) -> pa.Array:
    """Instants as UTC timestamps, NULL for one that never comes."""
    never = values == FOREVER
    return pa.array(values, mask=never if never.any() else None).view(INSTANT)  # microseconds in either


def from_result(table: pa.Table, columns: Schema) -> pl.DataFrame:
    """The opposite of `to_result`."""
    arrays = [c.cast(pa.int64()) if c.type == INSTANT else c for c in table.columns]
    renamed = pa.Table.from_arrays(arrays, names=[*(c.id for c in columns), FROM, UNTIL])
    return pl.DataFrame(renamed).with_columns(pl.col(UNTIL).fill_null(FOREVER))


def cut_open(table: pa.Table, since: Instant, watermark: Instant, announced: bool) -> pa.Table:
    """A batch of a result in the form of changes, for a reader that appends: elements with an end.

    Those that are open are cut at the watermark where all of them were announced, and else left out. What was open at
    the announcement before, at `since`, has been there up to then.
    """
    starts, ends = (table.column(name).cast(pa.int64()) for name in (VALID_FROM, VALID_UNTIL))
    starts = pc.max_element_wise(starts, since)
    is_open = pc.fill_null(pc.equal(ends, OPEN), False)
    ends = pc.if_else(is_open, watermark, ends)
    last = table.num_columns - 1
    cut = table.set_column(last - 1, table.schema.field(VALID_FROM), starts.cast(INSTANT))
    cut = cut.set_column(last, table.schema.field(VALID_UNTIL), ends.cast(INSTANT))
    is_empty = pc.fill_null(pc.greater_equal(starts, ends), False)
    return cut.filter(pc.invert(pc.or_(is_empty, is_open) if not announced else is_empty))


def with_open_ends(table: pa.Table, begin: Instant) -> pa.Table:
    """A batch of a result in the form of changes, for users: NULL also for an end that is not known yet.

    `begin` is the watermark before the batch. An element that was sent before it and turns out never to end is left
    out: it has no other end than it was sent with.
    """
    ends = table.column(VALID_UNTIL).cast(pa.int64())
    if not ends.null_count and pc.less(pc.max(ends), OPEN).as_py():
        return table
    starts = table.column(VALID_FROM).cast(pa.int64())
    never_ends = pc.and_(pc.less(starts, begin), ends.is_null())
    is_open = pc.equal(ends, OPEN)
    shown = pc.if_else(is_open, None, ends).cast(INSTANT)
    return table.set_column(table.num_columns - 1, table.schema.field(VALID_UNTIL), shown).filter(pc.invert(never_ends))
