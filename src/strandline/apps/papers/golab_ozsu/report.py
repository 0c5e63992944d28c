"""Report on Golab and Özsu: facts of the traces, the counting model, and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from strandline.apps.bench.form_strategies import STRATEGIES
from strandline.apps.console import print_table, status
from strandline.apps.papers.golab_ozsu import engine, statements
from strandline.apps.papers.golab_ozsu.queries import QUERIES, WINDOWS, Facts, Strategies, facts, units_needed
from strandline.apps.papers.golab_ozsu.trace import Trace, generate, read
from strandline.apps.papers.output import PaperOptions, draw, print_statements

RECORDED: Final = Path("examples/network/connections.parquet")
RECORDED_WINDOWS: Final = (100, 200, 500, 1_000)


def report(options: PaperOptions, console: Console) -> None:
    scale = options.scale or 1.0
    windows = [max(20, round(window * scale)) for window in WINDOWS]
    engine_windows = [max(20, round(window * scale)) for window in engine.WINDOWS]
    batches = [(max(10, round(batch * scale)), number) for batch, number in engine.BATCHES]
    engine_needs = (engine.engine_units(engine_windows[-1], *batch) for batch in batches)
    trace = generate(max(units_needed(windows[-1]), *engine_needs))
    counts = _count(trace, windows, console)
    known = statements.of_trace(facts(trace, windows[-1]))
    print_statements(console, "Facts of the generated trace, at the largest window", known)
    print_statements(console, "The paper's statements and the counting model", statements.of_figures(counts))
    draw(statements.figures_of(counts, "model"), options.directory, console)
    if RECORDED.exists():
        recorded = read(RECORDED)
        counts = _count(recorded, [w for w in RECORDED_WINDOWS if units_needed(w) <= recorded.units], console)
        draw(statements.figures_of(counts, "recorded"), options.directory, console)
    measured = _run(trace, engine_windows, batches, console)
    print_statements(console, "The paper's statements and the engine", statements.of_engine(measured))
    draw(statements.engine_figures(measured), options.directory, console)


def _run(
    trace: Trace, windows: Sequence[int], batches: Sequence[tuple[int, int]], console: Console
) -> statements.EngineRuns:
    """Run the queries on the engine and print what they take, over windows and, at the largest, over batches."""
    measured: statements.EngineRuns = {}
    over_windows = [(window, batches[0]) for window in windows]
    over_batches = [(windows[-1], batch) for batch in batches[1:]]
    names = [engine.NAMES[strategy] for strategy in STRATEGIES]
    for name, query in engine.QUERIES.items():
        # The matches in Q5 grow with the square of the window: batches of one length are enough.
        settings = over_windows if name.startswith("Q5") else over_windows + over_batches
        with status(f"running: {name}"):
            measured[name] = {
                (window, batch[0]): engine.measure(trace, query, window, *batch) for window, batch in settings
            }
        rows = [
            (
                f"{window:,}",
                f"{batch:,}",
                *(f"{figures.ms_per_1000:.2f}" for figures in found.values()),
                *(f"{figures.results:,}" for figures in found.values()),
                *(f"{figures.state:,}" for figures in found.values()),
                "yes" if len({figures.validity for figures in found.values()}) == 1 else "NO",
            )
            for (window, batch), found in measured[name].items()
        ]
        heads = ("window", "batch", *names, *(f"{n} elements" for n in names), *(f"{n} state" for n in names), "same")
        print_table(console, f"{name}: the engine, ms of CPU per 1,000 tuples", heads, rows)
    return measured


def _count(trace: Trace, windows: Sequence[int], console: Console) -> dict[str, dict[int, Strategies]]:
    """Print the facts of a trace and the touches of every query over the windows."""
    heads = ("window", "sources", "pairs", "ftp result / input", "telnet / ftp results", "end early")
    print_table(console, f"Facts: {trace.name}", heads, [_facts(facts(trace, window)) for window in windows])
    counts: dict[str, dict[int, Strategies]] = {}
    with status("counting") as show_phase:
        for name, query in QUERIES.items():
            show_phase(f"counting: {name}")
            counts[name] = {window: query(trace, window) for window in windows}
            strategies = list(counts[name][windows[0]])
            rows = [
                (
                    f"{window:,}",
                    *(f"{found[strategy].per_1000:,.0f}" for strategy in strategies),
                    *(f"{found[strategy].stored:,.0f}" for strategy in strategies),
                )
                for window, found in counts[name].items()
            ]
            columns = ("window", *strategies, *(f"{strategy} stores" for strategy in strategies))
            print_table(console, f"{name}: tuples touched per 1,000, and stored; {trace.name}", columns, rows)
    return counts


def _facts(found: Facts) -> tuple[str, ...]:
    return (
        f"{found.window:,}",
        f"{found.sources:,.0f}",
        f"{found.pairs:,.0f}",
        f"{found.ftp_result:.2f}",
        f"{found.telnet_result:.1f}",
        f"{found.premature:.0%}",
    )
