"""Group commit: the statements of several threads, evaluated one after the other, in one block of the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from strandline.connectors.tables import errors
from strandline.connectors.tables.blocks import ID, BlockFacts
from strandline.connectors.tables.change_batch import ChangeBatch, stamp_batch
from strandline.connectors.tables.content import RowChanges, TableContent, stack_rows
from strandline.connectors.tables.log import TableLog
from strandline.connectors.tables.stamping import StampedChanges, join_log_rows, stamp, stamp_several
from strandline.connectors.tables.statements import (
    InsertRows,
    InsertValues,
    TableStatement,
    evaluate,
    make_columns,
)
from strandline.core.errors import StrandlineError
from strandline.core.temporal import EARLIEST, LATEST, OPEN, Instant, show_instant
from strandline.logical.catalog import Table
from strandline.logical.expressions import Value
from strandline.runtime.kernels.batch import UNTIL

MOST_GROUP_ROWS: Final = 2**20  # a group ends with the statement that reaches so many changes
_SMALL_ROWS: Final = 1000  # insertions of more rows are evaluated alone


@dataclass(frozen=True, slots=True)
class CommittedChange:
    """Effect of a committed statement: rows that began and ended, when, and the position of the log after it.
    `repeated` if the log had its mark already, and nothing happened."""

    inserted: int
    deleted: int
    at: Instant
    position: int
    repeated: bool = False

    def __str__(self) -> str:
        if self.repeated:
            return "nothing changed: the statement was executed before"
        counts = {"inserted": self.inserted, "deleted": self.deleted}
        if self.inserted == self.deleted:
            counts = {"replaced": self.inserted}
        parts = [f"{count:,} {'row' if count == 1 else 'rows'} {verb}" for verb, count in counts.items() if count]
        return f"{', '.join(parts)} at {show_instant(self.at)}" if parts else "nothing changed"


@dataclass(slots=True, eq=False)
class CommitRequest:
    """A statement that waits to be committed, and what became of it."""

    statement: TableStatement | ChangeBatch
    at: Instant | None = None
    mark: str | None = None
    feed: str | None = None
    done: threading.Event = field(default_factory=threading.Event)
    result: CommittedChange | None = None
    error: BaseException | None = None


class CommitGroup:
    """Statements that are committed together.

    Each sees the effect of those before it. Nothing is visible to others before all are on disk; if that fails, the
    content is as before. A statement that cannot be evaluated fails alone.
    """

    def __init__(
        self, table: Table, content: TableContent, log: TableLog, promised: Instant, since: Instant, now: Instant
    ) -> None:
        self.table, self.content, self.log = table, content, log
        self.floor, self.now = promised, now
        self.last, self.position = log.last, log.reach
        self.since = since
        self.marks: dict[str, None] = {}
        self.feed: str | None = None
        self._stamped: list[StampedChanges] = []
        self._evaluated: list[tuple[CommitRequest, CommittedChange]] = []

    @property
    def is_full(self) -> bool:
        return self.position - self.log.reach >= MOST_GROUP_ROWS

    def evaluate(self, requests: Sequence[CommitRequest], known_marks: dict[str, None]) -> int:
        """Evaluate statements in their order; returns how many, if the group is full before all are."""
        count = 0
        for run in _runs(requests):
            if len(run) == 1 or not self._evaluate_together(run):
                for request in run:
                    self._evaluate_alone(request, known_marks)
            count += len(run)
            if self.is_full:
                break
        return count

    def write(self) -> None:
        """Write the changes of the group; on disk when this returns."""
        if self._stamped or self.marks or self.feed is not None:
            rows = join_log_rows(self._stamped) if self._stamped else self._no_rows()
            start = self.log.reach
            mapped = self.log.append(rows, BlockFacts(self.last, tuple(self.marks), self.feed))
            if mapped is not None:
                self.content.map_rows(mapped, start)
        ended = [part.changes.deleted.get_column(ID).to_numpy() for part in self._stamped]
        self.content.tidy(np.concatenate([np.zeros(0, np.int64), *ended]))

    def finish(self) -> None:
        """Report the effect of each statement to its thread."""
        for request, result in self._evaluated:
            request.result = result
            request.done.set()

    def fail(self, error: BaseException) -> None:
        """Undo the changes, which are not on disk."""
        for part in reversed(self._stamped):
            self.content.revert(part.changes)
        for request, _ in self._evaluated:
            request.error = error
            request.done.set()

    def _evaluate_alone(self, request: CommitRequest, known_marks: dict[str, None]) -> None:
        mark = request.mark
        if mark is not None and (mark in known_marks or mark in self.marks):
            self._evaluated.append((request, CommittedChange(0, 0, self.last, self.position, repeated=True)))
            return
        try:
            stamped, at, since = self._stamp(request)
        except Exception as error:
            request.error = error
            request.done.set()
            return
        if mark is not None:
            self.marks[mark] = None
        if request.feed is not None:
            self.feed = request.feed
        self._take(stamped, at)
        self.since = since
        inserted = int((stamped.log_rows.get_column(UNTIL) == OPEN).sum())
        counts = inserted, stamped.log_rows.height - inserted
        self._evaluated.append((request, CommittedChange(*counts, at, self.position)))

    def _stamp(self, request: CommitRequest) -> tuple[StampedChanges, Instant, Instant]:
        """The effect of a request, the instant of its last change, and the last given time after it."""
        statement, is_given = request.statement, request.at is not None
        if isinstance(statement, ChangeBatch):
            is_given = statement.times is not None
            # Later than all changes before: a row would end at the instant of its insertion.
            earliest = max(self.last + 1, self.floor) if is_given else self._instant(None)
            stamped, at = stamp_batch(statement, self.content, self.table, earliest, self.since, self.position)
        else:
            at = self._instant(request.at)
            changes = evaluate(statement, self.content, self.table)
            stamped = stamp(changes, at, at if is_given else self.since, self.position)
        return stamped, at, at if is_given and stamped.log_rows.height else self.since

    def _instant(self, at: Instant | None) -> Instant:
        """The instant of a change: what was given, or by the clock, after every change and not before a promise."""
        if at is None:
            return max(self.now, self.last + 1, self.floor)
        if not EARLIEST <= at < LATEST:
            raise errors.bad_instant(at)
        if at < self.last:
            raise errors.change_too_old(self.table, at, self.last, "The last change was at")
        if at < self.floor:
            raise errors.change_too_old(self.table, at, self.floor, "Queries have results up to")
        return at

    def _evaluate_together(self, run: Sequence[CommitRequest]) -> bool:
        """Evaluate insertions with distinct keys at once. False, and nothing has changed, if one after the other might
        have another effect."""
        rows, counts = self._rows_of(run)
        numbers = np.repeat(np.arange(len(run)), counts)
        first = run[0].statement
        assert isinstance(first, InsertRows | InsertValues), "a run of insertions"
        try:
            changes = evaluate(InsertRows(rows, first.on_conflict), self.content, self.table)
        except StrandlineError:
            return False  # one of them fails, the others do not
        if changes.inserted.height < rows.height:  # some have the same key, or one that is there
            return False
        deleted_by = numbers[:0] if changes.replaced_by is None else numbers[changes.replaced_by]
        begin = self._instant(None)
        instants = begin + np.arange(len(run))
        stamped = stamp_several(changes, numbers, deleted_by, instants, self.since, self.position)
        position = self.position
        self._take(stamped, int(instants[-1]))
        inserted = np.bincount(numbers, minlength=len(run)).tolist()
        deleted = np.bincount(deleted_by, minlength=len(run)).tolist()
        for number, request in enumerate(run):
            position += inserted[number] + deleted[number]
            at = int(instants[number])
            self._evaluated.append((request, CommittedChange(inserted[number], deleted[number], at, position)))
        return True

    def _rows_of(self, run: Sequence[CommitRequest]) -> tuple[pl.DataFrame, list[int]]:
        """The rows of insertions, and how many each has."""
        schema = {name: self.content.schema[name] for name in self.content.columns}
        frames: list[pl.DataFrame] = []
        counts: list[int] = []
        values: list[tuple[Value, ...]] = []
        for request in run:
            match request.statement:
                case InsertValues(rows):
                    values += rows
                    counts.append(len(rows))
                case InsertRows(frame):
                    if values:
                        frames.append(make_columns(values, schema))
                        values = []
                    frames.append(frame)
                    counts.append(frame.height)
        if values:
            frames.append(make_columns(values, schema))
        return stack_rows(frames, self.content.schema), counts

    def _take(self, stamped: StampedChanges, at: Instant) -> None:
        if stamped.log_rows.height:
            self.content.apply(stamped.changes)
            self._stamped.append(stamped)
            self.position += stamped.log_rows.height
            self.last = at

    def _no_rows(self) -> pl.DataFrame:
        schema = self.content.schema
        nothing = RowChanges(pl.DataFrame(schema=schema).select(self.content.columns), pl.DataFrame(schema=schema))
        return stamp(nothing, self.last, self.since, self.position).log_rows


def _runs(requests: Sequence[CommitRequest]) -> Iterator[list[CommitRequest]]:
    """Neighbouring statements that may be evaluated together: small insertions by the clock that treat conflicts
    alike."""
    run: list[CommitRequest] = []
    for request in requests:
        if run and not (_is_small_insertion(run[-1]) and _is_small_insertion(request) and _is_alike(run[-1], request)):
            yield run
            run = []
        run.append(request)
    if run:
        yield run


def _is_small_insertion(request: CommitRequest) -> bool:
    statement = request.statement
    if isinstance(statement, InsertRows):
        is_small = statement.rows.height <= _SMALL_ROWS
    elif isinstance(statement, InsertValues):
        is_small = len(statement.values) <= _SMALL_ROWS
    else:
        return False
    return (
        is_small
        and not statement.assignments
        and statement.condition is None
        and request.at is None
        and request.mark is None
        and request.feed is None
    )


def _is_alike(one: CommitRequest, two: CommitRequest) -> bool:
    first, second = one.statement, two.statement
    kinds = InsertRows | InsertValues
    assert isinstance(first, kinds) and isinstance(second, kinds), "both are insertions"
    return first.on_conflict == second.on_conflict
