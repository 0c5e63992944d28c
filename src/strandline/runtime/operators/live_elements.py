"""The live elements of the groups of an aggregation, where ends are not known in advance.

A sum needs no elements to take one out again. MIN and MAX need the values that remain, and ordered-set aggregates all
of them; which one leaves next is not known, so that none can be ruled out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from strandline.core.temporal import OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Mask, gather, keep, pick, stack
from strandline.runtime.kernels.changes import rank_in_group
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.kernels.hashing import hash_rows
from strandline.runtime.kernels.ranking import RankOrder
from strandline.runtime.operators.hash_join import by_hash
from strandline.runtime.state.cancelling_log import CancellingLog, signed
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import HASH, HashedLog, Segment

# The best values that are kept at hand per group, up to twice as many. When all of them have left, the next ones are
# read from all live values: once for so many changes at least.
BEST: Final = 128
VALUE, COMPLETE = "@value", "@complete"

ExtremeSide: TypeAlias = tuple[str, str]  # min or max, and of which column


class LiveElements:
    """The columns that aggregates read, of every live element, and the best values of each group.

    State  live     all elements that have not ended; those that have are cancelled
           best     for each MIN and MAX the best values of a group, found by its key: none of the others is better

    What a slice reads and writes grows with what begins and ends in it. Where the best values of a group have all
    ended, all live values of the group are read once.
    """

    def __init__(
        self, keys: Sequence[str], stored: Mapping[str, pl.DataType], sides: Sequence[ExtremeSide], all_members: bool
    ) -> None:
        self.keys, self.all_members = list(keys), all_members
        self.columns, self._empty = list(stored), pl.DataFrame(schema=stored)
        self.live = CancellingLog(self.columns)
        types = {key: stored[key] for key in keys}
        self.best = {
            side: KeyedLog(self.keys, {**types, VALUE: stored[side[1]], COMPLETE: pl.Boolean()}, BEST) for side in sides
        }
        self.logs: dict[str, HashedLog | KeyedLog] = {
            "live": self.live,
            **{f"best {f}:{name}": log for (f, name), log in self.best.items()},
        }

    def step(
        self, ended: pl.DataFrame, begun: pl.DataFrame, until: Instant, *, reads_all: bool
    ) -> tuple[dict[ExtremeSide, pl.DataFrame], pl.DataFrame]:
        """Take out what has ended, add what has begun and outlasts the slice. Returns, of the groups that the slice
        concerns, the best values that were there before and stay; and the members that do, if aggregates need them."""
        changed = pl.concat([pick(ended, self.keys), pick(begun, self.keys)])
        cancels = by_hash(self._hashed(signed(self._row(ended), -1)))
        pending = Segment.of(cancels, cancels=cancels.height) if cancels.height else None
        held = {side: self._best(side, ended, begun, changed, pending, reads_all=reads_all) for side in self.best}
        staying = self._members(changed, pending, reads_all=reads_all) if self.all_members else self._empty
        rows = by_hash(pl.concat([cancels, self._hashed(signed(self._row(begun), 1)).select(cancels.columns)]))
        if rows.height:
            self.live.append(rows.drop(HASH), rows.get_column(HASH).to_numpy(), until)
        return held, staying

    def _row(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Elements as they are stored: when they began does not matter."""
        return frame.select(*self.columns, pl.lit(0, pl.Int64).alias(FROM), pl.lit(OPEN, pl.Int64).alias(UNTIL))

    def _hashed(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.Series(HASH, hash_rows(frame, self.keys)))

    def _members(self, changed: pl.DataFrame, pending: Segment | None, *, reads_all: bool) -> pl.DataFrame:
        """The live elements of some groups, or of all."""
        if reads_all or not self.keys:
            frame = self.live.all(pending)
            parts = [] if frame is None else [frame.select(self.columns)]
        else:
            _, first = group_codes(changed, self.keys)
            parts = [frame.select(self.columns) for frame in self.live.of_keys(gather(changed, first), pending)]
        return stack([self._empty, *parts])

    def _best(
        self,
        side: ExtremeSide,
        ended: pl.DataFrame,
        begun: pl.DataFrame,
        changed: pl.DataFrame,
        pending: Segment | None,
        *,
        reads_all: bool,
    ) -> pl.DataFrame:
        """The best values of the groups that stay; the state then has those that have begun, too."""
        function, name = side
        log = self.best[side]
        old = log.all() if reads_all or not self.keys else log.find(changed)
        gone, fresh = (self._values(frame, name) for frame in (ended, begun))
        stays = _without(old, gone, [*self.keys, VALUE])
        stay = old if stays.all() else keep(old, stays)
        exhausted = self._exhausted(old, stay)
        if exhausted.height:
            members = self._members(exhausted, pending, reads_all=False)
            more = self._values(members, name).with_columns(pl.lit(True).alias(COMPLETE))
            stay = pl.concat([stay, more.select(stay.columns)])
        if gone.height or fresh.height or exhausted.height:
            log.replace(old, self._trimmed(function, stay, fresh))
        return stay.drop(COMPLETE)

    def _values(self, frame: pl.DataFrame, name: str) -> pl.DataFrame:
        """The values of a column, with the keys."""
        rows = frame if not frame.get_column(name).null_count() else frame.filter(pl.col(name).is_not_null())
        return rows.select(*self.keys, pl.col(name).alias(VALUE))

    def _exhausted(self, old: pl.DataFrame, stay: pl.DataFrame) -> pl.DataFrame:
        """The keys of the groups that have other values than the best ones, and none of these any more."""
        partial = old.filter(~pl.col(COMPLETE))
        if not partial.height:
            return partial
        if not self.keys:
            return partial.head(0 if stay.height else 1)
        keys = pl.concat([stay.select(self.keys), partial.select(self.keys)])
        _, first = group_codes(keys, self.keys)
        return gather(keys, first[first >= stay.height])

    def _trimmed(self, function: str, stay: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
        """The best values of groups, among those that stay and some new ones."""
        both = pl.concat([stay.drop(COMPLETE), fresh])
        codes, first = group_codes(both, self.keys)
        ranks = RankOrder(both.get_column(VALUE)).codes
        ranks = ranks if function == "max" else ~ranks
        old, complete = codes[: stay.height], np.ones(len(first), np.bool_)
        complete[old[~stay.get_column(COMPLETE).to_numpy()]] = False
        # A new value that is worse than all that stay may be worse than others, which are not at hand.
        worst = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(worst, old, ranks[: stay.height])
        worst[complete] = np.iinfo(np.int64).min
        is_best = ranks >= worst[codes]
        rows = np.flatnonzero(is_best)
        many = np.bincount(codes[rows], minlength=len(first)) > 2 * BEST
        if many.any():
            order = rows[np.lexsort((~ranks[rows], codes[rows]))]
            rows = order[~many[codes[order]] | (rank_in_group(codes[order]) < BEST)]
            complete &= ~many
        return gather(both, rows).with_columns(pl.Series(COMPLETE, complete[codes[rows]]))


def with_ended(best: pl.DataFrame, ended: pl.DataFrame, name: str) -> pl.DataFrame:
    """The values of a slice that were there before it: those that stay, without an end, and those that end in it."""
    keys = [key for key in best.columns if key != VALUE]
    start, stays = (pl.lit(at, pl.Int64).alias(bound) for at, bound in ((0, FROM), (OPEN, UNTIL)))
    leaving = ended.select(*keys, pl.col(name).alias(VALUE), start, UNTIL)
    return stack([best.select(*keys, VALUE, start, stays), leaving])


def _without(frame: pl.DataFrame, gone: pl.DataFrame, columns: Sequence[str]) -> Mask:
    """The rows that remain of a multiset when others are taken out, as far as they are in it."""
    stays = np.ones(frame.height, np.bool_)
    if not frame.height or not gone.height:
        return stays
    codes, first = group_codes(pl.concat([frame.select(columns), gone.select(columns)]), columns)
    mine, out = codes[: frame.height], np.bincount(codes[frame.height :], minlength=len(first))
    order: Index = group_order(mine)
    stays[order] = rank_in_group(mine[order]) >= out[mine[order]]
    return stays
