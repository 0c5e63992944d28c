"""Query blocks: the right of an Apply, and the outer references in it.

From the bottom, a block is FROM; Filter and Apply of WHERE; the Filter of the correlated predicates; if it groups, Map
and Aggregate, for grouping sets a Union of them; Filter and Apply of HAVING; Apply of the SELECT list. FROM has no
outer references, since there is no LATERAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from strandline.core.errors import Span
from strandline.core.types import DOUBLE, Column
from strandline.logical.expressions import Call, ColumnRef, Expression, columns_of, conjunction, conjuncts
from strandline.logical.plan import Aggregate, Apply, Filter, Map, Plan, Union
from strandline.logical.schema import schema
from strandline.logical.tree import expressions, sources, substitute_columns, walk

Outer: TypeAlias = Mapping[str, Column]  # the columns of the left, by id
Reference: TypeAlias = tuple[Column, Span]  # an outer column, and the subquery that reads it


def from_clause(plan: Plan) -> Plan:
    """What stands below the Filters and Applys of a block: FROM, or its groups."""
    while isinstance(plan, Filter | Apply):
        plan = plan.source if isinstance(plan, Filter) else plan.left
    return plan


def with_from_clause(plan: Plan, source: Plan) -> Plan:
    """The block over another FROM."""
    match plan:
        case Filter(predicate, below):
            return Filter(predicate, with_from_clause(below, source))
        case Apply():
            return replace(plan, left=with_from_clause(plan.left, source))
    return source


def is_grouped(plan: Plan) -> bool:
    match from_clause(plan):
        case Aggregate():
            return True
        case Union(_, inputs):
            return all(isinstance(source, Map) and isinstance(source.source, Aggregate) for source in inputs)
    return False


def pull_up_predicates(plan: Plan, outer: Outer) -> tuple[Plan, list[Expression]]:
    """A block without the correlated predicates above FROM, or above its groups, and these predicates."""
    match plan:
        case Filter(predicate, source):
            source, pulled = pull_up_predicates(source, outer)
            parts = conjuncts(predicate)
            # The binder keeps the correlated predicates of WHERE apart, but not those of HAVING.
            if is_grouped(plan) or not columns_of(predicate) & outer.keys():
                own = conjunction(tuple(part for part in parts if not columns_of(part) & outer.keys()))
                source = source if own is None else Filter(own, source)
                parts = tuple(part for part in parts if columns_of(part) & outer.keys())
            return source, [*pulled, *parts]
        case Apply():
            left, pulled = pull_up_predicates(plan.left, outer)
            return replace(plan, left=left), pulled
    return plan, []


# ---- outer references ------------------------------------------------------------------------------------------------


def read_in(values: Iterable[Expression], outer: Outer) -> list[Column]:
    """The outer columns that some expressions read, in order of their ids."""
    ids = frozenset().union(*map(columns_of, values))
    return [outer[column_id] for column_id in sorted(ids & outer.keys())]


def by_id(references: Iterable[Reference]) -> dict[str, Reference]:
    """Each column once, where it is read first."""
    by_id: dict[str, Reference] = {}
    for column, span in references:
        by_id.setdefault(column.id, (column, span))
    return by_id


def reads(plan: Plan, outer: Outer) -> bool:
    return any(columns_of(value) & outer.keys() for node in walk(plan) for value in expressions(node))


def references(plan: Plan, outer: Outer, span: Span) -> Iterator[Reference]:
    """The outer references of a block, first those of its subqueries."""
    yield from nested_references(plan, outer)
    own = (node for node in _nodes(plan) if not isinstance(node, Apply))
    for part in (part for node in own for value in expressions(node) for part in conjuncts(value)):
        yield from ((column, span) for column in read_in([part], outer))


def nested_references(plan: Plan, outer: Outer) -> Iterator[Reference]:
    """The outer references in the subqueries of a block."""
    for apply in _nodes(plan):
        if not isinstance(apply, Apply):
            continue
        values = list(expressions(apply))
        if apply.kind != "single":
            values += [value for node in walk(apply.right) for value in expressions(node)]
        yield from ((column, apply.span) for column in read_in(values, outer))
        if apply.kind == "single":
            yield from references(apply.right, outer, apply.span)


def _nodes(plan: Plan) -> Iterator[Plan]:
    """The nodes of a block, without those of its subqueries, from the bottom up."""
    for source in (plan.left,) if isinstance(plan, Apply) else sources(plan):
        yield from _nodes(source)
    yield plan


def replace_references(plan: Plan, columns: dict[str, Column]) -> Plan:
    """The plan with columns instead of its outer references."""
    return substitute_columns(plan, {outer_id: ColumnRef(c.id, c.type) for outer_id, c in columns.items()})


def equal_columns(predicates: list[Expression], outer: Outer, plan: Plan) -> dict[str, ColumnRef]:
    """The outer references that a correlated predicate sets equal to a column of FROM, and that column."""
    own = {column.id for column in schema(from_clause(plan))}
    columns: dict[str, ColumnRef] = {}
    for predicate in predicates:
        match predicate:
            # Equal doubles are not always the same: 0.0 = -0.0.
            case Call("=", (ColumnRef() as one, ColumnRef() as two), _) if one.type == two.type != DOUBLE:
                for outside, inside in ((one, two), (two, one)):
                    if outside.id in outer and inside.id in own:
                        columns[outside.id] = inside
    return columns


def equality(predicate: Expression, outer: Outer) -> tuple[Expression, Expression] | None:
    """The outer and the inner side of a predicate, if it is an equality between the two."""
    match predicate:
        case Call("=", (one, two), _):
            for outside, inside in ((one, two), (two, one)):
                read = columns_of(inside)
                if columns_of(outside) and columns_of(outside) <= outer.keys() and read and not read & outer.keys():
                    return outside, inside
    return None
