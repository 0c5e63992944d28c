"""Elements as JSON, for sinks that send texts."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.runtime.result import VALID_FROM, VALID_UNTIL

_ISO = "%Y-%m-%dT%H:%M:%S%.6f"


def json_rows(table: pa.Table) -> list[str]:
    """An object per element, with the names of the SELECT list, `valid_from` and `valid_until`.

    Times are ISO 8601; those that are instants of ours end with Z. DECIMALs are texts, so that none loses a digit, and
    what JSON has no number for (NaN, infinity) is null.
    """
    frame = pl.DataFrame(table)
    times = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    frame = frame.with_columns(
        pl.col(name).dt.strftime(_ISO + ("Z" if name in (VALID_FROM, VALID_UNTIL) else "")) for name in times
    )
    return frame.write_ndjson().splitlines()


def iso_instant(at: Instant) -> str | None:
    """An instant as in `json_rows`; None before the first and after the last."""
    if at in (BEFORE_ALL, FOREVER):
        return None
    return str(pl.select(pl.lit(at).cast(pl.Datetime("us")).dt.strftime(_ISO + "Z")).item())
