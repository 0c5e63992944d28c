"""Arrays as rows: an element for every element of an array."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.types import Column
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, without
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.lists import elements
from strandline.runtime.operators.base import Operator, Watermark


class UnnestOperator(Operator):
    """Each element once for every element of its array, with the same validity.

    Law    snapshot(out, t) = each row of snapshot(in, t) with each element of its array; with `outer` a row whose
           array has no elements stays, with NULL

        [a, b]   [====)      a  [====)
                             b  [====)
    """

    def __init__(self, element: Column, array: str, ordinal: Column | None, outer: bool) -> None:
        self.element, self.array, self.ordinal, self.outer = element, array, ordinal, outer

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        content, sizes = elements(inputs[0].frame.get_column(self.array))
        counts = np.maximum(sizes, 1) if self.outer else sizes
        taken = inputs[0].take(np.repeat(np.arange(len(counts)), counts)).frame
        position = np.arange(len(taken)) - np.repeat(np.cumsum(counts) - counts, counts)
        number = pl.Series(position + 1)
        if self.outer:
            place = np.repeat(np.cumsum(sizes) - sizes, counts) + position
            present = pl.Series(position < np.repeat(sizes, counts))
            content = content.gather(pl.select(pl.when(present).then(pl.Series(place))).to_series())
            number = pl.select(pl.when(present).then(number)).to_series()
        added = [content.cast(polars_type(self.element.type)).alias(self.element.id)]
        if self.ordinal is not None:
            added.append(number.cast(pl.Int64).alias(self.ordinal.id))
        times = [taken.get_column(name) for name in (FROM, UNTIL)]
        return Batch(pl.DataFrame([*without(taken, (FROM, UNTIL)).get_columns(), *added, *times]))
