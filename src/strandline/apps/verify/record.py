"""Input of a run for the oracle: all rows of a source, in order of arrival, without late and rejected ones.

The sources are read once more, which gives the same rows. New rows of a growing source do no harm: only instants before
the watermark are compared, and a new row as old as that is late. The log of a table never changes up to a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from strandline.apps.verify.dataset import Times
from strandline.connectors.sources.base import Source, open_source
from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.periods import with_periods
from strandline.core.temporal import ALWAYS, OPEN
from strandline.logical.catalog import BaseStream, Table
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.reference.change_feed import ChangeRow, fold_changes
from strandline.logical.reference.table_log import LoggedChange, elements_of_log
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, times
from strandline.runtime.kernels.columns import polars_type

ROWS_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """The accepted rows of a stream under their declared names, and their times; or the elements of a table."""

    stream: BaseStream
    rows: pl.DataFrame

    @property
    def times(self) -> Times:
        return times(self.rows, FROM)

    @property
    def ends(self) -> Times:
        """End of a row with a declared interval; else it is valid for its one instant."""
        return times(self.rows, UNTIL) if UNTIL in self.rows.columns else self.times + 1

    def only(self, mask: Mask) -> Recorded:
        return replace(self, rows=self.rows.filter(pl.Series(mask)))


def record(stream: BaseStream, directory: Path, reported_late: pl.DataFrame, count: int | None) -> Recorded:
    """Read a source again, as far as the run did: about `count` rows, late and rejected ones included; None is all.

    `reported_late` is the side output of late rows.
    """
    source = open_source(stream, directory)
    rows, partitions = _read(source, count)
    # Idleness of a source depends on clocks, and rows after that are late by a decision of the run.
    by_clock = stream.idle_after_us is not None
    late = _among(rows, reported_late) if by_clock else too_late(rows, stream.disorder_us, partitions)
    accepted = rows.filter(~pl.Series(late, dtype=pl.Boolean))
    return Recorded(stream, accepted if stream.changes is None else _fold(stream, stream.changes, accepted))


def _fold(stream: BaseStream, feed: ChangeFeed, rows: pl.DataFrame) -> pl.DataFrame:
    """The elements of a change feed, by the definition."""
    kinds = {name: polars_type(kind) for name, kind in stream.queried_columns}
    changes = [
        ChangeRow(row[FROM], row[feed.op_column], {name: row[name] for name in kinds})
        for row in rows.iter_rows(named=True)
    ]
    elements = fold_changes(changes, feed).elements
    columns = [pl.Series(name, [e.values[name] for e in elements], dtype=kind) for name, kind in kinds.items()]
    starts, ends = ([getattr(e, when) for e in elements] for when in ("time", "end"))
    return pl.DataFrame([*columns, pl.Series(FROM, starts, pl.Int64), pl.Series(UNTIL, ends, pl.Int64)])


def record_table(table: Table, log: pl.DataFrame, base: int) -> Recorded:
    """The elements of a table for a query, by the definition: `log` is its log as far as the query has read it, `base`
    the position at which the query began."""
    names = [name for name, _ in table.columns]
    changes = [
        LoggedChange(
            row[ID],
            {name: row[name] for name in names},
            is_end := row[UNTIL] != OPEN,
            row[UNTIL] if is_end else row[FROM],
            ALWAYS if table.kind != "changing" else row[CEASED] if is_end else row[SINCE],
        )
        for row in log.iter_rows(named=True)
    ]
    elements = elements_of_log(changes, base)
    shape = {name: log.schema[name] for name in names} | {FROM: pl.Int64(), UNTIL: pl.Int64()}
    rows = [(*(element.values[name] for name in names), element.time, element.end) for element in elements]
    frame = pl.DataFrame(rows, schema=shape, orient="row")
    return Recorded(table.input, with_periods(frame, table.input) if table.kind == "temporal" else frame)


def too_late(rows: pl.DataFrame, disorder_us: int, partitions: Sequence[str | None] | None = None) -> Mask:
    """The definition: a row is late if it is older than the latest row before it in its partition by more than the
    disorder; without partitions, than the latest before it."""
    late = np.zeros(rows.height, dtype=np.bool_)
    latest: dict[str | None, int] = {}
    for number, time in enumerate(times(rows, FROM).tolist()):
        partition = partitions[number] if partitions is not None else None
        late[number] = time < latest.get(partition, time) - disorder_us
        latest[partition] = max(time, latest.get(partition, time))
    return late


def _read(source: Source, count: int | None) -> tuple[pl.DataFrame, list[str | None]]:
    """The rows, and the partition of each."""
    kinds = {name: polars_type(kind) for name, kind in source.stream.columns}
    when = [FROM, UNTIL] if source.stream.has_intervals else [FROM]
    position, ended, rows_read = 0, False, 0
    parts = [pl.DataFrame(schema={**kinds, **dict.fromkeys(when, pl.Int64())})]
    partitions: list[str | None] = []
    while not ended and (count is None or rows_read < count):
        after, ended = source.advance(position, ROWS_AT_ONCE if count is None else min(count - rows_read, ROWS_AT_ONCE))
        if after == position:
            break
        for chunk in source.read(position, after, frozenset(kinds)):
            rows_read += chunk.rejected.height + chunk.rows.height
            partitions += [chunk.partition] * chunk.rows.height
            parts.append(chunk.rows.select(*kinds, *when))
        position = after
    return pl.concat(parts[1:] or parts, rechunk=True), partitions


def _among(rows: pl.DataFrame, late: pl.DataFrame) -> Mask:
    """Mask of the late rows: as many of each kind as were reported, the last of them."""
    names = [name for name in rows.columns if name not in (FROM, UNTIL)]
    if not late.height:
        return np.zeros(rows.height, dtype=np.bool_)
    counted = late.select(names).group_by(names).len("late")
    behind = rows.select(names).with_columns(pl.int_range(pl.len()).reverse().over(names).alias("behind"))
    joined = behind.join(counted, on=names, how="left", nulls_equal=True, maintain_order="left")
    return (joined["behind"] < joined["late"].fill_null(0)).to_numpy()
