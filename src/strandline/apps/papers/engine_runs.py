"""Queries of a paper on the engine's operators: one shard, batch after batch, in one of several strategies.

A strategy is a form for every edge of the plan. `intervals` at all of them is the direct or time-interval approach: an
element carries its end. `changes` at all of them is the approach of negative tuples: an element comes when it begins
and again when it ends, and time windows store what they have let in. `default` is the plan of a user whose streams have
been measured. The result has the form of changes in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.apps.bench.form_strategies import TOLERATED, fastest_runs, plan_strategies, times_best
from strandline.apps.bench.generated_streams import START, TimedRun
from strandline.apps.papers.output import PrintedStatement
from strandline.core.temporal import OPEN, SECOND, Instant
from strandline.core.types import TIMESTAMP, Type
from strandline.logical.catalog import BaseStream, ConnectorCall, StreamStatistics
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.kernels.batch import FROM, UNTIL

TIME: Final = "ts"
ColumnValues: TypeAlias = pl.Series | npt.NDArray[np.generic] | list[str]


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """A stream that lies in memory, in order of time; its rows have the columns, and `@from` in microseconds."""

    name: str
    columns: Mapping[str, Type]
    rows: pl.DataFrame

    @property
    def stream(self) -> BaseStream:
        return BaseStream(self.name, (*self.columns.items(), (TIME, TIMESTAMP)), ConnectorCall("made"), TIME)

    @property
    def instants(self) -> npt.NDArray[np.int64]:
        """Microseconds after the start."""
        return self.rows[FROM].to_numpy() - START

    def statistics(self, batch_seconds: float | None) -> StreamStatistics:
        """What is measured of a stream that comes in batches of this length."""
        seconds = max(int(self.instants[-1]) - int(self.instants[0]), 1) / SECOND
        values = {name: float(self.rows[name].n_unique()) for name in self.columns}
        return StreamStatistics(self.rows.height / seconds, values, batch_seconds=batch_seconds)

    @classmethod
    def make(
        cls, name: str, columns: Mapping[str, Type], rows: Mapping[str, ColumnValues], instants: ColumnValues
    ) -> RecordedStream:
        """Instants are microseconds after the start."""
        frame = pl.DataFrame(dict(rows)).with_columns(pl.Series(FROM, instants, dtype=pl.Int64) + START)
        return cls(name, columns, frame.with_columns(pl.col(FROM).cast(pl.Datetime("us")).alias(TIME)))


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """CPU seconds of operators, rows read, elements that operators passed on, elements of the result, and rows of state
    after the last batch. `validity` is the sum of all lengths of results, which is the same for every strategy;
    `progress` has the seconds and the elements of the result up to the end of every batch."""

    seconds: float
    rows: int
    passed: int
    results: int
    state: int
    validity: int
    progress: tuple[tuple[float, int], ...] = ()

    @property
    def ms_per_1000(self) -> float:
        return 1e6 * self.seconds / max(self.rows, 1)


def compare_default(measured: Mapping[str, Mapping[str, EngineFigures]]) -> PrintedStatement:
    """Whether the plans that users get are as fast as the better one of the two that have one form everywhere."""
    ratios = {name: times_best(found) for name, found in measured.items()}
    slower = [f"{name} {ratio:.2f} ×" for name, ratio in ratios.items() if ratio > TOLERATED]
    computed = ", ".join(slower) or "no query is slower"
    return PrintedStatement("the default", f"at most {TOLERATED} × the best form", computed, not slower)


def compare(
    query: str, streams: Sequence[RecordedStream], cuts: Sequence[Instant], count_from: Instant, repeat: int
) -> dict[str, EngineFigures]:
    """The fastest run of a query in each strategy; cuts are those of `run`."""
    pipelines = make_pipelines(query, streams, cuts, count_from)
    return fastest_runs(pipelines, lambda pipeline: run(pipeline, streams, cuts, count_from), repeat)


def make_pipelines(
    query: str, streams: Sequence[RecordedStream], cuts: Sequence[Instant], count_from: Instant
) -> dict[str, Pipeline]:
    """The pipeline of a query in each strategy, for batches that end at the cuts."""
    counted = [cut for cut in cuts if cut >= count_from]
    batch_seconds = float(np.median(np.diff(counted or cuts))) / SECOND if len(counted) > 1 else None
    statistics = {made.name: made.statistics(batch_seconds) for made in streams}
    return plan_strategies(query, [made.stream for made in streams], statistics)


def run(
    pipeline: Pipeline,
    streams: Sequence[RecordedStream],
    cuts: Sequence[Instant],
    count_from: Instant,
    keep: Callable[[pl.DataFrame], None] = lambda rows: None,
) -> EngineFigures:
    """Run a pipeline with watermarks at the cuts, microseconds after the start. Figures are of the batches that end
    after `count_from`. At the end the watermark passes everything, so that all results have their ends."""
    validity = 0

    def take(rows: pl.DataFrame) -> None:
        nonlocal validity
        ended = rows.filter(pl.col(UNTIL) < OPEN)
        validity += int((ended[UNTIL] - ended[FROM]).sum())
        keep(rows)

    timed = TimedRun(pipeline, take)
    places = {made.name: np.searchsorted(made.instants, cuts).tolist() for made in streams}
    before, counted, progress = dict.fromkeys(places, 0), 0, []
    for number, cut in enumerate(cuts):
        if cut > count_from and not counted:
            timed.forget()
        after = {name: place[number] for name, place in places.items()}
        timed.step({made.name: made.rows[before[made.name] : after[made.name]] for made in streams}, START + cut)
        counted += sum(after.values()) - sum(before.values()) if cut > count_from else 0
        before = after
        progress.append((sum(timed.seconds().values()), timed.results))
    seconds, results, state = sum(timed.seconds().values()), timed.results, sum(timed.state_rows().values())
    passed = sum(timed.passed().values())
    timed.step({made.name: made.rows[:0] for made in streams}, OPEN - 1)
    return EngineFigures(seconds, counted, passed, results, state, validity, tuple(progress))
