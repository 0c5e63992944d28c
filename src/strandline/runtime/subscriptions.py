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
    statistics: frozenset[str]
    callback: Callable[[], None] | None
    every: float  # seconds between two calls
    subscriptions: Subscriptions
    last_notified: float | None = None

    def close(self) -> None:
        """Unsubscribe. Idempotent."""
        self.subscriptions.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscriptions:
    """All subscribers of a pipeline. User threads subscribe while the batch thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Subscription] = []
        self._subscriber_counts: Counter[str] = Counter()  # how many subscribers need a measurement

    def add(self, items: Iterable[str] | None, callback: Callable[[], None] | None, every: float) -> Subscription:
        metrics = tuple(ITEMS) if items is None else tuple(items)
        for metric in metrics:
            if metric not in ITEMS:
                raise QueryError(
                    f'unknown metric "{metric}"', code="unknown-item", hint=f"Metrics are {', '.join(ITEMS)}."
                )
        statistics = frozenset(primitive for metric in metrics for primitive in ITEMS[metric])
        subscription = Subscription(metrics, statistics, callback, every, self)
        with self._lock:
            self._all.append(subscription)
            self._subscriber_counts.update(statistics)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._all:
                self._all.remove(subscription)
                self._subscriber_counts.subtract(subscription.statistics)

    def requested_metrics(self) -> MetricSet:
        """Statistics that the next batch is to collect."""
        with self._lock:
            return tuple(metric for metric in PRIMITIVES if self._subscriber_counts[metric] > 0)

    def publish(self, measured: MetricSet, last: bool) -> None:
        """Call the subscribers that are due and whose statistics the batch has collected; at the end all of them."""
        with self._lock:
            waiting = [
                (subscription, subscription.callback)
                for subscription in self._all
                if subscription.callback is not None and subscription.statistics <= set(measured)
            ]
        now = time.monotonic()
        for subscription, callback in waiting:
            if last or subscription.last_notified is None or now - subscription.last_notified >= subscription.every:
                subscription.last_notified = now
                try:
                    callback()
                except Exception as error:  # a failing callback must not stop the query
                    subscription.close()
                    message = f"a metrics callback failed and was removed: {type(error).__name__}: {error}"
                    warnings.warn(message, stacklevel=2)
