"""Outcomes as text, and the text of a scenario with the actual results."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.apps.scenario.play import Outcome
from strandline.apps.scenario.text import Scenario
from strandline.database.introspection.text import count_of


def render(name: str, scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """One line if all is as expected; else each expectation that was not met, with the lines that differ."""
    missed = [outcome for outcome in outcomes if not outcome.met]
    count = count_of(len(outcomes), "expectation")
    if not missed:
        return f"{name}: {count}, all passed"
    lines = [f"{name}: {count}, {len(missed)} failed"]
    for outcome in missed:
        span = outcome.expect.span
        number = scenario.text.count("\n", 0, span.start) + 1
        lines.append(f"  line {number}: {scenario.text[span.start : span.end]}")
        if outcome.why is not None:
            lines.append(f"    {outcome.why}")
        lines += [f"    - {line}" for line in outcome.missing]
        lines += [f"    + {line}" for line in outcome.surplus]
    return "\n".join(lines)


def corrected(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """The scenario with the rows that were found in the place of those that were expected."""
    lines = scenario.text.split("\n")
    for outcome in reversed(outcomes):
        if outcome.met or outcome.why is not None:
            continue
        expect = outcome.expect
        head = scenario.text.count("\n", 0, expect.span.start)
        for row in reversed(expect.rows):
            del lines[scenario.text.count("\n", 0, row.span.start)]
        lines[head + 1 : head + 1] = [f"  {line}" for line in outcome.found]
    return "\n".join(lines)
