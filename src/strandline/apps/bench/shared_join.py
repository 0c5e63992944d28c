"""Benchmark of queries that share a window join: CPU and state beside those of the largest window alone.

All queries join the same two streams by the same key, in one pipeline; each has a window, and some a selection of its
own. What is shared is compared with the query that has the largest window, alone, and with the same queries unshared,
fewer of them, since a hundred take long.

In this process   the whole pipeline, batches of a second of stream time one after the other, from reading to results
                  that are counted: CPU seconds once the windows are full, and the state
In a burst        response times by policy (join_burst.py)
Living            a thousand queries, and queries that come and go, on Spark (living_queries.py)
On Spark          from the start of the queries to the end of the streams, CPU seconds of all processes; sinks count
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.console import Console

from strandline.apps.bench.generated_streams import GeneratedSource, GeneratedStream, bind_over, bound, statistics_of
from strandline.apps.bench.join_burst import measure_burst, report_burst
from strandline.apps.bench.living_queries import measure_changes, measure_many, report_living_changes, report_many
from strandline.apps.bench.measure import Figures, measured
from strandline.apps.console import print_table
from strandline.connectors.sinks import Callback
from strandline.database.database import Database
from strandline.database.statements import BoundQuery
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.stage import OperatorCounters

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

QUERIES: Final = 100
UNSHARED: Final = 10
SELECTIONS: Final = 20
LARGEST: Final = 30  # seconds: the largest window
SECONDS: Final = 60  # of the streams on Spark
RATE: Final = 10_000  # rows per second of each stream
MATCHES: Final = 0.2  # of a row in the largest window, on average
SHARDS: Final = 2
QUICK_BURST: Final = 0.05  # of the windows and of the burst, for a quick run
COUNTED: Final = 10  # batches that are measured, once the windows are full


@dataclass(frozen=True, slots=True)
class Setting:
    """Queries that run together: of each the window in milliseconds and the selection, if it has one; and of how many
    times the CPU and the state of the largest window alone they may take."""

    name: str
    queries: tuple[tuple[int, str], ...]
    shares: bool = True
    cpu_limit: float | None = None
    state_limit: float | None = None

    def texts(self) -> Iterator[str]:
        for milliseconds, selection in self.queries:
            window = f"[RANGE {milliseconds} MILLISECONDS]"
            yield f"SELECT a.k, a.v, b.v AS w FROM a {window} JOIN b {window} ON a.k = b.k{selection}"


def _selection(number: int) -> str:
    """Half of the rows, other ones for each number."""
    low = number / SELECTIONS / 2
    return f" WHERE a.v >= {low:.3f} AND a.v < {low + 0.5:.3f}"


def settings(largest: int) -> list[Setting]:
    """What is compared; the first is the largest window alone."""

    def windows(count: int) -> tuple[tuple[int, str], ...]:
        return tuple((largest * (number + 1) // count, "") for number in range(count))

    wide = (largest, "")
    selected = tuple((largest, _selection(number % SELECTIONS)) for number in range(QUERIES))
    return [
        Setting("the largest window alone", (wide,)),
        Setting("two equal queries", (wide, wide), True, 1.1, 1.05),
        Setting(f"{QUERIES} windows", windows(QUERIES), True, 1.5, 1.1),
        Setting(f"{QUERIES} queries with {SELECTIONS} selections", selected, True, 2.0, None),
        Setting(f"{UNSHARED} windows", windows(UNSHARED)),
        Setting(f"{UNSHARED} windows, unshared", windows(UNSHARED), False),
    ]


PARTS: Final = ("sharing", "burst", "many", "changes")


def run_shared_join(bench: Bench) -> Figures:
    """Queries over one window join, shared and unshared; bursts; a thousand queries; and queries that come and go."""
    parts = bench.chosen(PARTS)
    figures: Figures = {"bench": "shared-join", "date": datetime.now().isoformat(timespec="seconds")}
    if "sharing" in parts:
        figures |= _run_sharing(bench)
    if "burst" in parts:
        figures["burst"] = measure_burst(scale=1.0 if bench.rows is None else QUICK_BURST)
    if "many" in parts:
        figures["many"] = measure_many(bench)
    if "changes" in parts:
        figures |= measure_changes(bench)
    return figures


def _run_sharing(bench: Bench) -> Figures:
    rate = bench.rows or RATE
    streams = [GeneratedStream(name, rate, {"k": round(rate * LARGEST / MATCHES)}) for name in ("a", "b")]
    compared = settings(LARGEST * 1000)
    _measure(compared[0], streams, fill=1)  # the first use of a library does not count
    here = [
        min((_measure(setting, streams, LARGEST + 1) for _ in range(bench.repeat)), key=_cpu) for setting in compared
    ]
    on_spark = [min((_run(bench, setting, rate) for _ in range(bench.repeat)), key=_cpu) for setting in compared]
    for figures in (here, on_spark):
        for item in figures:
            item["cpu_ratio"] = round(_cpu(item) / _cpu(figures[0]), 2)
    for item in here:
        item["state_ratio"] = round(item["state_bytes"] / here[0]["state_bytes"], 3)
    return {
        "rows_per_s": rate,
        "largest_window_s": LARGEST,
        "here": here,
        "spark": on_spark,
        "same_answer": len({item["results"] for item in on_spark[-2:]}) == 1,
    }


def _cpu(figures: Figures) -> float:
    seconds: float = figures["cpu_seconds"]
    return seconds


def plan_setting(setting: Setting, streams: Sequence[GeneratedStream], shards: int = SHARDS) -> Pipeline:
    """The pipeline of a setting; what is unshared has scopes of its own."""
    declared = [made.stream for made in streams]
    parts: list[Pipeline] = []
    for number, text in enumerate(setting.texts()):
        plan = optimize(bound(text, streams), statistics_of(streams))
        parts.append(lower(f"q{number}", plan, declared, shards, first=number * 3))
    scopes = ["" if setting.shares else part.queries[0].name for part in parts]
    return combine(parts, declared, scopes)


def _measure(setting: Setting, streams: Sequence[GeneratedStream], fill: int) -> Figures:
    """A setting in this process; of its batches the median counts."""
    pipeline = plan_setting(setting, streams)
    batches = {made.name: [made.rows(number, 1.0) for number in range(fill + COUNTED)] for made in streams}
    sources = {made.name: GeneratedSource(made, batches[made.name]) for made in streams}
    run = LocalRun(RunningPipeline(pipeline), sources=sources)
    seconds: list[float] = []
    results = 0
    counters: list[OperatorCounters] = []
    for number in range(fill + COUNTED):
        if number == fill:
            gc.collect()
        began = time.process_time()
        report = run.step()
        assert report is not None, "there is a batch left"
        if number >= fill:
            seconds.append(time.process_time() - began)
            results += sum(report.rows_out.values())
            counters = list(report.operators.values())
    run.close()
    return {
        **_facts(setting),
        "cpu_seconds": round(statistics.median(seconds), 4),  # per second of stream time
        "results": results,
        "state_rows": sum(sum(each.rows) for each in counters),
        "state_bytes": sum(sum(each.bytes) for each in counters),
    }


def _run(bench: Bench, setting: Setting, rate: int) -> Figures:
    """A setting on Spark; what is unshared is a query of Spark's for each."""
    from strandline import connect
    from strandline.apps.bench.run import declare, stream

    rows, keys = rate * SECONDS, round(rate * LARGEST / MATCHES)
    data = {name: bench.directory / f"shared-{name}" for name in ("a", "b")}
    for seed, (_, directory) in enumerate(data.items()):
        if not directory.exists():
            stream(directory, seed, rows, rate, keys)
    spark, directory = bench.session("ours"), bench.fresh("shared")
    counted: Counter[str] = Counter()

    def counting(name: str) -> Callback:
        def count(batch: int, table: pa.Table) -> None:
            counted[name] += table.num_rows

        return Callback(count)

    with measured() as cost:
        database = connect(spark=spark, batch_rows=rate)
        for name, place in data.items():
            database.sql(declare(name, place))
        queries = bind_queries(database, setting, counting)
        groups = [queries] if setting.shares else [[query] for query in queries]
        handles = [
            handle for number, group in enumerate(groups) for handle in database.start(group, directory / str(number))
        ]
        for handle in handles:
            handle.await_end()
    bench.say(f"{setting.name}: {cost.cpu_seconds:.1f} CPU s, {counted.total():,} results")
    return {**_facts(setting), **asdict(cost), "results": counted.total()}


def bind_queries(database: Database, setting: Setting, sink_of: Callable[[str], Callback]) -> list[BoundQuery]:
    """The queries of a setting, over the streams of a database."""
    streams = [stream for stream in database.catalog if isinstance(stream, BaseStream)]
    named = {f"q{number}": text for number, text in enumerate(setting.texts())}
    return [
        BoundQuery(name, bind_over(text, streams), frozenset(("a", "b")), sink_of(name)) for name, text in named.items()
    ]


def _facts(setting: Setting) -> Figures:
    return {
        "what": setting.name,
        "queries": len(setting.queries),
        "cpu_limit": setting.cpu_limit,
        "state_limit": setting.state_limit,
    }


def report_shared_join(figures: Figures, console: Console) -> None:
    if "here" in figures:
        _report_sharing(figures, console)
    if "burst" in figures:
        report_burst(figures["burst"], console)
    if "many" in figures:
        report_many(figures["many"], console)
    if "changes" in figures:
        report_living_changes(figures, console)


def _report_sharing(figures: Figures, console: Console) -> None:
    rate, largest = figures["rows_per_s"], figures["largest_window_s"]
    heads = ("queries", "CPU s/s", "× alone", "at most", "state rows", "× alone", "at most", "results")
    rows = [
        (
            item["what"],
            f"{item['cpu_seconds']:.3f}",
            f"{item['cpu_ratio']:.2f}",
            _limit(item["cpu_limit"]),
            f"{item['state_rows']:,}",
            f"{item['state_ratio']:.2f}",
            _limit(item["state_limit"]),
            f"{item['results']:,}",
        )
        for item in figures["here"]
    ]
    title = f"one window join, {rate:,} rows/s of each stream, windows up to {largest} s, in this process"
    print_table(console, title, heads, rows, left=("queries",))
    spark_heads = ("queries", "seconds", "CPU s", "× alone", "at most", "MB", "results")
    spark_rows = [
        (
            item["what"],
            f"{item['seconds']:.1f}",
            f"{item['cpu_seconds']:.1f}",
            f"{item['cpu_ratio']:.2f}",
            _limit(item["cpu_limit"]),
            f"{item['peak_memory_mb']:,.0f}",
            f"{item['results']:,}",
        )
        for item in figures["spark"]
    ]
    print_table(console, f"{SECONDS} s of the streams on Spark", spark_heads, spark_rows, left=("queries",))
    console.print(f"the same number of results shared and unshared: {figures['same_answer']}")


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
