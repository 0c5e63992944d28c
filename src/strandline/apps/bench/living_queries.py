"""Benchmark of a thousand queries over one window join on Spark: how long their batches are, what it takes to add one
more, and how much the others notice of queries that come and go.

The streams come by the clock.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.console import Console

from strandline.apps.bench.generated_streams import bind_over
from strandline.apps.bench.measure import Figures, measured
from strandline.apps.console import print_table
from strandline.connectors.sinks import Callback
from strandline.core.errors import QueryError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.statements import BoundQuery
from strandline.logical.catalog import BaseStream

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

Receive = Callable[[int, pa.Table], None]

WINDOWS: Final = 100
SELECTIONS: Final = 10
RATE: Final = 5_000  # rows per second of each stream
LARGEST: Final = 30_000  # milliseconds: the largest window
MATCHES: Final = 0.2  # of a row in the largest window, on average
SECONDS: Final = 60.0  # with all queries
FEW: Final = 10  # queries beside which others come and go
CHANGES: Final = 10  # queries that come, and go again
BETWEEN: Final = 1.5  # seconds between two changes
WARM: Final = 10.0  # seconds in which batches are not counted


@dataclass(slots=True)
class Deliveries:
    """When the results of a query came: one batch follows the other, so that the time between two is that of a batch.

    Also how far the query was behind the clock, now and then.
    """

    times: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def receive(self, batch: int, table: pa.Table) -> None:
        self.times.append(time.monotonic())

    def watch(self, query: Query, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            query.check()
            progress = query.metrics()["progress"]
            if progress is not None:
                self.lags.append((datetime.now(UTC) - progress).total_seconds())

    def forget(self) -> None:
        """What comes from now on counts; the last delivery begins the first batch."""
        self.times, self.lags = self.times[-1:], []

    def batches(self) -> list[float]:
        """Seconds of each."""
        lengths = [later - earlier for earlier, later in itertools.pairwise([*self.times])]
        if not lengths:
            raise QueryError("no batch had results while they were counted", code="bench-run", hint="more --seconds")
        return lengths


def query_texts(windows: int, selections: int) -> list[str]:
    """Each window with each selection: half of the rows, other ones for each number."""
    texts = []
    for number in range(windows * selections):
        window = f"[RANGE {LARGEST * (number // selections + 1) // windows} MILLISECONDS]"
        low = number % selections / selections / 2
        condition = f"a.value % 1000 >= {low * 1000:.0f} AND a.value % 1000 < {(low + 0.5) * 1000:.0f}"
        joined = f"a {window} JOIN b {window} ON a.key = b.key"
        texts.append(f"SELECT a.key, a.value, b.value AS other FROM {joined} WHERE {condition}")
    return texts


def _window_text(number: int) -> str:
    """A window that no query has yet."""
    return query_texts(WINDOWS, 1)[(number * 7 + 5) % WINDOWS]


def _aggregate_text(number: int) -> str:
    group = f"key % {number + 2}"
    return f"SELECT {group} AS k, COUNT(*) AS n FROM a WINDOW(RANGE {number + 1} SECONDS) GROUP BY {group}"


def _nested_text(number: int) -> str:
    counts = f"SELECT key % 100 AS k, COUNT(*) AS n FROM a WINDOW(RANGE {number + 1} SECONDS) GROUP BY key % 100"
    return f"SELECT n, COUNT(*) AS groups FROM ({counts}) GROUP BY n"


ADDED: Final[dict[str, Callable[[int], str]]] = {
    "one more window": _window_text,
    "an aggregate of its own": _aggregate_text,
    "one more stage": _nested_text,
}


def declare_streams(database: Database, rate: int) -> None:
    keys = max(1, round(rate * LARGEST / 1000 / MATCHES))
    for seed, name in enumerate("ab", 1):
        database.sql(
            f"CREATE STREAM {name} (value BIGINT, key BIGINT, ts TIMESTAMP) SOURCE rate("
            f"rows_per_second => {rate}, keys => {keys}, seed => {seed}) ORDERED BY ts"
        )


def start_queries(database: Database, texts: Sequence[str], deliveries: Deliveries, receive: Receive) -> Query:
    """All of them together, in one pipeline: the last one, whose deliveries are watched."""
    streams = [stream for stream in database.catalog if isinstance(stream, BaseStream)]
    bound = [
        BoundQuery(f"q{number}", bind_over(text, streams), frozenset("ab"), Callback(receive))
        for number, text in enumerate(texts)
    ]
    bound[-1] = replace(bound[-1], sink=Callback(deliveries.receive))
    return database.start(bound, None)[-1]


def measure_many(bench: Bench) -> Figures:
    """A thousand queries for a while; the last one is added to the others."""
    from strandline import connect

    windows, rate = (WINDOWS, RATE) if bench.rows is None else (max(1, WINDOWS // 10), bench.rows)
    texts = query_texts(windows, SELECTIONS)
    counted = 0

    def count(batch: int, table: pa.Table) -> None:
        nonlocal counted
        counted += table.num_rows

    deliveries = Deliveries()
    with connect(spark=bench.session("ours")) as database, measured() as cost:
        declare_streams(database, rate)
        began = time.perf_counter()
        query = start_queries(database, texts[1:], deliveries, count)
        start_s = time.perf_counter() - began
        deliveries.watch(query, WARM)
        began = time.perf_counter()
        database.sql(f"{texts[0]} STARTING NOW", sink=Callback(count), name="one_more")
        add_s = time.perf_counter() - began
        deliveries.watch(query, WARM)
        deliveries.forget()
        deliveries.watch(query, bench.seconds or SECONDS)
        batches, lags = deliveries.batches(), deliveries.lags
    third = max(1, len(lags) // 3)
    return {
        "queries": len(texts),
        "rows_per_s": rate,
        **{name: round(value, 1) for name, value in asdict(cost).items()},
        "start_s": round(start_s, 2),
        "add_s": round(add_s, 2),
        "batches": len(batches),
        "batch_p50_s": round(statistics.median(batches), 2),
        "batch_max_s": round(max(batches), 2),
        "lag_first_s": round(statistics.median(lags[:third]), 2),
        "lag_last_s": round(statistics.median(lags[-third:]), 2),
        "results": counted,
    }


def measure_changes(bench: Bench) -> Figures:
    """Queries that come and go beside a few: with what runs already, and with operators and stages of their own."""

    def ignore(batch: int, table: pa.Table) -> None:
        return

    rate = bench.rows or RATE
    return {"changes": [_measure_changes(bench, what, text_of, rate, ignore) for what, text_of in ADDED.items()]}


def _measure_changes(bench: Bench, what: str, text_of: Callable[[int], str], rate: int, ignore: Receive) -> Figures:
    from strandline import connect

    deliveries, adds, drops = Deliveries(), [], []
    with connect(spark=bench.session("ours")) as database:
        declare_streams(database, rate)
        query = start_queries(database, query_texts(FEW, 1), deliveries, ignore)
        deliveries.watch(query, WARM)
        deliveries.forget()
        deliveries.watch(query, WARM)
        alone = statistics.median(deliveries.batches())
        deliveries.forget()
        for number in range(CHANGES):
            began = time.perf_counter()
            added = database.sql(f"{text_of(number)} STARTING NOW", sink=Callback(ignore), name=f"more{number}")
            adds.append(time.perf_counter() - began)
            deliveries.watch(query, BETWEEN)
            began = time.perf_counter()
            added.stop()
            drops.append(time.perf_counter() - began)
            deliveries.watch(query, BETWEEN)
        longest = max(deliveries.batches())
    bench.say(f"{what}: the longest batch {longest:.2f} s, one before {alone:.2f} s")
    return {
        "what": what,
        "batch_p50_s": round(alone, 3),
        "limit_s": round(2 * alone + 0.3, 3),
        "batch_max_s": round(longest, 3),
        "add_p50_s": round(statistics.median(adds), 3),
        "add_max_s": round(max(adds), 3),
        "drop_max_s": round(max(drops), 3),
    }


def report_many(figures: Figures, console: Console) -> None:
    heads = ("queries", "start s", "add one s", "batches", "batch p50 s", "max s", "lag s", "at the end", "results")
    row = (
        f"{figures['queries']:,}",
        f"{figures['start_s']:.1f}",
        f"{figures['add_s']:.2f}",
        f"{figures['batches']:,}",
        f"{figures['batch_p50_s']:.2f}",
        f"{figures['batch_max_s']:.2f}",
        f"{figures['lag_first_s']:.1f}",
        f"{figures['lag_last_s']:.1f}",
        f"{figures['results']:,}",
    )
    print_table(
        console, f"queries of one join, {figures['rows_per_s']:,} rows/s of each stream, on Spark", heads, [row]
    )


def report_living_changes(figures: Figures, console: Console) -> None:
    heads = ("added and dropped", "batch p50 s", "at most s", "longest s", "add p50 s", "add max s", "drop max s")
    columns = ("batch_p50_s", "limit_s", "batch_max_s", "add_p50_s", "add_max_s", "drop_max_s")
    rows = [(item["what"], *(f"{item[name]:.2f}" for name in columns)) for item in figures["changes"]]
    print_table(console, f"queries that come and go beside {FEW}, on Spark", heads, rows, left=("added and dropped",))
