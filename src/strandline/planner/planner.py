"""The cheapest of the plans for a query, by what their physical plans are expected to need.

The optimizer's rules and its order of joins give one plan; others that may be as good are costed beside it. Its model
knows rows, pairs and results of joins; here exchanges, state and everything above the joins count, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.logical.catalog import BaseStream
from strandline.logical.explain import show_plan
from strandline.logical.plan import Plan
from strandline.logical.tree import streams_read
from strandline.planner.alternatives import improve, separating_rule
from strandline.planner.cardinality import Statistics
from strandline.planner.estimate import Estimates, estimate
from strandline.planner.explain_costs import short, size
from strandline.planner.physical.lowering import choose
from strandline.planner.stages import alternatives, optimize

WORTH_WHILE: Final = 0.95  # what another plan must cost of the first one to take its place
WORTH_A_SEARCH: Final = 0.02  # seconds of CPU per second: whoever needs less gains nothing that anybody notices
LOOKED_AT: Final = 60  # plans of a search
SHOWN: Final = 6  # rejected plans
AS_WRITTEN: Final = "as written, no rules"


@dataclass(frozen=True, slots=True)
class Option:
    """A plan, what is different in it, and what it is expected to need."""

    words: str
    plan: Plan
    needs: Estimates


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan for a query, and the others that were looked at, cheapest first."""

    chosen: Option
    rejected: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Planner:
    """What plans are made with: the streams and what is known of them, the buckets, the capacity that a query which may
    drop rows must stay within, and whether what whole plans cost decides, or the rules alone."""

    streams: Sequence[BaseStream]
    statistics: Statistics
    buckets: int
    capacity: float | None = None
    by_cost: bool = True

    def plan(self, plan: Plan) -> Plan:
        """The plan that runs. Where nothing is known of the streams, figures are guesses: then the rules decide."""
        if not self._goes_by_cost(plan):
            return optimize(plan, self.statistics, self.capacity)
        return self._by_cost(self._options(plan)).chosen.plan

    def choice(self, plan: Plan) -> Choice:
        """The same with the plans that were rejected."""
        options = [*self._options(plan), self._option(AS_WRITTEN, plan)]
        if self._goes_by_cost(plan):
            return self._by_cost(options)
        others = [*options[1:], *self._searched(options[0])[1]]
        return Choice(options[0], _told_apart(options[0], others))

    def _goes_by_cost(self, plan: Plan) -> bool:
        if not self.by_cost or self.capacity is not None:
            return False
        return any(
            name in self.statistics and (self.statistics[name].rate is not None or self.statistics[name].values)
            for name in streams_read(plan)
        )

    def _options(self, plan: Plan) -> list[Option]:
        """What the rules and the order of joins make of a plan, and the next best orders."""
        found = [self._option("", optimize(plan, self.statistics, self.capacity))]
        return found + [self._option(*each) for each in alternatives(plan, self.statistics, self.capacity)]

    def _by_cost(self, options: Sequence[Option]) -> Choice:
        """The cheapest, if it saves enough; and if it is worth a search, the best of what single steps make of that."""
        first, *others = options
        best = _cheaper(first, others)
        if best.needs.cost >= WORTH_A_SEARCH:
            improved, looked_at = self._searched(best)
            others += [best, *looked_at]
            best = _cheaper(best, [improved])
        return Choice(best, _told_apart(best, [first, *others]))

    def _searched(self, start: Option) -> tuple[Option, list[Option]]:
        """The cheapest plan that the rules of the space lead to, and the cheapest of the others that they met."""
        found = improve(start.plan, lambda plan: self._option("", plan).needs.cost, LOOKED_AT)
        others = [self._option(_rule(separating_rule(found.best, each)), each.plan) for each in found.rejected]
        words = ", ".join(map(_rule, dict.fromkeys(found.best.rules)))
        return self._option(words, found.plan), others

    def _option(self, words: str, plan: Plan) -> Option:
        pipeline = choose([("query", plan)], self.streams, self.buckets)
        return Option(words, plan, estimate(pipeline, self.statistics))


def _cheaper(first: Option, others: Sequence[Option]) -> Option:
    best = min((first, *others), key=lambda each: each.needs.cost)
    return best if best.needs.cost < WORTH_WHILE * first.needs.cost else first


def _told_apart(chosen: Option, others: Sequence[Option]) -> tuple[Option, ...]:
    """The other plans, the cheapest first; of those that differ by the same words, the cheapest."""
    found: dict[str, Option] = {}
    plans = {chosen.plan}
    for each in sorted(others, key=lambda each: each.needs.cost):
        if each.plan not in plans and each.words not in found:
            found[each.words] = each
            plans.add(each.plan)
    return tuple(found.values())


def _rule(name: str) -> str:
    return f"rule {name.replace('_', ' ')}" if name else "after the rules"


def show_choice(choice: Choice) -> str:
    """The plan that is chosen, and those that are not: what they would cost, and what is different in them."""
    chosen, rejected = choice.chosen, choice.rejected[:SHOWN]
    how = f", {chosen.words}" if chosen.words else ""
    lines = [f"chosen: {_needs(chosen)}{how}", *_indented(show_plan(chosen.plan))]
    if not rejected:
        return "\n".join([*lines, "no other plan was considered: one join order, no applicable rule"])
    table = [(_times(each, chosen), _needs(each), each.words or "after the rules") for each in rejected]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    lines.append("rejected, cheapest first")
    lines += [f"  {times.rjust(widths[0])}  {needs.ljust(widths[1])}  {words}" for times, needs, words in table]
    lines += ["cheapest", *_indented(show_plan(rejected[0].plan))]
    return "\n".join(lines)


def _needs(option: Option) -> str:
    grows = any(each.grows for each in option.needs.steps.values())
    state = "unbounded state" if grows else f"state of {size(option.needs.bytes)}"
    return f"{short(1000 * option.needs.cost)} ms of CPU per second, {state}"


def _times(option: Option, chosen: Option) -> str:
    ratio = option.needs.cost / chosen.needs.cost if chosen.needs.cost else 1.0
    return f"{ratio:.2f} times" if ratio < 100 else f"{short(ratio)} times"


def _indented(text: str) -> list[str]:
    return ["  " + line for line in text.splitlines()]
