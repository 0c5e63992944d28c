"""Conversion of raw input to the declared schema: types, times, and rejected rows."""

from __future__ import annotations

from typing import Final

import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk
from strandline.core.temporal import EARLIEST, FOREVER, LAST_END, LATEST, SECOND, Instant
from strandline.core.types import TIMESTAMP, Type
from strandline.functions.casts import cast_text
from strandline.logical.catalog import BaseStream
from strandline.logical.change_feed import SIGNS, UPSERTS
from strandline.logical.values import BLANKS
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.columns import FIRST_INSTANT, LAST_INSTANT, polars_type

_ROW = "@row"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, from 1970 on
EPOCH_UNITS: Final = {"s": 1, "ms": 1_000, "us": SECOND, "ns": 1_000 * SECOND}  # how many are a second
SHOWN_LENGTH = 1_000  # characters or bytes of a rejected row that are kept


def conform(raw: pl.DataFrame, stream: BaseStream, location: str, numbers: pl.Series | int) -> Chunk:
    """Convert columns to their declared types; rows with a value that does not convert, or without usable times, are
    rejected with the reason. `raw` has declared columns under declared names, in any type; `numbers` are the row
    numbers of the input, or the first of them."""
    names = [name for name, _ in stream.columns if name in raw.columns]
    epoch = epoch_unit(stream)
    kinds = {name: stream.column_type(name) for name in names}
    values = {
        name: _convert(pl.col(name), raw.schema[name], kind, epoch)
        for name, kind in kinds.items()
        if raw.schema[name] != polars_type(kind)
    }
    rows = raw.select(names)
    if values:
        rows = rows.with_columns(value.alias(name) for name, value in values.items())
    bad: list[pl.Expr] = []
    reasons: list[pl.Expr] = []
    for name in values:
        # A value that does not fit has become NULL. Mostly there is none.
        if rows.get_column(name).null_count() == raw.get_column(name).null_count():
            continue
        wrong = pl.col(name).is_not_null() & values[name].is_null()
        bad.append(wrong)
        text = _as_text(name, raw.schema[name]).str.slice(0, 60)
        reason = pl.format("{}: '{}' is not {}", pl.lit(name), text, pl.lit(str(kinds[name])))
        reasons.append(pl.when(wrong).then(reason))
    rows = rows.with_columns(validity_columns(stream))
    wrong_values = [*wrong_times(stream), *_wrong_changes(stream, names)]
    rejected = pl.repeat(False, rows.height, eager=True)
    if wrong_values:
        rejected = rows.select(pl.any_horizontal(wrong for wrong, _ in wrong_values)).to_series()
    if bad:
        rejected = rejected | raw.select(pl.any_horizontal(bad)).to_series()
    if not rejected.any():
        return Chunk(rows, read=raw.height)
    if isinstance(numbers, int):
        numbers = pl.int_range(numbers, numbers + raw.height, eager=True)
    rejected_rows = (
        raw.with_columns(*(rows.get_column(c) for c in (FROM, UNTIL) if c in rows.columns), numbers.alias(_ROW))
        .filter(rejected)
        .rechunk()  # Polars panics when it formats a column that begins with an empty chunk
        .select(
            pl.lit(location).alias("place"),
            pl.col(_ROW).cast(pl.Int64).alias("row"),
            pl.coalesce(*reasons, *(pl.when(wrong).then(pl.lit(reason)) for wrong, reason in wrong_values)).alias(
                "reason"
            ),
            pl.struct(_as_text(n, raw.schema[n]).alias(n) for n in names)
            .struct.json_encode()
            .str.slice(0, SHOWN_LENGTH)
            .alias("content"),
        )
    )
    return Chunk(rows.filter(~rejected), rejected_rows, read=raw.height)


def reject(stream: BaseStream, location: str, rows: list[tuple[int, str, str]]) -> Chunk:
    """A chunk of rejected rows: the number, the reason and the content of each."""
    rejected = pl.DataFrame([(location, *row) for row in rows], schema=REJECT_SCHEMA, orient="row")
    interval = (FROM, UNTIL)[: len(stream.time_columns)]
    payload = {name: polars_type(kind) for name, kind in stream.columns}
    no_rows = pl.DataFrame(schema={**payload, **dict.fromkeys(interval, pl.Int64())})
    return Chunk(no_rows, rejected, read=len(rows))


def show_bytes(data: bytes) -> str:
    """The beginning of bad bytes as a text; a byte that is no text is written as \\xff."""
    return data[:SHOWN_LENGTH].decode("utf-8", "backslashreplace")


def _as_text(name: str, kind: pl.DataType) -> pl.Expr:
    """A value as it is shown where it does not fit; for values of any type."""
    if kind == pl.Binary:
        return pl.col(name).bin.slice(0, SHOWN_LENGTH).bin.encode("hex")
    if kind.is_nested():
        return pl.when(pl.col(name).is_not_null()).then(pl.struct(name).struct.json_encode())
    if kind == pl.Object:
        return pl.lit("an object")
    if kind in (pl.Date, pl.Datetime):  # Polars panics when it formats a time outside of its calendar
        unit = kind.time_unit if isinstance(kind, pl.Datetime) else None
        per_day = {None: 1, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[unit]
        physical = pl.col(name).to_physical().cast(pl.Int64)
        in_calendar = (physical // per_day).is_between(_FIRST_DAY, _LAST_DAY)
        shown = pl.when(in_calendar).then(pl.col(name)).cast(pl.String, strict=False)
        return pl.coalesce(shown, physical.cast(pl.String))
    return pl.col(name).cast(pl.String, strict=False)


def validity_columns(stream: BaseStream) -> list[pl.Expr]:
    """Validity interval of a row, as far as declared; without an end it never expires."""
    if stream.time_column is None:
        return []
    columns = [_time(stream.time_column, stream.column_type(stream.time_column)).alias(FROM)]
    if stream.end_column is not None:
        end = _time(stream.end_column, stream.column_type(stream.end_column))
        columns.append(end.fill_null(FOREVER).alias(UNTIL))
    return columns


def wrong_times(stream: BaseStream) -> list[tuple[pl.Expr, str]]:
    """Conditions that make the times of a row unusable, with their reasons."""
    start, end = stream.time_column, stream.end_column
    if start is None:
        return []
    conditions = [
        (pl.col(FROM).is_null(), f"{start}: the time is NULL"),
        (~_within(FROM, EARLIEST, LATEST), f"{start}: the time is outside of the years 1678 to 2261"),
    ]
    if end is not None:
        endless = pl.col(UNTIL) == FOREVER
        conditions += [
            ((pl.col(UNTIL) <= pl.col(FROM)).fill_null(False), f"{end}: the end is not after {start}"),
            (~endless & ~_within(UNTIL, EARLIEST, LAST_END), f"{end}: the end is after the year 9999"),
        ]
    return conditions


def _wrong_changes(stream: BaseStream, names: list[str]) -> list[tuple[pl.Expr, str]]:
    """Conditions under which a row of a change feed changes nothing, with their reasons."""
    feed = stream.changes
    if feed is None or feed.op_column not in names:
        return []
    op = pl.col(feed.op_column).str.to_lowercase()
    conditions = [
        (op.is_null(), f"{feed.op_column}: the operation is NULL"),
        (~op.is_in(list(SIGNS)).fill_null(True), f"{feed.op_column}: not one of {', '.join(SIGNS)}"),
    ]
    if not feed.key:
        reason = f"{feed.op_column}: an update without the row before it needs a PRIMARY KEY"
        conditions.append((op.is_in(UPSERTS).fill_null(False), reason))
    conditions += [(pl.col(name).is_null(), f"{name}: the key is NULL") for name in feed.key if name in names]
    return conditions


def _within(column: str, low: Instant, high: Instant) -> pl.Expr:
    return pl.col(column).is_between(low, high, closed="left").fill_null(False)


def _time(column: str, kind: Type) -> pl.Expr:
    """The time of a row in microseconds: a TIMESTAMP, midnight of a DATE, or a BIGINT that counts microseconds."""
    if kind.name == "DATE":
        return pl.col(column).cast(pl.Datetime("us"), strict=False).to_physical()
    return pl.col(column).to_physical().cast(pl.Int64)


def count_from_epoch(value: pl.Expr, source: pl.DataType, unit: str) -> pl.Expr:
    """The TIMESTAMP of a number of units since 1970, rounded to microseconds; NULL for what is none, or is out of the
    calendar."""
    text = value.str.strip_chars(BLANKS) if source == pl.String else value
    per_second = EPOCH_UNITS[unit]
    whole = text.cast(pl.Int64, strict=False) if not source.is_float() else pl.lit(None, dtype=pl.Int64)
    if per_second <= SECOND:
        most = LAST_INSTANT // (SECOND // per_second)
        instants = pl.when(whole.is_between(-most, most)).then(whole) * (SECOND // per_second)
    else:
        instants = whole // (per_second // SECOND)
    number = (text.cast(pl.Float64, strict=False) * (SECOND / per_second)).round()
    fraction = pl.when(whole.is_null() & number.is_between(FIRST_INSTANT, LAST_INSTANT)).then(number)
    instants = pl.coalesce(instants, fraction.cast(pl.Int64, strict=False))
    in_calendar = instants.is_between(FIRST_INSTANT, LAST_INSTANT)
    return pl.when(in_calendar).then(instants).cast(pl.Datetime("us"))


def converts_always(source: pl.DataType, kind: Type) -> bool:
    """True if every value of a file's column fits the declared type, so that no check is needed."""
    target = polars_type(kind)
    if source == target:
        return True
    if target == pl.Int64:
        return source in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)
    if target == pl.Int32:
        return source in (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16)
    if target == pl.Float64:
        return source == pl.Float32 or source in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)
    # Milliseconds reach further than microseconds.
    return isinstance(source, pl.Datetime) and isinstance(target, pl.Datetime) and source.time_unit != "ms"


def epoch_unit(stream: BaseStream) -> str | None:
    """The unit in which numbers count the time since 1970, where a source declares one."""
    unit = stream.source.options.get("epoch")
    return unit if isinstance(unit, str) else None


def _convert(value: pl.Expr, source: pl.DataType, kind: Type, epoch: str | None = None) -> pl.Expr:
    """The value in the declared type; NULL where it does not fit."""
    target = polars_type(kind)
    if kind == TIMESTAMP and epoch is not None and (source == pl.String or source.is_numeric()):
        instants = count_from_epoch(value, source, epoch)
        return pl.coalesce(instants, cast_text(value, kind)) if source == pl.String else instants
    if source == pl.String:
        return cast_text(value, kind)
    if isinstance(source, pl.Categorical | pl.Enum):
        return _convert(value.cast(pl.String), pl.String(), kind, epoch)
    if isinstance(source, pl.Datetime) and source.time_zone is not None:
        value = value.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if source.is_nested() or source in (pl.Binary, pl.Object):
        return pl.lit(None, dtype=target)
    if source.is_float() and target.is_integer():
        whole = value.cast(target, strict=False)
        return pl.when(whole.cast(pl.Float64) == value).then(whole)
    castable = source.is_numeric() == target.is_numeric() and source.is_temporal() == target.is_temporal()
    if source == pl.Null or castable or target == pl.String:
        return value.cast(target, strict=False)
    return pl.lit(None, dtype=target)
