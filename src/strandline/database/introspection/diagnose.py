"""Diagnosis of an empty result: idle sources, a stalled watermark, operators without output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, show_instant
from strandline.database.introspection.text import align, count_of, shorten, show_watermark, walk_plan
from strandline.planner.physical.graph import SOURCE, OperatorGraph, build_operator_graph
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.pipeline import FLOW
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.watermark import SourceStatus, watermark_of

_JOINS = ("HashJoin", "OuterHashJoin")
_WIDE = 84  # characters of an operator


@dataclass(frozen=True, slots=True)
class QueryDiagnostics:
    """Diagnostics of a query: its operators, their counters, and the status of its streams."""

    query: str
    flow: OperatorGraph
    statuses: Mapping[str, SourceStatus]
    counts: Mapping[str, OperatorCounters]
    rows_out: int

    @property
    def streams(self) -> list[SourceStatus]:
        names = self.flow.streams[self.query]
        return [self.statuses.get(name) or SourceStatus(name) for name in names]

    def passed(self, step: str) -> int:
        """Elements that left a step, or a stream for this query after sampling."""
        if step.startswith(SOURCE):
            status = self.statuses.get(step.removeprefix(SOURCE))
            return status.rows - status.dropped.get(self.query, 0) if status is not None else 0
        return self._count(step, "passed")

    def kept(self, step: str) -> int:
        return self._count(step, "rows")

    def _count(self, step: str, what: str) -> int:
        at = self.flow.steps[step]
        counts = self.counts.get(at.fragment)
        return int(getattr(counts, what)[at.number]) if counts is not None else 0


def collect_diagnostics(query: str, metrics: PipelineMetrics) -> QueryDiagnostics:
    """What this process knows of a query that it runs."""
    flow = build_operator_graph(metrics.physical)
    return QueryDiagnostics(query, flow, metrics.statuses, metrics.operators, metrics.rows_out[query])


def read_diagnostics(out: Path, query: str) -> QueryDiagnostics:
    """Diagnostics that `strandline run` has recorded of a query, while it runs or afterwards."""
    queries: set[str] = set()
    for path in sorted(out.glob(f"**/{FLOW}")):
        flow = OperatorGraph.from_json(json.loads(path.read_text()))
        queries |= set(flow.results)
        if query in flow.results:
            return _recorded_evidence(query, flow, BatchRecords(path.parent))
    listed = f"There are {', '.join(sorted(queries))}." if queries else "It is the --out, or --checkpoint, of a run."
    raise QueryError(f'unknown query "{query}" in {out}', code="unknown-query", hint=listed)


def _recorded_evidence(query: str, flow: OperatorGraph, records: BatchRecords) -> QueryDiagnostics:
    """Diagnostics of the newest batch record."""
    listed = records.listed()
    newest = records.newest(listed[-1].batch) if listed else None
    if newest is None:
        return QueryDiagnostics(query, flow, {}, {}, 0)
    record, _ = newest
    statuses = {name: SourceStatus.from_json(status) for name, status in record.statuses.items()}
    counts = {name: OperatorCounters(**total) for name, total in record.totals["operators"].items()}
    return QueryDiagnostics(query, flow, statuses, counts, record.totals["rows_out"].get(query, 0))


def explain_why(diagnostics: QueryDiagnostics) -> str:
    """Diagnosis: a sentence, the streams, the operators with their counts, and a hint."""
    verdict, marked, hint = next(_verdicts(diagnostics))
    lines = [f"{diagnostics.query} {verdict}", "", *_streams(diagnostics, marked), "", *_operators(diagnostics, marked)]
    return "\n".join([*lines, "", f"hint: {hint}"] if hint else lines)


# Diagnoses, most basic first: a sentence about the query, where it shows (a step or a stream), and a remedy.
_Verdict = tuple[str, str | None, str | None]


def _verdicts(diagnostics: QueryDiagnostics) -> Iterator[_Verdict]:
    if diagnostics.rows_out:
        yield f"has {_number(diagnostics.rows_out, 'result')}", None, None
    for status in diagnostics.streams:
        if not status.rows and (status.late or status.rejected):
            kind, word = ("late", "WITHIN") if status.late else ("rejected", "the declared types")
            yield (
                f"has no result: every row of {status.stream} was {kind}",
                f"{SOURCE}{status.stream}",
                f"Inspect them: _{kind}/{status.stream} beside the results, or "
                f'query.{kind}("{status.stream}"). Check {word}.',
            )
    silent = [status for status in diagnostics.streams if not status.rows]
    if len(silent) == len(diagnostics.streams):
        ended = all(status.ended for status in silent)
        what = "its streams ended without a row" if ended else "no row has arrived yet"
        yield f"has no result: {what}", f"{SOURCE}{silent[0].stream}", None
    yield from _stuck(diagnostics)
    for step in steps_of(diagnostics):
        at = diagnostics.flow.steps[step]
        into = sum(diagnostics.passed(source) for source in at.inputs)
        if into and at.kind not in _JOINS and not diagnostics.passed(step) and not diagnostics.kept(step):
            yield f"has no result: {_blamed(diagnostics, step)} lets nothing through", step, _remedy(diagnostics, step)
    yield from _unmatched(diagnostics)
    yield "has no result yet", None, "Rows are in flight: a result is final once the watermark passes it."


def _stuck(diagnostics: QueryDiagnostics) -> Iterator[_Verdict]:
    """A stream without rows, or one that lags behind, holds the time of all others."""
    active = [status for status in diagnostics.streams if not status.idle and not status.ended]
    waiting = any(diagnostics.kept(step) for step in steps_of(diagnostics))
    if not active or not waiting:
        return
    slowest = min(active, key=lambda status: status.watermark)
    if slowest.watermark == BEFORE_ALL:
        yield (
            f"has no result: {_holder(slowest)} has sent no row and has no watermark",
            f"{SOURCE}{slowest.stream}",
            f"If it may stay idle, declare {slowest.stream} with IDLE AFTER n SECONDS.",
        )
    ahead = max(diagnostics.streams, key=lambda status: status.high)
    if slowest.watermark < min(status.low for status in diagnostics.streams) or slowest.watermark < ahead.watermark:
        yield (
            f"has no result: the watermark is held at {show_instant(slowest.watermark)} by {_holder(slowest)}",
            f"{SOURCE}{slowest.stream}",
            f"Results wait for {slowest.stream}. A large WITHIN delays results by as much; "
            "IDLE AFTER excludes it from the watermark while it is idle.",
        )


def _holder(status: SourceStatus) -> str:
    """The stream that holds the watermark, or the slowest of its partitions."""
    active = [name for name in status.partitions if name not in status.resting]
    if not active:
        return status.stream
    return f"partition {min(active, key=lambda name: status.partitions[name])} of {status.stream}"


def _unmatched(diagnostics: QueryDiagnostics) -> Iterator[_Verdict]:
    """A join that keeps rows and has never found a pair."""
    for step in steps_of(diagnostics):
        at = diagnostics.flow.steps[step]
        if at.kind in _JOINS and not diagnostics.passed(step) and all(diagnostics.passed(i) for i in at.inputs):
            yield f"has no result: {_blamed(diagnostics, step)} has found no match", step, _remedy(diagnostics, step)


def _blamed(diagnostics: QueryDiagnostics, step: str) -> str:
    at = diagnostics.flow.steps[step]
    return f'the filter "{at.text.removeprefix("Filter ")}"' if at.kind == "Filter" else f'"{at.text}"'


def _remedy(diagnostics: QueryDiagnostics, step: str) -> str | None:
    at = diagnostics.flow.steps[step]
    if at.kind == "Filter":
        return "No row satisfies it so far. Compare its units and spelling with the data."
    if at.kind not in _JOINS:
        return None
    spans = [status for status in diagnostics.streams if status.rows]
    late_start = max(spans, key=lambda status: status.low)
    early_end = min(spans, key=lambda status: status.high)
    if late_start.low > early_end.high:
        return (
            f"{early_end.stream} ends at {show_instant(early_end.high)}, {late_start.stream} begins at "
            f"{show_instant(late_start.low)}: rows match only where their windows overlap."
        )
    return "Rows match when their windows overlap. Compare the spelling of the keys on both sides."


def steps_of(diagnostics: QueryDiagnostics) -> list[str]:
    """The steps behind a result, inputs first."""
    steps: dict[str, None] = {}

    def visit(name: str) -> None:
        if name.startswith(SOURCE) or name in steps:
            return
        for source in diagnostics.flow.steps[name].inputs:
            visit(source)
        steps[name] = None

    for name in diagnostics.flow.results[diagnostics.query]:
        visit(name)
    return list(steps)


def _streams(diagnostics: QueryDiagnostics, marked: str | None) -> list[str]:
    until = watermark_of(diagnostics.statuses, diagnostics.flow.streams[diagnostics.query]).time
    lines = [f"streams, complete up to {show_watermark(until)}"]
    width = max(len(status.stream) for status in diagnostics.streams)
    for status in diagnostics.streams:
        facts = [_number(status.rows, "row")]
        facts += [f"{status.late:,} late"] if status.late else []
        facts += [f"{status.rejected:,} rejected"] if status.rejected else []
        if status.rows:
            facts.append(f"{show_instant(status.low)} to {show_instant(status.high)}")
        facts += [word for word, holds in (("idle", status.idle), ("ended", status.ended)) if holds]
        mark = "   ← here" if marked == f"{SOURCE}{status.stream}" else ""
        lines.append(f"  {status.stream.ljust(width)}  {', '.join(facts)}{mark}")
    return lines


def _operators(diagnostics: QueryDiagnostics, marked: str | None) -> list[str]:
    steps = diagnostics.flow.steps
    table, marks = [("operators", "passed", "kept")], [""]
    walk = walk_plan(
        diagnostics.flow.results[diagnostics.query], lambda name: steps[name].inputs if name in steps else ()
    )
    for name, depth, again in walk:
        is_source = name.startswith(SOURCE)
        text = f"Read {name.removeprefix(SOURCE)}" if is_source else steps[name].text + (", as above" if again else "")
        kept = 0 if is_source else diagnostics.kept(name)
        passed = f"{diagnostics.passed(name):,}"
        table.append((shorten("  " * (depth + 1) + text, _WIDE), passed, f"{kept:,}" if kept else ""))
        marks.append("   ← here" if name == marked and not is_source else "")
    return [line + mark for line, mark in zip(align(table), marks, strict=True)]


def _number(count: int, what: str) -> str:
    return count_of(count, what) if count else f"no {what}"
