"""Persisted stream statistics, measured by running queries for the planning of the next ones.

The rate of a stream comes from its source status, the distinct values of its columns from metric subscriptions. It is
kept in the catalog and, where a database has a directory for checkpoints, in a file there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from strandline.core.durable import write_file
from strandline.logical.catalog import BaseStream, Catalog, StreamStatistics
from strandline.planner.physical.graph import SOURCE
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.edge_metrics import EdgeMetrics, Starts
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.watermark import SourceStatus

FILE: Final = "statistics.json"
LEAST_ROWS: Final = 100  # fewer rows give no reliable rate
EVERY: Final = 10.0  # seconds between two times that the file is written


class StatisticsStore:
    """Rates of streams and numbers of values of their columns, learned from the batches of all queries."""

    def __init__(self, catalog: Catalog, directory: Path | None) -> None:
        self.catalog = catalog
        self._file = directory / FILE if directory is not None else None
        self._written = time.monotonic()
        self._learned = _read(self._file)  # of streams that are not declared yet, or not any more, too

    def recall(self, stream: BaseStream) -> None:
        """Tell the catalog what an earlier run has learned of a stream that is declared now, if it is the same one."""
        data = self._learned.get(stream.name.lower())
        if data is not None and data["identity"] == _identity(stream):
            self.catalog.measured[stream.name.lower()] = StreamStatistics(data["rate"], dict(data["values"]))

    def learn(self, report: BatchReport, metrics: PipelineMetrics) -> None:
        """Learn from a batch; now and then what was learned is written down."""
        for stream in metrics.physical.streams:
            if stream.name in report.statuses and stream.name in self.catalog:
                self._learn(stream, metrics)
        if time.monotonic() - self._written >= EVERY:
            self.save()

    def _learn(self, stream: BaseStream, metrics: PipelineMetrics) -> None:
        starts = starts_of(metrics.statuses[stream.name])
        before = self.catalog.measured.get(stream.name.lower()) or StreamStatistics()
        rate = starts.rate if starts.count >= LEAST_ROWS else None
        sketches = metrics.measurements.edges.get(f"{SOURCE}{stream.name}", EdgeMetrics()).values or {}
        values = {column: sketch.count for column, sketch in sketches.items()}
        if rate is None and not values:
            return
        learned = StreamStatistics(rate or before.rate, {**before.values, **values})
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
