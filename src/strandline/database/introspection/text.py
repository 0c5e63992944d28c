"""Numbers, shortened texts and aligned lines, as all listings show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, show_instant


def show_number(value: float | None) -> str:
    """A number with three digits or more; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"


def count_of(count: int, what: str) -> str:
    """A number of things: `1 row`, `2,000 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def shorten_line(text: str, width: int) -> str:
    """A text on one line, whatever its line breaks."""
    return shorten(" ".join(text.split()), width)


def show_watermark(at: Instant) -> str:
    """The instant up to which something is complete."""
    return "the end" if at == FOREVER else "no instant yet" if at == BEFORE_ALL else show_instant(at)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *figures in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def walk_plan(results: Iterable[str], inputs: Callable[[str], Iterable[str]]) -> Iterator[tuple[str, int, bool]]:
    """The steps of a plan from its results down: name, depth, and whether it was there before; then its inputs are
    left out."""
    seen: set[str] = set()

    def visit(name: str, depth: int) -> Iterator[tuple[str, int, bool]]:
        yield name, depth, name in seen
        if name not in seen:
            seen.add(name)
            for source in inputs(name):
                yield from visit(source, depth + 1)

    for name in results:
        yield from visit(name, 0)
