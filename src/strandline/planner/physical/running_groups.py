"""Fragments that run together, and those of them that may put off input.

The fragments of a stage that have an operator in common are a group: one step for all of them. What exchanges bring to
a group waits in front of its operators, as part of their state, until the group takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.core.identity_cache import cached_by_identity
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Fragment, Pipeline, numbered
from strandline.planner.physical.waiting import find_prompt


class Chart(NamedTuple):
    """Nanoseconds of the cost model that a row costs in a group of fragments, and the bytes that are freed for each
    nanosecond, on the steepest line of its progress chart."""

    cost: int
    slope: float


@cached_by_identity
def groups_of(pipeline: Pipeline, stage: int) -> list[list[Fragment]]:
    """The fragments of a stage, in groups that run together; the first fragment of a group stands for it."""
    return _group_by_operators(pipeline.at(stage))


def _group_by_operators(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """Fragments that have an operator in common run together."""
    groups: list[list[Fragment]] = []
    group_of: dict[str, list[Fragment]] = {}  # by operator
    for fragment in fragments:
        touching = {id(group): group for operator in fragment.operators if (group := group_of.get(operator))}
        group, *others = touching.values() or [[]]
        for other in others:
            group += other
            group_of.update({operator: group for each in other for operator in each.operators})
        groups = [each for each in groups if id(each) not in touching or each is group]
        if not group:
            groups.append(group)
        group.append(fragment)
        group_of.update(dict.fromkeys(fragment.operators, group))
    return groups


@cached_by_identity
def find_patient(pipeline: Pipeline) -> frozenset[str]:
    """The groups that may put off input, by their first fragments: no reader needs all that they
    send up to the watermark.

    Shared window joins put off work themselves. All of a group goes by one instant, so its streams are the same.
    """
    prompt = find_prompt(pipeline)
    return frozenset(
        group[0].id
        for stage in range(1, pipeline.stages + 1)
        for group in groups_of(pipeline, stage)
        if len({fragment.streams for fragment in group}) == 1
        and not any(fragment.id in prompt for fragment in group)
        and not any(isinstance(node, physical.SharedWindowJoin) for f in group for node in numbered(f.root))
    )
