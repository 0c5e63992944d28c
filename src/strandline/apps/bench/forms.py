"""Benchmark of the choice of stream forms: the plan that users get against plans with one form at every edge.

The queries are those of the benchmark of operators, of the two papers about the forms of streams, and look-ups of rows
in a running aggregate. The streams of the default have been measured: rates, distinct values, length of batches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.console import Console

from strandline.apps.bench import operators
from strandline.apps.bench.form_strategies import (
    STRATEGIES,
    TOLERATED,
    Timed,
    fastest_runs,
    plan_strategies,
    times_best,
)
from strandline.apps.bench.generated_streams import statistics_of
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.apps.papers.golab_ozsu import engine as golab_ozsu
from strandline.apps.papers.golab_ozsu.trace import Trace, generate
from strandline.apps.papers.kraemer_pna import queries as kraemer_pna
from strandline.apps.papers.kraemer_pna.auction_streams import generate_auctions
from strandline.planner.physical.plan import Pipeline

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

ROWS: Final = 300_000  # that are counted of a benchmark of operators
SCALE: Final = 0.05  # of the auctions
LINK_WINDOWS: Final = (2_000, 5_000, 20_000, 50_000)  # units
LINK_BATCH: Final = (1_000, 20)  # units, and how many batches are counted
# Rows that are joined with a running aggregate of their key; keys per row of the window.
LOOK_UPS: Final = {
    f"look-up, {keys} keys per row": operators.Family(
        "SELECT r.k, r.v, h.m FROM a r JOIN (SELECT k, AVG(v) AS m FROM a {w} GROUP BY k) h ON r.k = h.k", keys
    )
    for keys in (0.05, 0.5)
}


@dataclass(frozen=True, slots=True)
class CountedRun:
    """CPU seconds of operators."""

    seconds: float


Comparison = Callable[[int], Mapping[str, Timed]]  # the fastest of so many runs, by strategy


def run_forms(bench: Bench) -> Figures:
    """The forms that the planner chooses against intervals or changes at every edge."""
    comparisons: list[Figures] = []
    for name, compare in _comparisons(bench.rows or ROWS):
        if bench.queries and not any(name.startswith(chosen) for chosen in bench.queries):
            continue
        gc.collect()
        runs = compare(bench.repeat)
        ratio = round(times_best(runs), 3)
        bench.say(f"{name}: {ratio:.2f} × the best")
        seconds = {strategy: round(runs[strategy].seconds, 4) for strategy in STRATEGIES}
        comparisons.append({"query": name, **seconds, "times_best": ratio})
    return {"bench": "forms", "queries": comparisons, "same_answer": None}


def _comparisons(rows: int) -> Iterator[tuple[str, Comparison]]:
    for name, family in {**operators.FAMILIES, **LOOK_UPS}.items():
        for state in operators.STATES:
            yield f"{name}, {state:,} rows", partial(_compare_family, family, state, rows)
    trace = generate(golab_ozsu.engine_units(LINK_WINDOWS[-1], *LINK_BATCH))
    for name, query in golab_ozsu.QUERIES.items():
        for window in LINK_WINDOWS:
            yield f"golab-ozsu {name}, {window:,} units", partial(_compare_links, trace, query, window)
    auctions = generate_auctions(SCALE)
    for name, query in kraemer_pna.QUERIES.items():
        for batch in kraemer_pna.BATCH_LENGTHS:
            compare = partial(kraemer_pna.measure, query, auctions, batch)
            yield f"kraemer-pna {name}, {batch:,} bids", compare


def _compare_family(family: operators.Family, state: int, rows: int, repeat: int) -> Mapping[str, Timed]:
    streams = family.streams_for(state)
    batch_seconds = operators.BATCH_ROWS / operators.ROWS_PER_S
    statistics = {name: replace(known, batch_seconds=batch_seconds) for name, known in statistics_of(streams).items()}
    pipelines = plan_strategies(family.text_for(state), [made.stream for made in streams], statistics)

    def run(pipeline: Pipeline) -> CountedRun:
        timed, _ = operators.run_filled(pipeline, streams, state, rows)
        return CountedRun(sum(timed.seconds().values()))

    return fastest_runs(pipelines, run, repeat)


def _compare_links(trace: Trace, query: str, window: int, repeat: int) -> Mapping[str, Timed]:
    return golab_ozsu.measure(trace, query, window, *LINK_BATCH, repeat)


def report_forms(figures: Figures, console: Console) -> None:
    heads = ("query", *(f"{strategy}, CPU s" for strategy in STRATEGIES), "default / best")
    rows = [
        (item["query"], *(f"{item[strategy]:.3f}" for strategy in STRATEGIES), f"{item['times_best']:.2f}")
        for item in figures["queries"]
    ]
    print_table(console, "forms of streams", heads, rows, left=("query",))
    slower = [item["query"] for item in figures["queries"] if item["times_best"] > TOLERATED]
    within = len(figures["queries"]) - len(slower)
    console.print(f"the default takes at most {TOLERATED} × the best fixed form in {within} of {len(rows)} queries")
