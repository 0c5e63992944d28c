"""Store of a table: its log, its current content, and the one thread that changes both."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import polars as pl

from strandline.connectors.tables import blocks, declaration, errors, images
from strandline.connectors.tables.bases import remove_before
from strandline.connectors.tables.change_batch import ChangeBatch
from strandline.connectors.tables.content import TableContent, stack_rows
from strandline.connectors.tables.feed_status import FeedStatus
from strandline.connectors.tables.groups import CommitGroup, CommitRequest, CommittedChange
from strandline.connectors.tables.images import ContentImage
from strandline.connectors.tables.log import LogReader
from strandline.connectors.tables.past import TablePast
from strandline.connectors.tables.recovery import recover_table
from strandline.connectors.tables.requests import RequestQueue
from strandline.connectors.tables.retention import RetainedLog
from strandline.connectors.tables.rows import conform_keys, conform_rows, has_schema, payload_schema
from strandline.connectors.tables.statements import InsertRows, InsertValues, ReplaceContent, TableStatement
from strandline.core.durable import digest
from strandline.core.errors import CheckpointError, StrandlineError
from strandline.core.faults import explain_fault
from strandline.core.lease import Lease
from strandline.core.temporal import BEFORE_ALL, LATEST, SECOND, Instant
from strandline.logical.catalog import StreamStatistics, Table

logger: Final = logging.getLogger("strandline.tables")
RESERVED_AHEAD: Final = 10 * SECOND  # of promises, so that few of them write the head
Clock: TypeAlias = Callable[[], Instant]


def wall_clock() -> Instant:
    return time.time_ns() // 1000


class _Turn:
    """A request to look at the content while no statement changes it."""

    def __init__(self) -> None:
        self.granted, self.released = threading.Event(), threading.Event()


class TableStore:
    """A table that this process writes: statements are committed in groups, and are on disk when they return.

    One thread evaluates, writes and applies; whatever else looks at the content has its turn in the same queue. So a
    promise waits for the group before it at most, and readers see what is on disk and nothing else.
    """

    def __init__(self, table: Table, clock: Clock = wall_clock) -> None:
        self.table, self.clock = table, clock
        self.directory = Path(table.directory)
        self.users = 1
        self.log_schema = blocks.log_schema(table.columns)
        self._payload = payload_schema(table)
        self._content = TableContent(self._payload, _identity_columns(table), self.directory)
        self._bound: Instant | None = None  # of the changes of an active feed with times of its own
        self.feed_status: FeedStatus | None = None  # which its feeder reports
        self._requests: RequestQueue[CommitRequest | _Turn] = RequestQueue()
        self._folding = threading.Lock()
        self._upkeep: threading.Thread | None = None
        self._reading = threading.Lock()
        self._lease = _acquire(table, self.directory)
        try:
            recovered = recover_table(table, self.directory, self.log_schema, self._content)
        except BaseException:
            self._lease.release()
            raise
        self._log, self._reader = recovered.log, recovered.reader
        self._marks, self._feed = recovered.marks, recovered.feed
        self._since = recovered.since  # the last given time of a change
        self._past = TablePast(table, self.directory, self._reader)
        self._last_image = max(images.image_positions(self.directory), default=self._log.first)
        self._reach, self._row_count = self._log.reach, self._content.row_count
        self._promised = self._log.reserved
        self._thread = threading.Thread(target=self._run, name=f"strandline-table-{table.name}", daemon=True)
        self._thread.start()

    # Statements

    @property
    def reach(self) -> int:
        """Position after the last durable change."""
        return self._reach

    @property
    def bytes_per_row(self) -> float:
        """About how many bytes of the log a change takes."""
        return max(self._log.bytes / max(self._log.reach - self._log.first, 1), 1.0)

    @property
    def row_count(self) -> int:
        return self._row_count

    @property
    def last_change(self) -> Instant:
        """When the last change takes effect; `BEFORE_ALL` if there is none."""
        return self._log.last

    @property
    def identity(self) -> str:
        """A name of its own: a table that is created in the same directory later has another."""
        return self._log.identity

    @property
    def feed_position(self) -> str | None:
        """How far the feed was read whose rows are in the log."""
        return self._feed

    def commit(
        self,
        change: TableStatement | ChangeBatch,
        *,
        at: Instant | None = None,
        mark: str | None = None,
        feed: str | None = None,
    ) -> CommittedChange:
        """Commit a statement, all or nothing; on disk when this returns. Statements of several threads share a sync.

        `at` is its instant, if it is not that of the clock. `mark` names a statement of a script: if the log has it,
        nothing happens. `feed` is how far a feed was read that the change comes from.
        """
        request = CommitRequest(self._conformed(change), at, None if mark is None else digest(mark.encode()), feed)
        self._enqueue(request)
        request.done.wait()
        if request.error is not None:
            raise explain_fault(request.error) or request.error
        assert request.result is not None, "a statement succeeds or fails"
        return request.result

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        """A position and an instant P ≥ `at_least`: every change from that position on is at P or later.

        For a table by clock P is not before the clock either. What is promised is on disk, ten seconds ahead. While a
        feed has times of its own, P is what it has promised. An error, if the feed has failed.
        """
        assert at_least < LATEST, "a promise beyond all times would end the table"
        with self._turn():
            self.check_feed()
            if self._bound is not None:
                at_least = self._bound
            promised = max(self._promised, at_least, self.clock() if self._is_by_clock else BEFORE_ALL)
            if promised > self._log.reserved:
                # Times of a feed are not those of a clock: ten seconds of them may be many rows.
                self._log.reserve(promised + (RESERVED_AHEAD if self._is_by_clock else 0))
            self._promised = promised
            return self._reach, promised

    # Feeds

    def hold(self, bound: Instant) -> Instant:
        """Promise no more than `bound` from now on, the watermark of a feed. Returns what was promised already: a
        change before it takes effect there."""
        with self._turn():
            self._bound = bound
            return self._promised

    def follow(self) -> None:
        """The feed is silent, or has ended: promise what queries ask for."""
        with self._turn():
            self._bound = None

    def check_feed(self) -> None:
        """Raise the error of a feed that has failed: what the table has is not what it should have."""
        status = self.feed_status
        if status is not None and status.state == "failed" and status.error is not None:
            raise errors.feed_failed(self.table, status.error, status.remedy)

    # Reading

    def content(self) -> pl.DataFrame:
        """The current rows: payload, `@id` and `@from`."""
        with self._turn():
            parts = self._content.snapshot()
        frames = [frame if live is None else frame.filter(pl.Series(live)) for frame, live in parts]
        return stack_rows(frames, self._content.schema)

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The current rows of primary keys: payload, `@id` and `@from`."""
        keys = conform_keys(self.table, keys)
        with self._turn():
            return self._content.find(keys)[1]

    def read(self, start: int, end: int) -> list[pl.DataFrame]:
        """The rows of the log between two positions."""
        with self._reading:
            return list(self._reader.read(start, end))

    @property
    def retained_since(self) -> Instant:
        """The instant from which on the past is kept."""
        with self._folding:
            return self._past.since

    def statistics(self) -> StreamStatistics:
        """Statistics for the planner: about one change per second, so that the number of rows is the mean length; the
        columns of the key have as many values as there are rows."""
        rows = float(max(self.row_count, 1))
        values = dict.fromkeys(self.table.key, rows) if len(self.table.key) == 1 else {}
        return StreamStatistics(rate=1.0, length=rows, values=values)

    def content_at(self, at: Instant) -> pl.DataFrame:
        """The rows that were there at an instant of the retained past: the payload."""
        with self._folding, self._reading:
            return self._past.content_at(at, self._reach)

    def history(self, since: Instant | None = None, until: Instant | None = None) -> pl.DataFrame:
        """The elements of the retained past that were valid between two instants: payload, `@from`, and `@until`, which
        is OPEN for rows that go on at `until`, or now."""
        with self._folding, self._reading:
            return self._past.history(self._reach, since, until)

    def fold(self) -> bool:
        """Fold changes that are older than KEEP into a base, while statements and readers go on; False if there is not
        enough of them."""
        if self.table.keep_us is None:
            return False
        with self._folding:
            retained = RetainedLog(self.directory, LogReader(self.directory, self.log_schema))
            point = retained.fold_point(self.clock() - self.table.keep_us, self._reach)
            if point is None:
                return False
            retained.fold(point)
            with self._turn():
                self._log.begin_at(point.position)
            remove_before(self.directory, point.position)
            images.remove_images(self.directory, point.position, self._reach)
            with self._reading:
                self._reader.list_files()  # not those that are gone
            return True

    def _begin_upkeep(self) -> None:
        """Write an image and fold, where a file begins, in a thread of its own, if the last one has ended."""
        if self._upkeep is not None and self._upkeep.is_alive():
            return
        image = None
        if self._reach - self._last_image >= max(self._row_count, images.FEWEST_CHANGES):
            image = ContentImage(self._reach, self._content.live_ids(), self._log.digest)
            self._last_image = self._reach
        if image is not None or self.table.keep_us is not None:
            thread = threading.Thread(target=self._keep_up, args=(image,), name="strandline-upkeep", daemon=True)
            thread.start()
            self._upkeep = thread  # only once it runs: closing the table waits for it

    def _keep_up(self, image: ContentImage | None) -> None:
        try:
            if image is not None:
                with self._folding:
                    images.write_image(self.directory, image)
            self.fold()
        except (OSError, StrandlineError) as error:  # the log stays as long as it is, and later files try again
            logger.warning("table %s: cannot remove its past: %s", self.table.name, error)

    # Closing

    def close(self) -> None:
        """Let go of the table; the last user's closing ends its thread, after the statements that wait."""
        with _opening:
            self.users -= 1
            if self.users:
                return
            _stores.pop(self.directory.absolute(), None)
            if self._upkeep is not None:
                self._upkeep.join()
            self._requests.close()
            self._thread.join()
            with contextlib.suppress(OSError):
                if self._promised < self._log.reserved:
                    self._log.reserve(self._promised)
            self._log.close()
            self._lease.release()

    # The thread

    def _run(self) -> None:
        while waiting := self._requests.take():
            self._serve(waiting)

    def _serve(self, waiting: list[CommitRequest | _Turn]) -> None:
        """Requests in their order: groups of statements, and turns between them."""
        group: list[CommitRequest] = []
        for request in waiting:
            if isinstance(request, CommitRequest):
                group.append(request)
                continue
            self._commit(group)
            group = []
            request.granted.set()
            request.released.wait()
        self._commit(group)

    def _commit(self, requests: list[CommitRequest]) -> None:
        while requests:
            group = CommitGroup(self.table, self._content, self._log, self._promised, self._since, self.clock())
            try:
                self._lease.check()
                count = group.evaluate(requests, self._marks)
                group.write()
            except BaseException as error:
                group.fail(error)
                for request in requests:
                    if not request.done.is_set():
                        request.error = error
                        request.done.set()
                return
            self._reach, self._row_count = self._log.reach, self._content.row_count
            self._since = group.since
            self._marks |= group.marks
            self._feed = group.feed if group.feed is not None else self._feed
            group.finish()
            if self._log.begins_file:
                self._begin_upkeep()
            requests = requests[count:]

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        turn = _Turn()
        self._enqueue(turn)
        turn.granted.wait()
        try:
            yield
        finally:
            turn.released.set()

    def require_open(self) -> None:
        """Refuse to read a table that is closed."""
        if self._requests.is_closed:
            raise errors.table_closed(self.table)

    def _enqueue(self, *requests: CommitRequest | _Turn) -> None:
        if not self._requests.put(*requests):
            raise errors.table_closed(self.table)

    def _conformed(self, statement: TableStatement | ChangeBatch) -> TableStatement | ChangeBatch:
        if isinstance(statement, InsertValues) and self.table.kind == "temporal":
            statement = statement.with_columns(self._payload)
        if not isinstance(statement, InsertRows | ReplaceContent):
            return statement
        if self.table.kind != "temporal" and has_schema(statement.rows, self._payload):
            return statement
        return replace(statement, rows=conform_rows(self.table, statement.rows))

    @property
    def _is_by_clock(self) -> bool:
        return self.table.source is None or self.table.time_column is None


def _identity_columns(table: Table) -> tuple[str, ...]:
    """The columns by which rows are found: the key or, where a feed says which of equal rows end, all of them."""
    if table.key or table.changes is None:
        return table.key
    return tuple(name for name, _ in table.columns)


def _acquire(table: Table, directory: Path) -> Lease:
    try:
        return Lease.acquire(directory)
    except CheckpointError as error:
        if error.code == "checkpoint-busy":
            raise errors.table_busy(table, error.detail) from None
        raise


def open_table(table: Table, clock: Clock = wall_clock) -> TableStore:
    """The store of a table, which all users in this process share until each has closed it; another process is
    refused."""
    path = Path(table.directory).absolute()
    with _opening:
        if path in _stores:
            store = _stores[path]
            declaration.check_declaration(table, store.directory)
            store.users += 1
            return store
        store = _stores[path] = TableStore(table, clock)
        return store


def find_open_table(directory: Path) -> TableStore:
    """The store of a directory that this process has opened."""
    store = _stores.get(directory.absolute())
    assert store is not None, "a database opens its tables before it plans queries over them"
    return store


def is_table_open(directory: Path) -> bool:
    """Whether this process has opened the table of a directory."""
    return directory.absolute() in _stores


_stores: dict[Path, TableStore] = {}
_opening = threading.Lock()
