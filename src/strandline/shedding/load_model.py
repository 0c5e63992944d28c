"""Load model: the work of a query as a function of the sampling rates of its streams, and the optimal rates.

Sampling is at the source (Ayad and Naughton, observations 2 and 3), so all scans of a stream read the same rows. The
join of the query is modelled by `joins`; a query without a join is work per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from strandline.core.types import BOOLEAN
from strandline.logical.catalog import StreamStatistics
from strandline.logical.expressions import Expression, Literal, conjuncts, substitute
from strandline.logical.plan import Aggregate, Distinct, Filter, Join, Map, Over, Plan, Rank, TopRows
from strandline.logical.tree import sources, streams_read
from strandline.planner.cardinality import RATE, StatisticsByStream
from strandline.planner.join_order import EXCHANGE, JoinGraph, join_query
from strandline.planner.joins.rates import Floats, JoinLoad, JoinQuery, Tree, output_rate
from strandline.planner.joins.shedding import shed
from strandline.planner.prices import Prices, load_prices

STEPS: Final = 30  # of bisection
TINY: Final = 1e-12  # seconds of work that are none, but have a logarithm

SamplingRates = Mapping[str, float]


READING: Final = 0.2  # what reading a row costs of what an operator with a state takes for it


class SheddingModel:
    """The model of one query, after optimization, at some prices, or at those of this machine."""

    def __init__(self, plan: Plan, statistics: StatisticsByStream, prices: Prices | None = None) -> None:
        self.plan = plan
        self.streams = streams_read(plan)
        self._statistics = statistics
        self._prices = prices or load_prices()
        self._row_cost = self._prices.joins.arrival + EXCHANGE  # seconds of an operator with a state and the way to it
        self._read_cost = READING * self._row_cost  # also of a row that is dropped then
        self._join_graph, stateful = _join_in(plan)
        self._above = stateful * self._row_cost
        self._read = (
            [streams_read(input_plan) for input_plan in self._join_graph.inputs] if self._join_graph is not None else []
        )
        self._known: tuple[dict[str, float], JoinQuery] | None = None

    def load(self, rates: SamplingRates, now: SamplingRates, held: SamplingRates) -> float:
        """Seconds of work per second for rows of which `now` is kept, where of those in the windows `held` was."""
        read = self._read_cost * sum(self._rate(rates, stream) for stream in self.streams)
        if self._join_graph is None:
            return read + (self._row_cost + self._above) * sum(self._rate(rates, s) * now[s] for s in self.streams)
        query = self._query(rates)
        work = JoinLoad.of(query, self._join_graph.tree)
        return read + work.passing(self._by_input(query, rates, now), self._by_input(query, rates, held))

    def full_load(self, rates: SamplingRates) -> float:
        """The same with every row."""
        whole = dict.fromkeys(self.streams, 1.0)
        return self.load(rates, whole, whole)

    def optimal_rates(self, rates: SamplingRates, part: float, min_rate: float) -> dict[str, float]:
        """The rates, none below `min_rate`, that leave the most results for this part of the work with every row."""
        target = part * self.full_load(rates)

        def work(sampling_rates: SamplingRates) -> float:
            return self.load(rates, sampling_rates, sampling_rates)

        best = self._best(rates, min_rate)
        join = max(target - self._read_cost * sum(self._rate(rates, stream) for stream in self.streams), TINY)
        optimum = best(join)
        if work(optimum) <= target * 1.001:
            return optimum
        # Streams that must be kept, or occur several times in the join, cost more: the others have to compensate.
        low, high = -30.0, 0.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if work(best(join * math.exp(middle))) > target else (middle, high)
        return best(join * math.exp(low))

    def completeness(self, rates: SamplingRates, sampling_rates: SamplingRates) -> float:
        """Fraction of the results that remains."""
        if self._join_graph is None:
            total = sum(self._rate(rates, stream) for stream in self.streams)
            return sum(self._rate(rates, s) * sampling_rates[s] for s in self.streams) / total if total else 1.0
        query = self._query(rates)
        everything = output_rate(query, query.everything, np.ones(query.size))
        if not everything > 0:
            return 1.0
        return output_rate(query, query.everything, self._by_input(query, rates, sampling_rates)) / everything

    def window(self, stream: str) -> float:
        """Seconds that the rows of a stream are held in time windows."""
        if self._join_graph is None:
            return 0.0
        query = self._query({})
        lengths = [
            join_input.seconds for join_input, read in zip(query.inputs, self._read, strict=True) if stream in read
        ]
        return max([0.0, *(seconds for seconds in lengths if seconds is not None)])

    def _best(self, rates: SamplingRates, min_rate: float) -> Callable[[float], dict[str, float]]:
        """The rates for a capacity, in seconds of work per second."""
        if self._join_graph is None:
            full = (self._row_cost + self._above) * sum(self._rate(rates, stream) for stream in self.streams)

            def alike(capacity: float) -> dict[str, float]:
                sampling_rate = min(1.0, max(min_rate, capacity / full)) if full > 0 else 1.0
                return dict.fromkeys(self.streams, sampling_rate)

            return alike
        query, tree, read = self._query(rates), self._join_graph.tree, self._read

        def solved(capacity: float) -> dict[str, float]:
            sampling_rates = np.clip(shed(query, tree, capacity).sampling_rates, 1e-9, 1.0)
            stream_rates: dict[str, float] = {}
            for stream in self.streams:
                logs = [math.log(rate) for rate, below in zip(sampling_rates, read, strict=True) if stream in below]
                stream_rates[stream] = min(1.0, max(min_rate, math.exp(sum(logs) / len(logs)))) if logs else 1.0
            return stream_rates

        return solved

    def _by_input(self, query: JoinQuery, rates: SamplingRates, sampling_rates: SamplingRates) -> Floats:
        """Sampling rate of an input of the join: of several streams in one input the mean by rate."""
        input_rates = np.ones(query.size)
        for number, read in enumerate(self._read):
            weights = {stream: self._rate(rates, stream) for stream in read}
            total = sum(weights.values())
            if total > 0:
                input_rates[number] = sum(weights[stream] * sampling_rates[stream] for stream in read) / total
        return input_rates

    def _rate(self, rates: SamplingRates, stream: str) -> float:
        return rates.get(stream) or self._statistics.get(stream, StreamStatistics()).rate or RATE

    def _query(self, rates: SamplingRates) -> JoinQuery:
        assert self._join_graph is not None, "there is a join"
        stream_rates = {stream: self._rate(rates, stream) for stream in self.streams}
        if self._known is None or self._known[0] != stream_rates:
            statistics = {
                stream: replace(self._statistics.get(stream, StreamStatistics()), rate=rate)
                for stream, rate in stream_rates.items()
            }
            query = replace(join_query(self._join_graph, statistics, self._prices), above=self._above)
            self._known = stream_rates, query
        return self._known[1]


def explain_shedding(model: SheddingModel, part: float, min_rate: float) -> str:
    """Sampling rates at the known input rates, if this fraction of the work is affordable."""
    if part >= 1.0:
        return "drops nothing at these rates"
    sampling_rates = model.optimal_rates({}, part, min_rate)
    kept = ", ".join(f"{rate:.0%} of {stream}" for stream, rate in sorted(sampling_rates.items()) if rate < 1.0)
    left = model.completeness({}, sampling_rates)
    enough = model.load({}, sampling_rates, sampling_rates) <= 1.01 * part * model.full_load({})
    return f"keeps {kept} at the source; {left:.0%} of the results remain{'' if enough else ', still overloaded'}"


def _join_in(plan: Plan) -> tuple[JoinGraph | None, int]:
    """The first joins on the way down, and how many operators with a state every result of them passes above."""
    stateful = 0
    while not isinstance(plan, Join):
        below = sources(plan)
        if len(below) != 1:
            return None, stateful
        stateful += isinstance(plan, Aggregate | Distinct | TopRows | Rank | Over)
        plan = below[0]
    return _joined(plan), stateful


def _joined(plan: Join) -> JoinGraph:
    """The joins of an optimised plan, through column projections and filters between them."""
    inputs: list[Plan] = []
    conditions: list[Expression] = []

    def visit(node: Plan) -> tuple[Tree, dict[str, Expression]]:
        """The tree below a node, and its columns in terms of the inputs."""
        if isinstance(node, Join):
            (left, named), (right, more) = visit(node.left), visit(node.right)
            names = {**named, **more}
            conditions.extend(substitute(part, names) for part in conjuncts(node.predicate or Literal(True, BOOLEAN)))
            return (left, right), names
        if isinstance(node, Filter) and _has_join(node.source):
            tree, names = visit(node.source)
            conditions.extend(substitute(part, names) for part in conjuncts(node.predicate))
            return tree, names
        if isinstance(node, Map) and _has_join(node.source):
            tree, names = visit(node.source)
            return tree, {column.id: substitute(value, names) for column, value in node.outputs}
        inputs.append(node)
        return len(inputs) - 1, {}

    tree, _ = visit(plan)
    return JoinGraph(tuple(inputs), tuple(conditions), tree)


def _has_join(plan: Plan) -> bool:
    while isinstance(plan, Map | Filter):
        plan = plan.source
    return isinstance(plan, Join)
