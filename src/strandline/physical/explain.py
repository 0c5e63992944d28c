"""The textual form of a physical plan: fragments in stage order, each a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.algebra.explain import (
    show_aggregate,
    show_expression,
    show_order,
    show_outputs,
    show_rank,
    show_rows,
    show_session,
    show_window,
)
from strandline.physical.plan import (
    Arrivals,
    Coalesce,
    Exchange,
    ExtendValidity,
    FirstRows,
    FirstValues,
    Fragment,
    KeptShare,
    LastRows,
    LastSession,
    MatchJoin,
    Merge,
    NetChanges,
    Node,
    Pipeline,
    Port,
    Project,
    RemoveDuplicates,
    Reorder,
    Repeat,
    RoundUp,
    Select,
    Split,
    SweepAggregate,
    SweepRank,
    SweepTop,
    SymmetricJoin,
    ToPort,
    numbers,
    sources,
)
from strandline.temporal import show_duration


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plan, and what it is about: a step, by its name (`f1.0`), a stream that is read (`source:name`) or a
    fragment that sends its output on (`f1`)."""

    text: str
    about: str | None = None


def show_pipeline(pipeline: Pipeline) -> str:
    """All fragments, stage by stage; a stage begins after an exchange. It is the identity of a plan: nothing but the
    plan is in it."""
    return "\n".join(line.text for line in pipeline_lines(pipeline))


def pipeline_lines(pipeline: Pipeline) -> list[Line]:
    """The same line by line."""
    lines: list[Line] = []
    feeders = {f.route.port: f.id for f in pipeline.fragments if isinstance(f.route, ToPort)}
    for stage in range(pipeline.stages + 1):
        where = "at the sources" if stage == 0 else f"in {pipeline.buckets} buckets"
        lines.append(Line(f"stage {stage}, {where}"))
        for fragment in pipeline.at(stage):
            lines.append(Line(f"  {fragment.id} → {_show_route(fragment)}", fragment.id))
            lines += _show_tree(fragment.root, 2, feeders, fragment.id, numbers(fragment.root), set())
    return lines


def _show_route(fragment: Fragment) -> str:
    route = fragment.route
    return show_exchange(route) if isinstance(route, ToPort) else f"answer of {route.query}"


def show_exchange(route: ToPort) -> str:
    """How elements get to the bucket where they are needed."""
    match route.mode:
        case "hash":
            return f"exchange by {', '.join(route.keys)}"
        case "spread":
            return "exchange, spread evenly"
        case "all":
            return "exchange, a copy to every bucket"
        case "one":
            return "exchange to one bucket"


def _show_tree(
    node: Node, depth: int, feeders: Mapping[str, str], fragment: str, known: Mapping[Node, int], shown: set[int]
) -> Iterator[Line]:
    """A tree; what appears twice in it runs once and is shown once."""
    text = "  " * depth + show_node(node, feeders)
    if isinstance(node, Port):
        yield Line(text, node.name if node.name.startswith("source:") else None)
        return
    number = known[node]
    if number in shown:
        yield Line(f"{text}, as above")
        return
    yield Line(text, f"{fragment}.{number}")
    shown.add(number)
    for source in sources(node):
        yield from _show_tree(source, depth + 1, feeders, fragment, known, shown)


def show_node(node: Node, feeders: Mapping[str, str]) -> str:
    """An operator without what is below it; `feeders` names the fragment that sends to a port."""
    match node:
        case Port(name, columns):
            listed = ", ".join(c.id for c in columns)
            if name.startswith("source:"):
                return f"Read {name.removeprefix('source:')} ({listed})"
            return f"From {feeders[name]} ({listed})"
        case Select(predicate, _):
            return f"Select {show_expression(predicate)}"
        case Project(outputs, _):
            return f"Project {show_outputs(outputs)}"
        case ExtendValidity(range_us, slide_us, _):
            return f"ExtendValidity {show_window(range_us, slide_us)}"
        case LastRows(partition, rows, slide, by_value, _):
            return f"LastRows {show_rows(partition, rows, slide)}{', ties by value' if by_value else ''}"
        case LastSession(partition, gap_us, _):
            return f"LastSession {show_session(partition, gap_us)}"
        case RoundUp(granule_us, _):
            return f"RoundUp to {show_duration(granule_us)}"
        case NetChanges(change, _):
            return f"NetChanges {change}"
        case Arrivals():
            return "Arrivals"
        case SweepTop(partition, order, limit, _):
            return f"SweepTop {limit} {show_order(partition, order)}"
        case SweepRank(place, partition, order, most, _):
            return f"SweepRank {show_rank(place, partition, order, most)}"
        case FirstRows(partition, order, limit, range_us, slide_us, _):
            return f"FirstRows {limit} {show_order(partition, order)} in {show_window(range_us, slide_us)}"
        case Reorder():
            return "Reorder"
        case SymmetricJoin() | MatchJoin():
            kind = f"{node.kind.capitalize()} " if isinstance(node, MatchJoin) else ""
            pairs = ", ".join(f"{one.id} = {two.id}" for one, two in zip(node.left_keys, node.right_keys, strict=True))
            rest = "" if node.condition is None else f" if {show_expression(node.condition)}"
            return f"{kind}{'HashJoin on ' + pairs if pairs else 'NestedJoin'}{rest}"
        case SweepAggregate(keys, aggregates, _):
            by = f" by {', '.join(keys)}" if keys else ""
            computed = ", ".join(show_aggregate(c, a) for c, a in aggregates)
            return f"SweepAggregate{by}{': ' if computed else ''}{computed}"
        case RemoveDuplicates():
            return "RemoveDuplicates"
        case FirstValues(keys, values, _):
            by = f" by {', '.join(keys)}" if keys else ""
            return f"FirstValues{by}: {', '.join(f'{column.id} := {id}' for column, id in values)}"
        case Merge(columns, _):
            return f"Merge ({', '.join(c.id for c in columns)})"
        case Repeat(copies, _):
            return f"Repeat {show_expression(copies)} times"
        case Coalesce():
            return "Coalesce"
        case Split(length_us, _, _):
            return f"Split into {show_duration(length_us)}"
        case KeptShare(column, _, windows, _):
            return f"KeptShare of {', '.join(dict.fromkeys(stream for stream, _ in windows))} as {column.name}"
        case Exchange(mode, keys, _):
            return f"Exchange {mode} {', '.join(keys)}"
