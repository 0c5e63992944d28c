"""Diagnosis of an empty result: idle sources, a stalled watermark, operators without output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, FOREVER, show_instant
from strandline.planner.physical.graph import SOURCE, Flow, flow_of
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.commit import Delivery
from strandline.runtime.stage import Counts
from strandline.runtime.watermark import Heartbeat, progress_of

FLOW = "flow.json"
_JOINS = ("HashJoin", "OuterHashJoin")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Diagnostics of a query: its operators, their counters, and the status of its streams."""

    query: str
    flow: Flow
    heartbeats: Mapping[str, Heartbeat]
    counts: Mapping[str, Counts]
    rows_out: int

    @property
    def streams(self) -> list[Heartbeat]:
        names = self.flow.streams[self.query]
        return [self.heartbeats.get(name) or Heartbeat(name) for name in names]

    def passed(self, step: str) -> int:
        """Elements that left a step, or a stream for this query after sampling."""
        if step.startswith(SOURCE):
            beat = self.heartbeats.get(step.removeprefix(SOURCE))
            return beat.rows - beat.dropped.get(self.query, 0) if beat is not None else 0
        return self._count(step, "passed")

    def kept(self, step: str) -> int:
        return self._count(step, "rows")

    def _count(self, step: str, what: str) -> int:
        at = self.flow.steps[step]
        counts = self.counts.get(at.fragment)
        return int(getattr(counts, what)[at.number]) if counts is not None else 0


def write_flow(directory: Path, pipeline: Pipeline) -> None:
    """Save the operator graph in the checkpoint, so that another process can explain the queries of a pipeline."""
    (directory / FLOW).write_text(json.dumps(flow_of(pipeline).to_json()))


def evidence_of(query: str, delivery: Delivery) -> Evidence:
    """Diagnostics of a query that runs in this process."""
    flow = flow_of(delivery.pipeline)
    return Evidence(query, flow, delivery.heartbeats, delivery.operators, delivery.rows_out[query])


def evidence_in(out: Path, query: str) -> Evidence:
    """Diagnostics that `strandline run` has recorded of a query, while it runs or afterwards."""
    known: set[str] = set()
    for path in sorted(out.glob(f"**/{FLOW}")):
        flow = Flow.from_json(json.loads(path.read_text()))
        known |= set(flow.answers)
        if query in flow.answers:
            return _recorded_evidence(query, flow, BatchRecords(path.parent))
    listed = f"There are {', '.join(sorted(known))}." if known else "It is the --out, or --checkpoint, of a run."
    raise QueryError(f'unknown query "{query}" in {out}', code="unknown-query", hint=listed)


def _recorded_evidence(query: str, flow: Flow, records: BatchRecords) -> Evidence:
    """Diagnostics of the newest batch record."""
    listed = records.listed()
    newest = records.newest(listed[-1].batch) if listed else None
    if newest is None:
        return Evidence(query, flow, {}, {}, 0)
    record, _ = newest
    beats = {name: Heartbeat.from_json(beat) for name, beat in record.heartbeats.items()}
    counts = {name: Counts(**each) for name, each in record.totals["operators"].items()}
    return Evidence(query, flow, beats, counts, record.totals["rows_out"].get(query, 0))


def explain_why(evidence: Evidence) -> str:
    """Diagnosis: a sentence, the streams, the operators with their counts, and a hint."""
    verdict, marked, hint = next(_verdicts(evidence))
    lines = [f"{evidence.query} {verdict}", "", *_streams(evidence, marked), "", *_operators(evidence, marked)]
    return "\n".join([*lines, "", f"hint: {hint}"] if hint else lines)


# Diagnoses, most basic first: a sentence about the query, where it shows (a step or a stream), and a remedy.
_Verdict = tuple[str, str | None, str | None]


def _verdicts(evidence: Evidence) -> Iterator[_Verdict]:
    if evidence.rows_out:
        yield f"has {_number(evidence.rows_out, 'result')}", None, None
    for beat in evidence.streams:
        if not beat.rows and (beat.late or beat.rejected):
            kind, word = ("late", "WITHIN") if beat.late else ("rejected", "the declared types")
            yield (
                f"has no result: every row of {beat.stream} was {kind}",
                f"{SOURCE}{beat.stream}",
                f"Inspect them: _{'late' if beat.late else 'rejected'}/{beat.stream} beside the results, or "
                f'query.{"late" if beat.late else "rejected"}("{beat.stream}"). Check {word}.',
            )
    silent = [beat for beat in evidence.streams if not beat.rows]
    if len(silent) == len(evidence.streams):
        ended = all(beat.ended for beat in silent)
        what = "its streams ended without a row" if ended else "no row has arrived yet"
        yield f"has no result: {what}", f"{SOURCE}{silent[0].stream}", None
    yield from _stuck(evidence)
    for step in steps_of(evidence):
        at = evidence.flow.steps[step]
        into = sum(evidence.passed(source) for source in at.inputs)
        if into and at.kind not in _JOINS and not evidence.passed(step) and not evidence.kept(step):
            yield f"has no result: {_blamed(evidence, step)} lets nothing through", step, _remedy(evidence, step)
    yield from _unmatched(evidence)
    yield "has no result yet", None, "Rows are in flight: a result is final once the watermark passes it."


def _stuck(evidence: Evidence) -> Iterator[_Verdict]:
    """A stream without rows, or one that lags behind, holds the time of all others."""
    active = [beat for beat in evidence.streams if not beat.idle and not beat.ended]
    waiting = any(evidence.kept(step) for step in steps_of(evidence))
    if not active or not waiting:
        return
    slowest = min(active, key=lambda beat: beat.progress)
    if slowest.progress == BEFORE_ALL:
        yield (
            f"has no result: {_holder(slowest)} has sent no row and has no watermark",
            f"{SOURCE}{slowest.stream}",
            f"If it may stay idle, declare {slowest.stream} with IDLE AFTER n SECONDS.",
        )
    ahead = max(evidence.streams, key=lambda beat: beat.high)
    if slowest.progress < min(beat.low for beat in evidence.streams) or slowest.progress < ahead.progress:
        yield (
            f"has no result: the watermark is held at {show_instant(slowest.progress)} by {_holder(slowest)}",
            f"{SOURCE}{slowest.stream}",
            f"Results wait for {slowest.stream}. A large WITHIN delays results by as much; "
            "IDLE AFTER excludes it from the watermark while it is idle.",
        )


def _holder(beat: Heartbeat) -> str:
    """The stream that holds the watermark, or the slowest of its partitions."""
    active = [name for name in beat.partitions if name not in beat.resting]
    if not active:
        return beat.stream
    return f"partition {min(active, key=lambda name: beat.partitions[name])} of {beat.stream}"


def _unmatched(evidence: Evidence) -> Iterator[_Verdict]:
    """A join that keeps rows and has never found a pair."""
    for step in steps_of(evidence):
        at = evidence.flow.steps[step]
        if at.kind in _JOINS and not evidence.passed(step) and all(evidence.passed(i) for i in at.inputs):
            yield f"has no result: {_blamed(evidence, step)} has found no match", step, _remedy(evidence, step)


def _blamed(evidence: Evidence, step: str) -> str:
    at = evidence.flow.steps[step]
    return f'the filter "{at.text.removeprefix("Filter ")}"' if at.kind == "Filter" else f'"{at.text}"'


def _remedy(evidence: Evidence, step: str) -> str | None:
    at = evidence.flow.steps[step]
    if at.kind == "Filter":
        return "No row satisfies it so far. Compare its units and spelling with the data."
    if at.kind not in _JOINS:
        return None
    spans = [beat for beat in evidence.streams if beat.rows]
    late_start = max(spans, key=lambda beat: beat.low)
    early_end = min(spans, key=lambda beat: beat.high)
    if late_start.low > early_end.high:
        return (
            f"{early_end.stream} ends at {show_instant(early_end.high)}, {late_start.stream} begins at "
            f"{show_instant(late_start.low)}: rows match only where their windows overlap."
        )
    return "Rows match when their windows overlap. Compare the spelling of the keys on both sides."


def steps_of(evidence: Evidence) -> list[str]:
    """The steps behind a result, inputs first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name.startswith(SOURCE) or name in found:
            return
        for source in evidence.flow.steps[name].inputs:
            visit(source)
        found[name] = None

    for name in evidence.flow.answers[evidence.query]:
        visit(name)
    return list(found)


def _streams(evidence: Evidence, marked: str | None) -> list[str]:
    until = progress_of(evidence.heartbeats, evidence.flow.streams[evidence.query]).until
    at = "the end" if until == FOREVER else "no instant yet" if until == BEFORE_ALL else show_instant(until)
    lines = [f"streams, complete up to {at}"]
    width = max(len(beat.stream) for beat in evidence.streams)
    for beat in evidence.streams:
        facts = [_number(beat.rows, "row")]
        facts += [f"{beat.late:,} late"] if beat.late else []
        facts += [f"{beat.rejected:,} rejected"] if beat.rejected else []
        if beat.rows:
            facts.append(f"{show_instant(beat.low)} to {show_instant(beat.high)}")
        facts += [word for word, holds in (("idle", beat.idle), ("ended", beat.ended)) if holds]
        mark = "   ← here" if marked == f"{SOURCE}{beat.stream}" else ""
        lines.append(f"  {beat.stream.ljust(width)}  {', '.join(facts)}{mark}")
    return lines


def _operators(evidence: Evidence, marked: str | None) -> list[str]:
    rows: list[tuple[str, str, str, str]] = []
    shown: set[str] = set()

    def visit(name: str, depth: int) -> None:
        if name.startswith(SOURCE):
            rows.append(("  " * depth + f"Read {name.removeprefix(SOURCE)}", f"{evidence.passed(name):,}", "", ""))
            return
        step = evidence.flow.steps[name]
        kept = evidence.kept(name)
        again = name in shown
        words = "  " * depth + step.text + (", as above" if again else "")
        rows.append((_short(words), f"{evidence.passed(name):,}", f"{kept:,}" if kept else "", name))
        shown.add(name)
        for source in step.inputs if not again else ():
            visit(source, depth + 1)

    for name in evidence.flow.answers[evidence.query]:
        visit(name, 1)
    wide, out, kept = (max(len(row[i]) for row in [("operators", "passed", "kept"), *rows]) for i in range(3))
    lines = [f"{'operators'.ljust(wide)}  {'passed'.rjust(out)}  {'kept'.rjust(kept)}"]
    for words, passed, held, name in rows:
        mark = "   ← here" if name and name == marked else ""
        lines.append(f"{words.ljust(wide)}  {passed.rjust(out)}  {held.rjust(kept)}".rstrip() + mark)
    return lines


def _short(text: str, most: int = 84) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _number(count: int, what: str) -> str:
    return f"no {what}" if not count else f"{count:,} {what}{'' if count == 1 else 's'}"
