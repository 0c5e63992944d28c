"""Random queries, and for each several plans that rules make of it: all must mean the same. `make fuzz-optimizer`

Every seed is a question: streams and a query over them. From its plan as written a random walk goes from plan to plan:
a rule at a place, a stage of the optimizer with some of its rules left out, another order of joins, columns left out.
Each plan on the way is held against the plan as written, by the executable meaning of the algebra, at every instant at
which either of them can change, and the instants before and after. Some are also run by the engine as they are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from random import Random

from random_streams import cut
from rule_queries import shaped_question
from strandline.core.temporal import Instant
from strandline.logical.explain import show_plan
from strandline.logical.plan import Join, Plan
from strandline.logical.reference.interpreter import RawStreams, bag, change_instants, snapshots
from strandline.logical.schema import schema
from strandline.logical.tree import sources, walk, with_sources
from strandline.planner.alternatives import ALTERNATIVES, neighbours
from strandline.planner.join_order import JoinGraph, in_order, join_graph_of, rebuilt
from strandline.planner.joins.rates import Tree
from strandline.planner.rules.prune_columns import prune_columns
from strandline.planner.stages import (
    CONSTANTS,
    FILTERS,
    LOOKUPS,
    MAPS,
    NEEDLESS,
    SHARING,
    RewriteStage,
    Rule,
    run_to_fixpoint,
)
from strategies import Question, question
from support import assert_exact, bind, raw, run_plan

GOAL = 2_000  # pairs of a whole run
STEPS = 6  # of a walk, at most
WALKS = 2  # for each question
RUN_ONE_IN = 10  # pairs whose plan the engine runs, too
CASE_ONE_IN = 4  # seeds that take the query of a rule's case
LARGEST = 60  # operators of a plan; beyond that a walk says no more for its time

IN_SPACE = {rule.__name__ for rule in ALTERNATIVES}
STAGES = (NEEDLESS, LOOKUPS, FILTERS, CONSTANTS, MAPS, SHARING)
# Those of the stages, too, one at a time.
STEPWISE = (
    *ALTERNATIVES,
    *{rule.__name__: rule for stage in STAGES for rule in stage.rules if rule.__name__ not in IN_SPACE}.values(),
)
RULES = tuple(dict.fromkeys((*(rule.__name__ for rule in ALTERNATIVES),
                             *(rule.__name__ for stage in STAGES for rule in stage.rules),
                             "order of joins", "prune_columns")))  # fmt: skip


@dataclass
class Tally:
    """What a run has done."""

    questions: int = 0
    pairs: int = 0
    instants: int = 0
    with_rows: int = 0
    runs: int = 0
    used: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def never_used(self) -> list[str]:
        return [name for name in RULES if not self.used[name]]


@dataclass(frozen=True)
class Step:
    """What made a plan of another: the rules, and the plan."""

    rules: tuple[str, ...]
    plan: Plan


# ---- walks -----------------------------------------------------------------------------------------------------------


def steps(dice: Random, plan: Plan, used: Counter[str]) -> Iterator[Step]:
    """A random walk over plans that mean the same; it prefers rules that were seldom used."""
    seen = {plan}
    for _ in range(dice.randint(1, STEPS)):
        [kind] = dice.choices(("rule", "stage", "order", "columns"), (12, 5, 1, 1))
        step = {"rule": _by_rule, "stage": _by_stage, "order": _by_order, "columns": _by_columns}[kind](
            dice, plan, used
        )
        if step is None or step.plan in seen or sum(1 for _ in walk(step.plan)) > LARGEST:
            continue
        plan = step.plan
        seen.add(plan)
        yield step


def _by_rule(dice: Random, plan: Plan, used: Counter[str]) -> Step | None:
    found: dict[str, list[Plan]] = {}
    for name, other in neighbours(plan, STEPWISE):
        found.setdefault(name, []).append(other)
    if not found:
        return None
    names = sorted(found)
    [name] = dice.choices(names, [(1 + used[name]) ** -2 for name in names])
    return Step((name,), dice.choice(found[name]))


def _by_stage(dice: Random, plan: Plan, used: Counter[str]) -> Step | None:
    """A stage with some of its rules switched off."""
    stage = dice.choice(STAGES)
    applied: list[str] = []

    def noted(rule: Rule) -> Rule:
        @wraps(rule)
        def apply(node: Plan) -> Plan | None:
            other = rule(node)
            if other is not None:
                applied.append(rule.__name__)
            return other

        return apply

    some = [rule for rule in stage.rules if dice.random() < 0.7] or list(stage.rules)
    settled = run_to_fixpoint(RewriteStage(stage.name, tuple(map(noted, some))), plan)
    return Step(tuple(dict.fromkeys(applied)), settled)


def _by_order(dice: Random, plan: Plan, used: Counter[str]) -> Step | None:
    """One join graph in any other order."""

    def changed(node: Plan) -> Plan:
        if isinstance(node, Join):
            graph = join_graph_of(node)
            inputs = tuple(map(changed, graph.inputs))
            graph = JoinGraph(inputs, graph.conditions, graph.tree)
            return in_order(rebuilt(graph, _any_tree(dice, len(inputs))), node)
        return with_sources(node, tuple(map(changed, sources(node))))

    return Step(("order of joins",), changed(plan)) if any(isinstance(node, Join) for node in walk(plan)) else None


def _any_tree(dice: Random, size: int) -> Tree:
    trees: list[Tree] = list(range(size))
    while len(trees) > 1:
        one, two = (trees.pop(dice.randrange(len(trees))) for _ in range(2))
        trees.append((one, two))
    return trees[0]


def _by_columns(dice: Random, plan: Plan, used: Counter[str]) -> Step | None:
    return Step(("prune_columns",), prune_columns(plan))


# ---- the judge -------------------------------------------------------------------------------------------------------


class Expected:
    """The snapshots of the plan as written, each computed once."""

    def __init__(self, plan: Plan, streams: RawStreams) -> None:
        self.plan = plan
        self.streams = streams
        self.instants = change_instants(plan, streams)
        self.known: dict[Instant, list[object]] = {}

    def at(self, instants: list[Instant]) -> dict[Instant, list[object]]:
        missing = [t for t in instants if t not in self.known]
        self.known.update(bags(self.plan, self.streams, missing))
        return self.known

    def difference(self, other: Plan, tally: Tally) -> tuple[Instant, list[object], list[object]] | None:
        """The first instant at which another plan has another snapshot, and both."""
        instants = sorted({*self.instants, *change_instants(other, self.streams)})
        expected = self.at(instants)
        found = bags(other, self.streams, instants)
        tally.instants += len(instants)
        tally.with_rows += sum(bool(expected[t]) for t in instants)
        return next(((t, expected[t], found[t]) for t in instants if expected[t] != found[t]), None)


def bags(plan: Plan, streams: RawStreams, instants: list[Instant]) -> dict[Instant, list[object]]:
    ids = [c.id for c in schema(plan)]
    rows = snapshots(plan, streams, instants)
    return {
        t: bag([tuple(row[column_id] for column_id in ids) for row in each])
        for t, each in zip(instants, rows, strict=True)
    }


def ask(seed: int, tally: Tally) -> None:
    """One question: its walks, and every plan on them."""
    dice = Random(seed)
    asked = _draw_question(seed, dice)
    plan = bind(asked.text, asked.streams)
    expected = Expected(plan, raw(asked.streams))
    tally.questions += 1
    compared = {plan}
    for _ in range(WALKS):
        path: list[str] = []
        for step in steps(dice, plan, tally.used):
            path += step.rules
            if step.plan in compared:
                continue
            compared.add(step.plan)
            tally.pairs += 1
            tally.used.update(set(step.rules))
            wrong = _judge(dice, asked, expected, step.plan, tally)
            if wrong is not None:
                tally.wrong.append(report(seed, asked, path, plan, step.plan, wrong))
                return


def _draw_question(seed: int, dice: Random) -> Question:
    """The query of a case, in turn, so that every rule has one on which it fires; else a random query."""
    if seed % CASE_ONE_IN == CASE_ONE_IN - 1:
        return _ask_case(seed // CASE_ONE_IN)
    return question(dice) if dice.random() < 0.35 else shaped_question(dice)


def _ask_case(number: int) -> Question:
    from plan_cases import read_rule_cases  # these two import this module
    from rule_testing import some_streams
    from table_testing import some_tables

    cases = [case for case in read_rule_cases() if case.refusal is None and case.file.stem != "order_joins"]
    return Question((*some_streams(number), *some_tables(number)), cases[number % len(cases)].query)


def _judge(dice: Random, asked: Question, expected: Expected, other: Plan, tally: Tally) -> str | None:
    """What is wrong with a plan, if anything is."""
    if schema(other) != schema(expected.plan):
        return f"columns {schema(other)} instead of {schema(expected.plan)}"
    found = expected.difference(other, tally)
    if found is not None:
        t, wanted, got = found
        return f"instant {t}\n  as written  {wanted}\n  rewritten   {got}"
    if dice.randrange(RUN_ONE_IN) == 0:
        tally.runs += 1
        answer = run_plan(other, asked.streams, cut(dice, asked.streams), optimised=False)
        try:
            assert_exact(expected.plan, expected.streams, answer)
        except AssertionError as error:
            return f"the engine runs the plan and differs: {error}"
    return None


def report(seed: int, asked: Question, path: list[str], plan: Plan, other: Plan, wrong: str) -> str:
    streams = "\n".join(f"{s.name} {[(e.time, *e.values.values()) for e in s.elements]}" for s in asked.streams)
    return "\n".join(
        (f"seed {seed}", asked.text, streams, f"rules: {', '.join(path)}", "as written:", show_plan(plan),
         "rewritten:", show_plan(other), wrong, f"again: python tests/fuzz_optimizer.py 1 --seed {seed}")
    )  # fmt: skip


# ---- a run -----------------------------------------------------------------------------------------------------------


def show(tally: Tally, seconds: float) -> None:
    print(f"\n{'rule':<42} pairs")
    for name in sorted(RULES, key=lambda name: -tally.used[name]):
        print(f"{name:<42} {tally.used[name]:>5}{'' if tally.used[name] else '   NEVER'}")
    print(
        f"\n{tally.questions:,} questions, {tally.pairs:,} pairs of different plans, {tally.instants:,} instants "
        f"({tally.with_rows / max(tally.instants, 1):.0%} with rows), {tally.runs:,} plans run, {seconds:.0f} s"
    )
    print(f"{len(tally.wrong)} wrong")


def run(pairs: int, seed: int, progress: Callable[[Tally], None]) -> Tally:
    """Questions from a seed on until so many pairs of plans are compared; a whole run goes on until every rule was
    used, for as many pairs again."""
    tally = Tally()
    while tally.pairs < pairs or (pairs >= GOAL and tally.pairs < 2 * pairs and tally.never_used()):
        before = len(tally.wrong)
        try:
            ask(seed, tally)
        except Exception as error:
            tally.wrong.append(
                f"seed {seed}: {type(error).__name__}: {error}\nagain: python tests/fuzz_optimizer.py 1 --seed {seed}"
            )
        for text in tally.wrong[before:]:
            print(f"\n{text}", flush=True)
        progress(tally)
        seed += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pairs", type=int, nargs="?", default=GOAL, help="how many pairs of plans, at least")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    began = time.monotonic()

    def progress(tally: Tally) -> None:
        if sys.stdout.isatty() or tally.questions % 100 == 0:
            start, end = ("\r", "") if sys.stdout.isatty() else ("", "\n")
            print(f"{start}{tally.questions:,} questions, {tally.pairs:,} pairs", end=end, flush=True)

    try:
        tally = run(options.pairs, options.seed, progress)
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    show(tally, time.monotonic() - began)
    whole = options.pairs >= GOAL
    return 1 if tally.wrong or (whole and tally.never_used()) else 0


if __name__ == "__main__":
    sys.exit(main())
