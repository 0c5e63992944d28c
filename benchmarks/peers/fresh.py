"""Freshness of a table in a join: how long after a change has been committed a result first has its value.

A stream reads few keys of the table often, so that what is measured is not the wait for a row. Changes come one by one,
each with a value of its own, above all values that the table has at first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from harness import Delays

KEYS = 100
FIRST_VALUE = 10_000_000  # values at first are less
INTERVAL_SECONDS = 0.2
PATIENCE_SECONDS = 60  # for the first result, and for the last changes to become visible


class Changes:
    """Changes of one row each, when each had been committed, and when a result first had it."""

    def __init__(self, commit: Callable[[int, int], None]) -> None:
        self.commit = commit  # of a key and its new value
        self.committed: dict[int, float] = {}
        self.seen: dict[int, float] = {}
        self.started = threading.Event()

    def receive(self, values: Iterable[int]) -> None:
        """Note the values of a result; the first result starts the changes."""
        now = time.time() * 1e3
        for value in values:
            self.seen.setdefault(value, now)
        self.started.set()

    def run(self, seconds: float) -> Delays:
        """Change the table for some seconds, wait until all changes are visible, and give what each took."""
        if not self.started.wait(4 * PATIENCE_SECONDS):
            raise RuntimeError("no result came in the paced run")
        end = time.time() + seconds
        while time.time() < end:
            number = len(self.committed)
            self.commit(number % KEYS, FIRST_VALUE + number)
            self.committed[FIRST_VALUE + number] = time.time() * 1e3
            time.sleep(INTERVAL_SECONDS)
        deadline = time.time() + PATIENCE_SECONDS
        while time.time() < deadline and not self.committed.keys() <= self.seen.keys():
            time.sleep(0.1)
        if missing := self.committed.keys() - self.seen.keys():
            raise RuntimeError(
                f"{len(missing)} of {len(self.committed)} changes are not visible after {PATIENCE_SECONDS} s"
            )
        return [(at, max(self.seen[value] - at, 0.0)) for value, at in self.committed.items()]
