"""Elements that are found by hash, and may be taken out again before an end of them was known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.temporal import OPEN, Instant
from strandline.planner.compaction import merge_window_of_versions
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Index,
    Mask,
    gather,
    is_sorted,
    keep,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.changes import rank_in_group
from strandline.runtime.kernels.grouping import group_codes, group_order, pair_codes
from strandline.runtime.kernels.hashing import Hashes, hash_rows, same_payloads
from strandline.runtime.kernels.probing import matches
from strandline.runtime.state.segments import (
    HASH,
    PAIRS_AT_ONCE,
    HashedLog,
    Segment,
    column,
    hash_table,
    hashed_segment,
    largest_windows,
    merge_limit,
    probe_segment,
)

SIGN = "@sign"
# If fewer rows than one of so many cancel others, the rows that they may concern are looked up first.
FEW_CANCELS = 8


class CancellingLog(HashedLog):
    """A hashed log of elements whose end may be unknown. One that has ended is taken out by appending a row that
    cancels it: the element with the sign -1. So a batch writes what changes.

    Law  of the rows without an end that are equal but for the sign, as many count as there are more positive ones

    Rows that cancel each other leave when their segments are merged; when most rows are such, all segments are.
    """

    def __init__(self, payload: Sequence[str]) -> None:
        super().__init__()
        self.identity = [*payload, FROM]

    def append(self, frame: pl.DataFrame, hashes: Hashes, after: Instant, **facts: int) -> None:
        """Add elements with their signs and hashes, sorted by hash. Those that end by `after` are dropped."""
        cancels = int((signs(frame) < 0).sum())
        self._add(frame, hashes, after, cancels=cancels, obsolete=2 * cancels, **facts)
        largest = merge_limit(self.segments)
        while (window := merge_window_of_versions([s.rows for s in self.segments], largest)) is not None:
            self._merge(window, after)
        if 2 * sum(s.facts["obsolete"] for s in self.segments) > sum(s.rows for s in self.segments):
            for window in largest_windows(self.segments):
                self._merge(window, after)
            self.segments = [segment.with_facts(obsolete=0) for segment in self.segments]

    def all(self, ended: Segment | None = None) -> pl.DataFrame | None:
        """The elements that count, in any order; none if there is nothing. `ended` are rows that cancel and are not in
        the log yet."""
        if not self.segments:
            return None
        segments = self.segments if ended is None else [*self.segments, ended]
        columns = self.segments[0].frame.columns
        frame = stack([pick(segment.frame, columns) for segment in segments])
        return keep(frame, ~self._cancelled_rows(frame))

    def of_keys(self, keys: pl.DataFrame, ended: Segment | None = None) -> Iterator[pl.DataFrame]:
        """The elements that count of some different keys, whose hash is that of the log."""
        hashes = hash_rows(keys, keys.columns)
        order = np.argsort(hashes)
        keys, hashes = gather(keys, order), hashes[order]
        dead = {
            id(s): rows for s, rows in zip(self.segments, self.cancelled(distinct_values(hashes), ended), strict=True)
        }
        for segment, _, rows in self.find(keys, hashes):
            yield gather(segment.frame, rows[~is_among(rows, dead[id(segment)])])

    def has_cancels(self, ended: Segment | None = None) -> bool:
        """False if all rows count: nothing has ended since they were written."""
        return any(segment.facts["cancels"] for segment in (*self.segments, *(() if ended is None else (ended,))))

    def cancelled(self, hashes: Hashes, ended: Segment | None = None) -> list[Index]:
        """For each segment, in order, its rows with one of these different hashes, sorted, that do not count: those
        that cancel, and those that are cancelled; `ended` are rows that cancel and are not in the log yet."""
        segments = self.segments if ended is None else [*self.segments, ended]
        found = distinct_values(np.concatenate([hashes[:0], *_hashes_of_cancels(segments, hashes)]))
        nothing = np.empty(0, np.int64)
        if not len(found):
            return [nothing] * len(self.segments)
        rows = [_open_rows(segment, found) for segment in segments]
        hash_of, start, sign = (
            np.concatenate([array(s)[r] for s, r in zip(segments, rows, strict=True)])
            for array in (_hash_array, lambda s: column(s, FROM), _sign_array)
        )
        codes, first = pair_codes(hash_of.view(np.int64), start, np.ones(len(start), np.bool_))
        positive, negative = _count_signs(codes, sign, len(first))
        # What cancels a row is in the log with it: if there are as many, there is nothing to compare.
        dead = (positive == negative)[codes]
        is_unclear = ((negative > 0) & (positive != negative))[codes]
        if is_unclear.any():
            parts = [
                pick(gather(s.frame, r), [*self.identity, UNTIL, SIGN, HASH])
                for s, r in zip(segments, rows, strict=True)
            ]
            dead[is_unclear] = self._cancelled_rows(keep(stack(parts), is_unclear))
        masks = np.split(dead, np.cumsum([len(r) for r in rows])[:-1])
        return [np.sort(r[mask]) for r, mask in zip(rows, masks, strict=True)][: len(self.segments)]

    def _cancelled_rows(self, frame: pl.DataFrame) -> Mask:
        """The rows that cancel each other."""
        sign = signs(frame)
        dead = np.zeros(frame.height, np.bool_)
        cancels = int((sign < 0).sum())
        if not cancels:
            return dead
        hashes: Hashes = frame.get_column(HASH).to_numpy()
        concerned = times(frame, UNTIL) == OPEN
        if FEW_CANCELS * cancels < frame.height:
            concerned &= is_among(hashes, distinct_values(hashes[sign < 0]))
        rows = np.flatnonzero(concerned)
        codes, first = pair_codes(hashes[rows].view(np.int64), times(frame, FROM)[rows], np.ones(len(rows), np.bool_))
        positive, negative = _count_signs(codes, sign[rows], len(first))
        rows = rows[((positive > 0) & (negative > 0))[codes]]
        codes, count = self._identities(pick(gather(frame, rows), [*self.identity, HASH]))
        dead[rows] = _cancel_out(codes, sign[rows], count)
        return dead

    def _identities(self, frame: pl.DataFrame) -> tuple[Index, int]:
        """A code for each element, and their number. Nearly always the hash of the key and the start tell elements
        apart: then payloads are only compared."""
        hashes = frame.get_column(HASH).to_numpy().view(np.int64)
        codes, first = pair_codes(hashes, times(frame, FROM), np.ones(frame.height, np.bool_))
        again = np.ones(frame.height, np.bool_)
        again[first] = False
        payload = pick(frame, self.identity)
        if not same_payloads(keep(payload, again), gather(payload, first[codes[again]])).all():
            codes, first = group_codes(frame, self.identity)
        return codes, len(first)

    def _merge(self, window: slice, after: Instant) -> None:
        parts = self.segments[window]
        frame = stack([part.frame for part in parts])
        frame = keep(frame, ~self._cancelled_rows(frame) & (times(frame, UNTIL) > after))
        dropped = sum(part.rows for part in parts) - frame.height
        obsolete = max(0, sum(part.facts["obsolete"] for part in parts) - dropped)
        order = np.argsort(frame.get_column(HASH).to_numpy(), kind="stable")
        cancels = int((signs(frame) < 0).sum())
        self.segments[window] = (
            [hashed_segment(gather(frame, order), cancels=cancels, obsolete=obsolete)] if frame.height else []
        )


def signs(frame: pl.DataFrame) -> npt.NDArray[np.int8]:
    values: npt.NDArray[np.int8] = frame.get_column(SIGN).to_numpy()
    return values


def signed(frame: pl.DataFrame, sign: int) -> pl.DataFrame:
    """Elements with one sign."""
    return with_signs(frame, np.full(frame.height, sign))


def with_signs(frame: pl.DataFrame, sign: Index) -> pl.DataFrame:
    """Elements with the sign of each; those that cancel others have no end, as these had none."""
    ends = np.where(sign < 0, OPEN, times(frame, UNTIL))
    return with_series(frame, pl.Series(SIGN, sign.astype(np.int8)), pl.Series(UNTIL, ends))


def _hash_array(segment: Segment) -> Hashes:
    hashes: Hashes = segment.stored.derive("hashes", lambda frame: frame.get_column(HASH).to_numpy())
    return hashes


def _sign_array(segment: Segment) -> npt.NDArray[np.int8]:
    return segment.stored.derive("signs", signs)


def _count_signs(codes: Index, sign: npt.NDArray[np.int8], count: int) -> tuple[Index, Index]:
    """For each code the number of positive and of negative rows."""
    negative = np.bincount(codes[sign < 0], minlength=count)
    return np.bincount(codes, minlength=count) - negative, negative


def _cancel_out(codes: Index, sign: npt.NDArray[np.int8], count: int) -> Mask:
    """The rows that cancel each other: of a code, as many of one sign as of the other."""
    positive, negative = _count_signs(codes, sign, count)
    dead: Mask = (positive == negative)[codes]
    left = np.flatnonzero(~dead)
    both = np.minimum(positive, negative)
    for side in (sign[left] > 0, sign[left] < 0):
        mine = left[side]
        mine = mine[group_order(codes[mine])]
        dead[mine[rank_in_group(codes[mine]) < both[codes[mine]]]] = True
    return dead


def distinct_values(values: Hashes) -> Hashes:
    """Different values in order. A sort of 64-bit numbers takes less than the table that `np.unique` builds."""
    values = values if is_sorted(values) else np.sort(values)
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return values[changes]


def is_among(rows: Index | Hashes, some: Index | Hashes) -> Mask:
    """Which numbers are among some others, which are sorted."""
    if not len(some):
        return np.zeros(len(rows), np.bool_)
    places = np.minimum(np.searchsorted(some, rows), len(some) - 1)
    found: Mask = some[places] == rows
    return found


def _hashes_of_cancels(segments: Sequence[Segment], hashes: Hashes) -> Iterator[Hashes]:
    """The hashes, of those given, with rows that cancel others."""
    for segment in segments:
        if not segment.facts["cancels"]:
            continue
        table = segment.stored.derive("cancels", _cancel_table)
        begin = 0
        while begin < len(hashes):
            rows, _, begin = matches(hashes, *table, begin, PAIRS_AT_ONCE)
            yield hashes[rows]


def _cancel_table(frame: pl.DataFrame) -> tuple[Hashes, npt.NDArray[np.uint32], np.uint64]:
    return hash_table(frame.get_column(HASH).to_numpy()[signs(frame) < 0])


def _open_rows(segment: Segment, hashes: Hashes) -> Index:
    """The rows of a segment with one of some different hashes and without an end."""
    parts = [np.empty(0, np.int64), *(places for _, places in probe_segment(segment, hashes))]
    rows: Index = np.concatenate(parts)
    found: Index = rows[column(segment, UNTIL)[rows] == OPEN]
    return found
