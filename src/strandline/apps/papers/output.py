"""Options of a reproduction, and what all of them print: tables of figures over a size, statements, drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from strandline.apps.console import print_table
from strandline.apps.papers.figure import Figure


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """`queries` is a number of random queries, `scale` the share of the papers' data, and the others are those of a
    simulation; each paper has some of them."""

    queries: int = 1000
    scale: float | None = None
    directory: Path | None = None
    utilisation: float = 0.8
    tuples: int = 100_000
    seeds: int = 5


@dataclass(frozen=True, slots=True)
class PrintedStatement:
    """What a paper says in words, what was computed, and whether it follows; None where it is only set beside it."""

    about: str
    printed: str
    computed: str
    follows: bool | None


def print_statements(console: Console, title: str, statements: Sequence[PrintedStatement]) -> None:
    words = {True: "yes", False: "no", None: ""}
    rows = [(s.about, s.printed, s.computed, words[s.follows]) for s in statements]
    heads = ("about", "printed", "computed", "follows")
    print_table(console, title, heads, rows, left=heads)


def draw(figures: Mapping[str, Figure], directory: Path | None, console: Console) -> None:
    """Write the figures as SVG, if there is a directory for them."""
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    for stem, figure in figures.items():
        (directory / f"{stem}.svg").write_text(figure.to_svg())
    console.print(f"figures: {directory}/", soft_wrap=True, highlight=False)
