"""Elements as changes and back: the net effect of intervals on the result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Mask, Times, gather, keep, times
from strandline.runtime.kernels.grouping import group_codes

TIME, CHANGE = "@time", "@change"


def sum_changes(codes: Index, time: Times, change: Index) -> pl.DataFrame:
    """The sum of the changes of each code at each instant, where it is not zero: `code`, `@time` and `@change`."""
    events = pl.DataFrame({"code": codes, TIME: time, CHANGE: change})
    return events.group_by("code", TIME).agg(pl.col(CHANGE).sum()).filter(pl.col(CHANGE) != 0)


def net_changes(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Net changes per instant: the payload, `@time`, and `@change`, the number of insertions minus deletions.

    A fragment that ends where an equal one begins is no change at all, so the result does not depend on how intervals
    were cut. Ordered by time, departures before arrivals; elements that never end never depart.
    """
    codes, representative = group_codes(frame, columns)
    ends = times(frame, UNTIL)
    ending = ends < FOREVER
    code = np.concatenate([codes, codes[ending]])
    time = np.concatenate([times(frame, FROM), ends[ending]])
    change = np.concatenate([np.ones(len(codes), np.int64), -np.ones(int(ending.sum()), np.int64)])
    net = sum_changes(code, time, change).sort(TIME, CHANGE, "code")
    payload = gather(frame.select(columns), representative[net.get_column("code").to_numpy()])
    return payload.with_columns(net.get_column(TIME), net.get_column(CHANGE), net.get_column("code").alias("@code"))


def coalesce(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Coalesce: the same snapshots with the fewest intervals, by merging adjacent value-equivalent ones.

    Per payload, the k-th arrival is paired with the k-th departure: at every instant as many duplicates are valid as
    were.
    """
    if not frame.height:
        return frame
    net = net_changes(frame, columns)
    copies = net.get_column(CHANGE).to_numpy()
    rows = np.repeat(np.arange(net.height), np.abs(copies))
    comes = copies[rows] > 0
    code, time = net.get_column("@code").to_numpy()[rows], times(net, TIME)[rows]
    come, go = np.flatnonzero(comes), np.flatnonzero(~comes)
    come = come[np.lexsort((time[come], code[come]))]
    go = go[np.lexsort((time[go], code[go]))]
    # Departures may be missing (elements without end): the k-th arrival of a payload takes its k-th departure or none.
    rank_come, rank_go = rank_in_group(code[come]), rank_in_group(code[go])
    arrivals = pl.DataFrame({"code": code[come], "rank": rank_come, "row": rows[come], FROM: time[come]})
    departures = pl.DataFrame({"code": code[go], "rank": rank_go, UNTIL: time[go]})
    paired = arrivals.join(departures, on=["code", "rank"], how="left").sort(FROM, "row")
    payload = gather(net.select(columns), paired.get_column("row").to_numpy())
    return payload.with_columns(paired.get_column(FROM), paired.get_column(UNTIL).fill_null(FOREVER))


def begun_and_ended(frame: pl.DataFrame, before: Instant) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A slice in the form of changes that begins at `before`: the elements that begin in it, and those that were sent
    without an end and have ended. What is only announced again, after a restart, is neither."""
    earlier = times(frame, FROM) < before
    if not earlier.any():
        return frame, frame.head(0)
    ended = earlier & (times(frame, UNTIL) != OPEN)
    return keep(frame, ~earlier), keep(frame, ended)


def has_ended(ends: Times, watermark: Instant) -> Mask:
    """Which elements end before a watermark. One that is open does not, also when everything ends."""
    ended: Mask = ends < min(watermark, OPEN)
    return ended


def drop_replaced(frame: pl.DataFrame, columns: Sequence[str], again: Mask) -> pl.DataFrame:
    """Elements as they were sent, without those that were sent without an end and then `again`, with it."""
    if not again.any():
        return frame
    replaced, _ = match_replaced(frame, columns, again)
    return keep(frame, ~replaced)


def match_replaced(frame: pl.DataFrame, columns: Sequence[str], again: Mask) -> tuple[Mask, Mask]:
    """Pairs of an element that was sent without an end and the same that was sent `again`, with it: the mask of the
    former and that of the latter. Of equal ones it makes no difference which are paired."""
    start = times(frame, FROM)
    is_open = (times(frame, UNTIL) == OPEN) & np.isin(start, start[again])
    rows = np.flatnonzero(is_open | again)
    codes, first = group_codes(gather(frame, rows), [*columns, FROM])
    replaced, replacing = np.zeros(frame.height, np.bool_), np.zeros(frame.height, np.bool_)
    sides = [np.flatnonzero(mask[rows]) for mask in (is_open, again)]
    opened, ended = (np.bincount(codes[side], minlength=len(first)) for side in sides)
    for mask, side, others in ((replaced, sides[0], ended), (replacing, sides[1], opened)):
        side = side[np.argsort(codes[side], kind="stable")]
        mask[rows[side[rank_in_group(codes[side]) < others[codes[side]]]]] = True
    return replaced, replacing


def rank_in_group(codes: Index) -> Index:
    """0, 1, 2, … within each run of equal codes."""
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = codes[1:] != codes[:-1]
    begins = np.flatnonzero(first)
    return np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
