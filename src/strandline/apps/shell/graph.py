"""Plan graph: from the result down to the streams, a line per operator, with row counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from strandline.database.introspection.progress_meter import ProgressMeter, show_rate, show_state
from strandline.database.introspection.running_graph import sharing_queries
from strandline.database.introspection.text import count_of
from strandline.database.query import Query
from strandline.planner.physical import plan as physical
from strandline.planner.physical.explain import show_exchange
from strandline.planner.physical.graph import SOURCE
from strandline.planner.physical.operators import show_node
from strandline.planner.physical.plan import Fragment, Node, Pipeline, numbers, sources

_QUIET = "bright_black"
_WIDEST = 72  # columns before the facts


def draw(query: Query, meter: ProgressMeter) -> Text:
    """The plan of a query; streams and the result with their counts and rates.

    Rows flow upwards. Operators stand below each other, with a branch for each input where inputs meet. What several
    queries share names them.
    """
    picture = _Picture(query.pipeline)
    picture.result(query.name, meter)
    return picture.whole()


def draw_all(queries: Sequence[tuple[Query, ProgressMeter]]) -> Text:
    """The graphs of queries, one below the other, each operator once; `draw` explains the signs."""
    graphs: dict[int, list[tuple[Query, ProgressMeter]]] = {}
    for query, meter in queries:
        graphs.setdefault(id(query.runs_in), []).append((query, meter))
    pictures: list[Text] = []
    for members in graphs.values():
        first = members[0][0]
        picture = _Picture(first.pipeline)
        if len(graphs) > 1:
            picture.line("", Text.assemble("pipeline ", (first.runs_in.label, "bold")))
        for query, meter in members:
            picture.result(query.name, meter)
        pictures.append(picture.whole())
    return Text("\n\n").join(pictures)


class _Picture:
    """The picture of a graph, or of the part of it that some queries need."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.meter = ProgressMeter(())  # that of the query whose part is drawn
        self.metrics: dict[str, Any] = {}
        self.running = False
        self.lines: list[Text] = []
        self.facts: list[str] = []
        self.feeders = {f.route.port: f for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}
        self._names = {port: fragment.id for port, fragment in self.feeders.items()}
        self._sharers = sharing_queries(pipeline)
        self._drawn: set[str] = set()  # fragments, operators and streams that the picture has

    def result(self, query: str, meter: ProgressMeter) -> None:
        """Add the result of a query, and what it needs that is not there yet."""
        result = next((f for f in self.pipeline.fragments if f.route == physical.ResultOf(query)), None)
        if result is None:
            return  # it was dropped meanwhile
        meter.look()
        self.meter, self.metrics, self.running = meter, meter.metrics[0], meter.queries[0].is_running
        self.line("", Text.assemble(("result of ", ""), (query, "bold cyan")), self.result_facts())
        self.fragment(result, "")

    def line(self, indent: str, text: Text, facts: str = "") -> None:
        self.lines.append(Text.assemble((indent, _QUIET), text))
        self.facts.append(facts)

    def whole(self) -> Text:
        """All lines, with the facts in a column of their own, unless that is far away."""
        width = min(max(map(len, self.lines)), _WIDEST)
        for line, facts in zip(self.lines, self.facts, strict=True):
            if facts:
                line.pad_right(max(width - len(line), 0) + 3)
                line.append(facts, "green")
        return Text("\n").join(self.lines)

    def fragment(self, fragment: Fragment, indent: str) -> None:
        if fragment.id in self._drawn:
            self.line(f"{indent}▲ ", Text(f"{fragment.id}, as above", style=_QUIET))
            return
        self._drawn.add(fragment.id)
        self._node(fragment, numbers(fragment.root), fragment.root, indent)

    def _node(self, fragment: Fragment, numbering: Mapping[Node, int], node: Node, indent: str) -> None:
        if isinstance(node, physical.Input):
            self._port(node, indent)
            return
        operator = fragment.operators[numbering[node]]
        if operator in self._drawn:
            self.line(f"{indent}▲ ", Text(f"{show_node(node, self._names)}, as above", style=_QUIET))
            return
        self._drawn.add(operator)
        facts = self._passed(fragment.id, numbering[node])
        if len(self._sharers[operator]) > 1:
            facts = ", ".join(filter(None, [facts, f"shared by {', '.join(self._sharers[operator])}"]))
        self.line(f"{indent}▲ ", Text(show_node(node, self._names)), facts)
        below = sources(node)
        if len(below) == 1:
            self._node(fragment, numbering, below[0], indent)
            return
        for number, source in enumerate(below):
            last = number == len(below) - 1
            start = len(self.lines)
            self._node(fragment, numbering, source, indent + ("  " if last else "│ "))
            branch = Text(indent + ("└─" if last else "├─"), style=_QUIET)
            self.lines[start] = branch + self.lines[start][len(indent) + 2 :]

    def _passed(self, fragment: str, number: int) -> str:
        """Output, rate and state of an operator."""
        rows, rate = self.meter.passed(fragment, number)
        counts = self.meter.seen[-1].operators.get(fragment)
        facts = [f"{rows:,} rows"] if counts is not None else []
        facts += [show_rate(rate)] if rate and self.running else []
        facts += [f"keeps {counts.rows[number]:,}"] if counts is not None and counts.rows[number] else []
        return ", ".join(facts)

    def _port(self, port: physical.Input, indent: str) -> None:
        if port.name in self.feeders:
            fragment = self.feeders[port.name]
            assert isinstance(fragment.route, physical.ExchangeTo)
            shards = count_of(self.pipeline.shards, "shard")
            self.line(f"{indent}━ ", Text(f"{show_exchange(fragment.route)}, {shards}", style="yellow"))
            self.fragment(fragment, indent)
        elif port.name in self._drawn:
            self.line(f"{indent}● ", Text(f"{show_node(port, self._names)}, as above", style=_QUIET))
        else:
            self._drawn.add(port.name)
            facts = ", ".join(self._read(port.name.removeprefix(SOURCE)))
            self.line(f"{indent}● ", Text(show_node(port, self._names), style="bold"), facts)

    def _read(self, stream: str) -> Iterator[str]:
        rows = self.metrics["rows_in"].get(stream)
        if rows is None:
            return
        yield f"{rows:,} rows"
        for kind in ("late", "rejected"):
            if self.metrics[kind].get(stream):
                yield f"{self.metrics[kind][stream]:,} {kind}"
        rate = self.meter.rates()[0]
        if rate and self.running and len(self.metrics["rows_in"]) == 1:
            yield show_rate(rate)

    def result_facts(self) -> str:
        facts = [f"{self.metrics['rows_out']:,} rows"]
        rate = self.meter.rates()[1]
        facts += [show_rate(rate)] if rate and self.running else []
        return ", ".join([*facts, show_state([self.metrics])])
