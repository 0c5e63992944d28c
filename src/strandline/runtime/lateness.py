"""Late rows: which they are, and for which queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.runtime.exchange import DRIVER, Message, to_table
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, Times, is_sorted
from strandline.runtime.watermark import StreamSet, stream_set

_KIND: Final = "@late_for"  # of a late row: the number of the sets for which it is late


def late_rows(time: Times, high: Instant, disorder_us: int, floor: Instant) -> Mask:
    """Mask of late rows: further behind the latest row than the allowed out-of-orderness, or behind the floor."""
    earliest_accepted = max(high - disorder_us if high != BEFORE_ALL else BEFORE_ALL, floor)
    if not len(time) or (time[0] >= earliest_accepted and is_sorted(time)):
        return np.zeros(len(time), dtype=np.bool_)
    latest_before = np.maximum.accumulate(np.concatenate(([high], time)))[:-1]
    bound = np.where(latest_before == BEFORE_ALL, BEFORE_ALL, latest_before - disorder_us)
    late: Mask = time < np.maximum(bound, floor)
    return late


def largest_lateness(time: Times, high: Instant, late: Mask) -> int:
    """By how much the latest of the late rows is behind the newest row before it; 0 if none has a newer one."""
    latest_before = np.maximum.accumulate(np.concatenate(([high], time)))[:-1]
    behind = (late & (latest_before != BEFORE_ALL)).nonzero()[0]
    return int((latest_before[behind] - time[behind]).max(initial=0))


def late_for_sets(time: Times, late: Mask, floors: Mapping[StreamSet, Instant]) -> dict[StreamSet, Mask]:
    """Masks of the rows that are late for the queries over some sets of streams, and not for others; only of sets that
    have such rows."""
    masks = {streams: ~late & (time < floor) for streams, floor in floors.items() if len(time) and time.min() < floor}
    return {streams: mask for streams, mask in masks.items() if mask.any()}


def late_message(stream: str, rows: pl.DataFrame, late: Mask, by_set: Mapping[StreamSet, Mask]) -> Message | None:
    """The rows that are late for any query, each once, in order of arrival; None without one.

    `late` are late for all queries of the stream, the others for those over the sets that have them.
    """
    is_any = np.logical_or.reduce([late, *by_set.values()])
    if not is_any.any():
        return None
    table = to_table(rows.filter(pl.Series(is_any)).drop(FROM, UNTIL, strict=False))
    if not by_set:
        return Message("late", stream, DRIVER, table=table)
    masks = np.stack([late, *by_set.values()], axis=1)[is_any]
    kinds, kind = np.unique(masks, axis=0, return_inverse=True)
    sets = [None if all_have else [s for s, has in zip(by_set, own, strict=True) if has] for all_have, *own in kinds]
    facts = {"sets": sets}
    table = table.append_column(_KIND, pa.array(kind.reshape(-1), pa.int64()))
    return Message("late", stream, DRIVER, facts=facts, table=table)


@dataclass(frozen=True, slots=True)
class LateRows:
    """Late rows of a stream, with the declared columns.

    `kinds` has for each row the number of its kind, and `sets` for each kind the sets of streams for whose queries it
    is late, None for all. Without `kinds`, all rows are late for all queries.
    """

    table: pa.Table
    kinds: np.ndarray[Any, np.dtype[np.int64]] | None = None
    sets: Sequence[frozenset[StreamSet] | None] = ()

    @staticmethod
    def from_message(message: Message) -> LateRows:
        assert message.table is not None, "late rows come with the rows"
        if not message.facts:
            return LateRows(message.table)
        sets = [None if listed is None else frozenset(map(stream_set, listed)) for listed in message.facts["sets"]]
        return LateRows(message.table.drop_columns([_KIND]), message.table.column(_KIND).to_numpy(), sets)

    def of_queries_over(self, streams: Collection[str]) -> pa.Table:
        """Those that are late for the queries over a set of streams."""
        if self.kinds is None:
            return self.table
        own = [number for number, sets in enumerate(self.sets) if sets is None or stream_set(streams) in sets]
        return self.table.filter(pa.array(np.isin(self.kinds, own)))
