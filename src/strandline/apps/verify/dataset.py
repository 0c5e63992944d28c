"""Input of a query under test: streams and tables with their rows, and named queries, each at its place in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strandline.core.temporal import FOREVER, Instant
from strandline.logical.catalog import Catalog, DerivedStream
from strandline.logical.plan import Plan
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.binder.names import with_names

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query with a name, from CREATE STREAM … AS, CREATE VIEW or WITH, and the scope of its names."""

    query: ast.Query
    columns: tuple[str, ...]  # none: it keeps those of the query
    name_scope: NameScope


@dataclass(frozen=True, slots=True)
class NameScope:
    """Name resolution at a position of a script; `catalog` holds the same queries, bound, and the base streams."""

    catalog: Catalog
    queries: Mapping[str, NamedQuery] = field(default_factory=dict)  # by lower-case name

    def named(self, name: ast.Identifier) -> NamedQuery | None:
        return self.queries.get(name.name.lower())

    def with_query(self, name: str, query: ast.Query, columns: tuple[ast.Identifier, ...] = ()) -> NameScope:
        """The scope after the definition of a query, which hides an earlier meaning of its name."""
        plan = with_names(bind_query(query, self.catalog), columns, f'query "{name}"')
        catalog = Catalog()
        catalog.notices.show = None  # the query itself has shown them
        catalog.functions.update(self.catalog.functions)
        for stream in self.catalog:
            if stream.name.lower() != name.lower():
                catalog.add(stream)
        catalog.add(DerivedStream(name, plan, query.text, frozenset()))
        added = NamedQuery(query, tuple(column.name for column in columns), self)
        return NameScope(catalog, {**self.queries, name.lower(): added})

    def inside(self, query: ast.With) -> NameScope:
        """The scope behind the queries of a WITH."""
        scope = self
        for table in query.tables:
            scope = scope.with_query(table.name.name, table.query, table.columns)
        return scope

    def plan(self, query: ast.Query) -> Plan:
        return bind_query(query, self.catalog)


@dataclass(frozen=True, slots=True)
class QueryUnderTest:
    """A query under test: syntax and plan, and its position in a script."""

    name: str
    query: ast.Query
    plan: Plan
    name_scope: NameScope


@dataclass(frozen=True, slots=True)
class BaseTable:
    """The table with the rows of a base stream or of a table, and when each of them begins and ends to be valid."""

    table: str
    starts: Times
    ends: Times
    is_stream: bool = True  # else a table of the user's


@dataclass(frozen=True, slots=True)
class Dataset:
    """The rows of base streams and tables by lower-case name, the last instant compared, the first with a result."""

    rows: Mapping[str, BaseTable]
    latest: Instant = FOREVER
    begins: Instant | None = None

    def origin(self, query: ast.Query, scope: NameScope) -> Instant | None:
        """The first element of any stream that a query reads, or of any table, where it reads tables only: before it
        the query has no result."""
        read = [self.rows[name] for name in base_streams(query, scope)]
        streams = [rows for rows in read if rows.is_stream] or read
        starts = [int(rows.starts.min()) for rows in streams if len(rows.starts)]
        return min(starts, default=None)


def base_streams(node: ast.Node, scope: NameScope) -> tuple[str, ...]:
    """The base streams and tables under a node, directly or through named queries, by lower-case name."""
    return tuple(dict.fromkeys(_base_streams(node, scope)))


def _base_streams(node: ast.Node, scope: NameScope) -> Iterator[str]:
    match node:
        case ast.With():
            scope = scope.inside(node)
            yield from _base_streams(node.body, scope)
            return
        case ast.StreamTable(name, _, _):
            named = scope.named(name)
            if named is None:
                yield name.name.lower()
            else:
                yield from _base_streams(named.query, named.name_scope)
    for child in ast.children(node):
        yield from _base_streams(child, scope)
