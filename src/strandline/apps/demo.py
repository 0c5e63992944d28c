"""The demonstration: a generated market, three continuous queries, live, and a check at the end."""

from __future__ import annotations

import time
from typing import Any

import polars as pl
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

import strandline
from strandline.connectors.sources.base import open_source
from strandline.core.temporal import BEFORE_ALL, SECOND, show_instant
from strandline.database.database import Database, EngineName
from strandline.database.query import Query

RATE = 2_000
STREAMS = f"""
CREATE STREAM trades (key INT, random DOUBLE, ts TIMESTAMP)
  SOURCE rate(rows_per_second => {RATE}, total => :total, keys => 6, seed => 1) ORDERED BY ts;
CREATE STREAM orders (key INT, random DOUBLE, ts TIMESTAMP)
  SOURCE rate(rows_per_second => 40, total => :orders, keys => 6, seed => 2) ORDERED BY ts;
"""
QUERIES = {
    "prices": """SELECT key AS stock, COUNT(*) AS trades, AVG(100 * random) AS average, MAX(100 * random) AS highest
  FROM trades WINDOW(RANGE 5 SECONDS) GROUP BY key""",
    "pulse": """SELECT COUNT(*) AS trades, MIN(random) AS lowest
  FROM trades WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND)""",
    "matches": """SELECT o.key AS stock, COUNT(*) AS matches
  FROM orders WINDOW(RANGE 2 SECONDS) o, trades WINDOW(RANGE 2 SECONDS) t
 WHERE o.key = t.key AND t.random < o.random / 10 GROUP BY o.key""",
}


def show(console: Console, seconds: int, engine: EngineName) -> None:
    """Run the demonstration for this many seconds of stream time."""
    began = time.monotonic()
    console.print("[bold]strandline[/bold]: continuous SQL, exact at every instant\n")
    with strandline.connect(engine=engine, shards=2) as database:
        with console.status("starting") as status:
            database.warm(status.update)
        text = STREAMS.replace(":total", str(RATE * seconds)).replace(":orders", str(40 * seconds))
        database.sql(text)
        console.print(text.strip(), markup=False)
        for name, sql in QUERIES.items():
            console.print(f"\n[bold]{name}[/bold]:", end=" ")
            console.print(sql, markup=False)
        started = {name: database.sql(sql, name=name) for name, sql in QUERIES.items()}
        queries = {name: query for name, query in started.items() if isinstance(query, Query)}
        _watch(console, queries, began)
        _check(console, database, queries["prices"])


def _watch(console: Console, queries: dict[str, Query], began: float) -> None:
    first: float | None = None
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while True:
            waited = [query.await_end(0.4 / len(queries)) for query in queries.values()]
            shown = [_panel(name, query) for name, query in queries.items()]
            live.update(Group(Columns(shown), _footer(list(queries.values()))))
            if first is None and any(query.progress > BEFORE_ALL for query in queries.values()):
                first = time.monotonic() - began
            if all(waited):
                break
    if not console.is_terminal:  # there the last picture ends without a line break
        console.print()
    console.print(f"first live result after {first or 0:.1f} s; the stream and the queries have ended")


def _panel(name: str, query: Query) -> Panel:
    table = Table(*(column.name for column in query.columns), box=None, pad_edge=False)
    progress = query.progress
    if progress > BEFORE_ALL:
        # At the end the result of one second before: after it the windows run empty.
        at = _end_of(query) - SECOND if query.ended else None
        frame: pl.DataFrame = query.snapshot(at, form="polars")
        for row in frame.sort(frame.columns[0]).iter_rows():
            table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row))
    when = "ended" if query.ended else "waiting" if progress == BEFORE_ALL else show_instant(progress)[11:23]
    return Panel(table, title=f"{name} at {when}", title_align="left")


def _end_of(query: Query) -> int:
    return max(status.high for status in query.heartbeats().values())


def _footer(queries: list[Query]) -> str:
    metrics = [query.metrics() for query in queries]
    rows = sum(sum(m["rows_in"].values()) for m in metrics)
    state = sum(m["state_rows"] for m in metrics)
    return f"{rows:,} rows in, {sum(m['rows_out'] for m in metrics):,} results, {state:,} rows of state"


def _check(console: Console, database: Database, query: Query) -> None:
    """Verify exactness: the result at an instant is the plain query over the window contents at that instant."""
    stream: Any = database.catalog.get("trades")
    source = open_source(stream, query.checkpoint / "sources" / "trades")
    total = int(stream.source.options["total"])
    rows = pl.concat([chunk.rows for chunk in source.read(0, total, frozenset())])
    end = _end_of(query)
    instants = [end - i * SECOND // 7 for i in range(1, 50)]
    wrong = 0
    for t in instants:
        window = rows.filter((pl.col("@from") <= t) & (pl.col("@from") > t - 5 * SECOND))
        price = 100 * pl.col("random")
        plain = window.group_by("key").agg(pl.len(), price.mean(), price.max().alias("max")).sort("key")
        ours = query.snapshot(t, form="polars").sort("stock")
        same = plain.height == ours.height and all(
            abs(a - b) < 1e-9 * max(abs(a), 1)
            for one, two in zip(plain.iter_rows(), ours.iter_rows(), strict=True)
            for a, b in zip(one, two, strict=True)
        )
        wrong += not same
    verdict = "[green]all equal[/green]" if not wrong else f"[red]{wrong} differ[/red]"
    console.print(f"checked: at {len(instants)} instants, prices against the plain query over the window: {verdict}")
