"""Rules about unions and set operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Final

from strandline.core.types import Column
from strandline.logical.expressions import ColumnRef, Expression, substitute
from strandline.logical.plan import Distinct, Join, Map, Plan, Scan, SetOperation, Union
from strandline.logical.properties.keys import is_duplicate_free
from strandline.logical.properties.temporal import keeps_arrival_order
from strandline.logical.schema import column_ids, pass_on, rename, schema
from strandline.logical.tree import sources
from strandline.planner.rules.expressions import has_double, respects_equality, stays_small

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


# ---- across joins ----------------------------------------------------------------------------------------------------


def push_join_below_set_operation(plan: Plan) -> Iterator[Plan]:
    """(S1 - S2) ⋈ R = (S1 ⋈ R) - (S2 ⋈ R), and the same for ∩ and ∪max: with ALL and STRICT for every R, which has each
    payload r times, since r·(l1 - l2) = r·l1 - r·l2; without them where R has no duplicates. For ⊎ always.

    Both sides are joined: (S1 ⋈ R) - S2, with the columns of R left out of the comparison, is another query.
    """
    match plan:
        case Join(condition, left, right):
            for both, other, on_left in ((left, right, True), (right, left, False)):
                if not isinstance(both, SetOperation | Union) or not _counts_alike(both, condition, other):
                    continue
                inputs = sources(both)
                if any(column_ids(source) & column_ids(other) for source in inputs):
                    continue
                joined = [_join_side(condition, source, both, other, on_left) for source in inputs]
                if isinstance(both, Union):
                    yield Union(schema(plan), tuple(joined))
                else:
                    yield SetOperation(both.kind, schema(plan), joined[0], joined[1])


def _join_side(
    condition: Expression | None, source: Plan, both: SetOperation | Union, other: Plan, on_left: bool
) -> Plan:
    """A side of a set operation joined with another plan, with the column names of the side."""
    names = {column.id: value for column, value in rename(schema(source), both.columns)}
    own = None if condition is None else substitute(condition, names)
    return Join(own, source, other) if on_left else Join(own, other, source)


def pull_join_above_set_operation(plan: Plan) -> Plan | None:
    """(S1 ⋈ R) - (S2 ⋈ R) = (S1 - S2) ⋈ R, and so on: the same rule, the other way round."""
    match plan:
        case SetOperation() | Union(_, (_, _)):
            one, two = map(_without_renaming, sources(plan))
            if not (isinstance(one, Join) and isinstance(two, Join)) or not _joins_the_same(one, two):
                return None
            both: SetOperation | Union = Union(schema(one.left), (one.left, two.left))
            if isinstance(plan, SetOperation):
                both = SetOperation(plan.kind, schema(one.left), one.left, two.left)
            if _counts_alike(both, one.predicate, one.right):
                return Map(rename(schema(one), plan.columns), Join(one.predicate, both, one.right))
    return None


def _without_renaming(plan: Plan) -> Plan:
    """The source of a map that passes on all columns in their order."""
    match plan:
        case Map(outputs, source) if tuple(e for _, e in outputs) == tuple(e for _, e in pass_on(schema(source))):
            return source
    return plan


def _joins_the_same(one: Join, two: Join) -> bool:
    """True if two joins differ in their left sides only, and in column names."""
    columns, others = schema(one), schema(two)
    if len(schema(one.left)) != len(schema(two.left)) or len(columns) != len(others):
        return False
    names = {column.id: value for column, value in rename(columns, others)}
    condition = None if two.predicate is None else substitute(two.predicate, names)
    return condition == one.predicate and _without_names(one.right) == _without_names(two.right)


def _counts_alike(both: SetOperation | Union, condition: Expression | None, other: Plan) -> bool:
    """True if pairs have the multiplicities of a set operation where the elements that are paired have them.

    Zeros of the other side, which are equal and not the same, must stay apart if duplicates of it count.
    """
    if isinstance(both, Union):
        return True
    if not respects_equality(condition):
        return False
    if is_duplicate_free(other):
        return True
    return both.kind not in ("except", "intersect") and not any(has_double(column.type) for column in schema(other))


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
