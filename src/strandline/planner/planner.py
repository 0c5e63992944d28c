"""The planner: from the plans of bound queries to the physical plan that runs.

    rewrite → order joins → alternatives → lower → cost → choose → forms of streams

`plan` is a pure function: what a plan depends on is in `PlanningInputs`. A plan that runs is stored, and never made
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

from strandline.logical.catalog import BaseStream
from strandline.logical.plan import Plan
from strandline.logical.tree import streams_read
from strandline.planner.alternatives import improve, pull_filters_up, separating_rule
from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.coalescing import place_coalescing
from strandline.planner.estimate import Estimates, estimate
from strandline.planner.join_order import order_joins, other_orders
from strandline.planner.physical.forms import BY_RULE, FormStrategy
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline, StreamForm
from strandline.planner.prices import Prices, built_in
from strandline.planner.stages import finish, prepare
from strandline.planner.stream_forms import choose_forms

MAX_COST_RATIO: Final = 0.95  # another plan must cost less than this part of the first one to replace it
MIN_SEARCH_COST: Final = 0.02  # CPU seconds per second: below that a search gains nothing noticeable
ORDERS: Final = 6  # orders of joins that are costed beside the best one
EXAMINED: Final = 60  # plans of a search
SHARED_PLANS: Final = 20  # of those with filters further up, for each order of joins
AS_WRITTEN: Final = "as written, no rules"


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """All that plans depend on beside the queries.

    `limits` are the CPU seconds per second, by query, that a query which may drop rows must stay within. The results of
    the queries in `shedding` have the share of rows that was kept as a column. The sinks of those in `changes` take
    elements whose end is not known; those in `appends` only append, and are announced what is open.
    """

    streams: Sequence[BaseStream]
    statistics: StatisticsByStream
    prices: Prices
    shards: int
    limits: Mapping[str, float | None] = field(default_factory=dict)
    shedding: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    appends: frozenset[str] = frozenset()

    def sharing_scope(self, query: str) -> str:
        """What queries must have in common to share operators, beside the streams whose watermark decides: whether open
        elements are announced to their sinks. The rows that a query may drop are its own."""
        return f"{query in self.appends} {query if query in self.shedding else ''}"

    def by_rules(self) -> PlanningInputs:
        """The same without what is learned or measured: plans by the rules alone, by which queries are known again."""
        return replace(self, statistics={}, prices=built_in(), shards=1, limits={})

    def has_statistics(self, plan: Plan) -> bool:
        """Whether anything is declared or was learned of the streams of a plan; else all figures are guesses."""
        known = [self.statistics[name] for name in streams_read(plan) if name in self.statistics]
        return any(statistics.rate is not None or statistics.values for statistics in known)


@dataclass(frozen=True)
class PlannedQuery:
    """A plan of a query: as bound, as optimised, and as it is going to run.

    `difference` says in what it differs from the plan that the rules make; `rejected` are the other plans that were
    costed, the cheapest first.
    """

    name: str
    logical: Plan
    optimized: Plan
    physical: Pipeline
    inputs: PlanningInputs
    difference: str = ""
    rejected: tuple[PlannedQuery, ...] = ()

    @cached_property
    def estimates(self) -> Estimates:
        """What its operators will need."""
        return estimate(self.physical, self.inputs.statistics, prices=self.inputs.prices)

    @property
    def cost(self) -> float:
        """CPU seconds per second."""
        return self.estimates.cost


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """The plans of queries that run together, and the physical plan that they share."""

    queries: tuple[PlannedQuery, ...]
    physical: Pipeline
    inputs: PlanningInputs


def plan(queries: Mapping[str, Plan], inputs: PlanningInputs) -> PlannedPipeline:
    """Plan queries, by name, that run together; each reads its streams in one pipeline with the others."""
    planned: list[PlannedQuery] = []
    for name, logical in queries.items():
        fragments_before = sum(len(query.physical.fragments) for query in planned)
        planned.append(plan_query(name, logical, inputs, fragments_before))
    if not planned:
        return PlannedPipeline((), Pipeline((), (), (), inputs.shards), inputs)
    scopes = [inputs.sharing_scope(query.name) for query in planned]
    physical = combine([query.physical for query in planned], inputs.streams, scopes)
    return PlannedPipeline(tuple(planned), physical, inputs)


def plan_query(
    name: str, logical: Plan, inputs: PlanningInputs, fragments_before: int = 0, *, compare: bool = False
) -> PlannedQuery:
    """Plan one query: by what whole plans cost where something is known of its streams, else by the rules alone.

    With `compare` other plans are costed in any case, for EXPLAIN WHY; the choice is the same.
    """

    assembly = _Assembly(name, logical, inputs, fragments_before)
    candidate = assembly.candidate
    limit = inputs.limits.get(name)
    ordered = order_joins(prepare(logical), inputs.statistics, limit, inputs.prices)
    first = chosen = candidate(finish(ordered))
    by_cost = limit is None and inputs.has_statistics(logical)
    if not by_cost and not compare:
        return chosen
    orders = other_orders(ordered, inputs.statistics, ORDERS, inputs.prices)
    others = [candidate(finish(order.plan), f"joins {order.words}") for order in orders]
    if by_cost:
        chosen = _cheaper(first, others)
    others = [first, *others, *([candidate(logical, AS_WRITTEN)] if compare else ())]
    if not by_cost or chosen.cost >= MIN_SEARCH_COST:
        improved, examined = _search(chosen, candidate)
        others += [chosen, *examined]
        if by_cost:
            chosen = _cheaper(chosen, [improved])
    rejected = _distinct_plans(chosen, others)
    if not by_cost:
        return replace(chosen, rejected=rejected)
    best, by_rule = choose_forms(partial(assembly.lower, chosen.optimized), inputs.statistics, inputs.prices)
    if best is by_rule:
        return replace(chosen, rejected=rejected)
    difference = ", ".join(filter(None, (chosen.difference, best.difference)))
    as_changes = replace(chosen, difference="changes wherever elements stay open")
    return replace(chosen, physical=best.pipeline, difference=difference, rejected=(as_changes, *rejected))


def plan_to_share(name: str, logical: Plan, inputs: PlanningInputs) -> tuple[PlannedQuery, ...]:
    """The plan of a query, and others that may have more in common with what runs: joins in other orders, and filters
    above what others compute without them."""
    chosen = plan_query(name, logical, inputs)
    candidate = _Assembly(name, logical, inputs).candidate
    ordered = order_joins(prepare(logical), inputs.statistics, inputs.limits.get(name), inputs.prices)
    orders = other_orders(ordered, inputs.statistics, ORDERS, inputs.prices)
    others = [candidate(finish(order.plan), f"joins {order.words}") for order in orders]
    for start in (chosen, *others):
        for pulled, rules in pull_filters_up(start.optimized, SHARED_PLANS).items():
            others.append(candidate(pulled, ", ".join(map(_show_rule, dict.fromkeys(rules)))))
    return chosen, *others


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Physical plans of a query, from its logical ones."""

    name: str
    logical: Plan
    inputs: PlanningInputs
    fragments_before: int = 0

    def lower(self, optimized: Plan, strategy: FormStrategy = BY_RULE) -> Pipeline:
        name, inputs = self.name, self.inputs
        form: StreamForm = "changes" if name in inputs.changes else "intervals"
        sheds, first = name in inputs.shedding, self.fragments_before
        streams, shards = inputs.streams, inputs.shards
        physical = lower(name, optimized, streams, shards, sheds=sheds, form=form, strategy=strategy, first=first)
        return place_coalescing(physical, inputs.statistics, inputs.prices)

    def candidate(self, optimized: Plan, difference: str = "") -> PlannedQuery:
        return PlannedQuery(self.name, self.logical, optimized, self.lower(optimized), self.inputs, difference)


def _search(
    start: PlannedQuery, candidate: Callable[[Plan, str], PlannedQuery]
) -> tuple[PlannedQuery, list[PlannedQuery]]:
    """The cheapest plan that single rules lead to from a plan, and the cheapest of the others that the search met."""
    examined: dict[Plan, PlannedQuery] = {}

    def cost(plan: Plan) -> float:
        examined[plan] = candidate(plan, "")
        return examined[plan].cost

    result = improve(start.optimized, cost, EXAMINED)
    rules = ", ".join(map(_show_rule, dict.fromkeys(result.best.rules)))
    others = [
        replace(examined[other.plan], difference=_show_rule(separating_rule(result.best, other)))
        for other in result.rejected
    ]
    return replace(examined[result.plan], difference=rules), others


def _cheaper(first: PlannedQuery, others: Sequence[PlannedQuery]) -> PlannedQuery:
    """The cheapest plan, if it saves enough to take the place of the first one."""
    best = min((first, *others), key=lambda query: query.cost)
    return best if best.cost < MAX_COST_RATIO * first.cost else first


def _distinct_plans(chosen: PlannedQuery, others: Sequence[PlannedQuery]) -> tuple[PlannedQuery, ...]:
    """The other plans, the cheapest first; of those with the same difference, the cheapest."""
    distinct: dict[str, PlannedQuery] = {}
    plans = {chosen.optimized}
    for other in sorted(others, key=lambda query: query.cost):
        if other.optimized not in plans and other.difference not in distinct:
            distinct[other.difference] = other
            plans.add(other.optimized)
    return tuple(distinct.values())


def _show_rule(name: str) -> str:
    return f"rule {name.replace('_', ' ')}" if name else "after the rules"
