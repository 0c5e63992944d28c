"""Reports of the papers' examples and experiments, with their figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.progress import Progress

from strandline.apps.console import print_table
from strandline.apps.papers import ayad_naughton as paper
from strandline.apps.papers.golab_ozsu.report import report as golab_ozsu
from strandline.apps.papers.hammad.report import report as hammad
from strandline.apps.papers.kraemer_pna.report import report as kraemer_pna
from strandline.apps.papers.output import PaperOptions, draw
from strandline.core.errors import StrandlineError

JOIN_COSTS: Final = (0.5, 3.0, 4.0, 4.5, 5.0, 14.0, 18.0, 50.0, 100.0)  # milliseconds per row


def reproduce(name: str, options: PaperOptions, console: Console) -> None:
    if name not in PAPERS:
        raise StrandlineError(f'unknown paper "{name}"', code="usage", hint=f"Papers are {', '.join(PAPERS)}.")
    PAPERS[name](options, console)


def _ayad_naughton(options: PaperOptions, console: Console) -> None:
    queries = options.queries
    loads = paper.figure_1().items()
    rows = [(plan, f"{load:.0%}", "keeps up" if load <= 1 else "infeasible") for plan, load in loads]
    print_table(console, "Figure 1: two selections, 1000 rows/s", ("plan", "utilisation", ""), rows, left=("plan", ""))
    heads = ["ms per row", *(head for plan in paper.PLANS for head in (plan, "rows/s"))]
    title = "Example 1 and figure 6: utilisation and output of three plans"
    print_table(console, title, heads, map(_example_1, JOIN_COSTS))
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("random queries", total=queries)
        levels = paper.experiment(queries, progress=lambda done: bar.update(task, completed=done))
    heads = ["resources", "better", "as good", "gain", "of better", "most", "error", "most"]
    print_table(
        console, f"Figures 7 to 10: {queries:,} random queries over five streams", heads, map(_experiment, levels)
    )
    draw(paper.figures(levels), options.directory, console)


def _example_1(cost: float) -> list[str]:
    outputs = {plan: paper.throughput(plan, cost) for plan in paper.PLANS}
    cells = [f"{cost:g}"]
    for plan, output in outputs.items():
        mark = "[bold]{}[/bold]" if output >= max(outputs.values()) * (1 - 1e-9) else "{}"
        cells += [f"{paper.utilisation(plan, cost):.0%}", mark.format(f"{output:.0f}")]
    return cells


def _experiment(level: paper.Level) -> tuple[str, ...]:
    shares = (f"{level.percent} %", f"{level.better:.0%}", f"{level.as_good:.0%}")
    gains = (f"{level.gain:.1%}", f"{level.gain_of_better:.1%}", f"{level.highest_gain:.0%}")
    return (*shares, *gains, f"{level.error:.2%}", f"{level.highest_error:.1%}")


PAPERS: Final[dict[str, Callable[[PaperOptions, Console], None]]] = {
    "ayad-naughton": _ayad_naughton,
    "golab-ozsu": golab_ozsu,
    "hammad": hammad,
    "kraemer-pna": kraemer_pna,
}
