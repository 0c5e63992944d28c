"""Facts of the planner about each physical operator: its text in EXPLAIN, its output, its state and work, its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from strandline.core.temporal import SECOND, show_duration
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
from strandline.planner.cardinality import (
    LONGEST,
    aggregated,
    changing,
    filtered,
    first_rows,
    groups_of,
    in_last_rows,
    in_sessions,
    mapped,
    merged,
    ranked,
    rounded_up,
    unique,
    windowed,
)
from strandline.planner.cost import (
    HASH_BYTES,
    OperatorCost,
    Work,
    aggregate_state,
    distinct_state,
    expression_cost,
    join_state,
    match_state,
    sort_by_end,
    width,
)
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, schema, sources
from strandline.planner.physical_cardinality import (
    PhysicalProfile,
    both_sides,
    in_skyband,
    join_output,
    match_output,
    mean_copies,
)


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
            rest = "" if node.condition is None else f" if {show_expression(node.condition)}"
            return f"{kind}{'HashJoin on ' + pairs if pairs else 'NestedJoin'}{rest}"
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
        case physical.Split(length_us, _, _):
            return f"Split into {show_duration(length_us)}"
        case physical.SamplingRate(column, _, windows, _):
            return f"SamplingRate of {', '.join(dict.fromkeys(stream for stream, _ in windows))} as {column.name}"
        case physical.Exchange(mode, keys, _):
            return f"Exchange {mode} {', '.join(keys)}"


def estimate_output(node: Node, known: Mapping[Node, PhysicalProfile], batch: float) -> PhysicalProfile:
    """Profile of the output of an operator in batches of the given length, from those of its inputs."""
    below = tuple(known[source] for source in sources(node))
    first = below[0]
    stream = first.stream
    match node:
        case physical.Filter(predicate, _):
            return first.after(filtered(stream, predicate))
        case physical.Project(outputs, _):
            return first.after(mapped(stream, outputs))
        case physical.TimeWindow(range_us, slide_us, _):
            wait = slide_us / SECOND / 2 if slide_us > 1 else 0.0
            return replace(first, stream=windowed(stream, range_us, slide_us), early=first.early + wait, cut=False)
        case physical.AlignTime(granule_us, _):
            return replace(first, stream=rounded_up(stream, granule_us), early=first.early + granule_us / SECOND / 2)
        case physical.Reorder():
            return replace(first, early=0.0)
        case physical.SamplingRate():
            return first
        case physical.CountWindow(partition, rows, _, _, _):
            return first.cut_every(batch, in_last_rows(stream, partition, rows))
        case physical.SessionWindow(partition, gap_us, _):
            return first.cut_every(batch, in_sessions(stream, partition, gap_us))
        case physical.ChangeStream() | physical.InsertStream():
            return replace(first, stream=changing(first.uncut), cut=True, whole=1.0)
        case physical.TopK(partition, _, limit, _):
            return first.cut_every(batch, first_rows(first.uncut, partition, limit))
        case physical.Rank(place, partition, _, limit, _):
            return first.cut_every(batch, ranked(first.uncut, place, partition, limit))
        case physical.TopKPrefilter(partition, _, limit, range_us, slide_us, _):
            together = batch if range_us is None else min(batch, slide_us / SECOND)
            item = stream.rate * together / groups_of(stream, partition)
            return first.after(replace(stream, rate=stream.rate * min(1.0, in_skyband(limit, item) / item)))
        case physical.HashJoin():
            return join_output(node, *both_sides(below))
        case physical.OuterHashJoin():
            return match_output(node, *both_sides(below), batch)
        case physical.IncrementalAggregate(keys, _, _):
            return first.cut_every(batch, aggregated(first.uncut, keys))
        case physical.Distinct(source):
            return first.after(unique(stream, tuple(c.id for c in schema(source))))
        case physical.FirstOccurrence(_, values, _):
            copied = {copy.id: stream.values[column_id] for copy, column_id in values if column_id in stream.values}
            return first.after(replace(stream, values={**stream.values, **copied}))
        case physical.UnionAll(columns, inputs):
            both = merged(columns, tuple(schema(item) for item in inputs), tuple(item.stream for item in below))
            return replace(first, stream=both, cut=all(item.cut for item in below))
        case physical.Repeat(copies, source):
            return first.after(replace(stream, rate=stream.rate * mean_copies(copies, source, known)))
        case physical.Split(length_us, _, _):
            pieces = max(1.0, stream.length * SECOND / length_us)
            return first.after(replace(stream, rate=stream.rate * pieces, length=stream.length / pieces))
        case physical.Input() | physical.Exchange():
            raise AssertionError(f"{type(node).__name__} is not an operator that runs")
        case _:
            assert_never(node)


def estimate_state(node: Node, known: Mapping[Node, PhysicalProfile], batch: float, steps: float) -> OperatorCost:
    """State and work of an operator in batches of the given length, with `steps` of them per second."""
    below = [known[source] for source in sources(node)]
    out = known[node].stream
    first = below[0]
    arriving = sum(item.arriving for item in below)
    moved = sum(item.arriving * width(schema(source)) for item, source in zip(below, sources(node), strict=True))
    work: Work = {"row": arriving, "result": out.rate, "step": steps, "byte": moved + out.rate * width(schema(node))}
    rows, each_bytes = 0.0, width(schema(node))
    match node:
        case physical.Filter(predicate, _):
            work["computed"] = arriving * expression_cost(predicate)
        case physical.Project(outputs, _):
            work["computed"] = arriving * sum(expression_cost(expression) for _, expression in outputs)
        case physical.Repeat(copies, _):
            work["computed"] = arriving * expression_cost(copies)
        case (
            physical.TimeWindow()
            | physical.AlignTime()
            | physical.InsertStream()
            | physical.UnionAll()
            | physical.TopKPrefilter()
            | physical.SamplingRate()
        ):
            pass  # they keep nothing
        case physical.Reorder():
            rows = arriving * first.early
            work["touched"] = min(rows / batch, arriving)
        case physical.HashJoin():
            rows, each_bytes = join_state(node, below[0], below[1], batch, work)
        case physical.OuterHashJoin():
            rows, each_bytes = match_state(node, below[0], below[1], batch, work)
        case physical.Distinct(source):
            rows = distinct_state(source, first, batch, work)
            each_bytes += HASH_BYTES
        case physical.FirstOccurrence(keys, values, _):
            rows = sum(groups_of(first.stream, (*keys, column_id)) for _, column_id in values)
            # All keys are known: the log does not grow, in a few segments.
            work["probe"] = arriving * len(values) * 3
        case physical.IncrementalAggregate():
            rows, each_bytes = aggregate_state(node, first, batch, work)
        case physical.CountWindow(partition, window, slide, _, _):
            per_part = window + (slide - 1) / 2
            rows = min(groups_of(first.stream, partition) * per_part, first.stream.rate * LONGEST)
            work["touched"] = rows / batch
            each_bytes += HASH_BYTES
        case physical.SessionWindow():
            rows = out.valid
            work["touched"] = rows / batch
        case physical.ChangeStream():
            rows = 0.0 if first.stream.length >= LONGEST else first.stream.valid
            sort_by_end(first, batch, work)
        case physical.TopK(partition, _, limit, _) | physical.Rank(_, partition, _, limit, _):
            groups = groups_of(first.stream, partition)
            item = first.stream.valid / groups
            # Older ones stay until there are twice as many as needed.
            rows = first.stream.valid
            if limit is not None:
                together = limit * max(
                    1.0, first.uncut.length / first.stream.granule
                )  # of elements that expire together
                rows = groups * min(item, 1.25 * in_skyband(limit, item), together)
            work["touched"] = rows / batch
        case physical.Split(length_us, _, _):
            rows = first.stream.valid if first.stream.length > length_us / 1e6 else 0.0
            work["touched"] = min(rows / batch, out.rate)
        case physical.Input() | physical.Exchange():
            raise AssertionError(f"{type(node).__name__} is not an operator that runs")
        case _:
            assert_never(node)
    return OperatorCost(rows, rows * each_bytes, work)


def find_keys(node: Node) -> tuple[str, ...]:
    """The columns whose numbers of distinct values the estimates of an operator need: EXPLAIN names those that are
    assumed."""
    match node:
        case physical.HashJoin(left, right) | physical.OuterHashJoin(_, left, right):
            return tuple(ref.id for ref in (*left, *right))
        case physical.IncrementalAggregate(keys) | physical.CountWindow(keys) | physical.SessionWindow(keys):
            return keys
        case physical.TopK(keys) | physical.Rank(_, keys):
            return keys
        case physical.Distinct(source):
            return tuple(column.id for column in schema(source))
        case physical.FirstOccurrence(keys, values):
            return (*keys, *(column_id for _, column_id in values))
        case _:
            return ()
