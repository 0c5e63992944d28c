"""Tags of what a physical plan consists of: the one closed table for fingerprints and for stored plans.

A tag survives the renaming of its class, and must not change: checkpoints have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final, get_args

from strandline.core.types import Column
from strandline.logical import catalog, expressions
from strandline.logical.change_feed import ChangeFeed
from strandline.planner.physical import plan as physical

TAGS: Final[dict[type, str]] = {
    **{node: node.tag for node in get_args(physical.Node)},
    physical.WindowUse: "use",
    physical.ExchangeTo: "ExchangeTo",
    physical.ResultOf: "ResultOf",
    physical.Fragment: "Fragment",
    physical.QueryPlan: "Query",
    physical.Pipeline: "Pipeline",
    expressions.Literal: "literal",
    expressions.ColumnRef: "column",
    expressions.Call: "call",
    expressions.Case: "case",
    expressions.Cast: "cast",
    expressions.UserCall: "user_call",
    expressions.SortKey: "sort_key",
    expressions.AggregateCall: "aggregate",
    expressions.WindowCall: "window_call",
    expressions.Frame: "frame",
    Column: "output",
    catalog.BaseStream: "stream",
    catalog.ConnectorCall: "connector",
    catalog.StreamStatistics: "statistics",
    catalog.BadInputPolicy: "bad_input",
    ChangeFeed: "change_feed",
}

_FIELD_NAMES: Final = {kind: tuple(field.name for field in fields(kind)) for kind in TAGS}


def list_parts(*roots: Any) -> Iterator[Any]:
    """The tagged objects of a plan, the roots among them, each after those in it, and once however often it is shared.

    Shared means the same object: of equal ones that are not the same each comes. There is no recursion: a plan may have
    any depth.
    """
    done: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        part, is_open = stack.pop()
        if id(part) in done:
            continue
        if is_open:
            done.add(id(part))
            yield part
        else:
            stack.append((part, True))
            stack += [(inner, False) for inner in _direct_parts(part) if id(inner) not in done]


def _direct_parts(part: Any) -> list[Any]:
    """The tagged objects in the fields of one, also those in tuples, from the last to the first."""
    found: list[Any] = []
    values = [getattr(part, name) for name in _FIELD_NAMES[type(part)]]
    while values:
        value = values.pop()
        kind = type(value)
        if kind is tuple:
            values += value
        elif kind in TAGS:
            found.append(value)
    return found
