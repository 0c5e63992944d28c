"""EXPLAIN ANALYZE: the plan of a running query with measured and expected figures.

Rates and costs are per second of stream time, as the cost model has them: a query that reads a day of files in a minute
shows what it would take of a processor if the day took a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.core.temporal import SECOND, Instant
from strandline.database.introspection.statistics import OperatorStatistics, QueryStatistics
from strandline.database.introspection.text import align, shorten, show_number, show_watermark, walk_plan
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
    return "\n".join([_summary(statistics, statuses, progress, seconds), "", *align(table)])


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
    rows = sum(status.rows for status in statuses.values())
    cpu = sum(operator.cpu_seconds for operator in statistics.operators)
    per_second = f", {cpu / seconds * 1000:,.3g} ms per second" if seconds else ""
    span = f" in {seconds:,.6g} s of stream time" if seconds else ""
    until = show_watermark(progress)
    return f"{statistics.query}, complete up to {until}: {rows:,} rows{span}, {cpu * 1000:,.3g} ms of CPU{per_second}"


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
    for step, depth, again in walk_plan(results, lambda name: operators[name].inputs):
        operator = operators[step]
        text = "  " * depth + operator.text + (", as above" if again else "")
        figures = _figures(operator, seconds, estimates)
        rows.append((shorten(text, _WIDE), *([""] * len(figures) if again else figures)))
    return rows


def _figures(operator: OperatorStatistics, seconds: float | None, estimates: Mapping[str, Estimate]) -> tuple[str, ...]:
    def beside(value: float | None) -> tuple[str, ...]:
        return (show_number(value),) if estimates else ()

    expected = estimates.get(operator.step)
    return (
        f"{operator.rows_in:,}",
        f"{operator.rows_out:,}",
        show_number(operator.selectivity),
        show_number(operator.rows_out / seconds if seconds else None),
        *beside(expected.rate_out if expected is not None else None),
        show_number(operator.cpu_seconds * 1000 / seconds if seconds else None),
        *beside(expected.cost * 1000 if expected is not None else None),
        show_number(operator.cost_us),
        f"{operator.state_rows:,}" if operator.state_rows else "",
        *beside(expected.rows if expected is not None and expected.rows else None),
        f"{operator.state_bytes:,}" if operator.state_bytes else "",
    )
