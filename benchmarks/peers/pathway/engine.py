"""Pathway: its tables and temporal joins, two worker threads, CSV in and CSV out.

Files are read in static mode: Pathway takes all input as one batch, which is the case that suits it best.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["PATHWAY_THREADS"] = "2"  # read when Pathway is loaded
sys.path.append(str(Path(__file__).resolve().parents[1]))

import harness
import nexmark
import pathway as pw
from harness import Delays, Job
from works import TABLES
from works import WINDOW_US as W

SCHEMAS = {
    stream: pw.schema_from_types(
        **{"uid" if name == "id" else name: str if kind == "VARCHAR" else int for name, kind in columns.items()}
    )
    for stream, columns in TABLES.items()
}
Reader = Callable[[str], pw.Table]


def start() -> None:
    return None


def version() -> str:
    return pw.__version__


def _pairs(read: Reader) -> pw.Table:
    a, b = read("a"), read("b")
    near = pw.temporal.interval(1 - W, W - 1)
    joined = a.interval_join(b, a.t, b.t, near, a.k == b.k)
    return joined.select(k=a.k, at=a.t, bt=b.t, av=a.v, bv=b.v)


def join(read: Reader) -> pw.Table:
    return _pairs(read).select(pw.this.k, pw.this.av, pw.this.bv)


def join3(read: Reader) -> pw.Table:
    pairs, c = _pairs(read), read("c")
    near = pw.temporal.interval(1 - W, W - 1)
    joined = pairs.interval_join(c, pairs.at, c.t, near, pairs.k == c.k)
    triples = joined.select(pairs.k, pairs.av, pairs.bv, cv=c.v, apart=pairs.bt - c.t)
    triples = triples.filter((triples.apart < W) & (triples.apart > -W))
    return triples.select(pw.this.k, pw.this.av, pw.this.bv, pw.this.cv)


@pw.udf(deterministic=True)
def last_window(start: int, rows: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int]]:
    """Time, count and sum for each row of the second half of the double window that begins at `start`."""
    found, first, total = [], 0, 0
    for number, (t, v) in enumerate(rows):
        total += v
        while rows[first][0] <= t - W:
            total -= rows[first][1]
            first += 1
        if t >= start + W:
            found.append((t, number - first + 1, total))
    return found


def aggregate(read: Reader) -> pw.Table:
    """Windows of twice the length hold, for each row of their second half, all rows of the last 10 s.

    Pathway has no aggregate that moves with every event; a join of the stream with itself over 10 s would, but makes a
    row for every pair.
    """
    rows = read("a")
    double = rows.windowby(rows.t, window=pw.temporal.sliding(hop=W, duration=2 * W, origin=0), instance=rows.k)
    grouped = double.reduce(
        k=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        rows=pw.reducers.sorted_tuple(pw.make_tuple(pw.this.t, pw.this.v)),
    )
    found = grouped.select(pw.this.k, each=last_window(pw.this.start, pw.this.rows)).flatten(pw.this.each)
    return found.select(pw.this.k, t=pw.this.each[0], n=pw.this.each[1], s=pw.this.each[2])


def distinct(read: Reader) -> pw.Table:
    """A key is present from its first row to 10 s after the last one that follows in time: a session."""
    rows = read("a")
    sessions = rows.windowby(rows.t, window=pw.temporal.session(max_gap=W + 1), instance=rows.k)
    return sessions.reduce(k=pw.this._pw_instance, t=pw.this._pw_window_start, u=pw.this._pw_window_end + W)


def filter_(read: Reader) -> pw.Table:
    rows = read("a")
    return rows.filter(rows.v < 100_000).select(pw.this.k, w=pw.this.v * 2)


def _runner(query: Callable[[Reader], pw.Table]) -> Callable[[Job, Path], None]:
    def run(job: Job, place: Path) -> None:
        pw.internals.parse_graph.G.clear()

        def read(stream: str) -> pw.Table:
            layout = "uids" if "id" in TABLES[stream] else "pieces"  # rows of Pathway have an `id` of their own
            return pw.io.csv.read(f"{job.data}/{layout}/{stream}/", schema=SCHEMAS[stream], mode="static")

        found = query(read)
        pw.io.csv.write(found, place / "out.csv")
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    return run


class Paced(pw.io.python.ConnectorSubject):
    """Rows as their time comes, a hundred times a second."""

    def __init__(self, job: Job, seed: int) -> None:
        super().__init__()
        self.job, self.seed = job, seed

    def run(self) -> None:
        keys = 100_000 if self.job.work == "join" else 1_000
        began, sent = time.time(), 0
        while sent < self.job.rate * self.job.paced_seconds:
            now = time.time()
            for number in range(sent, min(int((now - began) * self.job.rate), self.job.rate * self.job.paced_seconds)):
                key = (number * 2_654_435_761 + self.seed * 40_503) % (1 << 32) % keys
                self.next(t=int((began + number / self.job.rate) * 1e6), k=key, v=number)
                sent = number + 1
            time.sleep(0.01)


def _paced(job: Job) -> Delays:
    """A result counts when the function that is subscribed to it has it."""
    pw.internals.parse_graph.G.clear()
    delays: Delays = []

    def read(stream: str) -> pw.Table:
        return pw.io.python.read(Paced(job, ord(stream)), schema=SCHEMAS[stream], autocommit_duration_ms=20)

    if job.work == "join":
        pairs = _pairs(read)
        found = pairs.select(t=pw.if_else(pairs.at > pairs.bt, pairs.at, pairs.bt))
    else:
        found = aggregate(read)

    def heard(key: object, row: dict[str, int], at: int, is_addition: bool) -> None:
        if is_addition:
            delays.append((row["t"] / 1e3, time.time() * 1e3 - row["t"] / 1e3))

    # Pathway gives arguments by name, and one of the names hides the clock.
    pw.io.subscribe(found, on_change=lambda key, row, time, is_addition: heard(key, row, time, is_addition))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return delays


QUERIES = {"join": join, "join3": join3, "aggregate": aggregate, "distinct": distinct, "filter": filter_}
QUERIES |= nexmark.QUERIES
RUNS = {name: _runner(query) for name, query in QUERIES.items()}
PACED = {"join": _paced, "aggregate": _paced}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
