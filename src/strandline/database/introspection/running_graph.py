"""The graphs that run: their operators, each with the queries that share it, and their versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from strandline.core.table import TextTable
from strandline.core.temporal import BEFORE_ALL, to_datetime
from strandline.database.introspection.text import shorten_line
from strandline.database.query import Query
from strandline.planner.physical.operators import show_node, show_state
from strandline.planner.physical.plan import Fragment, Node, Pipeline, numbered
from strandline.runtime.pipeline import RunningPipeline

_WIDE = 60  # characters of an operator in a list; sys.graph has all of them
_DIGITS = 8  # of the id of an operator, in a list


@dataclass(slots=True)
class GraphOperator:
    """An operator of a graph: its id, the version of the graph in which it began, the queries whose results need it,
    and what it keeps and has cost in all shards."""

    pipeline: str
    id: str
    stage: int
    kind: str
    text: str
    structures: str
    since: int
    queries: list[str]
    state_rows: int = 0
    state_bytes: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a graph that is stored: the first batch that may have run with it, its queries, how many operators
    it has, and whether it runs."""

    pipeline: str
    version: int
    first_batch: int
    queries: str
    operators: int
    is_current: bool


def graph_operators(queries: Sequence[Query]) -> list[GraphOperator]:
    """The operators of the graphs of some queries, in the order of their stages."""
    return [operator for pipeline in _pipelines(queries) for operator in _operators(pipeline)]


def graph_versions(queries: Sequence[Query]) -> Iterator[StoredVersion]:
    """The versions of the graphs of some queries that are stored, the newest last."""
    for pipeline in _pipelines(queries):
        current, versions = pipeline.graph.version, pipeline.graph.versions
        for number in versions.numbers() if versions is not None else ():
            try:
                stored = versions.summary(number) if versions is not None else {}
            except OSError:  # no batch needs it any more, and so it was removed
                continue
            names = ", ".join(query["name"] for query in stored["queries"])
            operators = sum(not part.startswith("source:") for part in stored["since"])
            is_current = number == current.number
            yield StoredVersion(pipeline.label, number, stored["batch"], names, operators, is_current)


def beginning_of(query: Query) -> datetime | None:
    """The instant from which on the rows of a query that was started now count; None for one that has all."""
    since = next((plan.since for plan in query.pipeline.queries if plan.name == query.name), BEFORE_ALL)
    return to_datetime(since) if since > BEFORE_ALL else None


def show_beginning(query: Query) -> str:
    """How a query began, in words; of one that catches up, about how far behind it is."""
    if query.start == "now":
        begins = beginning_of(query)
        return "now" if begins is None else f"now, with rows from {begins:%Y-%m-%d %H:%M:%S.%f} on"
    if query.start == "together":
        queries = query.runs_in.graph.version.queries
        others = sorted(other.name for other in queries if other.start == "together" and other.name != query.name)
        return f"together with {', '.join(others)}" if others else "with its pipeline"
    behind = query.rows_behind
    return f"from the beginning, {behind:,} rows behind the others" if behind else "from the beginning"


def show_graph(queries: Sequence[Query]) -> TextTable:
    """`SHOW GRAPH`: every operator that runs, and the queries that share it."""
    rows: list[tuple[object, ...]] = [
        (o.pipeline, o.id[:_DIGITS], o.stage, shorten_line(o.text, _WIDE), ", ".join(o.queries), o.since, o.state_rows)
        for o in graph_operators(queries)
    ]
    text, number = pa.string(), pa.int64()
    kinds = {"pipeline": text, "id": text, "stage": number, "operator": text, "queries": text}
    return TextTable.of({**kinds, "since_version": number, "state_rows": number}, rows)


def sharing_queries(pipeline: Pipeline) -> dict[str, list[str]]:
    """The queries whose results need an operator, by its id."""
    sharing: dict[str, list[str]] = {}
    for fragment in pipeline.fragments:
        for operator in fragment.operators:
            known = sharing.setdefault(operator, [])
            known += [name for name in fragment.queries if name not in known]
    return sharing


def _pipelines(queries: Sequence[Query]) -> list[RunningPipeline]:
    """The pipelines of queries that run, each once."""
    return list({id(query.runs_in): query.runs_in for query in queries if query.is_running}.values())


def _operators(pipeline: RunningPipeline) -> Iterator[GraphOperator]:
    version, counters = pipeline.graph.version, pipeline.metrics.operators
    sharing = sharing_queries(version.pipeline)
    operators: dict[str, GraphOperator] = {}
    for fragment in version.pipeline.fragments:
        counted = counters.get(fragment.id)
        for number, (node, operator_id) in enumerate(zip(numbered(fragment.root), fragment.operators, strict=True)):
            operator = operators.get(operator_id)
            if operator is None:
                operator = _operator(pipeline, fragment, node, operator_id, version.since[operator_id])
                operator.queries += sharing[operator_id]
                operators[operator_id] = operator
            if counted is not None:
                operator.state_rows += counted.rows[number]
                operator.state_bytes += counted.bytes[number]
                operator.cpu_seconds += counted.seconds[number]
    yield from operators.values()


def _operator(pipeline: RunningPipeline, fragment: Fragment, node: Node, operator_id: str, since: int) -> GraphOperator:
    return GraphOperator(
        pipeline.label, operator_id, fragment.stage, node.tag, show_node(node, {}), show_state(node), since, []
    )
