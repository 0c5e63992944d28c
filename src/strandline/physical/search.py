"""The cheapest of the plans for a query, by what their physical plans are expected to need.

The optimizer's rules and its order of joins give one plan; others that may be as good are costed beside it. Its model
knows rows, pairs and results of joins; here exchanges, state and everything above the joins count, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.algebra.explain import show_plan
from strandline.algebra.operators import Plan
from strandline.algebra.tree import streams_read
from strandline.catalog import BaseStream
from strandline.optimizer.characteristics import Statistics
from strandline.optimizer.pipeline import alternatives, optimize
from strandline.physical.choose import choose
from strandline.physical.estimates import Estimates, estimate
from strandline.physical.figures import short, size

WORTH_WHILE: Final = 0.95  # what another plan must cost of the first one to take its place
SHOWN: Final = 5  # rejected plans
AS_WRITTEN: Final = "as written, without a rule"


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
        first = optimize(plan, self.statistics, self.capacity)
        if not self._goes_by_cost(plan):
            return first
        others = alternatives(plan, self.statistics)
        return self._best(first, others).chosen.plan if others else first

    def choice(self, plan: Plan) -> Choice:
        """The same with the plans that were rejected."""
        first = optimize(plan, self.statistics, self.capacity)
        others = [*alternatives(plan, self.statistics, self.capacity), (AS_WRITTEN, plan)]
        found = self._best(first, others)
        if self._goes_by_cost(plan):
            return found
        options = [found.chosen, *found.rejected]
        chosen = next(each for each in options if each.plan == first)
        return Choice(chosen, tuple(each for each in options if each is not chosen))

    def _goes_by_cost(self, plan: Plan) -> bool:
        if not self.by_cost or self.capacity is not None:
            return False
        return any(
            name in self.statistics and (self.statistics[name].rate is not None or self.statistics[name].values)
            for name in streams_read(plan)
        )

    def _best(self, first: Plan, others: Sequence[tuple[str, Plan]]) -> Choice:
        options = [self._option("chosen", first)]
        seen = {first}
        for words, plan in others:
            if plan not in seen:
                seen.add(plan)
                options.append(self._option(words, plan))
        ranked = sorted(options, key=lambda each: each.needs.cost)
        best = ranked[0] if ranked[0].needs.cost < WORTH_WHILE * options[0].needs.cost else options[0]
        return Choice(best, tuple(each for each in ranked if each is not best))

    def _option(self, words: str, plan: Plan) -> Option:
        pipeline = choose([("query", plan)], self.streams, self.buckets)
        return Option(words, plan, estimate(pipeline, self.statistics))


def show_choice(choice: Choice) -> str:
    """The plan that is chosen, and those that are not: what they would cost, and what is different in them."""
    chosen, rejected = choice.chosen, choice.rejected[:SHOWN]
    lines = [f"chosen: {_needs(chosen)}", *_indented(show_plan(chosen.plan))]
    if not rejected:
        return "\n".join(
            [*lines, "no other plan was considered: there is one order of joins, and the rules change nothing"]
        )
    table = [(_times(each, chosen), _needs(each), each.words) for each in rejected]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    lines.append("rejected, the cheapest first")
    lines += [f"  {times.rjust(widths[0])}  {needs.ljust(widths[1])}  {words}" for times, needs, words in table]
    lines += [f"the cheapest of them, {rejected[0].words}", *_indented(show_plan(rejected[0].plan))]
    return "\n".join(lines)


def _needs(option: Option) -> str:
    grows = any(each.grows for each in option.needs.steps.values())
    state = "state that grows" if grows else f"state of {size(option.needs.bytes)}"
    return f"{short(1000 * option.needs.cost)} ms of CPU per second, {state}"


def _times(option: Option, chosen: Option) -> str:
    ratio = option.needs.cost / chosen.needs.cost if chosen.needs.cost else 1.0
    return f"{ratio:.2f} times" if ratio < 100 else f"{short(ratio)} times"


def _indented(text: str) -> list[str]:
    return ["  " + line for line in text.splitlines()]
