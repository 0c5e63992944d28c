"""Cost of a run: seconds, CPU seconds and memory of this process and its descendants."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

Figures = dict[str, Any]  # of a benchmark, as JSON has them


@dataclass(slots=True)
class Cost:
    """Wall seconds, CPU seconds, and the highest resident memory of the process tree seen meanwhile."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mb: float = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure the block; the figures are there when it ends."""
    cost = Cost()
    done = threading.Event()
    tree = _Tree()
    sampler = threading.Thread(target=_sample, args=(tree, cost, done), daemon=True)
    before = tree.cpu_seconds()
    began = time.perf_counter()
    sampler.start()
    try:
        yield cost
    finally:
        cost.seconds = time.perf_counter() - began
        done.set()
        sampler.join()
        cost.cpu_seconds = tree.cpu_seconds() - before


class _Tree:
    """This process and its descendants; ended ones keep their last figures."""

    def __init__(self) -> None:
        self.root = psutil.Process()
        self.used: dict[int, float] = {}

    def _processes(self) -> list[psutil.Process]:
        return [self.root, *self.root.children(recursive=True)]

    def cpu_seconds(self) -> float:
        for process in self._processes():
            try:
                times = process.cpu_times()
                self.used[process.pid] = times.user + times.system
            except psutil.Error:
                continue
        return sum(self.used.values())

    def memory_mb(self) -> float:
        total = 0
        for process in self._processes():
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total / 2**20


def _sample(tree: _Tree, cost: Cost, done: threading.Event) -> None:
    ended = False
    while not ended:  # also a run that ends before the first sample has a memory figure
        ended = done.wait(0.1)
        cost.peak_memory_mb = max(cost.peak_memory_mb, tree.memory_mb())
        tree.cpu_seconds()
