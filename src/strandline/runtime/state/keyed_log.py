"""Keyed state: rows that are found and replaced by their key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.planner.compaction import LOOK_UP_COST, merge_window_of_versions
from strandline.runtime.kernels.batch import Index, gather, keep, pick, stack
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.kernels.hashing import Hashes, hash_rows, same_payloads
from strandline.runtime.kernels.probing import matches
from strandline.runtime.state.segments import PAIRS_AT_ONCE, Segment, hash_table, largest_windows, merge_limit

GONE = "@gone"


class KeyedLog:
    """Rows by key, any number of them, that are replaced together: by appending the new rows of the key, or a row that
    marks it as gone. What a batch writes grows with the keys that it changes, not with those that are kept.

    Law  the rows of a key are those of the newest segment that has the key

    Obsolete rows leave when segments are merged; when most rows are obsolete, all segments are. Rows may have further
    columns that others lack: these are NULL there. Keys are hashed when they are looked up for the first time.
    """

    def __init__(self, key: Sequence[str], schema: Mapping[str, pl.DataType], rows_per_key: int = 1) -> None:
        """`rows_per_key` is about how many a key has."""
        self.key, self.rows_per_key = list(key), rows_per_key
        self._empty = pl.DataFrame(schema=schema)
        self.segments: list[Segment] = []

    @property
    def rows(self) -> int:
        """How many rows count."""
        return sum(segment.rows - segment.facts["obsolete"] for segment in self.segments)

    def all(self) -> pl.DataFrame:
        """The rows of all keys."""
        return self._without_marks(self._newest(self.segments)) if self.segments else self._empty

    def has_mostly(self, keys: pl.DataFrame) -> bool:
        """True if some keys may be a large part of the log: to read all rows is less work than to find these."""
        if keys.height >= self.rows:
            return True
        _, first = group_codes(keys, self.key)
        return LOOK_UP_COST * len(first) * self.rows_per_key >= self.rows

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows of some keys."""
        if not keys.height:
            return self._empty
        _, first = group_codes(keys, self.key)
        keys = gather(keys, first)
        hashes = hash_rows(keys, self.key)
        left = np.argsort(hashes)  # the keys that were not found yet
        found: list[pl.DataFrame] = []
        for segment in reversed(self.segments):
            there = np.zeros(len(left), dtype=np.bool_)
            order, stored, table, shift = segment.stored.derive("keys", self._table)
            begin = 0
            while begin < len(left):
                rows, places, begin = matches(hashes[left], stored, table, shift, begin, PAIRS_AT_ONCE)
                if not len(rows):
                    continue
                part = gather(segment.frame, order[places])
                same = same_payloads(gather(pick(keys, self.key), left[rows]), pick(part, self.key))
                if not same.all():
                    rows, part = rows[same], keep(part, same)
                there[rows] = True
                found.append(part)
            left = left[~there]
            if not len(left):
                break
        return self._without_marks(stack(found)) if found else self._empty

    def replace(self, old: pl.DataFrame, new: pl.DataFrame) -> None:
        """Replace rows that were found, of some keys, by the rows that these and perhaps other keys have now."""
        if old.height == self.rows:  # all there is has changed
            self.segments = [Segment.of(_marked(new), obsolete=0)] if new.height else []
            return
        gone = self._without_rows(old, new)
        frame = stack([_marked(new), _marked(gone, True)]) if gone.height else _marked(new)
        if frame.height:
            self.segments.append(Segment.of(frame, obsolete=old.height + gone.height))
        largest = merge_limit(self.segments)
        while (window := merge_window_of_versions([segment.rows for segment in self.segments], largest)) is not None:
            self._merge(window)
        if 2 * sum(segment.facts["obsolete"] for segment in self.segments) > sum(s.rows for s in self.segments):
            self._compact()

    def _table(self, frame: pl.DataFrame) -> tuple[Index, Hashes, npt.NDArray[np.uint32], np.uint64]:
        """The rows by the hash of their key, and where to find a hash."""
        hashes = hash_rows(frame, self.key)
        order = np.argsort(hashes, kind="stable")
        return order, *hash_table(hashes[order])

    def _without_rows(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """The keys of `old`, each once, that are not among those of `new`."""
        if not old.height:
            return old
        keys = stack([pick(new, self.key), pick(old, self.key)])
        _, first = group_codes(keys, self.key)
        return gather(keys, first[first >= new.height])

    def _compact(self) -> None:
        """Merge all segments, as far as they may be merged in memory."""
        for window in largest_windows(self.segments):
            self._merge(window)
        self.segments = [segment.with_facts(obsolete=0) for segment in self.segments]

    def _merge(self, window: slice) -> None:
        parts = self.segments[window]
        frame = self._newest(parts)
        if window.start == 0:  # no older segment has a key that is gone
            frame = keep(frame, ~frame.get_column(GONE).to_numpy())
        dropped = sum(part.rows for part in parts) - frame.height
        obsolete = max(0, sum(part.facts["obsolete"] for part in parts) - dropped)
        self.segments[window] = [Segment.of(frame, obsolete=obsolete)] if frame.height else []

    def _newest(self, segments: Sequence[Segment]) -> pl.DataFrame:
        """The rows that count of some neighbouring segments, with marks of keys that are gone."""
        frame = stack([segment.frame for segment in segments])
        if len(segments) == 1:
            return frame
        codes, first = group_codes(frame, self.key)
        number = np.repeat(np.arange(len(segments)), [segment.rows for segment in segments])
        newest = np.zeros(len(first), np.int64)
        np.maximum.at(newest, codes, number)
        counts = number == newest[codes]
        return frame if counts.all() else keep(frame, counts)

    def _without_marks(self, frame: pl.DataFrame) -> pl.DataFrame:
        is_gone = frame.get_column(GONE)
        rows = keep(frame, ~is_gone.to_numpy()) if is_gone.any() else frame
        return pick(rows, [name for name in rows.columns if name != GONE])


def _marked(frame: pl.DataFrame, gone: bool = False) -> pl.DataFrame:
    """Rows with the mark of a key that is gone, or without."""
    return frame.hstack([pl.Series(GONE, np.full(frame.height, gone))])
