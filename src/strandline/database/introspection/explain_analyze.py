"""EXPLAIN ANALYZE: the plan of a running query with measured and expected figures.

Rates and costs are per second of stream time, as the cost model has them: a query that reads a day of files in a minute
shows what it would take of a processor if the day took a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant, show_instant
from strandline.database.introspection.statistics import OperatorStatistics, Statistics
from strandline.runtime.watermark import Heartbeat

_WIDE = 72  # characters of an operator


class Estimate(Protocol):
    """Expectation of the planner: rows per second out of an operator, seconds of CPU per second, rows of state."""

    @property
    def rate_out(self) -> float: ...
    @property
    def cost(self) -> float: ...
    @property
    def rows(self) -> float: ...


def analyzed(
    known: Statistics,
    answers: Sequence[str],
    heartbeats: Mapping[str, Heartbeat],
    progress: Instant,
    estimates: Mapping[str, Estimate],
) -> str:
    """The operators behind a result as a tree; `answers` are the steps that output it."""
    seconds = stream_seconds(heartbeats.values())
    table = [_head(bool(estimates)), *_rows(known, answers, seconds, estimates)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [_line(row, widths) for row in table]
    return "\n".join([_summary(known, heartbeats, progress, seconds), "", *lines])


def stream_seconds(beats: Iterable[Heartbeat]) -> float | None:
    """Stream time covered so far in seconds; None before there is any."""
    seen = [beat for beat in beats if beat.rows]
    if not seen:
        return None
    span = (max(beat.high for beat in seen) - min(beat.low for beat in seen)) / SECOND
    return span or None


def _summary(known: Statistics, heartbeats: Mapping[str, Heartbeat], progress: Instant, seconds: float | None) -> str:
    until = "the end" if progress == FOREVER else "no instant yet" if progress == BEFORE_ALL else show_instant(progress)
    rows = sum(beat.rows for beat in heartbeats.values())
    cpu = sum(each.cpu_seconds for each in known.operators)
    share = f", {cpu / seconds * 1000:,.3g} ms per second" if seconds else ""
    span = f" in {seconds:,.6g} s of stream time" if seconds else ""
    return f"{known.query}, complete up to {until}: {rows:,} rows{span}, {cpu * 1000:,.3g} ms of CPU{share}"


def _head(with_estimates: bool) -> tuple[str, ...]:
    expected = ("est.",) if with_estimates else ()
    return (
        "operator", "rows in", "rows out", "share",
        "out/s", *expected, "CPU ms/s", *expected, "µs/row", "state rows", *expected, "bytes",
    )  # fmt: skip


def _rows(
    known: Statistics, answers: Sequence[str], seconds: float | None, estimates: Mapping[str, Estimate]
) -> list[tuple[str, ...]]:
    operators = {each.step: each for each in known.operators}
    rows: list[tuple[str, ...]] = []
    shown: set[str] = set()

    def visit(step: str, depth: int) -> None:
        operator = operators[step]
        words = "  " * depth + operator.text
        if step in shown:
            rows.append((_short(f"{words}, as above"), *[""] * (len(_head(bool(estimates))) - 1)))
            return
        shown.add(step)
        rows.append((_short(words), *_figures(operator, seconds, estimates)))
        for source in operator.inputs:
            visit(source, depth + 1)

    for step in answers:
        visit(step, 0)
    return rows


def _figures(operator: OperatorStatistics, seconds: float | None, estimates: Mapping[str, Estimate]) -> tuple[str, ...]:
    def beside(value: float | None) -> tuple[str, ...]:
        return (_figure(value),) if estimates else ()

    expected = estimates.get(operator.step)
    return (
        f"{operator.rows_in:,}",
        f"{operator.rows_out:,}",
        _figure(operator.selectivity),
        _figure(operator.rows_out / seconds if seconds else None),
        *beside(expected.rate_out if expected is not None else None),
        _figure(operator.cpu_seconds * 1000 / seconds if seconds else None),
        *beside(expected.cost * 1000 if expected is not None else None),
        _figure(operator.cost_us),
        f"{operator.state_rows:,}" if operator.state_rows else "",
        *beside(expected.rows if expected is not None and expected.rows else None),
        f"{operator.state_bytes:,}" if operator.state_bytes else "",
    )


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    first, *figures = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"
