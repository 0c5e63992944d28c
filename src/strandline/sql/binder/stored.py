"""Stored relations: tables and materialized views, which a statement reads at once, now or as of an instant.

SELECT … FROM t                                 over stored relations only: executed at once
SELECT 1 + 1, VALUES (1, 'a')                    without FROM, too
SELECT … FROM t AT TIMESTAMP '…'                as they were, also FOR SYSTEM_TIME AS OF '…'
SELECT … FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON …     continuous: each row of s with t as it was then
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from strandline.core.errors import BindError
from strandline.core.temporal import Instant, instant
from strandline.logical.catalog import Catalog, DerivedStream, Stream, Table
from strandline.sql import ast
from strandline.sql.binder.literals import read


def is_stored_query(query: ast.Query, catalog: Catalog) -> bool:
    """Whether a query reads stored relations only, so that it can be executed at once.

    ISTREAM and DSTREAM ask for changes over time, so they make it a continuous one.
    """
    for node in _nodes(query):
        match node:
            case ast.Changes("ISTREAM" | "DSTREAM") | ast.StreamTable(as_of=ast.ColumnName()):
                return False
    names = names_read(query)
    is_constant = any(isinstance(node, ast.Select) and not node.tables for node in _nodes(query))
    readable = all(name in catalog and is_stored(catalog.get(name), catalog) for name in names)
    return readable and (bool(names) or is_constant)


def names_read(query: ast.Query) -> set[str]:
    """The names that a query reads, in lower case, without those of its own WITH."""
    nodes = list(_nodes(query))
    local = {node.name.name.lower() for node in nodes if isinstance(node, ast.CommonTable)}
    return {node.name.name.lower() for node in nodes if isinstance(node, ast.StreamTable)} - local


def _nodes(query: ast.Query) -> Iterator[ast.Node]:
    pending: list[ast.Node] = [query]
    while pending:
        yield (node := pending.pop())
        pending.extend(ast.children(node))


def is_stored(stream: Stream, catalog: Catalog) -> bool:
    """A table, a materialized view, or a view over nothing else."""
    if isinstance(stream, DerivedStream) and stream.is_view:
        return all(name in catalog and is_stored(catalog.get(name), catalog) for name in stream.reads)
    return isinstance(stream, Table) or (isinstance(stream, DerivedStream) and stream.is_materialized)


def not_stored(name: ast.Identifier, stream: Stream) -> BindError:
    """The refusal of a stream in a statement that is executed at once; the caller raises it."""
    if stream.name.isidentifier():
        hint = f"Keep its rows first: CREATE MATERIALIZED VIEW v AS SELECT … FROM {stream.name} …."
    else:  # files that FROM names
        hint = f"Declare it as a table first: CREATE TABLE name SOURCE file('{stream.name}') CONSTANT."
    message = f'cannot read {stream.word} "{stream.name}" at once: it has no content of its own'
    return name.error(message, "not-a-table", hint)


def read_instant(literal: ast.TypedText) -> Instant:
    """The instant of `TIMESTAMP '…'`."""
    moment = read(literal.value, literal.type, literal.span).value
    assert isinstance(moment, datetime), "it was read as a TIMESTAMP"
    return instant(moment)


def bind_as_of(table: ast.StreamTable, stream: Stream, stored: bool) -> Instant | None:
    """The instant at which a stored relation is read; None for every instant, or for now. What the time column of a
    stream says is decided by the join (`lookups.py`)."""
    match table.as_of:
        case None | ast.ColumnName():
            return None
        case ast.TypedText() as literal:
            if not isinstance(stream, Table) and not (isinstance(stream, DerivedStream) and stream.is_materialized):
                hint = "Only tables and materialized views keep their past."
                raise literal.error(f'{stream.word} "{stream.name}" has no past to read', "not-a-table", hint)
            if not stored:
                hint = "Read tables and materialized views only, or write FOR SYSTEM_TIME AS OF s.ts at a join."
                raise literal.error("a continuous query cannot read a table at one instant", "as-of-continuous", hint)
            return read_instant(literal)
