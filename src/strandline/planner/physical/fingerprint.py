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
from dataclasses import Field, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from strandline.core.types import Type
from strandline.logical.udf import UserAggregate, UserFunction
from strandline.planner.physical import plan as physical
from strandline.planner.physical.tags import TAGS, list_parts

FORMAT: Final = 5


def fingerprint_plan(pipeline: physical.Pipeline) -> str:
    """A digest of the fragments and the queries of a pipeline."""
    digests = _Digests()
    for part in list_parts(*pipeline.fragments, *pipeline.queries):
        digests.encode(part)  # from the leaves on: a deep plan needs no deep recursion
    content = [FORMAT, pipeline.shards, digests.encode(pipeline.fragments), digests.encode(pipeline.queries)]
    return digest_content(content)


class _Digests:
    """Canonical forms of values; a node is a digest, computed once however often it is shared."""

    def __init__(self) -> None:
        self._by_identity: dict[int, str] = {}

    def encode(self, value: Any) -> Any:
        if (tag := TAGS.get(type(value))) is not None:
            return self._digest_of(tag, value)
        return [self.encode(item) for item in value] if isinstance(value, tuple) else encode_leaf(value)

    def _digest_of(self, tag: str, value: Any) -> str:
        digest = self._by_identity.get(id(value))
        if digest is None:
            digest = digest_content([tag, *(self.encode(getattr(value, f.name)) for f in identifying_fields(value))])
            self._by_identity[id(value)] = digest
        return digest


def encode_leaf(value: Any) -> Any:
    """The canonical form of a plain value."""
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
        case frozenset():
            return ["set", *sorted(value)]
    raise AssertionError(f"a plan has no {type(value)}")


def identifying_fields(part: Any) -> Iterator[Field[Any]]:
    """The fields of a part of a plan that are part of its identity."""
    for field in fields(part):
        is_default = field.metadata == physical.UNLESS_DEFAULT and getattr(part, field.name) == field.default
        if not is_default and field.metadata != physical.DERIVED:
            yield field


def digest_content(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:32]
