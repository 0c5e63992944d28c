"""Duplicate elimination over interval streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Index, Mask, Times, gather, times
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.kernels.hashing import Hashes, hash_rows, is_bijective
from strandline.runtime.kernels.sweep import uncovered
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.reorder import ReorderOperator
from strandline.runtime.state.segments import HashedLog, Segment, column


class DistinctOperator(Operator):
    """Duplicate elimination: each payload at most once per instant.

    Law    snapshot(out, t) = δ(snapshot(in, t))
    State  per payload the end of its cover; remainders that begin after the slice
    Emits  of each element the part that no earlier one covers

        in       a..a......
        a        [=====)
        a           [======)
        out      [=====)[==)
    """

    def __init__(self, schema: Schema, identity: Sequence[str] = ()) -> None:
        """`identity` are columns that identify a payload, if fewer than all."""
        self.columns = list(identity) or [column.id for column in schema]
        self.seen = HashedLog()
        self.later = ReorderOperator()
        self.logs = {"seen": self.seen, **self.later.logs}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        fresh = self._uncovered(inputs[0].ordered().frame, watermark)
        return self.later.step([fresh], watermark)

    def _uncovered(self, frame: pl.DataFrame, watermark: Watermark) -> Batch:
        hashes = hash_rows(frame, self.columns)
        # By hash, and elements of one payload by start: a preceding element may cover the beginning of the next.
        order = np.argsort(hashes, kind="stable")
        frame, hashes = gather(frame, order), hashes[order]
        begins_group = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
        if not self._agree(frame, np.flatnonzero(~begins_group)):
            frame, begins_group = self._apart(frame, hashes)
        start, end = times(frame, FROM), times(frame, UNTIL)
        begins = uncovered(begins_group, start, end, self._covered_before(frame, hashes))
        rows = np.flatnonzero(begins < end)
        fresh = gather(frame, rows)
        self.seen.expire(watermark.time)
        self.seen.append(fresh, hashes[rows], watermark.time)
        return Batch(fresh).with_times(begins[rows], end[rows])

    def _agree(self, frame: pl.DataFrame, rows: Index) -> bool:
        """True if rows with the hash of their predecessor also have its payload, as nearly always."""
        payload = frame.select(self.columns)
        return bool(same_payloads(gather(payload, rows), gather(payload, rows - 1)).all())

    def _apart(self, frame: pl.DataFrame, hashes: Hashes) -> tuple[pl.DataFrame, Mask]:
        """The rows by hash, then by payload, then by start; and where a payload begins."""
        codes, _ = group_codes(frame, self.columns)
        order = np.lexsort((codes, hashes))  # stable: equal payloads keep their order
        codes = codes[order]
        return gather(frame, order), np.append(True, codes[1:] != codes[:-1])

    def _covered_before(self, frame: pl.DataFrame, hashes: Hashes) -> Times:
        """End of the cover of each new element's payload by earlier batches."""
        covered = np.full(frame.height, BEFORE_ALL)
        for segment, new_rows, stored_rows in equal_rows(self.seen, frame.select(self.columns), hashes):
            np.maximum.at(covered, new_rows, column(segment, UNTIL)[stored_rows])
        return covered


def equal_rows(seen: HashedLog, payload: pl.DataFrame, hashes: Hashes) -> Iterator[tuple[Segment, Index, Index]]:
    """For each segment the pairs (row of `payload`, row of the segment) of equal payloads."""
    for segment, new_rows, stored_rows in seen.probe(hashes):
        same = same_payloads(gather(payload, new_rows), gather(segment.frame.select(payload.columns), stored_rows))
        yield segment, new_rows[same], stored_rows[same]


def same_payloads(one: pl.DataFrame, two: pl.DataFrame) -> Mask:
    """Mask of rows with equal hashes that have equal payloads; NULL equals NULL, and NaN equals NaN."""
    no_nulls = not any(frame.to_series(0).null_count() for frame in (one, two))
    if one.width == 1 and no_nulls and is_bijective(one.dtypes[0]):
        return np.ones(one.height, dtype=np.bool_)
    other = two.rename(lambda name: "@" + name)
    equal = pl.all_horizontal(pl.col(c).eq_missing(pl.col("@" + c)) for c in one.columns)
    same: Mask = pl.concat([one, other], how="horizontal").select(equal).to_series().to_numpy()
    return same
