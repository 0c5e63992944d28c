"""Grouping with aggregation and scalar aggregation over interval streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Column, Schema
from strandline.functions.aggregates import needs_members
from strandline.logical.expressions import AggregateCall
from strandline.logical.udf import States, UserAggregate
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.kernels.adjacent import equals_row_before, join_neighbours
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Mask,
    Times,
    frame_schema,
    gather,
    keep,
    pick,
    spread,
    stack,
    times,
    with_series,
    without,
)
from strandline.runtime.kernels.changes import begun_and_ended, has_ended
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.kernels.ranking import RankOrder
from strandline.runtime.kernels.sweep import running_maxima
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.group_events import GroupEvents, Timeline
from strandline.runtime.operators.live_elements import VALUE, LiveElements, with_ended
from strandline.runtime.operators.ordered_aggregates import GroupMembers
from strandline.runtime.operators.totals import (
    ROWS,
    SUMS,
    VALUES,
    Arguments,
    is_total,
    mark_present,
    total_column,
    where_present,
)
from strandline.runtime.operators.user_aggregates import GroupEpochs, pooled, restored, run_totals, stored
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import HeldRows, SortedLog, SummedLog, add_up

SINCE = "@since"  # when the group changed last, where results are sent as changes


class IncrementalAggregateOperator(Operator):
    """Grouped aggregation: one element per group with the aggregates over its valid elements.

    Law    snapshot(out, t) = γ(snapshot(in, t)); without keys one row for every t since the first element of any input
    State  per group the totals at the watermark, with the states of invertible user-defined aggregates; the
           elements that have not ended, in order of their end, for taking them out again; of those the few that can
           still be a MIN or MAX. Ordered-set aggregates, as percentiles, read all of them in every slice
    Emits  for each group the interval between two changes, and the one up to the watermark; in the form of changes, the
           last one without its end. Then only groups that change are looked at, and their state is found by key.
           By panes, the state has the sums of the elements of a group that end together instead of these elements.
           It `coalesces` if neighbouring intervals of a group with equal values are sent as one
    Takes  either form. As changes, an element comes again when it ends: none is kept for that, except for those that
           a MIN, a MAX or an ordered-set aggregate reads (`LiveElements`)

        in       a......         COUNT
        1        [====)          1  [=)   [==)
        2          [=====)       2    [===)
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        aggregates: tuple[tuple[Column, AggregateCall], ...],
        source: Schema,
        form: StreamForm = "intervals",
        panes: bool = False,
        coalesces: bool = False,
        input_form: StreamForm = "intervals",
    ) -> None:
        self.keys, self.coalesces = list(keys), coalesces
        self.aggregates = aggregates
        types = {column.id: column.type for column in source}
        read = [column.id for _, call in aggregates for column in call.columns]
        self.output = (*(c for key in keys for c in source if c.id == key), *(column for column, _ in aggregates))
        self.arguments = Arguments.of(call for _, call in aggregates)
        self.needs_members = any(needs_members(call) for _, call in aggregates)
        self.stored = {name: polars_type(types[name]) for name in dict.fromkeys([*keys, *sorted(read)])}
        self.watermark: Instant = BEFORE_ALL
        self.valid = SummedLog(UNTIL, keys) if panes else SortedLog(UNTIL)
        key_types = {key: self.stored[key] for key in keys}
        self.totals = self._log(key_types, form)
        extremes = {(c.function, c.argument.id) for _, c in aggregates if c.argument and c.function in ("min", "max")}
        self.sides = sorted(extremes)
        interval = {FROM: pl.Int64(), UNTIL: pl.Int64()}
        self.candidates = {
            (function, name): self._log({**key_types, VALUE: self.stored[name], **interval}, form)
            for function, name in self.sides
        }
        candidates = {f"{function}:{name}": held for (function, name), held in self.candidates.items()}
        self.logs = {"valid": self.valid, "totals": self.totals, **candidates}
        self.takes_changes, self.live = input_form == "changes", None
        if self.takes_changes and (self.needs_members or self.sides):
            self.live = LiveElements(keys, self.stored, self.sides, self.needs_members)
            self.candidates = {}
            self.logs = {"valid": self.valid, "totals": self.totals, **self.live.logs}

    def _log(self, columns: dict[str, pl.DataType], form: StreamForm) -> HeldRows | KeyedLog:
        return HeldRows(columns) if form == "intervals" else KeyedLog(self.keys, columns)

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        if watermark.time <= self.watermark:
            assert self.takes_changes or not len(inputs[0]), "a slice has no elements before the preceding watermark"
            if not watermark.announces or self.watermark == BEFORE_ALL:
                return Batch.empty(self.output)
        watermark = replace(watermark, time=max(watermark.time, self.watermark))
        before, self.watermark = self.watermark, watermark.time
        arrived, ended = self._arrived_and_ended(pick(inputs[0].frame, [*self.stored, FROM, UNTIL]), before)
        return self._advance(arrived, ended, before, watermark)

    def _advance(self, arrived: pl.DataFrame, ended: pl.DataFrame, before: Instant, watermark: Watermark) -> Batch:
        """The results of a slice, by the elements that begin and those that end in it."""
        probes = self._probes()
        changing = [arrived, ended] if probes is None else [arrived, ended, probes]
        changed = pl.concat([part.select(self.keys) for part in changing])
        is_idle = not any(part.height for part in changing) and not self._begins(before, watermark)
        reads_all = watermark.announces or watermark.time == FOREVER or self._concerns_all(changed, is_idle)
        # All logs alike: they must have the same groups.
        carried, *candidates = self._look_up(changed, reads_all=reads_all)
        held = dict(zip(self.candidates, candidates, strict=True))
        if self.live is None:
            valid = self.valid.rows() if self.needs_members else []
            staying = pl.concat([ended.head(0).drop(UNTIL), *(rows.select([*self.stored]) for rows in valid)])
        else:
            lasting = keep(arrived, ~has_ended(times(arrived, UNTIL), watermark.time))
            best, staying = self.live.step(ended, lasting, watermark.time, reads_all=reads_all)
            held = {side: with_ended(values, ended, side[1]) for side, values in best.items()}
        return self._sweep(carried, held, arrived, ended, staying, probes, before, watermark)

    def _begins(self, before: Instant, watermark: Watermark) -> bool:
        """True if from a time in the slice on the single group of a scalar aggregation exists also without rows."""
        return not self.keys and before <= watermark.origin < watermark.time

    def _nothing(self) -> Batch:
        """The results of a slice in which nothing happens."""
        return Batch.empty(self.output)

    def _probes(self) -> pl.DataFrame | None:
        """Groups and instants at which nothing changes, but a result is asked for."""
        return None

    def _arrived_and_ended(self, frame: pl.DataFrame, before: Instant) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The elements that begin in the slice, and those of earlier ones that end in it, or their sums. As changes,
        these come with the slice, except for those whose end was known."""
        if not self.takes_changes:
            leaving = self.valid.take_before(self.watermark)
            return frame, stack(leaving) if leaving else without(frame.head(0), (FROM,))
        arrived, ended = begun_and_ended(frame, before)
        ended = without(ended, (FROM,))
        is_over = times(ended, UNTIL) < self.watermark
        leaving = [keep(ended, is_over), *self.valid.take_before(self.watermark)]
        self.valid.append(keep(ended, ~is_over))
        return arrived, stack(leaving)

    def _concerns_all(self, changed: pl.DataFrame, is_idle: bool) -> bool:
        """True if a slice that changes groups with these keys looks at all groups."""
        if isinstance(self.totals, HeldRows):
            return True
        return not is_idle and (not self.keys or self.totals.has_mostly(changed))

    def _look_up(self, changed: pl.DataFrame, *, reads_all: bool) -> list[pl.DataFrame]:
        """Totals and candidates of the groups that the slice concerns: those with these keys, or all."""
        logs = [self.totals, *self.candidates.values()]
        if not isinstance(self.totals, KeyedLog):
            return [log.frame for log in logs if isinstance(log, HeldRows)]
        keyed = [log for log in logs if isinstance(log, KeyedLog)]
        totals, *candidates = [log.all() if reads_all else log.find(changed) for log in keyed]
        counts = [name for name in totals.columns if name.startswith((VALUES, *SUMS))]
        if any(totals.get_column(name).null_count() for name in counts):  # other groups have had larger sums
            totals = totals.with_columns(pl.col(counts).fill_null(0))
        return [totals, *candidates]

    def _sweep(
        self,
        carried: pl.DataFrame,
        held: dict[tuple[str, str], pl.DataFrame],
        arrived: pl.DataFrame,
        ended: pl.DataFrame,
        staying: pl.DataFrame,
        probes: pl.DataFrame | None,
        before: Instant,
        watermark: Watermark,
    ) -> Batch:
        asked = carried.head(0) if probes is None else probes
        parts = [carried, ended, arrived, asked, staying, *held.values()]
        sizes = np.cumsum([part.height for part in parts])
        groups = carried.select(self.keys)
        representative = None
        codes = np.zeros(int(sizes[-1]), np.int64)
        if self.keys:
            groups = stack([pick(part, self.keys) for part in parts])
            codes, representative = group_codes(groups, self.keys)
        at_carried, at_ended, at_arrived, at_asked, at_staying, *at_held = np.split(codes, sizes[:-1])
        # Codes go by first occurrence: groups that only stay come after those that the slice concerns.
        count = int(codes[: sizes[3]].max(initial=-1)) + 1
        if representative is not None and len(representative) > count:
            representative = representative[:count]
            staying, at_staying = keep(staying, at_staying < count), at_staying[at_staying < count]
        ends = times(arrived, UNTIL)
        over = has_ended(ends, watermark.time)

        keyed = isinstance(self.totals, KeyedLog)
        begins = probes is None and self._begins(before, watermark)
        origin = np.full(int(begins), watermark.origin)  # of the single group of a scalar aggregation
        events = GroupEvents(
            # Groups that were sent as changes began earlier, each at its time; here it is enough that they come first.
            carried=(at_carried, np.full(carried.height, max(before - keyed, BEFORE_ALL))),
            entering=(at_arrived, times(arrived, FROM)),
            leaving=(at_ended, times(ended, UNTIL)),
            over=over,
            over_at=(at_arrived[over], ends[over]),
            origin=(np.zeros(len(origin), np.int64), origin) if probes is None else (at_asked, times(probes, FROM)),
        )
        line = events.timeline(1 if representative is None else len(representative), watermark.time)
        if not len(line.code):
            return self._nothing()

        entering = self._deltas(arrived)
        keeps_all = self.needs_members and not self.takes_changes
        self._keep_valid(arrived, entering, ~over & ((ends < OPEN) | keeps_all))

        def accumulate(start: Index, came: Index, went: Index) -> Index:
            return line.totals(events.changes(start, came, went))

        sums = self._totals(accumulate, carried, entering, self._deltas(ended))
        exists = self._shown_runs(line, events, sums, watermark)
        here = Slice(line, events, carried, arrived, ended, sums, exists)
        extremes = {
            side: self._extremes(side, held[side], at, here) for side, at in zip(self.sides, at_held, strict=True)
        }
        members = None
        if self.needs_members:
            elements = stack([ended.drop(UNTIL), staying, arrived.drop(FROM, UNTIL)])
            groups_of = np.concatenate([at_ended, at_staying, at_arrived])
            member_events = events.member_events(line, groups_of[: len(groups_of) - arrived.height])
            members = GroupMembers(member_events, elements, groups_of, len(line.last))
        folds = {
            column.id: self._fold(column.id, call.user, call.argument.id, here)
            for column, call in self.aggregates
            if call.user is not None and call.argument is not None and not needs_members(call)
        }
        columns = self._columns(here, extremes, members, folds)
        return self._emit(here, columns, folds, groups, representative, at_carried, before, watermark)

    def _shown_runs(self, line: Timeline, events: GroupEvents, sums: dict[str, Index], watermark: Watermark) -> Mask:
        """Mask of the runs that emit results."""
        exists = line.time < line.until
        exists &= (sums[ROWS] > 0) | (not self.keys and line.time >= watermark.origin)
        return exists

    def _emit(
        self,
        here: Slice,
        columns: list[pl.Series],
        folds: dict[str, Fold],
        groups: pl.DataFrame,
        representative: Index | None,
        at_carried: Index,
        before: Instant,
        watermark: Watermark,
    ) -> Batch:
        """The results as elements; the totals at the end of the slice go to the state."""
        line, carried, exists = here.line, here.carried, here.exists
        keyed = isinstance(self.totals, KeyedLog)
        since, until = line.time, line.until
        if keyed and carried.height:
            # Runs are in order of time: first those of the groups that were carried over, which began earlier.
            first_runs = line.code[: int(np.searchsorted(line.time, before))]
            began = np.empty(len(line.last), np.int64)
            began[at_carried] = times(carried, SINCE)
            since = since.copy()
            since[: len(first_runs)] = began[first_runs]
        stays_open = keyed and watermark.time < FOREVER
        if stays_open:
            until = until.copy()
            until[line.last] = OPEN
        shown = np.flatnonzero(exists)
        until = until[shown]
        if self.coalesces:
            since, code, time = since.copy(), line.code[shown], line.time[shown]
            first, since[shown], until = _join_equal(code, time, since[shown], until, columns)
            shown, columns = shown[first], [column.gather(first) for column in columns]
        self._carry(here, since, folds, groups, representative)
        start = since[shown]
        if representative is not None:
            payload = gather(gather(groups, representative), line.code[shown])
            columns = [*payload.get_columns(), *columns]
        frame = pl.DataFrame([*columns, pl.Series(FROM, start), pl.Series(UNTIL, until)])
        batch = Batch(pick(frame, list(frame_schema(self.output))))
        if watermark.announces or not stays_open:
            return batch
        return batch.keep((start >= before) | (until != OPEN))  # what stays open was sent

    def _deltas(self, frame: pl.DataFrame) -> dict[str, Index]:
        """The change of each total by elements, or by sums of elements; a number of values only where it is not that of
        the rows."""
        if ROWS in frame.columns:
            names = [name for name in frame.columns if name not in self.keys and name != UNTIL]
            return {name: frame.get_column(name).fill_null(0).to_numpy() for name in names}
        return self.arguments.deltas(frame)

    def _keep_valid(self, arrived: pl.DataFrame, entering: Mapping[str, Index], ends_later: Mask) -> None:
        """Keep elements that end after the slice, to take them out again: as they are, or their sums."""
        later = keep(without(arrived, (FROM,)), ends_later)
        if not isinstance(self.valid, SummedLog):
            self.valid.append(later)
            return
        counts = {VALUES + name: entering[ROWS] for name in self.arguments.counted}
        sums = [pl.Series(name, values[ends_later]) for name, values in {**counts, **entering}.items()]
        frame = pl.DataFrame([*later.select(*self.keys, UNTIL).get_columns(), *sums])
        self.valid.append(add_up(frame, [*self.keys, UNTIL]))

    def _totals(
        self,
        accumulate: Callable[[Index, Index, Index], Index],
        carried: pl.DataFrame,
        entering: Mapping[str, Index],
        leaving: Mapping[str, Index],
    ) -> dict[str, Index]:
        """Every running total, by what was carried over, what enters and what leaves."""
        sums: dict[str, Index] = {}

        def track(name: str, missing: str | None = None) -> None:
            start = carried[name].to_numpy() if name in carried.columns else np.zeros(carried.height, np.int64)
            came, went = (
                deltas[name] if name in deltas else deltas[missing] if missing else np.zeros_like(deltas[ROWS])
                for deltas in (entering, leaving)
            )
            sums[name] = accumulate(start, came, went)

        track(ROWS)
        for name in self.arguments.counted:
            counts = VALUES + name
            if counts in entering or counts in leaving or _counts_differ(carried, counts):
                track(counts, missing=ROWS)
            else:
                sums[counts] = sums[ROWS]
        for name in sorted({*carried.columns, *entering, *leaving}):
            if name.startswith(SUMS):
                track(name)
        return sums

    def _columns(
        self,
        here: Slice,
        extremes: dict[tuple[str, str], pl.Series],
        members: GroupMembers | None,
        folds: dict[str, Fold],
    ) -> list[pl.Series]:
        """The value of each aggregate in each interval."""
        sums, exists = here.sums, here.exists
        columns = []
        for column, call in self.aggregates:
            if is_total(call):
                columns.append(total_column(column, call, here.shown, self.stored))
                continue
            assert call.argument is not None, "only COUNT takes a star"
            name = call.argument.id
            if column.id in folds:
                values = folds[column.id].values(exists)
            elif call.function in ("min", "max"):
                values = extremes[call.function, name]
            else:
                assert members is not None, "aggregates without totals use members"
                values = members.column(call, sums[VALUES + name], exists)
            values = where_present(values, call.function, here.shown[VALUES + name])
            columns.append(values.cast(polars_type(column.type)).alias(column.id))
        return columns

    def _extremes(self, side: tuple[str, str], held: pl.DataFrame, at_held: Index, here: Slice) -> pl.Series:
        """The MIN or MAX in each interval where a value is present; the state keeps the candidates for later."""
        function, name = side
        line = here.line
        renamed = with_series(here.arrived, here.arrived.get_column(name).alias(VALUE))
        fresh = pick(renamed, [*self.keys, VALUE, FROM, UNTIL])
        elements = stack([pick(held, fresh.columns), fresh])
        values = elements.get_column(VALUE)
        ranking = RankOrder(values)
        ranks = ranking.codes if function == "max" else ~ranking.codes  # ~x reverses the order and cannot overflow
        highest, candidates = running_maxima(
            line.by_time,
            line.codes,
            line.at,
            line.run_of,
            len(line.last),
            len(line.code),
            at_held,
            here.events.first_entering,
            values.is_not_null().to_numpy(),
            ranks,
            times(elements, UNTIL),
            self.watermark,
        )
        if self.live is None:
            replace_rows(self.candidates[side], held, gather(elements, candidates))
        extremes, present = highest[here.exists], here.sums[VALUES + name][here.exists] > 0
        return ranking.decode(extremes if function == "max" else ~extremes, present)

    def _fold(self, column_id: str, user: UserAggregate, name: str, here: Slice) -> Fold:
        """The states of a user-defined aggregate in each interval."""
        line, counts = here.line, here.sums[VALUES + name]
        kept, carried = np.zeros(0, np.int64), restored(user, here.carried, column_id)
        if carried is not None:
            kept = np.flatnonzero(here.carried.get_column(VALUES + name).to_numpy() > 0)
        entering, leaving = (np.flatnonzero(mark_present(frame[name])) for frame in (here.arrived, here.ended))
        values = pl.concat([here.arrived[name][entering], here.ended[name][leaving]])
        pool = pooled(user, carried.take(kept) if carried is not None and len(kept) else None, values)
        nonempty = here.exists & (counts > 0)  # the last run of a group that lives on is one of these
        if pool is None or not nonempty.any():
            return Fold(user, nonempty, None)
        coming, going = here.events.updates(line, kept, entering, leaving)
        epochs = GroupEpochs.of(line.code, counts)
        return Fold(user, nonempty, run_totals(user, pool, coming, going, epochs, np.flatnonzero(nonempty)))

    def _carry(
        self, here: Slice, since: Times, folds: dict[str, Fold], groups: pl.DataFrame, first: Index | None
    ) -> None:
        """Keep the totals at the end of the slice for the groups that live on; `since` is when each run began."""
        ends = here.line.last  # every group has an event, so every one has a run
        if first is not None:
            ends = ends[here.sums[ROWS][ends] > 0]
        columns = [pl.Series(name, values[ends]) for name, values in here.sums.items()]
        if isinstance(self.totals, KeyedLog):
            columns.append(pl.Series(SINCE, since[ends]))
        for name, fold in folds.items():
            columns += fold.columns(name, ends)
        if first is not None:
            columns = [*gather(groups, first[here.line.code[ends]]).get_columns(), *columns]
        replace_rows(self.totals, here.carried, pl.DataFrame(columns))


def _join_equal(
    code: Index, time: Times, since: Times, until: Times, columns: list[pl.Series]
) -> tuple[Index, Times, Times]:
    """Runs of a group that follow one another with equal values, as one: the first run of each, since when each run's
    value holds, and until when that of each first run does. `until` may be `OPEN`, then nothing follows."""
    order = group_order(code)
    code, time, since, until = code[order], time[order], since[order], until[order]
    continues = equals_row_before([column.gather(order) for column in columns], len(order))
    continues[1:] &= (code[1:] == code[:-1]) & (until[:-1] == time[1:])
    first, last = join_neighbours(continues, since, until, FOREVER)
    holds = np.empty_like(since)
    holds[order] = np.repeat(since[first], last - first + 1)
    return order[first], holds, until[last]


def replace_rows(log: HeldRows | KeyedLog, old: pl.DataFrame, new: pl.DataFrame) -> None:
    if isinstance(log, KeyedLog):
        log.replace(old, new)
    else:
        log.frame = new


@dataclass(frozen=True, slots=True)
class Fold:
    """States of a user-defined aggregate after the runs that emit results with values, if any do."""

    user: UserAggregate
    nonempty: Mask
    states: States | None

    def values(self, exists: Mask) -> pl.Series:
        """The value in each interval; NULL where the group has no values."""
        values = [] if self.states is None else self.user.evaluated(self.states)
        return spread(pl.Series(values, dtype=polars_type(self.user.returns)), self.nonempty[exists])

    def columns(self, name: str, runs: Index) -> list[pl.Series]:
        """The states after some runs, to be carried on."""
        if self.states is None:
            return []
        return stored(self.states, name, np.cumsum(self.nonempty)[runs] - 1, self.nonempty[runs])


@dataclass(frozen=True)
class Slice:
    """Shared intermediate results of the aggregates of one step."""

    line: Timeline
    events: GroupEvents
    carried: pl.DataFrame
    arrived: pl.DataFrame
    ended: pl.DataFrame
    sums: dict[str, Index]  # every running total after each run
    exists: Mask  # mask of runs that emit results

    @cached_property
    def shown(self) -> dict[str, Index]:
        """The totals where results are emitted."""
        return {name: values[self.exists] for name, values in self.sums.items()}


def _counts_differ(carried: pl.DataFrame, name: str) -> bool:
    """True if some group has NULLs, so that its values must be counted apart from its rows."""
    if name not in carried.columns:
        return False
    return not carried.get_column(name).equals(carried.get_column(ROWS), check_names=False)
