"""Stored relations: tables and materialized views, which a statement reads at once, now or as of an instant.

SELECT … FROM t                                 over stored relations only: executed at once
SELECT … FROM t AT TIMESTAMP '…'                as they were, also FOR SYSTEM_TIME AS OF '…'
SELECT … FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON …     continuous: each row of s with t as it was then
"""

from __future__ import annotations

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
    names: set[str] = set()
    local: set[str] = set()
    pending: list[ast.Node] = [query]
    while pending:
        match pending.pop():
            case ast.Changes("ISTREAM" | "DSTREAM"):
                return False
            case ast.StreamTable(name, as_of=as_of) as node:
                names.add(name.name.lower())
                pending.extend(ast.children(node))
                if isinstance(as_of, ast.ColumnName):
                    return False
            case ast.CommonTable(name) as node:
                local.add(name.name.lower())
                pending.extend(ast.children(node))
            case node:
                pending.extend(ast.children(node))
    read_names = names - local
    return bool(read_names) and all(name in catalog and _is_stored(catalog.get(name), catalog) for name in read_names)


def _is_stored(stream: Stream, catalog: Catalog) -> bool:
    """A table, a materialized view, or a view over nothing else."""
    if isinstance(stream, DerivedStream) and stream.is_view:
        return all(name in catalog and _is_stored(catalog.get(name), catalog) for name in stream.reads)
    return isinstance(stream, Table) or (isinstance(stream, DerivedStream) and stream.is_materialized)


def not_stored(name: ast.Identifier, stream: Stream) -> BindError:
    """The refusal of a stream in a statement that is executed at once; the caller raises it."""
    hint = f"Keep its rows first: CREATE MATERIALIZED VIEW v AS SELECT … FROM {stream.name} …."
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
