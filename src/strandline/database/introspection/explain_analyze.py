"""EXPLAIN ANALYZE: the plan of a running query with measured and expected figures.

Rates and costs are per second of stream time, as the cost model has them: a query that reads a day of files in a minute
shows what it would take of a processor if the day took a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant, show_instant
from strandline.database.introspection.statistics import OperatorStatistics, QueryStatistics
from strandline.planner.estimate import Estimate
from strandline.runtime.watermark import SourceStatus

_WIDE = 72  # characters of an operator


def analyzed(
    statistics: QueryStatistics,
    results: Sequence[str],
    statuses: Mapping[str, SourceStatus],
    progress: Instant,
    estimates: Mapping[str, Estimate],
) -> str:
    """The operators behind a result as a tree; `results` are the steps that output it."""
    seconds = stream_seconds(statuses.values())
    table = [_head(bool(estimates)), *_rows(statistics, results, seconds, estimates)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [_line(row, widths) for row in table]
    return "\n".join([_summary(statistics, statuses, progress, seconds), "", *lines])


def stream_seconds(statuses: Iterable[SourceStatus]) -> float | None:
    """Stream time covered so far in seconds; None before there is any."""
    seen = [status for status in statuses if status.rows]
    if not seen:
        return None
    span = (max(status.high for status in seen) - min(status.low for status in seen)) / SECOND
    return span or None


def _summary(
    statistics: QueryStatistics, statuses: Mapping[str, SourceStatus], progress: Instant, seconds: float | None
) -> str:
    until = "the end" if progress == FOREVER else "no instant yet" if progress == BEFORE_ALL else show_instant(progress)
    rows = sum(status.rows for status in statuses.values())
    cpu = sum(operator.cpu_seconds for operator in statistics.operators)
    sampling_rate = f", {cpu / seconds * 1000:,.3g} ms per second" if seconds else ""
    span = f" in {seconds:,.6g} s of stream time" if seconds else ""
    return (
        f"{statistics.query}, complete up to {until}: {rows:,} rows{span}, {cpu * 1000:,.3g} ms of CPU{sampling_rate}"
    )


def _head(with_estimates: bool) -> tuple[str, ...]:
    expected = ("est.",) if with_estimates else ()
    return (
        "operator", "rows in", "rows out", "share",
        "out/s", *expected, "CPU ms/s", *expected, "µs/row", "state rows", *expected, "bytes",
    )  # fmt: skip


def _rows(
    statistics: QueryStatistics, results: Sequence[str], seconds: float | None, estimates: Mapping[str, Estimate]
) -> list[tuple[str, ...]]:
    operators = {item.step: item for item in statistics.operators}
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

    for step in results:
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
