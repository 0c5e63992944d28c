"""Types of columns by their values or by the schema of a file, where a declaration has no columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.connectors.sources.conversion import EPOCH_UNITS
from strandline.core import types
from strandline.core.temporal import SECOND, instant
from strandline.core.types import Type
from strandline.functions.casts import cast_text
from strandline.logical.values import BLANKS

# Texts that stand for NULL in files of other systems.
NULL_MARKS: Final = ("NA", "N/A", "n/a", "NULL", "null", "\\N", "None", "nan", "NaN", "-")
_INTEGER: Final = r"^[+-]?(?:0|[1-9][0-9]*)$"
_LEADING_ZERO: Final = r"^[+-]?0[0-9]"  # of a code, such as 02134: no number
_DIGIT: Final = r"[0-9]"
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME_NAME: Final = re.compile(
    r"(?i)(^|[^a-z])(ts|time|timestamp|datetime|date|day|epoch|at|when)([^a-z]|$)|time|stamp"
)
_OBVIOUS: Final = ("ts", "timestamp", "time", "event_time", "eventtime", "datetime", "date_time", "rowtime")
_OTHER_TIME: Final = r"^[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{1,4}(?:[ T,].*)?$"
# Instants that numbers may stand for: in each unit another range.
_FIRST, _LAST = instant("1990-01-01"), instant("2100-01-01")


def type_of_texts(texts: pl.Series) -> Type:
    """The type that all texts of a sample denote; VARCHAR where there is none, or no text at all."""
    values = texts.drop_nulls().str.strip_chars(BLANKS)
    if not len(values):
        return types.VARCHAR
    if values.str.to_lowercase().is_in(["true", "false"]).all():
        return types.BOOLEAN
    if not values.str.contains(_LEADING_ZERO).any():
        if values.str.contains(_INTEGER).all():
            # A number that is too large would lose digits as a DOUBLE.
            return types.BIGINT if _denote(values, types.BIGINT) else types.VARCHAR
        too_large = values.filter(values.str.contains(_INTEGER))
        if values.str.contains(_DIGIT).any() and _denote(values, types.DOUBLE) and _denote(too_large, types.BIGINT):
            return types.DOUBLE
    return type_of_times(values)


def type_of_times(texts: pl.Series) -> Type:
    """DATE or TIMESTAMP where all texts are such; else VARCHAR."""
    values = texts.drop_nulls().str.strip_chars(BLANKS)
    if not len(values) or not _denote(values, types.TIMESTAMP):
        return types.VARCHAR
    return types.DATE if values.str.contains(_DATE).all() else types.TIMESTAMP


def _denote(values: pl.Series, kind: Type) -> bool:
    return values.to_frame("").select(cast_text(pl.col(""), kind).is_not_null().all()).item() is not False


def null_mark(texts: pl.Series) -> str | None:
    """The text that must stand for NULL, so that the others are of one type."""
    values = texts.drop_nulls()
    marks = [mark for mark in NULL_MARKS if (values == mark).any()]
    if len(marks) != 1 or len(values) == (values == marks[0]).sum():
        return None
    return marks[0] if type_of_texts(values.filter(values != marks[0])) != types.VARCHAR else None


def type_of_arrow(kind: pa.DataType) -> Type | None:
    """The type for a column of a file with a schema; None for one that cannot be read."""
    if pa.types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if pa.types.is_decimal(kind):
        return types.decimal(kind.precision, kind.scale) if kind.precision <= types.MAX_PRECISION else None
    tests = (
        (pa.types.is_boolean, types.BOOLEAN),
        (lambda k: k in (pa.int64(), pa.uint32(), pa.uint64()), types.BIGINT),
        (pa.types.is_integer, types.INT),
        (pa.types.is_floating, types.DOUBLE),
        (pa.types.is_date, types.DATE),
        (pa.types.is_timestamp, types.TIMESTAMP),
        (lambda k: pa.types.is_string(k) or pa.types.is_large_string(k) or k == pa.string_view(), types.VARCHAR),
        (lambda k: pa.types.is_null(k) or pa.types.is_time(k), types.VARCHAR),
    )
    return next((ours for is_kind, ours in tests if is_kind(kind)), None)


def flatten_fields(fields: Iterable[pa.Field], prefix: str = "") -> list[tuple[str, pa.DataType]]:
    """The columns of a schema; those within structs are named by their paths, with dots."""
    columns: list[tuple[str, pa.DataType]] = []
    for field in fields:
        name = f"{prefix}{field.name}"
        if pa.types.is_struct(field.type):
            columns += flatten_fields(field.type, f"{name}.")
        else:
            columns.append((name, field.type))
    return columns


def unit_of_numbers(name: str, numbers: pl.Series) -> str | None:
    """The unit in which numbers are times since 1970, by their size and by the name of their column."""
    values = numbers.drop_nulls()
    if not len(values) or not _TIME_NAME.search(name):
        return None
    for unit, per_second in EPOCH_UNITS.items():
        low, high = (bound / SECOND * per_second for bound in (_FIRST, _LAST))
        if values.is_between(low, high).all():
            return unit
    return None


def choose_time(columns: Mapping[str, Type]) -> tuple[str | None, tuple[str, ...]]:
    """The column that is the time of a row, or several that may be: the only TIMESTAMP, one that is named so, or else
    a DATE that is named like a time."""
    times = [name for name, kind in columns.items() if kind == types.TIMESTAMP]
    obvious = [name for name in times if name.lower() in _OBVIOUS]
    if len(times) == 1 or len(obvious) == 1:
        return (times if len(times) == 1 else obvious)[0], ()
    if times:
        return None, tuple(times)
    dates = [name for name, kind in columns.items() if kind == types.DATE and _TIME_NAME.search(name)]
    return (dates[0], ()) if len(dates) == 1 else (None, tuple(dates))


def other_times(columns: Mapping[str, pl.Series]) -> tuple[str, str] | None:
    """A column whose texts look like times in another form than ISO 8601, and one of them."""
    for name, texts in columns.items():
        values = texts.drop_nulls()
        if len(values) and values.str.contains(_OTHER_TIME).all():
            return name, str(values[0])
    return None
