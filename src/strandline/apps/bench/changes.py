"""Benchmark of the two forms of a stream: what a batch of one row costs, sends and stores while many elements are open.

Only operators run, as they run in a worker. The state is filled with one row per key; then come batches of one row.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

import numpy as np
import polars as pl
from rich.console import Console

from strandline.apps.bench.generated_streams import START, GeneratedStream, TimedRun, bound
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.core.temporal import SECOND
from strandline.planner.physical.forms import ALL_INTERVALS, BY_RULE
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import StreamForm
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM
from strandline.runtime.state.segments import Segment

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

OPEN_ELEMENTS: Final = (2_000, 500_000, 1_000_000)
BATCHES: Final = 30
STREAMS: Final = (GeneratedStream("a", 1, {"k": 1}), GeneratedStream("b", 1, {"k": 1}))


@dataclass(frozen=True, slots=True)
class OpenQuery:
    """A query, and the stream whose rows change its result."""

    query: str
    changed_by: str = "a"


SHAPES: Final[dict[str, OpenQuery]] = {
    "GROUP BY, RANGE": OpenQuery("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a WINDOW(RANGE 1 HOUR) GROUP BY k"),
    "GROUP BY, UNBOUNDED": OpenQuery("SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE UNBOUNDED) GROUP BY k"),
    "PARTITION BY, ROWS 1": OpenQuery("SELECT k, v FROM a WINDOW(PARTITION BY k ROWS 1)"),
    "anti join": OpenQuery(
        "SELECT k, v FROM a WINDOW(RANGE 1 HOUR) ANTI JOIN b WINDOW(RANGE 1 HOUR) ON a.k = b.k", "b"
    ),
    "join, running aggregate": OpenQuery(
        "SELECT r.k, r.v, h.m FROM a r "
        "JOIN (SELECT k, AVG(v) AS m FROM a WINDOW(RANGE 1 HOUR) GROUP BY k) h ON r.k = h.k"
    ),
    "aggregate of aggregates": OpenQuery(
        "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 1 HOUR) GROUP BY k) g GROUP BY n"
    ),
}


def _rows(keys: list[int] | range, at: int) -> pl.DataFrame:
    times = np.full(len(keys), at, np.int64)
    frame = pl.DataFrame({"k": pl.Series(keys, dtype=pl.Int64), "v": np.ones(len(keys)), "t": times, FROM: times})
    return frame.with_columns(pl.col("t").cast(pl.Datetime("us")))


def measure(shape: OpenQuery, elements: int, form: StreamForm) -> Figures:
    """Milliseconds of CPU, rows sent and rows of state written per batch, with so many open elements; as intervals, all
    edges of the plan are."""
    plan = optimize(bound(shape.query, STREAMS))
    strategy = ALL_INTERVALS if form == "intervals" else BY_RULE
    run = TimedRun(lower("q", plan, [made.stream for made in STREAMS], shards=1, form=form, strategy=strategy))
    nothing = _rows([], START)
    run.step({"a": _rows(range(elements), START), "b": nothing}, START + SECOND)
    known, written = _segments(run), 0
    for number in range(BATCHES + 1):
        if number == 1:  # the first look-up has made the index of the state, once for all
            run.forget()
            written = 0
        at = START + (number + 1) * SECOND
        row = _rows([number * 7919 % elements], at)
        run.step({"a": nothing, "b": nothing, shape.changed_by: row}, at + SECOND)
        stored = _segments(run)
        old = {id(segment.frame) for segment in known}
        written += sum(segment.rows for segment in stored if id(segment.frame) not in old)
        known = stored
    return {
        "ms": round(sum(run.seconds().values()) / BATCHES * 1000, 2),
        "sent": round(run.results / BATCHES, 1),
        "written": round(written / BATCHES, 1),
    }


def _segments(run: TimedRun) -> list[Segment]:
    states = [state for runner in run.runners.values() for state in runner.save()]
    return [segment for state in states for log in state.segments.values() for segment in log]


def run_changes(bench: Bench) -> Figures:
    """What a batch of one row costs while many elements are open, with intervals and with changes."""
    measurements: list[Figures] = []
    for name, shape in SHAPES.items():
        for form in get_args(StreamForm):
            measure(shape, OPEN_ELEMENTS[0], form)  # the first use of a library does not count
        for elements in OPEN_ELEMENTS if bench.rows is None else (bench.rows,):
            figures: Figures = {"query": name, "open": elements}
            for form in get_args(StreamForm):
                gc.collect()
                runs = [measure(shape, elements, form) for _ in range(bench.repeat)]
                figures[form] = min(runs, key=lambda run: run["ms"])
            figures["ratio"] = round(figures["intervals"]["ms"] / figures["changes"]["ms"], 1)
            bench.say(
                f"{name}, {elements:,} open elements: {figures['changes']['ms']} ms, {figures['ratio']} times less"
            )
            measurements.append(figures)
    return {"bench": "changes", "queries": measurements, "same_answer": None}


def report_changes(figures: Figures, console: Console) -> None:
    heads = ["query", "open elements"]
    heads += [f"{what}, {form}" for what in ("CPU ms", "rows sent", "rows stored") for form in get_args(StreamForm)]
    rows = [
        (
            item["query"],
            f"{item['open']:,}",
            *(f"{item[form][what]:,}" for what in ("ms", "sent", "written") for form in get_args(StreamForm)),
        )
        for item in figures["queries"]
    ]
    print_table(console, "a batch of one row", heads, rows, left=("query",))
