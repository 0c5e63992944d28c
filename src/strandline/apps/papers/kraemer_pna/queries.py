"""The queries of chapter 14 on the engine: the five on auctions, count windows, and what a window has to store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from strandline.apps.papers.engine_runs import EngineFigures, RecordedStream, compare, make_pipelines, run
from strandline.apps.papers.kraemer_pna.auction_streams import Auctions
from strandline.core.temporal import SECOND
from strandline.core.types import BIGINT

BATCH_BIDS: Final = 1_000
REPEAT: Final = 2  # the best counts
BATCH_LENGTHS: Final = (100, 1_000, 10_000)  # bids

_PRICES: Final = (
    "(SELECT item, price FROM bid WINDOW(RANGE 2 DAYS) "
    "UNION ALL SELECT item, start_price AS price FROM open_auction WINDOW(RANGE 2 DAYS)) AS p"
)
QUERIES: Final = {
    "Q1 currency conversion": "SELECT item, 0.89 * price AS euro, bidder FROM bid",
    "Q2 selection": "SELECT * FROM bid WHERE item = 1007 OR item = 1020 OR item = 2001 OR item = 2019 OR item = 1087",
    "Q3 short auctions, hash": "SELECT o.item, o.start_price, o.seller FROM open_auction WINDOW(RANGE 5 HOURS) AS o, "
    "closed_auction AS c WHERE o.item = c.item",
    "Q3 short auctions, nested loops": "SELECT o.item, o.start_price, o.seller "
    "FROM open_auction WINDOW(RANGE 5 HOURS) AS o, closed_auction AS c WHERE o.item <= c.item AND o.item >= c.item",
    "Q4 highest bid": "SELECT item, price FROM bid WINDOW(RANGE 10 MINUTES) "
    "WHERE price = (SELECT MAX(price) FROM bid WINDOW(RANGE 10 MINUTES))",
    "Q5 closing price, plan 1": "SELECT g.item, o.seller, g.price "
    f"FROM (SELECT p.item, MAX(p.price) AS price FROM {_PRICES}, closed_auction AS c "
    "WHERE p.item = c.item GROUP BY p.item) AS g, open_auction WINDOW(RANGE 2 DAYS) AS o WHERE g.item = o.item",
    "Q5 closing price, plan 2": f"SELECT p.item, o.seller, MAX(p.price) AS price FROM {_PRICES}, closed_auction AS c, "
    "open_auction WINDOW(RANGE 2 DAYS) AS o WHERE p.item = c.item AND c.item = o.item GROUP BY p.item, o.seller",
}
COUNT_WINDOWS: Final = (1, 10, 50, 100)
WINDOWS: Final = {"now": 1, "10 minutes": 600 * SECOND, "5 hours": 5 * 3_600 * SECOND}


def measure(query: str, auctions: Auctions, batch: int = BATCH_BIDS, repeat: int = REPEAT) -> dict[str, EngineFigures]:
    """All data as fast as possible, in batches of equally many bids; the fastest of several runs of each strategy."""
    streams = [made for made in auctions.streams if made.name in query]
    last = max(made.instants[-1] for made in auctions.streams)
    cuts = [*auctions.bid.instants[batch::batch].tolist(), int(last) + 1]
    return compare(query, streams, cuts, 0, repeat)


@dataclass(frozen=True, slots=True)
class WindowContent:
    """Elements that a window has stored after an instant at which some came: the mean, and the most."""

    mean: float
    most: int


def window_content(auctions: Auctions, length: int) -> WindowContent:
    """What a window with signs must store of the bids: all that have not ended."""
    at = auctions.bid.instants
    instants = np.unique(at)
    inside = np.searchsorted(at, instants, "right") - np.searchsorted(at, instants - length, "right")
    return WindowContent(float(inside.mean()), int(inside.max()))


@dataclass(frozen=True, slots=True)
class FirstResult:
    """Seconds from the first element to the first result of a count window: when its end is known, as in the thesis,
    and in the engine."""

    rows: int
    end_known: float
    engine: dict[str, float]


def count_window_latency(rows: int) -> FirstResult:
    """Numbers at 50 per second, one per batch."""
    distance = SECOND // 50
    stream = RecordedStream.make("a", {"k": BIGINT}, {"k": np.arange(250)}, np.arange(250) * distance)
    cuts = [number * distance + 1 for number in range(250)]
    first: dict[str, float] = {}
    pipelines = make_pipelines(f"SELECT k FROM a WINDOW(ROWS {rows}) AS a", [stream], cuts, 0)
    for strategy, pipeline in pipelines.items():
        seen: list[int] = []

        def keep(frame: pl.DataFrame, seen: list[int] = seen) -> None:
            seen.append(frame.height)

        run(pipeline, [stream], cuts, 0, keep)
        first[strategy] = next(number for number, height in enumerate(seen) if height) * distance / SECOND
    return FirstResult(rows, rows * distance / SECOND, first)
