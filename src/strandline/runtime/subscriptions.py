"""Metric subscriptions of a running plan: publish and subscribe, after section 13.4.1 of Krämer's thesis.

Subscribed metrics are derived from the edge statistics (`edge_metrics.PRIMITIVES`) on access. A statistic is collected
once for all its subscribers, and no longer after the last of them unsubscribes.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from strandline.core.errors import QueryError
from strandline.runtime.edge_metrics import GRANULES, LENGTHS, PRIMITIVES, STARTS, VALUES, MetricSet

# Statistics that each metric needs. Output, state and cost of operators are counted in every batch.
ITEMS: Final[dict[str, MetricSet]] = {
    "rate": (STARTS,),
    "distance": (STARTS,),
    "length": (LENGTHS,),
    "granule": (GRANULES,),
    "distinct": (VALUES,),
    "selectivity": (),
    "state": (),
    "cost": (),
}


@dataclass(slots=True, eq=False)
class Subscription:
    """The metrics of one subscriber, until it is closed."""

    items: tuple[str, ...]
    needs: frozenset[str]
    tell: Callable[[], None] | None
    every: float  # seconds between two calls
    board: Subscriptions
    last_notified: float | None = None

    def close(self) -> None:
        """Unsubscribe. Idempotent."""
        self.board.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscriptions:
    """All subscribers of a pipeline. User threads subscribe while the batch thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Subscription] = []
        self._wanted: Counter[str] = Counter()  # how many subscribers need a measurement

    def add(self, items: Iterable[str] | None, tell: Callable[[], None] | None, every: float) -> Subscription:
        metrics = tuple(ITEMS) if items is None else tuple(items)
        for item in metrics:
            if item not in ITEMS:
                raise QueryError(
                    f'unknown metric "{item}"', code="unknown-item", hint=f"Metrics are {', '.join(ITEMS)}."
                )
        needs = frozenset(primitive for item in metrics for primitive in ITEMS[item])
        subscription = Subscription(metrics, needs, tell, every, self)
        with self._lock:
            self._all.append(subscription)
            self._wanted.update(needs)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._all:
                self._all.remove(subscription)
                self._wanted.subtract(subscription.needs)

    def requested_metrics(self) -> MetricSet:
        """Statistics that the next batch is to collect."""
        with self._lock:
            return tuple(item for item in PRIMITIVES if self._wanted[item] > 0)

    def publish(self, measured: MetricSet, last: bool) -> None:
        """Call the subscribers that are due and whose statistics the batch has collected; at the end all of them."""
        with self._lock:
            waiting = [(item, item.tell) for item in self._all if item.tell is not None and item.needs <= set(measured)]
        now = time.monotonic()
        for item, tell in waiting:
            if last or item.last_notified is None or now - item.last_notified >= item.every:
                item.last_notified = now
                try:
                    tell()
                except Exception as error:  # a failing callback must not stop the query
                    item.close()
                    message = f"a metrics callback failed and was removed: {type(error).__name__}: {error}"
                    warnings.warn(message, stacklevel=2)
