"""Fragment runner: from messages to messages, one shard and one batch at a time. Independent of Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import pairwise
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA
from strandline.core.errors import QueryError, StrandlineError
from strandline.core.identity_cache import cached_by_identity
from strandline.core.temporal import FOREVER, Instant, show_instant
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Fragment, Node, Pipeline
from strandline.planner.physical.running_groups import groups_of
from strandline.planner.physical.structure import goes_by, streams_below
from strandline.planner.physical.waiting import find_waiting
from strandline.runtime.edge_metrics import EdgeProfiler, union_metrics
from strandline.runtime.exchange import DRIVER, Message, ResultWriter, to_table
from strandline.runtime.fragment_turns import plan_turns
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, stack, times
from strandline.runtime.kernels.compiled import cpu_seconds
from strandline.runtime.kernels.hashing import hash_rows
from strandline.runtime.kernels.refused_values import Sample, merge_samples
from strandline.runtime.operators import stateless
from strandline.runtime.operators.aggregate import IncrementalAggregateOperator
from strandline.runtime.operators.as_changes import AsChangesOperator
from strandline.runtime.operators.as_intervals import AsIntervalsOperator
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.change_stream import ChangeStreamOperator
from strandline.runtime.operators.changes_hash_join import ChangesHashJoinOperator
from strandline.runtime.operators.changes_outer_hash_join import ChangesOuterHashJoinOperator
from strandline.runtime.operators.coalesce import CoalesceOperator
from strandline.runtime.operators.count_window import CountWindowOperator
from strandline.runtime.operators.counting_distinct import CountingDistinctOperator
from strandline.runtime.operators.distinct import DistinctOperator
from strandline.runtime.operators.first_occurrence import FirstOccurrenceOperator
from strandline.runtime.operators.fold_changes import FoldChangesOperator
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.operators.hold_back_changes import HoldBackChangesOperator
from strandline.runtime.operators.hold_open import HoldOpenOperator
from strandline.runtime.operators.lookup_join import LookupJoinOperator
from strandline.runtime.operators.outer_hash_join import OuterHashJoinOperator
from strandline.runtime.operators.over_range import OverRangeOperator
from strandline.runtime.operators.over_rows import OverRowsOperator
from strandline.runtime.operators.reorder import ReorderOperator
from strandline.runtime.operators.reorder_changes import ReorderChangesOperator
from strandline.runtime.operators.routed_pairs import PairsOfUse, RouteOperator
from strandline.runtime.operators.session_window import SessionWindowOperator
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.operators.split import SplitOperator
from strandline.runtime.operators.top_k import TopKOperator, TopKPrefilterOperator
from strandline.runtime.operators.unnest import UnnestOperator
from strandline.runtime.operators.window_bounds import WindowBoundsOperator
from strandline.runtime.reaches import Reaches
from strandline.runtime.routed_results import bundle
from strandline.runtime.scheduling.budget import UNLIMITED, WorkBudget, WorkReport
from strandline.runtime.state.segments import State, States
from strandline.runtime.watermark import SourceStatus, merge_statuses, watermark_of


def operator_for(node: Node) -> Operator:
    """The running operator of a physical one."""
    match node:
        case physical.Filter(predicate, _):
            return stateless.FilterOperator(predicate)
        case physical.Unnest(element, array, ordinal, outer):
            return UnnestOperator(element, array, ordinal, outer)
        case physical.Project(outputs, _):
            return stateless.ProjectOperator(outputs)
        case physical.TimeWindow(range_us, slide_us, _, offset_us):
            return stateless.TimeWindowOperator(range_us, slide_us, offset_us)
        case physical.Reorder(_, "intervals"):
            return ReorderOperator()
        case physical.Reorder(source, "changes", below) if below:
            return HoldBackChangesOperator(physical.schema(source))
        case physical.Reorder(source):
            return ReorderChangesOperator(physical.schema(source))
        case physical.HoldOpen(source):
            return HoldOpenOperator(physical.schema(source))
        case physical.HashJoin(left_keys, right_keys, condition, left, right, structures, forms):
            schemas = physical.schema(left), physical.schema(right)
            if forms == physical.BOTH_INTERVALS:
                return HashJoinOperator(left_keys, right_keys, condition, *schemas, structures)
            return ChangesHashJoinOperator(left_keys, right_keys, condition, *schemas, forms, structures)
        case physical.SharedWindowJoin(left_keys, right_keys, condition, left_word, right_word, left, right, uses):
            words = left_word, right_word
            schemas = physical.schema(left), physical.schema(right)
            return SharedWindowJoinOperator(left_keys, right_keys, condition, words, *schemas, uses)
        case physical.Route(use, outputs, _, since):
            return RouteOperator(use, outputs, since)
        case physical.CountWindow(partition, rows, slide, by_value, source, form):
            return CountWindowOperator(partition, rows, slide, by_value, physical.schema(source), form)
        case physical.SessionWindow(partition, gap_us, source):
            return SessionWindowOperator(partition, gap_us, physical.schema(source))
        case physical.AlignTime(granule_us, _):
            return stateless.AlignTimeOperator(granule_us)
        case physical.ChangeStream(change, source, input_form):
            return ChangeStreamOperator(change, physical.schema(source), input_form)
        case physical.InsertStream():
            return stateless.InsertStreamOperator()
        case physical.TopK(partition, order, limit, source):
            return TopKOperator(partition, order, limit, physical.schema(source))
        case physical.Rank(rank_column, partition, order, max_rank, source):
            return TopKOperator(partition, order, max_rank, physical.schema(source), rank_column)
        case physical.OverRange(partition, start_us, end_us, aggregates, source):
            return OverRangeOperator(partition, start_us, end_us, aggregates, physical.schema(source))
        case physical.OverRows(partition, order, ties, calls, waits, per_instant, source):
            return OverRowsOperator(partition, order, ties, calls, waits, per_instant, physical.schema(source))
        case physical.TopKPrefilter(partition, order, limit, range_us, slide_us, _, offset_us):
            return TopKPrefilterOperator(partition, order, limit, range_us, slide_us, offset_us)
        case physical.OuterHashJoin(kind, left_keys, right_keys, condition, left, right, mark, form, structures, forms):
            schemas = physical.schema(left), physical.schema(right)
            if forms == physical.BOTH_INTERVALS:
                return OuterHashJoinOperator(kind, left_keys, right_keys, condition, *schemas, mark, form, structures)
            keys = left_keys, right_keys
            return ChangesOuterHashJoinOperator(kind, *keys, condition, *schemas, mark, forms, structures)
        case physical.LookupJoin(kind, left_keys, right_keys, condition, left, right, mark, structures, forms):
            schemas = physical.schema(left), physical.schema(right)
            return LookupJoinOperator(kind, left_keys, right_keys, condition, *schemas, mark, structures, forms)
        case physical.IncrementalAggregate(keys, aggregates, source, form, panes, coalesces, input_form):
            how = form, panes, coalesces, input_form
            return IncrementalAggregateOperator(keys, aggregates, physical.schema(source), *how)
        case physical.Distinct(source, form):
            operator = DistinctOperator if form == "intervals" else CountingDistinctOperator
            return operator(physical.schema(source))
        case physical.Coalesce(source, form, longest_us):
            return CoalesceOperator(physical.schema(source), form, longest_us)
        case physical.FoldChanges(stream, op_column, keys, source, form):
            return FoldChangesOperator(stream, op_column, keys, physical.schema(source), form)
        case physical.AsChanges():
            return AsChangesOperator()
        case physical.AsIntervals(source):
            return AsIntervalsOperator(physical.schema(source))
        case physical.FirstOccurrence(keys, values, source):
            return FirstOccurrenceOperator(keys, values, physical.schema(source))
        case physical.UnionAll(columns, _):
            return stateless.UnionAllOperator(columns)
        case physical.Repeat(copies, _):
            return stateless.RepeatOperator(copies)
        case physical.SamplingRate(column, query, windows, _):
            return stateless.SamplingRateOperator(column, query, windows)
        case physical.WindowBounds():
            bounds = node.start, node.end, node.offset_us
            return WindowBoundsOperator(node.range_us, node.slide_us, node.cumulative, *bounds)
        case physical.Split(length_us, repeats, _, by_rows):
            return SplitOperator(length_us, repeats, by_rows)
        case physical.Input() | physical.Exchange():
            raise AssertionError(f"{type(node).__name__} is not an operator that runs")


Place: TypeAlias = tuple[int, int]


class Wiring(NamedTuple):
    """The operators of fragments in the order in which they step, each with where its inputs come from: a port, or the
    operator of that number. For each root, where its output comes from, and the numbers of its operators; the ports
    that are read; the sets of streams by which operators go; the numbers of a set and of a fragment that are met; for
    each operator those of itself and of its inputs, with the first fragment that has it; and the routes, which are the
    same operators in every batch."""

    steps: list[tuple[Node, list[physical.Input | int]]]
    outputs: list[physical.Input | int]
    numbers: list[list[int]]
    ports: list[physical.Input]
    sets: list[frozenset[str]]
    places: list[Place]
    goes_by: list[tuple[Place, Place]]
    routes: dict[int, RouteOperator]


@cached_by_identity  # a fragment is wired again for every chunk that is read, and comparing large trees takes time
def _wire(*parts: Node | frozenset[str]) -> Wiring:
    """The wiring of fragments: their roots, then the streams by which each goes."""
    roots = [part for part in parts if not isinstance(part, frozenset)]
    streams = [part for part in parts if isinstance(part, frozenset)]
    number_of = physical.numbers(*roots)
    own = goes_by(roots, streams)

    def place(node: Node) -> physical.Input | int:
        return node if isinstance(node, physical.Input) else number_of[node]

    steps = [(node, [place(source) for source in physical.sources(node)]) for node in number_of]
    numbers = [[number_of[node] for node in physical.numbered(root)] for root in roots]
    ports = list({port.name: port for root in roots for port in physical.ports(root)}.values())
    pairs = [(own[node], streams_below(node, own[node])) for node in number_of]
    sets = list(dict.fromkeys((*streams, *(each for pair in pairs for each in pair))))
    owners = {number: root for root in reversed(range(len(roots))) for number in numbers[root]}
    by_number = [
        ((sets.index(one), owners[number]), (sets.index(below), owners[number]))
        for number, (one, below) in enumerate(pairs)
    ]
    of_roots = [(sets.index(own_streams), root) for root, own_streams in enumerate(streams)]
    places = list(dict.fromkeys((*of_roots, *(each for pair in by_number for each in pair))))
    routes = {
        number: RouteOperator(node.use, node.outputs, node.since)
        for node, number in number_of.items()
        if isinstance(node, physical.Route)
    }
    return Wiring(steps, [place(root) for root in roots], numbers, ports, sets, places, by_number, routes)


class OperatorError(Exception):
    """An error of the operator with a number: it fails the queries that read it, and no others."""

    def __init__(self, number: int, error: StrandlineError) -> None:
        super().__init__(number, error)
        self.number, self.error = number, error


class FragmentRunner:
    """The operators of fragments, wired as their trees: one that several of them have runs once. `watch` observes the
    output of each of them. `streams` are those by whose watermark each goes; by default, there is one for all.
    `may_wait` are the operators of each that may be complete later; by default none of them."""

    def __init__(
        self,
        *roots: Node,
        streams: Sequence[frozenset[str]] = (),
        may_wait: Sequence[frozenset[int]] = (),
        watch: Callable[[int, pl.DataFrame], None] | None = None,
    ) -> None:
        self._roots = roots
        wiring = _wire(*roots, *(streams or (frozenset(),) * len(roots)))
        self._steps, self._outputs, self.numbers, self.ports, self._sets, self._places, self._goes_by, routes = wiring
        self._watch = watch
        self.operators = [routes.get(number) or operator_for(node) for number, (node, _) in enumerate(self._steps)]
        self._release_early()
        self.reaches = Reaches(self.operators, [sources for _, sources in self._steps])
        if self.reaches.joins:
            self._demand(routes, may_wait)
        self.passed = [0] * len(self._steps)  # how many elements have left each operator
        self.seconds = [0.0] * len(self._steps)  # of CPU that each has taken

    def _release_early(self) -> None:
        """Let joins take what a table has always had as it comes, instead of as one slice; of one side at most."""
        used = Counter(source for _, sources in self._steps for source in sources)
        for (_, sources), operator in zip(self._steps, self.operators, strict=True):
            join = operator.join if isinstance(operator, LookupJoinOperator) else operator
            if not isinstance(join, ChangesHashJoinOperator):
                continue
            for side, source in reversed(list(enumerate(sources))):
                below = self.operators[source] if isinstance(source, int) else None
                if isinstance(below, ReorderChangesOperator) and used[source] == 1 and join.early is None:
                    below.releases_early, join.early = True, side

    def _demand(self, routes: Mapping[int, RouteOperator], may_wait: Sequence[frozenset[int]]) -> None:
        """Let joins put off nothing for routes of which one reader must not wait."""
        waiting = may_wait or (frozenset[int](),) * len(self._roots)
        for numbers, own in zip(self.numbers, waiting, strict=True):
            for place, number in enumerate(numbers):
                if number in routes and place not in own:
                    (source,) = self._steps[number][1]
                    join = self.operators[source] if isinstance(source, int) else None
                    assert isinstance(join, SharedWindowJoinOperator), "a route follows a shared window join"
                    join.in_time |= {routes[number].bounds}

    def step(
        self, inputs: Mapping[str, Batch], watermark: Watermark | Callable[[frozenset[str], int], Watermark]
    ) -> list[Batch]:
        """The output of each fragment up to the watermark, which may be one by streams and by the number of a fragment
        that has the operator; inputs by port. What is over does not run again."""
        reached_at = {
            (place, fragment): watermark(self._sets[place], fragment) if callable(watermark) else watermark
            for place, fragment in self._places
        }
        puts_off = bool(self.reaches.joins) or self.reaches.is_active
        if all(reached.was_over for reached in reached_at.values()) and not self.reaches.is_active:
            return [Batch.empty(physical.schema(root)) for root in self._roots]
        done: list[Batch] = []

        def input_of(source: physical.Input | int) -> Batch:
            if isinstance(source, int):
                return done[source]
            return inputs[source.name] if source.name in inputs else Batch.empty(source.columns)

        # Of the whole process: array libraries compute in threads of their own, and a worker runs one task at a time.
        before = cpu_seconds()
        for number, (node, sources) in enumerate(self._steps):
            own, below = self._goes_by[number]
            reached, batches = reached_at[own], [input_of(source) for source in sources]
            if puts_off:
                reached, batches = self.reaches.take(number, reached, batches, done)
            if reached.was_over:
                done.append(Batch.empty(physical.schema(node)))
                continue
            if own != below:
                reached = replace(reached, below=reached_at[below].time)
            try:
                done.append(self.operators[number].step(batches, reached))
            except QueryError as error:
                raise OperatorError(number, error) from error
            self.passed[number] += len(done[number])
            if not self.operators[number].is_timed and self._watch is None:
                continue
            after = cpu_seconds()
            self.seconds[number] += after - before
            before = after
            if self._watch is not None:
                self._watch(number, done[number].frame)
                before = cpu_seconds()
        return [input_of(output) for output in self._outputs]

    def reach_of(self, root: int) -> Instant | None:
        """Up to when the output of a fragment is complete, if work is put off below it, or was until this step."""
        output = self._outputs[root]
        return self.reaches.by_number.get(output) if isinstance(output, int) else None

    def readers(self, number: int, fragments: Sequence[Fragment]) -> frozenset[str]:
        """The queries whose results need the operator with a number."""
        needing = (f for f, numbers in zip(fragments, self.numbers, strict=True) if number in numbers)
        return frozenset(query for fragment in needing for query in fragment.queries)

    def unmatched(self) -> dict[str, pl.DataFrame]:
        """Deletions in change feeds of rows that are not there, by stream; once, however often a stream is read."""
        found: dict[str, pl.DataFrame] = {}
        for operator in self.operators:
            if isinstance(operator, FoldChangesOperator):
                found.setdefault(operator.stream, operator.unmatched)
        return found

    def refused(self) -> dict[str, Sample]:
        """What the filters have seen that let nothing through, by their numbers."""
        return {
            str(number): operator.refused
            for number, operator in enumerate(self.operators)
            if isinstance(operator, stateless.FilterOperator) and operator.refused and not self.passed[number]
        }

    def restore(self, ids: Sequence[str], states: States) -> None:
        """Continue from the states of operators by id; one that begins now has none."""
        for number, (operator_id, operator) in enumerate(zip(ids, self.operators, strict=True)):
            if operator_id in states:
                operator.restore(self.reaches.restore(number, states[operator_id]))

    def save(self) -> list[State]:
        return [self.reaches.save(number, operator.save()) for number, operator in enumerate(self.operators)]


@dataclass(slots=True)
class OperatorCounters:
    """Counters by operator of `FragmentRunner.operators`: elements out, elements in state, seconds of CPU.

    `refused` has samples of what filters have seen that let nothing through, by the number of the operator.
    """

    passed: list[int]
    rows: list[int]
    bytes: list[int]
    seconds: list[float]
    refused: dict[str, Sample] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Its fields; the lists are its own."""
        return {name: getattr(self, name) for name in self.__slots__}


def add_counters(totals: dict[str, OperatorCounters], fragment: str, counters: OperatorCounters) -> None:
    """Add the counters of a fragment in one task to those of its other tasks."""
    if fragment in totals:
        total = totals[fragment]
        counters = OperatorCounters(
            list(map(add, total.passed, counters.passed)),
            list(map(add, total.rows, counters.rows)),
            list(map(add, total.bytes, counters.bytes)),
            list(map(add, total.seconds, counters.seconds)),
            _merge_refused(total.refused, counters.refused),
        )
    totals[fragment] = counters


def _merge_refused(one: Mapping[str, Sample], two: Mapping[str, Sample]) -> dict[str, Sample]:
    """The samples of two tasks."""
    numbers = sorted({*one, *two})
    return {number: merge_samples(each[number] for each in (one, two) if number in each) for number in numbers}


@dataclass(slots=True)
class StageOutput:
    """Messages that a task sends, by shard, and to the driver."""

    shards: int
    sender: int
    write_result: ResultWriter
    announced: frozenset[str] = frozenset()  # queries whose open elements all are among the results
    by_shard: dict[int, list[Message]] = field(default_factory=dict)
    for_driver: list[Message] = field(default_factory=list)
    results: dict[str, list[Batch]] = field(default_factory=dict)
    counts: dict[str, OperatorCounters] = field(default_factory=dict)
    profiler: EdgeProfiler = field(default_factory=EdgeProfiler)
    failed: frozenset[str] = frozenset()
    version: Mapping[str, Any] | None = None  # the version of the graph, for the tasks of the later stages
    budget: WorkBudget = UNLIMITED  # for the tasks of the later stages, too
    work: WorkReport = field(default_factory=WorkReport)

    def runner(
        self, *fragments: Fragment, waiting: Mapping[str, frozenset[int]] = MappingProxyType({})
    ) -> FragmentRunner:
        """The operators of fragments, with the profiler on their edges if there is something to measure. `waiting` are
        those of each that may wait, by fragment."""
        roots, streams = [f.root for f in fragments], tuple(f.streams for f in fragments)
        may_wait = [waiting.get(f.id, frozenset()) for f in fragments]
        if not self.profiler.requested_metrics:
            return FragmentRunner(*roots, streams=streams, may_wait=may_wait)
        steps: dict[int, list[str]] = {}
        for fragment, numbers in zip(fragments, _wire(*roots, *streams).numbers, strict=True):
            for own, number in enumerate(numbers):
                steps.setdefault(number, []).append(f"{fragment.id}.{own}")

        def watch(number: int, frame: pl.DataFrame) -> None:
            for step in steps[number]:
                self.profiler.record(step, frame)

        return FragmentRunner(*roots, streams=streams, may_wait=may_wait, watch=watch)

    def count(self, fragments: Sequence[Fragment], runner: FragmentRunner, states: Sequence[State] = ()) -> None:
        """Record the counters of fragments; stage 0 has no state. The state and the time of an operator that several of
        them have count in the first."""
        states = states or [State()] * len(runner.operators)
        refused = runner.refused()
        counted: set[int] = set()
        for fragment, numbers in zip(fragments, runner.numbers, strict=True):
            own = [number not in counted for number in numbers]
            counters = OperatorCounters(
                [runner.passed[number] for number in numbers],
                [states[number].rows() if first else 0 for number, first in zip(numbers, own, strict=True)],
                [states[number].size() if first else 0 for number, first in zip(numbers, own, strict=True)],
                [runner.seconds[number] if first else 0.0 for number, first in zip(numbers, own, strict=True)],
                {str(i): refused[str(number)] for i, number in enumerate(numbers) if str(number) in refused},
            )
            counted.update(numbers)
            add_counters(self.counts, fragment.id, counters)

    def count_reading(self, stream: str, rows: int, seconds: float) -> None:
        """Record the cost of reading a source, as a fragment of one operator."""
        add_counters(self.counts, f"source:{stream}", OperatorCounters([rows], [0], [0], [seconds]))

    def fail(self, queries: frozenset[str], error: StrandlineError) -> None:
        """Report that queries have failed: what they send to others is of no use."""
        self.failed |= queries
        for query in sorted(queries):
            self.for_driver.append(Message("failed", query, DRIVER, facts=error.to_json()))

    def send(self, shard: int, message: Message) -> None:
        self.by_shard.setdefault(shard, []).append(message)

    def route(self, route: physical.ExchangeTo | physical.ResultOf, batch: Batch) -> None:
        """Send the output of a fragment where it belongs."""
        if not len(batch):
            return
        if isinstance(route, physical.ResultOf):
            self.results.setdefault(route.query, []).append(batch)
            return
        for shard, part in _by_shard(route, batch.frame, self.shards):
            self.send(shard, Message("port", route.port, route.stage, self.sender, table=to_table(part)))

    def close(self) -> None:
        """Send the results of a task, one message per query or per shared join, then the counters of its operators."""
        routed: dict[str, PairsOfUse] = {}
        for query, batches in self.results.items():
            if len(batches) == 1 and isinstance(batches[0], PairsOfUse) and query in self.write_result.sent:
                routed[query] = batches[0]
            else:
                frame = stack([batch.frame for batch in batches])
                self.for_driver += self.write_result(query, frame, query in self.announced)
        self.for_driver += bundle(routed, self.write_result.sent)
        self.results = {}
        facts = {fragment: counts.to_json() for fragment, counts in self.counts.items()}
        self.for_driver.append(Message("operators", "", DRIVER, facts=facts))
        if self.work != WorkReport():
            self.for_driver.append(Message("work", "", DRIVER, facts=self.work.to_json()))
        if self.profiler.edges:
            edges = {name: edge.to_json() for name, edge in self.profiler.edges.items()}
            self.for_driver.append(Message("measured", "", DRIVER, facts=edges))


def _by_shard(route: physical.ExchangeTo, frame: pl.DataFrame, shards: int) -> Iterable[tuple[int, pl.DataFrame]]:
    """Distribute rows over the shards; within a shard they keep their order."""
    match route.mode:
        case "one":
            yield 0, frame
        case "all":
            for shard in range(shards):
                yield shard, frame
        case "spread":
            for shard, (begin, end) in enumerate(
                pairwise(frame.height * number // shards for number in range(shards + 1))
            ):
                if begin < end:
                    yield shard, frame.slice(begin, end - begin)
        case "hash":
            target = (hash_rows(frame, route.keys) % np.uint64(shards)).astype(np.uint16)
            order = np.argsort(target, kind="stable")  # a radix sort for 16 bits: linear
            bounds = np.searchsorted(target[order], np.arange(shards + 1)).tolist()
            for shard, (begin, end) in enumerate(pairwise(bounds)):
                if begin < end:
                    yield shard, frame[order[begin:end]]


def run_stage(
    pipeline: Pipeline,
    stage: int,
    shard: int,
    messages_in: Sequence[Message],
    states: States,
    out: StageOutput,
    *,
    announces: bool = False,
    last_stage: int | None = None,
) -> States:
    """Run one batch of all fragments of a stage in one shard; returns their states after it. With `announces`,
    everything that is open in results is sent again, also for queries to which the batch has not announced it.
    `last_stage` is that of the engine, which may have more of them than the pipeline.

    Source status messages are forwarded to the same shard of the next stage: every shard of every stage gets each of
    them once.
    """
    statuses = merge_statuses(SourceStatus.from_json(m.facts) for m in messages_in if m.kind == "watermark")
    out.profiler = EdgeProfiler(reduce(union_metrics, (status.requested_metrics for status in statuses.values()), ()))
    out.announced = frozenset(query for status in statuses.values() for query in status.announced)
    budget = next((WorkBudget.from_json(m.facts) for m in messages_in if m.kind == "budget"), UNLIMITED)
    ports: dict[str, Instant] = {}
    for message in messages_in:
        if message.kind == "reach" and message.stage == stage:
            ports[message.name] = min(message.facts["time"], ports.get(message.name, FOREVER))
    turns = plan_turns(
        pipeline,
        stage,
        shard,
        messages_in,
        states,
        budget,
        lambda fragment: watermark_of(statuses, fragment.streams),
        ports,
    )
    out.work = out.work.merge(turns.work)
    reporting = _reporting_fragments(pipeline)
    last_stage = pipeline.stages if last_stage is None else last_stage
    after: States = {}
    for group in groups_of(pipeline, stage):
        if not group[0].everywhere and shard != 0:
            continue
        announced = {f.since for f in group if announces or not out.announced.isdisjoint(f.queries)}

        @cache
        def reached(
            streams: frozenset[str], since: Instant, announced: Collection[Instant] = frozenset(announced)
        ) -> Watermark:
            return replace(watermark_of(statuses, streams, since), announces=since in announced, budget=budget)

        fragments, runner, results = _run(
            group, messages_in, states, reached, turns.ports_of(group, ports), out, pipeline
        )
        ids = _operator_ids(fragments, runner)
        _note_work(fragments, runner, reached, out)
        for fragment, result in zip(fragments, results, strict=True):
            out.route(fragment.route, result)
        for stream, rows in runner.unmatched().items():
            if rows.height and any(reporting[stream] == fragment.id for fragment in fragments):
                out.for_driver.append(Message("unmatched", stream, DRIVER, table=to_table(_as_rejected(stream, rows))))
        saved = runner.save()
        after |= dict(zip(ids, saved, strict=True))
        out.count(fragments, runner, saved)
    for message in messages_in:
        if message.stage == DRIVER:
            out.for_driver.append(message)
        elif message.stage > stage or (message.kind in ("watermark", "version", "budget") and stage < last_stage):
            out.send(shard, message)
    return after


def _note_work(
    fragments: Sequence[Fragment],
    runner: FragmentRunner,
    watermark: Callable[[frozenset[str], Instant], Watermark],
    out: StageOutput,
) -> None:
    """Note what shared window joins have done and put off, and up to when outputs are complete that wait for work."""
    for join in runner.reaches.joins:
        out.work.spent += join.spent
        out.work.left += sum(chunk.rows for chunk in join.waiting.segments)
    for number, fragment in enumerate(fragments):
        if (reach := runner.reach_of(number)) is None:
            continue
        if isinstance(fragment.route, physical.ExchangeTo):  # its readers take the least of all senders
            message = Message("reach", fragment.route.port, fragment.route.stage, out.sender, facts={"time": reach})
            for shard in range(out.shards):
                out.send(shard, message)
        elif reach < watermark(fragment.streams, fragment.since).time:
            out.work.reaches[fragment.route.query] = reach


def _run(
    fragments: Sequence[Fragment],
    messages_in: Sequence[Message],
    states: States,
    watermark: Callable[[frozenset[str], Instant], Watermark],
    reaches: Mapping[str, Instant],
    out: StageOutput,
    pipeline: Pipeline,
) -> tuple[Sequence[Fragment], FragmentRunner, list[Batch]]:
    """Run fragments that share operators, without those of queries that fail: theirs are run no further. `reaches` are
    those of ports whose senders have put off work."""
    while True:
        runner = out.runner(*fragments, waiting=find_waiting(pipeline))
        runner.reaches.ports = {port.name: reaches[port.name] for port in runner.ports if port.name in reaches}
        runner.restore(_operator_ids(fragments, runner), states)
        since = [fragment.since for fragment in fragments]

        def reached(streams: frozenset[str], fragment: int, since: Sequence[Instant] = since) -> Watermark:
            return watermark(streams, since[fragment])

        try:
            return fragments, runner, runner.step(_inputs(runner.ports, messages_in), reached)
        except OperatorError as failure:
            failed = runner.readers(failure.number, fragments)
            if len(out.failed | failed) == len(pipeline.queries):
                raise failure.error from None
            out.fail(failed, failure.error)
            fragments = [fragment for fragment in fragments if not failed.issuperset(fragment.queries)]


def _reporting_fragments(pipeline: Pipeline) -> dict[str, str]:
    """For each change feed the first fragment that folds it: where a pipeline reads it several times, each finds the
    same deletions without a match."""
    fragments: dict[str, str] = {}
    if any(stream.changes is not None for stream in pipeline.streams):
        for fragment in pipeline.fragments:
            for node in physical.numbered(fragment.root):
                if isinstance(node, physical.FoldChanges):
                    fragments.setdefault(node.stream, fragment.id)
    return fragments


def _as_rejected(stream: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Deletions without a match as rejected rows. Which rows of the input they are is not known any more."""
    columns = [name for name in rows.columns if name not in (FROM, UNTIL)]
    at = [show_instant(time) for time in times(rows, FROM).tolist()]
    reasons = [f"the row that it deletes at {time} is not there" for time in at]
    content = rows.select(pl.struct(columns).struct.json_encode()).to_series()
    parts = {"place": [stream] * rows.height, "row": [None] * rows.height, "reason": reasons, "content": content}
    return pl.DataFrame(parts, schema=REJECT_SCHEMA)


def _operator_ids(fragments: Sequence[Fragment], runner: FragmentRunner) -> list[str]:
    """The ids of the operators of a runner."""
    ids = [""] * len(runner.operators)
    for fragment, numbers in zip(fragments, runner.numbers, strict=True):
        for number, operator_id in zip(numbers, fragment.operators, strict=True):
            ids[number] = operator_id
    return ids


def _inputs(ports: Sequence[physical.Input], messages_in: Sequence[Message]) -> dict[str, Batch]:
    """The elements for each port; senders in a fixed order, so that a batch that runs again sees the same."""
    inputs: dict[str, Batch] = {}
    for port in ports:
        arrived = sorted((m for m in messages_in if m.kind == "port" and m.name == port.name), key=lambda m: m.sender)
        if arrived:
            inputs[port.name] = Batch.concat([Batch(m.frame) for m in arrived])
    return inputs
