"""The state of operators: immutable segments of rows.

An operator never changes rows that it has stored. It appends segments, drops whole segments, and now and then merges
small ones. So a version of the state is a short list of segments, two versions share most of theirs, and a segment
that came from a file stays a memory map that any worker can open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.temporal import Instant
from strandline.planner.compaction import (
    FEW_VALID,
    TRIAL_PAIRS,
    StateStructure,
    largest_merge,
    merge_window,
    segments_to_clean,
)
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Index,
    Times,
    gather,
    is_sorted,
    keep,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.kernels.hashing import Hashes, hashes_decide, same_payloads
from strandline.runtime.kernels.probing import latest_ends, matches, overlaps

_Derived = TypeVar("_Derived")

HASH = "@hash"
# Candidate pairs per chunk: bounds the memory of a join that multiplies, whatever the state.
PAIRS_AT_ONCE = 2_000_000
# Rows of a segment whose ends tell how many of all have expired.
SAMPLE_ROWS = 1024


@dataclass(slots=True, eq=False)
class StateRows:
    """Immutable rows: in memory, or in a file that is opened on access."""

    count: int
    size: int
    _frame: pl.DataFrame | None = None
    _load: Callable[[], pl.DataFrame] | None = None
    name: str | None = None  # the file that holds them, None until they are stored
    checksum: int = 0
    _derived: dict[str, Any] = field(default_factory=dict)

    is_new: bool = True  # in memory as they were computed, and perhaps a part of much more

    @property
    def frame(self) -> pl.DataFrame:
        if self._frame is None:
            assert self._load is not None, "rows are in memory or in a file"
            self._frame, self._load = self._load(), None
        return self._frame

    def derive(self, name: str, compute: Callable[[pl.DataFrame], _Derived]) -> _Derived:
        """Something computed from the rows, kept as long as they are in memory."""
        if name not in self._derived:
            self._derived[name] = compute(self.frame)
        derived: _Derived = self._derived[name]
        return derived

    def release(self, load: Callable[[], pl.DataFrame]) -> None:
        """Release the rows in memory; they can be loaded again."""
        self._frame, self._load, self.is_new = None, load, False
        self._derived = {}


@dataclass(frozen=True, slots=True)
class Segment:
    """A view of stored rows with a few facts, such as how many of them are consumed or when the last one ends."""

    stored: StateRows
    facts: Mapping[str, int]

    @staticmethod
    def of(frame: pl.DataFrame, **facts: int) -> Segment:
        return Segment(StateRows(frame.height, int(frame.estimated_size()), frame), facts)

    @property
    def rows(self) -> int:
        return self.stored.count

    @property
    def frame(self) -> pl.DataFrame:
        return self.stored.frame

    def with_facts(self, **facts: int) -> Segment:
        return Segment(self.stored, {**self.facts, **facts})


@dataclass(slots=True)
class State:
    """State of one operator between batches."""

    numbers: dict[str, int] = field(default_factory=dict)
    segments: dict[str, list[Segment]] = field(default_factory=dict)

    def rows(self) -> int:
        return sum(s.rows - s.facts.get("consumed", 0) for group in self.segments.values() for s in group)

    def size(self) -> int:
        return sum(s.stored.size for group in self.segments.values() for s in group)


class SortedLog:
    """Rows that are taken out again in the order of a time column: the reorder buffer, elements waiting to expire.

    Each append is a run sorted by `order`. Taking what is due consumes a prefix of every run that has reached its
    time; runs that have not are not even opened.
    """

    def __init__(self, order: str) -> None:
        self.order = order
        self.segments: list[Segment] = []

    def append(self, frame: pl.DataFrame) -> None:
        """Add rows; those with equal times keep their order."""
        if not frame.height:
            return
        self.segments.append(self._run(frame))
        largest = merge_limit(self.segments)
        while (window := merge_window([s.rows - s.facts["consumed"] for s in self.segments], largest)) is not None:
            self._merge(window)

    def take_before(self, until: Instant) -> list[pl.DataFrame]:
        """Remove and return the rows whose time is before `until`, older runs first."""
        taken: list[pl.DataFrame] = []
        kept: list[Segment] = []
        for segment in self.segments:
            if segment.facts["next"] >= until:
                kept.append(segment)
                continue
            due = times(segment.frame, self.order)
            first = segment.facts["consumed"]
            last = int(np.searchsorted(due, until, side="left"))
            taken.append(segment.frame.slice(first, last - first))
            if last < segment.rows:
                kept.append(segment.with_facts(consumed=last, next=int(due[last])))
        self.segments = kept
        return taken

    def rows(self) -> list[pl.DataFrame]:
        """Rows that have not been removed."""
        return [s.frame.slice(s.facts["consumed"]) for s in self.segments]

    def _merge(self, window: slice) -> None:
        parts = [s.frame.slice(s.facts["consumed"]) for s in self.segments[window]]
        self.segments[window] = [self._run(self._fold(stack(parts)))]

    def _fold(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are left of some that are merged."""
        return frame

    def _run(self, frame: pl.DataFrame) -> Segment:
        due = times(frame, self.order)
        if not is_sorted(due):
            frame = gather(frame, np.argsort(due, kind="stable"))
        return Segment.of(frame, consumed=0, next=int(due.min()))


class SummedLog(SortedLog):
    """Sums by key and time: those of one key and time are added up when runs are merged."""

    def __init__(self, order: str, key: Sequence[str]) -> None:
        super().__init__(order)
        self.key = list(key)

    def _fold(self, frame: pl.DataFrame) -> pl.DataFrame:
        return add_up(frame, [*self.key, self.order])


def add_up(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """A row per key with the sums of the other columns, whole numbers; NULL is nothing."""
    codes, first = group_codes(frame, key)
    if len(first) == frame.height:
        return frame
    order = np.argsort(codes, kind="stable")
    begins = np.searchsorted(codes[order], np.arange(len(first)))
    sums = [
        pl.Series(column.name, np.add.reduceat(column.fill_null(0).to_numpy()[order], begins))
        for column in frame.get_columns()
        if column.name not in key
    ]
    return pl.DataFrame([*gather(pick(frame, key), first).get_columns(), *sums]).select(frame.columns)


class HeldRows:
    """Rows that every batch writes again as a whole: few, or all of them changed."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._empty = pl.DataFrame(schema=schema)
        self.frame = self._empty

    @property
    def segments(self) -> list[Segment]:
        return [Segment.of(self.frame)] if self.frame.height else []

    @segments.setter
    def segments(self, segments: Sequence[Segment]) -> None:
        self.frame = segments[0].frame if segments else self._empty


class HashedLog:
    """Elements that are found again by the hash of their key until they expire: join sides, seen payloads.

    Each append is a segment sorted by hash; a table over the leading bits of the hash leads a probe to the few rows
    that can match, so a probe costs per match and per segment, not per stored row.

    Where elements end in any order, the log is a calendar: every segment knows when its rows end, and those of which
    most has expired are written again without that, in the order that they have. So of all rows at most EXPIRED_SHARE
    has expired, and a row is written again at most (1 - EXPIRED_SHARE) / EXPIRED_SHARE times; joins were seen to
    write it once or twice.
    """

    def __init__(self, structure: StateStructure = "fifo") -> None:
        self.structure = structure
        self.segments: list[Segment] = []

    def append(self, frame: pl.DataFrame, hashes: Hashes, after: Instant, **facts: int) -> None:
        """Add elements with their hashes, sorted by hash. Those that end by `after` are dropped."""
        self._add(frame, hashes, after, **facts)
        largest = merge_limit(self.segments)
        while (window := merge_window([s.rows for s in self.segments], largest)) is not None:
            self._merge(window, after)
        if self.structure == "calendar":
            self._clean(after)

    def _add(self, frame: pl.DataFrame, hashes: Hashes, after: Instant, **facts: int) -> None:
        ends = times(frame, UNTIL)
        live = ends > after
        if not live.all():
            frame, hashes = keep(frame, live), hashes[live]
        if frame.height:
            self.segments.append(hashed_segment(with_series(frame, pl.Series(HASH, hashes)), **facts))

    def expire(self, now: Instant) -> None:
        """Drop the segments whose last element has expired."""
        self.segments = [s for s in self.segments if s.facts["until"] > now]

    def probe(self, hashes: Hashes, limit: int = PAIRS_AT_ONCE) -> Iterator[tuple[Segment, Index, Index]]:
        """For each segment the pairs (row of `hashes`, row of the segment) with equal hashes, about `limit` at a time.

        `hashes` should be sorted: then the probes walk through the tables in order, which is good for the cache.
        """
        for segment in self.segments:
            for rows, segment_rows in probe_segment(segment, hashes, limit):
                yield segment, rows, segment_rows

    def find(self, payload: pl.DataFrame, hashes: Hashes) -> Iterator[tuple[Segment, Index, Index]]:
        """For each segment the pairs (row of `payload`, row of the segment) of equal payloads."""
        for segment, rows, segment_rows in self.probe(hashes):
            stored = pick(segment.frame, payload.columns)
            if hashes_decide(payload, stored):
                yield segment, rows, segment_rows
                continue
            same = same_payloads(gather(payload, rows), gather(stored, segment_rows))
            yield segment, rows[same], segment_rows[same]

    def _merge(self, window: slice, after: Instant) -> None:
        frame = stack([s.frame for s in self.segments[window]])
        frame = keep(frame, times(frame, UNTIL) > after)
        order = np.argsort(frame.get_column(HASH).to_numpy(), kind="stable")
        self.segments[window] = [self._fold(gather(frame, order), self.segments[window])] if frame.height else []

    def _fold(self, frame: pl.DataFrame, parts: Sequence[Segment]) -> Segment:
        """The segment of rows, sorted by hash, that are merged from some others."""
        return hashed_segment(frame)

    def _clean(self, now: Instant) -> None:
        """Write segments again without what has expired, where that is too much."""
        expired = [_count_expired(segment, now) for segment in self.segments]
        for number in segments_to_clean([segment.rows for segment in self.segments], expired):
            segment = self.segments[number]
            left = np.flatnonzero(column(segment, UNTIL) > now)
            self.segments[number] = hashed_segment(gather(segment.frame, left))


class FoldedLog(HashedLog):
    """Entries by key of which the largest value counts, in each column: an entry is changed by appending another one.

    Replaced entries leave when segments are merged; when most entries are replaced ones, all segments are. So the log
    holds at most about two entries per key, and an entry is rewritten about twice more than in a log that only grows.
    """

    def __init__(self, key: Sequence[str], values: Sequence[str]) -> None:
        super().__init__()
        self.key, self.values = list(key), list(values)

    def append(self, frame: pl.DataFrame, hashes: Hashes, after: Instant, **facts: int) -> None:
        """Add entries with their hashes, sorted by hash; the fact `replaced` says how many replace others."""
        super().append(frame, hashes, after, **facts)
        if 2 * _count_replaced(self.segments) > sum(segment.rows for segment in self.segments):
            self._compact(after)

    def _compact(self, after: Instant) -> None:
        """Merge all segments, as far as they may be merged in memory."""
        for window in largest_windows(self.segments):
            self._merge(window, after)
        self.segments = [segment.with_facts(replaced=0) for segment in self.segments]

    def _fold(self, frame: pl.DataFrame, parts: Sequence[Segment]) -> Segment:
        hashes: Hashes = frame.get_column(HASH).to_numpy()
        same = np.zeros(frame.height, dtype=np.bool_)  # as the row before
        again = 1 + np.flatnonzero(hashes[1:] == hashes[:-1])
        key = pick(frame, self.key)
        same[again] = hashes_decide(key, key) or same_payloads(gather(key, again), gather(key, again - 1))
        first = np.flatnonzero(~same)
        largest = [pl.Series(name, np.maximum.reduceat(times(frame, name), first)) for name in self.values]
        replaced = max(0, _count_replaced(parts) - int(same.sum()))
        return hashed_segment(with_series(gather(frame, first), *largest), replaced=replaced)


def merge_limit(segments: Sequence[Segment]) -> int:
    """How many rows of a log may be merged at once."""
    return largest_merge(sum(s.rows for s in segments), sum(s.stored.size for s in segments))


def largest_windows(segments: Sequence[Segment]) -> Iterator[slice]:
    """Neighbours that may be merged in memory, the newest first."""
    rows, largest = [segment.rows for segment in segments], merge_limit(segments)
    end = len(rows)
    while end > 0:
        begin, total = end - 1, rows[end - 1]
        while begin > 0 and total + rows[begin - 1] <= largest:
            begin -= 1
            total += rows[begin]
        if end - begin > 1:
            yield slice(begin, end)
        end = begin


def _count_replaced(segments: Sequence[Segment]) -> int:
    """About how many entries were replaced by those of the segments."""
    return sum(segment.facts["replaced"] for segment in segments)


def hashed_segment(frame: pl.DataFrame, **facts: int) -> Segment:
    return Segment.of(frame, until=int(times(frame, UNTIL).max()), **facts)


def _count_expired(segment: Segment, now: Instant) -> int:
    """About how many rows of a segment have ended."""
    ends = segment.stored.derive("ends", _sample_ends)
    return int(np.searchsorted(ends, now, side="right")) * segment.rows // len(ends)


def _sample_ends(frame: pl.DataFrame) -> Times:
    """Some ends in order. Rows are in the order of their hashes, so that every n-th is as good as any."""
    return np.sort(times(frame, UNTIL)[:: max(1, frame.height // SAMPLE_ROWS)])


def column(segment: Segment, name: str) -> Times:
    """A time column of a segment's rows as an array, loaded once."""
    return segment.stored.derive(name, lambda frame: times(frame, name))


def probe_segment(segment: Segment, hashes: Hashes, limit: int = PAIRS_AT_ONCE) -> Iterator[tuple[Index, Index]]:
    """The pairs with equal hashes of `hashes` and one segment, about `limit` at a time."""
    begin = 0
    while segment.rows and begin < len(hashes):
        rows, segment_rows, begin = matches(hashes, *segment.stored.derive("table", _lookup_table), begin, limit)
        yield rows, segment_rows


def probe_overlapping(mine: Segment, other: Segment, limit: int) -> Iterator[tuple[Index, Index]]:
    """The pairs of two segments that have equal hashes and can be valid together, about `limit` at a time.

    A look-up by key alone is faster where most of what it finds is valid. Where a key has many elements one after the
    other, such as the values of a running aggregate, few are: if the first pairs show that, the others are looked up by
    key and time.
    """
    hashes: Hashes = mine.frame.get_column(HASH).to_numpy()
    start, end = column(mine, FROM), column(mine, UNTIL)
    begin, size = 0, TRIAL_PAIRS
    while other.rows and begin < len(hashes):
        rows, other_rows, begin = matches(hashes, *other.stored.derive("table", _lookup_table), begin, size)
        yield rows, other_rows
        if size == TRIAL_PAIRS and begin < len(hashes):
            valid = (column(other, FROM)[other_rows] < end[rows]) & (start[rows] < column(other, UNTIL)[other_rows])
            if valid.sum() * FEW_VALID < len(rows):
                break
        size = limit
    while other.rows and begin < len(hashes):
        order, stored, stored_start, stored_end, latest = other.stored.derive("by time", _time_index)
        rows, places, begin = overlaps(hashes, start, end, stored, stored_start, stored_end, latest, begin, limit)
        yield rows, order[places]


def _time_index(frame: pl.DataFrame) -> tuple[Index, Hashes, Times, Times, Times]:
    """The rows by hash and start, and when the rows of each block have ended."""
    hashes: Hashes = frame.get_column(HASH).to_numpy()
    start, end = times(frame, FROM), times(frame, UNTIL)
    order = np.lexsort((start, hashes))
    return order, hashes[order], start[order], end[order], latest_ends(end[order])


def _lookup_table(frame: pl.DataFrame) -> tuple[Hashes, npt.NDArray[np.uint32], np.uint64]:
    return hash_table(frame.get_column(HASH).to_numpy())


def hash_table(stored: Hashes) -> tuple[Hashes, npt.NDArray[np.uint32], np.uint64]:
    """Sorted hashes, and a table over their leading bits: where those with these bits begin."""
    bits = max(1, len(stored).bit_length() - 1)
    shift = np.uint64(64 - bits)
    counts = np.bincount((stored >> shift).astype(np.int64), minlength=1 << bits)
    table = np.zeros((1 << bits) + 1, dtype=np.uint32)
    table[1:] = np.cumsum(counts)
    return stored, table, shift


# The states of the operators of a stage, by their ids (`Fragment.operators`).
States: TypeAlias = dict[str, State]
