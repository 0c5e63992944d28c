"""Work on parts side by side, with the results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(work: Callable[[Part], Result], parts: Sequence[Part], threads: int | None = None) -> Iterator[Result]:
    """The result of each part, in order. Array libraries release the lock of the interpreter, so that as many parts are
    worked on as there are cores; at most one more is finished and waits."""
    threads = min(cores() if threads is None else threads, len(parts))
    if threads < 2:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="strandline-read") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(work, part))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
