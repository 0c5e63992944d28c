"""What the messages of a batch say together, once all of its tasks are done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa

from strandline.connectors.sinks.parquet_parts import StagedFile
from strandline.core.errors import StrandlineError
from strandline.runtime.edge_metrics import EdgeMetrics, MetricSet, merge_by_name, union_metrics
from strandline.runtime.exchange import Message
from strandline.runtime.lateness import LateRows
from strandline.runtime.routed_results import unbundle
from strandline.runtime.scheduling.budget import WorkReport
from strandline.runtime.stage import OperatorCounters, add_counters
from strandline.runtime.state.store import StoredVersion
from strandline.runtime.watermark import SourceStatus, merge_statuses


@dataclass(slots=True)
class BatchReport:
    """What a batch brought: results by query, side outputs by stream, counts by fragment, state by shard."""

    batch: int
    statuses: dict[str, SourceStatus] = field(default_factory=dict)
    results: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    late: dict[str, list[LateRows]] = field(default_factory=dict)
    rejected: dict[str, list[pa.Table]] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)  # how many were accepted, and are rejected now
    operators: dict[str, OperatorCounters] = field(default_factory=dict)
    measured: dict[str, EdgeMetrics] = field(default_factory=dict)
    staged: dict[str, list[StagedFile]] = field(default_factory=dict)  # results that tasks have written, by query
    staged_open: dict[str, list[StagedFile]] = field(default_factory=dict)  # the same of open elements
    opened: dict[str, int] = field(default_factory=dict)  # how many open elements came, of results that tasks write
    state: dict[str, StoredVersion] = field(default_factory=dict)
    version: int | None = None  # of the graph
    work: WorkReport = field(default_factory=WorkReport)  # of shared window joins
    failed: dict[str, StrandlineError] = field(default_factory=dict)  # why queries have failed in tasks
    queries: frozenset[str] | None = None  # those that it has results of; None for all

    @staticmethod
    def from_messages(batch: int, messages: Iterable[Message]) -> BatchReport:
        report = BatchReport(batch)
        statuses: list[SourceStatus] = []
        for message in messages:
            if message.kind == "watermark":
                statuses.append(SourceStatus.from_json(message.facts))
            else:
                report._add(message)
        report.statuses = merge_statuses(statuses)
        for stream, count in report.unmatched.items():
            report.statuses[stream] = report.statuses[stream].reject_accepted(count)
        return report

    def keep_results(self, queries: frozenset[str]) -> None:
        """Keep the results of these queries: others were dropped since the batch ran for the first time."""
        self.queries = queries
        by_query: list[dict[str, Any]] = [self.results, self.rows_out, self.staged, self.staged_open, self.opened]
        for values in by_query:
            for name in values.keys() - queries:
                del values[name]

    def has_query(self, name: str) -> bool:
        return self.queries is None or name in self.queries

    def _add(self, message: Message) -> None:
        match message.kind:
            case "result":
                assert message.table is not None
                self.results.setdefault(message.name, []).append(message.table)
                self._count_rows(message.name, message.table.num_rows)
            case "routed":
                for query, table in unbundle(message):
                    self.results.setdefault(query, []).append(table)
                    self._count_rows(query, table.num_rows)
            case "file":
                self.staged.setdefault(message.name, []).append(StagedFile.from_json(message.facts))
                self._count_rows(message.name, message.facts["rows"])
            case "open":
                self.opened[message.name] = self.opened.get(message.name, 0) + message.facts["rows"]
                if (file := message.facts["file"]) is not None:
                    self.staged_open.setdefault(message.name, []).append(StagedFile.from_json(file))
            case "failed":
                self.failed.setdefault(message.name, StrandlineError.from_json(message.facts))
            case "version":
                self.version = message.facts["number"]
            case "work":
                self.work = self.work.merge(WorkReport.from_json(message.facts))
            case "state":
                self.state[message.name] = StoredVersion(**message.facts)
            case "late":
                self.late.setdefault(message.name, []).append(LateRows.from_message(message))
            case "rejected":
                self.rejected.setdefault(message.name, []).append(message.table)
            case "unmatched":
                assert message.table is not None
                self.rejected.setdefault(message.name, []).append(message.table)
                self.unmatched[message.name] = self.unmatched.get(message.name, 0) + message.table.num_rows
            case "operators":
                for fragment, facts in message.facts.items():
                    add_counters(self.operators, fragment, OperatorCounters(**facts))
            case "measured":
                edges = {name: EdgeMetrics.from_json(facts) for name, facts in message.facts.items()}
                self.measured = merge_by_name(self.measured, edges)
            case other:
                raise AssertionError(f"unknown message kind {other}")

    def _count_rows(self, query: str, rows: int) -> None:
        self.rows_out[query] = self.rows_out.get(query, 0) + rows

    @property
    def requested_metrics(self) -> MetricSet:
        """What the batch was asked to measure."""
        return reduce(union_metrics, (status.requested_metrics for status in self.statuses.values()), ())

    @property
    def announced(self) -> frozenset[str]:
        """The queries whose open elements were announced again."""
        return frozenset(query for status in self.statuses.values() for query in status.announced)

    def result(self, query: str) -> pa.Table | None:
        tables = self.results.get(query)
        return pa.concat_tables(tables) if tables else None
