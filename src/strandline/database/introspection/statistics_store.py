"""Persisted stream statistics, measured by running queries for the planning of the next ones.

The rate of a stream comes from its source status, the distinct values of its columns from metric subscriptions. It is
kept in the catalog and, where a database has a directory for checkpoints, in a file there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from strandline.database.introspection.statistics import starts_of
from strandline.logical.catalog import BaseStream, Catalog, StreamStatistics
from strandline.planner.physical.graph import SOURCE
from strandline.runtime.commit import BatchReport, Delivery, Listener
from strandline.runtime.edge_metrics import Edge

FILE: Final = "statistics.json"
LEAST_ROWS: Final = 100  # fewer rows give no reliable rate
EVERY: Final = 10.0  # seconds between two times that the file is written


class Learned:
    """Listens to the batches of all queries of a database."""

    def __init__(self, catalog: Catalog, directory: Path | None) -> None:
        self.catalog = catalog
        self._file = directory / FILE if directory is not None else None
        self._written = time.monotonic()
        self._known = _read(self._file)  # of streams that are not declared yet, or not any more, too

    def recall(self, stream: BaseStream) -> None:
        """Load the saved statistics of a newly declared stream into the catalog, if it is the same stream."""
        data = self._known.get(stream.name.lower())
        if data is not None and data["identity"] == _identity(stream):
            self.catalog.measured[stream.name.lower()] = statistics_from(data)

    def listener(self, delivery: Delivery) -> Listener:
        """Callback for the batches of a query."""

        def take(report: BatchReport) -> None:
            for stream in delivery.pipeline.streams:
                if stream.name in report.heartbeats:
                    self._learn(stream, delivery)
            if time.monotonic() - self._written >= EVERY:
                self.save()

        return take

    def _learn(self, stream: BaseStream, delivery: Delivery) -> None:
        if stream.name not in self.catalog:
            return
        starts = starts_of(delivery.heartbeats[stream.name])
        known = self.catalog.measured.get(stream.name.lower()) or StreamStatistics()
        rate = starts.rate if starts.count >= LEAST_ROWS else None
        sketches = delivery.measurements.edges.get(f"{SOURCE}{stream.name}", Edge()).values or {}
        values = {column: sketch.count for column, sketch in sketches.items()}
        if rate is None and not values:
            return
        found = StreamStatistics(rate or known.rate, {**known.values, **values})
        self.catalog.measured[stream.name.lower()] = found
        if self._file is not None:
            self._known[stream.name.lower()] = {"identity": _identity(stream), **asdict(found)}

    def save(self) -> None:
        """Save the statistics. A failure is ignored: they affect speed only."""
        self._written = time.monotonic()
        if self._file is None or not self._known:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(dict(self._known), indent=1))
            os.replace(temporary, self._file)


def statistics_from(data: Mapping[str, Any]) -> StreamStatistics:
    return StreamStatistics(data["rate"], dict(data["values"]))


def _read(file: Path | None) -> dict[str, dict[str, Any]]:
    """Content of the file; an unreadable one is ignored."""
    if file is None or not file.exists():
        return {}
    try:
        known = json.loads(file.read_text())
        return {name: data for name, data in known.items() if {"identity", "rate", "values"} <= set(data)}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _identity(stream: BaseStream) -> str:
    """Identity of a stream: its columns and its source, as a hash, since sources have passwords."""
    source = stream.source
    said = repr(
        (stream.columns, source.function, source.arguments, sorted(source.options.items()), stream.time_columns)
    )
    return hashlib.sha256(said.encode()).hexdigest()
