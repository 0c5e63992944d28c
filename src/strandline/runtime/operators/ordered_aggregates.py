"""Ordered-set aggregates: percentiles, FIRST, LAST, MODE, STRING_AGG, ARRAY_AGG and user-defined ones.

They are not invertible element by element, as a sum is. So a slice reads all elements that are valid in it, those of
earlier slices too, in one order, and sweeps through its events with the members of each group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.types import arrow_type
from strandline.logical.expressions import AggregateCall, SortKey
from strandline.logical.udf import UserAggregate
from strandline.runtime.kernels.batch import Index, Mask, spread
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.lists import in_lists, offsets_of
from strandline.runtime.kernels.ordered_members import list_members, running_places
from strandline.runtime.kernels.ranking import order_ranks
from strandline.runtime.kernels.user_aggregates import folded

_MOST_LISTED: Final = 2**23  # members in memory at a time


@dataclass(frozen=True, slots=True)
class MemberEvents:
    """Member events of a slice: insertions and deletions, and the run of each (see `Timeline`)."""

    by_time: Index
    codes: Index
    run_of: Index
    element_of: Index
    change: Index
    held: Index  # the groups of the elements that are there from the start: 0, 1, …

    @property
    def arrays(self) -> tuple[Index, Index, Index, Index, Index, Index]:
        return self.by_time, self.codes, self.run_of, self.held, self.element_of, self.change


@dataclass(slots=True)
class GroupMembers:
    """The elements of a slice and their groups."""

    member_events: MemberEvents
    elements: pl.DataFrame
    groups: Index  # of each element
    group_count: int
    _places: dict[tuple[SortKey, ...], tuple[Index, Index, Index]] = field(default_factory=dict)

    def column(self, call: AggregateCall, counts: Index, exists: Mask) -> pl.Series:
        """The aggregate after each existing run; `counts` is the number of values of its group then."""
        nonempty = exists & (counts > 0)
        return spread(self._of_nonempty(call, counts, nonempty), nonempty[exists])

    def _of_nonempty(self, call: AggregateCall, counts: Index, nonempty: Mask) -> pl.Series:
        """The aggregate after each nonempty run."""
        assert call.argument is not None
        values = self.elements.get_column(call.argument.id)
        if call.user is not None:
            return self._merged(call.user, call, counts, nonempty, values)
        match call.function:
            case "percentile_cont":
                return self._between(call, counts, nonempty, values)
            case "mode":
                return self._most_frequent(call, counts, nonempty, values)
            case "string_agg":
                assert isinstance(call.parameter, str)
                lists = self._lists(call, counts, nonempty, values)
                return pl.concat([values.head(0), *(part.list.join(call.parameter) for part in lists)])
            case "array_agg":
                return pl.concat([values.head(0), *self._lists(call, counts, nonempty, values.list.first())])
            case "first":
                position = np.zeros_like(counts)
            case "last":
                position = counts - 1
            case _:
                assert isinstance(call.parameter, float)
                position = np.maximum(np.ceil(call.parameter * counts).astype(np.int64) - 1, 0)
        position = np.where(nonempty, position, -1)
        members, _ = self._find(call, position, position)
        return values[members[nonempty]]

    def _between(self, call: AggregateCall, counts: Index, nonempty: Mask, values: pl.Series) -> pl.Series:
        assert isinstance(call.parameter, float)
        position = call.parameter * (counts - 1)
        lower, upper = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
        low, high = self._find(call, np.where(nonempty, lower, -1), np.where(nonempty, upper, -1))
        numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        below, above = numbers[low[nonempty]], numbers[high[nonempty]]
        with np.errstate(invalid="ignore", over="ignore"):
            fraction = (position - lower)[nonempty]
            return pl.Series(np.where(below == above, below, below + fraction * (above - below)))

    def _find(self, call: AggregateCall, lower: Index, upper: Index) -> tuple[Index, Index]:
        """The elements at two positions in their groups."""
        order, first, place_of = self._ordered(call)
        places = running_places(*self.member_events.arrays, first, place_of, lower, upper)
        if not len(order):
            return places
        return order[places[0]], order[places[1]]

    def _lists(self, call: AggregateCall, counts: Index, nonempty: Mask, values: pl.Series) -> Iterator[pl.Series]:
        """The values of the members after each nonempty run, as lists, a part of the runs at a time."""
        order, _, _ = self._ordered(call)
        for listed, sizes in self._listed(call, counts, nonempty):
            yield in_lists(values[order[listed]], offsets_of(sizes))

    def _listed(self, call: AggregateCall, counts: Index, nonempty: Mask) -> Iterator[tuple[Index, Index]]:
        """Places of the members after each nonempty run, and their number; a part of the runs at a time."""
        _, first, place_of = self._ordered(call)
        sizes = np.where(nonempty, counts, 0)
        part_of = np.cumsum(sizes) // _MOST_LISTED
        for part in range(int(part_of[-1]) + 1 if len(part_of) else 0):
            mine = part_of == part
            begin_of = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(mine, sizes, 0))])
            listed = list_members(*self.member_events.arrays, first, place_of, begin_of)
            yield listed, sizes[nonempty & mine]

    def _merged(
        self, user: UserAggregate, call: AggregateCall, counts: Index, nonempty: Mask, values: pl.Series
    ) -> pl.Series:
        """A user-defined aggregate after each nonempty run: the states of all members, merged in their order."""
        parts = [pa.array([], arrow_type(user.returns))]
        if nonempty.any():
            order, _, _ = self._ordered(call)
            states = user.initialized(values[order].to_arrow())
            for listed, sizes in self._listed(call, counts, nonempty):
                if len(sizes):
                    parts.append(user.evaluated(folded(states.take(listed), sizes, user.merged)))
        return pl.Series(pa.concat_arrays(parts), dtype=polars_type(user.returns))

    def _most_frequent(self, call: AggregateCall, counts: Index, nonempty: Mask, values: pl.Series) -> pl.Series:
        parts = [values.head(0)]
        for lists in self._lists(call, counts, nonempty, values):
            frame = lists.alias("value").to_frame().with_row_index("run").explode("value")
            # Equal values are neighbours, so the first of the most frequent ones is the first in the order.
            frame = frame.group_by("run", "value", maintain_order=True).len()
            frame = frame.filter(pl.col("len") == pl.col("len").max().over("run"))
            parts.append(frame.group_by("run", maintain_order=True).first().get_column("value"))
        return pl.concat(parts)

    def _ordered(self, call: AggregateCall) -> tuple[Index, Index, Index]:
        """All elements with a value in order, group by group; where each group begins; the place of each element."""
        assert call.argument is not None
        keys = (*call.order, SortKey(call.argument))
        if keys not in self._places:
            ranks = order_ranks(self.elements, keys)
            present = np.flatnonzero(self.elements.get_column(call.argument.id).is_not_null().to_numpy())
            ranks = [rank[present] for rank in (self.groups, *ranks) if _differ(rank)]
            order = present[np.lexsort(ranks[::-1])] if ranks else present
            first = np.searchsorted(self.groups[order], np.arange(self.group_count + 1)).astype(np.int64)
            place_of = np.full(self.elements.height, -1)
            place_of[order] = np.arange(len(order))
            self._places[keys] = order, first, place_of
        return self._places[keys]


def _differ(ranks: Index) -> bool:
    """True if there is anything to sort by: without NULLs, all values are equally present."""
    return bool((ranks != ranks[:1]).any())
