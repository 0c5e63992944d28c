"""The textual form of a physical plan: fragments in stage order, each a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.planner.physical import plan as physical
from strandline.planner.physical.edges import Edge, describe_edges
from strandline.planner.physical.operators import show_node, show_state
from strandline.planner.physical.plan import Fragment, Node, Pipeline, fragments_of, numbers, sources

MOST_NAMED: Final = 6  # queries that share an operator, and are listed


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A line of a plan, and what it is about: a step, by its name (`f1.0`), a stream that is read (`source:name`) or a
    fragment that sends its output on (`f1`); the structures of its state, and the update pattern of what it sends."""

    text: str
    about: str | None = None
    state: str = ""
    pattern: str = ""


def show_pipeline(pipeline: Pipeline) -> str:
    """All fragments, stage by stage; a stage begins after an exchange. An operator is followed by its update pattern
    and the structures of its state."""
    return "\n".join(_with_facts(line) for line in pipeline_lines(pipeline))


def show_beside(extended: Pipeline, query: str, running: Pipeline) -> str:
    """The plan of a query within a pipeline that it is added to: what runs has the names of the queries that it is
    shared with."""
    own = {fragment.id: fragment for fragment in fragments_of(extended, query)}
    readers = _find_readers(running.fragments)
    part = replace(extended, fragments=tuple(f for f in extended.fragments if f.id in own))
    lines: list[str] = []
    for line in pipeline_lines(part):
        fragment, _, number = (line.about or "").partition(".")
        operator = own[fragment].operators[int(number)] if number and fragment in own else ""
        with_whom = f", shared with {_show_readers(readers[operator])}" if operator in readers else ""
        lines.append(_with_facts(replace(line, text=line.text + with_whom)))
    return "\n".join(lines)


def _with_facts(line: PlanLine) -> str:
    facts = ", ".join(filter(None, (line.pattern, line.state)))
    return f"{line.text}  [{facts}]" if facts else line.text


def pipeline_lines(pipeline: Pipeline) -> list[PlanLine]:
    """The lines of a plan, each with what EXPLAIN shows beside it."""
    lines: list[PlanLine] = []
    edges = describe_edges(pipeline)
    feeders = {f.route.port: f.id for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}
    for stage in range(pipeline.stages + 1):
        where = "at the sources" if stage == 0 else f"in {pipeline.shards} shards"
        lines.append(PlanLine(f"stage {stage}, {where}"))
        readers = _find_readers(pipeline.at(stage))
        shown: dict[str, str] = {}  # operators of the stage, with the fragment that shows them
        for fragment in pipeline.at(stage):
            lines.append(PlanLine(f"  {fragment.id} → {_show_route(fragment)}", fragment.id))
            lines += _show_operators(fragment, feeders, edges, shown, readers)
    return lines


def _find_readers(fragments: Iterable[Fragment]) -> dict[str, list[str]]:
    """The queries of each operator of a stage."""
    readers: dict[str, list[str]] = {}
    for fragment in fragments:
        for operator in fragment.operators:
            readers[operator] = list(dict.fromkeys((*readers.get(operator, ()), *fragment.queries)))
    return readers


def _show_readers(queries: Sequence[str]) -> str:
    return ", ".join(queries) if len(queries) <= MOST_NAMED else f"{len(queries)} queries"


def _show_route(fragment: Fragment) -> str:
    route = fragment.route
    return show_exchange(route) if isinstance(route, physical.ExchangeTo) else f"result of {route.query}"


def show_exchange(route: physical.ExchangeTo) -> str:
    match route.mode:
        case "hash":
            return f"exchange hash({', '.join(route.keys)})"
        case "spread":
            return "exchange round robin"
        case "all":
            return "exchange broadcast"
        case "one":
            return "exchange to a single shard"


def _show_operators(
    fragment: Fragment,
    feeders: Mapping[str, str],
    edges: Mapping[str, Edge],
    shown: dict[str, str],
    readers: Mapping[str, Sequence[str]],
) -> Iterator[PlanLine]:
    """The tree of a fragment; a part that occurs twice, also in another fragment, runs once and is shown once."""
    numbering = numbers(fragment.root)

    def show(node: Node, depth: int) -> Iterator[PlanLine]:
        text = "  " * depth + show_node(node, feeders)
        if isinstance(node, physical.Input):
            about = node.name if node.name.startswith("source:") else None
            yield PlanLine(text, about, pattern=str(edges[about or feeders[node.name]]))
            return
        number = numbering[node]
        operator, step = fragment.operators[number], f"{fragment.id}.{number}"
        if isinstance(node, physical.SharedWindowJoin):
            text += f", shared by {_show_readers(readers[operator])}"
        if operator in shown:
            where = "above" if shown[operator] == fragment.id else f"in {shown[operator]}"
            yield PlanLine(
                f"{'  ' * depth}{show_node(node, feeders)}, as {where}",
                None if shown[operator] == fragment.id else step,
            )
        else:
            yield PlanLine(text, step, show_state(node), str(edges[step]))
            shown[operator] = fragment.id
            for source in sources(node):
                yield from show(source, depth + 1)

    return show(fragment.root, 2)
