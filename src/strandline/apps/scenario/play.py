"""Scenario runner: sends the events, advances the watermark, and compares expected and actual results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.apps.scenario.cells import Values, cells_of, show_values, values_of
from strandline.apps.scenario.text import AdvanceTime, ChangeTables, End, Expect, Scenario, ScenarioEvents
from strandline.connectors.sinks import Memory
from strandline.core.errors import QueryError, ScenarioError, StrandlineError
from strandline.core.temporal import (
    BEFORE_ALL,
    EARLIEST,
    FOREVER,
    LATEST,
    Instant,
    instant,
    show_instant,
    to_datetime,
)
from strandline.core.types import TIMESTAMP, VARCHAR, Type
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script
from strandline.database.script_changes import connected_groups
from strandline.logical.catalog import BaseStream
from strandline.runtime.result import VALID_FROM, VALID_UNTIL
from strandline.sql import ast
from strandline.sql.binder.dml import find_changed_table
from strandline.sql.parser.statements import parse

# A payload with an instant at which duplicates of it are inserted (+) or deleted (-): two results with the same changes
# have the same snapshots, however their intervals are cut.
Changes = Counter[tuple[Values, Instant]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """An expectation, and what there was instead: `missing` and `surplus` are lines as the file would have them.

    `found` are all lines that would have been right.
    """

    expect: Expect
    missing: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    why: str | None = None

    @property
    def met(self) -> bool:
        return not (self.missing or self.surplus or self.why)


@dataclass(slots=True)
class _Given:
    """Rows given to a stream so far: results can be compared when all of them have arrived."""

    rows: int = 0
    until: Instant = BEFORE_ALL
    ended: bool = False


def play(scenario: Scenario, database: Database, patience: float = 60.0) -> list[Outcome]:
    """Run the queries of a scenario over its events; an outcome per expectation.

    Tables go by the time of the scenario: its clock stands, so that what streams have reached is all they promise.
    """
    database.tables.clock = lambda: EARLIEST
    script = read_script(database, scenario.sql)
    if not script.queries:
        raise QueryError("the scenario has no query", code="no-query", hint="Add CREATE STREAM name AS SELECT ….")
    queries: dict[str, Query] = {}
    for group in connected_groups(script.queries):
        exact = [replace(query, sink=Memory(keep=None), shedding=None) for query in group]
        queries |= {query.name.lower(): query for query in database.start(exact, None)}
    return _ScenarioRun(database, queries, scenario, patience).play()


@dataclass(slots=True)
class _ScenarioRun:
    database: Database
    queries: Mapping[str, Query]
    scenario: Scenario
    patience: float
    given: dict[str, _Given] = field(default_factory=dict)

    def play(self) -> list[Outcome]:
        outcomes = []
        for step in self.scenario.steps:
            try:
                match step:
                    case ScenarioEvents():
                        self._give(step)
                    case ChangeTables():
                        self._wait()
                        self._change(step)
                    case AdvanceTime(stream, until):
                        for name in self._streams(stream):
                            self.database.advance(name, until)
                            given = self._given(name)
                            given.until = max(given.until, until)
                    case End(stream):
                        for name in self._streams(stream):
                            if not self._given(name).ended:
                                self.database.end(name)
                                self._given(name).ended = True
                    case Expect():
                        self._wait()
                        outcomes.append(self._judge(step))
            except StrandlineError as error:
                error.span = error.span or step.span
                raise
        return outcomes

    def _given(self, stream: str) -> _Given:
        return self.given.setdefault(stream, _Given())

    def _streams(self, name: str | None) -> list[str]:
        """The streams of a step: the one that it names, or all that take events."""
        if name is not None:
            return [self.database.catalog.get(name).name]
        streams = [s for s in self.database.catalog if isinstance(s, BaseStream)]
        return [s.name for s in streams if s.source.function == "events"]

    def _give(self, step: ScenarioEvents) -> None:
        stream = self.database.catalog.get(step.stream)
        for row in step.rows:
            if isinstance(stream, BaseStream) and len(row.cells) != len(stream.columns):
                raise ScenarioError(
                    f"this row has {len(row.cells)} cells, the stream {len(stream.columns)} columns",
                    code="scenario",
                    hint=f"The columns are {', '.join(name for name, _ in stream.columns)}.",
                    span=row.span,
                )
        if step.rows:
            self._given(stream.name).rows += self.database.append(stream.name, [row.cells for row in step.rows])

    def _change(self, step: ChangeTables) -> None:
        """Execute the statements of a step, all at its time. What queries have complete results of is promised first:
        a change before that is refused, however far the next batch is."""
        statements = parse(step.sql)
        if not statements:
            hint = "Write statements in the lines that follow, indented."
            raise ScenarioError("CHANGE has no statement", code="scenario", hint=hint, span=step.span)
        for statement in statements:
            if not isinstance(statement, ast.TableChange) or statement.at is not None:
                message = "CHANGE takes statements that change a table, without a time of their own"
                hint = "Write INSERT, UPDATE, DELETE, MERGE or TRUNCATE."
                raise ScenarioError(message, code="scenario", hint=hint, span=statement.span)
            table = find_changed_table(statement.table, self.database.catalog)
            store = self.database.tables.store(table)
            store.promise(self._reached(table.name))
            at = ast.TypedText(TIMESTAMP, str(to_datetime(step.at).replace(tzinfo=None)), span=step.span)
            self.database.execute(replace(statement, at=at))
            self._given(table.name).rows = store.reach

    def _reached(self, table: str) -> Instant:
        """The watermark of the streams of the query over a table that is ahead of the others."""
        reached = [EARLIEST]
        for query in self.queries.values():
            statuses = query.heartbeats()
            if table in statuses and (streams := [s.watermark for s in statuses.values() if not s.table]):
                reached.append(min(streams))
        return min(max(reached), LATEST - 1)

    def _wait(self) -> None:
        """Wait until every query has processed the given rows."""
        deadline = time.monotonic() + self.patience
        while not all(self._has_seen(query) for query in self.queries.values()):
            for query in self.queries.values():
                query.check()
            if time.monotonic() > deadline:
                raise QueryError(
                    f"timed out after {self.patience:.0f} seconds waiting for the queries to consume their events",
                    code="scenario-slow",
                )
            time.sleep(0.005)

    def _has_seen(self, query: Query) -> bool:
        statuses = query.heartbeats()
        streams = min((status.watermark for status in statuses.values() if not status.table), default=BEFORE_ALL)
        for name, status in statuses.items():
            if status.table and status.watermark < streams:  # its promise follows the streams in the next batch
                return False
            given = self.given.get(name, _Given())
            seen = status.rows + status.late + status.rejected
            if seen < given.rows or status.watermark < given.until or (given.ended and not status.ended):
                return False
        return True

    def _judge(self, expect: Expect) -> Outcome:
        if expect.what in ("late", "rejected"):
            return self._aside(expect)
        query = self.queries.get(expect.name.lower())
        if query is None:
            names = ", ".join(item.name for item in self.queries.values())
            raise ScenarioError(
                f'unknown query "{expect.name}"', code="scenario", hint=f"Queries are {names}.", span=expect.span
            )
        if expect.what == "progress":
            assert expect.at is not None
            if query.progress == expect.at:
                return Outcome(expect)
            return Outcome(expect, why=f"{query.name} is complete until {show_instant(query.progress)}")
        return self._snapshot(expect, query) if expect.what == "snapshot" else self._elements(expect, query)

    def _snapshot(self, expect: Expect, query: Query) -> Outcome:
        assert expect.at is not None
        if expect.at >= query.progress:
            until = show_instant(query.progress)
            return Outcome(expect, why=f"{query.name} is complete until {until} only: ADVANCE the watermark first")
        kinds = [column.type for column in query.columns]
        rows = [values_of(row.values(), kinds) for row in query.snapshot(expect.at).to_pylist()]
        return self._compared(expect, kinds, rows)

    def _elements(self, expect: Expect, query: Query) -> Outcome:
        kinds = [column.type for column in query.columns]
        expected: list[tuple[Values, Instant, Instant]] = []
        for row in expect.rows:
            assert row.interval is not None
            expected.append((cells_of(row, kinds), *row.interval))
        actual = []
        for row in query.results().to_pylist():
            start, end = instant(row.pop(VALID_FROM)), row.pop(VALID_UNTIL)
            # Elements beyond the watermark depend on how the input was cut.
            until = min(FOREVER if end is None else instant(end), query.progress)
            if start < until:
                actual.append((values_of(row.values(), kinds), start, until))
        if _changes(expected) == _changes(actual):
            return Outcome(expect)
        return _difference(expect, [self._line(e) for e in expected], [self._line(e) for e in actual])

    def _aside(self, expect: Expect) -> Outcome:
        stream = self.database.catalog.get(expect.name)
        reader = next((q for q in self.queries.values() if stream.name in q.heartbeats()), None)
        if reader is None or not isinstance(stream, BaseStream):
            raise ScenarioError(f'no query reads stream "{expect.name}"', code="scenario", span=expect.span)
        if expect.what == "rejected":
            rows = reader.rejected(stream.name).to_pylist()
            return self._compared(expect, [VARCHAR], [(row["reason"],) for row in rows])
        kinds = [kind for _, kind in stream.columns]
        late: Counter[Values] = Counter()  # for any query
        for query in self.queries.values():
            if stream.name in query.heartbeats():
                late |= Counter(values_of(row.values(), kinds) for row in query.late(stream.name).to_pylist())
        return self._compared(expect, kinds, list(late.elements()))

    def _compared(self, expect: Expect, kinds: Sequence[Type], actual: Sequence[Values]) -> Outcome:
        expected = [cells_of(row, kinds) for row in expect.rows]
        if Counter(expected) == Counter(actual):
            return Outcome(expect)
        return _difference(expect, map(self._show, expected), map(self._show, actual))

    def _show(self, values: Values) -> str:
        return show_values(values, self.scenario.day)

    def _line(self, element: tuple[Values, Instant, Instant]) -> str:
        values, start, end = element
        until = "…" if end == FOREVER else show_instant(end)
        interval = f"[{show_instant(start)}, {until})"
        return f"{self._show(values)}  {interval.replace(f'{self.scenario.day} ', '')}"


def _changes(elements: Iterable[tuple[Values, Instant, Instant]]) -> Changes:
    changes: Changes = Counter()
    for values, start, end in elements:
        changes[values, start] += 1
        changes[values, end] -= 1
    return Counter({change: copies for change, copies in changes.items() if copies})


def _difference(expect: Expect, expected_lines: Iterable[str], actual_lines: Iterable[str]) -> Outcome:
    expected, there = Counter(expected_lines), Counter(actual_lines)
    missing, surplus, found = (tuple(sorted(lines.elements())) for lines in (expected - there, there - expected, there))
    return Outcome(expect, missing, surplus, found)
