"""Feeder: the thread that reads a feed and commits what it brings."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from strandline.connectors.tables import errors
from strandline.connectors.tables.feed_status import FeedState, FeedStatus
from strandline.connectors.tables.feeds.base import FeedStep, TableFeed
from strandline.core.durable import sync_directory, sync_file
from strandline.core.errors import SourceError, StrandlineError
from strandline.core.faults import explain_fault
from strandline.core.log import INFO, INPUT, WARNING, log_event

LOAD_ROWS: Final = 2**20  # of a commit while a table is loaded
STEP_ROWS: Final = 2**17
ENDLESS_SECONDS: Final = 5.0  # without a row, for a source that has to end
REPORT_SECONDS: Final = 5.0  # between two lines of a long load
RETRY_SECONDS: Final = 60.0  # for which a system may be out of reach
_RETRY_PAUSE: Final = 0.5
_TRANSIENT: Final = ("kafka-unreachable", "database-unreachable")
REJECTED: Final = "rejected"


class TableFeeder:
    """Feeder of one table. A static table is loaded as a whole; of others, what is there when the table is created is
    loaded first, and the rest while queries run.

    An error stops the feeder, and with it the queries over its table. A system that is out of reach is waited for.
    """

    def __init__(self, feed: TableFeed) -> None:
        self.feed = feed
        self.table, self.store = feed.table, feed.store
        self._report_status("running")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loaded = 0

    @property
    def status(self) -> FeedStatus:
        assert self.store.feed_status is not None, "a feeder reports its status"
        return self.store.feed_status

    def start(self) -> None:
        """Load what is there; the thread goes on where more may follow."""
        self.feed.claim_position()
        try:
            self.feed.open()
            if self.table.kind == "changing":
                self._load()
            else:
                self._load_all()
        except BaseException:
            self.feed.close()
            raise
        if self.feed.position.ended or self.table.kind != "changing":
            self._report_status("ended")
            self.feed.close()
            return
        name = f"strandline-feed-{self.table.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # Loading

    def _load(self) -> None:
        """What the source has now: until a step brings little."""
        began = time.monotonic()
        while (step := self._step(LOAD_ROWS)) is not None and not self.feed.position.ended:
            began = self._report(step, began)
            if step.rows < LOAD_ROWS // 2:
                return

    def _load_all(self) -> None:
        reported = last_row = time.monotonic()
        while not self.feed.position.ended:
            step = self._step(LOAD_ROWS)
            if step is not None:
                last_row, reported = time.monotonic(), self._report(step, reported)
                continue
            silent = time.monotonic() - last_row
            if silent > ENDLESS_SECONDS:
                raise errors.endless_source(self.table, silent)
            time.sleep(self.feed.pause_seconds)

    def _report(self, step: FeedStep, reported: float) -> float:
        self._loaded += step.rows
        now = time.monotonic()
        if now - reported < REPORT_SECONDS:
            return reported
        log_event(INPUT, INFO, "table loading", name=self.table.name, rows=self._loaded)
        return now

    # Steps

    def _step(self, limit_rows: int) -> FeedStep | None:
        before = self.feed.position
        step = self.feed.poll(limit_rows)
        if step is None:
            return None
        if step.rejected.height:
            self._keep_rejected(step, before.read)
        self.store.commit(step.change, feed=step.position.to_text() if step.is_news else None)
        self.feed.settle()
        return step

    def _keep_rejected(self, step: FeedStep, number: int) -> None:
        """Rejected rows lie beside the log, in a file per step: a step that is repeated writes the same file."""
        directory = Path(self.table.directory) / REJECTED
        directory.mkdir(exist_ok=True)
        path = directory / f"{number:015d}.parquet"
        step.rejected.write_parquet(path)
        sync_file(path)
        sync_directory(directory)
        reason = step.rejected.get_column("reason")[0]
        log_event(INPUT, WARNING, "rows rejected", table=self.table.name, rows=step.rejected.height, reason=reason)

    # The thread

    def _run(self) -> None:
        unreachable: float | None = None  # since when
        while not self._stopping.is_set():
            pause = self.feed.pause_seconds
            try:
                if self._step(STEP_ROWS) is not None:
                    pause = 0.0
                unreachable = None
                if self.status.state != "running":
                    self._report_status("running")
            except Exception as error:
                now = time.monotonic()
                unreachable = now if unreachable is None else unreachable
                if self._stopping.is_set():
                    break
                if not _is_transient(error) or now - unreachable > RETRY_SECONDS:
                    self._fail(error)
                    break
                pause = _RETRY_PAUSE
                self._report_status("waiting", _named(error))
                log_event(INPUT, WARNING, "table waits for its source", name=self.table.name, message=str(error))
            if self.feed.position.ended:
                self._report_status("ended")
                break
            if pause:
                self._stopping.wait(pause)
        self.feed.close()

    def _fail(self, error: Exception) -> None:
        named = _named(error)
        self._report_status("failed", named)
        log_event(INPUT, WARNING, "table failed", name=self.table.name, code=named.code, message=named.message)

    def _report_status(self, state: FeedState, error: StrandlineError | None = None) -> None:
        self.store.feed_status = FeedStatus(state, error)


def _named(error: Exception) -> StrandlineError:
    named = error if isinstance(error, StrandlineError) else explain_fault(error)
    if named is not None:
        return named
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return SourceError(message, code="feed-failed", hint="Fix the cause.")


def _is_transient(error: Exception) -> bool:
    return isinstance(error, StrandlineError) and error.code in _TRANSIENT
