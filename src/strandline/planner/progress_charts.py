"""Progress charts: what a row costs that a group of fragments takes, and how much less waits for it then.

Chain (Babcock, Babu, Datar and Motwani, *Chain: Operator Scheduling for Memory Minimization in Data Stream Systems*)
draws the size of a row over the work that was done on it. The steepest line from its beginning to any later point says
how soon memory is free again. Rows wait at exchanges only, so the points are the ends of stages.

    bytes
    100  o.
         |  ` .                the steepest line goes to the end of stage 1: 80 bytes for 10 ns
     20  |      o . . . . o    stage 1, then stage 2
         +------10--------60-- ns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.cost import width
from strandline.planner.estimate import Estimate, Estimates, estimate
from strandline.planner.physical.plan import ExchangeTo, Fragment, Pipeline, numbered, ports, schema
from strandline.planner.physical.running_groups import Chart, find_patient, groups_of
from strandline.planner.prices import Prices, load_prices

NANOSECONDS: Final = 1e9


def chart_groups(
    pipeline: Pipeline, statistics: StatisticsByStream, prices: Prices | None = None
) -> Mapping[str, Chart]:
    """The charts of the groups that may put off input, by their first fragments."""
    patient = find_patient(pipeline)
    if not patient:
        return {}
    prices = prices or load_prices()
    walk = _Walk(pipeline, estimate(pipeline, statistics, prices=prices), prices)
    return {name: walk.chart(name) for name in patient}


@dataclass(frozen=True, slots=True)
class _Group:
    """A group: what a row of its input costs and how many bytes it has, and how many rows it sends for it, by group."""

    stage: int
    cost: float
    bytes: float
    sends: Mapping[str, float]


class _Walk:
    def __init__(self, pipeline: Pipeline, estimates: Estimates, prices: Prices) -> None:
        self.pipeline, self.estimates, self.prices = pipeline, estimates, prices
        stages = range(1, pipeline.stages + 1)
        groups = {group[0].id: group for stage in stages for group in groups_of(pipeline, stage)}
        self.senders: dict[str, list[Fragment]] = {}
        for fragment in pipeline.fragments:
            if isinstance(fragment.route, ExchangeTo):
                self.senders.setdefault(fragment.route.port, []).append(fragment)
        self.read = {
            name: frozenset(port.name for fragment in group for port in ports(fragment.root))
            for name, group in groups.items()
        }
        readers: dict[str, list[str]] = {}
        for name, read in self.read.items():
            for port in read:
                readers.setdefault(port, []).append(name)
        self.groups = {name: self._group(name, group, readers) for name, group in groups.items()}

    def _group(self, name: str, group: Sequence[Fragment], readers: Mapping[str, Sequence[str]]) -> _Group:
        senders = [fragment for port in sorted(self.read[name]) for fragment in self.senders.get(port, ())]
        rows = sum(map(self._sent, senders)) or 1.0
        costs: dict[str, float] = {}  # by operator: one that several fragments have runs once
        for fragment in group:
            nodes = numbered(fragment.root)
            for number, (node, operator) in enumerate(zip(nodes, fragment.operators, strict=True)):
                costs[operator] = self._cost(node.tag, self.estimates.steps[f"{fragment.id}.{number}"])
            kind = "Exchange" if isinstance(fragment.route, ExchangeTo) else "Result"
            costs[fragment.id] = self._cost(kind, self.estimates.sending[fragment.id])
        sends: dict[str, float] = {}
        for fragment in group:
            if isinstance(fragment.route, ExchangeTo):
                for reader in readers.get(fragment.route.port, ()):
                    sends[reader] = sends.get(reader, 0.0) + self._sent(fragment) / rows
        return _Group(
            stage=group[0].stage,
            cost=sum(costs.values()) / rows,
            bytes=sum(self._sent(sender) * width(schema(sender.root)) for sender in senders) / rows,
            sends=sends,
        )

    def _cost(self, kind: str, estimate: Estimate) -> float:
        """The part of a cost that grows with rows, and not with batches."""
        return self.prices.cost(kind, {unit: amount for unit, amount in estimate.work.items() if unit != "step"})

    def _sent(self, fragment: Fragment) -> float:
        """Rows per second that arrive where a fragment sends its output."""
        return self.estimates.sending[fragment.id].work["row"]

    def chart(self, name: str) -> Chart:
        """The chart of a group: the work for a row of it and for what it becomes, stage after stage."""
        first = self.groups[name]
        rows, cost, slope = {name: 1.0}, 0.0, 0.0
        for stage in range(first.stage, self.pipeline.stages + 1):
            for reader in [reader for reader in rows if self.groups[reader].stage == stage]:
                group, count = self.groups[reader], rows.pop(reader)
                cost += count * group.cost
                for sent, factor in group.sends.items():
                    rows[sent] = rows.get(sent, 0.0) + count * factor
            waiting = sum(count * self.groups[reader].bytes for reader, count in rows.items())
            if cost:
                slope = max(slope, (first.bytes - waiting) / (cost * NANOSECONDS))
            if not rows:
                break
        return Chart(max(1, round(first.cost * NANOSECONDS)), slope)
