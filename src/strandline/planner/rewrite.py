"""Runs a stage of rules until it settles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from strandline.core.errors import PlanError
from strandline.logical.plan import Plan
from strandline.logical.tree import transform_up

# A rule sees one node and returns a better tree for it, or None where its law does not apply.
Rule: TypeAlias = Callable[[Plan], Plan | None]


@dataclass(frozen=True, slots=True)
class RewriteStage:
    """Rules that are applied together, bottom-up, until none applies."""

    name: str
    rules: tuple[Rule, ...]
    max_passes: int = 100


def run_to_fixpoint(stage: RewriteStage, plan: Plan) -> Plan:
    """Apply the rules of `stage` until the plan stays the same."""
    applied: list[str] = []

    def improve(node: Plan) -> Plan:
        for rule in stage.rules:
            better = rule(node)
            if better is not None:
                applied.append(rule.__name__)
                return better
        return node

    for _ in range(stage.max_passes):
        before, plan = plan, transform_up(plan, improve)
        if plan == before:
            return plan
    raise PlanError(
        f'optimizer stage "{stage.name}" did not reach a fixpoint in {stage.max_passes} passes',
        code="optimizer-loop",
        detail=f"The last rules applied were {', '.join(applied[-4:])}.",
    )
