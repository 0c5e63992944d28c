"""Lines in a plane as SVG: all that the figures of the papers need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 140, 40, 48
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")
INK, GRID = "#495057", "#dee2e6"


@dataclass(frozen=True, slots=True)
class FigureLine:
    """A name and its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines over common axes; `logarithmic` is about the vertical one."""

    title: str
    across: str
    up: str
    lines: Sequence[FigureLine]
    logarithmic: bool = False
    falling: bool = False  # the horizontal axis goes from large to small

    def to_svg(self) -> str:
        xs = [x for line in self.lines for x, _ in line.points]
        ys = [y for line in self.lines for _, y in line.points if y > 0 or not self.logarithmic]
        x_axis = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, reverse=self.falling)
        low = min(ys) if self.logarithmic else min(0.0, *ys)
        y_axis = _Axis(low, max(ys), HEIGHT - BOTTOM, TOP, logarithmic=self.logarithmic)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12" fill="{INK}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(self.title)}</text>',
            *self._grid(x_axis, y_axis),
            *self._curves(x_axis, y_axis),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _grid(self, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
        for value in y_axis.ticks():
            y = y_axis.at(value)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in x_axis.ticks():
            yield f'<text x="{x_axis.at(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
        middle = (LEFT + WIDTH - RIGHT) / 2
        yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(self.across)}</text>'
        yield (
            f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {HEIGHT / 2})">{escape(self.up)}</text>'
        )

    def _curves(self, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
        for number, line in enumerate(self.lines):
            colour = COLOURS[number % len(COLOURS)]
            shown = [(x, y) for x, y in line.points if y > 0 or not self.logarithmic]
            path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in shown)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            legend = TOP + 12 + 20 * number
            yield f'<rect x="{WIDTH - RIGHT + 12}" y="{legend - 9}" width="12" height="4" fill="{colour}"/>'
            yield f'<text x="{WIDTH - RIGHT + 30}" y="{legend - 3}">{escape(line.name)}</text>'


@dataclass(frozen=True, slots=True)
class _Axis:
    """Scale from values to positions on the paper."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    reverse: bool = False

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        part = (value - low) / (high - low) if high > low else 0.5
        return self.start + (1 - part if self.reverse else part) * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        if self.logarithmic:
            for power in range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1):
                yield 10.0**power
            return
        rough = (self.high - self.low) / 5 or 1.0
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
        number = math.ceil(self.low / step)
        while number * step <= self.high * (1 + 1e-9):
            yield round(number * step, 10)
            number += 1
