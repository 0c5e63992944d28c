"""Columns from around: what a subquery reads of the queries around it, and how its rows come to bring it along.

A room of the binder. What a subquery itself reads of the query around it is part of the condition by which the two are
joined. What is read of a query further out, here `a.x` in the innermost one, is not there to be joined with:

    SELECT … FROM a WHERE EXISTS (SELECT 1 FROM b WHERE … AND EXISTS (SELECT 1 FROM c WHERE c.x > a.x))

So the rows of b bring it along, under an id of its own. There are two ways.

- Where b is tied to a by an equality with this column, `b.y = a.x`, it is b.y: other rows of b do not count anyway.
- Else b is paired with each combination of the values that a has at the instant, the domain. What ties b to a is a
  condition on these pairs then, and a row of a looks at the pairs of its own combination, where NULL equals NULL. The
  domain has each combination once, so that a row meets as many rows of b as there are.

With more levels each query in between brings the columns along for those inside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, DOUBLE, Column
from strandline.logical.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    Value,
    children,
    columns_of,
    conjunction,
    substitute,
)
from strandline.logical.plan import Filter, Join, Map, Plan
from strandline.logical.properties.keys import determines
from strandline.logical.schema import schema
from strandline.sql.binder.scope import Ids, Scope


class Reach:
    """The columns of the queries around one query that its rows bring along, by the ids that they have there."""

    def __init__(self, ids: Ids, scope: Scope) -> None:
        self.ids = ids
        self.around = scope.outer_ids()
        self.copies: dict[str, tuple[Column, ColumnRef]] = {}

    def read(self, values: Iterable[Expression]) -> dict[str, ColumnRef]:
        """The columns from around that are read in some values, by id."""
        found: dict[str, ColumnRef] = {}
        pending = list(values)
        while pending:
            value = pending.pop()
            if isinstance(value, ColumnRef) and value.id in self.around:
                found[value.id] = value
            pending.extend(children(value))
        return dict(sorted(found.items()))

    def here(self, value: Expression, span: Span) -> Expression:
        """A value of a subquery of this query, over what the rows of this query have or will bring along."""
        for id, column in self.read([value]).items():
            if id not in self.copies:
                self.copies[id] = self.copy(column, span), column
        return substitute(value, self.refs())

    def copy(self, column: ColumnRef, span: Span) -> Column:
        if column.type.element is not None:
            raise BindError(
                "a correlated reference to an array is not supported",
                code="not-supported",
                hint="Select the needed elements in a subquery in FROM, and refer to those.",
                span=span,
            )
        return Column(self.ids.fresh(f"outer.{column.id}"), column.id, column.type)

    def refs(self) -> dict[str, Expression]:
        return {id: ColumnRef(copy.id, copy.type) for id, (copy, _) in self.copies.items()}


@dataclass
class Rows:
    """A subquery in an expression up to its WHERE: a plan, or with a domain one for each combination in it."""

    source: Plan
    reach: Reach
    ties: list[Expression] = field(default_factory=list)  # its conditions that read columns from around
    own: list[Expression] = field(default_factory=list)  # its other conditions, which `where` applies
    # The parts of WHERE that read the source and what it brings along: its own conditions and subqueries.
    where: Callable[[Plan], Plan] = lambda plan: plan
    # What comes after WHERE, given the domain too: groups, and the subqueries of the SELECT list.
    above: Callable[[Plan, Plan | None], Plan] = lambda plan, _: plan
    later_ties: list[Expression] = field(default_factory=list)  # what HAVING has of ties
    has_domain: bool = False
    below_where: bool = False  # whether the subqueries in WHERE read columns of the domain

    def needs_domain(self) -> bool:
        """Whether its subqueries read columns from around that no equality gives to its rows."""
        return not self.has_domain and not self.reach.copies.keys() <= self.equal_columns().keys()

    def equal_columns(self) -> dict[str, ColumnRef]:
        """The columns from around that a tie says to equal a column of the source, and that column."""
        own = {column.id for column in schema(self.source)}
        found: dict[str, ColumnRef] = {}
        for tie in self.ties:
            match tie:
                # Equal doubles are not always the same: 0.0 = -0.0.
                case Call("=", (ColumnRef() as one, ColumnRef() as two), _) if one.type == two.type != DOUBLE:
                    for outer, inner in ((one, two), (two, one)):
                        if outer.id in self.reach.around and inner.id in own:
                            found[outer.id] = inner
        return found

    def has_one_row(self) -> bool:
        """Whether at most one row belongs to a row of the query around: equalities with values from there, or with
        constants, fix a key of the source."""
        fixed = [column for part in (*self.ties, *self.own) for column in _fixed_columns(part, self.reach.around)]
        return determines(self.source, fixed)

    def pair_with_domain(self, values: Iterable[Expression], span: Span) -> None:
        """Bring along all that the ties read, and what some more values do: then nothing else ties it."""
        self.has_domain, self.below_where = True, bool(self.reach.copies)
        for value in (*self.ties, *values):
            self.reach.here(value, span)

    def wanted(self) -> list[tuple[Column, ColumnRef]]:
        """The columns of the domain, and what they hold in the query around."""
        return list(self.reach.copies.values()) if self.has_domain else []

    def conditions(self) -> list[Expression]:
        """What a row of the query around and one of these have to fulfil to belong together."""
        if not self.has_domain:
            return [*self.ties, *self.later_ties]
        pairs = [(column, ColumnRef(copy.id, copy.type)) for copy, column in self.wanted()]
        return [*(part for pair in pairs for part in same(*pair)), *self.later_ties]

    def plan(self, domain: Plan | None) -> Plan:
        """The rows, or with a domain the pairs of a combination and a row."""
        if domain is None:
            return self.above(self.where(self.with_equal_columns()), None)
        tie = conjunction(tuple(substitute(tie, self.reach.refs()) for tie in self.ties))
        if self.below_where:
            plan = self.where(Join(None, domain, self.source))
            plan = plan if tie is None else Filter(tie, plan)
        else:
            plan = Join(tie, domain, self.where(self.source))
        return self.above(plan, domain)

    def with_equal_columns(self) -> Plan:
        if not self.reach.copies:
            return self.source
        equal = self.equal_columns()
        return Map(
            (*passed_on(schema(self.source)), *((copy, equal[id]) for id, (copy, _) in self.reach.copies.items())),
            self.source,
        )


def _fixed_columns(condition: Expression, around: frozenset[str]) -> list[str]:
    """The column that a condition sets equal to a constant or to a value from around, if it does."""
    match condition:
        case Call("=", (one, two), _):
            pairs = [(_exact_column(side), columns_of(other)) for side, other in ((one, two), (two, one))]
            return [column.id for column, read in pairs if column is not None and read <= around]
    return []


def _exact_column(value: Expression) -> ColumnRef | None:
    """A column, also under a cast that keeps different values different: not so of a BIGINT as a DOUBLE."""
    match value:
        case ColumnRef():
            return value
        case Cast(ColumnRef() as column, kind) if (column.type.name, kind.name) in _EXACT_CASTS:
            return column
    return None


def passed_on(columns: Iterable[Column]) -> tuple[tuple[Column, Expression], ...]:
    """What a Map lists to keep columns as they are."""
    return tuple((column, ColumnRef(column.id, column.type)) for column in columns)


def same(one: Expression, two: Expression) -> tuple[Expression, Expression]:
    """That two values of a type are equal or both NULL, as two equalities, which a join can look up."""
    some = Literal(_SOME_VALUE[one.type.name], one.type)
    return (
        Call("=", tuple(Call("coalesce", (value, some), value.type) for value in (one, two)), BOOLEAN),
        Call("=", tuple(Call("is_null", (value,), BOOLEAN) for value in (one, two)), BOOLEAN),
    )


_EXACT_CASTS: Final = {("INT", "BIGINT"), ("INT", "DOUBLE"), ("DATE", "TIMESTAMP")}
_SOME_VALUE: Final[dict[str, Value]] = {
    "BOOLEAN": False,
    "INT": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "DECIMAL": Decimal(0),
    "VARCHAR": "",
    "DATE": date(1970, 1, 1),
    "TIMESTAMP": datetime(1970, 1, 1),
}
