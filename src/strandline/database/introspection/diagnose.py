"""Diagnosis of an empty result: idle sources, a stalled watermark, operators without output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, SECOND, show_instant
from strandline.database.introspection.statistics import OperatorStatistics, QueryCounters
from strandline.database.introspection.text import align, count_of, shorten, show_watermark, walk_plan
from strandline.planner.physical.graph import SOURCE, OperatorGraph
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.pipeline import FLOW
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.watermark import SourceStatus, watermark_of

_JOINS = ("HashJoin", "OuterHashJoin", "LookupJoin")
_GAP: Final = 60 * SECOND  # by which changes of a table must be ahead of the streams to be worth a word
_WIDE = 84  # characters of an operator


def read_counters(out: Path, query: str) -> QueryCounters:
    """Counters that `strandline run` has recorded of a query, while it runs or afterwards."""
    queries: set[str] = set()
    for path in sorted(out.glob(f"**/{FLOW}")):
        flow = OperatorGraph.from_json(json.loads(path.read_text()))
        queries |= set(flow.results)
        if query in flow.results:
            return _recorded(query, flow, BatchRecords(path.parent))
    listed = f"There are {', '.join(sorted(queries))}." if queries else "It is the --out, or --checkpoint, of a run."
    raise QueryError(f'unknown query "{query}" in {out}', code="unknown-query", hint=listed)


def _recorded(query: str, flow: OperatorGraph, records: BatchRecords) -> QueryCounters:
    """The counters of the newest batch record."""
    listed = records.listed()
    newest = records.newest(listed[-1].batch) if listed else None
    if newest is None:
        return QueryCounters(query, flow, {}, {}, 0)
    record, _ = newest
    statuses = {name: SourceStatus.from_json(status) for name, status in record.statuses.items()}
    counts = {name: OperatorCounters(**total) for name, total in record.totals["operators"].items()}
    return QueryCounters(query, flow, statuses, counts, record.totals["rows_out"].get(query, 0))


def explain_why(counters: QueryCounters) -> str:
    """Diagnosis: a sentence, the streams, the operators with their counts, and a hint."""
    operators = counters.operators()
    verdict, marked, hint = next(_verdicts(counters, operators))
    lines = [f"{counters.query} {verdict}", "", *_streams(counters, marked), ""]
    lines += _show_operators(counters, operators, marked)
    return "\n".join([*lines, "", f"hint: {hint}"] if hint else lines)


# Diagnoses, most basic first: a sentence about the query, where it shows (a step or a stream), and a remedy.
_Verdict = tuple[str, str | None, str | None]


def _verdicts(counters: QueryCounters, operators: Sequence[OperatorStatistics]) -> Iterator[_Verdict]:
    gap = _time_gap(counters)
    if counters.rows_out:
        yield f"has {_number(counters.rows_out, 'result')}", *(gap[1:] if gap is not None else (None, None))
    if gap is not None:
        yield gap
    for status in counters.streams:
        if not status.rows and (status.late or status.rejected):
            kind, word = ("late", "WITHIN") if status.late else ("rejected", "the declared types")
            yield (
                f"has no result: every row of {status.stream} was {kind}",
                f"{SOURCE}{status.stream}",
                f"Inspect them: _{kind}/{status.stream} beside the results, or "
                f'query.{kind}("{status.stream}"). Check {word}.',
            )
    silent = [status for status in counters.streams if not status.rows]
    if len(silent) == len(counters.streams):
        ended = all(status.ended for status in silent)
        what = "its streams ended without a row" if ended else "no row has arrived yet"
        yield f"has no result: {what}", f"{SOURCE}{silent[0].stream}", None
    if any(operator.state_rows for operator in operators):
        yield from _stuck(counters)
    for operator in operators:
        is_join = operator.kind in _JOINS
        if operator.rows_in and not is_join and not operator.rows_out and not operator.state_rows:
            yield (
                f"has no result: {_describe_step(operator)} lets nothing through",
                operator.step,
                _remedy(counters, operator),
            )
    for operator in operators:
        if operator.kind in _JOINS and not operator.rows_out and all(map(counters.passed, operator.inputs)):
            yield (
                f"has no result: {_describe_step(operator)} has found no match",
                operator.step,
                _remedy(counters, operator),
            )
    yield "has no result yet", None, "Rows are in flight: a result is final once the watermark passes it."


def _time_gap(counters: QueryCounters) -> _Verdict | None:
    """Changes of a table that lie after all rows of the streams, which do not see them."""
    streams = [status for status in counters.streams if not status.table and status.rows]
    changed = [status for status in counters.streams if status.table and status.rows > status.base >= 0]
    if not streams or not changed:
        return None
    table, stream = max(changed, key=lambda status: status.changed), max(streams, key=lambda status: status.high)
    if table.changed - stream.high < _GAP:
        return None
    gap = f"hanges of table {table.stream} are at {show_instant(table.changed)}, "
    gap += f"stream {stream.stream} is at {show_instant(stream.high)}"
    remedy = "Change the table before the query starts, and give the changes times of the stream: use AT TIMESTAMP."
    return f"has no result: c{gap}", f"{SOURCE}{table.stream}", f"C{gap}: its rows do not see them. {remedy}"


def _stuck(counters: QueryCounters) -> Iterator[_Verdict]:
    """A stream without rows, or one that lags behind, holds the time of all others."""
    active = [status for status in counters.streams if not (status.idle or status.ended or status.table)]
    if not active:
        return
    slowest = min(active, key=lambda status: status.watermark)
    if slowest.watermark == BEFORE_ALL:
        yield (
            f"has no result: {_holder(slowest)} has sent no row and has no watermark",
            f"{SOURCE}{slowest.stream}",
            f"If it may stay idle, declare {slowest.stream} with IDLE AFTER n SECONDS.",
        )
    ahead = max(counters.streams, key=lambda status: status.high)
    if slowest.watermark < min(status.low for status in counters.streams) or slowest.watermark < ahead.watermark:
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


def _describe_step(operator: OperatorStatistics) -> str:
    is_filter = operator.kind == "Filter"
    return f'the filter "{operator.text.removeprefix("Filter ")}"' if is_filter else f'"{operator.text}"'


def _remedy(counters: QueryCounters, operator: OperatorStatistics) -> str | None:
    if operator.kind == "Filter":
        return "No row satisfies it so far. Compare its units and spelling with the data."
    if operator.kind not in _JOINS:
        return None
    spans = [status for status in counters.streams if status.rows and not status.table]
    late_start = max(spans, key=lambda status: status.low, default=None)
    early_end = min(spans, key=lambda status: status.high, default=None)
    if late_start is not None and early_end is not None and late_start.low > early_end.high:
        return (
            f"{early_end.stream} ends at {show_instant(early_end.high)}, {late_start.stream} begins at "
            f"{show_instant(late_start.low)}: rows match only where their windows overlap."
        )
    return "Rows match when their windows overlap. Compare the spelling of the keys on both sides."


def _streams(counters: QueryCounters, marked: str | None) -> list[str]:
    until = watermark_of(counters.statuses, counters.flow.streams[counters.query]).time
    lines = [f"streams, complete up to {show_watermark(until)}"]
    width = max(len(status.stream) for status in counters.streams)
    for status in counters.streams:
        if status.table:
            lines.append(f"  {status.stream.ljust(width)}  {_show_changes(status)}{_mark(status, marked)}")
            continue
        facts = [_number(status.rows, "row")]
        facts += [f"{status.late:,} late"] if status.late else []
        facts += [f"{status.rejected:,} rejected"] if status.rejected else []
        if status.rows:
            facts.append(f"{show_instant(status.low)} to {show_instant(status.high)}")
        facts += [word for word, holds in (("idle", status.idle), ("ended", status.ended)) if holds]
        lines.append(f"  {status.stream.ljust(width)}  {', '.join(facts)}{_mark(status, marked)}")
    return lines


def _mark(status: SourceStatus, marked: str | None) -> str:
    return "   ← here" if marked == f"{SOURCE}{status.stream}" else ""


def _show_changes(status: SourceStatus) -> str:
    """The changes of a table: before the query began, and since then."""
    base = max(status.base, 0)
    facts = [f"{_number(min(status.rows, base), 'change')} before the query began"]
    if status.rows > base:
        facts.append(f"{status.rows - base:,} since then, the last at {show_instant(status.changed)}")
    return ", ".join(facts)


def _show_operators(counters: QueryCounters, operators: Sequence[OperatorStatistics], marked: str | None) -> list[str]:
    by_step = {operator.step: operator for operator in operators}
    table, marks = [("operators", "passed", "kept")], [""]

    def inputs(step: str) -> tuple[str, ...]:
        return by_step[step].inputs if step in by_step else ()

    for step, depth, again in walk_plan(counters.flow.results[counters.query], inputs):
        operator = by_step.get(step) or counters.reading(step.removeprefix(SOURCE))
        text = "  " * (depth + 1) + operator.text + (", as above" if again and step in by_step else "")
        kept = f"{operator.state_rows:,}" if operator.state_rows else ""
        table.append((shorten(text, _WIDE), f"{operator.rows_out:,}", kept))
        marks.append("   ← here" if step == marked and step in by_step else "")
    return [line + mark for line, mark in zip(align(table), marks, strict=True)]


def _number(count: int, what: str) -> str:
    return count_of(count, what) if count else f"no {what}"
