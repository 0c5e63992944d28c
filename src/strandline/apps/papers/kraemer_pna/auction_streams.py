"""The auction data of the thesis: 1,000,987 bids on 99,990 auctions by 9,958 people, in bursts.

The thesis names these numbers, ten bids per item, auctions of at most two days, and how many bids a window holds: 97 in
ten minutes and 2,880 in five hours, which is 0.16 per second, and up to 17 at one instant, 6 on average. A burst of
bids is on one item, at one instant within the time of its auction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.apps.papers.engine_runs import RecordedStream
from strandline.core.temporal import MILLISECOND
from strandline.core.types import BIGINT

BIDS, AUCTIONS, PEOPLE = 1_000_987, 99_990, 9_958
FIRST_ITEM: Final = 1_000
BIDS_PER_SECOND: Final = 0.16
LONGEST_AUCTION: Final = 2 * 86_400_000  # milliseconds
MEAN_BURST, LARGEST_BURST = 6, 17


@dataclass(frozen=True, slots=True)
class Auctions:
    """The three streams, and how many people there are."""

    bid: RecordedStream
    open_auction: RecordedStream
    closed_auction: RecordedStream
    people: int

    def first(self, bids: int) -> Auctions:
        """What comes before a bid of this number."""
        end = int(self.bid.instants[min(bids, len(self.bid.instants)) - 1])
        streams = [RecordedStream(made.name, made.columns, made.rows[: _before(made, end)]) for made in self.streams]
        return Auctions(streams[0], streams[1], streams[2], self.people)

    @property
    def streams(self) -> tuple[RecordedStream, RecordedStream, RecordedStream]:
        return self.bid, self.open_auction, self.closed_auction


def generate_auctions(scale: float, seed: int = 1) -> Auctions:
    """A share of the bids, auctions and people, at the same rates."""
    draw = np.random.Generator(np.random.PCG64(seed))
    bids, auctions, people = (max(1, round(scale * number)) for number in (BIDS, AUCTIONS, PEOPLE))
    opened = np.sort(draw.integers(0, max(1, round(1000 * bids / BIDS_PER_SECOND)), auctions))
    closed = opened + draw.integers(1, LONGEST_AUCTION + 1, auctions)
    start_price, seller = draw.integers(1, 1_000, auctions), draw.integers(0, people, auctions)

    sizes = _burst_sizes(bids, draw)
    item = draw.integers(0, auctions, len(sizes))
    at = opened[item] + (draw.random(len(sizes)) * (closed - opened)[item]).astype(np.int64)
    burst = np.repeat(np.arange(len(sizes)), sizes)
    rows = (
        pl.DataFrame({"item": item[burst], "at": at[burst]})
        .sort("at", "item", maintain_order=True)
        .with_columns(
            pl.Series("raise", draw.integers(1, 100, bids)), pl.Series("bidder", draw.integers(0, people, bids))
        )
    )
    price = rows.select(pl.col("raise").cum_sum().over("item"))["raise"] + start_price[rows["item"].to_numpy()]
    items = np.arange(FIRST_ITEM, FIRST_ITEM + auctions)
    order = np.argsort(closed, kind="stable")
    return Auctions(
        RecordedStream.make(
            "bid",
            {"item": BIGINT, "price": BIGINT, "bidder": BIGINT},
            {"item": rows["item"] + FIRST_ITEM, "price": price, "bidder": rows["bidder"]},
            rows["at"] * MILLISECOND,
        ),
        RecordedStream.make(
            "open_auction",
            {"item": BIGINT, "start_price": BIGINT, "seller": BIGINT},
            {"item": items, "start_price": start_price, "seller": seller},
            opened * MILLISECOND,
        ),
        RecordedStream.make("closed_auction", {"item": BIGINT}, {"item": items[order]}, closed[order] * MILLISECOND),
        people,
    )


def _before(made: RecordedStream, instant: int) -> int:
    return int(np.searchsorted(made.instants, instant, "right"))


def _burst_sizes(bids: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Sizes of bursts with this sum."""
    count = -(-bids // MEAN_BURST)
    sizes = np.clip(1 + draw.poisson(MEAN_BURST - 1, count), 1, LARGEST_BURST)
    while (missing := bids - int(sizes.sum())) != 0:
        step = 1 if missing > 0 else -1
        fit = np.flatnonzero((sizes + step >= 1) & (sizes + step <= LARGEST_BURST))
        sizes[draw.choice(fit, min(abs(missing), len(fit)), replace=False)] += step
    return sizes
