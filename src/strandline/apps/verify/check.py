"""Comparison of one query with an oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from strandline.apps.verify.compare import AT, Difference, at_instants, differences
from strandline.apps.verify.dataset import Dataset, QueryUnderTest
from strandline.apps.verify.instants import change_instants, sample_instants
from strandline.apps.verify.oracle import OracleDatabase, load_streams, results
from strandline.apps.verify.record import Recorded
from strandline.core.temporal import FOREVER, Instant
from strandline.core.types import DOUBLE
from strandline.functions.oracles import Untranslatable
from strandline.logical.schema import schema
from strandline.runtime.kernels.batch import FROM, UNTIL, times


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome for a query; `unchecked` is the reason why nothing was compared."""

    name: str
    instants: int = 0  # compared
    total_instants: int = 0  # at which the result can change
    instants_with_rows: int = 0  # with rows
    differences: tuple[Difference, ...] = ()
    unchecked: str | None = None
    rounded: bool = False
    smallest: tuple[Recorded, ...] | None = None

    @property
    def complete(self) -> bool:
        return self.unchecked is None and self.instants == self.total_instants

    @property
    def equal(self) -> bool:
        return not self.differences


def check(
    database: OracleDatabase,
    tested_query: QueryUnderTest,
    streams: Sequence[Recorded],
    elements: pl.DataFrame,
    until: Instant = FOREVER,
    max_instants: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Compare a result, complete for the instants before `until`, at every instant at which it can change."""
    try:
        dataset = Dataset(load_streams(database, streams))
        dataset = replace(dataset, begins=dataset.origin(tested_query.query, tested_query.name_scope))
        start, end = times(elements, FROM), times(elements, UNTIL)
        instants = change_instants(tested_query, dataset, np.concatenate([start, end]))
        instants = instants[instants < until]
        chosen = sample_instants(instants, start, end, max_instants)
        dataset = replace(dataset, latest=int(chosen.max(initial=0)))
        theirs = results(database, dataset, tested_query, chosen, note)
        ours = at_instants(elements.drop(FROM, UNTIL), start, end, chosen)
        mismatches = differences(ours, theirs)
        if mismatches:
            # A database that decorrelates a query over instants can err in that, and DuckDB 2.0 does where an aggregate
            # without groups is under a set operator. The plain query at one instant decides.
            doubtful = np.array([item.instant for item in mismatches], dtype=np.int64)
            again = results(database, dataset, tested_query, doubtful, apart=True)
            mismatches = differences(ours.filter(pl.col(AT).is_in(doubtful)), again)
    except Untranslatable as reason:
        return Verdict(tested_query.name, unchecked=str(reason))
    return Verdict(
        tested_query.name,
        instants=len(chosen),
        total_instants=len(instants),
        instants_with_rows=theirs["t"].n_unique(),
        differences=tuple(mismatches),
        rounded=any(c.type == DOUBLE for c in schema(tested_query.plan)),
    )
