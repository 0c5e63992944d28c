"""Edge profiler: statistics of the elements on the edges of a running plan, collected only on request.

Some statistics cost a pass over the elements, so tasks collect them only if the batch requests them. The request is
part of the offsets of the batch, so that a replayed batch measures the same.

An edge is named after the operator that the elements leave (`f1.2`), or the stream (`source:trades`). The statistics of
its tasks are merged, in any order, over shards and batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Times, times
from strandline.runtime.kernels.sketches import Sketch

# Requestable statistics by cost: a pass over the starts, over the intervals, over all columns.
STARTS, LENGTHS, GRANULES, VALUES = "starts", "lengths", "granules", "values"
PRIMITIVES: Final = (STARTS, LENGTHS, GRANULES, VALUES)

MetricSet: TypeAlias = tuple[str, ...]


def union_metrics(one: MetricSet, two: MetricSet) -> MetricSet:
    """Union of two requests."""
    return tuple(metric for metric in PRIMITIVES if metric in one or metric in two)


@dataclass(frozen=True, slots=True)
class Starts:
    """Number of elements, and the first and the last of their starts."""

    count: int = 0
    low: Instant = FOREVER
    high: Instant = BEFORE_ALL

    def merged(self, other: Starts) -> Starts:
        return Starts(self.count + other.count, min(self.low, other.low), max(self.high, other.high))

    @property
    def distance(self) -> float | None:
        """Seconds between two starts, on average: d in chapter 22 of Krämer's thesis."""
        return (self.high - self.low) / SECOND / (self.count - 1) if self.count > 1 else None

    @property
    def rate(self) -> float | None:
        """Elements per second of their own time."""
        return 1 / self.distance if self.distance else None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Validity durations of elements; elements without end are excluded."""

    count: int = 0
    total: float = 0.0  # microseconds

    @staticmethod
    def of(start: Times, end: Times) -> Lengths:
        lasting = (end - start)[end < FOREVER]
        return Lengths(len(lasting), float(lasting.sum(dtype=np.float64)))

    def merged(self, other: Lengths) -> Lengths:
        return Lengths(self.count + other.count, self.total + other.total)

    @property
    def mean(self) -> float | None:
        """In seconds: l in chapter 22 of Krämer's thesis."""
        return self.total / self.count / SECOND if self.count else None


@dataclass(frozen=True, slots=True)
class Granules:
    """The longest span, in microseconds, by multiples of which all starts and ends lie apart; 0 if all are one.

    From one of them, since a grid may begin anywhere: a window with a slide moves one instant before its multiples.
    """

    base: Instant
    span: int

    @staticmethod
    def of(start: Times, end: Times) -> Granules:
        base = int(start[0])
        spans = (int(np.gcd.reduce(instants - base)) for instants in (start, end[end < FOREVER]))
        return Granules(base, math.gcd(*spans))

    def merged(self, other: Granules) -> Granules:
        return Granules(self.base, math.gcd(self.span, other.span, other.base - self.base))


@dataclass(frozen=True, slots=True)
class EdgeMetrics:
    """Statistics of one edge; None where they were not requested."""

    starts: Starts | None = None
    lengths: Lengths | None = None
    granules: Granules | None = None
    values: Mapping[str, Sketch] | None = None

    @staticmethod
    def of(frame: pl.DataFrame, requested_metrics: MetricSet) -> EdgeMetrics:
        start, end = times(frame, FROM), times(frame, UNTIL)
        payload = (column for column in frame.get_columns() if not column.name.startswith("@"))
        return EdgeMetrics(
            Starts(len(start), int(start.min()), int(start.max())) if STARTS in requested_metrics else None,
            Lengths.of(start, end) if LENGTHS in requested_metrics else None,
            Granules.of(start, end) if GRANULES in requested_metrics else None,
            {column.name: Sketch.of(column) for column in payload} if VALUES in requested_metrics else None,
        )

    def merged(self, other: EdgeMetrics) -> EdgeMetrics:
        return EdgeMetrics(
            _merged(self.starts, other.starts, Starts.merged),
            _merged(self.lengths, other.lengths, Lengths.merged),
            _merged(self.granules, other.granules, Granules.merged),
            _merged(self.values, other.values, merge_by_name),
        )

    def without(self, metrics: Iterable[str]) -> EdgeMetrics:
        """The same without some statistics."""
        return replace(self, **dict.fromkeys(metrics))

    def to_json(self) -> dict[str, Any]:
        return {
            STARTS: self.starts and [self.starts.count, self.starts.low, self.starts.high],
            LENGTHS: self.lengths and [self.lengths.count, self.lengths.total],
            GRANULES: self.granules and [self.granules.base, self.granules.span],
            VALUES: self.values and {name: sketch.to_text() for name, sketch in self.values.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> EdgeMetrics:
        return EdgeMetrics(
            Starts(*data[STARTS]) if data[STARTS] is not None else None,
            Lengths(*data[LENGTHS]) if data[LENGTHS] is not None else None,
            Granules(*data[GRANULES]) if data[GRANULES] is not None else None,
            None if data[VALUES] is None else {name: Sketch.from_text(text) for name, text in data[VALUES].items()},
        )


def _merged(one: Any, two: Any, merge: Any) -> Any:
    return two if one is None else one if two is None else merge(one, two)


_Mergeable = TypeVar("_Mergeable", Sketch, EdgeMetrics)


def merge_by_name(one: Mapping[str, _Mergeable], two: Mapping[str, _Mergeable]) -> dict[str, _Mergeable]:
    return {**one, **{name: one[name].merged(metrics) if name in one else metrics for name, metrics in two.items()}}


EdgeMetricsByName: TypeAlias = Mapping[str, EdgeMetrics]


@dataclass(slots=True)
class EdgeProfiler:
    """Collect the statistics of a task, if its batch requests any."""

    requested_metrics: MetricSet = ()
    edges: dict[str, EdgeMetrics] = field(default_factory=dict)

    def record(self, edge: str, frame: pl.DataFrame) -> None:
        if self.requested_metrics and frame.height:
            self.edges = merge_by_name(self.edges, {edge: EdgeMetrics.of(frame, self.requested_metrics)})


@dataclass(frozen=True, slots=True)
class Measurements:
    """Statistics of all edges since they have been requested without interruption."""

    requested_metrics: MetricSet = ()  # of the last batch
    edges: EdgeMetricsByName = field(default_factory=dict)

    def after(self, requested_metrics: MetricSet, edges: EdgeMetricsByName) -> Measurements:
        """Add the statistics of a batch. Newly requested ones restart: a rate over unmeasured time would be too low."""
        fresh = [metric for metric in requested_metrics if metric not in self.requested_metrics]
        kept = {name: edge.without(fresh) for name, edge in self.edges.items()} if fresh else self.edges
        return Measurements(requested_metrics, merge_by_name(kept, edges))
