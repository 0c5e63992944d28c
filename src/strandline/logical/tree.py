"""The only recursion over plans: children, rebuilding and walking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from strandline.logical.expressions import Expression, extent
from strandline.logical.plan import (
    Aggregate,
    Changes,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Rank,
    Scan,
    SemiJoin,
    SessionWindow,
    SetOperation,
    TimeWindow,
    TopRows,
    Union,
)


def sources(plan: Plan) -> tuple[Plan, ...]:
    """The inputs of a node."""
    match plan:
        case Scan():
            return ()
        case TimeWindow() | CountWindow() | SessionWindow() | Granularity() | Changes() | TopRows() | Rank():
            return (plan.source,)
        case Filter() | Map() | Aggregate() | Distinct():
            return (plan.source,)
        case Join() | OuterJoin() | SemiJoin() | MarkJoin() | SetOperation():
            return (plan.left, plan.right)
        case Union(_, inputs):
            return inputs


def with_sources(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs."""
    if inputs == sources(plan):
        return plan
    match plan:
        case Scan():
            return plan
        case TimeWindow() | CountWindow() | SessionWindow() | Granularity() | Changes() | TopRows() | Rank():
            return replace(plan, source=inputs[0])
        case Filter() | Map() | Aggregate() | Distinct():
            return replace(plan, source=inputs[0])
        case Join() | OuterJoin() | SemiJoin() | MarkJoin() | SetOperation():
            return replace(plan, left=inputs[0], right=inputs[1])
        case Union():
            return replace(plan, sources=inputs)


def transform_up(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """Apply `change` to every node, inputs first."""
    return change(with_sources(plan, tuple(transform_up(child, change) for child in sources(plan))))


def walk(plan: Plan) -> Iterator[Plan]:
    """Every node, a node before its inputs."""
    yield plan
    for child in sources(plan):
        yield from walk(child)


def expressions(plan: Plan) -> tuple[Expression, ...]:
    """The expressions of a node itself."""
    match plan:
        case Filter() | Join() | OuterJoin() | SemiJoin() | MarkJoin():
            return (plan.predicate,) if plan.predicate is not None else ()
        case Map(outputs, _):
            return tuple(expression for _, expression in outputs)
        case Scan() | TimeWindow() | CountWindow() | SessionWindow() | Granularity() | Changes() | TopRows():
            return ()
        case Rank() | Aggregate() | Distinct() | Union() | SetOperation():
            return ()


def size(plan: Plan) -> int:
    """Number of operators and expression nodes of a plan: the cost of a walk over it."""
    return sum(1 + sum(extent(each).nodes for each in expressions(node)) for node in walk(plan))


def streams_read(plan: Plan) -> frozenset[str]:
    """The names of the base streams under a plan."""
    return frozenset(node.stream for node in walk(plan) if isinstance(node, Scan))
