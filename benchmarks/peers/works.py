"""What is measured: each workload by its streams and by its answer, in terms that every engine can express.

Times are whole milliseconds, counted in microseconds: the finest time that all engines share.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MS = 10_000
WINDOW_US = WINDOW_MS * 1000
ROWS_PER_MS = 20  # of each stream


@dataclass(frozen=True)
class Work:
    """Streams of (t, k, v), and the answer as a bag of rows."""

    name: str
    title: str
    answer: str
    streams: tuple[str, ...]
    rows: int  # of each stream; of NEXMark events of all kinds
    keys: int
    columns: tuple[str, ...]
    latency: bool = False
    table: str = ""  # a table beside the streams, with a row for each key; its load is measured apart
    engines: tuple[str, ...] = ()  # those that take part, or all

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams, and the table if there is one."""
        return (*self.streams, self.table) if self.table else self.streams

    @property
    def nexmark(self) -> bool:
        return self.name.startswith("q")


WORKS: dict[str, Work] = {
    work.name: work
    for work in (
        Work(
            "join",
            "sliding-window join",
            "pairs of rows of a and b with equal k that are less than 10 s apart",
            ("a", "b"),
            1_000_000,
            200_000,
            ("k", "av", "bv"),
            latency=True,
        ),
        Work(
            "join3",
            "three-way join",
            "triples of rows of a, b and c with equal k, all less than 10 s apart from each other",
            ("a", "b", "c"),
            500_000,
            200_000,
            ("k", "av", "bv", "cv"),
        ),
        Work(
            "aggregate",
            "per-event sliding aggregate",
            "for every row: COUNT(*) and SUM(v) of the rows with its k in the 10 s up to and including it",
            ("a",),
            2_000_000,
            1_000,
            ("k", "t", "n", "s"),
            latency=True,
        ),
        Work(
            "distinct",
            "distinct over a window",
            "for every k the longest intervals [from, until) in which the last 10 s hold a row of it at every instant",
            ("a",),
            1_000_000,
            100_000,
            ("k", "t", "u"),
        ),
        Work(
            "filter",
            "filter and projection",
            "k and 2 v of the rows with v < 100,000, a tenth of them",
            ("a",),
            2_000_000,
            1_000,
            ("k", "w"),
        ),
        # LAG of the time, not of v: rows of one key may have the same millisecond, in any order.
        Work(
            "over",
            "window functions",
            "for every row: AVG(v) of the rows with its k in the 10 s up to and including it, and the time of the last",
            ("a",),
            4_000_000,
            1_000,
            ("k", "t", "average", "earlier"),
            engines=("strandline", "flink", "duckdb"),
        ),
        Work(
            "enrich",
            "stream joined with a changing table",
            "every row with the value that d had for its k at its time; 1,000 rows of d are replaced per second",
            ("a",),
            2_000_000,
            10_000_000,
            ("k", "av", "dv"),
            latency=True,
            table="d",
            engines=("strandline", "spark", "flink", "duckdb"),
        ),
        Work(
            "enrich_static",
            "stream joined with a table that does not change",
            "every row with the value that d has for its k",
            ("a",),
            2_000_000,
            10_000_000,
            ("k", "av", "dv"),
            table="d",
            engines=("strandline", "spark", "flink", "duckdb"),
        ),
    )
}


EVENTS = 400_000
_BID = ("auction", "bidder", "price", "date_time", "extra")
NEXMARK = (
    ("q0", "all bids", ("bid",), _BID),
    ("q1", "all bids with prices in euro", ("bid",), ("auction", "bidder", "euro", "date_time", "extra")),
    ("q2", "auction and price of the bids on every 123rd auction", ("bid",), ("auction", "price")),
    (
        "q3",
        "sellers in three states with auctions of category 10",
        ("person", "auction"),
        ("name", "city", "state", "id"),
    ),
    ("q4", "at the end: average of the winning prices per category", ("auction", "bid"), ("category", "average")),
    ("q5", "for every window of 10 s by 2 s: the auctions with most bids", ("bid",), ("auction", "num", "u")),
    (
        "q6",
        "at the end: average price of the last ten auctions of each seller",
        ("auction", "bid"),
        ("seller", "average"),
    ),
    ("q7", "for every 10 s: the bids of the highest price", ("bid",), ("auction", "price", "bidder", "date_time", "u")),
    ("q8", "for every 10 s: who registered and opened an auction", ("person", "auction"), ("id", "name", "u")),
)
WORKS |= {
    name: Work(name, f"NEXMark {name}", answer, streams, EVENTS, 0, columns)
    for name, answer, streams, columns in NEXMARK
}

TABLES = {
    **{key: {"t": "BIGINT", "k": "BIGINT", "v": "BIGINT"} for key in "abcd"},
    "person": {"id": "BIGINT", "name": "VARCHAR", "city": "VARCHAR", "state": "VARCHAR", "date_time": "BIGINT"},
    "auction": dict.fromkeys(("id", "seller", "category", "date_time", "expires"), "BIGINT"),
    "bid": {**dict.fromkeys(("auction", "bidder", "price", "date_time"), "BIGINT"), "extra": "VARCHAR"},
}
"""Columns of the files. Times are microseconds."""


@dataclass(frozen=True)
class Engine:
    title: str
    streams: bool = True  # else a limit: all input at once


ENGINES: dict[str, Engine] = {
    "strandline": Engine("strandline"),
    "spark": Engine("Spark alone"),
    "flink": Engine("Apache Flink"),
    "pathway": Engine("Pathway"),
    "bytewax": Engine("Bytewax"),
    "duckdb": Engine("DuckDB (one shot)", streams=False),
    "polars": Engine("Polars (one shot)", streams=False),
}
