"""A result as it changes, for loops of a program: `for change in query.follow()`, and the same with `async for`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import polars as pl

from strandline.core.temporal import to_datetime
from strandline.runtime.exchange import to_table
from strandline.runtime.kernels.changes import CHANGE, TIME
from strandline.runtime.result_inbox import ResultInbox
from strandline.runtime.result_tracker import ResultTracker

if TYPE_CHECKING:
    from strandline.database.query import Query

_LOOK_SECONDS: Final = 0.25  # between two looks whether the query was stopped or has failed
_ROWS_AT_ONCE: Final = 1_000  # changes that are made into Python values together


class Change(NamedTuple):
    """A change of a result: `change` is +n for n equal rows that come at an instant, -n for those that leave."""

    change: int
    row: dict[str, Any]
    time: datetime


class Follower:
    """The changes of a result in order, from its beginning on, each once; to iterate over, with `for` or `async for`.

    It ends when the query has ended or was stopped, and raises what made it fail. `close` ends it earlier; the query
    goes on. Changes come once they are final, when the watermark has passed them. What is valid takes memory; of what
    the loop has not taken yet, only so much, and the rest a temporary file.
    """

    def __init__(self, query: Query, inbox: ResultInbox) -> None:
        self._query = query
        self._inbox = inbox
        self._tracker = ResultTracker(query.columns, in_fragments=not query.has_whole_elements)
        self._ready: Iterator[Change] = iter(())
        self._open = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        while self._open:
            if (change := next(self._ready, None)) is not None:
                return change
            running = self._query.is_running  # before the look: its last batch comes before its end
            if not self._fill(_LOOK_SECONDS if running else 0.0) and not running:
                self._end()
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(news.set)

        while self._open:
            if (change := next(self._ready, None)) is not None:
                return change
            self._inbox.notify = notify
            running = self._query.is_running
            if await asyncio.to_thread(self._fill, 0.0):
                continue
            if not running:
                self._end()
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), _LOOK_SECONDS)
            news.clear()
        raise StopAsyncIteration

    def close(self) -> None:
        """End the iteration; the query goes on."""
        self._open = False
        self._inbox.notify = lambda: None
        self._query._running.results.unsubscribe(self._query.name, self._inbox)
        self._inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that was left with `break` or by an error lets go of it.
        if getattr(self, "_open", False):
            self.close()

    def _fill(self, timeout: float) -> bool:
        """Take what has come; false if nothing has."""
        chunks = self._inbox.take(timeout)
        if chunks is None:
            return False
        self._ready = self._changes_of(self._tracker.step(chunks).changes)
        return True

    def _changes_of(self, frame: pl.DataFrame) -> Iterator[Change]:
        names = [column.name for column in self._query.columns]
        ids = [column.id for column in self._query.columns]
        for part in frame.iter_slices(_ROWS_AT_ONCE):
            times, changes = part.get_column(TIME).to_list(), part.get_column(CHANGE).to_list()
            columns = [column.to_pylist() for column in to_table(part.select(ids)).columns]
            rows = zip(*columns, strict=True) if columns else ((),) * part.height
            for values, time, change in zip(rows, times, changes, strict=True):
                yield Change(change, dict(zip(names, values, strict=True)), to_datetime(time))

    def _end(self) -> None:
        self.close()
        self._query.check()
