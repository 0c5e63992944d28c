"""Values of window functions over rows that are sorted by partition and order, some of them from earlier slices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from strandline.logical.expressions import AggregateCall, WindowCall
from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.frames import Partitions, frame_maxima, running_partition_maxima
from strandline.runtime.kernels.ranking import RankOrder
from strandline.runtime.operators.totals import ROWS, VALUES, Arguments, is_summed, value_of_totals, where_present

# Columns of a row in state.
INDEX = "@index"  # 1-based number of the row in its partition
SUM = "@sum:"  # + total: its sum over the rows of the partition up to this one
PEERS = "@peers"  # as a total: 1 for the first of some peers


def extreme_column(side: tuple[str, str]) -> str:
    """The column with the MIN or MAX of an argument over the rows of the partition up to a row."""
    return f"@extreme:{side[0]}:{side[1]}"


@dataclass(frozen=True)
class PartitionedRows:
    """The rows of a slice and those in state that they look at, by partition and in their order.

    `frame` has first the rows in state, `held` of them; place p of the order is its row order[p]. Functions of frames
    that begin with the partition read sums up to a row (`summed`), others the rows of their frames (`in_frames`).
    """

    frame: pl.DataFrame
    order: Index
    lines: Partitions
    held: int
    summed: Arguments
    in_frames: Arguments
    numbers_peers: bool

    @cached_property
    def is_new(self) -> Mask:
        """Mask of the rows of this slice; in a partition they come after those in state."""
        return self.order >= self.held

    def values(self, call: WindowCall, rows: Index) -> pl.Series:
        """The values of a window function for the rows at some places, in order."""
        match call.function:
            case "row_number":
                return pl.Series(self.index[rows])
            case "rank":
                return pl.Series(self.index[self.lines.peers[rows]])
            case "dense_rank":
                return pl.Series(self.sums[PEERS][rows])
        if call.call is None:
            return self._read(call, rows)
        low, high = self.lines.bounds(call.frame, rows)
        return self._aggregate(call.call, call.frame.start is None, rows, low, high)

    # ---- numbers and sums up to a row --------------------------------------------------------------------------------

    @cached_property
    def index(self) -> Index:
        """The number of each row in its partition."""
        stored = self._stored(INDEX)
        return self._continued(np.ones(len(self.order), np.int64), stored)

    @cached_property
    def sums(self) -> dict[str, Index]:
        """Totals over the rows of a partition up to each row."""
        deltas: dict[str, Index] = {}
        if self.summed.counted:
            arrived = self.frame.slice(self.held)
            totals = self.summed.deltas(arrived)
            rows = totals.pop(ROWS)
            deltas = {**{VALUES + name: rows for name in self.summed.counted}, **totals}
        names = {*deltas, *(name.removeprefix(SUM) for name in self.frame.columns if name.startswith(SUM))}
        sums: dict[str, Index] = {}
        for name in sorted(names - {PEERS}):
            change = np.zeros(len(self.order), np.int64)
            if name in deltas:
                change[self.is_new] = deltas[name][self.order[self.is_new] - self.held]
            sums[name] = self._continued(change, self._stored(SUM + name))
        if self.numbers_peers:
            sums[PEERS] = self._continued(self.lines.begins_peers.astype(np.int64), self._stored(SUM + PEERS))
        return sums

    def _stored(self, name: str) -> Index:
        """A column of the rows in state, 0 for new ones and where it is missing."""
        values = np.zeros(len(self.order), np.int64)
        if self.held and name in self.frame.columns:
            column: Index = self.frame.get_column(name)[: self.held].fill_null(0).to_numpy()
            values[~self.is_new] = column[self.order[~self.is_new]]
        return values

    def _continued(self, change: Index, stored: Index) -> Index:
        """Running sums of a partition: those in state, and from the last of them on with the changes of new rows."""
        change = np.where(self.is_new, change, 0) if self.held else change
        running = np.cumsum(change)
        first = self.lines.first
        running = running - running[first] + change[first]
        if not self.held:
            return running
        return np.where(self.is_new, running + stored[self._last_held] * (self._held_rows > 0), stored)

    @cached_property
    def _held_rows(self) -> Index:
        """How many rows in state the partition of each row has."""
        counts = np.add.reduceat((~self.is_new).astype(np.int64), self.lines.begins)
        return np.repeat(counts, self.lines.sizes)

    @cached_property
    def _last_held(self) -> Index:
        return self.lines.first + np.maximum(self._held_rows - 1, 0)

    # ---- aggregates --------------------------------------------------------------------------------------------------

    def _aggregate(self, call: AggregateCall, from_first: bool, rows: Index, low: Index, high: Index) -> pl.Series:
        totals = self._totals_up_to(rows, high) if from_first else self._totals_between(low, high)
        if call.argument is None:
            return pl.Series(totals[ROWS])
        name = call.argument.id
        present = totals[VALUES + name]
        if call.function == "count":
            return pl.Series(present)
        if is_summed(call):
            source = polars_type(call.argument.type)
            values = value_of_totals(call.function, name, totals, source, polars_type(call.type))
            return where_present(values, call.function, present)
        side = (call.function, name)
        if not from_first:
            column, codes, ranking = self._ranks(side, self.frame.get_column(name))
            return self._decoded(
                side, frame_maxima(low, high, column.is_not_null().to_numpy(), codes), present, ranking
            )
        _, ranking, running = self._running_maxima(side)
        at = np.maximum(high - 1, 0)
        return self._decoded(side, running[at], present, ranking)

    def _totals_up_to(self, rows: Index, high: Index) -> dict[str, Index]:
        """Totals over the rows of a partition before some places."""
        some = high > self.lines.first[rows]
        at = np.where(some, high - 1, 0)
        totals = {name: np.where(some, values[at], 0) for name, values in self.sums.items()}
        return {**totals, ROWS: np.where(some, self.index[at], 0)}

    def _totals_between(self, low: Index, high: Index) -> dict[str, Index]:
        """Totals over the rows between some places."""
        totals = {name: sums[high] - sums[low] for name, sums in self._prefix_sums.items()}
        for name in self.in_frames.counted:
            totals.setdefault(VALUES + name, totals[ROWS])
        return totals

    @cached_property
    def _prefix_sums(self) -> dict[str, Index]:
        deltas = self.in_frames.deltas(self.frame)
        zero = np.zeros(1, np.int64)
        return {name: np.concatenate([zero, np.cumsum(delta[self.order])]) for name, delta in deltas.items()}

    def running_extremes(self, side: tuple[str, str]) -> pl.Series:
        """The MIN or MAX of an argument over the rows of the partition up to each row."""
        _, ranking, running = self._running_maxima(side)
        return self._decoded(side, running, self.sums[VALUES + side[1]], ranking)

    def _running_maxima(self, side: tuple[str, str]) -> tuple[pl.Series, RankOrder, Index]:
        values = self.frame.get_column(side[1])
        if self.held:  # of a row in state that of the rows up to it
            values = pl.concat([self.frame.get_column(extreme_column(side))[: self.held], values[self.held :]])
        column, codes, ranking = self._ranks(side, values)
        return column, ranking, running_partition_maxima(self.lines.first, column.is_not_null().to_numpy(), codes)

    def _ranks(self, side: tuple[str, str], values: pl.Series) -> tuple[pl.Series, Index, RankOrder]:
        """Values in order, and integers of which the largest is the MIN or MAX."""
        column = values[pl.Series(self.order.astype(np.uint32))]
        ranking = RankOrder(column)
        # ~x reverses the order and cannot overflow
        return column, np.ascontiguousarray(ranking.codes if side[0] == "max" else ~ranking.codes), ranking

    def _decoded(self, side: tuple[str, str], maxima: Index, present: Index, ranking: RankOrder) -> pl.Series:
        return ranking.decode(maxima if side[0] == "max" else ~maxima, present > 0)

    # ---- values of other rows ----------------------------------------------------------------------------------------

    def _read(self, call: WindowCall, rows: Index) -> pl.Series:
        """The value of another row, or the default."""
        assert call.argument is not None
        values = self.frame.get_column(call.argument.id)
        places, found = self._places(call, rows)
        chosen = pl.Series(self.order[np.where(found, places, 0)].astype(np.uint32))
        read = values[chosen]
        if found.all():
            return read
        is_found = pl.Series(found)
        if call.default is None:
            return pl.select(pl.when(is_found).then(read)).to_series()
        otherwise = self.frame.get_column(call.default.id)[pl.Series(self.order[rows].astype(np.uint32))]
        return pl.select(pl.when(is_found).then(read).otherwise(otherwise)).to_series()

    def _places(self, call: WindowCall, rows: Index) -> tuple[Index, Mask]:
        """The place of the row that is read for each row, and whether there is one."""
        first, last = self.lines.first[rows], self.lines.last[rows]
        if call.ignores_nulls:
            return self._places_with_value(call, rows)
        match call.function:
            case "lag":
                return rows - call.offset, rows - call.offset >= first
            case "lead":
                return rows + call.offset, rows + call.offset < last
        low, high = self.lines.bounds(call.frame, rows)
        if call.function == "last_value":
            return high - 1, high > low
        return low + call.offset - 1, low + call.offset - 1 < high

    def _places_with_value(self, call: WindowCall, rows: Index) -> tuple[Index, Mask]:
        """The same among the rows with a value."""
        with_value, before = self._with_value(call)
        if call.function == "lag" and call.offset == 0:
            return rows, np.ones(len(rows), np.bool_)
        if call.function == "lag":
            low, high = self.lines.first[rows], rows
            number = before[rows] - call.offset
        else:
            low, high = self.lines.bounds(call.frame, rows)
            number = before[high] - 1 if call.function == "last_value" else before[low] + call.offset - 1
        found = (number >= 0) & (number < len(with_value))
        places = with_value[np.where(found, number, 0)] if len(with_value) else np.zeros(len(rows), np.int64)
        return places, found & (places >= low) & (places < high)

    def _with_value(self, call: WindowCall) -> tuple[Index, Index]:
        """The places of the rows with a value, and how many of them lie before each place."""
        assert call.argument is not None
        has_value = self.frame.get_column(call.argument.id).is_not_null().to_numpy()[self.order]
        return np.flatnonzero(has_value), np.concatenate([np.zeros(1, np.int64), np.cumsum(has_value)])

    def read_later(self, call: WindowCall, waits: int) -> Mask:
        """Mask of the rows with a value that a function that ignores others may read for later rows."""
        with_value, before = self._with_value(call)
        kept = np.zeros(len(self.order), np.bool_)
        first, last = self.lines.first[with_value], self.lines.last[with_value]
        if call.function in ("lag", "last_value"):
            back = call.offset if call.function == "lag" else 1 + waits + max(-(call.frame.end or 0), 0)
            kept[with_value] = before[last] - before[with_value] <= back
        elif call.frame.start is None:
            kept[with_value] = before[with_value + 1] - before[first] <= call.offset
        return kept
