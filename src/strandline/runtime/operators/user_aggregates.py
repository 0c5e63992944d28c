"""Invertible user-defined aggregates: the state of a group is carried from slice to slice.

The state of a group after a run is all arrivals up to then without all departures. Both are merged in order of time, so
a slice costs as much as it has events, however large the groups are. Nothing is left over when a group runs empty: its
next value begins a new epoch, and what rounding has done to the state before is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.logical.udf import States, UserAggregate
from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.user_aggregates import running

STATE: Final = "@state:"  # + number of the column, none if the state is that column alone + ":" + aggregate


@dataclass(frozen=True, slots=True)
class GroupUpdates:
    """Values that come to their groups, or go: the run of each, and where its state is in the pool."""

    run: Index
    place: Index


@dataclass(frozen=True, slots=True)
class GroupEpochs:
    """The runs of a group between two times that it is empty, one epoch after the other."""

    rank: Index  # of each run: group by group, in order of time
    number: Index  # the epoch of each run

    @staticmethod
    def of(groups: Index, counts: Index) -> GroupEpochs:
        """Built from the group of each run, in order of time, and the number of values of the group after it."""
        order = np.argsort(groups, kind="stable")
        begins = np.ones(len(order), bool)
        begins[1:] = (groups[order][1:] != groups[order][:-1]) | (counts[order][:-1] == 0)
        rank, number = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        number[order] = np.cumsum(begins)
        return GroupEpochs(rank, number)


def run_totals(
    user: UserAggregate, pool: States, coming: GroupUpdates, going: GroupUpdates, epochs: GroupEpochs, runs: Index
) -> States:
    """The state of its group after each of some runs that leave the group with values."""
    came, last = _up_to(user, pool, coming, epochs, runs)
    assert came is not None and (last >= 0).all(), "a group with values has a state"
    totals = came.take(last)
    gone, last = _up_to(user, pool, going, epochs, runs)
    lost = np.flatnonzero(last >= 0)
    if gone is None or not len(lost):
        return totals
    remaining = user.without(totals.take(lost), gone.take(last[lost]))
    where = np.arange(len(runs))
    where[lost] = len(runs) + np.arange(len(lost))
    return totals.followed_by(remaining).take(where)


def _up_to(
    user: UserAggregate, pool: States, updates: GroupUpdates, epochs: GroupEpochs, runs: Index
) -> tuple[States | None, Index]:
    """Updates since the group epoch began, after each update; and the last update of each run, -1 without one."""
    if not len(updates.run):
        return None, np.full(len(runs), -1)
    order = np.argsort(epochs.rank[updates.run], kind="stable")
    rank, epoch = epochs.rank[updates.run][order], epochs.number[updates.run][order]
    begins = np.flatnonzero(np.concatenate([[True], epoch[1:] != epoch[:-1]]))
    merged = running(pool.take(updates.place[order]), np.diff(np.append(begins, len(epoch))), user.merged)
    last = np.searchsorted(rank, epochs.rank[runs], side="right") - 1
    return merged, np.where((last >= 0) & (epoch[last] == epochs.number[runs]), last, -1)


def pooled(user: UserAggregate, carried: States | None, values: pl.Series) -> States | None:
    """The states that are carried, and those of single values after them."""
    if not len(values):
        return carried
    fresh = user.initialized(values.to_arrow())
    if carried is None:
        return fresh
    fresh = user.fitted(fresh, carried)
    return user.fitted(carried, fresh).followed_by(fresh)


def stored(states: States, name: str, places: Index, validity: Mask) -> list[pl.Series]:
    """The states at some places as columns of the operator's state; NULL where nothing is known."""
    chosen = states.take(pa.array(places, mask=~validity))
    numbers = [""] if states.is_single else map(str, range(len(chosen.columns)))
    return [pl.Series(f"{STATE}{n}:{name}", column) for n, column in zip(numbers, chosen.columns, strict=True)]


def restored(user: UserAggregate, frame: pl.DataFrame, name: str) -> States | None:
    """The opposite of `stored`."""
    mine = [column for column in frame.columns if column.startswith(STATE) and column.split(":", 2)[2] == name]
    if not mine:
        return None
    columns = tuple(frame.get_column(column).to_arrow() for column in mine)
    return user.kept(States(columns, mine == [f"{STATE}:{name}"]))
