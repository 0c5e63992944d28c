"""Diagnosis of an empty result: idle sources, a stalled watermark, operators without output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, SECOND, show_instant
from strandline.database.introspection.statistics import OperatorStatistics, QueryCounters
from strandline.database.introspection.text import align, count_of, shorten, show_watermark, walk_plan
from strandline.planner.physical.graph import SOURCE, OperatorGraph
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.kernels.refused_values import show_sample
from strandline.runtime.pipeline import FLOW
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.watermark import SourceStatus, watermark_of

_KEEPS_LEFT: Final = ("left", "anti", "mark")  # joins whose result needs the left side only
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
    listed = "It is the --out, or --checkpoint, of a run."
    if queries:
        listed = f"There {'are' if len(queries) > 1 else 'is'} {', '.join(sorted(queries))}."
    raise QueryError(f'unknown query "{query}" in {out}', code="unknown-query", hint=listed)


def _recorded(query: str, flow: OperatorGraph, records: BatchRecords) -> QueryCounters:
    """The counters of the newest batch record."""
    listed = records.listed()
    newest = records.newest(listed[-1].batch) if listed else None
    if newest is None:
        return QueryCounters(query, flow, {}, {}, 0)
    record, _ = newest
    streams = flow.streams[query]
    statuses = {
        name: SourceStatus.from_json(status).for_queries_over(streams) for name, status in record.statuses.items()
    }
    counts = {name: OperatorCounters(**total) for name, total in record.totals["operators"].items()}
    return QueryCounters(query, flow, statuses, counts, record.totals["rows_out"].get(query, 0))


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a result is empty: a statement, the step or stream that it is about, and a remedy. What is not certain may
    change with the next rows: they wait for the watermark."""

    text: str
    step: str | None = None
    hint: str | None = None
    is_certain: bool = True


def explain_why(counters: QueryCounters) -> str:
    """Diagnosis: a sentence, the streams, the operators with their counts, and a hint."""
    operators = counters.operators()
    if counters.rows_out:
        gap = _time_gap(counters)
        verdict = f"has {_number(counters.rows_out, 'result')}"
        marked, hint = (gap.step, gap.hint) if gap is not None else (None, None)
    else:
        cause = find_cause(counters)
        verdict = f"has no result: {cause.text}" if cause.text else "has no result yet"
        marked, hint = cause.step, cause.hint
    lines = [f"{counters.query} {verdict}", "", *_streams(counters, marked), ""]
    lines += _show_operators(counters, operators, marked)
    return "\n".join([*lines, "", f"hint: {hint}"] if hint else lines)


def find_cause(counters: QueryCounters) -> Cause:
    """Why the result of a query is empty, most basic first."""
    if (gap := _time_gap(counters)) is not None:
        return gap
    if all(not status.read for status in counters.streams):
        ended = all(status.ended for status in counters.streams)
        text = "its streams ended without a row" if ended else "no row has arrived yet"
        return Cause(text, f"{SOURCE}{counters.streams[0].stream}", is_certain=ended)
    by_step = {operator.step: operator for operator in counters.operators()}
    causes = [cause for step in counters.flow.results[counters.query] for cause in _causes(step, counters, by_step)]
    if certain := next((cause for cause in causes if cause.is_certain), None):
        return certain
    in_flight = Cause("", None, "Rows are in flight: a result is final once the watermark passes it.", is_certain=False)
    return next(_stuck(counters), in_flight)


def _causes(step: str, counters: QueryCounters, by_step: Mapping[str, OperatorStatistics]) -> Iterator[Cause]:
    """What may keep a step without output: an input without which it has none, or else the step itself.

    The right side of a left, anti or mark join may be empty: that takes nothing from the result.
    """
    if step.startswith(SOURCE):
        yield from _silent_source(counters.statuses.get(step.removeprefix(SOURCE)), step)
        return
    operator, match = by_step[step], counters.flow.steps[step].match
    needed = operator.inputs[:1] if match in _KEEPS_LEFT else operator.inputs
    empty = [source for source in needed if not counters.passed(source)]
    if empty and (len(empty) == len(needed) or match not in ("", "full")):
        for source in empty:
            yield from _causes(source, counters, by_step)
    elif not match and operator.state_rows:
        yield Cause("", step, is_certain=False)  # they wait for the watermark, or for their end
    else:
        yield Cause(_describe_emptying(operator, match), step, _remedy(counters, operator, match))


def _silent_source(status: SourceStatus | None, step: str) -> Iterator[Cause]:
    """Why a stream or table has given no row to a query."""
    if status is None or (not status.read and not status.ended and not status.idle and not status.table):
        yield Cause("", step, is_certain=False)
        return
    name = status.stream
    if status.table:
        yield Cause(f"table {name} is empty", step, f"INSERT INTO {name} …, before the rows that are to meet it.")
    elif not status.read:
        yield Cause(f"{name} {'ended without a row' if status.ended else 'is idle and has sent no row'}", step)
    elif not status.rows:
        kind, word = ("late", "WITHIN") if status.late >= status.rejected else ("rejected", "the declared types")
        where = f'_{kind}/{name} beside the results, or query.{kind}("{name}")'
        yield Cause(f"every row of {name} was {kind}", step, f"Inspect them: {where}. Check {word}.")
    else:
        yield Cause(f"every row of {name} was dropped by load shedding", step, "Raise the capacity.")


def _time_gap(counters: QueryCounters) -> Cause | None:
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
    return Cause(f"c{gap}", f"{SOURCE}{table.stream}", f"C{gap}: its rows do not see them. {remedy}")


def _stuck(counters: QueryCounters) -> Iterator[Cause]:
    """A stream without rows, or one that lags behind, holds the time of all others."""
    active = [status for status in counters.streams if not (status.idle or status.ended or status.table)]
    if not active:
        return
    slowest = min(active, key=lambda status: status.watermark)
    if slowest.watermark == BEFORE_ALL:
        yield Cause(
            f"{_holder(slowest)} has sent no row and has no watermark",
            f"{SOURCE}{slowest.stream}",
            f"If it may stay idle, declare {slowest.stream} with IDLE AFTER n SECONDS.",
        )
    ahead = max(counters.streams, key=lambda status: status.high)
    if slowest.watermark < min(status.low for status in counters.streams) or slowest.watermark < ahead.watermark:
        yield Cause(
            f"the watermark is held at {show_instant(slowest.watermark)} by {_holder(slowest)}",
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


def _describe_emptying(operator: OperatorStatistics, match: str) -> str:
    """A step that has input and no output."""
    if match == "anti":
        return f'"{operator.text}" finds a match for every row'
    if match:
        return f'"{operator.text}" has found no match'
    is_filter = operator.kind == "Filter"
    step = f'the filter "{operator.text.removeprefix("Filter ")}"' if is_filter else f'"{operator.text}"'
    return f"{step} lets nothing through"


def _remedy(counters: QueryCounters, operator: OperatorStatistics, match: str) -> str | None:
    if operator.kind == "Filter":
        sample = counters.refused(operator.step)
        seen = f" {show_sample(sample)}" if sample is not None and sample["columns"] else ""
        return f"No row satisfies it so far.{seen} Compare its units and spelling with the data."
    if match == "anti":
        return "Its condition may hold for more rows than meant: compare the keys, and the window of the right side."
    if not match:
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
