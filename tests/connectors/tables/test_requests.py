"""Requests of threads are taken in groups, in their order, and as many at once as come together."""

from __future__ import annotations

import threading
import time

import pytest

from strandline.connectors.tables import requests
from strandline.connectors.tables.requests import RequestQueue


def test_threads_that_come_again_join_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two halves would alternate: while one is served, the other waits.
    monkeypatch.setattr(requests, "LONGEST_WAIT_SECONDS", 60)
    monkeypatch.setattr(requests, "SHARE_WAITED", 10**9)
    queue: RequestQueue[str] = RequestQueue()
    queue.put(*"abcd")
    assert queue.take() == list("abcd")
    queue.put(*"efgh")
    again = threading.Timer(0.05, lambda: [queue.put(name) for name in "abcd"])
    again.start()
    assert queue.take() == list("efghabcd")
    again.join()


def test_those_that_do_not_come_again_are_not_waited_for_long() -> None:
    queue: RequestQueue[int] = RequestQueue()
    queue.put(*range(100))
    assert len(queue.take()) == 100
    time.sleep(0.1)
    queue.put(1)
    began = time.monotonic()
    assert queue.take() == [1]
    assert time.monotonic() - began < 10


def test_what_waits_is_taken_after_closing() -> None:
    queue: RequestQueue[int] = RequestQueue()
    queue.put(1)
    queue.close()
    assert not queue.put(2)
    assert (queue.take(), queue.take()) == ([1], [])
