"""Report on Golab and Özsu: facts of the traces, the counting model, and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from strandline.apps.console import print_table, status
from strandline.apps.papers.golab_ozsu import statements
from strandline.apps.papers.golab_ozsu.queries import QUERIES, WINDOWS, Facts, Strategies, facts, units_needed
from strandline.apps.papers.golab_ozsu.trace import Trace, generate, read
from strandline.apps.papers.output import PaperOptions, draw, print_statements

RECORDED: Final = Path("examples/network/connections.parquet")
RECORDED_WINDOWS: Final = (100, 200, 500, 1_000)


def report(options: PaperOptions, console: Console) -> None:
    scale = options.scale or 1.0
    windows = [max(20, round(window * scale)) for window in WINDOWS]
    trace = generate(units_needed(windows[-1]))
    counts = _count(trace, windows, console)
    print_statements(
        console, "Facts of the generated trace, at the largest window", statements.of_trace(facts(trace, windows[-1]))
    )
    print_statements(console, "The paper's statements and the counting model", statements.of_figures(counts))
    draw(statements.figures_of(counts, "model"), options.directory, console)
    if RECORDED.exists():
        recorded = read(RECORDED)
        counts = _count(recorded, [w for w in RECORDED_WINDOWS if units_needed(w) <= recorded.units], console)
        draw(statements.figures_of(counts, "recorded"), options.directory, console)


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
