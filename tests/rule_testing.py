"""What tests of rules share: streams, the plans that rules make, and whether two plans differ on streams."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fuzz_optimizer import STEPWISE, bags
from random_streams import stream
from rule_queries import LETTERS
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import change_instants
from strandline.planner.alternatives import neighbours
from support import Arrivals, raw


def made_by(rules: Iterable[str], plan: Plan) -> list[Plan]:
    """All plans that rules make of one, applied one after the other at any place."""
    plans = [plan]
    for rule in rules:
        plans = list(
            dict.fromkeys(other for each in plans for name, other in neighbours(each, STEPWISE) if name == rule)
        )
    return plans


def some_streams(seed: int) -> list[Arrivals]:
    dice = Random(seed)
    streams: list[Arrivals] = []
    while len(streams) < 2:
        drawn = stream(dice, f"s{len(streams)}", LETTERS, dice.randint(4, 9))
        streams += [] if drawn.intervals else [drawn]
    return streams


def differ(plan: Plan, other: Plan, streams: list[Arrivals]) -> bool:
    """Whether two plans have different snapshots at some instant at which either can change, or beside it."""
    elements = raw(streams)
    instants = sorted({*change_instants(plan, elements), *change_instants(other, elements)})
    return bags(plan, elements, instants) != bags(other, elements, instants)
