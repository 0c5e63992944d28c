"""Results with the sampling rate of the rows behind them."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.types import Column
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.operators.base import Operator, Progress
from strandline.shedding.sampler import kept_share


class KeptShareOperator(Operator):
    """A column with the product, over all streams, of the mean share in the window when an element begins."""

    def __init__(self, column: Column, query: str, windows: tuple[tuple[str, int | None], ...]) -> None:
        self.column, self.query, self.windows = column, query, windows

    def step(self, inputs: list[Batch], progress: Progress) -> Batch:
        (batch,) = inputs
        share = np.ones(len(batch))
        for stream, range_us in self.windows:
            if stream in progress.kept:
                share *= kept_share(progress.kept[stream], self.query, range_us, batch.start, progress.origin)
        return Batch(batch.frame.with_columns(pl.Series(self.column.id, share)))
