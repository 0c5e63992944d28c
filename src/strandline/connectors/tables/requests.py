"""Requests of many threads to the one thread of a table, which takes them in groups."""

from __future__ import annotations

import threading
import time
from typing import Final, Generic, TypeVar

Request = TypeVar("Request")

# How long a group waits for further requests: a part of what the last group took, and no longer than that.
SHARE_WAITED: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 0.002


class RequestQueue(Generic[Request]):
    """Requests in the order in which they came.

    Threads whose requests were served may come again at once, beside those that came meanwhile. A group costs little
    more if it is larger, so a moment is waited for them: otherwise two groups of half as many requests would alternate.

        without    a b c d | e f g h | a b c d | …        with    a b c d | e f g h a b c d | a b c d e f g h | …
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._last_count, self._last_taken = 0, 0.0

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, *requests: Request) -> bool:
        """Add requests, which are taken together; False if the queue is closed."""
        with self._changed:
            if not self._is_closed:
                self._requests += requests
                self._changed.notify()
            return not self._is_closed

    def take(self) -> list[Request]:
        """The requests that wait, at least one; none if the queue is closed and all were taken. The caller has served
        those that it took before."""
        with self._changed:
            expected = self._last_count + len(self._requests)
            patience = min(SHARE_WAITED * (time.monotonic() - self._last_taken), LONGEST_WAIT_SECONDS)
            self._changed.wait_for(lambda: self._requests or self._is_closed)
            self._changed.wait_for(lambda: len(self._requests) >= expected or self._is_closed, patience)
            taken, self._requests = self._requests, []
            self._last_count, self._last_taken = len(taken), time.monotonic()
            return taken

    def close(self) -> None:
        """Refuse further requests."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
