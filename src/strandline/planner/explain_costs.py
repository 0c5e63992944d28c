"""EXPLAIN with costs: rates, CPU time and state beside every operator, and the totals.

Undeclared statistics are listed with their origin: measured, from the source, or assumed.
"""

from __future__ import annotations

from typing import Final

from strandline.logical.catalog import StreamStatistics
from strandline.logical.expressions import ColumnRef
from strandline.planner.cardinality import LENGTH, RATE, VALUES, StatisticsByStream
from strandline.planner.estimate import MAX_SPEEDUP, Estimate, Estimates
from strandline.planner.physical import plan as physical
from strandline.planner.physical.explain import pipeline_lines
from strandline.planner.physical.graph import SOURCE
from strandline.planner.physical.operators import find_keys
from strandline.planner.physical.plan import Pipeline, numbered, ports

_HEADS: Final = ("rows/s", "CPU ms/s", "state", "", "pattern")
_FIGURES: Final = 3  # columns of numbers, aligned to the right
_MAX_NAMES: Final = 4  # streams or columns that are named; of more only the number


def show_costs(pipeline: Pipeline, estimates: Estimates) -> str:
    """The plan with columns of figures and of update patterns to the left, aligned whatever the operators."""
    table = [(*_HEADS, "")]
    for line in pipeline_lines(pipeline):
        about = _about(line.about, estimates)
        figures = _cells(about) if about is not None else ("",) * _FIGURES
        table.append((*figures, line.state, line.pattern, line.text))
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADS))]
    return "\n".join(
        "  ".join(
            [*map(str.rjust, row[:_FIGURES], widths), *map(str.ljust, row[_FIGURES:-1], widths[_FIGURES:]), row[-1]]
        ).rstrip()
        for row in table
    )


def _about(name: str | None, estimates: Estimates) -> Estimate | None:
    if name is None:
        return None
    if name.startswith(SOURCE):
        return estimates.reading.get(name.removeprefix(SOURCE))
    return estimates.steps.get(name) or estimates.sending.get(name)


def _cells(estimate: Estimate) -> tuple[str, str, str]:
    state = "" if estimate.rows < 0.5 else "grows" if estimate.grows else f"{short(estimate.rows)} rows"
    return (
        short(estimate.rate_out),
        f"{estimate.cost * 1000:.2f}" if estimate.cost < 0.01 else short(estimate.cost * 1000),
        state,
    )


def show_needs(estimates: Estimates, cores: int, faster: float) -> str:
    """Total needs of the plan, and its headroom; `faster` is the factor by which the streams may speed up."""
    share = estimates.cost / cores
    grows = any(step.grows for step in estimates.steps.values())
    state = "unbounded state" if grows else f"state of {size(estimates.bytes)}" if estimates.bytes else "no state"
    lines = [f"needs {percent(share)} of {cores} core{'' if cores == 1 else 's'}, {state}"]
    if share > 1:
        lines.append(f"overloaded: needs {share:.1f}× the {cores} available core{'' if cores == 1 else 's'}")
    else:
        limit = f"{faster:.2g}×" if faster < MAX_SPEEDUP else "over 100×"
        lines.append(f"headroom: {limit} the expected input rate" if faster > 1.1 else "headroom: none")
    return "\n".join(lines)


def show_assumed(pipeline: Pipeline, statistics: StatisticsByStream) -> list[str]:
    """Assumed statistics, and the hints that would declare them."""
    lines = []
    for stream in pipeline.streams:
        stream_statistics = statistics.get(stream.name, StreamStatistics())
        columns = _columns_with_estimates(pipeline, stream.name)
        missing = [name for name in columns if name not in stream_statistics.values]
        parts = [f"{RATE:,.0f} rows/s"] if stream_statistics.rate is None else []
        if missing:
            listed = ", ".join(missing) if len(missing) <= _MAX_NAMES else f"each of {len(missing)} columns"
            parts.append(f"{VALUES:,.0f} distinct values of {listed}")
        hints = ["rate = …"] if stream_statistics.rate is None else []
        if stream.has_intervals and stream_statistics.length is None:
            parts.append(f"rows that are valid for {LENGTH:g} s")
            hints.append("length = …")
        hints += [f"distinct({missing[0]}) = …"] if missing else []
        if parts:
            lines.append(f"assumed: {stream.name} has {' and '.join(parts)}; declare it WITH ({', '.join(hints)})")
    return lines


def show_sources(pipeline: Pipeline, statistics: StatisticsByStream) -> list[str]:
    """Statistics that are not declared and not assumed: measured by earlier queries, or known by the source."""
    lines: list[str] = []
    for stream in pipeline.streams:
        if stream.table is not None:
            continue
        used, declared, known = (
            statistics.get(stream.name, StreamStatistics()), stream.statistics, stream.source_statistics
        )  # fmt: skip
        origins: dict[str, list[str]] = {"measured": [], "from the source": []}
        if used.rate is not None and declared.rate is None:
            origin = "from the source" if used.rate == known.rate else "measured"
            origins[origin].append(f"{short(used.rate)} rows/s")
        for column in _columns_with_estimates(pipeline, stream.name):
            if column in used.values and column not in declared.values:
                origin = "from the source" if used.values[column] == known.values.get(column) else "measured"
                origins[origin].append(f"{short(used.values[column])} distinct values of {column}")
        lines += [f"{origin}: {stream.name} has {', '.join(parts)}" for origin, parts in origins.items() if parts]
    return lines


def _columns_with_estimates(pipeline: Pipeline, stream: str) -> list[str]:
    """Columns of a stream whose number of distinct values an estimate needs: keys of joins, groups and partitions."""
    copies: dict[str, str] = {}
    key_ids: dict[str, None] = {}
    for fragment in pipeline.fragments:
        for port in ports(fragment.root):
            if port.name == f"{SOURCE}{stream}":
                copies |= {column.id: column.name for column in port.columns}
        for node in numbered(fragment.root):
            key_ids |= dict.fromkeys(find_keys(node))
            if isinstance(node, physical.Project):
                outputs = node.outputs
                copies |= {c.id: copies[e.id] for c, e in outputs if isinstance(e, ColumnRef) and e.id in copies}
    return list(dict.fromkeys(copies[column_id] for column_id in key_ids if column_id in copies))


def short(number: float) -> str:
    """A number in a few characters."""
    if number >= 9_999_500:
        for unit, word in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
            if number >= unit * 0.9995:
                return f"{number / unit:.3g}{word}" if number < 1000 * unit else f"{number:.1e}"
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.3g}"


def size(count: float) -> str:
    for unit, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {word}"
    return f"{count:.0f} bytes"


def percent(share: float) -> str:
    if share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
