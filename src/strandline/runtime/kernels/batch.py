"""A batch of elements: payload columns and the validity interval of each, as one columnar frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.types import Schema
from strandline.runtime.kernels.columns import polars_type

Times: TypeAlias = npt.NDArray[np.int64]
Index: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Column ids never begin with "@", so these cannot meet a payload column.
FROM, UNTIL = "@from", "@until"


def frame_schema(schema: Schema) -> dict[str, pl.DataType]:
    """The Polars schema of a payload with its interval."""
    return {c.id: polars_type(c.type) for c in schema} | {FROM: pl.Int64(), UNTIL: pl.Int64()}


@dataclass(frozen=True, slots=True)
class Batch:
    """Elements as a frame: one column per payload column (named by id), `@from` and `@until`."""

    frame: pl.DataFrame

    def __len__(self) -> int:
        return self.frame.height

    @property
    def start(self) -> Times:
        return times(self.frame, FROM)

    @property
    def end(self) -> Times:
        return times(self.frame, UNTIL)

    @staticmethod
    def empty(schema: Schema) -> Batch:
        return Batch(pl.DataFrame(schema=frame_schema(schema)))

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        if len(batches) == 1:
            return batches[0]
        return Batch(stack([b.frame for b in batches]))

    def take(self, rows: Index) -> Batch:
        return Batch(gather(self.frame, rows))

    def keep(self, mask: Mask) -> Batch:
        return Batch(keep(self.frame, mask))

    def with_times(self, start: Times, end: Times) -> Batch:
        return Batch(with_series(self.frame, pl.Series(FROM, start), pl.Series(UNTIL, end)))

    def ordered(self) -> Batch:
        """By start; elements that start together keep their order of arrival."""
        start = self.start
        if is_sorted(start):
            return self
        return self.take(np.argsort(start, kind="stable"))


def times(frame: pl.DataFrame, column: str) -> Times:
    """A time column as an array, without a copy where it is contiguous."""
    values: Times = frame.get_column(column).to_numpy()
    return values


def spread(values: pl.Series, where: Mask) -> pl.Series:
    """The values, one after the other, at the places that are marked; NULL at the others."""
    if where.all():
        return values
    marked = pl.Series(where)
    return values.gather(pl.select(pl.when(marked).then(marked.cum_sum() - 1)).to_series())


def is_sorted(values: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> bool:
    return len(values) < 2 or bool(np.all(values[1:] >= values[:-1]))


# A lazy plan, and threads that gather the columns of a frame, take longer than the work on a few thousand rows, and no
# less CPU time on many: `filter`, `select` and `with_columns` of 1,000 rows take 0.1 to 0.2 ms, these 0.01 to 0.03 ms.


def gather(frame: pl.DataFrame, rows: Index) -> pl.DataFrame:
    """The rows of a frame by position; a frame without columns has rows, too."""
    if not frame.width:
        return frame[rows]
    places = pl.Series(rows.astype(np.uint32))
    return pl.DataFrame([column[places] for column in frame.get_columns()])


def keep(frame: pl.DataFrame, mask: Mask) -> pl.DataFrame:
    """The rows of a frame that are marked."""
    if mask.all():
        return frame
    if not frame.width:
        return frame[np.flatnonzero(mask)]
    marked = pl.Series(mask)
    return pl.DataFrame([column.filter(marked) for column in frame.get_columns()])


def pick(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Some columns of a frame; without any there are no rows."""
    return pl.DataFrame([frame.get_column(name) for name in columns])


def without(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """A frame without some columns, which it may have or not."""
    names = [name for name in frame.columns if name not in columns]
    return pick(frame, names) if names else frame.drop(columns, strict=False)  # which has rows all the same


def with_series(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """A frame with further columns; one of the same name takes the place of that in the frame."""
    added = {column.name: column for column in columns}
    replaced = [added.pop(column.name, column) for column in frame.get_columns()]
    return pl.DataFrame([*replaced, *added.values()])


def stack(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One frame after the other, in contiguous columns; columns that one of them lacks are NULL there."""
    first, *others = frames
    if not others:
        return first
    if any(frame.columns != first.columns for frame in others) or not first.width:
        return pl.concat(frames, how="diagonal", rechunk=True)
    for frame in others:
        first = first.vstack(frame)
    return first.rechunk()
