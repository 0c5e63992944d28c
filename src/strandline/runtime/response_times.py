"""Response times: from the decision on a batch to the delivery of the results that it made possible, by query.

A result belongs to the batch with which the watermark of its streams passed its start. Where shared window joins put
off work, it may be delivered with a later batch. Each batch counts when it is over, with all sinks done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.core.temporal import Instant
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.watermark import watermark_of

_SHORTEST: Final = 1e-4  # seconds; what is shorter counts as that
_PER_DOUBLING: Final = 16  # bins of a factor of two: a quantile is known within 5 %
_BINS: Final = 30 * _PER_DOUBLING


@dataclass(slots=True)
class ResponseTimes:
    """Seconds of the results of a query, as counts in bins of equal ratios, and the longest."""

    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    longest: float = 0.0

    def add(self, seconds: float, results: int) -> None:
        place = int(_PER_DOUBLING * np.log2(max(seconds, _SHORTEST) / _SHORTEST))
        self.counts[min(place, _BINS - 1)] += results
        self.longest = max(self.longest, seconds)

    def add_all(self, seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Add results with a time each."""
        if len(seconds):
            places = (_PER_DOUBLING * np.log2(np.maximum(seconds, _SHORTEST) / _SHORTEST)).astype(np.int64)
            self.counts += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)
            self.longest = max(self.longest, float(seconds.max()))

    def quantile(self, share: float) -> float:
        """The time within which a share of the results was delivered, to the upper end of its bin."""
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.counts.sum()))
        return min(float(_SHORTEST * 2 ** ((place + 1) / _PER_DOUBLING)), self.longest)

    def to_metrics(self) -> dict[str, float | None]:
        """The median, the 99th percentile and the longest; None without results."""
        if not self.counts.any():
            return dict.fromkeys(("response_p50", "response_p99", "response_max"))
        return {
            "response_p50": self.quantile(0.5),
            "response_p99": self.quantile(0.99),
            "response_max": self.longest,
        }


class ResponseClock:
    """The response times of the queries of a pipeline, since this run began."""

    def __init__(self) -> None:
        self._times: dict[str, ResponseTimes] = {}
        # By query, of the batches that made results possible which are put off: up to when, and when they were decided.
        self._open: dict[str, list[tuple[Instant, float]]] = {}

    def of(self, query: str) -> ResponseTimes:
        return self._times.get(query) or ResponseTimes()

    def add(self, report: BatchReport, metrics: PipelineMetrics, began: float, ended: float) -> None:
        """Add the results of a batch that was decided at one time and delivered at another."""
        waiting = metrics.reaches.keys() | self._open.keys()
        for query in [plan.name for plan in metrics.physical.queries if plan.name in waiting]:
            possible = watermark_of(metrics.statuses, metrics.streams_of(query)).time
            self._open.setdefault(query, []).append((possible, began))
        for query, rows in report.rows_out.items():
            if not rows:
                continue
            times = self._times.setdefault(query, ResponseTimes())
            batches = self._open.get(query, [])
            if len(batches) < 2:
                times.add(ended - began, rows)
                continue
            for decided, count in _count_by_batch(report, query, batches).items():
                times.add(ended - decided, count)
        known = {plan.name for plan in metrics.physical.queries}
        self._open = {
            query: later
            for query, batches in self._open.items()
            if query in known and (later := [one for one in batches if one[0] > metrics.watermark(query)])
        }


def _count_by_batch(report: BatchReport, query: str, batches: list[tuple[Instant, float]]) -> Mapping[float, int]:
    """How many results of a query there are of each batch, by when it was decided. Of results that are in files only
    the number is known: they count as those of the first batch."""
    table = report.result(query)
    if table is None:
        return {batches[0][1]: report.rows_out[query]}
    starts = table.column(table.num_columns - 2).cast(pa.int64()).to_numpy()
    places = np.searchsorted([possible for possible, _ in batches], starts, side="right")
    counts = np.bincount(np.minimum(places, len(batches) - 1), minlength=len(batches)).tolist()
    return {decided: count for (_, decided), count in zip(batches, counts, strict=True) if count}
