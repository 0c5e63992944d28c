"""Choice of stream forms by cost: which producers send intervals where the rule of `physical/forms.py` has changes.

Changes cost per change, intervals per open element and batch. So the choice depends on the length of a batch, and where
that was not measured the rule stands: a batch may be a single row. A plan may meet shorter batches than those that were
measured, for instance when it has caught up with its sources, or more open elements: one that would be much slower than
that of the rule in batches of a tenth of the length is not chosen. Elements that never end are changes always: ever
more of them are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.coalescing import cost_with_sinks
from strandline.planner.estimate import BATCH_SECONDS, measured_batch
from strandline.planner.physical import plan as physical
from strandline.planner.physical.forms import FormStrategy
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, sources
from strandline.planner.prices import Prices

MIN_GAIN: Final = 0.03  # of the cost, that another form must save
SHORTER: Final = 10  # times, that batches may become
MAX_REGRET: Final = 4.0  # times the cost of the rule that a plan may cost then
MAX_PLANS: Final = 24  # that are costed

_PRODUCERS: Final = (
    physical.IncrementalAggregate,
    physical.CountWindow,
    physical.OuterHashJoin,
)


@dataclass(frozen=True)
class FormPlan:
    """A pipeline in which some producers send intervals where the rule has changes."""

    pipeline: Pipeline
    intervals: frozenset[Node]
    statistics: StatisticsByStream
    prices: Prices

    @cached_property
    def cost(self) -> float:
        return cost_with_sinks(self.pipeline, self.statistics, self.prices)

    @cached_property
    def cost_in_short_batches(self) -> float:
        batch = measured_batch(self.pipeline, self.statistics) or BATCH_SECONDS
        return cost_with_sinks(self.pipeline, self.statistics, self.prices, batch / SHORTER)

    @property
    def difference(self) -> str:
        """In what it differs from the plan of the rule."""
        return f"intervals from {', '.join(sorted(node.tag for node in self.intervals))}" if self.intervals else ""


def choose_forms(
    assemble: Callable[[FormStrategy], Pipeline], statistics: StatisticsByStream, prices: Prices
) -> tuple[FormPlan, FormPlan]:
    """The cheapest pipeline that a hill climb finds, and that of the rule; `assemble` makes the one with given forms.

    It begins with the rule or with intervals everywhere, and changes the form of one producer after the other.
    """
    offered: dict[Node, None] = {}

    def note(node: Node, form: StreamForm) -> StreamForm:
        if form == "changes" and isinstance(node, _PRODUCERS) and not _may_grow(node):
            offered[node] = None
        return form

    def form_plan(intervals: Iterable[Node]) -> FormPlan:
        nodes = frozenset(intervals)
        return FormPlan(assemble(_sending_intervals(nodes)), nodes, statistics, prices)

    by_rule = FormPlan(assemble(FormStrategy(note, forces=False)), frozenset(), statistics, prices)
    if not offered or measured_batch(by_rule.pipeline, statistics) is None:
        return by_rule, by_rule
    best = _better(by_rule, by_rule, [form_plan(offered)])
    costed = 2
    while costed < MAX_PLANS:
        neighbours = [form_plan(nodes) for nodes in _neighbours(best.intervals, list(offered))]
        costed += len(neighbours)
        better = _better(by_rule, best, neighbours)
        if better is best:
            break
        best = better
    return best, by_rule


def _may_grow(node: Node) -> bool:
    """True if ever more elements are open, over rows that never expire or rows of a change feed."""
    match node:
        case physical.FoldChanges() | physical.TimeWindow(None):
            return True
        case _:
            return any(map(_may_grow, sources(node)))


def _sending_intervals(nodes: frozenset[Node]) -> FormStrategy:
    return FormStrategy(lambda node, form: "intervals" if node in nodes else form, forces=False)


def _neighbours(intervals: frozenset[Node], offered: list[Node]) -> Iterator[frozenset[Node]]:
    """The choices that differ in one producer."""
    for node in offered:
        yield intervals ^ {node}


def _better(by_rule: FormPlan, best: FormPlan, others: Iterable[FormPlan]) -> FormPlan:
    """The cheapest of some plans, if it saves enough and is no risk; else the best so far."""
    for other in sorted(others, key=lambda plan: plan.cost):
        if other.cost >= (1 - MIN_GAIN) * best.cost:
            break
        if other.cost_in_short_batches <= MAX_REGRET * by_rule.cost_in_short_batches:
            return other
    return best
