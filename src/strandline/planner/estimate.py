"""Cost estimate of a physical plan: rates, state and CPU time of every operator, in the steady state.

Krämer's chapter 22 for the operators as they are here; `docs/optimizer.md` reports its accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.temporal import SECOND
from strandline.core.types import Schema
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.planner.cardinality import LONGEST, RATE, StatisticsByStream, StreamProfile, estimate_scan
from strandline.planner.cost import width
from strandline.planner.physical import plan as physical
from strandline.planner.physical.graph import SOURCE
from strandline.planner.physical.operators import estimate_output, estimate_state
from strandline.planner.physical.plan import Fragment, Node, Pipeline, numbered, ports, schema, sources
from strandline.planner.physical_cardinality import PhysicalProfile
from strandline.planner.prices import Prices, load_prices

MAX_SPEEDUP: Final = 100.0
BATCH_SECONDS: Final = 1.0  # of stream time in a batch, where nothing is known of it


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of an operator in the steady state: rows per second, the longest validity in seconds of what goes in or
    out; CPU seconds per second, and the work behind them; state over all shards."""

    rate_out: float
    length: float
    cost: float
    work: Mapping[str, float]
    rows: float = 0.0
    bytes: float = 0.0

    @property
    def grows(self) -> bool:
        """True if there is no steady state, since rows never expire."""
        return self.rows > 0 and self.length >= LONGEST


@dataclass(frozen=True, slots=True)
class Estimates:
    """By step, as `physical/graph.py` names them; by stream that is read; by fragment the cost of sending its
    output."""

    steps: Mapping[str, Estimate]
    reading: Mapping[str, Estimate]
    sending: Mapping[str, Estimate]
    driving: Estimate  # cost of a batch apart from its operators: ingestion, state, reporting
    batch_seconds: float
    shards: int

    @property
    def cost(self) -> float:
        """CPU seconds per second."""
        parts = (self.steps, self.reading, self.sending)
        return self.driving.cost + sum(estimate.cost for part in parts for estimate in part.values())

    @property
    def rows(self) -> float:
        return sum(step.rows for step in self.steps.values())

    @property
    def bytes(self) -> float:
        return sum(step.bytes for step in self.steps.values())


def estimate(
    pipeline: Pipeline,
    statistics: StatisticsByStream,
    batch_seconds: float | None = None,
    prices: Prices | None = None,
) -> Estimates:
    """What a pipeline will need, by what is known of its streams, in batches of the given or of the measured length, at
    these prices or at those of this machine."""
    batch_seconds = batch_seconds or measured_batch(pipeline, statistics) or BATCH_SECONDS
    return _Walk(pipeline, statistics, batch_seconds, prices or load_prices()).estimates()


def measured_batch(pipeline: Pipeline, statistics: StatisticsByStream) -> float | None:
    """Seconds of stream time per batch, where they are known: the shortest, since any stream may hold others back."""
    known = (statistics.get(stream.name, stream.statistics).batch_seconds for stream in pipeline.streams)
    return min((seconds for seconds in known if seconds), default=None)


def how_much_faster(
    pipeline: Pipeline, statistics: StatisticsByStream, cores: int, prices: Prices | None = None
) -> float:
    """By how much all rates may grow until the cores are busy all the time: less than in proportion to what they do
    now, since windows fill with them. At most `MAX_SPEEDUP`."""
    low, high = 0.0, math.log(MAX_SPEEDUP)
    for _ in range(7):
        middle = (low + high) / 2
        faster: dict[str, StreamStatistics] = {}
        for stream in pipeline.streams:
            stream_statistics = statistics.get(stream.name, stream.statistics)
            faster[stream.name] = replace(stream_statistics, rate=(stream_statistics.rate or RATE) * math.exp(middle))
        low, high = (middle, high) if estimate(pipeline, faster, prices=prices).cost <= cores else (low, middle)
    return MAX_SPEEDUP if high == math.log(MAX_SPEEDUP) else math.exp(low)


class _Walk:
    def __init__(self, pipeline: Pipeline, statistics: StatisticsByStream, batch: float, prices: Prices) -> None:
        self.pipeline, self.statistics, self.batch, self.prices = pipeline, statistics, batch, prices
        self.streams = {stream.name: stream for stream in pipeline.streams}
        self.inputs: dict[str, PhysicalProfile] = {}  # by port, what exchanges have brought there

    def estimates(self) -> Estimates:
        steps: dict[str, Estimate] = {}
        sending: dict[str, Estimate] = {}
        for fragment in sorted(self.pipeline.fragments, key=lambda fragment: fragment.stage):
            profiles: dict[Node, PhysicalProfile] = {}
            for port in ports(fragment.root):
                profiles[port] = self._profile_input(port, fragment)
            for number, node in enumerate(numbered(fragment.root)):
                profiles[node] = estimate_output(node, profiles, self.batch)
                steps[f"{fragment.id}.{number}"] = self._step(node, profiles, fragment)
            output = profiles[fragment.root]
            sending[fragment.id] = self._sending(fragment, output)
            if isinstance(fragment.route, physical.ExchangeTo):
                self.inputs[fragment.route.port] = self._moved(fragment.route.mode, output)
        reading = {stream.name: self._reading(stream) for stream in self.pipeline.streams}
        driving = self._driving(list(reading.values()))
        return Estimates(steps, reading, sending, driving, self.batch, self.pipeline.shards)

    def _profile_input(self, port: physical.Input, fragment: Fragment) -> PhysicalProfile:
        if not port.name.startswith(SOURCE):
            return self.inputs[port.name]
        stream = self.streams[port.name.removeprefix(SOURCE)]
        # An operator over several streams waits for the one with the largest out-of-orderness.
        early = max(self.streams[name].disorder_us for name in fragment.streams) / SECOND
        return PhysicalProfile(self._read(stream, port.columns), early=early)

    def _read(self, stream: BaseStream, columns: Schema) -> StreamProfile:
        return estimate_scan(self.statistics.get(stream.name, stream.statistics), columns, stream.has_intervals)

    def _moved(self, mode: physical.Mode, output: PhysicalProfile) -> PhysicalProfile:
        """The output of a fragment after an exchange."""
        shards = 1 if mode == "one" else self.pipeline.shards
        return replace(output, shards=shards, copies=shards if mode == "all" else 1)

    def _step(self, node: Node, profiles: Mapping[Node, PhysicalProfile], fragment: Fragment) -> Estimate:
        below = [profiles[source] for source in sources(node)]
        state = estimate_state(node, profiles, self.batch, self._steps(fragment))
        length = max(profile.stream.length for profile in (*below, profiles[node]))
        cost = self.prices.cost(node.tag, state.work)
        return Estimate(profiles[node].stream.rate, length, cost, state.work, state.rows, state.bytes)

    def _steps(self, fragment: Fragment) -> float:
        """Runs per second of the operators of a fragment."""
        return (self.pipeline.shards if fragment.stage and fragment.everywhere else 1) / self.batch

    def _sending(self, fragment: Fragment, output: PhysicalProfile) -> Estimate:
        kind, rate = "Result", output.stream.rate
        if isinstance(fragment.route, physical.ExchangeTo):
            kind, rate = "Exchange", self._moved(fragment.route.mode, output).arriving
        work = {"row": rate, "byte": rate * width(schema(fragment.root)), "step": self._steps(fragment)}
        return Estimate(rate, output.stream.length, self.prices.cost(kind, work), work)

    def _reading(self, stream: BaseStream) -> Estimate:
        inputs = (port for fragment in self.pipeline.at(0) for port in ports(fragment.root))
        columns = {c.name: c for port in inputs if port.name == f"{SOURCE}{stream.name}" for c in port.columns}
        profile = self._read(stream, ())
        byte_rate = profile.rate * width(tuple(columns.values()))
        work = {"row": profile.rate, "byte": byte_rate, "step": 1 / self.batch}
        return Estimate(profile.rate, profile.length, self.prices.cost("Read", work), work)

    def _driving(self, reading: list[Estimate]) -> Estimate:
        work = {
            "row": sum(stream.work["row"] for stream in reading),
            "byte": sum(stream.work["byte"] for stream in reading),
            "step": sum(self._steps(fragment) for fragment in self.pipeline.fragments),
        }
        return Estimate(0.0, 0.0, self.prices.cost("Batch", work), work)
