"""What happens to the groups of an aggregation in a slice, and the instants at which something changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strandline.core.temporal import OPEN, Instant
from strandline.runtime.kernels.batch import Index, Mask, Times
from strandline.runtime.kernels.grouping import group_order
from strandline.runtime.kernels.sweep import lay_out, running_totals
from strandline.runtime.operators.ordered_aggregates import MemberEvents
from strandline.runtime.operators.user_aggregates import GroupUpdates


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants at which something changes, per group: one run per (group, instant), in order of time."""

    by_time: Index  # events in order of time
    codes: Index  # group of each event
    at: Times  # instant of each event
    run_of: Index  # run of each event in order of time
    code: Index  # group of each run
    time: Times  # instant of each run
    until: Times  # when the next run of the group begins, or the slice ends
    last: Index  # last run of each group

    def totals(self, changes: Index) -> Index:
        """The total after each run, of changes given per event."""
        return running_totals(self.by_time, self.codes, self.run_of, len(self.last), len(self.code), changes)


def timeline(codes: Index, time: Times, groups: int, until: Instant) -> Timeline:
    """The runs of events of some groups that happen before `until`."""
    by_time = np.argsort(time, kind="stable")  # merges parts, which are in order of time or nearly so
    return Timeline(by_time, codes, time, *lay_out(by_time, codes, time, groups, until))


def presence(line: Timeline, is_there: Mask, since: Times) -> tuple[Index, Times, Times]:
    """The intervals in which something is there, given for each run whether it is from then on: the first run, when it
    began, and its end, or OPEN."""
    order = group_order(line.code)  # runs of a group keep their order, which is that of time
    code, there = line.code[order], is_there[order]
    same_group = np.append(False, code[1:] == code[:-1])[: len(code)]
    was_there = np.append(False, there[:-1])[: len(code)] & same_group
    begins, ends = np.flatnonzero(there & ~was_there), np.flatnonzero(~there & was_there)
    end = np.full(len(begins), OPEN)
    if len(ends):
        # Within a group beginnings and ends alternate: the next end is its own, if it is one of the group.
        following = np.searchsorted(ends, begins)
        at = ends[np.minimum(following, len(ends) - 1)]
        is_own = (following < len(ends)) & (code[at] == code[begins])
        end = np.where(is_own, line.time[order[at]], OPEN)
    runs = order[begins]
    return runs, since[runs], end


@dataclass(frozen=True, slots=True)
class GroupEvents:
    """All changes of a slice as (group, time): carried totals, elements entering, elements leaving."""

    carried: tuple[Index, Times]
    entering: tuple[Index, Times]
    leaving: tuple[Index, Times]  # of elements from earlier slices
    over: Mask  # which entering elements also leave within the slice
    over_at: tuple[Index, Times]
    origin: tuple[Index, Times]  # no change, but the beginning of the result

    def timeline(self, groups: int, until: Instant) -> Timeline:
        parts = (self.carried, self.entering, self.leaving, self.over_at, self.origin)
        codes = np.concatenate([code for code, _ in parts])
        time = np.concatenate([at for _, at in parts])
        return timeline(codes, time, groups, until)

    @property
    def first_entering(self) -> int:
        return len(self.carried[0])

    def member_events(self, line: Timeline, held: Index) -> MemberEvents:
        """The same as member events; the elements are those that end, those that stay, those that arrive."""
        entering, leaving = len(self.entering[0]), len(self.leaving[0])
        carried, origin = (np.zeros(len(part[0]), np.int64) for part in (self.carried, self.origin))
        arrived = len(held) + np.arange(entering)
        elements = np.concatenate([carried, arrived, np.arange(leaving), arrived[self.over], origin])
        changes = self.changes(carried, np.ones(entering, np.int64), np.ones(leaving, np.int64))
        return MemberEvents(line.by_time, line.codes, line.run_of, elements, changes, held)

    def updates(
        self, line: Timeline, kept: Index, entering: Index, leaving: Index
    ) -> tuple[GroupUpdates, GroupUpdates]:
        """The same as value updates: of the groups `kept` among the carried ones, of the elements `entering` among
        those that arrive, of `leaving` among those that end. The pool has the same order."""
        runs = np.empty(len(line.by_time), np.int64)
        runs[line.by_time] = line.run_of
        sizes = np.cumsum([len(part[0]) for part in (self.carried, self.entering, self.leaving, self.over_at)])
        at_carried, at_entering, at_leaving, at_over, _ = np.split(runs, sizes)
        over = np.flatnonzero(self.over[entering])  # of those with a value
        over_runs = at_over[(np.cumsum(self.over) - 1)[entering[over]]]
        coming = np.concatenate([at_carried[kept], at_entering[entering]])
        going = np.concatenate([at_leaving[leaving], over_runs])
        first, ended = len(kept), len(kept) + len(entering)
        gone = np.concatenate([ended + np.arange(len(leaving)), first + over])
        return GroupUpdates(coming, np.arange(len(coming))), GroupUpdates(going, gone)

    def changes(self, carried: Index, entering: Index, leaving: Index) -> Index:
        """The change of a total by each event."""
        parts = [carried, entering, -leaving, -entering[self.over], np.zeros(len(self.origin[0]), np.int64)]
        return np.concatenate(parts)
