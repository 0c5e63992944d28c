"""Run-time statistics of a query, operator by operator and edge by edge.

Elements, state and cost of operators are counted in every batch. The rest is measured while there are subscribers
(`runtime/subscriptions.py`), and is None before; derived figures are computed on access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from strandline.core.table import TextTable
from strandline.core.temporal import SECOND
from strandline.database.introspection.text import show_number
from strandline.planner.physical.graph import SOURCE, OperatorGraph, build_operator_graph
from strandline.runtime.edge_metrics import EdgeMetrics
from strandline.runtime.kernels.refused_values import Sample
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.statistics_store import starts_of
from strandline.runtime.watermark import SourceStatus

ANSWER = "answer"  # where the last edge of a query leads


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """Statistics of one operator since its query began: elements in and out, seconds of CPU, and its present state."""

    step: str
    fragment: str
    number: int
    kind: str
    text: str
    inputs: tuple[str, ...]
    rows_in: int
    rows_out: int
    cpu_seconds: float
    state_rows: int
    state_bytes: int

    @property
    def selectivity(self) -> float | None:
        """Elements that leave for each that comes."""
        return self.rows_out / self.rows_in if self.rows_in else None

    @property
    def cost_us(self) -> float | None:
        """Microseconds of CPU for each element that comes."""
        return self.cpu_seconds * SECOND / self.rows_in if self.rows_in else None


@dataclass(frozen=True, slots=True)
class EdgeStatistics:
    """Statistics of an edge from a stream (`source:name`) or an operator to the next one, or to the result.

    `pattern` is the update pattern of its elements, `form` how one is sent whose end is not known, and `state` how the
    operator at its end keeps them.
    """

    begin: str
    end: str
    form: str
    pattern: str
    state: str
    rows: int
    measured: EdgeMetrics

    @property
    def rate(self) -> float | None:
        """Elements per second of their own time."""
        return self.measured.starts.rate if self.measured.starts is not None else None

    @property
    def distance(self) -> float | None:
        """Seconds between two starts, on average: the d of chapter 22 of Krämer's thesis."""
        return self.measured.starts.distance if self.measured.starts is not None else None

    @property
    def length(self) -> float | None:
        """Seconds that an element is valid, on average: the thesis' l."""
        return self.measured.lengths.mean if self.measured.lengths is not None else None

    @property
    def granule(self) -> float | None:
        """Seconds by multiples of which all starts and ends lie apart: the thesis' g."""
        granules = self.measured.granules
        return granules.span / SECOND if granules is not None and granules.span else None

    @property
    def distinct(self) -> dict[str, float]:
        """About how many values each column has."""
        return {column: sketch.count for column, sketch in (self.measured.values or {}).items()}


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """Statistics of a query at one moment: its operators, inputs first, and its edges."""

    query: str
    operators: tuple[OperatorStatistics, ...]
    edges: tuple[EdgeStatistics, ...]

    def __str__(self) -> str:
        done = ("step", "operator", "rows_in", "rows_out", "cpu_ms", "us_per_row", "state_rows")
        operators = [
            (o.step, o.text, show_number(o.rows_in), show_number(o.rows_out), show_number(o.cpu_seconds * 1000),
             show_number(o.cost_us), show_number(o.state_rows))
            for o in self.operators
        ]  # fmt: skip
        flow = ("from", "to", "form", "pattern", "state", "rows", "rate", "length", "granule", "distinct")
        edges = [
            (e.begin, e.end, e.form, e.pattern, e.state, show_number(e.rows), show_number(e.rate),
             show_number(e.length), show_number(e.granule), show_distinct(e.distinct) or "")
            for e in self.edges
        ]  # fmt: skip
        return f"{TextTable.text(done, operators)}\n\n{TextTable.text(flow, edges)}"


@dataclass(frozen=True, slots=True)
class QueryCounters:
    """What is counted of a query: its operators, their counters, and the status of its streams."""

    query: str
    flow: OperatorGraph
    statuses: Mapping[str, SourceStatus]
    counts: Mapping[str, OperatorCounters]
    rows_out: int

    @staticmethod
    def of(query: str, metrics: PipelineMetrics) -> QueryCounters:
        """The counters of a query that this process runs."""
        flow = build_operator_graph(metrics.physical)
        return QueryCounters(query, flow, metrics.statuses_for(query), metrics.operators, metrics.rows_out[query])

    @property
    def streams(self) -> list[SourceStatus]:
        return [self.statuses.get(name) or SourceStatus(name) for name in self.flow.streams[self.query]]

    def passed(self, step: str) -> int:
        """Elements that left a step, or a stream for this query after sampling."""
        if step.startswith(SOURCE):
            status = self.statuses.get(step.removeprefix(SOURCE))
            return status.rows - status.dropped.get(self.query, 0) if status is not None else 0
        at = self.flow.steps[step]
        return self.counts[at.fragment].passed[at.number] if at.fragment in self.counts else 0

    def operators(self) -> list[OperatorStatistics]:
        """The operators behind the result, inputs first."""
        operators: dict[str, OperatorStatistics] = {}

        def visit(step: str) -> None:
            if step.startswith(SOURCE) or step in operators:
                return
            for source in self.flow.steps[step].inputs:
                visit(source)
            operators[step] = self._operator(step)

        for step in self.flow.results[self.query]:
            visit(step)
        return list(operators.values())

    def _operator(self, step: str) -> OperatorStatistics:
        at = self.flow.steps[step]
        came, left = sum(map(self.passed, at.inputs)), self.passed(step)
        seconds, rows, size = 0.0, 0, 0
        if (counts := self.counts.get(at.fragment)) is not None:
            seconds, rows, size = counts.seconds[at.number], counts.rows[at.number], counts.bytes[at.number]
        return OperatorStatistics(
            step, at.fragment, at.number, at.kind, at.text, at.inputs, came, left, seconds, rows, size
        )

    def refused(self, step: str) -> Sample | None:
        """A sample of what a filter has seen, if nothing has passed it."""
        at = self.flow.steps[step]
        return self.counts[at.fragment].refused.get(str(at.number)) if at.fragment in self.counts else None

    def reading(self, stream: str) -> OperatorStatistics:
        """Reading a stream as an operator: late rows come and do not leave."""
        name = f"{SOURCE}{stream}"
        counts = self.counts.get(name)
        came, seconds = (counts.passed[0], counts.seconds[0]) if counts is not None else (0, 0.0)
        return OperatorStatistics(name, "", 0, "Read", f"Read {stream}", (), came, self.passed(name), seconds, 0, 0)


def statistics_of(query: str, metrics: PipelineMetrics) -> QueryStatistics:
    """Statistics of a query that runs in this process."""
    counters = QueryCounters.of(query, metrics)
    operators = counters.operators()
    reading = [counters.reading(status.stream) for status in counters.streams]
    edges = _edges(counters, operators, metrics.measurements.edges)
    return QueryStatistics(query, (*reading, *operators), tuple(edges))


def _edges(
    counters: QueryCounters, operators: Sequence[OperatorStatistics], measured: Mapping[str, EdgeMetrics]
) -> Iterator[EdgeStatistics]:
    ends = [(source, operator.step) for operator in operators for source in operator.inputs]
    ends += [(step, ANSWER) for step in counters.flow.results[counters.query]]
    for begin, end in ends:
        metrics = measured.get(begin, EdgeMetrics())
        status = counters.statuses.get(begin.removeprefix(SOURCE)) if begin.startswith(SOURCE) else None
        if status is not None and status.rows and metrics.starts is None:
            metrics = EdgeMetrics(starts_of(status), metrics.lengths, metrics.granules, metrics.values)
        sent, target = counters.flow.edges[begin], counters.flow.steps.get(end)
        state = target.state if target is not None else ""
        yield EdgeStatistics(begin, end, sent.form, sent.pattern, state, counters.passed(begin), metrics)


def show_distinct(values: Mapping[str, float]) -> str | None:
    """Counts of values as text, or nothing."""
    return ", ".join(f"{column} {show_number(count)}" for column, count in values.items()) or None
