"""Rules about unions and set operations."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Final

from strandline.core.types import Column
from strandline.logical.expressions import ColumnRef, substitute
from strandline.logical.plan import Distinct, Map, Plan, Scan, SetOperation, Union
from strandline.logical.properties.temporal import keeps_arrival_order
from strandline.logical.schema import rename, schema
from strandline.planner.rules.expressions import stays_small

COMMUTATIVE: Final = ("intersect", "intersect all", "union max")
DIFFERENCES: Final = ("except", "except all", "except strict")


def flatten_unions(plan: Plan) -> Plan | None:
    """(S1 ⊎ S2) ⊎ S3 = S1 ⊎ S2 ⊎ S3: columns go by position, so nothing has to be renamed."""
    match plan:
        case Union(columns, inputs) if any(isinstance(source, Union) for source in inputs):
            parts = (source.sources if isinstance(source, Union) else (source,) for source in inputs)
            return Union(columns, tuple(item for part in parts for item in part))
    return None


def merge_same_sides(plan: Plan) -> Plan | None:
    """δ(S ⊎ S) = δ(S), S ∩ S = δ(S), S ∩all S = S ∪max S = S: for sides that differ only in column names."""
    match plan:
        case Distinct(Union(columns, inputs)):
            different: dict[object, Plan] = {}
            for source in inputs:
                different.setdefault(_without_names(source), source)
            if len(different) == len(inputs):
                return None
            kept = tuple(different.values())
            return Distinct(Union(columns, kept) if len(kept) > 1 else Map(rename(schema(kept[0]), columns), kept[0]))
        case SetOperation(kind, columns, left, right) if kind in COMMUTATIVE:
            if _without_names(left) != _without_names(right):
                return None
            same = Map(rename(schema(left), columns), left)
            if kind == "intersect":
                return Distinct(same)
            # A window by rows above would go by the order of arrival now, and by values before.
            return None if keeps_arrival_order(left) else same
    return None


def push_map_below_union(plan: Plan) -> Plan | None:
    """μ(S1 ⊎ S2) = μ(S1) ⊎ μ(S2), with the column names of each side."""
    match plan:
        case Map(outputs, Union(columns, inputs)) if outputs:
            sides = []
            for number, source in enumerate(inputs):
                names = {c.id: value for c, value in rename(schema(source), columns)}
                if not all(stays_small(e, names) for _, e in outputs):
                    return None
                computed = ((replace(c, id=f"{c.id} {number}"), substitute(e, names)) for c, e in outputs)
                sides.append(Map(tuple(computed), source))
            return Union(tuple(c for c, _ in outputs), tuple(sides))
    return None


def rotate_set_operations(plan: Plan) -> Plan | None:
    """(S1 ∩ S2) ∩ S3 = S1 ∩ (S2 ∩ S3), and the same for ∩all and ∪max: the smaller and the larger of three numbers."""
    match plan:
        case SetOperation(kind, columns, SetOperation() as inner, right) if kind == inner.kind and kind in COMMUTATIVE:
            return SetOperation(kind, columns, inner.left, SetOperation(kind, inner.columns, inner.right, right))
    return None


def swap_set_operation(plan: Plan) -> Plan | None:
    """S1 ∩ S2 = S2 ∩ S1, and the same for ∩all and ∪max."""
    match plan:
        case SetOperation(kind, columns, left, right) if kind in COMMUTATIVE:
            return SetOperation(kind, columns, right, left)
    return None


def subtract_together(plan: Plan) -> Plan | None:
    """(S1 - S2) - S3 = S1 - (S2 ⊎ S3), with and without ALL, if both are of one kind."""
    match plan:
        case SetOperation(kind, columns, SetOperation() as inner, right) if kind == inner.kind and kind in DIFFERENCES:
            return SetOperation(kind, columns, inner.left, Union(inner.columns, (inner.right, right)))
    return None


def subtract_one_by_one(plan: Plan) -> Plan | None:
    """S1 - (S2 ⊎ S3) = (S1 - S2) - S3, with and without ALL."""
    match plan:
        case SetOperation(kind, columns, left, Union(names, inputs)) if kind in DIFFERENCES:
            *leading_inputs, last = inputs
            if not leading_inputs:
                return None
            subtracted = leading_inputs[0] if len(leading_inputs) == 1 else Union(names, tuple(leading_inputs))
            return SetOperation(kind, columns, SetOperation(kind, names, left, subtracted), last)
    return None


def _without_names(plan: Plan) -> object:
    """Canonical form of a plan, equal for plans that differ only in ids, aliases and result names."""
    numbers: dict[str, int] = {}

    def number(column_id: str) -> int:
        return numbers.setdefault(column_id, len(numbers))

    def form(part: object) -> object:
        match part:
            case Scan(stream, _, columns, intervals):
                return "Scan", stream, intervals, tuple((c.name, number(c.id)) for c in columns)
            case Column(column_id, _, kind) | ColumnRef(column_id, kind):
                return number(column_id), kind
            case tuple():
                return tuple(map(form, part))
        if is_dataclass(part) and not isinstance(part, type):
            values = ((f.name, getattr(part, f.name)) for f in fields(part))
            named = (tuple(map(number, v)) if name in ("keys", "partition") else form(v) for name, v in values)
            return type(part).__name__, *named
        return repr(part)  # 0.0 is not -0.0

    return form(plan)
