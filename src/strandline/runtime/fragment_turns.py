"""What the groups of fragments of a stage take in a batch: their input up to an instant that the driver decides on.

    group a     ......|.....      takes what is before |, and the rest waits in front of its operators
    group b     ..|..             all that a group reads waits from one instant on, in all shards

Who reads a group goes by that instant, as with any reach. The driver learns what waits, in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from strandline.core.temporal import Instant
from strandline.planner.physical.plan import Fragment, Input, Pipeline, numbered, ports, sources
from strandline.planner.physical.running_groups import find_patient, groups_of
from strandline.runtime.exchange import Message
from strandline.runtime.kernels.batch import FROM, times
from strandline.runtime.operators.base import Watermark
from strandline.runtime.reaches import held_back
from strandline.runtime.scheduling.bands import Ints
from strandline.runtime.scheduling.budget import GroupInput, WorkBudget, WorkReport
from strandline.runtime.state.segments import States

PART_ROWS: Final = 512  # that wait together, in reports to the driver
PARTS: Final = 256  # of a group in a shard, at most


@dataclass(frozen=True, slots=True)
class FragmentTurns:
    """The groups of a stage that go by an instant before the watermark, by their first fragments; and what all groups
    that may put off input take."""

    reaches: Mapping[str, Instant] = field(default_factory=dict)
    work: WorkReport = field(default_factory=WorkReport)

    def ports_of(self, group: Sequence[Fragment], reaches: Mapping[str, Instant]) -> Mapping[str, Instant]:
        """The reaches of ports as a group goes by them."""
        reach = self.reaches.get(group[0].id)
        return reaches if reach is None else {**reaches, **dict.fromkeys(_ports_of(group), reach)}


def plan_turns(
    pipeline: Pipeline,
    stage: int,
    shard: int,
    messages_in: Sequence[Message],
    states: States,
    budget: WorkBudget,
    watermark: Callable[[Fragment], Watermark],
    reaches: Mapping[str, Instant],
) -> FragmentTurns:
    """What the groups of a stage take in a shard. `reaches` are those of ports whose senders have put off work."""
    if budget.fragments is None:
        return FragmentTurns()
    behind: dict[str, Instant] = {}
    inputs: dict[str, GroupInput] = {}
    patient = find_patient(pipeline)
    for group in groups_of(pipeline, stage):
        name = group[0].id
        if name not in patient or (shard != 0 and not group[0].everywhere):
            continue
        complete = watermark(group[0]).time
        until = min([complete, *(reaches[port] for port in _ports_of(group) if port in reaches)])
        reach = min(until, budget.fragments.get(name, until))
        starts = _starts(group, messages_in, states)
        left = np.sort(starts[(starts >= reach) & (starts < until)])
        inputs[name] = GroupInput(reach, int(np.count_nonzero(starts < reach)), _parts(left, until))
        if reach < complete:
            behind[name] = reach
    return FragmentTurns(behind, WorkReport(left=sum(each.left for each in inputs.values()), fragments=inputs))


def _parts(starts: Ints, until: Instant) -> list[tuple[Instant, int]]:
    """Rows in order of time, all before an instant, in parts; those that begin together are in the same one."""
    parts: list[tuple[Instant, int]] = []
    rows, begin = max(PART_ROWS, -(-len(starts) // PARTS)), 0
    while begin < len(starts):
        last = starts[min(begin + rows, len(starts)) - 1]
        end = int(np.searchsorted(starts, last, side="right"))
        parts.append((int(starts[end]) if end < len(starts) else until, end - begin))
        begin = end
    return parts


def _ports_of(group: Sequence[Fragment]) -> list[str]:
    return list(dict.fromkeys(port.name for fragment in group for port in ports(fragment.root)))


def _starts(group: Sequence[Fragment], messages_in: Sequence[Message], states: States) -> Ints:
    """The starts of all rows that a group could take: those that came, and those that wait in front of the first of its
    operators that reads the port."""
    parts: list[Ints] = []
    seen: set[str] = set()
    for fragment in group:
        for node, operator in zip(numbered(fragment.root), fragment.operators, strict=True):
            for side, source in enumerate(sources(node)):
                if isinstance(source, Input) and source.name not in seen and operator in states:
                    parts += [times(segment.frame, FROM) for segment in held_back(states[operator], side)]
                if isinstance(source, Input):
                    seen.add(source.name)
    parts += [times(m.frame, FROM) for m in messages_in if m.kind == "port" and m.name in seen]
    return np.concatenate([np.empty(0, np.int64), *parts])
