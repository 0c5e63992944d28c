"""What a filter without output has seen: of a sample of its first rows, the values of the columns that it compares.

Of numbers and times the least and the greatest are kept, of all else the most frequent values. A sample is JSON:
counters carry it to the driver, and records of batches keep it for `strandline why`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

import polars as pl

SAMPLE_ROWS: Final = 1_000
_COLUMNS: Final = 3
_VALUES: Final = 10  # that are kept of a column
_SHOWN: Final = 5  # of them
_WIDE: Final = 40  # characters of a value

# By column "low" and "high", or "values" with how often each was seen; "rows" is the size of the sample.
Sample: TypeAlias = dict[str, Any]


def sample_values(frame: pl.DataFrame, columns: Collection[str]) -> Sample:
    """The sample of the first rows of a frame."""
    head = frame.head(SAMPLE_ROWS)
    kept = sorted(column for column in columns if column in frame.columns and _is_shown(frame.schema[column]))[
        :_COLUMNS
    ]
    return {"rows": head.height, "columns": {column: _describe(head[column]) for column in kept}}


def _is_shown(kind: pl.DataType) -> bool:
    """Whether values of a type say something in a sentence; those of the others are not in a sample."""
    return not kind.is_nested() and kind not in (pl.Binary, pl.Duration)


def _describe(series: pl.Series) -> dict[str, Any]:
    values = series.drop_nulls()
    if not len(values):
        return {"values": {}}
    if series.dtype.is_numeric() or series.dtype in (pl.Datetime, pl.Date):
        return {"low": _plain(values.min()), "high": _plain(values.max())}
    counts = (
        values.cast(pl.String).str.slice(0, _WIDE).value_counts().sort(["count", values.name], descending=[True, False])
    )
    return {"values": dict(counts.head(_VALUES).iter_rows())}


def _plain(value: object) -> int | float | str:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | float) else str(value)  # texts of times have the order of the times


def merge_samples(samples: Iterable[Sample]) -> Sample:
    """One sample of those of several tasks."""
    merged: Sample = {"rows": 0, "columns": {}}
    for sample in samples:
        merged["rows"] += sample["rows"]
        for column, one in sample["columns"].items():
            two = merged["columns"].get(column)
            merged["columns"][column] = one if two is None else _merge(one, two)
    return merged


def _merge(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    if "low" in one and "low" in two:
        return {"low": min(one["low"], two["low"]), "high": max(one["high"], two["high"])}
    if "low" in one or "low" in two:
        return dict(one if "low" in one else two)  # the other has NULLs only
    counts = Counter(one["values"])
    counts.update(two["values"])
    return {"values": dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_VALUES])}


def show_sample(sample: Sample) -> str:
    """A sentence for each column: what was there instead."""
    rows = sample["rows"]
    of = "the only row" if rows == 1 else f"the first {rows:,} rows"
    return " ".join(f"In {of}, {_show(column, one)}." for column, one in sample["columns"].items())


def _show(column: str, one: Mapping[str, Any]) -> str:
    if "low" in one:
        low, high = one["low"], one["high"]
        return f"{column} was {low}" if low == high else f"{column} was from {low} to {high}"
    if not one["values"]:
        return f"{column} was NULL"
    listed = [f"'{value}' ({count:,})" for value, count in list(one["values"].items())[:_SHOWN]]
    return f"the most frequent values of {column} were {', '.join(listed)}"
