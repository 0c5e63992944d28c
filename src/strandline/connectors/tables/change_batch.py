"""Change batches: insertions and deletions of a feed, each at its own instant, evaluated at once.

A feed brings many changes of many instants. One statement for each of them would be a step of Python for each row;
here the effect of all follows from arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.content import RowChanges, TableContent
from strandline.connectors.tables.stamping import StampedChanges
from strandline.core.temporal import OPEN, Instant
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Mask, Times, gather
from strandline.runtime.kernels.changes import rank_in_group
from strandline.runtime.kernels.grouping import group_codes


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes in their order: `is_insertion` says what each row does, `times` when, in ascending order; None for all at
    one instant of the clock.

    Law    the content after it is that after one change after the other: with a PRIMARY KEY an insertion replaces the
           row of its key and a deletion ends it; without, an insertion adds a row and a deletion ends one equal row.
           A deletion of what is not there has no effect.

    Of several changes of a key at one instant the last counts, and a row that ends when it begins was never there.
    """

    rows: pl.DataFrame
    is_insertion: Mask
    times: Times | None = None


@dataclass(frozen=True, slots=True)
class _Effects:
    """Effects of a batch. `begun` are places in it. What ends was in the table, or is one of `begun`, by number."""

    begun: Index
    begun_at: Times
    ended: pl.DataFrame
    ended_at: Times
    cut: Index
    cut_at: Times


def stamp_batch(
    batch: ChangeBatch, content: TableContent, table: Table, earliest: Instant, since: Instant, position: int
) -> tuple[StampedChanges, Instant]:
    """The rows of the log, and the instant of the last change, none of which is before `earliest`. Changes of the clock
    take effect then; for queries that begin later they are made at `since`."""
    count = batch.rows.height
    is_given = batch.times is not None
    times = np.full(count, earliest) if batch.times is None else np.maximum(batch.times, earliest)
    effects = (_keyed if table.unique_key else _unkeyed)(batch, times, content)
    stamped = _stamp(batch.rows, effects, None if is_given else since, position)
    return stamped, int(times[-1]) if count else earliest


def _keyed(batch: ChangeBatch, times: Times, content: TableContent) -> _Effects:
    keys = batch.rows.select(content.key)
    codes, first = group_codes(keys, content.key)
    numbers, existing = content.find(gather(keys, first))
    there = np.full(len(first), -1)
    there[numbers] = np.arange(existing.height)
    order = np.argsort(codes, kind="stable")
    counts = np.ones(len(order), np.bool_)
    counts[:-1] = _differs(codes[order]) | _differs(times[order])
    order = order[counts]
    codes, times, inserts = codes[order], times[order], batch.is_insertion[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = _differs(codes)
    before = np.where(is_first, there[codes], -1)
    ends_before = before >= 0
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = inserts[:-1] & ~is_first[1:]
    number = np.cumsum(inserts) - 1  # of the row that a change begins, among those that begin
    return _Effects(
        order[inserts],
        times[inserts],
        gather(existing, before[ends_before]),
        times[ends_before],
        number[np.flatnonzero(follows) - 1],
        times[follows],
    )


def _unkeyed(batch: ChangeBatch, times: Times, content: TableContent) -> _Effects:
    """The k-th deletion of a row ends the k-th of the equal rows that were there or came: they are as good as one
    another."""
    if batch.is_insertion.all():
        nothing = np.zeros(0, np.int64)
        return _Effects(np.arange(len(times)), times, pl.DataFrame(schema=content.schema), nothing, nothing, nothing)
    codes, first = group_codes(batch.rows, content.columns)
    numbers, existing = content.find(gather(batch.rows.select(content.columns), first))
    existing_order = np.lexsort((existing.get_column(ID).to_numpy(), numbers))
    there = np.bincount(numbers, minlength=len(first))
    there_from = np.cumsum(there) - there
    order = np.argsort(codes, kind="stable")
    codes, times, inserts = codes[order], times[order], batch.is_insertion[order]
    ends = ~inserts & ~_misses(codes, inserts, there)
    rank = _ranks_among(codes, ends)[ends]  # of a deletion among those of its row
    group = codes[ends]
    is_old = rank < there[group]
    old = existing_order[there_from[group[is_old]] + rank[is_old]]
    number = np.cumsum(inserts) - 1
    begun_from = np.concatenate([[0], np.cumsum(np.bincount(codes[inserts], minlength=len(first)))])
    cut = begun_from[group[~is_old]] + rank[~is_old] - there[group[~is_old]]
    ended_at = times[ends]
    assert len(number) == 0 or cut.max(initial=-1) <= number[-1], "a deletion ends what has begun"
    begun_at = times[inserts]
    lasts = ended_at[~is_old] > begun_at[cut]
    stays = np.ones(len(begun_at), np.bool_)
    stays[cut[~lasts]] = False
    renumbered = np.cumsum(stays) - 1
    return _Effects(
        order[inserts][stays],
        begun_at[stays],
        gather(existing, old),
        ended_at[is_old],
        renumbered[cut[lasts]],
        ended_at[~is_old][lasts],
    )


def _misses(codes: Index, inserts: Mask, there: Index) -> Mask:
    """Deletions of rows of which none is left, given how many were there, in the order of the codes."""
    steps = np.where(inserts, 1, -1)
    total = np.cumsum(steps)
    is_first = np.ones(len(codes), np.bool_)
    is_first[1:] = _differs(codes)
    begins = np.flatnonzero(is_first)
    before = np.repeat((total - steps)[begins], np.diff(np.append(begins, len(codes))))
    balance = np.minimum(there[codes] + total - before, 0)
    # A lowest balance so far for each group: those of later groups lie below all of earlier ones.
    span = len(codes) + 1
    lowest = np.minimum.accumulate(balance - codes * span) + codes * span
    previous = np.concatenate([[0], lowest[:-1]])
    previous[is_first] = 0
    misses: Mask = lowest < previous
    return misses


def _ranks_among(codes: Index, chosen: Mask) -> Index:
    """The number of chosen entries before each of them in its group."""
    ranks = np.zeros(len(codes), np.int64)
    ranks[chosen] = rank_in_group(codes[chosen])
    return ranks


def _differs(values: npt.NDArray[np.int64]) -> Mask:
    differs: Mask = values[1:] != values[:-1]
    return differs


def _stamp(rows: pl.DataFrame, effects: _Effects, since: Instant | None, position: int) -> StampedChanges:
    """The rows of the log in the order of their instants; at each, what ends comes before what begins."""
    ended_at = np.concatenate([effects.ended_at, effects.cut_at])
    instants = np.concatenate([ended_at, effects.begun_at])
    is_begin = np.repeat([False, True], [len(ended_at), len(effects.begun_at)])
    feed_order = np.concatenate([np.zeros(len(ended_at), np.int64), effects.begun])
    order = np.lexsort((feed_order, is_begin, instants))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    ids = position + places[len(ended_at) :]
    starts = effects.begun_at if since is None else np.full(len(ids), since)
    columns = (pl.Series(ID, ids), pl.Series(FROM, effects.begun_at), pl.Series(SINCE, starts))
    begun = pl.DataFrame([*gather(rows, effects.begun).get_columns(), *columns])
    ends = effects.ended.vstack(gather(begun, effects.cut))
    ceased = ended_at if since is None else np.full(len(ended_at), since)
    log = _with_ends(ends, ended_at, ceased).vstack(_with_ends(begun, np.full(len(ids), OPEN), np.full(len(ids), OPEN)))
    stays = np.ones(len(ids), np.bool_)
    stays[effects.cut] = False
    kept = np.flatnonzero(stays)
    inserted = gather(begun, kept[np.argsort(ids[kept])])
    return StampedChanges(RowChanges(inserted, effects.ended), gather(log, order))


def _with_ends(rows: pl.DataFrame, until: Times, ceased: Times) -> pl.DataFrame:
    return pl.DataFrame([*rows.get_columns(), pl.Series(UNTIL, until), pl.Series(CEASED, ceased)])
