"""Casts of whole columns, and the values that columns of texts denote."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from strandline.core.temporal import DAY, HOUR, MINUTE, SECOND
from strandline.core.types import MAX_PRECISION, VARCHAR, Type
from strandline.functions import decimals
from strandline.logical.values import BLANKS, FALSE_TEXTS, TIMESTAMP_TEXT, TRUE_TEXTS
from strandline.runtime.kernels.columns import FIRST_INSTANT, LAST_INSTANT, mapped, polars_type


def cast_column(value: pl.Expr, source: Type, target: Type) -> pl.Expr:
    if source == target:
        return value
    dtype = polars_type(target)
    match source.name, target.name:
        case "NULL", _:
            return value.cast(dtype)
        case "ARRAY", "ARRAY":
            assert source.element is not None and target.element is not None
            return value.list.eval(cast_column(pl.element(), source.element, target.element))
        case "TIMESTAMP", "VARCHAR":
            return value.cast(pl.String).str.strip_chars_end("0").str.strip_chars_end(".")
        case "DOUBLE", "VARCHAR":
            return mapped(value, _texts_of_doubles, VARCHAR)
        case "VARCHAR", _:
            return cast_text(value, target)
        case "DOUBLE", "INT" | "BIGINT":
            return value.round(mode="half_to_even").cast(dtype, strict=False)
        case "DOUBLE", "DECIMAL":
            scaled = (value * float(10**target.scale)).round(mode="half_away_from_zero")
            return decimals.fitted(scaled.cast(pl.Int128, strict=False), target)
        case "DECIMAL", "INT" | "BIGINT":
            return decimals.drop_digits(decimals.unscaled(value), source.scale).cast(dtype, strict=False)
        case "DECIMAL", "DECIMAL" if target.scale < source.scale:
            return decimals.fitted(decimals.drop_digits(decimals.unscaled(value), source.scale - target.scale), target)
        case _, "BOOLEAN":
            return value != 0
    return value.cast(dtype, strict=False)


def cast_text(column: pl.Expr, kind: Type) -> pl.Expr:
    """The values that texts denote, blanks around them aside; NULL where they denote none."""
    if kind.name == "VARCHAR":
        return column
    text = column.str.strip_chars(BLANKS)
    match kind.name:
        case "BOOLEAN":
            words = {**dict.fromkeys(TRUE_TEXTS, True), **dict.fromkeys(FALSE_TEXTS, False)}
            return text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
        case "INT" | "BIGINT":
            return text.cast(polars_type(kind), strict=False)
        case "DOUBLE":
            return mapped(text, _doubles_of_texts, kind)
        case "DECIMAL":
            return mapped(text, partial(_decimals_of_texts, kind), kind)
        case "DATE":
            return mapped(text, _dates_of_texts, kind)
        case "TIMESTAMP":
            return mapped(text, _timestamps_of_texts, kind)
    raise AssertionError(f"no text denotes a value of type {kind}")


def _texts_of_doubles(values: pl.Series) -> pl.Series:
    """Polars writes the same digits as PostgreSQL, but 1.0 for 1, inf for Infinity, and exponents from 1e16 on.

    Numbers from 1e15 on and below 0.0001 move their point, and exponents get two digits.
    """
    texts = values.cast(pl.String).str.strip_suffix(".0")
    if ((values == 0) | values.abs().is_between(1e-4, 1e15, closed="left")).all():
        return texts
    return (
        texts.str.replace(r"inf$", "Infinity")
        .str.replace(r"^(-?)0\.0000([1-9])([0-9]*)$", "${1}${2}.${3}e-05")
        .str.replace(r"^(-?[0-9])([0-9]{15})(?:\.([0-9]+))?$", "${1}.${2}${3}e+15")
        .str.replace(r"\.?0*e\+15$", "e+15")
        .str.replace(r"\.e-05$", "e-05")
        .str.replace(r"e-([0-9])$", "e-0${1}")
    )


def _doubles_of_texts(texts: pl.Series) -> pl.Series:
    """A number too large for a DOUBLE is not Infinity; only its name is."""
    numbers = texts.cast(pl.Float64, strict=False)
    infinite = numbers.is_infinite()
    return numbers.set(infinite & ~texts.str.contains("[iI]"), None) if infinite.any() else numbers


def _decimals_of_texts(kind: Type, texts: pl.Series) -> pl.Series:
    if not texts.str.contains(rf"^[+-]?[0-9]+(?:\.[0-9]{{0,{kind.scale}}})?$").all():
        # Polars rounds half to even: a 1 far behind the last digit turns every half into more than a half.
        beyond = "0" * (kind.scale + MAX_PRECISION + 2) + "1"
        texts = (
            texts.str.replace(r"^[+-]?(?:0+\.?0*|\.0+)[eE][+-]?[0-9]+$", "0")
            .str.replace(r"^([+-]?[0-9]+)((?:[eE][+-]?[0-9]+)?)$", "${1}.${2}")
            .str.replace(r"^([+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+))((?:[eE][+-]?[0-9]+)?)$", "${1}" + beyond + "${2}")
        )
    return texts.cast(polars_type(kind), strict=False)


_PLAIN_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
_ZONED_TIMESTAMP: Final = _PLAIN_TIMESTAMP[:-1] + "(?:Z|[+-][0-9]{2}:[0-9]{2})$"


def _dates_of_texts(texts: pl.Series) -> pl.Series:
    if texts.str.contains(_PLAIN_DATE).all():
        days = texts.str.to_date("%Y-%m-%d", strict=False)
    else:
        days = _moments_of_texts(texts)["day"]
    return days.set(days < date.min, None)


def _timestamps_of_texts(texts: pl.Series) -> pl.Series:
    """Arrow parses columns of one form several times faster, but gives up at the first text that it does not like."""
    for form, kind in ((_PLAIN_TIMESTAMP, pa.timestamp("us")), (_ZONED_TIMESTAMP, pa.timestamp("us", "UTC"))):
        if texts.str.contains(form).all():
            try:
                instants = pl.Series(pc.cast(texts.to_arrow(), kind).cast(pa.int64()))
            except pa.ArrowInvalid:
                break
            return _timestamps(instants)
    moments = _moments_of_texts(texts)
    return _timestamps(moments["day"].cast(pl.Int64) * DAY + moments["shift"])


def _timestamps(instants: pl.Series) -> pl.Series:
    in_calendar = instants.is_between(FIRST_INSTANT, LAST_INSTANT)
    return instants.set(~in_calendar, None).cast(pl.Datetime("us"))


def _moments_of_texts(texts: pl.Series) -> pl.DataFrame:
    """The day that each text names, NULL if it is no ISO text, and the microseconds from its start to the instant."""
    parts = texts.str.extract_groups(f"^{TIMESTAMP_TEXT}$").struct.unnest()
    hour, minute, second, zone_hour, zone_minute = (
        pl.col(group).cast(pl.Int64).fill_null(0) for group in ("4", "5", "6", "9", "10")
    )
    fraction = pl.col("7").fill_null("")
    micros = fraction.str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64) + (fraction.str.slice(6, 1) >= "5")
    zone = zone_hour * HOUR + zone_minute * MINUTE
    day = pl.concat_str("1", "2", "3", separator="-").str.to_date("%Y-%m-%d", strict=False)
    valid = (hour < 24) & (minute < 60) & (second < 60) & (zone_hour < 24) & (zone_minute < 60)
    return parts.select(
        day=pl.when(valid).then(day),
        shift=hour * HOUR
        + minute * MINUTE
        + second * SECOND
        + micros
        - pl.when(pl.col("8") == "-").then(-zone).otherwise(zone),
    )
