"""The smallest input that still fails: rows are taken away as long as the failure remains.

Whether it remains is decided by the local engine, which runs the query again over the rows that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
import polars as pl

from strandline.apps.verify.check import check
from strandline.apps.verify.dataset import QueryUnderTest
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.record import Recorded
from strandline.database.run_in_memory import run_in_memory
from strandline.logical.plan import Plan

Item = TypeVar("Item")

PATIENCE_S: Final = 20.0


def smallest_failing(
    database: OracleDatabase, tested_query: QueryUnderTest, streams: Sequence[Recorded]
) -> tuple[Recorded, ...] | None:
    """The fewest rows found for which the local engine and the database differ; None if they agree on all of them."""
    places = [(number, row) for number, recorded in enumerate(streams) for row in range(recorded.rows.height)]

    def kept(positions: Sequence[tuple[int, int]]) -> list[Recorded]:
        masks = [np.zeros(recorded.rows.height, dtype=np.bool_) for recorded in streams]
        for number, row in positions:
            masks[number][row] = True
        return [recorded.only(mask) for recorded, mask in zip(streams, masks, strict=True)]

    def fails(positions: Sequence[tuple[int, int]]) -> bool:
        fewer = kept(positions)
        # Cut into single rows as well: some failures show only between batches.
        return any(
            not check(
                database, tested_query, fewer, rerun(tested_query.plan, fewer, batch_rows=size, shards=shards)
            ).equal
            for size, shards in ((1, 2), (1_000_000, 1))
        )

    if not fails(places):
        return None
    return tuple(kept(smallest(places, fails)))


def rerun(plan: Plan, streams: Sequence[Recorded], *, batch_rows: int, shards: int) -> pl.DataFrame:
    """The elements of the result over these rows, by column id, with `@from` and `@until`."""
    rows = {recorded.stream.name: recorded.rows for recorded in streams}
    declared = [recorded.stream for recorded in streams]
    return run_in_memory(plan, declared, rows.__getitem__, batch_rows=batch_rows, shards=shards)


def smallest(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], patience_s: float = PATIENCE_S
) -> list[Item]:
    """As few items as possible for which `fails` is true; it is true for all of them.

    First large chunks are removed, then smaller ones, in the end single items, until none can go or time is up (delta
    debugging).
    """
    until = time.monotonic() + patience_s
    kept, size = list(items), max(1, len(items) // 2)
    while kept:
        start, removed = 0, False
        while start < len(kept):
            if time.monotonic() > until:
                return kept
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, removed = fewer, True
            else:
                start += size
        if size == 1 and not removed:
            return kept
        size = max(1, size // 2) if not removed or size > len(kept) else size
    return kept
