"""The driver's side of a batch: commit files, keep answers, count, remember the progress."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import damaged
from strandline.execution.bad_input import check_input
from strandline.execution.measuring import Edge, Measurements, Wish, both, merged_edges
from strandline.execution.operators.base import Progress
from strandline.execution.progress import Heartbeat, progress_of, together
from strandline.execution.runtime import Counts
from strandline.execution.subscriptions import Subscriptions
from strandline.execution.wire import Message
from strandline.physical.plan import Pipeline
from strandline.temporal import BEFORE_ALL, Instant

MEMORY = "progress.json"  # the file, in the checkpoint, that remembers how far a pipeline has come


@dataclass(slots=True)
class BatchReport:
    """What a batch brought."""

    batch: int
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    answers: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    late: dict[str, list[pa.Table]] = field(default_factory=dict)
    rejected: dict[str, list[pa.Table]] = field(default_factory=dict)
    operators: dict[str, Counts] = field(default_factory=dict)
    measured: dict[str, Edge] = field(default_factory=dict)

    @property
    def wish(self) -> Wish:
        """What the batch was asked to measure."""
        return reduce(both, (beat.measure for beat in self.heartbeats.values()), ())

    def answer(self, query: str) -> pa.Table | None:
        tables = self.answers.get(query)
        return pa.concat_tables(tables) if tables else None


@dataclass(frozen=True, slots=True)
class _Totals:
    """What had been counted before a batch."""

    rows_out: dict[str, int]
    passed: dict[str, list[int]]
    seconds: dict[str, list[float]] = field(default_factory=dict)  # not known to earlier versions


# Called with the report after the files of a batch are in place.
Listener = Callable[[BatchReport], None]


class Delivery:
    """Takes the messages for the driver, batch by batch, exactly once in effect: a repeated batch changes nothing."""

    def __init__(
        self, pipeline: Pipeline, memory: Path | None, aside: Path | None, listeners: Iterable[Listener]
    ) -> None:
        self.pipeline = pipeline
        self.memory = memory  # where the progress is remembered between runs
        self.aside = aside  # where late and rejected rows are kept as files
        self.listeners = list(listeners)
        self.last_batch = -1
        self.heartbeats: dict[str, Heartbeat] = {}
        self.rows_out = dict.fromkeys((query.name for query in pipeline.queries), 0)
        self.answered: dict[str, int] = {}  # the last batch that brought rows, by query
        self.operators: dict[str, Counts] = {}  # by fragment: totals of what passed, and what is kept now
        self.subscriptions = Subscriptions()
        self.measurements = Measurements()
        self._measured_before = self.measurements
        self._before_last = _Totals(dict(self.rows_out), {})
        self._recall()

    def deliver(self, batch: int, messages: Iterable[Message]) -> BatchReport:
        report = _report(batch, messages)
        check_input(self.pipeline.streams, report.heartbeats, report.rejected)
        self._keep_aside(report)
        # A batch that ran before a crash runs again: its rows were counted, so count from before it.
        again = batch == self.last_batch
        base = self._before_last if again else self._totals()
        self._before_last = base
        self.rows_out = {name: count + report.rows_out.get(name, 0) for name, count in base.rows_out.items()}
        for fragment, counts in report.operators.items():
            passed = map(operator.add, base.passed.get(fragment) or [0] * len(counts.passed), counts.passed)
            seconds = map(operator.add, base.seconds.get(fragment) or [0.0] * len(counts.passed), counts.seconds)
            total = replace(counts, passed=list(passed), seconds=list(seconds))
            self.operators = self.operators | {fragment: total}
        self._measured_before = self._measured_before if again else self.measurements
        self.measurements = self._measured_before.after(report.wish, report.measured)
        self.answered |= {name: batch for name, rows in report.rows_out.items() if rows}
        self.heartbeats = self.heartbeats | report.heartbeats  # a new one: others may be looking at the old one
        self.last_batch = batch
        for listener in self.listeners:
            listener(report)
        self._remember()
        self.subscriptions.publish(report.wish, self.ended)
        return report

    def _totals(self) -> _Totals:
        passed = {fragment: counts.passed for fragment, counts in self.operators.items()}
        return _Totals(self.rows_out, passed, {fragment: counts.seconds for fragment, counts in self.operators.items()})

    @property
    def state_rows(self) -> int:
        return sum(sum(counts.rows) for counts in self.operators.values())

    @property
    def state_bytes(self) -> int:
        return sum(sum(counts.bytes) for counts in self.operators.values())

    @property
    def cpu_seconds(self) -> float:
        """What the operators have taken of processors since the queries began."""
        return sum(sum(counts.seconds) for counts in self.operators.values())

    def progress(self, query: str) -> Progress:
        streams = next(q.streams for q in self.pipeline.queries if q.name == query)
        if not self.heartbeats:
            return Progress(BEFORE_ALL)
        return progress_of(self.heartbeats, streams)

    def all_progress(self) -> dict[str, Instant]:
        """Up to when each query is complete."""
        return {query.name: self.progress(query.name).until for query in self.pipeline.queries}

    @property
    def ended(self) -> bool:
        return bool(self.heartbeats) and all(
            (beat := self.heartbeats.get(stream.name)) is not None and beat.ended for stream in self.pipeline.streams
        )

    def _keep_aside(self, report: BatchReport) -> None:
        if self.aside is None:
            return
        owner = self.pipeline.queries[0].name  # other pipelines may read the same stream
        for kind, groups in (("late", report.late), ("rejected", report.rejected)):
            for stream, tables in groups.items():
                path = self.aside / f"_{kind}" / stream / f"part-{owner}-{report.batch:09d}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}")
                pq.write_table(pa.concat_tables(tables), temporary)
                os.replace(temporary, path)

    def _remember(self) -> None:
        if self.memory is None:
            return
        data: dict[str, Any] = {
            "batch": self.last_batch,
            "heartbeats": {name: beat.to_json() for name, beat in self.heartbeats.items()},
            "rows_out": self.rows_out,
            "operators": {fragment: asdict(counts) for fragment, counts in self.operators.items()},
            "before": asdict(self._before_last),
            "answered": self.answered,
        }
        temporary = self.memory.with_suffix(".tmp")
        temporary.write_text(json.dumps(data))
        os.replace(temporary, self.memory)

    def _recall(self) -> None:
        if self.memory is None or not self.memory.exists():
            return
        try:
            data: Mapping[str, Any] = json.loads(self.memory.read_text())
            self.last_batch = data["batch"]
            self.heartbeats = {name: Heartbeat.from_json(beat) for name, beat in data["heartbeats"].items()}
            self.rows_out = dict(data["rows_out"])
            self.operators = {fragment: Counts(**counts) for fragment, counts in data["operators"].items()}
            self._before_last = _Totals(**data["before"])
            self.answered = dict(data.get("answered", {}))  # not known to earlier versions
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(self.memory) from None


def _report(batch: int, messages: Iterable[Message]) -> BatchReport:
    report = BatchReport(batch)
    moves: list[tuple[str, str]] = []
    beats: list[Heartbeat] = []
    for message in messages:
        match message.kind:
            case "heartbeat":
                beats.append(Heartbeat.from_json(message.facts))
            case "answer":
                assert message.table is not None
                report.answers.setdefault(message.name, []).append(message.table)
                report.rows_out[message.name] = report.rows_out.get(message.name, 0) + message.table.num_rows
            case "file":
                moves.append((message.facts["staged"], message.facts["final"]))
                report.rows_out[message.name] = report.rows_out.get(message.name, 0) + message.facts["rows"]
            case "late" | "rejected":
                group = report.late if message.kind == "late" else report.rejected
                group.setdefault(message.name, []).append(message.table)
            case "operators":
                for fragment, facts in message.facts.items():
                    if fragment in report.operators:
                        report.operators[fragment].add(Counts(**facts))
                    else:
                        report.operators[fragment] = Counts(**facts)
            case "measured":
                found = {name: Edge.from_json(facts) for name, facts in message.facts.items()}
                report.measured = merged_edges(report.measured, found)
            case other:
                raise AssertionError(f"the driver does not know messages of kind {other}")
    report.heartbeats = together(beats)
    for staged, final in moves:
        os.replace(staged, final)
    return report
