"""Structural fingerprint of a physical plan: the identity of a plan for checkpoints.

The canonical form of a node is its tag and the canonical forms of its fields in order. Names of classes, fields and
modules and the wording of EXPLAIN are not part of it, so they may change; a tag may not. A change of the canonical form
itself (a field that is added, removed or moved) needs a new `FORMAT`; a field marked UNLESS_DEFAULT may be added, since
it is left out while it has its default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, get_args

from strandline.core.types import Column, Type
from strandline.logical import expressions
from strandline.logical.udf import UserAggregate, UserFunction
from strandline.planner.physical import plan as physical

FORMAT: Final = 4

_TAGS: Final[dict[type, str]] = {
    **{node: node.tag for node in get_args(physical.Node)},
    physical.ExchangeTo: "ExchangeTo",
    physical.ResultOf: "ResultOf",
    physical.Fragment: "Fragment",
    physical.QueryPlan: "Query",
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
}


def fingerprint_plan(pipeline: physical.Pipeline) -> str:
    """A digest of the fragments and the queries of a pipeline."""
    digests = _Digests()
    content = [FORMAT, pipeline.shards, digests.encode(pipeline.fragments), digests.encode(pipeline.queries)]
    return _digest(content)


class _Digests:
    """Canonical forms of values; a node is a digest, computed once however often it is shared."""

    def __init__(self) -> None:
        self._by_identity: dict[int, str] = {}

    def encode(self, value: Any) -> Any:
        if (tag := _TAGS.get(type(value))) is not None:
            return self._digest_of(tag, value)
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return ["float", value.hex()]
            case Decimal():
                return ["decimal", str(value)]
            case datetime() | date():
                return ["time", value.isoformat()]
            case Type() | UserFunction() | UserAggregate():
                return str(value)  # of a function its name and its types: its body may change
            case tuple():
                return [self.encode(item) for item in value]
            case frozenset():
                return ["set", *sorted(value)]
        raise AssertionError(f"a plan has no {type(value)}")

    def _digest_of(self, tag: str, value: Any) -> str:
        digest = self._by_identity.get(id(value))
        if digest is None:
            digest = _digest([tag, *map(self.encode, _identifying_values(value))])
            self._by_identity[id(value)] = digest
        return digest


def _identifying_values(node: Any) -> Iterator[Any]:
    """The values of the fields of a node."""
    for field in fields(node):
        value = getattr(node, field.name)
        if field.metadata != physical.UNLESS_DEFAULT or value != field.default:
            yield value


def _digest(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:32]
