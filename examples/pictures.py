"""Draws the answers of the examples: `python examples/pictures.py`, from the project's root.

An answer is a step function of time: between two changes it stays what it is. So it is drawn as steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

import strandline as sl
from strandline.database.script import read_script

ROOT = Path(__file__).resolve().parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 300, 52, 110, 40, 30
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")


@dataclass(frozen=True)
class Picture:
    """Which answer of which script is drawn, and how: the column that is drawn, and the one that names a line."""

    script: str
    query: str
    value: str
    line: str
    title: str

    @property
    def path(self) -> Path:
        return ROOT / Path(self.script).parent / f"{self.query}.svg"


PICTURES = (
    Picture("network/network.sql", "open_connections", "connections", "protocol", "Open connections by service"),
    Picture(
        "network/network.sql", "knocking", "attempts", "remote_host", "Attempts in vain within five minutes, by host"
    ),
    Picture("flights/flights.sql", "cancelled", "percent", "origin", "Cancelled departures of the last three hours, %"),
    Picture(
        "flights/flights.sql", "lateness", "minutes", "sight", "Mean delay of the last six hours by sight, minutes"
    ),
)


def answers(script: str) -> dict[str, pa.Table]:
    """The elements of every query of a script."""
    with sl.connect(engine="local") as database:
        parsed = read_script(database, (ROOT / script).read_text())
        queries = [(query.name, database.query(query.name)) for query in parsed.queries]
        for _, query in queries:
            query.await_end()
        return {name: query.results() for name, query in queries}


def draw(picture: Picture, answer: pa.Table) -> str:
    """The picture as SVG."""
    rows = [row for row in answer.to_pylist() if row[picture.value] is not None]
    begin, end = min(row["valid_from"] for row in rows), max(row["valid_until"] for row in rows)
    top = max(float(row[picture.value]) for row in rows) or 1.0
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(at: datetime) -> str:
        return f"{LEFT + across * ((at - begin) / (end - begin)):.1f}"

    def y(value: float) -> str:
        return f"{TOP + up * (1 - value / top):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#212529">{picture.title}</text>',
    ]
    for value in (0.0, top / 2, top):
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + across}" y1="{y(value)}" y2="{y(value)}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value)}" dy="4" text-anchor="end" fill="#495057">{value:g}</text>')
    for at in ticks(begin, end):
        label = f"{at:%H:%M}" if at.hour or at.minute else f"{at:%d %b}"
        parts.append(f'<text x="{x(at)}" y="{HEIGHT - 10}" text-anchor="middle" fill="#495057">{label}</text>')
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{TOP + up}" y2="{TOP + up + 5}" stroke="#868e96"/>')
    lines = sorted({row[picture.line] for row in rows}, key=str)
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        own = sorted((row for row in rows if row[picture.line] == line), key=lambda row: row["valid_from"])
        steps, reached = "", None
        for row in own:
            height = y(float(row[picture.value]))
            steps += f"V{height}" if row["valid_from"] == reached else f"M{x(row['valid_from'])} {height}"
            steps += f"H{x(row['valid_until'])}"
            reached = row["valid_until"]
        parts.append(f'<path d="{steps}" stroke="{colour}" stroke-width="1.6" fill="none"/>')
        place = TOP + 12 + 18 * number
        parts.append(f'<text x="{LEFT + across + 12}" y="{place}" fill="{colour}">{line}</text>')
    return "\n".join([*parts, "</svg>", ""])


def ticks(begin: datetime, end: datetime) -> Sequence[datetime]:
    """Round times on the axis, about six of them."""
    steps = [timedelta(minutes=m) for m in (5, 10, 20, 30, 60, 120, 360, 720, 1440, 2880)]
    step = next((s for s in steps if (end - begin) / s <= 8), steps[-1])
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight + step * -((midnight - begin) // step)
    return [first + step * n for n in range(20) if first + step * n <= end]


if __name__ == "__main__":
    for name in sorted({picture.script for picture in PICTURES}):
        found = answers(name)
        for each in (p for p in PICTURES if p.script == name):
            each.path.write_text(draw(each, found[each.query]))
            print(f"{each.query}: {each.path.relative_to(ROOT.parent)}")
