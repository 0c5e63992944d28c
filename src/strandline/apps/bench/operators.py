"""Micro-benchmark of operators: rows per CPU second on one core, as the state grows.

Only operators run, as they run in a worker: no reading, no exchange, no Spark. First the state is filled, then rows are
counted. Times are CPU seconds of this process, all threads together: what a core does in a second, and other work on
the machine does not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from strandline.apps.bench.data import START
from strandline.core.temporal import SECOND
from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP
from strandline.logical.catalog import BaseStream, Catalog, SourceCall
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline, ports
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Times
from strandline.runtime.operators.base import Watermark
from strandline.runtime.stage import FragmentRunner
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one

Figures = dict[str, Any]

ROWS_PER_S = 100_000  # of stream time, both streams together
BATCH_ROWS = 100_000
STATES = (20_000, 200_000, 1_000_000)
COLUMNS = (("k", BIGINT), ("v", DOUBLE), ("t", TIMESTAMP))


@dataclass(frozen=True, slots=True)
class Family:
    """A query over the streams a and b, or a alone; `{w}` is its window. There are `keys` keys per row of state."""

    query: str
    keys: float

    @property
    def streams(self) -> tuple[str, ...]:
        return ("a", "b") if " b " in self.query else ("a",)


_ON = "a {w} {0} JOIN b {w} ON a.k = b.k"
FAMILIES: dict[str, Family] = {
    "filter": Family("SELECT k, v * 2 AS w FROM a {w} WHERE v < 0.1", 0.01),
    "join": Family(f"SELECT a.k, a.v, b.v AS w FROM {_ON.format('INNER', w='{w}')}", 0.5),
    "aggregate": Family("SELECT k, COUNT(*) AS n, AVG(v) AS a, MAX(v) AS m FROM a {w} GROUP BY k", 0.01),
    "distinct": Family("SELECT DISTINCT k FROM a {w}", 0.5),
    "except": Family("SELECT k FROM a {w} EXCEPT ALL SELECT k FROM b {w}", 0.5),
    "intersect": Family("SELECT k FROM a {w} INTERSECT SELECT k FROM b {w}", 0.5),
    "outer join": Family(f"SELECT a.k, a.v, b.v AS w FROM {_ON.format('LEFT', w='{w}')}", 0.5),
    "semi join": Family(f"SELECT a.k, a.v FROM {_ON.format('SEMI', w='{w}')}", 0.5),
    "anti join": Family(f"SELECT a.k, a.v FROM {_ON.format('ANTI', w='{w}')}", 0.5),
    "rows": Family("SELECT k, v FROM a WINDOW(PARTITION BY k ROWS 10)", 0.1),
}


class Core:
    """The operators of a pipeline in one shard, fed slice by slice."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.runners = {fragment.id: FragmentRunner(fragment.root) for fragment in pipeline.fragments}

    def step(self, slices: dict[str, Batch], watermark: Watermark) -> int:
        """Run one slice of each stream through all stages; returns how many elements come out."""
        waiting = {f"source:{name}": batch for name, batch in slices.items()}
        answered = 0
        for fragment in self.pipeline.fragments:
            inputs = {port.name: waiting[port.name] for port in ports(fragment.root) if port.name in waiting}
            out = self.runners[fragment.id].step(inputs, watermark)
            if isinstance(fragment.route, physical.ExchangeTo):
                waiting[fragment.route.port] = out
            else:
                answered += len(out)
        return answered

    def state_rows(self) -> int:
        return sum(state.rows() for runner in self.runners.values() for state in runner.save())


def pipeline_of(family: Family, state: int) -> Pipeline:
    """The physical plan of the query, with a window that holds `state` rows."""
    streams = [BaseStream(name, COLUMNS, SourceCall("bench"), "t", 0) for name in family.streams]
    catalog = Catalog()
    for stream in streams:
        catalog.add(stream)
    window = f"WINDOW(RANGE {state * SECOND // ROWS_PER_S} MICROSECONDS)"
    statement = parse_one(family.query.replace("{w}", window))
    assert isinstance(statement, ast.Select | ast.UnionAll | ast.SetOperation), "a family is a query"
    return lower("q", optimize(bind_query(statement, catalog)), streams, shards=1)


def slices(family: Family, state: int, rows: int) -> Iterator[tuple[dict[str, Batch], Watermark]]:
    """Rows of the streams in turn, evenly in time, a slice after the other."""
    draw = np.random.default_rng(7)
    names = family.streams
    keys = max(int(state * family.keys), 1)
    for first in range(0, rows, BATCH_ROWS):
        time_of: Times = START + np.arange(first, first + BATCH_ROWS, dtype=np.int64) * (SECOND // ROWS_PER_S)
        made = {}
        for number, name in enumerate(names):
            mine = time_of[number :: len(names)]
            frame = {"k": draw.integers(0, keys, len(mine)), "v": draw.random(len(mine)), "t": mine}
            times = {FROM: mine, UNTIL: mine + 1}
            made[name] = pl.DataFrame(frame | times).with_columns(pl.col("t").cast(pl.Datetime("us", "UTC")))
        yield {name: Batch(frame) for name, frame in made.items()}, Watermark(int(time_of[-1]) + 1, START)


def measure(family: Family, state: int, rows: int) -> Figures:
    """Fill the state, then count rows per CPU second."""
    core = Core(pipeline_of(family, state))
    fill = -(-state // BATCH_ROWS) * BATCH_ROWS + BATCH_ROWS
    seconds, results, counted = 0.0, 0, 0
    for number, (batches, watermark) in enumerate(_named(core, slices(family, state, fill + rows))):
        began = time.process_time()
        result_count = core.step(batches, watermark)
        if number * BATCH_ROWS >= fill:
            seconds += time.process_time() - began
            results += result_count
            counted += BATCH_ROWS
    return {
        "rows_per_s": round(counted / seconds),
        "results_per_row": round(results / counted, 2),
        "window_rows": state,
        "state_rows": core.state_rows(),
    }


def _named(
    core: Core, made: Iterator[tuple[dict[str, Batch], Watermark]]
) -> Iterator[tuple[dict[str, Batch], Watermark]]:
    """The columns that the plan reads, under its ids."""
    shapes = {
        port.name.removeprefix("source:"): port.columns
        for fragment in core.pipeline.at(0)
        for port in ports(fragment.root)
    }
    for batches, watermark in made:
        yield (
            {
                name: Batch(batches[name].frame.select(*(pl.col(c.name).alias(c.id) for c in columns), FROM, UNTIL))
                for name, columns in shapes.items()
            },
            watermark,
        )


def run_operators(rows: int | None, repeat: int, say: Callable[[str], None]) -> list[Figures]:
    """Each family at each size of state; of several runs the best counts."""
    measurements: list[Figures] = []
    for name, family in FAMILIES.items():
        measure(family, STATES[0], BATCH_ROWS)  # the first use of a library does not count
        for state in STATES:
            gc.collect()
            runs = [measure(family, state, rows or 1_000_000) for _ in range(repeat)]
            figures = {"operator": name, **max(runs, key=lambda run: run["rows_per_s"])}
            say(f"{name}, {state:,} rows in the window: {figures['rows_per_s']:,} rows/s per core")
            measurements.append(figures)
    return _with_factors(measurements)


def _with_factors(measurements: list[Figures]) -> list[Figures]:
    """Slowdown against the join and the aggregate with as many rows in the window."""
    speed = {(item["operator"], item["window_rows"]): item["rows_per_s"] for item in measurements}
    for item in measurements:
        for other in ("join", "aggregate"):
            reference = speed.get((other, item["window_rows"]))
            item[f"times_{other}"] = None if reference is None else round(reference / item["rows_per_s"], 2)
    return measurements


def report_operators(measurements: list[Figures], console: Console) -> None:
    table = Table(title="operators", title_justify="left")
    heads = ("operator", "window rows", "state rows", "rows/s per core", "results per row", "× join", "× aggregate")
    for head in heads:
        table.add_column(head, justify="left" if head == "operator" else "right")
    for item in measurements:
        cells = [item[key] for key in ("window_rows", "state_rows", "rows_per_s", "results_per_row")]
        factors = [item["times_join"], item["times_aggregate"]]
        table.add_row(item["operator"], *("" if cell is None else f"{cell:,}" for cell in (*cells, *factors)))
    console.print(table)
    console.print("× join: how many times as long as the join takes for a row; below 1 it is faster.")
