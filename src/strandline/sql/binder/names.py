"""Name resolution in FROM: a query of a WITH around it, else a stream or view of the catalog.

A query of WITH is bound once, where it is defined, so that an unused one is checked as well; each use gets a copy under
fresh ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strandline.core.errors import BindError
from strandline.core.types import Column
from strandline.logical.catalog import Catalog, DerivedStream, Stream
from strandline.logical.expressions import ColumnRef
from strandline.logical.plan import Map, Plan
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.scope import Ids
from strandline.sql.binder.select_list import RESERVED_OUTPUTS


class Names:
    """The names that FROM may use at one place of a statement. As in the catalog, upper and lower case are one."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.reads: set[str] = set()  # the streams and views named in FROM; the plan itself holds only base streams
        self._queries: dict[str, DerivedStream] = {}
        self._not_yet: dict[str, str] = {}  # the queries of WITH that cannot be read here, and the reason

    def get(self, name: ast.Identifier) -> Stream:
        """Resolve a name; a query of WITH hides a stream."""
        query = self._queries.get(name.name.lower())
        if query is not None:
            return query
        reason = self._not_yet.get(name.name.lower())
        if reason is not None and name.name not in self.catalog:
            raise BindError(
                f'query "{name.name}" {reason}',
                code="recursive-query",
                hint="Refer only to earlier queries of WITH.",
                span=name.span,
            )
        stream = self.catalog.get(name.name, name.span)
        self.reads.add(stream.name)
        return stream

    def is_local(self, stream: Stream) -> bool:
        """True if the name comes from a WITH."""
        return self._queries.get(stream.name.lower()) is stream

    @contextmanager
    def within(self, tables: tuple[ast.CommonTable, ...], bind: Callable[[ast.Query], Plan]) -> Iterator[None]:
        """The names in a WITH: each query sees those before it, the query after them sees all."""
        around, not_yet = self._queries, self._not_yet
        for number, table in enumerate(tables):
            name = table.name.name
            if any(name.lower() == other.name.name.lower() for other in tables[:number]):
                raise BindError(
                    f'WITH query name "{name}" specified more than once', code="duplicate-alias", span=table.name.span
                )
            later = {other.name.name.lower(): "is defined later" for other in tables[number + 1 :]}
            self._not_yet = {**not_yet, **later, name.lower(): "refers to itself"}
            plan = with_names(bind(table.query), table.columns, f'query "{name}"')
            query = DerivedStream(name, plan, table.query.text, frozenset())
            self._queries = {**self._queries, name.lower(): query}
        self._not_yet = not_yet
        yield
        self._queries = around


def with_names(plan: Plan, names: tuple[ast.Identifier, ...], what: str) -> Plan:
    """The plan with its columns called `names`; none means that they keep theirs."""
    if not names:
        return plan
    columns = schema(plan)
    if len(names) != len(columns):
        raise BindError(
            f"{what} has {len(columns)} column{'' if len(columns) == 1 else 's'}, not {len(names)}",
            code="column-count",
            hint="Name all columns, or none.",
            span=names[-1].span if len(names) > len(columns) else names[0].span.to(names[-1].span),
        )
    taken: set[str] = set()
    for name in names:
        if name.name.lower() in taken:
            raise BindError(f'duplicate column "{name.name}"', code="duplicate-column", span=name.span)
        if name.name.lower() in RESERVED_OUTPUTS:
            raise BindError(
                f'the output name "{name.name}" is reserved',
                code="reserved-name",
                hint="Every result has valid_from and valid_until; give the column another name.",
                span=name.span,
            )
        taken.add(name.name.lower())
    ids = Ids()
    ids.used = {column.id.split("#")[0]: 1 for column in columns}
    return Map(
        tuple(
            (Column(ids.fresh(name.name), name.name, c.type), ColumnRef(c.id, c.type))
            for name, c in zip(names, columns, strict=True)
        ),
        plan,
    )
