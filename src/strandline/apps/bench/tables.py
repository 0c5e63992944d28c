"""Benchmark of tables: what statements, promises and restarts cost, without a query over them.

The table has a BIGINT key, two VARCHAR columns and a DOUBLE, as a dimension of a star schema has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from rich.console import Console

from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.connectors.tables.log import LogReader
from strandline.connectors.tables.statements import InsertRows, UpdateRows
from strandline.connectors.tables.store import TableStore, open_table
from strandline.core.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from strandline.database.database import Database
from strandline.logical.catalog import Table
from strandline.logical.expressions import Call, ColumnRef, Literal

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

THREADS: Final = 8
SECONDS: Final = 5.0
CALL_ROWS: Final = 1_000_000
COLUMNS: Final = (("id", BIGINT), ("name", VARCHAR), ("city", VARCHAR), ("price", DOUBLE))


def _rows(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    """Rows of a dimension for some keys."""
    key = pl.Series("id", keys)
    return pl.select(
        key,
        pl.format("customer {}", key).alias("name"),
        pl.format("city {}", key % 1000).alias("city"),
        (key * 0.01).alias("price"),
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _upserts_per_second(store: TableStore, keys: int) -> float:
    """Single-row upserts of random keys from several threads at once."""
    drawn = _rows(np.random.default_rng(1).integers(0, keys, THREADS * 1000))
    rows = [drawn.slice(number, 1) for number in range(drawn.height)]
    return _calls_per_second(lambda number: store.commit(InsertRows(rows[number % len(rows)], "update")))


def _sql_upserts_per_second(keys: int) -> float:
    """The same as texts, each with other literals."""
    with Database(engine="local") as database:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
        database.sql(f"CREATE TABLE t ({columns}, PRIMARY KEY (id))")
        database.insert("t", _rows(np.arange(keys)))
        texts = [_upsert_text(int(key)) for key in np.random.default_rng(1).integers(0, keys, THREADS * 1000)]
        return _calls_per_second(lambda number: database.sql(texts[number % len(texts)]))


def _upsert_text(key: int) -> str:
    values = f"({key}, 'customer {key}', 'city {key % 1000}', {key * 0.01:.2f})"
    assigned = ", ".join(f"{name} = excluded.{name}" for name, _ in COLUMNS[1:])
    return f"INSERT INTO t VALUES {values} ON CONFLICT DO UPDATE SET {assigned}"


def _calls_per_second(work: Callable[[int], object]) -> float:
    """How often several threads together do something in a second; each call has a number of its own."""
    counts = [0] * THREADS
    end = time.perf_counter() + SECONDS

    def run(number: int) -> None:
        while time.perf_counter() < end:
            work(number * 1000 + counts[number])
            counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


def _update_price(store: TableStore, key: int) -> None:
    by_key = Call("=", (ColumnRef("id", BIGINT), Literal(key, BIGINT)), BOOLEAN)
    store.commit(UpdateRows((("price", Literal(1.5, DOUBLE)),), by_key))


def run_tables(bench: Bench) -> Figures:
    """Statements, promises and restarts of a table, without a query."""
    rows = bench.rows or 10_000_000
    figures: Figures = {"bench": "tables", "rows": rows}
    table = Table("t", COLUMNS, ("id",), directory=str(bench.fresh("table")))
    store = open_table(table)
    store.commit(InsertRows(_rows(np.arange(1))))  # machine code is loaded
    _measure_statements(store, bench, rows, figures)
    store.close()
    _measure_restart(table, figures)
    small = replace(table, directory=str(bench.fresh("table")))
    store = open_table(small)
    store.commit(InsertRows(_rows(np.arange(100_000))))
    figures["upserts_per_s"] = round(_upserts_per_second(store, 100_000))
    figures["sql_upserts_per_s"] = round(_sql_upserts_per_second(100_000))
    figures["promise_us"] = round(_seconds(lambda: [store.promise(0) for _ in range(1000)]) * 1000)
    _measure_reading(store, figures)
    _measure_past(store, figures)
    store.close()
    figures["open_changes_s"] = round(_seconds(lambda: open_table(small).close()), 2)
    figures["changes"] = store.reach
    return figures


def _measure_statements(store: TableStore, bench: Bench, rows: int, figures: Figures) -> None:
    for begin in range(1, rows, CALL_ROWS):
        frame = _rows(np.arange(begin, min(rows, begin + CALL_ROWS)))
        seconds = _seconds(lambda frame=frame: store.commit(InsertRows(frame)))  # type: ignore[misc]
        figures["insert_call_s"] = max(round(seconds, 2), figures.get("insert_call_s", 0.0))
        bench.say(f"{frame.height:,} rows in one call: {seconds:.2f} s")
    draw = np.random.default_rng(1)
    times = [_seconds(lambda k=int(k): _update_price(store, k)) for k in draw.integers(0, rows, 200)]  # type: ignore[misc]
    figures["update_ms"] = round(float(np.median(times)) * 1000, 2)
    figures["update_worst_ms"] = round(max(times) * 1000, 2)


def _measure_restart(table: Table, figures: Figures) -> None:
    began = time.perf_counter()
    store = open_table(table)
    figures["open_s"] = round(time.perf_counter() - began, 2)
    figures["log_mib"] = round(sum(f.stat().st_size for f in Path(table.directory).iterdir()) / 2**20)
    store.close()


def _measure_reading(store: TableStore, figures: Figures) -> None:
    """The last hundred changes of many, as a query reads them batch by batch."""
    reader = LogReader(Path(store.table.directory), store.log_schema)
    list(reader.read(store.reach - 100, store.reach))
    times = []
    for _ in range(100):
        store.commit(InsertRows(_rows(np.arange(1)), "update"))
        times.append(_seconds(lambda: list(reader.read(store.reach - 100, store.reach))))
    figures["read_100_us"] = round(float(np.median(times)) * 1e6)


def _measure_past(store: TableStore, figures: Figures) -> None:
    """The content at random instants of the past."""
    first, last = store.history().get_column("@from").min(), store.last_change
    draw = np.random.default_rng(1)
    instants = [int(at) for at in draw.integers(first, last, 20)]  # type: ignore[arg-type]
    times = [_seconds(lambda at=at: store.content_at(at)) for at in instants]  # type: ignore[misc]
    figures["past_ms"] = round(float(np.median(times)) * 1000)


def report_tables(figures: Figures, console: Console) -> None:
    rows = [
        ("single-row upserts per second, 8 threads", f"{figures['upserts_per_s']:,}"),
        ("the same as texts of SQL", f"{figures['sql_upserts_per_s']:,}"),
        (f"{CALL_ROWS:,} rows in one call", f"{figures['insert_call_s']} s"),
        (f"UPDATE by key in {figures['rows']:,} rows, median", f"{figures['update_ms']} ms"),
        ("the slowest of 200", f"{figures['update_worst_ms']} ms"),
        (f"opening {figures['rows']:,} rows, {figures['log_mib']:,} MiB", f"{figures['open_s']} s"),
        (f"opening {figures['changes']:,} changes, mostly single ones", f"{figures['open_changes_s']} s"),
        ("a promise", f"{figures['promise_us']} µs"),
        ("reading the last 100 changes", f"{figures['read_100_us']} µs"),
        ("the content at an instant of the past, 100,000 rows", f"{figures['past_ms']} ms"),
    ]
    print_table(console, "tables", ("what", "figure"), rows, left=("what",))
