"""Window functions as operators: one for each frame by time, one for what goes by rows, and one for what waits.

Those that wait come last: the others see every row at its own instant.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.types import Column
from strandline.logical import plan as logical
from strandline.logical.expressions import AggregateCall, Frame, WindowCall
from strandline.logical.plan import WindowCalls
from strandline.logical.schema import pass_on
from strandline.logical.schema import schema as logical_schema
from strandline.planner.physical import plan as physical
from strandline.planner.physical.distribution import LoweredPlan
from strandline.planner.physical.plan import Node, schema


def over(plan: logical.Over, built: LoweredPlan) -> LoweredPlan:
    """Window functions over rows that lie by partition."""
    node = built.node
    by_frame: dict[Frame, list[tuple[Column, AggregateCall]]] = {}
    for column, call in plan.calls:
        if call.call is not None and _goes_by_time(plan, call):
            by_frame.setdefault(call.frame, []).append((column, call.call))
    for frame, aggregates in by_frame.items():
        assert frame.end is not None, "the binder has refused frames that end with the partition"
        start = None if frame.start is None else -frame.start
        node = physical.OverRange(plan.partition, start, -frame.end, tuple(aggregates), node)
    by_rows = [(column, call) for column, call in plan.calls if not _goes_by_time(plan, call)]
    waiting = tuple((column, call) for column, call in by_rows if call.rows_after and not plan.per_instant)
    at_once = tuple((column, call) for column, call in by_rows if (column, call) not in waiting)
    if at_once:
        node = _over_rows(plan, at_once, 0, node)
    if plan.waits:
        node = _over_rows(plan, waiting, plan.waits, node)
    columns = logical_schema(plan)
    return replace(built, node=node if schema(node) == columns else physical.Project(pass_on(columns), node))


def _goes_by_time(plan: logical.Over, call: WindowCall) -> bool:
    return call.call is not None and call.frame.unit == "range" and not plan.order and not plan.per_instant


def _over_rows(plan: logical.Over, calls: WindowCalls, waits: int, node: Node) -> Node:
    return physical.OverRows(plan.partition, plan.order, plan.ties, calls, waits, plan.per_instant, node)
