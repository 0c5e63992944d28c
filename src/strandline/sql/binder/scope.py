"""The scope of a query: which column a name means.

A scope has relations, their columns and aliases; plans are not needed to resolve a name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.errors import BindError, Span
from strandline.core.types import Column
from strandline.logical.expressions import Expression
from strandline.sql import ast
from strandline.sql.dialects.names import COLUMNS

VALIDITY: Final = ("valid_from", "valid_until")


@dataclass(frozen=True, slots=True)
class Relation:
    """One entry of FROM: its visible columns and its alias."""

    alias: str
    columns: tuple[Column, ...]
    stream: str | None
    span: Span
    merged: frozenset[str] = frozenset()  # ids of columns that USING has merged: only a qualified name means them
    time_column: str | None = None  # the id of the column by which the stream is ordered
    validity: tuple[Expression | None, Expression | None] = (None, None)  # when a row enters its window and leaves it

    @property
    def is_named(self) -> bool:
        """True if the user can name it; a relation merged by USING has an internal alias."""
        return not self.alias.startswith("#")

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that a bare name may mean and that * lists."""
        return tuple(column for column in self.columns if column.id not in self.merged)


@dataclass(frozen=True, slots=True)
class Scope:
    """The relations that names may refer to; in a subquery also those of the query `outer` around it."""

    relations: tuple[Relation, ...]
    outer: Scope | None = None

    def outer_ids(self) -> frozenset[str]:
        """The columns of the queries around this one, however far out."""
        return frozenset() if self.outer is None else self.outer.ids()

    def ids(self) -> frozenset[str]:
        """The columns of this query and of those around it."""
        own = frozenset(column.id for relation in self.relations for column in relation.columns)
        return own | self.outer_ids()

    def time(self) -> Column | None:
        """Arrival order of the rows, if defined: the time column of the only stream."""
        if len(self.relations) != 1:
            return None
        return next((c for c in self.relations[0].columns if c.id == self.relations[0].time_column), None)

    def validity(self, name: ast.ColumnName) -> Expression | None:
        """Meaning of `valid_from` or `valid_until`, where no column has that name."""
        word = name.column.name.lower()
        if word not in VALIDITY or self._has_column(name):
            return None
        named = [r for r in self.relations if name.qualifier is not None and name.qualifier.matches(r.alias)]
        relations = named if name.qualifier is not None else list(self.relations)
        instant = relations[0].validity[VALIDITY.index(word)] if len(relations) == 1 else None
        if instant is None and (named or name.qualifier is None):
            hint = "It is defined for a single stream in a time window; for several streams, write name.valid_from."
            raise name.error(f"{word} is not defined for these rows", "validity", hint)
        return instant

    def _has_column(self, name: ast.ColumnName) -> bool:
        """Whether a column has the name, here or around."""
        qualified = [r for r in self.relations if name.qualifier is None or name.qualifier.matches(r.alias)]
        here = any(name.column.matches(column.name) for relation in qualified for column in relation.columns)
        return here or (self.outer is not None and not qualified and self.outer._has_column(name))

    def joined(self, other: Scope) -> Scope:
        taken = {relation.alias.lower() for relation in self.relations}
        for relation in other.relations:
            if relation.alias.lower() in taken:
                message = f'stream name "{relation.alias}" specified more than once'
                hint = f"Give one of them an alias: {relation.stream or '(SELECT …)'} AS other."
                raise BindError(message, code="duplicate-alias", hint=hint, span=relation.span)
        return Scope(self.relations + other.relations)

    def matches(self, name: ast.Identifier) -> list[tuple[Relation, Column]]:
        """The visible columns of this name, whatever their relation."""
        return [(r, column) for r in self.relations for column in r.visible if name.matches(column.name)]

    def using(self, left: Scope, right: Scope, merged: tuple[Column, ...], span: Span) -> Scope:
        """The scope of a join with USING: common columns are visible once, before all others."""
        names = {column.name.lower() for column in merged}
        hidden = {c.id for side in (left, right) for r in side.relations for c in r.visible if c.name.lower() in names}
        others = tuple(replace(r, merged=r.merged | hidden) for r in self.relations)
        return Scope((Relation(f"#{merged[0].id}", merged, None, span), *others))

    def relation(self, qualifier: ast.Identifier) -> Relation:
        for relation in self.relations:
            if qualifier.matches(relation.alias):
                return relation
        renamed = [r.alias for r in self.relations if r.stream is not None and qualifier.matches(r.stream)]
        names = [r.alias for r in self.relations if r.is_named]
        hint = f'Use its alias "{renamed[0]}".' if renamed else suggestion(qualifier.name, names, "Names are")
        prefix = f"{qualifier.name.lower()}."
        fields = [c.name for r in self.relations for c in r.columns if c.name.lower().startswith(prefix)]
        if fields:
            hint = f"Fields of {qualifier.name} are {', '.join(fields[:12])}."
        raise qualifier.error(f'missing FROM-clause entry for "{qualifier.name}"', "unknown-alias", hint)

    def followed(self, name: ast.ColumnName) -> ast.ColumnName:
        """`user.name` as the column "user.name", where a column is called that and no relation is called `user`."""
        if name.qualifier is None or self._names_relation(name.qualifier):
            return name
        qualifier, column = name.qualifier, name.column
        path = replace(column, name=f"{qualifier.name}.{column.name}", quoted=qualifier.quoted and column.quoted)
        flat = ast.ColumnName(None, replace(path, span=name.span), span=name.span)
        return flat if self.has_around(flat) else name

    def _names_relation(self, qualifier: ast.Identifier) -> bool:
        here = any(qualifier.matches(relation.alias) for relation in self.relations)
        return here or (self.outer is not None and self.outer._names_relation(qualifier))

    def column(self, name: ast.ColumnName) -> Column:
        """The column that a name means: one of its own query, else one of the query around it.

        If it belongs to none, this one reports the error.
        """
        name = self.followed(name)
        if self.outer is not None and not self._has(name) and self.outer.has_around(name):
            return self.outer.column(name)
        if name.qualifier is None:
            matches = self.matches(name.column)
        else:
            relation = self.relation(name.qualifier)
            matches = [(relation, column) for column in relation.columns if name.column.matches(column.name)]
        if not matches:
            raise self._unknown(name)
        if len(matches) > 1:
            qualified = " or ".join(f"{r.alias}.{column.name}" for r, column in matches if r.is_named)
            raise name.error(f'column "{name.column.name}" is ambiguous', "ambiguous-column", f"Write {qualified}.")
        return matches[0][1]

    def _has(self, name: ast.ColumnName) -> bool:
        if name.qualifier is not None:
            return any(name.qualifier.matches(relation.alias) for relation in self.relations)
        return bool(self.matches(name.column))

    def has_around(self, name: ast.ColumnName) -> bool:
        """Whether a name means something here or in a query around this one."""
        return self._has(name) or (self.outer is not None and self.outer.has_around(name))

    def _unknown(self, name: ast.ColumnName) -> BindError:
        foreign = COLUMNS.get(name.column.name.lower()) if not name.column.quoted else None
        if foreign is not None and (name.qualifier is None or name.column.matches("proctime")):
            return name.column.error(f"{name.column.name.upper()} is not supported", "not-supported", foreign)
        if not self.relations and self.outer is None:
            hint = f"Say which stream or table has the column: SELECT {name.column.name} FROM …."
            return name.error("SELECT has no FROM", "missing-from", hint)
        relations = self.relations if name.qualifier is None else (self.relation(name.qualifier),)
        where = f' in "{relations[0].alias}"' if len(relations) == 1 else ""
        names = [c.name for r in relations for c in r.columns]
        hint = _parts_hint(name.column.name, names) or suggestion(name.column.name, names, "Columns are")
        if name.column.quoted and name.qualifier is None and "mean" not in hint:  # a text in other dialects
            text = name.column.name.replace("'", "''")
            hint = f"{hint} A text is in single quotes: '{text}'."
        return name.column.error(f'column "{name.column.name}" does not exist{where}', "unknown-column", hint)


def _parts_hint(unknown_name: str, candidates: list[str]) -> str:
    """A hint for an object of JSON or Parquet, whose parts are columns; empty if there are none of that name."""
    parts = [f'"{name}"' for name in candidates if name.lower().startswith(f"{unknown_name.lower()}.")]
    return f"It is an object, and its parts are columns: {', '.join(parts[:6])}." if parts else ""


def suggestion(unknown_name: str, candidates: Iterable[str], otherwise: str) -> str:
    """A hint for a name that is not known: the nearest one, or all of them."""
    by_lower = {name.lower(): name for name in candidates}
    near = difflib.get_close_matches(unknown_name.lower(), by_lower, n=1)
    if near:
        return f'Did you mean "{by_lower[near[0]]}"?'
    names = list(by_lower.values())
    return f"{otherwise} {', '.join(names[:12])}{' and others' if len(names) > 12 else ''}."
