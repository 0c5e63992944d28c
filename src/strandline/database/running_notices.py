"""Notices of running queries, from their counters: what came and does not count, and results that stay empty."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from strandline.core.notices import Notice, NoticeLog
from strandline.core.temporal import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, show_duration, show_instant
from strandline.database.introspection.diagnose import find_cause
from strandline.database.introspection.statistics import QueryCounters
from strandline.database.introspection.text import count_of, shorten_line
from strandline.logical.catalog import BaseStream
from strandline.planner.physical import plan as physical
from strandline.planner.physical.graph import SOURCE
from strandline.planner.physical.plan import Pipeline, numbered
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.watermark import SourceStatus

LOOK_SECONDS: Final = 1.0  # between two looks at the counters
SETTLE_SECONDS: Final = 5.0  # figures of a query that runs are shown when they are so old; at its end at once
EMPTY_SECONDS: Final = 30.0  # a query without a row for so long has something to be said about it
_WIDE: Final = 100  # characters of a reason
# What makes a row valid for a time that its stream does not bound.
_UNBOUNDED: Final = physical.CountWindow | physical.SessionWindow | physical.AlignTime


class RunningNotices:
    """The notices of one query while it runs: those at present, and each shown once."""

    def __init__(self, query: str, running: RunningPipeline, log: NoticeLog) -> None:
        self._query, self.running, self._log = query, running, log
        self._began = time.monotonic()
        self._first_seen: dict[tuple[str, str], float] = {}
        self._shown: set[tuple[str, str]] = set()
        self._next_look, self._is_over = 0.0, False
        self._lock = threading.Lock()

    def current(self) -> list[Notice]:
        """The notices that hold now, with the present figures."""
        metrics, pipeline = self.running.metrics, self.running.physical
        counters = QueryCounters.of(self._query, metrics)
        streams = {stream.name: stream for stream in pipeline.streams}
        notices: list[Notice] = []
        for status in counters.streams:
            if not status.table:
                stream, reason = streams[status.stream], self._first_reason(status.stream)
                status = replace(status, stream=stream.declared_name)
                notices += _late_rows(replace(stream, name=stream.declared_name), status)
                notices += _rejected_rows(status, reason)
        notices += _times_apart(counters, pipeline, streams)
        notices += self._no_rows(counters)
        return notices

    def show(self, *, is_over: bool) -> None:
        """Show what is new: at the end all of it, before that what has been so for some time. May be called often."""
        now = time.monotonic()
        with self._lock:
            if self._is_over or (now < self._next_look and not is_over):
                return
            self._is_over, self._next_look = is_over, now + LOOK_SECONDS
            fresh = []
            for notice in self.current():
                since = self._first_seen.setdefault(notice.key, now)
                if notice.key not in self._shown and (is_over or now - since >= SETTLE_SECONDS):
                    self._shown.add(notice.key)
                    fresh.append(notice)
        self._log.publish(fresh)

    def _first_reason(self, stream: str) -> str | None:
        """Why the first of the rejected rows that this process has seen was rejected."""
        tables = self.running.results.rejected.get(stream)
        return tables[0].column("reason")[0].as_py() if tables and tables[0].num_rows else None

    def _no_rows(self, counters: QueryCounters) -> Iterator[Notice]:
        """A result that is empty, and the cause that `why` names."""
        ended, seconds = self.running.ended, time.monotonic() - self._began
        if counters.rows_out or not (ended or (seconds >= EMPTY_SECONDS and counters.statuses)):
            return
        cause = find_cause(counters)
        if not ended and not cause.is_certain:
            return
        when = "ended without a row" if ended else f"has no row after {seconds:.0f} s"
        because = f": {cause.text}" if cause.text else ""
        remedy = f"{self._log.diagnosis.replace('{query}', self._query)} shows where the rows stay"
        yield Notice("no-rows", f"{self._query} {when}{because}", remedy, subject=self._query)


def _late_rows(stream: BaseStream, status: SourceStatus) -> Iterator[Notice]:
    if not status.late:
        return
    rows = f'{status.late:,} of {count_of(status.read, "row")} of "{stream.name}"'
    if status.lateness <= stream.disorder_us:
        text = f"{rows} came after their time was over: the stream was idle, or had promised none before a later time"
        yield Notice("late-rows", text, "a longer IDLE AFTER, or a later promise, would keep them", stream.name)
        return
    allowed = "later than WITHIN allows" if stream.disorder_us else "out of order"
    text = f"{rows} came {allowed}, the latest by {show_length(status.lateness)}"
    yield Notice("late-rows", text, f"WITHIN {show_duration(round_up(status.lateness))} would keep all", stream.name)


def _rejected_rows(status: SourceStatus, reason: str | None) -> Iterator[Notice]:
    if status.rejected:
        rows = f'{status.rejected:,} of {count_of(status.read, "row")} of "{status.stream}"'
        because = "" if reason is None else f", the first because of {shorten_line(reason, _WIDE)}"
        remedy = f'query.rejected("{status.stream}"), and _rejected/ beside results in files, has them'
        verb = "was" if status.rejected == 1 else "were"
        yield Notice("rejected-rows", f"{rows} {verb} rejected{because}", remedy, status.stream)


def _times_apart(counters: QueryCounters, pipeline: Pipeline, streams: Mapping[str, BaseStream]) -> Iterator[Notice]:
    """Joined streams of which one has ended before the other begins, also with the time that windows keep its rows."""
    statuses = {s.stream: s for s in counters.streams if s.rows and not s.table and is_of_points(streams[s.stream])}
    if not any(status.ended for status in statuses.values()):
        return
    kept = _longest_window(counters.query, pipeline)
    if kept is None:
        return
    for one, other in sorted(_joined_streams(counters)):
        if one not in statuses or other not in statuses:
            continue
        early, late = sorted((statuses[one], statuses[other]), key=lambda status: status.high)
        if early.ended and early.high + kept < late.low:
            text = f"{early.stream} ends at {show_instant(early.high)}, before {late.stream} begins"
            apart = f"their times do not overlap: {text} at {show_instant(late.low)}"
            yield Notice("times-apart", apart, "join streams of the same time", f"{counters.query}: {one}, {other}")


def is_of_points(stream: BaseStream) -> bool:
    """Whether each row is valid for the instant of its time, before windows keep it longer."""
    return not stream.has_intervals and stream.changes is None


def _longest_window(query: str, pipeline: Pipeline) -> Instant | None:
    """For how long a row of a stream is valid at most; None if that does not follow from the plan."""
    longest = 1
    for fragment in physical.fragments_of(pipeline, query):
        for node in numbered(fragment.root):
            if isinstance(node, _UNBOUNDED):
                return None
            for range_us, slide_us in _windows(node):
                if range_us is None:
                    return None
                longest = max(longest, range_us + slide_us)
    return longest


def _windows(node: physical.Node) -> list[tuple[Instant | None, Instant]]:
    """Range and slide of the windows over time that an operator applies."""
    match node:
        case physical.TimeWindow(range_us, slide_us):
            return [(range_us, slide_us)]
        case physical.Route(use):
            return [use.left[:2], use.right[:2]]
        case _:
            return []


def _joined_streams(counters: QueryCounters) -> set[tuple[str, str]]:
    """The pairs of streams whose rows a join brings together, each in the order of their names."""
    flow = counters.flow

    def below(step: str) -> set[str]:
        if step.startswith(SOURCE):
            return {step.removeprefix(SOURCE)}
        return set[str]().union(*map(below, flow.steps[step].inputs))

    steps = [flow.steps[operator.step] for operator in counters.operators()]
    joins = [step for step in steps if step.match and step.kind != physical.LookupJoin.tag]
    sides = [(below(join.inputs[0]), below(join.inputs[1])) for join in joins]
    return {(min(a, b), max(a, b)) for left, right in sides for a in left for b in right if a != b}


def show_length(length: Instant) -> str:
    """A length of time as people say it, in its two largest units: `11 min 11 s`."""
    units = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("us", 1))
    largest = next(number for number, (_, size) in enumerate(units) if length >= size or size == 1)
    parts: list[str] = []
    for name, size in units[largest : largest + 2]:
        count, length = divmod(length, size)
        parts += [f"{count} {name}"] if count or not parts else []
    return " ".join(parts)


def round_up(length: Instant) -> Instant:
    """A length that reads well and is not shorter: whole units, of the largest of which there are more than two."""
    for unit in (DAY, HOUR, MINUTE, SECOND, MILLISECOND):
        if length > 2 * unit:
            return -(-length // unit) * unit
    return max(length, 1)
