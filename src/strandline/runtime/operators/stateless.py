"""Stateless operators: filter, map, time window, granularity, repeat, union, and the sampling rate of results."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.core.types import Column
from strandline.logical.expressions import Expression, columns_of
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, stack
from strandline.runtime.kernels.intervals import window
from strandline.runtime.kernels.refused_values import Sample, sample_values
from strandline.runtime.operators.base import Operator, Watermark
from strandline.shedding.sampler import mean_sampling_rate


class FilterOperator(Operator):
    """Keep the elements whose payload satisfies the predicate.

    Law    snapshot(out, t) = σ(snapshot(in, t))
    """

    def __init__(self, predicate: Expression) -> None:
        self.predicate = predicate
        self.refused: Sample | None = None  # of the first rows that came, if none has passed

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        frame = inputs[0].frame
        passed = filter_frame(frame, self.predicate)
        if self.refused is None and frame.height and not passed.height:
            self.refused = sample_values(frame, columns_of(self.predicate))
        return Batch(passed)


class ProjectOperator(Operator):
    """Compute the output columns from the payload; validity stays.

    Law    snapshot(out, t) = π(snapshot(in, t)), duplicates kept
    """

    def __init__(self, outputs: tuple[tuple[Column, Expression], ...]) -> None:
        self.outputs = [(column.id, expression) for column, expression in outputs]

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        return Batch(evaluate_columns(inputs[0].frame, self.outputs, keep=(FROM, UNTIL)))


class TimeWindowOperator(Operator):
    """Time window: extend each instant by the range, aligned to the slide.

    Law    snapshot(out, t) = the elements of in with T - range <= s < T, T = floor((t + 1) / slide) * slide
    Emits  elements that may start after the slice: a reorder buffer follows where the slide is not one chronon

        range=4          a....b
        a                [===)
        b                     [===)
    """

    def __init__(self, range_us: int | None, slide_us: int, offset_us: int = 0) -> None:
        self.range_us, self.slide_us, self.offset_us = range_us, slide_us, offset_us

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        start, end = window(inputs[0].start, self.range_us, self.slide_us, self.offset_us)
        end = np.where(inputs[0].end == FOREVER, FOREVER, end)  # one of the intervals that represent all of their kind
        moved = inputs[0].with_times(start, end)
        sees_all = self.range_us is None or self.slide_us <= self.range_us
        return moved if sees_all else moved.keep(start < end)


class AlignTimeOperator(Operator):
    """Granularity: the stream as it is at the beginning of each granule.

    Law    snapshot(out, t) = snapshot(in, floor(t / granule) * granule)
    Emits  elements that may start after the slice: a reorder buffer follows

        granule=4        a  [====)        a     [===)
                         b [==)       out
    """

    def __init__(self, granule_us: int) -> None:
        self.granule_us = granule_us

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        start, end = (
            -(-instants // self.granule_us) * self.granule_us for instants in (inputs[0].start, inputs[0].end)
        )
        end = np.where(inputs[0].end == FOREVER, FOREVER, end)
        return inputs[0].with_times(start, end).keep(start < end)


class InsertStreamOperator(Operator):
    """Each element for the one instant at which it comes; none of them ever ends.

    Law    snapshot(out, t) = snapshot(in, t) - snapshot(in, t - 1)
    """

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        start = inputs[0].start
        return inputs[0].with_times(start, start + 1)


class RepeatOperator(Operator):
    """Each element with a multiplicity computed from its payload.

    Law    snapshot(out, t) = each row of snapshot(in, t), n times
    """

    def __init__(self, copies: Expression) -> None:
        self.copies = copies

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        copies = evaluate_columns(inputs[0].frame, [("copies", self.copies)]).get_column("copies").to_numpy()
        return inputs[0].take(np.repeat(np.arange(len(copies)), copies))


class UnionAllOperator(Operator):
    """UNION ALL: the elements of all inputs.

    Law    snapshot(out, t) = snapshot(in_1, t) ⊎ … ⊎ snapshot(in_n, t)
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.names = [column.id for column in columns]

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        frames = [b.frame.rename(dict(zip(b.frame.columns, self.names, strict=False))) for b in inputs]
        return Batch(stack(frames))


class SamplingRateOperator(Operator):
    """A column with the product, over all streams, of the mean sampling rate in the window when an element begins."""

    def __init__(self, column: Column, query: str, windows: tuple[tuple[str, int | None], ...]) -> None:
        self.column, self.query, self.windows = column, query, windows

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        (batch,) = inputs
        sampling_rate = np.ones(len(batch))
        for stream, range_us in self.windows:
            if stream in watermark.rate_history:
                sampling_rate *= mean_sampling_rate(
                    watermark.rate_history[stream], self.query, range_us, batch.start, watermark.origin
                )
        return Batch(batch.frame.with_columns(pl.Series(self.column.id, sampling_rate)))
