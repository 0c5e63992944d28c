"""Traversal of plans: inputs, rebuilding and walking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from strandline.logical.expressions import Expression, extent, substitute
from strandline.logical.plan import Apply, BinaryPlan, Lookup, Map, Plan, PredicatePlan, Scan, UnaryPlan, Union


def sources(plan: Plan) -> tuple[Plan, ...]:
    """The inputs of a node."""
    if isinstance(plan, UnaryPlan):
        return (plan.source,)
    if isinstance(plan, BinaryPlan):
        return (plan.left, plan.right)
    if isinstance(plan, Lookup):
        return (plan.source, plan.table)
    return plan.sources if isinstance(plan, Union) else ()


def with_sources(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs."""
    if inputs == sources(plan):
        return plan
    if isinstance(plan, UnaryPlan):
        return replace(plan, source=inputs[0])
    if isinstance(plan, BinaryPlan):
        return replace(plan, left=inputs[0], right=inputs[1])
    if isinstance(plan, Lookup):
        return replace(plan, source=inputs[0], table=inputs[1])
    return replace(plan, sources=inputs) if isinstance(plan, Union) else plan


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
    if isinstance(plan, PredicatePlan):
        return () if plan.predicate is None else (plan.predicate,)
    if isinstance(plan, Apply):
        return () if plan.value is None else (plan.value,)
    return tuple(expression for _, expression in plan.outputs) if isinstance(plan, Map) else ()


def map_expressions(plan: Plan, change: Callable[[Expression], Expression]) -> Plan:
    """The same node with its own expressions changed."""
    if isinstance(plan, PredicatePlan) and plan.predicate is not None:
        return replace(plan, predicate=change(plan.predicate))
    if isinstance(plan, Apply) and plan.value is not None:
        return replace(plan, value=change(plan.value))
    if isinstance(plan, Map):
        return Map(tuple((column, change(value)) for column, value in plan.outputs), plan.source)
    return plan


def substitute_columns(plan: Plan, values: Mapping[str, Expression]) -> Plan:
    """The plan with each column in `values` replaced by its expression, wherever it is read."""
    return transform_up(plan, lambda node: map_expressions(node, lambda value: substitute(value, values)))


def size(plan: Plan) -> int:
    """Number of operators and expression nodes of a plan: the cost of a walk over it."""
    return sum(1 + sum(extent(expression).nodes for expression in expressions(node)) for node in walk(plan))


def reads_changes(plan: Plan) -> bool:
    """True if the plan reads a change feed: without one of its rows, all that follows may be wrong."""
    return any(isinstance(node, Scan) and node.changes is not None for node in walk(plan))


def tables_read(plan: Plan) -> frozenset[str]:
    """The names of the tables under a plan."""
    return frozenset(node.stream for node in walk(plan) if isinstance(node, Scan) and node.table is not None)


def streams_read(plan: Plan) -> frozenset[str]:
    """The names of the base streams under a plan."""
    return frozenset(node.stream for node in walk(plan) if isinstance(node, Scan))
