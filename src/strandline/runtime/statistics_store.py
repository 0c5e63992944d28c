"""Persisted stream statistics, measured by running queries for the planning of the next ones.

The rate of a stream and the length of its batches come from its source status, the selectivities of filters over it
from the counts of operators, distinct values of its columns and the length of its intervals from metric subscriptions.
They are kept in the catalog and, where a database has a directory for checkpoints, in a file there. A figure is
replaced when another differs from it by more than a threshold: then everything that is estimated from it changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from strandline.core.durable import write_file
from strandline.core.temporal import SECOND
from strandline.logical.catalog import BaseStream, Catalog, StreamStatistics
from strandline.planner.cardinality import filter_text, pass_names
from strandline.planner.physical import plan as physical
from strandline.planner.physical.graph import SOURCE
from strandline.planner.physical.plan import numbered, ports
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.edge_metrics import EdgeMetrics, Starts
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.watermark import SourceStatus

FILE: Final = "statistics.json"
LEAST_ROWS: Final = 100  # fewer rows give no reliable figure
THRESHOLD: Final = 0.2  # of a figure, by which another must differ to replace it
EVERY: Final = 10.0  # seconds between two times that the file is written
# Weights of a batch that is shorter or longer than those before. A query that has caught up with its sources has short
# batches from then on, and plans that are made for long ones may be slow in short ones, so these count at once.
SHORTER, LONGER = 0.5, 0.05


class StatisticsStore:
    """Rates of streams and numbers of values of their columns, learned from the batches of all queries."""

    def __init__(self, catalog: Catalog, directory: Path | None) -> None:
        self.catalog = catalog
        self._file = directory / FILE if directory is not None else None
        self._written = time.monotonic()
        self._learned = _read(self._file)  # of streams that are not declared yet, or not any more, too
        self._batch_seconds: dict[str, float] = {}  # smoothed, by folded name of the stream

    def recall(self, stream: BaseStream) -> None:
        """Tell the catalog what an earlier run has learned of a stream that is declared now, if it is the same one."""
        data = self._learned.get(stream.name.lower())
        if data is not None and data["identity"] == _identity(stream):
            facts = {fact.name: data[fact.name] for fact in fields(StreamStatistics) if fact.name in data}
            self.catalog.measured[stream.name.lower()] = StreamStatistics(**facts)

    def learn(self, report: BatchReport, metrics: PipelineMetrics, before: Mapping[str, SourceStatus]) -> None:
        """Learn from a batch; `before` is the status of the sources before it. Now and then what was learned is written
        down."""
        for stream in metrics.physical.streams:
            if stream.name in report.statuses and stream.name in self.catalog:
                self._measure_batch(stream, before.get(stream.name), report.statuses[stream.name])
                self._learn(stream, metrics)
        if time.monotonic() - self._written >= EVERY:
            self.save()

    def _measure_batch(self, stream: BaseStream, before: SourceStatus | None, after: SourceStatus) -> None:
        """Smooth the stream time by which batches advance. One without a new latest row says nothing: the source was
        idle, or the batch has run again."""
        if before is None or not before.rows or after.high <= before.high:
            return
        advance = (after.high - before.high) / SECOND
        mean = self._batch_seconds.get(stream.name.lower(), advance)
        self._batch_seconds[stream.name.lower()] = mean + (advance - mean) * (SHORTER if advance < mean else LONGER)

    def _learn(self, stream: BaseStream, metrics: PipelineMetrics) -> None:
        status = metrics.statuses[stream.name]
        before = self.catalog.measured.get(stream.name.lower()) or StreamStatistics()
        rate = (1 / status.distance if status.distance else starts_of(status).rate) if _is_enough(status.rows) else None
        edge = metrics.measurements.edges.get(f"{SOURCE}{stream.name}", EdgeMetrics())
        values = {column: sketch.count for column, sketch in (edge.values or {}).items()}
        length = edge.lengths.mean if stream.has_intervals and edge.lengths is not None else None
        shares = dict(before.selectivities)
        for text, share in _selectivities(stream, metrics):
            shares[text] = _latest(shares.get(text), share)
        values = {**before.values, **values}
        batch_seconds = self._batch_seconds.get(stream.name.lower())
        learned = StreamStatistics(
            _latest(before.rate, rate),
            values,
            _latest(before.length, length),
            shares,
            batch_seconds=_latest(before.batch_seconds, batch_seconds),
        )
        if learned == before:
            return
        self.catalog.measured[stream.name.lower()] = learned
        if self._file is not None:
            self._learned[stream.name.lower()] = {"identity": _identity(stream), **asdict(learned)}

    def save(self) -> None:
        """Save the statistics. A failure is ignored: they affect speed only."""
        self._written = time.monotonic()
        if self._file is None or not self._learned:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(dict(self._learned), indent=1).encode(), sync=False)


def _is_enough(rows: int) -> bool:
    return rows >= LEAST_ROWS


def _latest(before: float | None, now: float | None) -> Any:
    """A measured figure: the earlier one, unless it is too far from the present one."""
    if before is None or now is None:
        return before if now is None else now
    return now if abs(now - before) > THRESHOLD * before else before


def _selectivities(stream: BaseStream, metrics: PipelineMetrics) -> Iterator[tuple[str, float]]:
    """Filters over the rows of a stream as text, with the share of the rows that passed."""
    status = metrics.statuses[stream.name]
    for fragment in metrics.physical.at(0):
        nodes, port = numbered(fragment.root), ports(fragment.root)[0]
        counters = metrics.operators.get(fragment.id)
        if counters is None or port.name != f"{SOURCE}{stream.name}" or status.dropped:
            continue
        names: Mapping[str, str] = {column.id: column.name for column in port.columns}
        rows_in = status.rows
        for node, passed in zip(nodes, counters.passed, strict=True):  # a chain: there is one input
            if isinstance(node, physical.Project):
                names = pass_names(names, node.outputs)
            elif isinstance(node, physical.Filter) and _is_enough(rows_in):
                text = filter_text(node.predicate, names)
                if text is not None:
                    yield text, max(passed, 1) / rows_in
            rows_in = passed


def starts_of(status: SourceStatus) -> Starts:
    """What a stream tells of its rate in any case."""
    return Starts(status.rows, status.low, status.high)


def _read(file: Path | None) -> dict[str, dict[str, Any]]:
    """Content of the file; an unreadable one is ignored."""
    if file is None or not file.exists():
        return {}
    try:
        statistics = json.loads(file.read_text())
        return {name: data for name, data in statistics.items() if {"identity", "rate", "values"} <= set(data)}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _identity(stream: BaseStream) -> str:
    """Identity of a stream: its columns and its source, as a hash, since sources have passwords."""
    source = stream.source
    declaration = repr(
        (stream.columns, source.function, source.arguments, sorted(source.options.items()), stream.time_columns)
    )
    return hashlib.sha256(declaration.encode()).hexdigest()
