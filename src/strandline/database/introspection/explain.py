"""EXPLAIN, EXPLAIN WHY and EXPLAIN ANALYZE: the plans of a query as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from strandline.core.temporal import SECOND, Instant
from strandline.database.introspection.statistics import OperatorStatistics, QueryStatistics
from strandline.database.introspection.text import align, shorten, show_number, show_watermark, walk_plan
from strandline.logical.explain import show_plan
from strandline.logical.tree import size
from strandline.planner.estimate import Estimate, how_much_faster
from strandline.planner.explain_costs import short, show_assumed, show_costs, show_needs, show_sources
from strandline.planner.explain_costs import size as show_size
from strandline.planner.physical.explain import show_beside, show_pipeline
from strandline.planner.physical.plan import Pipeline
from strandline.planner.planner import PlannedQuery
from strandline.planner.unbounded_state import growing_state
from strandline.runtime.checkpoint.identity import indent
from strandline.runtime.watermark import SourceStatus
from strandline.shedding.load_model import SheddingModel, explain_shedding

LARGE: Final = 400  # nodes of a plan and its expressions; the figures of a larger one would take long
SHOWN: Final = 6  # rejected plans
_WIDE: Final = 72  # characters of an operator


def explain_query(query: PlannedQuery, cores: int, shedding: float | None = None) -> str:
    """The logical plan as written and as optimised, and the physical plan with what it needs; of the rows of its
    streams the share `shedding` may be dropped."""
    parts = ["logical plan", indent(show_plan(query.logical))]
    if query.optimized != query.logical:
        parts += ["optimised plan", indent(show_plan(query.optimized))]
    parts.append("physical plan")
    if size(query.optimized) > LARGE:
        parts.append(indent(show_pipeline(query.physical)))
    else:
        parts += map(indent, _figures(query, cores, shedding))
    if growing := growing_state(query.optimized):
        parts += ["unbounded state", *map(indent, growing)]
    return "\n".join(parts)


def _figures(query: PlannedQuery, cores: int, shedding: float | None) -> list[str]:
    statistics, prices, limit = query.inputs.statistics, query.inputs.prices, query.inputs.limits.get(query.name)
    faster = how_much_faster(query.physical, statistics, cores, prices)
    parts = [show_costs(query.physical, query.estimates), show_needs(query.estimates, cores, faster)]
    if limit is not None and shedding is not None:
        part = limit / query.cost if query.cost > 0 else 1.0
        parts.append(explain_shedding(SheddingModel(query.optimized, statistics, prices), part, 1.0 - shedding))
    return [*parts, *show_sources(query.physical, statistics), *show_assumed(query.physical, statistics)]


def explain_beside(extended: Pipeline, query: str, running: Pipeline) -> str:
    """The plan of a query as part of the pipeline that it would be added to."""
    return "\n".join(["beside what runs", indent(show_beside(extended, query, running))])


def explain_choice(chosen: PlannedQuery) -> str:
    """The plan that runs, and those that were rejected: what they would cost, and what is different in them."""
    how = f", {chosen.difference}" if chosen.difference else ""
    lines = [f"chosen: {_needs(chosen)}{how}", indent(show_plan(chosen.optimized))]
    rejected = chosen.rejected[:SHOWN]
    if not rejected:
        return "\n".join([*lines, "no other plan was considered: one join order, no applicable rule"])
    table = [(_times(other, chosen), _needs(other), other.difference or "after the rules") for other in rejected]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    lines.append("rejected, cheapest first")
    lines += [f"  {times.rjust(widths[0])}  {needs.ljust(widths[1])}  {words}" for times, needs, words in table]
    return "\n".join([*lines, "cheapest", indent(show_plan(rejected[0].optimized))])


def _needs(query: PlannedQuery) -> str:
    grows = any(step.grows for step in query.estimates.steps.values())
    state = "unbounded state" if grows else f"state of {show_size(query.estimates.bytes)}"
    return f"{short(1000 * query.cost)} ms of CPU per second, {state}"


def _times(query: PlannedQuery, chosen: PlannedQuery) -> str:
    ratio = query.cost / chosen.cost if chosen.cost else 1.0
    return f"{ratio:.2f} times" if ratio < 100 else f"{short(ratio)} times"


def analyzed(
    statistics: QueryStatistics,
    results: Sequence[str],
    statuses: Mapping[str, SourceStatus],
    progress: Instant,
    estimates: Mapping[str, Estimate],
) -> str:
    """EXPLAIN ANALYZE: the operators behind a result as a tree, with measured and expected figures.

    `results` are the steps that output it. Rates and costs are per second of stream time, as the cost model has them: a
    query that reads a day of files in a minute shows what it would take of a processor if the day took a day.
    """
    seconds = stream_seconds(statuses.values())
    table = [_heads(bool(estimates)), *_operator_rows(statistics, results, seconds, estimates)]
    return "\n".join([_summary(statistics, statuses, progress, seconds), "", *align(table)])


def stream_seconds(statuses: Iterable[SourceStatus]) -> float | None:
    """Stream time covered so far in seconds, whatever the times of tables are; None before there is any."""
    seen = [status for status in statuses if status.rows and not status.table]
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


def _heads(with_estimates: bool) -> tuple[str, ...]:
    expected = ("est.",) if with_estimates else ()
    return (
        "operator", "rows in", "rows out", "share",
        "out/s", *expected, "CPU ms/s", *expected, "µs/row", "state rows", *expected, "bytes",
    )  # fmt: skip


def _operator_rows(
    statistics: QueryStatistics, results: Sequence[str], seconds: float | None, estimates: Mapping[str, Estimate]
) -> list[tuple[str, ...]]:
    operators = {item.step: item for item in statistics.operators}
    rows: list[tuple[str, ...]] = []
    for step, depth, again in walk_plan(results, lambda name: operators[name].inputs):
        operator = operators[step]
        text = "  " * depth + operator.text + (", as above" if again else "")
        figures = _measured_cells(operator, seconds, estimates)
        rows.append((shorten(text, _WIDE), *([""] * len(figures) if again else figures)))
    return rows


def _measured_cells(
    operator: OperatorStatistics, seconds: float | None, estimates: Mapping[str, Estimate]
) -> tuple[str, ...]:
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
