"""The driver's side of a batch: everything that a batch changes, in order, each step without harm if it is repeated."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sinks.base import Delivered, Outlet
from strandline.connectors.sinks.parquet_join import join_parquet
from strandline.connectors.sinks.parquet_parts import StagedFile
from strandline.core.durable import checksum_file, encode_name, sync_directory, sync_file
from strandline.core.errors import damaged
from strandline.core.log import BATCH, DEBUG, INFO, INPUT, RECOVERY, log_event
from strandline.core.temporal import BEFORE_ALL, Instant, show_instant
from strandline.core.types import Schema
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.bad_input import check_input
from strandline.runtime.checkpoint.chain import CheckpointChain, DeliveredFile, OutputKind, state_directory
from strandline.runtime.checkpoint.records import BatchRecord
from strandline.runtime.edge_metrics import Edge, Measurements, Wish, both, merged_edges
from strandline.runtime.exchange import Message
from strandline.runtime.operators.base import Progress
from strandline.runtime.result import answer_schema
from strandline.runtime.stage import Counts
from strandline.runtime.state.store import StoredVersion
from strandline.runtime.subscriptions import Subscriptions
from strandline.runtime.watermark import Heartbeat, progress_of, together


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
    staged: dict[str, list[StagedFile]] = field(default_factory=dict)  # results that tasks have written, by query
    state: dict[str, StoredVersion] = field(default_factory=dict)  # by shard

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
    seconds: dict[str, list[float]]


# Called with the report after the files of a batch are in place.
Listener = Callable[[BatchReport], None]


class Delivery:
    """Takes the messages for the driver, batch by batch, exactly once in effect: a repeated batch changes nothing.

    `chain` is the checkpoint that the batches go on, None where nothing outlives the process. `side_outputs` is where
    late and rejected rows are kept as files. `directories` are those of the queries whose results tasks write as files.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        chain: CheckpointChain | None,
        side_outputs: Path | None,
        listeners: Iterable[Listener],
        directories: Mapping[str, Path] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.chain = chain
        self.side_outputs = side_outputs
        self.directories = dict(directories or {})
        self.listeners = list(listeners)
        self.last_batch = -1
        self.heartbeats: dict[str, Heartbeat] = {}
        self.rows_out = dict.fromkeys((query.name for query in pipeline.queries), 0)
        self.answered: dict[str, int] = {}  # the last batch that brought rows, by query
        self.operators: dict[str, Counts] = {}  # by fragment: totals of what passed, and what is kept now
        self.subscriptions = Subscriptions()
        self.measurements = Measurements()
        self._measured_before = self.measurements
        self._before_last = _Totals(dict(self.rows_out), {}, {})
        if chain is not None and chain.record is not None:
            self._resume(chain.record)

    def deliver(self, batch: int, messages: Iterable[Message], began: float | None = None) -> BatchReport:
        """Everything that a batch changes, in order; it may be a batch that was delivered before a crash.

        `began` is when the batch was planned, by `time.monotonic`, if that was in this run.
        """
        began = time.monotonic() if began is None else began
        if self.chain is not None:
            self.chain.lease.check()
        report = read_messages(batch, messages)
        check_input(self.pipeline.streams, report.heartbeats, report.rejected)
        self._make_durable(report)
        files = [*self._write_side_outputs(report), *self._publish_results(report)]
        before, repeated = self.heartbeats, batch == self.last_batch
        self._count(report)
        for listener in self.listeners:
            listener(report)
        self._commit(report, files)
        self.subscriptions.publish(report.wish, self.ended)
        self._log(report, before, repeated, time.monotonic() - began)
        return report

    def _log(self, report: BatchReport, before: Mapping[str, Heartbeat], repeated: bool, seconds: float) -> None:
        about = {"query": self.name, "batch": report.batch}
        if repeated:
            log_event(RECOVERY, INFO, "batch repeated", **about)
        for stream in sorted({*report.late, *report.rejected}):
            late, rejected = (_rows(tables.get(stream, ())) for tables in (report.late, report.rejected))
            if late or rejected:
                log_event(INPUT, INFO, "rows set aside", **about, stream=stream, late=late, rejected=rejected)
        if BATCH.isEnabledFor(DEBUG):
            rows_in = sum(
                beat.read - before.get(name, Heartbeat(name)).read for name, beat in report.heartbeats.items()
            )
            log_event(
                BATCH,
                DEBUG,
                "batch delivered",
                **about,
                watermark=self.show_watermark(),
                rows_in=None if repeated else rows_in,  # the counts of before include it
                rows_out=sum(report.rows_out.values()),
                seconds=seconds,
            )

    def _make_durable(self, report: BatchReport) -> None:
        """Sync what tasks have written: nothing may refer to a file that a power cut could take away."""
        if self.chain is None:
            return
        state = [
            state_directory(self.chain.path, shard) / name
            for shard, version in report.state.items()
            for name in version.files
        ]
        self.chain.sync(report.batch, state)

    def _publish_results(self, report: BatchReport) -> Iterable[DeliveredFile]:
        """Make the results of tasks one file per query, and move it into place: readers see all of a batch or nothing
        of it. A file of the same batch that an earlier attempt has left is replaced, or removed if there is none."""
        for query, directory in self.directories.items():
            final = directory / result_name(report.batch)
            parts = sorted(report.staged.get(query, []), key=lambda part: part.path)
            if not parts:
                final.unlink(missing_ok=True)
                continue
            rows = sum(part.rows for part in parts)
            whole = Path(parts[0].path)
            if len(parts) == 1:
                size, checksum = parts[0].sums.size, parts[0].sums.checksum
                sync_file(whole)
            else:
                size, checksum = join_parquet([(Path(part.path), part.sums) for part in parts])
            os.replace(whole, final)
            sync_directory(directory)
            for part in parts[1:]:
                Path(part.path).unlink(missing_ok=True)
            yield DeliveredFile("result", query, final.name, size, checksum, rows)

    def _write_side_outputs(self, report: BatchReport) -> Iterable[DeliveredFile]:
        if self.side_outputs is None:
            return
        outputs: tuple[tuple[OutputKind, dict[str, list[pa.Table]]], ...] = (
            ("late", report.late),
            ("rejected", report.rejected),
        )
        for kind, by_stream in outputs:
            for stream, tables in by_stream.items():
                path = side_output(self.side_outputs, kind, stream) / self._side_name(report.batch)
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}")
                table = pa.concat_tables(tables)
                pq.write_table(table, temporary)
                sync_file(temporary)
                size, checksum = temporary.stat().st_size, checksum_file(temporary)
                os.replace(temporary, path)
                sync_directory(path.parent)
                yield DeliveredFile(kind, stream, path.name, size, checksum, table.num_rows)
            for stream in {stream.name for stream in self.pipeline.streams} - set(by_stream):
                # A file that an earlier attempt at this batch has left.
                path = side_output(self.side_outputs, kind, stream) / self._side_name(report.batch)
                path.unlink(missing_ok=True)

    def _side_name(self, batch: int) -> str:
        """Other pipelines may read the same stream: the first query tells them apart."""
        return f"part-{encode_name(self.pipeline.queries[0].name)}-{batch:09d}.parquet"

    def _count(self, report: BatchReport) -> None:
        """Add up what the batch brought. One that runs again was counted, so its count begins before it."""
        batch = report.batch
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

    def _commit(self, report: BatchReport, files: list[DeliveredFile]) -> None:
        if self.chain is None:
            return
        self.chain.commit(
            report.batch,
            {shard: (version.manifest, version.digest) for shard, version in report.state.items()},
            files,
            {name: beat.to_json() for name, beat in self.heartbeats.items()},
            {
                "rows_out": self.rows_out,
                "operators": {fragment: asdict(counts) for fragment, counts in self.operators.items()},
                "before": asdict(self._before_last),
                "answered": self.answered,
            },
        )

    def _resume(self, record: BatchRecord) -> None:
        assert self.chain is not None
        try:
            self.last_batch = record.batch
            self.heartbeats = {name: Heartbeat.from_json(beat) for name, beat in record.heartbeats.items()}
            totals = record.totals
            self.rows_out = dict(totals["rows_out"])
            self.operators = {fragment: Counts(**counts) for fragment, counts in totals["operators"].items()}
            self._before_last = _Totals(**totals["before"])
            self.answered = dict(totals["answered"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(self.chain.records.path(self.chain.head)) from None

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

    @property
    def name(self) -> str:
        """The names of the queries, for the log."""
        return "+".join(query.name for query in self.pipeline.queries)

    def show_watermark(self) -> str:
        """Up to when all queries are complete, as one word."""
        return show_instant(min(self.all_progress().values())).replace(" ", "T")

    def all_progress(self) -> dict[str, Instant]:
        """Up to when each query is complete."""
        return {query.name: self.progress(query.name).until for query in self.pipeline.queries}

    @property
    def ended(self) -> bool:
        return bool(self.heartbeats) and all(
            (beat := self.heartbeats.get(stream.name)) is not None and beat.ended for stream in self.pipeline.streams
        )


def write_to_sink(outlet: Outlet, query: str, columns: Schema, delivery: Delivery) -> Listener:
    """What the driver does after every batch, also after one without rows: time may have come further."""
    nothing = answer_schema(columns).empty_table()

    def hear(report: BatchReport) -> None:
        table = report.answer(query)
        outlet.taking_since = time.monotonic()
        try:
            outlet.take(Delivered(report.batch, nothing if table is None else table, delivery.progress(query).until))
        finally:
            outlet.taking_since = None

    return hear


def read_messages(batch: int, messages: Iterable[Message]) -> BatchReport:
    """What the messages of a batch say together."""
    report = BatchReport(batch)
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
                report.staged.setdefault(message.name, []).append(StagedFile.from_json(message.facts))
                report.rows_out[message.name] = report.rows_out.get(message.name, 0) + message.facts["rows"]
            case "state":
                report.state[message.name] = StoredVersion(**message.facts)
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
                raise AssertionError(f"unknown message kind {other}")
    report.heartbeats = together(beats)
    return report


def _rows(tables: Iterable[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def result_name(batch: int) -> str:
    """The file with the results of a batch."""
    return f"part-{batch:09d}.parquet"


def side_output(directory: Path, kind: str, stream: str) -> Path:
    """Where the late or rejected rows of a stream are kept."""
    return directory / f"_{kind}" / encode_name(stream)
