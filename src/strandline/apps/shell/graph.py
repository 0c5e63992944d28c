"""Plan graph: from the result down to the streams, a line per operator, with row counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from strandline.database.introspection.progress_meter import ProgressMeter, show_rate, show_state
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

    Rows flow upwards. Operators stand below each other, with a branch for each input where inputs meet.
    """
    meter.look()
    picture = _Picture(query.pipeline, meter)
    result = next(f for f in query.pipeline.fragments if f.route == physical.ResultOf(query.name))
    picture.line("", Text.assemble(("result of ", ""), (query.name, "bold cyan")), picture.result_facts())
    picture.fragment(result, "")
    return picture.whole()


class _Picture:
    def __init__(self, pipeline: Pipeline, meter: ProgressMeter) -> None:
        self.pipeline = pipeline
        self.meter = meter
        self.metrics: dict[str, Any] = meter.metrics[0]
        self.running = meter.queries[0].is_running
        self.lines: list[Text] = []
        self.facts: list[str] = []
        self.feeders = {f.route.port: f for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}
        self._names = {port: fragment.id for port, fragment in self.feeders.items()}
        self._drawn: set[str] = set()

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
        self._node(fragment.id, numbers(fragment.root), fragment.root, indent)

    def _node(self, fragment: str, numbering: Mapping[Node, int], node: Node, indent: str) -> None:
        if isinstance(node, physical.Input):
            self._port(node, indent)
            return
        self.line(f"{indent}▲ ", Text(show_node(node, self._names)), self._passed(fragment, numbering[node]))
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
        else:
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
