"""Facts of the planner about each physical operator: text in EXPLAIN, lifetimes, structures, output, cost and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from strandline.core.identity_cache import cached_by_identity
from strandline.core.temporal import BEFORE_ALL, SECOND, show_duration, show_instant
from strandline.functions.aggregates import needs_members
from strandline.logical import explain
from strandline.logical.expressions import Frame
from strandline.logical.plan import Aggregates
from strandline.planner import cardinality, cost
from strandline.planner.cardinality import CHRONON, LONGEST, groups_of
from strandline.planner.compaction import StateStructure
from strandline.planner.cost import HASH_BYTES, OperatorCost, Work, width
from strandline.planner.physical import plan as physical
from strandline.planner.physical import update_pattern
from strandline.planner.physical.plan import Node, schema, sources
from strandline.planner.physical.update_pattern import ENDLESS, INSTANTS, UNKNOWN, Lifetimes
from strandline.planner.physical.window_uses import classes, ends_in_order, living
from strandline.planner.physical_cardinality import (
    PhysicalProfile,
    beginning_share,
    condition_of,
    held_sides,
    in_skyband,
    join_output,
    match_output,
    mean_multiplicity,
    route_output,
    shared_output,
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
            return f"Filter {explain.show_expression(predicate)}"
        case physical.Unnest(element, array, ordinal, outer):
            return explain.show_unnest(element.id, array, ordinal, outer)
        case physical.Project(outputs, _):
            return f"Project {explain.show_outputs(outputs)}"
        case physical.TimeWindow(range_us, slide_us, _, offset_us):
            return f"TimeWindow {explain.show_window(range_us, slide_us, offset_us)}"
        case physical.CountWindow(partition, rows, slide, by_value, _, form):
            ties = ", ties by value" if by_value else ""
            return f"CountWindow {explain.show_rows(partition, rows, slide)}{ties}{_show_form(form)}"
        case physical.SessionWindow(partition, gap_us, _):
            return f"SessionWindow {explain.show_session(partition, gap_us)}"
        case physical.WindowBounds():
            bounds = node.range_us, node.slide_us, node.cumulative, node.start, node.end, node.offset_us
            return f"WindowBounds {explain.show_bounds(*bounds)}"
        case physical.AlignTime(granule_us, _):
            return f"AlignTime to {show_duration(granule_us)}"
        case physical.ChangeStream(change, _, input_form):
            return f"ChangeStream {change}{_show_form(input_form)}"
        case physical.InsertStream():
            return "InsertStream"
        case physical.TopK(partition, order, limit, _):
            return f"TopK {limit} {explain.show_order(partition, order)}"
        case physical.Rank(rank_column, partition, order, limit, _):
            return f"Rank {explain.show_rank(rank_column, partition, order, limit)}"
        case physical.OverRange(partition, start_us, end_us, aggregates, _):
            frame = explain.show_frame(Frame("range", None if start_us is None else -start_us, -end_us))
            return f"OverRange{explain.show_grouping(partition, aggregates)}{frame}"
        case physical.OverRows(partition, order, ties, calls, waits, per_instant, _):
            return f"OverRows{explain.show_over(partition, order, ties, calls, waits, per_instant)}"
        case physical.TopKPrefilter(partition, order, limit, range_us, slide_us, _, offset_us):
            window = explain.show_window(range_us, slide_us, offset_us)
            return f"TopKPrefilter {limit} {explain.show_order(partition, order)} in {window}"
        case physical.Reorder():
            above = [stream for stream in node.above if stream not in node.below]
            ahead = f", {', '.join(node.below)} ahead of {', '.join(above)}" if node.below else ""
            return f"Reorder{ahead}{_show_form(node.form)}"
        case physical.HoldOpen():
            return "HoldOpen"
        case physical.HashJoin() | physical.OuterHashJoin() | physical.LookupJoin():
            return _show_join(node)
        case physical.SharedWindowJoin():
            return _show_shared_join(node)
        case physical.Route(use, outputs, _, since):
            begin = "" if since == BEFORE_ALL else f" from {show_instant(since)} on"
            return f"Route {show_use(use)}{begin}: {explain.show_outputs(outputs)}"
        case physical.IncrementalAggregate(keys, aggregates, _, form, panes, coalesces):
            how = (", by panes" if panes else "") + (", coalesced" if coalesces else "")
            return f"IncrementalAggregate{explain.show_grouping(keys, aggregates)}{how}{_show_form(form)}"
        case physical.Distinct():
            return f"Distinct{_show_form(node.form)}"
        case physical.Coalesce(_, form, longest_us):
            up_to = "" if longest_us is None else f" up to {show_duration(longest_us)}"
            return f"Coalesce{up_to}{_show_form(form)}"
        case physical.FoldChanges(stream, _, keys, _, form):
            by = f" by {', '.join(keys)}" if keys else ""
            return f"FoldChanges of {stream}{by}{_show_form(form)}"
        case physical.AsChanges():
            return "AsChanges"
        case physical.AsIntervals():
            return "AsIntervals"
        case physical.FirstOccurrence(keys, values, _):
            marked = ", ".join(f"{column.id} := {column_id}" for column, column_id in values)
            return f"FirstOccurrence{explain.show_keys(keys)}: {marked}"
        case physical.UnionAll(columns, _):
            return f"UnionAll ({', '.join(c.id for c in columns)})"
        case physical.Repeat(copies, _):
            return f"Repeat {explain.show_expression(copies)} times"
        case physical.Split(length_us):
            return f"Split into {show_duration(length_us)}"
        case physical.SamplingRate(column, _, windows, _):
            return f"SamplingRate of {', '.join(dict.fromkeys(stream for stream, _ in windows))} as {column.name}"
        case physical.Exchange(mode, keys, _):
            return f"Exchange {mode} {', '.join(keys)}"


def _show_join(node: physical.JoinNode) -> str:
    kind = "" if isinstance(node, physical.HashJoin) else f"{node.kind.capitalize()} "
    pairs = ", ".join(f"{one.id} = {two.id}" for one, two in zip(node.left_keys, node.right_keys, strict=True))
    rest = "" if node.condition is None else f" if {explain.show_expression(node.condition)}"
    word = "Lookup" if isinstance(node, physical.LookupJoin) else "Hash" if pairs else "Nested"
    return f"{kind}{word}Join{' on ' + pairs if pairs else ''}{rest}{_show_form(node.form)}"


@cached_by_identity
def _show_shared_join(node: physical.SharedWindowJoin) -> str:
    pairs = ", ".join(f"{one.id} = {two.id}" for one, two in zip(node.left_keys, node.right_keys, strict=True))
    rest = "" if node.condition is None else f" if {explain.show_expression(node.condition)}"
    uses = living(node.uses)
    number = len(classes(uses))
    selections = f", {number} selections" if number > 1 else ""
    windows = len({(use.left, use.right) for use in uses})
    return f"SharedWindowJoin{' on ' + pairs if pairs else ''}{rest} for {windows} windows{selections}"


def show_use(use: physical.WindowUse) -> str:
    """A use in words: its windows, one if both are the same, and the digests of its selections."""
    windows = [explain.show_window(*window) for window in dict.fromkeys((use.left, use.right))]
    chosen = [digest[:6] for digest in use.selections if digest]
    return " and ".join(windows) + (f", selection {', '.join(chosen)}" if chosen else "")


def _show_form(form: physical.StreamForm) -> str:
    return "" if form == "intervals" else ", as changes"


def derive_lifetimes(node: Node, below: Sequence[Lifetimes]) -> Lifetimes:
    """The lifetimes of the elements that an operator sends, from those of its inputs."""
    match node:
        case physical.Filter() | physical.Project() | physical.Unnest() | physical.Repeat() | physical.SamplingRate():
            return below[0]
        case physical.Reorder() | physical.FirstOccurrence() | physical.TopKPrefilter() | physical.Exchange():
            return below[0]
        case physical.TimeWindow(range_us, slide_us):
            return update_pattern.windowed(below[0], range_us, slide_us)
        case physical.AlignTime(granule_us):
            return update_pattern.aligned(below[0], granule_us)
        case physical.WindowBounds():
            return UNKNOWN
        case physical.Split(length_us):
            # An element that may never end has ever more parts: how many come with an end depends on the batches.
            bounded = below[0].duration_us is not None and below[0] != ENDLESS
            return update_pattern.lasting(length_us) if bounded else UNKNOWN
        case physical.ChangeStream() | physical.InsertStream():
            return INSTANTS
        case physical.UnionAll():
            return update_pattern.merged(below)
        case physical.HashJoin():
            return INSTANTS if INSTANTS in below else update_pattern.meeting(below)
        case physical.Route(use):
            return _use_lifetimes(use)
        case physical.SharedWindowJoin(uses=uses):
            return _uses_lifetimes(uses)
        case physical.OuterHashJoin(kind):
            preserved = below if kind == "full" else below[:1]
            if all(side == INSTANTS for side in preserved):
                return INSTANTS
            return update_pattern.meeting(below) if kind == "semi" else UNKNOWN
        case physical.LookupJoin():
            return below[0]
        case physical.Distinct():
            return update_pattern.meeting(below)
        case physical.IncrementalAggregate(keys):  # without keys there is a group even over nothing
            return INSTANTS if keys and below[0] == INSTANTS else UNKNOWN
        case physical.TopK() | physical.Rank() | physical.OverRange() | physical.OverRows():
            return INSTANTS if below[0] == INSTANTS else UNKNOWN
        case physical.CountWindow() | physical.SessionWindow() | physical.Coalesce() | physical.FoldChanges():
            return UNKNOWN
        case physical.AsChanges() | physical.AsIntervals():  # an end is not said, or depends on the batches
            return UNKNOWN
        case physical.HoldOpen():
            return below[0]
        case physical.Input():
            raise AssertionError("the lifetimes of an input are those of what is sent to it")
        case _:
            assert_never(node)


@cached_by_identity  # of a hundred queries over one join each asks for the pairs of all of them
def _uses_lifetimes(uses: tuple[physical.WindowUse, ...]) -> Lifetimes:
    return update_pattern.merged([_use_lifetimes(use) for use in living(uses)])


def _use_lifetimes(use: physical.WindowUse) -> Lifetimes:
    windows = [update_pattern.windowed(INSTANTS, range_us, slide_us) for range_us, slide_us, _ in (use.left, use.right)]
    return INSTANTS if INSTANTS in windows else update_pattern.meeting(windows)


def show_state(node: Node) -> str:
    """The structures in which an operator keeps rows between batches; nothing, if it keeps none.

    queue   by start or by end: what is due is taken from the front
    hash    by key, in segments that are dropped when all of their elements have ended
    calendar   the same where elements end in any order: segments are also written again without those that have ended
    keyed   by key; the rows of a key are replaced by newer ones
    signed  by key; an element that has ended is cancelled by one with the sign -1
    panes   sums of the elements of a group that end together, by their end
    held    all rows are written again in every batch
    """
    replaced = "keyed" if getattr(node, "form", "intervals") == "changes" else "held"
    match node:
        case physical.Reorder() | physical.TopK() | physical.Rank() | physical.ChangeStream() | physical.Split():
            return "queue"
        case physical.OverRange(_, start_us, end_us):
            return "keyed" if start_us is None and not end_us else "keyed + queue"
        case physical.OverRows():
            return "" if node.per_instant else "keyed"
        case physical.AsChanges() | physical.WindowBounds():
            return "queue"
        case physical.HashJoin(input_forms=forms) if forms != physical.BOTH_INTERVALS:
            return " + ".join([*_show_interval_sides(node), "signed + queue"])
        case physical.OuterHashJoin(input_forms=forms) if forms != physical.BOTH_INTERVALS:
            return " + ".join([*_show_interval_sides(node), "keyed + signed + queue"])
        case physical.HashJoin(structures=structures):
            return _show_sides(structures)
        case physical.LookupJoin(input_forms=(left, right), structures=(_, structure)):
            table = "signed + queue" if right == "changes" else _show_sides([structure])
            return f"{table} + keyed" if left == "changes" else table
        case physical.FirstOccurrence():
            return "hash"
        case physical.SharedWindowJoin():
            return _show_sides(["fifo" if ends_in_order(node, side) else "calendar" for side in (0, 1)])
        case physical.OuterHashJoin("semi", structures=structures):
            return f"{_show_sides(structures)} + keyed + queue"
        case physical.OuterHashJoin("mark", structures=structures) if replaced == "held":
            return f"{_show_sides((*structures, 'calendar'))} + held + keyed + queue"
        case physical.OuterHashJoin(structures=structures):  # the matches of an element end in any order
            return f"{_show_sides((*structures, 'calendar'))} + {replaced} + queue"
        case physical.Distinct():
            return "keyed + queue"
        case physical.IncrementalAggregate(_, aggregates, input_form="changes") if _needs_elements(aggregates):
            return "keyed + signed + queue" if replaced == "keyed" else "held + keyed + signed + queue"
        case physical.IncrementalAggregate():
            return f"{replaced} + panes" if node.panes else f"{replaced} + queue"
        case physical.CountWindow():
            return replaced
        case physical.FoldChanges():
            return "keyed"
        case physical.Coalesce(_, "intervals", None):
            return ""
        case physical.HoldOpen():
            return "signed"
        case physical.SessionWindow() | physical.Coalesce() | physical.AsIntervals():
            return "held"
        case _:
            return ""


def _needs_elements(aggregates: Aggregates) -> bool:
    """True if an aggregate needs the elements that are left when one has ended."""
    return any(call.function in ("min", "max") or needs_members(call) for _, call in aggregates)


def _show_interval_sides(node: physical.JoinNode) -> list[str]:
    sides = zip(node.input_forms, node.structures, strict=True)
    structures = [structure for form, structure in sides if form == "intervals"]
    return [_show_sides(structures)] if structures else []


def _show_sides(structures: Sequence[StateStructure]) -> str:
    """Of the sides of a join; both names where they differ."""
    return " + ".join(dict.fromkeys("hash" if structure == "fifo" else "calendar" for structure in structures))


def estimate_output(node: Node, profiles: Mapping[Node, PhysicalProfile], batch: float) -> PhysicalProfile:
    """Profile of the output of an operator in batches of the given length, from those of its inputs."""
    below = tuple(profiles[source] for source in sources(node))
    first = below[0]
    stream = first.stream
    match node:
        case physical.Filter(predicate, _):
            return first.after(cardinality.filtered(stream, predicate))
        case physical.Project(outputs, _):
            return first.after(cardinality.mapped(stream, outputs))
        case physical.Unnest(element, _, ordinal):
            return first.after(cardinality.unnested(stream, tuple(c for c in (element, ordinal) if c is not None)))
        case physical.TimeWindow(range_us, slide_us, _):
            early = first.early + (slide_us / SECOND / 2 if slide_us > 1 else 0.0)
            return replace(first, stream=cardinality.windowed(stream, range_us, slide_us), early=early, cut=False)
        case physical.AlignTime(granule_us, _):
            early = first.early + granule_us / SECOND / 2
            return replace(first, stream=cardinality.rounded_up(stream, granule_us), early=early)
        case physical.Reorder():
            return replace(first, early=0.0)
        case physical.SamplingRate() | physical.HoldOpen():
            return first
        case physical.CountWindow(partition, rows, _, _, _, form):
            return first.as_sent(form, batch, cardinality.in_last_rows(stream, partition, rows))
        case physical.SessionWindow(partition, gap_us, _):
            return first.as_sent("intervals", batch, cardinality.in_sessions(stream, partition, gap_us))
        case physical.ChangeStream() | physical.InsertStream():
            return replace(first, stream=replace(first.uncut, length=CHRONON), cut=True, whole=1.0)
        case physical.TopK(partition, _, limit, _):
            return first.as_sent("intervals", batch, cardinality.first_rows(first.uncut, partition, limit))
        case physical.Rank(rank_column, partition, _, limit, _):
            return first.as_sent("intervals", batch, cardinality.ranked(first.uncut, rank_column, partition, limit))
        case physical.OverRange(aggregates=aggregates):
            return first.after(cardinality.with_values(stream, [column for column, _ in aggregates]))
        case physical.OverRows(calls=calls):
            return first.after(cardinality.with_values(stream, [column for column, _ in calls]))
        case physical.TopKPrefilter(partition, _, limit, range_us, slide_us, _):
            together = batch if range_us is None else min(batch, slide_us / SECOND)
            per_group = stream.rate * together / groups_of(stream, partition)
            return first.after(replace(stream, rate=stream.rate * min(1.0, in_skyband(limit, per_group) / per_group)))
        case physical.HashJoin():
            return join_output(node, profiles[node.left], profiles[node.right])
        case physical.SharedWindowJoin():
            return shared_output(node, profiles[node.left], profiles[node.right])
        case physical.Route(use, outputs, _):
            return route_output(use, outputs, node.source, profiles)
        case physical.OuterHashJoin():
            return match_output(node, profiles[node.left], profiles[node.right], batch)
        case physical.LookupJoin(kind):
            found = cardinality.looked_up(kind, condition_of(node), first.stream, below[1].uncut)
            return replace(first, stream=found, form=node.form)
        case physical.IncrementalAggregate(keys, aggregates, _, form, _, coalesces):
            changing = cardinality.changing_share(first.uncut, keys, aggregates) if coalesces else 1.0
            return first.as_sent(form, batch, cardinality.aggregated(first.uncut, keys).fewer(changing))
        case physical.Distinct(source, "changes"):
            payloads = cardinality.counted(first.uncut, tuple(c.id for c in schema(source)))
            return first.as_sent("changes", batch, payloads)
        case physical.Distinct(source):
            return first.after(cardinality.unique(stream, tuple(c.id for c in schema(source))))
        case physical.Coalesce(source, form, _):
            return first.as_sent(form, batch, first.uncut.fewer(beginning_share(source, profiles)))
        case physical.FoldChanges(_, _, keys, _, form):
            # Rows of a key replace one another; without a key every second row is a deletion.
            elements = replace(stream, rate=stream.rate / (1 if keys else 2), length=cardinality.LENGTH, spread=True)
            return first.as_sent(form, batch, elements)
        case physical.AsChanges():
            return first.as_sent("changes", batch, first.uncut)
        case physical.AsIntervals():
            return first.as_sent("intervals", batch, first.uncut)
        case physical.FirstOccurrence(_, values, _):
            copied = {copy.id: stream.values[column_id] for copy, column_id in values if column_id in stream.values}
            return first.after(replace(stream, values={**stream.values, **copied}))
        case physical.UnionAll(columns, inputs):
            schemas, streams = tuple(map(schema, inputs)), tuple(profile.stream for profile in below)
            all_cut = all(profile.cut for profile in below)
            return replace(first, stream=cardinality.merged(columns, schemas, streams), cut=all_cut)
        case physical.Repeat(copies, source):
            return first.after(replace(stream, rate=stream.rate * mean_multiplicity(copies, source, profiles)))
        case physical.WindowBounds(slide_us=slide_us):
            return first.after(cardinality.bounded(stream, slide_us, node.start, node.end))
        case physical.Split(length_us):
            parts = max(1.0, stream.length * SECOND / length_us)
            return first.after(replace(stream, rate=stream.rate * parts, length=stream.length / parts))
        case physical.Input() | physical.Exchange():
            raise AssertionError(f"{type(node).__name__} is not an operator that runs")
        case _:
            assert_never(node)


def estimate_state(node: Node, profiles: Mapping[Node, PhysicalProfile], batch: float, steps: float) -> OperatorCost:
    """State and work of an operator in batches of the given length, with `steps` of them per second."""
    below = [profiles[source] for source in sources(node)]
    out = profiles[node].stream
    first = below[0]
    arriving = sum(profile.arriving for profile in below)
    moved = sum(profiles[source].arriving * width(schema(source)) for source in sources(node))
    work: Work = {"row": arriving, "result": out.rate, "step": steps, "byte": moved + out.rate * width(schema(node))}
    rows, each_bytes = 0.0, width(schema(node))
    match node:
        case physical.Filter(predicate, _):
            work["computed"] = arriving * cost.expression_cost(predicate)
        case physical.Project(outputs, _):
            work["computed"] = arriving * sum(cost.expression_cost(expression) for _, expression in outputs)
        case physical.Repeat(copies, _):
            work["computed"] = arriving * cost.expression_cost(copies)
        case physical.TimeWindow() | physical.AlignTime() | physical.InsertStream():
            pass  # they keep nothing
        case physical.UnionAll() | physical.TopKPrefilter() | physical.SamplingRate() | physical.Unnest():
            pass
        case physical.Reorder():
            rows = arriving * first.early
            work["touched"] = min(rows / batch, arriving)
        case physical.HashJoin():
            rows, each_bytes = cost.join_state(node, profiles[node.left], profiles[node.right], batch, work)
        case physical.SharedWindowJoin():
            rows, each_bytes = cost.join_state(node, *held_sides(node, profiles), batch, work)
        case physical.Route():
            work["row"] = out.rate  # a part of what comes, which is not looked through
            work["byte"] = out.rate * width(schema(node))
        case physical.OuterHashJoin():
            rows, each_bytes = cost.match_state(node, profiles[node.left], profiles[node.right], batch, work)
        case physical.LookupJoin():
            at_once = replace(first, stream=replace(first.stream, length=CHRONON))
            rows, each_bytes = cost.join_state(node, at_once, profiles[node.right], batch, work)
            if node.form == "changes":  # what was found for elements without an end
                rows += profiles[node].uncut.valid
                work["touched"] = cost.keyed(arriving, rows, batch, work)
        case physical.Distinct(source):
            rows = cost.distinct_state(source, first, batch, work)
            each_bytes += HASH_BYTES
        case physical.Coalesce(_, form, longest_us):
            if form == "changes":
                work |= {"paired": arriving, "pairing": steps}
            if form == "changes" or longest_us is not None:
                rows = first.stream.valid
                work["touched"] = rows / batch
        case physical.FoldChanges(_, _, _, _, form):
            rows = profiles[node].uncut.valid
            work["touched"] = rows / batch if form == "intervals" else cost.keyed(arriving, rows, batch, work)
            each_bytes += HASH_BYTES
        case physical.HoldOpen():
            rows = first.uncut.valid
            each_bytes += HASH_BYTES
        case physical.AsIntervals():
            rows = first.stream.valid
            work["touched"] = rows / batch
        case physical.AsChanges():
            rows = 0.0 if first.cut else first.stream.valid
            cost.sort_by_end(first, batch, work)
        case physical.FirstOccurrence(keys, values, _):
            rows = sum(groups_of(first.stream, (*keys, column_id)) for _, column_id in values)
            # All keys have come: the log does not grow, in a few segments.
            work["probe"] = arriving * len(values) * 3
        case physical.IncrementalAggregate():
            rows, each_bytes = cost.aggregate_state(node, first, batch, work)
        case physical.CountWindow(partition, window, slide, _, _, form):
            per_part = window + (slide - 1) / 2
            rows = min(groups_of(first.stream, partition) * per_part, first.stream.rate * LONGEST)
            work["touched"] = (
                rows / batch if form == "intervals" else cost.keyed(arriving * per_part, rows, batch, work)
            )
            each_bytes += HASH_BYTES
        case physical.SessionWindow():
            rows = out.valid
            work["touched"] = rows / batch
        case physical.ChangeStream():
            rows = 0.0 if first.stream.length >= LONGEST else first.stream.valid
            cost.sort_by_end(first, batch, work)
        case physical.TopK(partition, _, limit, _) | physical.Rank(_, partition, _, limit, _):
            groups = groups_of(first.stream, partition)
            per_group = first.stream.valid / groups
            rows = first.stream.valid
            if limit is not None:
                granules = max(1.0, first.uncut.length / first.stream.granule)  # elements of one expire together
                # Older ones stay until there are twice as many as needed.
                rows = groups * min(per_group, 1.25 * in_skyband(limit, per_group), limit * granules)
            work["touched"] = rows / batch
        case physical.OverRange() | physical.OverRows():
            rows, each_bytes = cost.over_state(node, first, batch, work)
        case physical.Split(length_us) | physical.WindowBounds(slide_us=length_us):
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
        case (
            physical.HashJoin(left, right)
            | physical.OuterHashJoin(_, left, right)
            | physical.LookupJoin(_, left, right)
            | physical.SharedWindowJoin(left, right)
        ):
            return tuple(ref.id for ref in (*left, *right))
        case physical.IncrementalAggregate(keys) | physical.CountWindow(keys) | physical.SessionWindow(keys):
            return keys
        case physical.TopK(keys) | physical.Rank(_, keys) | physical.OverRange(keys) | physical.OverRows(keys):
            return keys
        case physical.Distinct(source):
            return tuple(column.id for column in schema(source))
        case physical.FirstOccurrence(keys, values):
            return (*keys, *(column_id for _, column_id in values))
        case _:
            return ()
