"""Stop condition of bad input: `ON BAD INPUT STOP …`, evaluated at the end of a batch.

Counts are totals since the query began, and a replayed batch has the same ones, so a restart decides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from strandline.core.errors import SourceError
from strandline.logical.catalog import BaseStream
from strandline.runtime.watermark import SourceStatus, check_balance

FEWEST_READ: Final = 100  # rows before a share of them means something


def check_input(
    streams: Iterable[BaseStream], statuses: Mapping[str, SourceStatus], rejected: Mapping[str, Sequence[pa.Table]]
) -> None:
    """Validate the input of a batch before delivery: rows are accounted for, bad input is within its limits."""
    for stream in streams:
        status = statuses.get(stream.name)
        if status is not None:
            check_balance(status)
            tables = rejected.get(stream.name)
            check_bad_input(stream, status, tables[0] if tables else None)


def check_bad_input(stream: BaseStream, status: SourceStatus, rejected: pa.Table | None = None) -> None:
    """Raise `bad-input` if a stream exceeds its limit; the first of the `rejected` rows of the batch is named."""
    limit = stream.bad_input
    if not limit.stops or not status.rejected:
        return
    if limit.most_share is not None:
        if status.read < FEWEST_READ or status.rejected <= limit.most_share * status.read:
            return
    elif status.rejected <= (limit.most_rows or 0):
        return
    count = f"{status.rejected:,} of {status.read:,} rows" if status.rejected > 1 else "a row"
    raise SourceError(
        f'stream "{stream.name}" has bad input: {count} cannot be read',
        code="bad-input",
        detail=_first(rejected),
        hint=f"The stream is declared ON BAD INPUT {str(limit).upper()}, and nothing of the batch was delivered. "
        "Declare it ON BAD INPUT SKIP and restart to continue without such rows.",
    )


def _first(rejected: pa.Table | None) -> str | None:
    if rejected is None or not rejected.num_rows:
        return None
    row = rejected.slice(0, 1).to_pylist()[0]
    number = "" if row["row"] is None else f", row {row['row']}"
    return f"First in this batch: {row['place']}{number}: {row['reason']}"
