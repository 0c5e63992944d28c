"""Totals of aggregates: what a row adds to each of them, and the value of an aggregate by its totals.

All of them are whole numbers, so that they are exact, can be taken back, and do not depend on an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.core.types import Column
from strandline.functions.aggregates import DISPERSIONS
from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.logical.expressions import AggregateCall
from strandline.runtime.kernels.batch import Index
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.exact_sums import Limbs, from_limbs, means, to_limbs
from strandline.runtime.kernels.pair_totals import PAIR_TOTALS, pair_deltas, pair_values
from strandline.runtime.kernels.variance import mask_unsquarable, squarable_values, squares, variances

# Names of the running totals, kept per group between slices as columns of a frame.
ROWS = "@rows"  # how many elements are valid
VALUES = "@values:"  # + argument: how many of them have a value
LIMB = "@limb:"  # + argument + ":" + limb: the exact sum of the values
NUMBER = "@number:"  # + argument + ":" + limb: the same of the values as DOUBLEs, for variances
SQUARE = "@square:"  # + argument + ":" + limb: the exact sum of their squares
ODD = "@odd:"  # + argument: how many of them have no square
SUMS = (LIMB, NUMBER, SQUARE, ODD, *PAIR_TOTALS)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of some aggregates: all of them, those of sums, of variances, and of aggregates of pairs."""

    counted: list[str]
    summed: list[str]
    dispersed: list[str]
    paired: list[str]

    @staticmethod
    def of(calls: Iterable[AggregateCall]) -> Arguments:
        pairs = [(call.function, call.argument.id) for call in calls if call.argument is not None]
        return Arguments(
            sorted({name for _, name in pairs}),
            sorted({name for function, name in pairs if function in ("sum", "avg")}),
            sorted({name for function, name in pairs if function in DISPERSIONS}),
            sorted({name for function, name in pairs if function in PAIR_AGGREGATES}),
        )

    def deltas(self, frame: pl.DataFrame) -> dict[str, Index]:
        """What each row adds to each total; a number of values only where it is not that of the rows."""
        deltas: dict[str, Index] = {ROWS: np.ones(frame.height, np.int64)}
        for name in self.counted:
            if frame[name].null_count():
                deltas[VALUES + name] = mark_present(frame[name])

        def add_limbs(prefix: str, limbs: Limbs) -> None:
            deltas.update({prefix + limb: values for limb, values in limbs.items()})

        for name in self.summed:
            add_limbs(f"{LIMB}{name}:", to_limbs(frame[name]))
        for name in self.dispersed:
            values = squarable_values(frame[name])
            add_limbs(f"{NUMBER}{name}:", to_limbs(values))
            add_limbs(f"{SQUARE}{name}:", squares(values))
            deltas[ODD + name] = mask_unsquarable(frame[name])
        for name in self.paired:
            deltas[ODD + name], totals = pair_deltas(frame[name])
            for total, limbs in totals.items():
                add_limbs(f"{total}{name}:", limbs)
        return deltas


def is_summed(call: AggregateCall) -> bool:
    """Whether sums alone determine an aggregate, apart from a number of rows or values."""
    summed = call.function in ("sum", "avg") or call.function in DISPERSIONS or call.function in PAIR_AGGREGATES
    return call.user is None and summed


def is_total(call: AggregateCall) -> bool:
    """Whether totals alone determine an aggregate."""
    return is_summed(call) or (call.user is None and call.function == "count")


def total_column(
    column: Column, call: AggregateCall, totals: Mapping[str, Index], types: Mapping[str, pl.DataType]
) -> pl.Series:
    """The column of an aggregate that totals determine; `types` are those of the arguments."""
    if call.argument is None:
        return pl.Series(column.id, totals[ROWS])
    name = call.argument.id
    present = totals[VALUES + name]
    if call.function == "count":
        return pl.Series(column.id, present)
    dtype = polars_type(column.type)
    values = value_of_totals(call.function, name, totals, types[name], dtype)
    return where_present(values, call.function, present).cast(dtype).alias(column.id)


def value_of_totals(
    function: str, name: str, totals: Mapping[str, Index], source: pl.DataType, dtype: pl.DataType
) -> pl.Series:
    """The value of a sum, a mean, a variance or an aggregate of pairs by the totals of its argument; of none, any."""
    present = totals[VALUES + name]
    if function == "sum":
        return from_limbs(_limbs(totals, LIMB, name), dtype, len(present))
    if function == "avg":
        return pl.Series(means(_limbs(totals, LIMB, name), present, source, len(present)))
    if function in PAIR_AGGREGATES:
        limbs = {total: _limbs(totals, total, name) for total in PAIR_TOTALS}
        return pair_values(function, limbs, present, totals[ODD + name])
    sample = function.endswith("samp")
    values = variances(_limbs(totals, NUMBER, name), _limbs(totals, SQUARE, name), present, sample)
    values = np.where(totals[ODD + name] > 0, np.nan, values)
    return pl.Series(np.sqrt(values) if function.startswith("stddev") else values)


def where_present(values: pl.Series, function: str, present: Index) -> pl.Series:
    """The values of an aggregate, NULL where it has too few values."""
    none = present < (2 if function in DISPERSIONS and function.endswith("samp") else 1)
    return pl.select(pl.when(pl.Series(~none)).then(values)).to_series() if none.any() else values


def _limbs(totals: Mapping[str, Index], total: str, name: str) -> Limbs:
    prefix = f"{total}{name}:"
    return {key[len(prefix) :]: values for key, values in totals.items() if key.startswith(prefix)}


def mark_present(column: pl.Series) -> Index:
    """1 where a column has a value, 0 where it is NULL."""
    values: Index = column.is_not_null().to_numpy().astype(np.int64)
    return values
