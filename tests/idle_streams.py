"""Streams that are idle for a while, by turns: which rows are late for a query, by definition, and how it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from strandline.connectors.sources.base import Source
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.coalescing import coalesce_everywhere
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.offsets import OffsetPlanner, SourceOffset, SourceOffsets
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result_buffer import ResultBuffer
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from strandline.runtime.state.segments import States
from strandline.runtime.state.store import StateStore
from strandline.runtime.watermark import check_balance
from support import Answer, Arrivals, Cuts, MemorySource, elements_of, form_strategy


@dataclass(frozen=True)
class Turn:
    """One batch: how many rows each stream sends, which of the others are idle, and which have ended."""

    rows: Mapping[str, int] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


def turns(dice: Random, streams: Sequence[Arrivals]) -> list[Turn]:
    """Some batches: a stream sends nothing for a while, at times is idle then, and may end before others."""
    drawn: list[Turn] = []
    left = {stream.name: len(stream.elements) for stream in streams}
    ended: set[str] = set()
    for _ in range(dice.randint(2, 9)):
        rows = {name: min(dice.choice((0, 0, 1, 2, 5)), count) for name, count in left.items()}
        left = {name: count - rows[name] for name, count in left.items()}
        ended |= {name for name, count in left.items() if not count and dice.random() < 0.2}
        silent = {name for name, count in rows.items() if not count} - ended
        drawn.append(Turn(rows, frozenset(name for name in silent if dice.random() < 0.6), frozenset(ended)))
    return drawn


@dataclass
class _Reading:
    """How far a stream was read, on its own terms, and for a query."""

    latest: Instant = BEFORE_ALL
    reached: Instant = BEFORE_ALL
    floor: Instant = BEFORE_ALL
    idle: bool = False
    ended: bool = False
    at: int = 0
    accepted: list[int] = field(default_factory=list)

    def watermark(self) -> Instant:
        return max(self.reached, self.floor)


def accepted(streams: Sequence[Arrivals], names: Collection[str], script: Sequence[Turn]) -> dict[str, list[int]]:
    """By definition: which rows of its streams a query accepts, by their numbers.

    A row is late if it is older than its stream allows, or than what the query had reached while the stream was idle.
    """
    read = {stream.name: _Reading() for stream in streams if stream.name in names}
    query = BEFORE_ALL
    for turn in (*script, Turn(ended=frozenset(names), rows=dict.fromkeys(names, 1000))):
        for stream in streams:
            if stream.name not in read:
                continue
            one, count = read[stream.name], turn.rows.get(stream.name, 0)
            if one.idle and query < FOREVER:
                one.floor = max(one.floor, query)
            own = one.reached
            for number, element in list(enumerate(stream.elements))[one.at : one.at + count]:
                allowed = BEFORE_ALL if one.latest == BEFORE_ALL else one.latest - stream.disorder_us
                if element.time >= max(allowed, own, one.floor):
                    one.accepted.append(number)
                    one.latest = max(one.latest, element.time)
            one.at = min(one.at + count, len(stream.elements))
            one.idle, one.ended = stream.name in turn.idle, stream.name in turn.ended
            if one.latest > BEFORE_ALL:
                one.reached = max(own, one.latest + 1 if one.idle else one.latest - stream.disorder_us)
        active = [one.watermark() for one in read.values() if not one.idle and not one.ended]
        if active:
            query = min(active)
        elif all(one.ended for one in read.values()):
            query = FOREVER
        else:
            ends = [one.latest + 1 for one in read.values() if one.ended and one.latest > BEFORE_ALL]
            query = max([*ends, *(one.watermark() for one in read.values() if not one.ended)])
    return {name: one.accepted for name, one in read.items()}


def accepted_elements(streams: Sequence[Arrivals], rows: Mapping[str, list[int]]) -> dict[str, tuple[Element, ...]]:
    """The rows themselves, for the definition of a result."""
    return {s.name: tuple(s.elements[number] for number in rows.get(s.name, ())) for s in streams}


class Script(OffsetPlanner):
    """Offsets by turns, each stream in up to two splits; then everything ends."""

    def __init__(self, sources: Mapping[str, MemorySource], script: Sequence[Turn]) -> None:
        self.sources = dict(sources)
        self.metrics = None
        self.budgets = BudgetPlanner()
        self._turns = list(script)

    def next(self, before: Mapping[str, SourceOffset], *, required: bool = False) -> SourceOffsets:
        turn = self._turns.pop(0) if self._turns else None
        after: SourceOffsets = {}
        for name, source in self.sources.items():
            assert isinstance(source, MemorySource)
            count, begin = len(source.elements), before[name].at
            end = count if turn is None else min(begin + turn.rows.get(name, 0), count)
            points = source.split_points(begin, end, 2) if end - begin > 1 else ()
            idle = turn is not None and name in turn.idle
            ended = turn is None or name in turn.ended
            announcements = before[name].announcements + 1  # else nothing would be new where no row comes
            after[name] = SourceOffset(end, idle, ended, split_points=points, announcements=announcements)
        return after


@dataclass
class IdleRun:
    """The answers of queries that ran together; the late rows of each, and how many rows are in the side outputs."""

    pipeline: Pipeline
    answers: list[Answer]
    written: dict[str, int]


def declare(stream: Arrivals, steady: Collection[str]) -> BaseStream:
    """A stream that may be idle, unless it is steady."""
    return stream.declared if stream.name in steady else replace(stream.declared, idle_after_us=1)


def assemble(
    plans: Sequence[Plan],
    streams: Sequence[Arrivals],
    cut: Cuts,
    *,
    optimised: bool = True,
    steady: Collection[str] = (),
) -> Pipeline:
    """The pipeline of plans over streams of which all may be idle but the steady ones."""
    declared = [declare(stream, steady) for stream in streams]
    parts = []
    for number, plan in enumerate(plans):
        chosen = optimize(plan) if optimised else plan
        strategy = form_strategy(cut.forms)
        part = lower(f"q{number}", chosen, declared, cut.shards, form=cut.form, strategy=strategy)
        parts.append(coalesce_everywhere(part) if cut.coalesces else part)
    return combine(parts, declared, [""] * len(parts))


def stored(directory: Path, batch: int, stage: int, shard: int, states: States) -> States:
    """The state of a shard, from the disk."""
    store = StateStore(directory, stage, shard)
    version = store.write(batch, states)
    return store.read(version.manifest, version.digest)


def run_turns(
    plans: Sequence[Plan],
    streams: Sequence[Arrivals],
    script: Sequence[Turn],
    cut: Cuts,
    *,
    optimised: bool = True,
    steady: Collection[str] = (),
    directory: Path | None = None,
) -> IdleRun:
    """Run plans together on the local engine, by turns. With a directory, each batch begins with the state that the
    last one has left on disk."""
    pipeline = assemble(plans, streams, cut, optimised=optimised, steady=steady)
    sources: dict[str, Source] = {}
    for stream in streams:
        source = MemorySource(stream, ())
        source.stream = declare(stream, steady)
        sources[stream.name] = source
    read = {stream.name: sources[stream.name] for stream in pipeline.streams}
    running = RunningPipeline(pipeline)
    local = LocalRun(running, sources=read)
    local.planner = Script(read, script)  # type: ignore[arg-type]
    answers, written = [Answer() for _ in plans], dict.fromkeys(read, 0)
    sent = [ResultBuffer(schema(plan), None) for plan in plans]
    watermarks = running.metrics.watermarks()
    for report in local.batches():
        if directory is not None:
            local.states = {place: stored(directory, local.batch, *place, s) for place, s in local.states.items()}
        reached = running.metrics.watermarks()
        assert all(watermarks[name] <= reached[name] for name in reached), "no watermark goes back"
        for query, buffer, answer in zip(pipeline.queries, sent, answers, strict=True):
            buffer.add(report.results.get(query.name, ()), watermarks[query.name])
            for name, late in report.late.items():
                own = [row for rows in late for row in rows.of_queries_over(query.streams).to_pylist()]
                answer.late.setdefault(name, []).extend(own)
        for name, late in report.late.items():
            written[name] += sum(rows.table.num_rows for rows in late)
        watermarks = reached
    for status in running.metrics.statuses.values():
        check_balance(status)
    for query, plan, buffer, answer in zip(pipeline.queries, plans, sent, answers, strict=True):
        answer.late_count = {name: status.late for name, status in running.metrics.statuses_of(query.name).items()}
        answer.elements = elements_of(buffer.chunks(0, FOREVER).frame(schema(plan)))
        assert all(end != OPEN for _, _, end in answer.elements), "everything has an end at the end of time"
    return IdleRun(pipeline, answers, written)
