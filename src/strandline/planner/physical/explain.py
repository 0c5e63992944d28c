"""The textual form of a physical plan: fragments in stage order, each a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.core.temporal import show_duration
from strandline.logical.explain import (
    show_aggregate,
    show_expression,
    show_order,
    show_outputs,
    show_rank,
    show_rows,
    show_session,
    show_window,
)
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Fragment, Node, Pipeline, numbers, sources


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A line of a plan, and what it is about: a step, by its name (`f1.0`), a stream that is read (`source:name`) or a
    fragment that sends its output on (`f1`)."""

    text: str
    about: str | None = None


def show_pipeline(pipeline: Pipeline) -> str:
    """All fragments, stage by stage; a stage begins after an exchange."""
    return "\n".join(line.text for line in pipeline_lines(pipeline))


def pipeline_lines(pipeline: Pipeline) -> list[PlanLine]:
    lines: list[PlanLine] = []
    feeders = {f.route.port: f.id for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}
    for stage in range(pipeline.stages + 1):
        where = "at the sources" if stage == 0 else f"in {pipeline.shards} shards"
        lines.append(PlanLine(f"stage {stage}, {where}"))
        for fragment in pipeline.at(stage):
            lines.append(PlanLine(f"  {fragment.id} → {_show_route(fragment)}", fragment.id))
            lines += _show_tree(fragment.root, 2, feeders, fragment.id, numbers(fragment.root), set())
    return lines


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


def _show_tree(
    node: Node, depth: int, feeders: Mapping[str, str], fragment: str, numbering: Mapping[Node, int], shown: set[int]
) -> Iterator[PlanLine]:
    """A tree; a subtree that occurs twice runs once and is shown once."""
    text = "  " * depth + show_node(node, feeders)
    if isinstance(node, physical.Input):
        yield PlanLine(text, node.name if node.name.startswith("source:") else None)
        return
    number = numbering[node]
    if number in shown:
        yield PlanLine(f"{text}, as above")
        return
    yield PlanLine(text, f"{fragment}.{number}")
    shown.add(number)
    for source in sources(node):
        yield from _show_tree(source, depth + 1, feeders, fragment, numbering, shown)


def show_node(node: Node, feeders: Mapping[str, str]) -> str:
    """An operator without its inputs; `feeders` names the fragment that sends to a port."""
    match node:
        case physical.Input(name, columns):
            listed = ", ".join(c.id for c in columns)
            if name.startswith("source:"):
                return f"Read {name.removeprefix('source:')} ({listed})"
            return f"Exchange from {feeders[name]} ({listed})"
        case physical.Filter(predicate, _):
            return f"Filter {show_expression(predicate)}"
        case physical.Project(outputs, _):
            return f"Project {show_outputs(outputs)}"
        case physical.TimeWindow(range_us, slide_us, _):
            return f"TimeWindow {show_window(range_us, slide_us)}"
        case physical.CountWindow(partition, rows, slide, by_value, _):
            return f"CountWindow {show_rows(partition, rows, slide)}{', ties by value' if by_value else ''}"
        case physical.SessionWindow(partition, gap_us, _):
            return f"SessionWindow {show_session(partition, gap_us)}"
        case physical.AlignTime(granule_us, _):
            return f"AlignTime to {show_duration(granule_us)}"
        case physical.ChangeStream(change, _):
            return f"ChangeStream {change}"
        case physical.InsertStream():
            return "InsertStream"
        case physical.TopK(partition, order, limit, _):
            return f"TopK {limit} {show_order(partition, order)}"
        case physical.Rank(place, partition, order, most, _):
            return f"Rank {show_rank(place, partition, order, most)}"
        case physical.TopKPrefilter(partition, order, limit, range_us, slide_us, _):
            return f"TopKPrefilter {limit} {show_order(partition, order)} in {show_window(range_us, slide_us)}"
        case physical.Reorder():
            return "Reorder"
        case physical.HashJoin() | physical.OuterHashJoin():
            kind = f"{node.kind.capitalize()} " if isinstance(node, physical.OuterHashJoin) else ""
            pairs = ", ".join(f"{one.id} = {two.id}" for one, two in zip(node.left_keys, node.right_keys, strict=True))
            condition = "" if node.condition is None else f" if {show_expression(node.condition)}"
            return f"{kind}{'HashJoin on ' + pairs if pairs else 'NestedJoin'}{condition}"
        case physical.IncrementalAggregate(keys, aggregates, _):
            by = f" by {', '.join(keys)}" if keys else ""
            computed = ", ".join(show_aggregate(c, a) for c, a in aggregates)
            return f"IncrementalAggregate{by}{': ' if computed else ''}{computed}"
        case physical.Distinct():
            return "Distinct"
        case physical.FirstOccurrence(keys, values, _):
            by = f" by {', '.join(keys)}" if keys else ""
            return f"FirstOccurrence{by}: {', '.join(f'{column.id} := {column_id}' for column, column_id in values)}"
        case physical.UnionAll(columns, _):
            return f"UnionAll ({', '.join(c.id for c in columns)})"
        case physical.Repeat(copies, _):
            return f"Repeat {show_expression(copies)} times"
        case physical.Coalesce():
            return "Coalesce"
        case physical.Split(length_us, _, _):
            return f"Split into {show_duration(length_us)}"
        case physical.SamplingRate(column, _, windows, _):
            return f"SamplingRate of {', '.join(dict.fromkeys(stream for stream, _ in windows))} as {column.name}"
        case physical.Exchange(mode, keys, _):
            return f"Exchange {mode} {', '.join(keys)}"
