"""Duplicate elimination over interval streams."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.execution.batch import FROM, UNTIL, Batch, Times, gather, times
from strandline.execution.kernels.grouping import group_codes, running_max_in_groups
from strandline.execution.kernels.hashing import Hashes, hash_rows
from strandline.execution.operators.base import Operator, Progress
from strandline.execution.operators.join import PAIRS_AT_ONCE
from strandline.execution.operators.reorder import ReorderOperator
from strandline.execution.state import HashedLog, State
from strandline.temporal import BEFORE_ALL
from strandline.types import Schema


class DistinctOperator(Operator):
    """Each payload at most once per instant.

    Law    snapshot(out, t) = δ(snapshot(in, t))
    State  per payload until when it is covered already; pieces that begin after the slice
    Emits  of each element the part that no earlier one covers

        in       a..a......
        a        [=====)
        a           [======)
        out      [=====)[==)
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [column.id for column in schema]
        self.seen = HashedLog()
        self.later = ReorderOperator()

    def step(self, inputs: list[Batch], progress: Progress) -> Batch:
        fresh = self._uncovered(inputs[0], progress)
        return self.later.step([fresh], progress)

    def _uncovered(self, batch: Batch, progress: Progress) -> Batch:
        frame = batch.frame
        hashes = hash_rows(frame, self.columns)
        by_hash = np.argsort(hashes)
        frame, hashes = gather(frame, by_hash), hashes[by_hash]
        codes, _ = group_codes(frame, self.columns)
        # Sort by payload, then by start: what precedes an element in its group is what may cover its beginning.
        order = np.lexsort((times(frame, FROM), codes))
        start, end = times(frame, FROM)[order], times(frame, UNTIL)[order]
        reach = running_max_in_groups(codes[order], end)
        covered = np.full(len(order), BEFORE_ALL)
        same = codes[order][1:] == codes[order][:-1]
        covered[1:][same] = reach[:-1][same]
        covered = np.maximum(covered, self._covered_before(frame, hashes)[order])
        begins = np.maximum(start, covered)
        fresh = begins < end
        rows = order[fresh]
        result = Batch(gather(frame, rows)).with_times(begins[fresh], end[fresh])
        self.seen.expire(progress.until)
        keep = np.sort(rows)
        self.seen.append(gather(frame, keep), hashes[keep], progress.until)
        return result

    def _covered_before(self, frame: pl.DataFrame, hashes: Hashes) -> Times:
        """For each new element until when earlier batches cover its payload."""
        covered = np.full(frame.height, BEFORE_ALL)
        for segment, mine, theirs in self.seen.probe(hashes, PAIRS_AT_ONCE):
            one = gather(frame.select(self.columns), mine)
            two = gather(segment.frame.select(self.columns), theirs).rename(lambda name: "@" + name)
            equal = pl.concat([one, two], how="horizontal").select(
                pl.all_horizontal(pl.col(c).eq_missing(pl.col("@" + c)) for c in self.columns)
            )
            same = equal.to_series().to_numpy()
            np.maximum.at(covered, mine[same], times(segment.frame, UNTIL)[theirs[same]])
        return covered

    def restore(self, state: State) -> None:
        self.seen = HashedLog(state.segments.get("seen", ()))
        self.later.restore(State(segments={"waiting": state.segments.get("waiting", [])}))

    def save(self) -> State:
        return State(segments={"seen": self.seen.segments, **self.later.save().segments})
