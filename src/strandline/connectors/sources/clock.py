"""Clocks of sources, and sources whose rows come with the clock."""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from strandline.connectors.sources.base import Source
from strandline.core.durable import write_file
from strandline.core.errors import damaged
from strandline.core.temporal import SECOND, Instant


class SteadyClock:
    """Monotonic time of day: where the system's clock is set back, time continues at its own pace.

    What is set forward is followed. So a clock that is set back and then right again leaves no trace.
    """

    def __init__(
        self,
        wall: Callable[[], Instant] = lambda: time.time_ns() // 1_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._last, self._last_at = wall(), monotonic()

    def __call__(self) -> Instant:
        with self._lock:
            at = self._monotonic()
            self._last = max(self._wall(), self._last + int((at - self._last_at) * SECOND))
            self._last_at = at
            return self._last

    def go_on_from(self, instant: Instant) -> None:
        """Set a lower bound of the clock."""
        with self._lock:
            self._last = max(self._last, instant)


now: Final = SteadyClock()
"""The clock of this process, in microseconds since the epoch."""


def first_start(directory: Path | None) -> Instant:
    """Clock at the first start of a query: now, unless the directory has an earlier one. A replay must see the same
    times."""
    path = directory / "began.json" if directory is not None else None
    if path is not None and path.exists():
        try:
            return int(json.loads(path.read_text())["microseconds"])
        except (ValueError, KeyError, TypeError):
            raise damaged(path) from None
    began = now()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"microseconds": began}).encode(), sync=False)
    return began


class ClockedSource(Source):
    """Rows that are functions of their number: as fast as they are taken or, with `pace`, as their time comes."""

    pace: bool
    total: int | None  # None for no end

    @cached_property
    def began(self) -> Instant:
        return first_start(self.directory)

    @abstractmethod
    def rows_by(self, elapsed_us: int) -> int:
        """Number of rows whose time has come after this many microseconds."""

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        end = position + limit_rows
        if self.pace:
            end = min(end, self.rows_by(now() - self.began))
        if self.total is not None:
            end = min(end, self.total)
        end = max(end, position)
        return end, end == self.total
