"""Report on chapter 14 of Krämer's thesis: intervals (TIA) against positive and negative elements (PNA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console

from strandline.apps.bench.form_strategies import STRATEGIES
from strandline.apps.console import print_table, status
from strandline.apps.papers.engine_runs import EngineFigures, compare, compare_default
from strandline.apps.papers.figure import Figure, FigureLine
from strandline.apps.papers.kraemer_pna import joins
from strandline.apps.papers.kraemer_pna.auction_streams import AUCTIONS, BIDS, PEOPLE, Auctions, generate_auctions
from strandline.apps.papers.kraemer_pna.queries import (
    BATCH_BIDS,
    BATCH_LENGTHS,
    COUNT_WINDOWS,
    QUERIES,
    REPEAT,
    WINDOWS,
    FirstResult,
    WindowContent,
    count_window_latency,
    measure,
    window_content,
)
from strandline.apps.papers.output import PaperOptions, PrintedStatement, draw, print_statements
from strandline.core.temporal import SECOND

SCALE: Final = 0.1
FEW_BIDS: Final = 200_000
WITH_STATE: Final = ("Q3 short auctions, hash", "Q4 highest bid", "Q5 closing price, plan 1")
JOIN_RANGES: Final = (1_000, 100)
NAMES: Final = {"intervals": "TIA", "changes": "PNA", "default": "default"}

RunsByQuery = dict[str, dict[str, EngineFigures]]  # by query and strategy


def report(options: PaperOptions, console: Console) -> None:
    scale = SCALE if options.scale is None else options.scale
    auctions = generate_auctions(scale)
    _facts(auctions, scale, console)
    measured: RunsByQuery = {}
    with status("running") as show_phase:
        for name, query in QUERIES.items():
            show_phase(f"running: {name}")
            measured[name] = measure(query, auctions)
    _runs(f"Figures 14.1, 14.5, 14.6, 14.7: CPU seconds, batches of {BATCH_BIDS:,} bids", measured, console)
    few = auctions.first(max(100, round(FEW_BIDS * scale)))
    lengths = {
        f"{name}, batches of {batch:,}": measure(QUERIES[name], few, batch)
        for name in WITH_STATE
        for batch in BATCH_LENGTHS
    }
    _runs(f"Batch length: the first {few.bid.rows.height:,} bids, CPU seconds", lengths, console)
    contents = {name: window_content(auctions, length) for name, length in WINDOWS.items()}
    rows = [(name, f"{content.mean:,.0f}", f"{content.most:,}") for name, content in contents.items()]
    title = "Figure 14.4: bids that a window with signs stores"
    print_table(console, title, ("window", "mean", "most"), rows, left=("window",))
    latencies = [count_window_latency(rows) for rows in COUNT_WINDOWS]
    heads = ("ROWS", "end known", *(NAMES[strategy] for strategy in STRATEGIES))
    cells = [
        (str(first.rows), f"{first.end_known:g}", *(f"{seconds:g}" for seconds in first.engine.values()))
        for first in latencies
    ]
    print_table(console, "Figure 14.8: seconds to the first result of a count window, 50 rows/s", heads, cells)
    followed = {largest: joins.follow(*joins.numbers(largest, joins.ELEMENTS)) for largest in JOIN_RANGES}
    _queues(followed, console)
    synthetic = _synthetic(max(1_000, round(joins.ELEMENTS * scale)))
    _runs("Figures 14.9 to 14.11 on the engine: CPU seconds of the joins, batches of a second", synthetic, console)
    found = [*_of_data(contents), *_of_runs(measured, latencies), *_of_joins(followed)]
    found.append(compare_default({**measured, **lengths, **synthetic}))
    print_statements(console, "The thesis' statements", found)
    draw(_figures(measured), options.directory, console)


def _facts(auctions: Auctions, scale: float, console: Console) -> None:
    counts = (auctions.bid.rows.height, auctions.open_auction.rows.height, auctions.people)
    rows = [
        (name, f"{printed:,}", f"{count:,}")
        for name, printed, count in zip(("bids", "auctions", "people"), (BIDS, AUCTIONS, PEOPLE), counts, strict=True)
    ]
    print_table(console, f"Data: {scale:g} of the thesis'", ("", "printed", "generated"), rows, left=("",))


def _ratio(figures: Mapping[str, EngineFigures], over: str = "changes", under: str = "intervals") -> float | None:
    if over not in figures or under not in figures:
        return None
    return figures[over].seconds / figures[under].seconds


def _runs(title: str, measured: RunsByQuery, console: Console) -> None:
    """Seconds by strategy, their ratio, that of elements between operators, the result, and whether it is the same."""
    rows = []
    for name, figures in measured.items():
        ratio = _ratio(figures)
        rows.append(
            (
                name,
                *(f"{found.seconds:.3f}" for found in figures.values()),
                "" if ratio is None else f"{ratio:.2f}",
                "" if ratio is None else f"{figures['changes'].passed / max(figures['intervals'].passed, 1):.2f}",
                *(f"{found.results:,}" for found in figures.values()),
                *(f"{found.state:,}" for found in figures.values()),
                "yes" if len({found.validity for found in figures.values()}) == 1 else "NO",
            )
        )
    names = [NAMES[strategy] for strategy in STRATEGIES]
    heads = [
        "query",
        *names,
        "PNA/TIA",
        "passed on",
        *(f"{n} elements" for n in names),
        *(f"{n} state" for n in names),
        "same",
    ]
    print_table(console, title, heads, rows, left=("query",))


def _queues(followed: Mapping[int, joins.JoinFigures], console: Console) -> None:
    heads = ("values", "stored", "matches", "queue in", "queue out", "ends: list", "heap", "starts: in", "out")
    rows = [
        (
            f"1 to {largest:,}",
            f"{found.stored:.0f}",
            f"{found.matches:.2f}",
            f"{found.input_queue:.2f}",
            f"{found.output_queue:.2f}",
            f"{found.list_comparisons:.1f}",
            f"{found.heap_comparisons:.1f}",
            f"{found.input_comparisons:.1f}",
            f"{found.output_comparisons:.1f}",
        )
        for largest, found in followed.items()
    ]
    title = "Figures 14.9 to 14.11: sizes, and steps per element that keep an order"
    print_table(console, title, heads, rows, left=("values",))


def _synthetic(elements: int) -> RunsByQuery:
    measured: RunsByQuery = {}
    for largest in JOIN_RANGES:
        streams = joins.numbers(largest, elements)
        last = max(int(made.instants[-1]) for made in streams)
        cuts = [*range(SECOND, last, SECOND), last + 1]
        name = f"join of 1 to {largest:,}"
        measured[name] = compare(joins.QUERY, streams, cuts, 0, REPEAT)
    return measured


def _of_data(contents: Mapping[str, WindowContent]) -> list[PrintedStatement]:
    def near(name: str, printed: float) -> bool:
        return abs(contents[name].mean - printed) <= 0.15 * printed

    now = contents["now"]
    return [
        PrintedStatement(
            "14.4 now", "0 to 17 elements, 6 on average", f"at most {now.most}, {now.mean:.1f}", near("now", 6)
        ),
        PrintedStatement("14.4 10 minutes", "97", f"{contents['10 minutes'].mean:.0f}", near("10 minutes", 97)),
        PrintedStatement("14.4 5 hours", "2,880", f"{contents['5 hours'].mean:,.0f}", near("5 hours", 2_880)),
    ]


def _of_runs(measured: RunsByQuery, latencies: Sequence[FirstResult]) -> list[PrintedStatement]:
    def ratio(about: str, query: str, printed: str, low: float, high: float) -> PrintedStatement:
        value = _ratio(measured[query])
        if value is None:
            return PrintedStatement(about, printed, "not run", None)
        return PrintedStatement(about, printed, f"{value:.2f}", low < value < high)

    totals = {s: sum(figures[s].seconds for figures in measured.values()) for s in STRATEGIES}
    total = totals["changes"] / totals["intervals"] if "changes" in totals else None
    plans = [measured[f"Q5 closing price, plan {n}"]["intervals"].seconds for n in (1, 2)]
    longest = latencies[-1]
    engine = ", ".join(f"{NAMES[name]} {seconds:g} s" for name, seconds in longest.engine.items())
    overall = "not run" if total is None else f"{total:.2f}"
    return [
        PrintedStatement(
            "14.1 all", "PNA takes about 2 × as long", overall, None if total is None else 1.5 < total < 3
        ),
        ratio("14.2 Q1", "Q1 currency conversion", "more than 2 ×", 2, 10),
        ratio("14.3 Q2", "Q2 selection", "almost 3 ×", 2, 4),
        ratio("14.5 Q3, hash", "Q3 short auctions, hash", "more than 1 ×, less than 2 ×", 1, 2),
        ratio("14.5 Q3, nested loops", "Q3 short auctions, nested loops", "more than 2 ×", 2, 10),
        ratio("14.6 Q4", "Q4 highest bid", "more than 1 ×, less than 2 ×", 1, 2),
        PrintedStatement("14.6 Q4", "TIA slightly faster with coalesce", "not measured", None),
        PrintedStatement(
            "14.7 Q5", "plan 1 faster", f"plan 2 {plans[1] / plans[0]:.2f} × plan 1", plans[1] > 1.1 * plans[0]
        ),
        PrintedStatement(
            "14.8 ROWS 100", "first result: PNA at once, TIA after 2 s", engine, len(set(longest.engine.values())) > 1
        ),
    ]


def _of_joins(followed: Mapping[int, joins.JoinFigures]) -> list[PrintedStatement]:
    selective, expansive = followed[1_000], followed[100]
    return [
        PrintedStatement(
            "14.9",
            "list faster than priority queue",
            f"{selective.list_comparisons:.0f} step against {selective.heap_comparisons:.1f}",
            selective.list_comparisons < selective.heap_comparisons,
        ),
        PrintedStatement(
            "14.10 queue sizes",
            "input 1, output 0.5",
            f"input {selective.input_queue:.2f}, output {selective.output_queue:.2f}",
            abs(selective.input_queue - 1) < 0.1 and abs(selective.output_queue - 0.5) < 0.05,
        ),
        PrintedStatement(
            "14.10",
            "output placement better",
            f"{selective.output_comparisons:.1f} steps against {selective.input_comparisons:.1f}",
            selective.output_comparisons < selective.input_comparisons,
        ),
        PrintedStatement(
            "14.11 queue size", "output 5", f"{expansive.output_queue:.2f}", abs(expansive.output_queue - 5) < 0.5
        ),
        PrintedStatement(
            "14.11",
            "input placement better",
            f"{expansive.input_comparisons:.1f} steps against {expansive.output_comparisons:.1f}",
            expansive.input_comparisons < expansive.output_comparisons,
        ),
    ]


def _figures(measured: RunsByQuery) -> dict[str, Figure]:
    """Results over CPU time, as the thesis draws them."""
    numbers = {"Q1": "14.2", "Q2": "14.3", "Q3": "14.5", "Q4": "14.6", "Q5": "14.7"}
    drawn = {}
    for short, label in numbers.items():
        lines = [
            FigureLine(f"{NAMES[strategy]}{name.partition(',')[2]}", figures.progress)
            for name, of in measured.items()
            if name.startswith(short)
            for strategy, figures in of.items()
        ]
        drawn[f"figure-{label}"] = Figure(f"Figure {label}: {short}", "CPU seconds", "elements", lines)
    return drawn
