"""Results with the sampling rate of the rows behind them."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.types import Column
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.operators.base import Operator, Watermark
from strandline.shedding.sampler import kept_share


class SamplingRateOperator(Operator):
    """A column with the product, over all streams, of the mean share in the window when an element begins."""

    def __init__(self, column: Column, query: str, windows: tuple[tuple[str, int | None], ...]) -> None:
        self.column, self.query, self.windows = column, query, windows

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        (batch,) = inputs
        sampling_rate = np.ones(len(batch))
        for stream, range_us in self.windows:
            if stream in watermark.rate_history:
                sampling_rate *= kept_share(
                    watermark.rate_history[stream], self.query, range_us, batch.start, watermark.origin
                )
        return Batch(batch.frame.with_columns(pl.Series(self.column.id, sampling_rate)))
