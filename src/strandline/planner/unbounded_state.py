"""Operators whose state grows without bound, and why: facts for EXPLAIN.

State follows from the elements that are still valid. Where elements expire, it is bounded by the windows. Where they
may never expire it grows: with every row, or only with every key or payload that has not come before. Nothing is
refused for that: such a query has a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.functions.aggregates import needs_members
from strandline.logical import plan as logical
from strandline.logical.explain import show_node
from strandline.logical.expressions import WindowCall
from strandline.logical.plan import Plan
from strandline.logical.tree import streams_read, walk


@dataclass(frozen=True, slots=True)
class UnboundedState:
    """Elements of a plan that may never expire, in words, and the cause."""

    what: str
    cause: str


def growing_state(plan: Plan) -> list[str]:
    """A line for each operator with unbounded state: the operator, its state and the cause."""
    return [
        f"{show_node(node)}\n  keeps {state.what}: {state.cause}" for node in walk(plan) for state in _kept_by(node)
    ]


def lasting(plan: Plan) -> UnboundedState | None:
    """Elements of a plan that may never expire; None if all expire, or their number is fixed by the plan."""
    match plan:
        case logical.Scan(stream):
            return (
                UnboundedState("every row", f"rows of {stream} may never expire")
                if plan.intervals and plan.table is None
                else None
            )
        case logical.TimeWindow(range_us, _, source):
            return UnboundedState("every row", f"RANGE UNBOUNDED over {_streams(source)}") if range_us is None else None
        case logical.CountWindow(partition, rows, _, source):
            # Without a partition the number of rows is fixed.
            cause = f"PARTITION BY over {_streams(source)}"
            return UnboundedState(f"{_count(rows)} per distinct {', '.join(partition)}", cause) if partition else None
        case logical.SessionWindow() | logical.Changes() | logical.Over():
            return None
        case logical.TopRows() | logical.Rank():
            return _first_rows(plan)
        case logical.Filter() | logical.Map() | logical.Unnest() | logical.Granularity() | logical.WindowBounds():
            return lasting(plan.source)
        case logical.Join(_, left, right):  # a pair leaves with the first of the two
            return _both(left, right)
        case logical.OuterJoin(full, _, left, right):
            return _either(left, right) if full else lasting(left)
        case logical.SemiJoin() | logical.MarkJoin() | logical.Apply():
            return lasting(plan.left)
        case logical.Lookup():
            return lasting(plan.source)
        case logical.Aggregate(keys, _, source):
            below = lasting(source)
            return UnboundedState(f"a row per distinct {', '.join(keys)}", below.cause) if below and keys else None
        case logical.Distinct(source):
            below = lasting(source)
            return UnboundedState("every distinct row", below.cause) if below else None
        case logical.Union(_, inputs):
            return _either(*inputs)
        case logical.SetOperation(kind, _, left, right):
            if kind in ("intersect", "intersect all"):
                return _both(left, right)
            return _either(left, right) if kind == "union max" else lasting(left)


def _first_rows(plan: logical.TopRows | logical.Rank) -> UnboundedState | None:
    """The number of top-k rows is fixed per partition."""
    below = lasting(plan.source)
    if below is None or plan.limit is None:
        return below
    what = f"{_count(plan.limit)} per distinct {', '.join(plan.partition)}"
    return UnboundedState(what, below.cause) if plan.partition else None


def _either(*plans: Plan) -> UnboundedState | None:
    return next((state for plan in plans if (state := lasting(plan)) is not None), None)


def _both(left: Plan, right: Plan) -> UnboundedState | None:
    one, two = lasting(left), lasting(right)
    return UnboundedState("every pair", f"{one.cause}, {two.cause}") if one and two else None


def _kept_by(node: Plan) -> Iterator[UnboundedState]:
    """Unbounded state of a single operator."""
    match node:
        case logical.Join() | logical.OuterJoin() | logical.SemiJoin() | logical.MarkJoin():
            for side, plan in (("left", node.left), ("right", node.right)):
                if (below := lasting(plan)) is not None:
                    yield UnboundedState(f"{below.what} of the {side} side", below.cause)
        case logical.Lookup():  # of the source only what has no end yet
            if (below := lasting(node.table)) is not None:
                yield UnboundedState(f"{below.what} of the table", below.cause)
        case logical.CountWindow():
            if (held := lasting(node)) is not None:
                yield UnboundedState(held.what, "keys never expire")
        case logical.Distinct() | logical.TopRows() | logical.Rank():
            # Elements that can never again enter the top k are not kept.
            if (held := lasting(node)) is not None:
                yield held
        case logical.Aggregate(keys, aggregates, source):
            if (below := lasting(source)) is None:
                return
            if any(needs_members(call) for _, call in aggregates):
                yield below
            elif keys:
                yield UnboundedState(f"totals per distinct {', '.join(keys)}", below.cause)
            if any(call.distinct for _, call in aggregates):
                yield UnboundedState("every distinct value", below.cause)
        case logical.Changes(_, source):
            # Elements that never end are not retained. Those that come in intervals end each time, and continue.
            in_intervals = any(isinstance(inner, logical.CountWindow | logical.Aggregate) for inner in walk(source))
            if in_intervals and (below := lasting(source)) is not None:
                yield below
        case logical.SetOperation(_, _, left, right):
            if (below := _either(left, right)) is not None:
                yield UnboundedState("a count per distinct row", below.cause)
        case logical.Over(partition, per_instant=False):
            if partition and any(_outlasts_frame(call) for _, call in node.calls):
                yield UnboundedState(f"a state per distinct {', '.join(partition)}", "keys never expire")
        case logical.Scan() | logical.TimeWindow() | logical.SessionWindow() | logical.Granularity() | logical.Over():
            return
        case logical.Filter() | logical.Map() | logical.Unnest() | logical.Union() | logical.WindowBounds():
            return


def _outlasts_frame(call: WindowCall) -> bool:
    """True unless a frame by time holds all that a function reads."""
    return call.call is None or call.frame.unit == "rows" or call.frame.start is None


def _count(rows: int) -> str:
    return "a row" if rows == 1 else f"{rows} rows"


def _streams(plan: Plan) -> str:
    return ", ".join(sorted(streams_read(plan)))
