"""Keys of plans: facts for rules about duplicates, matches and groups.

A key is a set of columns in which no two elements that are valid together agree, where NULL agrees with NULL. With the
empty key no two elements are valid together at all. A fact is a promise: where the operators alone do not show it, it
is not given.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final, TypeAlias, assert_never

from strandline.core.types import Column
from strandline.logical import plan as logical
from strandline.logical.expressions import Call, ColumnRef, Expression, columns_of, conjuncts
from strandline.logical.plan import Plan
from strandline.logical.schema import column_ids, schema

Key: TypeAlias = frozenset[str]
Keys: TypeAlias = tuple[Key, ...]
Pair: TypeAlias = tuple[str, str]

MAX_KEYS: Final = 6  # keys of a plan; products of them would not end


def is_duplicate_free(plan: Plan) -> bool:
    """True if no payload is valid twice at an instant."""
    return bool(keys(plan))


def determines(plan: Plan, columns: Iterable[str]) -> bool:
    """True if these columns, and those that equal them in every element, contain a key."""
    closure = set(columns)
    pairs = equalities(plan)
    grew = True
    while grew:
        more = {other for one, two in pairs for own, other in ((one, two), (two, one)) if own in closure} - closure
        closure |= more
        grew = bool(more)
    return any(key <= closure for key in keys(plan))


def keys(plan: Plan) -> Keys:
    """The keys of a plan that its operators show, the smallest first."""
    match plan:
        case logical.Scan(_, _, columns):  # of a table; the same row of a stream may come twice
            return (frozenset(plan.key),) if plan.key and {c.id for c in columns}.issuperset(plan.key) else ()
        case logical.TimeWindow() | logical.SessionWindow() | logical.Union() | logical.Unnest():
            return ()
        case logical.CountWindow(partition, rows, _, _):
            return (frozenset(partition),) if rows == 1 else ()
        case logical.Over(waits=waits):  # rows that wait come together with those of other instants
            return () if waits else keys(plan.source)
        # Fewer elements, or the same at other times.
        case logical.Filter() | logical.Granularity() | logical.Changes() | logical.TopRows() | logical.Rank():
            return keys(plan.source)
        case logical.WindowBounds():
            return keys(plan.source)
        case logical.Map(outputs, source):
            return _renamed(keys(source), [(e.id, c.id) for c, e in outputs if isinstance(e, ColumnRef)])
        case logical.Join(predicate, left, right) | logical.OuterJoin(False, predicate, left, right):
            return _joined(predicate, left, right, both=isinstance(plan, logical.Join))
        case logical.OuterJoin():  # an all-NULL element may be unmatched on either side
            return ()
        case logical.SemiJoin() | logical.MarkJoin() | logical.Apply():
            return keys(plan.left)
        case logical.Lookup():
            return _looked_up(plan)
        case logical.Aggregate(by, _, _):
            return (frozenset(by),)
        case logical.Distinct(source):
            return _minimal_keys((*keys(source), column_ids(source)))
        case logical.SetOperation():
            return _combined(plan)
        case _:
            assert_never(plan)


def _joined(predicate: Expression | None, left: Plan, right: Plan, both: bool) -> Keys:
    of_left, of_right = keys(left), keys(right)
    candidates = [one | two for one, two in product(of_left, of_right)]
    if both:  # of two columns that are equal in every element one is enough
        pairs = _across(predicate, left)
        candidates += [key - {two for one, two in pairs if one in key} for key in candidates]
        candidates += [key - {one for one, two in pairs if two in key} for key in candidates]
    if has_unique_match(predicate, left, right):
        candidates += of_left
    if both and has_unique_match(predicate, right, left):
        candidates += of_right
    return _minimal_keys(candidates)


def _looked_up(plan: logical.Lookup) -> Keys:
    """Elements that are valid together may have come at different times, and have met different rows: what is a key of
    the table is none of the result, unless an element meets one row at most."""
    if plan.kind in ("inner", "left") and not _has_unique_row(plan.predicate, plan.table):
        return ()
    return keys(plan.source)


def _has_unique_row(predicate: Expression | None, table: Plan) -> bool:
    """True if an element meets at most one row of a table: the condition fixes a key by values of other columns."""
    own = column_ids(table)
    sides = [part.arguments for part in conjuncts(predicate) if isinstance(part, Call) and part.function == "="]
    pairs = [pair for one, two in sides for pair in ((one, two), (two, one))]
    fixed = [
        c.id for c, value in pairs if isinstance(c, ColumnRef) and c.type == value.type and not columns_of(value) & own
    ]
    return determines(table, [column for column in fixed if column in own])


def has_unique_match(predicate: Expression | None, left: Plan, right: Plan) -> bool:
    """True if an element of the left has at most one match: the condition fixes a key of the right."""
    return determines(right, [two for _, two in _across(predicate, left)])


def _across(predicate: Expression | None, left: Plan) -> list[Pair]:
    """The columns of the left and of the right that a condition sets equal."""
    own = column_ids(left)
    pairs = [(one, two) if one in own else (two, one) for one, two in _pairs(predicate)]
    return [(one, two) for one, two in pairs if one in own and two not in own]


def _combined(plan: logical.SetOperation) -> Keys:
    everything = frozenset(c.id for c in plan.columns)
    of_left = _renamed(keys(plan.left), _by_position(plan.left, plan.columns))
    of_right = _renamed(keys(plan.right), _by_position(plan.right, plan.columns))
    match plan.kind:
        case "except all" | "except strict":
            return of_left
        case "except":
            return _minimal_keys((*of_left, everything))
        case "intersect all":
            return _minimal_keys((*of_left, *of_right))
        case "intersect":
            return _minimal_keys((*of_left, *of_right, everything))
        case "union max":
            return (everything,) if of_left and of_right else ()
        case _:
            assert_never(plan.kind)


def _by_position(source: Plan, columns: tuple[Column, ...]) -> list[Pair]:
    return [(below.id, above.id) for below, above in zip(schema(source), columns, strict=True)]


def _renamed(source_keys: Keys, names: Iterable[Pair]) -> Keys:
    """Keys whose columns are all passed on, under their new names."""
    copies: dict[str, str] = {}
    for below, above in names:
        copies.setdefault(below, above)
    return tuple(frozenset(copies[c] for c in key) for key in source_keys if all(c in copies for c in key))


def _minimal_keys(candidates: Iterable[Key]) -> Keys:
    """The minimal keys: the smallest ones, without those that contain another."""
    kept: list[Key] = []
    for key in sorted(set(candidates), key=lambda key: (len(key), sorted(key))):
        if not any(other <= key for other in kept):
            kept.append(key)
    return tuple(kept[:MAX_KEYS])


def equalities(plan: Plan) -> tuple[Pair, ...]:
    """Pairs of columns that are equal, and not NULL, in every element."""
    match plan:
        case logical.Filter(predicate, source):
            return (*_pairs(predicate), *equalities(source))
        case logical.Join(predicate, left, right):
            return (*_pairs(predicate), *equalities(left), *equalities(right))
        case logical.SemiJoin() | logical.MarkJoin() | logical.Apply():
            return equalities(plan.left)
        case logical.Distinct() | logical.Granularity() | logical.TopRows() | logical.Rank():
            return equalities(plan.source)
        case logical.Over() | logical.WindowBounds() | logical.Unnest():
            return equalities(plan.source)
        case logical.Lookup(kind, _, predicate, source, table):
            met = (*_pairs(predicate), *equalities(table)) if kind == "inner" else ()
            return (*met, *equalities(source))
        case logical.Map(outputs, source):
            names = [(e.id, c.id) for c, e in outputs if isinstance(e, ColumnRef)]
            pairs = equalities(source)
            ways = [[(above, two) for below, above in names if below == one] for one, two in pairs]
            return tuple((one, above) for way in ways for one, two in way for below, above in names if below == two)
        case _:
            return ()


def _pairs(predicate: Expression | None) -> tuple[Pair, ...]:
    """The columns that a condition sets equal. Of one type: values of two types may be equal to the same third."""
    pairs = []
    for part in conjuncts(predicate):
        match part:
            case Call("=", (ColumnRef(one, kind), ColumnRef(two, other)), _) if kind == other:
                pairs.append((one, two))
    return tuple(pairs)
