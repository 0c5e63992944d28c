"""Report of a paper's examples and experiments, with its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from strandline.apps.papers import ayad_naughton as paper
from strandline.core.errors import StrandlineError

JOIN_COSTS: Final = (0.5, 3.0, 4.0, 4.5, 5.0, 14.0, 18.0, 50.0, 100.0)  # milliseconds per row


def reproduce(name: str, queries: int, directory: Path | None, console: Console) -> None:
    if name not in PAPERS:
        raise StrandlineError(f'unknown paper "{name}"', code="usage", hint=f"Papers are {', '.join(PAPERS)}.")
    PAPERS[name](queries, directory, console)


def _ayad_naughton(queries: int, directory: Path | None, console: Console) -> None:
    console.print(_figure_1())
    console.print(_example_1())
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("random queries", total=queries)
        levels = paper.experiment(queries, progress=lambda done: bar.update(task, completed=done))
    console.print(_experiment(levels, queries))
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for stem, figure in paper.figures(levels).items():
            (directory / f"{stem}.svg").write_text(figure.to_svg())
        console.print(f"figures: {directory}/", soft_wrap=True, highlight=False)


def _figure_1() -> Table:
    table = Table(title="Figure 1: two selections, 1000 rows/s", title_justify="left")
    for column, justify in (("plan", "left"), ("utilisation", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for plan, load in paper.figure_1().items():
        table.add_row(plan, f"{load:.0%}", "keeps up" if load <= 1 else "infeasible")
    return table


def _example_1() -> Table:
    table = Table(title="Example 1 and figure 6: utilisation and output of three plans", title_justify="left")
    table.add_column("ms per row", justify="right")
    for plan in paper.PLANS:
        table.add_column(plan, justify="right")
        table.add_column("rows/s", justify="right")
    for cost in JOIN_COSTS:
        outputs = {plan: paper.throughput(plan, cost) for plan in paper.PLANS}
        cells = [f"{cost:g}"]
        for plan, output in outputs.items():
            mark = "[bold]{}[/bold]" if output >= max(outputs.values()) * (1 - 1e-9) else "{}"
            cells += [f"{paper.utilisation(plan, cost):.0%}", mark.format(f"{output:.0f}")]
        table.add_row(*cells)
    return table


def _experiment(levels: Sequence[paper.Level], queries: int) -> Table:
    table = Table(
        title=f"Figures 7 to 10: {queries:,} random queries over five streams",
        title_justify="left",
    )
    headings = ("resources", "better", "as good", "gain", "of better", "most", "error", "most")
    for heading in headings:
        table.add_column(heading, justify="right")
    for level in levels:
        table.add_row(
            f"{level.percent} %",
            f"{level.better:.0%}",
            f"{level.as_good:.0%}",
            f"{level.gain:.1%}",
            f"{level.gain_of_better:.1%}",
            f"{level.highest_gain:.0%}",
            f"{level.error:.2%}",
            f"{level.highest_error:.1%}",
        )
    return table


PAPERS: Final[dict[str, Callable[[int, Path | None, Console], None]]] = {"ayad-naughton": _ayad_naughton}
