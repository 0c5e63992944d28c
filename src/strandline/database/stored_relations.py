"""What a statement reads at once: rows of tables, of materialized views and of system tables, now or at an instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from strandline.connectors.tables.validity import read_content
from strandline.core.types import BIGINT, DOUBLE, INT, Type
from strandline.database.introspection import system_tables
from strandline.database.query import Query
from strandline.logical.catalog import ONE_ROW, SYSTEM, Catalog, Table
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, conjuncts
from strandline.logical.plan import Scan
from strandline.runtime.kernels.columns import polars_type

if TYPE_CHECKING:
    from strandline.database.tables import Tables


class StoredRelations:
    """Reads the relations of a database, of each only the columns and, where there is an index, the rows in use."""

    def __init__(self, catalog: Catalog, tables: Tables, queries: Sequence[Query]) -> None:
        self._catalog, self._tables, self._queries = catalog, tables, queries

    def read(self, scan: Scan, predicate: Expression | None) -> pl.DataFrame:
        """The rows that a scan reads, with its columns and perhaps others; without those that do not satisfy the
        predicate where an index finds the rest."""
        if scan.stream == ONE_ROW:
            return pl.DataFrame({"row": [0]})
        if scan.stream.startswith(SYSTEM):
            return system_tables.TABLES[scan.stream].frame(self._catalog, self._queries)
        relation = self._catalog.get(scan.stream)
        if isinstance(relation, Table):
            return self._table_rows(relation, scan, predicate)
        query = next(query for query in reversed(self._queries) if query.name == relation.name)
        return query.rows_at(scan.at).rename({column.id: column.name for column in query.columns})

    def _table_rows(self, table: Table, scan: Scan, predicate: Expression | None) -> pl.DataFrame:
        store = self._tables.store(table)
        store.check_feed()
        is_past = scan.at is not None or table.kind == "temporal"
        key = None if is_past or predicate is None else _find_key(table, scan, predicate)
        return read_content(store, scan.at) if key is None else store.find(key)


def _find_key(table: Table, scan: Scan, predicate: Expression) -> pl.DataFrame | None:
    """The primary key, where the predicate is a conjunction that has a constant for each of its columns."""
    names = {column.id: column.name for column in scan.columns}
    constants: dict[str, pl.Series] = {}
    for condition in conjuncts(predicate):
        match condition:
            case Call("=", (ColumnRef(column, kind), Literal(value, other))) if _is_exact(kind, other):
                constants.setdefault(names[column], pl.Series([value], dtype=polars_type(other)))
            case Call("=", (Literal(value, other), ColumnRef(column, kind))) if _is_exact(kind, other):
                constants.setdefault(names[column], pl.Series([value], dtype=polars_type(other)))
    if not table.key or not constants.keys() >= set(table.key):
        return None
    return pl.DataFrame({name: constants[name] for name in table.key})


def _is_exact(column: Type, constant: Type) -> bool:
    """Whether a constant that has no value of the column's type is equal to none."""
    return column != DOUBLE and (column == constant or {column, constant} == {INT, BIGINT})
