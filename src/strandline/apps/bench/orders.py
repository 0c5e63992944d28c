"""Benchmark of join ordering: auctions with skewed rates, joined in the written and in the planned order.

The streams are like those of NEXMark, with clicks beside: most events are clicks and bids, few auctions and persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console

from strandline.apps.bench.costs import as_written, measure, predicted_ms
from strandline.apps.bench.generated_streams import GeneratedStream, bound, statistics_of
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.planner.estimate import estimate
from strandline.planner.physical.lowering import lower
from strandline.planner.planner import PlanningInputs, plan_query
from strandline.planner.prices import load_prices

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

BIDS: Final = GeneratedStream("bids", 23_000, {"auction": 10_000, "bidder": 20_000}, ("price",))
CLICKS: Final = GeneratedStream("clicks", 30_000, {"auction": 10_000, "person": 20_000}, ("seconds",))
AUCTIONS: Final = GeneratedStream("auctions", 1_500, {"id": 10_000, "seller": 20_000, "category": 20}, ("reserve",))
PERSONS: Final = GeneratedStream("persons", 500, {"id": 20_000, "state": 50}, ("rating",))


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """Streams, seconds of a window, and a query whose text joins the fast streams first."""

    streams: tuple[GeneratedStream, ...]
    window: float
    text: str


_W: Final = "WINDOW(RANGE {w} SECONDS)"
QUERIES: Final[Mapping[str, BenchQuery]] = {
    "bids of watched auctions": BenchQuery(
        (BIDS, CLICKS, AUCTIONS), 2,
        f"SELECT b.price, c.seconds, a.reserve FROM bids {_W} b JOIN clicks {_W} c ON b.auction = c.auction"
        f" JOIN auctions {_W} a ON b.auction = a.id WHERE a.category = 3",
    ),
    "who clicks before bidding": BenchQuery(
        (BIDS, CLICKS, PERSONS), 5,
        f"SELECT b.price, c.seconds, p.rating FROM bids {_W} b JOIN clicks {_W} c ON b.bidder = c.person"
        f" JOIN persons {_W} p ON b.bidder = p.id WHERE p.state = 7",
    ),
    "bids by seller": BenchQuery(
        (BIDS, AUCTIONS, PERSONS), 10,
        f"SELECT b.price, a.reserve, p.rating FROM bids {_W} b JOIN auctions {_W} a ON b.auction = a.id"
        f" JOIN persons {_W} p ON a.seller = p.id",
    ),
    "bids, clicks, auctions, sellers": BenchQuery(
        (BIDS, CLICKS, AUCTIONS, PERSONS), 2,
        f"SELECT b.price, c.seconds, a.reserve, p.rating FROM bids {_W} b JOIN clicks {_W} c ON b.auction = c.auction"
        f" JOIN auctions {_W} a ON b.auction = a.id JOIN persons {_W} p ON a.seller = p.id",
    ),
    "bidders and sellers of one state": BenchQuery(
        (BIDS, AUCTIONS, PERSONS), 5,
        f"SELECT b.price, a.reserve, p.rating, q.rating AS other FROM bids {_W} b JOIN auctions {_W} a"
        f" ON b.auction = a.id JOIN persons {_W} p ON b.bidder = p.id JOIN persons {_W} q ON a.seller = q.id"
        " WHERE p.state = q.state",
    ),
}  # fmt: skip


def run_query(query: BenchQuery, repeat: int) -> Figures:
    """Both orders of a query: milliseconds of CPU per second, and whether the results agree."""
    statistics = statistics_of(query.streams)
    streams = [made.stream for made in query.streams]
    plan = bound(query.text.replace("{w}", f"{query.window:g}"), query.streams)
    figures: Figures = {"window_s": query.window}
    results = set()
    chosen = plan_query("q", plan, PlanningInputs(streams, statistics, load_prices(), 1))
    for name, pipeline in (("text", lower("q", as_written(plan), streams, 1)), ("chosen", chosen.physical)):
        best = measure(pipeline, query.streams, query.window, 1.0, repeat)
        results.add(best.result)
        figures |= {
            f"{name}_ms": round(1000 * best.seconds, 2),
            f"{name}_rows": round(best.rows),
            f"{name}_predicted_ms": round(predicted_ms(estimate(pipeline, statistics)), 2),
        }
    return figures | {"ratio": round(figures["text_ms"] / figures["chosen_ms"], 2), "same_answer": len(results) == 1}


def run_orders(bench: Bench) -> Figures:
    """Joins of streams with skewed rates, in the order of the text and in the order that the planner chooses."""
    measurements = []
    for name in bench.chosen(QUERIES):
        figures = {"query": name, **run_query(QUERIES[name], bench.repeat)}
        bench.say(f"{name}: {figures['ratio']} times")
        measurements.append(figures)
    return {"bench": "orders", "orders": measurements, "same_answer": None}


def report_orders(figures: Figures, console: Console) -> None:
    heads = ("query", "window s", "text ms/s", "chosen ms/s", "times", "text state rows", "chosen state rows", "same")
    rows = [
        (
            item["query"], f"{item['window_s']:g}", f"{item['text_ms']:,.1f}", f"{item['chosen_ms']:,.1f}",
            f"{item['ratio']:.1f}", f"{item['text_rows']:,}", f"{item['chosen_rows']:,}", str(item["same_answer"]),
        )
        for item in figures["orders"]
    ]  # fmt: skip
    print_table(console, "orders of joins", heads, rows, left=("query",))
    console.print("ms/s: CPU milliseconds per second of stream time, in one process; times: text by chosen")
