"""Binding of INSERT, UPDATE, DELETE, MERGE and TRUNCATE: names and types resolved, constants evaluated.

A column of the changed table has its own name as its id in expressions. The row that ON CONFLICT did not insert is
`excluded.<name>`, the source of a MERGE `<alias>.<name>`, and the query of an INSERT `<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias, assert_never

from strandline.core.errors import CatalogError
from strandline.core.lazy import pl
from strandline.core.temporal import Instant, instant
from strandline.core.types import Column, Schema
from strandline.logical import expressions as logical
from strandline.logical.catalog import Catalog, Table
from strandline.logical.expressions import ColumnRef, Expression
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.assignments import Assignment, StatementScalars, assign, null_key
from strandline.sql.binder.binder import Binder, bind_reading
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.declared_columns import DeclaredColumns
from strandline.sql.binder.expressions import Operand
from strandline.sql.binder.from_clause import bind_table
from strandline.sql.binder.insert_values import evaluate_values
from strandline.sql.binder.literals import read
from strandline.sql.binder.names import Names
from strandline.sql.binder.scope import Relation, Scope, suggestion

EXCLUDED: Final = "excluded"


@dataclass(frozen=True, slots=True)
class BoundSource:
    """The query whose result a statement reads once: its plan, and the streams, views and tables that it names.

    `columns` are those of the plan, in its order, under the ids that the expressions of the statement use.
    """

    plan: Plan
    reads: frozenset[str]
    columns: Schema
    query: ast.Query | ast.TableReference


@dataclass(frozen=True, slots=True)
class ConflictAction:
    """What happens to a row whose key the table has: nothing, or an update where `predicate` is true."""

    kind: Literal["ignore", "update"]
    assignments: tuple[Assignment, ...] = ()
    predicate: Expression | None = None


@dataclass(frozen=True, slots=True)
class BoundInsert:
    """Rows to insert: constant `rows` with all columns of the table, or the `values` over the rows of a `source`."""

    table: Table
    rows: pl.DataFrame | None = field(compare=False)
    source: BoundSource | None = None
    values: tuple[Assignment, ...] = ()
    conflict: ConflictAction | None = None
    at: Instant | None = None


@dataclass(frozen=True, slots=True)
class BoundUpdate:
    """New values of the rows for which `predicate` is true; None means all."""

    table: Table
    assignments: tuple[Assignment, ...]
    predicate: Expression | None
    at: Instant | None = None


@dataclass(frozen=True, slots=True)
class BoundDelete:
    """The end of the rows for which `predicate` is true; None means all."""

    table: Table
    predicate: Expression | None
    at: Instant | None = None


@dataclass(frozen=True, slots=True)
class MergeAction:
    """A branch of MERGE: what happens to a matched row (update, delete), or to a source row without one (insert).

    Of several branches the first counts whose `condition` is true; None is always true. An insertion assigns all
    columns of the table.
    """

    kind: Literal["update", "delete", "insert"]
    condition: Expression | None
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundMerge:
    """Rows of a source, matched with those of the table by `condition`."""

    table: Table
    source: BoundSource
    condition: Expression
    actions: tuple[MergeAction, ...]
    at: Instant | None = None


BoundChange: TypeAlias = BoundInsert | BoundUpdate | BoundDelete | BoundMerge


def bind_change(statement: ast.TableChange, catalog: Catalog) -> BoundChange:
    """The change of a table that a statement asks for."""
    table = find_changed_table(statement.table, catalog)
    statement = with_definitions(statement, catalog.functions, catalog.allow)
    match statement:
        case ast.Insert():
            return _bind_insert(statement, table, catalog)
        case ast.Update(_, alias, items, where):
            scope = Scope((_relation(table, statement.table, alias),))
            assignments = _bind_items(table, items, StatementScalars(scope, "SET"))
            return BoundUpdate(table, assignments, _bind_condition(where, scope, "WHERE"), _bind_at(statement.at))
        case ast.Delete(_, alias, where):
            scope = Scope((_relation(table, statement.table, alias),))
            return BoundDelete(table, _bind_condition(where, scope, "WHERE"), _bind_at(statement.at))
        case ast.Truncate():
            return BoundDelete(table, None, _bind_at(statement.at))
        case ast.Merge():
            return _bind_merge(statement, table, catalog)
        case _:
            assert_never(statement)


def find_changed_table(name: ast.Identifier, catalog: Catalog) -> Table:
    """The table that a statement changes: one without a source."""
    if name.name not in catalog:
        tables = [stream.name for stream in catalog if isinstance(stream, Table)]
        hint = "Declare it first: CREATE TABLE name (column TYPE, …, PRIMARY KEY (column))."
        raise CatalogError(
            f'table "{name.name}" does not exist',
            code="unknown-table",
            hint=suggestion(name.name, tables, "Tables are") if tables else hint,
            span=name.span,
        )
    table = catalog.get(name.name, name.span)
    if not isinstance(table, Table):
        hint = "Statements change tables only: CREATE TABLE declares one."
        raise name.error(f'{table.word} "{table.name}" is not a table', "not-a-table", hint)
    if table.source is not None:
        hint = f"Change the data behind {table.source.function}(), or declare a table without SOURCE."
        raise name.error(f'table "{table.name}" is changed by its source only', "table-has-source", hint)
    return table


# ---- parts -----------------------------------------------------------------------------------------------------------


def _relation(table: Table, name: ast.Identifier, alias: ast.Identifier | None = None) -> Relation:
    columns = tuple(Column(name, name, kind) for name, kind in table.columns)
    return Relation(alias.name if alias else table.name, columns, table.name, (alias or name).span)


def _declared(table: Table) -> DeclaredColumns:
    return DeclaredColumns("table", table.name, table.columns)


def _bind_at(at: ast.TypedText | None) -> Instant | None:
    if at is None:
        return None
    moment = read(at.value, at.type, at.span).value
    assert isinstance(moment, datetime), "it was read as a TIMESTAMP"
    return instant(moment)


def _bind_condition(node: ast.Expression | None, scope: Scope, clause: str) -> Expression | None:
    return None if node is None else StatementScalars(scope, clause).condition(node)


def _bind_items(table: Table, items: tuple[ast.SetItem, ...], scalars: StatementScalars) -> tuple[Assignment, ...]:
    declared = _declared(table)
    declared.find_all(tuple(item.column for item in items))  # each of them once
    return tuple(assign(table, declared.find(item.column)[0], scalars.operand(item.value)) for item in items)


def _bind_targets(table: Table, columns: tuple[ast.Identifier, ...], count: int, place: ast.Node) -> tuple[str, ...]:
    """The columns that a list of `count` values is for: those that are named, or else all."""
    names = _declared(table).find_all(columns) if columns else tuple(name for name, _ in table.columns)
    if len(names) != count:
        message = f"INSERT has {count} value{'' if count == 1 else 's'} for {len(names)} columns"
        hint = f"Columns are {', '.join(names)}." if columns else f"Name them: INSERT INTO {table.name} (column, …) …."
        raise place.error(message, "column-count", hint)
    missing = [name for name in table.key if name not in names]
    if missing:
        raise null_key(table, missing[0], columns[0].span.to(columns[-1].span))
    return names


# ---- INSERT ----------------------------------------------------------------------------------------------------------


def _bind_insert(statement: ast.Insert, table: Table, catalog: Catalog) -> BoundInsert:
    conflict = None if statement.conflict is None else _bind_conflict(statement.conflict, table, statement.table)
    at = _bind_at(statement.at)
    if isinstance(statement.source, ast.Values):
        values = statement.source
        names = _bind_targets(table, statement.columns, len(values.rows[0]), values)
        return BoundInsert(table, evaluate_values(table, names, values), conflict=conflict, at=at)
    query = statement.source
    plan, reads = bind_reading(query, catalog)
    columns = tuple(Column(column.name, column.name, column.type) for column in schema(plan))
    names = _bind_targets(table, statement.columns, len(columns), query)
    operands = [Operand(ColumnRef(column.id, column.type), query.span) for column in columns]
    assignments = _assign_all(table, dict(zip(names, operands, strict=True)))
    return BoundInsert(table, None, BoundSource(plan, reads, columns, query), assignments, conflict, at)


def _assign_all(table: Table, operands: dict[str, Operand]) -> tuple[Assignment, ...]:
    """The values of all columns of a new row; those that are not given are NULL."""
    return tuple(
        assign(table, name, operands[name]) if name in operands else Assignment(name, logical.Literal(None, kind))
        for name, kind in table.columns
    )


def _bind_conflict(clause: ast.OnConflict, table: Table, name: ast.Identifier) -> ConflictAction:
    named = _declared(table).find_all(clause.columns)
    if not table.key or (named and set(named) != set(table.key)):
        key = f"the primary key is ({', '.join(table.key)})" if table.key else "it has no primary key"
        hint = "Leave the columns out: ON CONFLICT DO …." if table.key else "Declare one: PRIMARY KEY (column, …)."
        raise clause.error(f'ON CONFLICT does not fit table "{table.name}": {key}', "conflict-target", hint)
    if not clause.items:
        return ConflictAction("ignore")
    columns = tuple(Column(f"{EXCLUDED}.{name}", name, kind) for name, kind in table.columns)
    # A bare name means the row that is there: only a qualified one means the row that was to be inserted.
    hidden = frozenset(column.id for column in columns)
    scope = Scope((_relation(table, name), Relation(EXCLUDED, columns, None, clause.span, merged=hidden)))
    assignments = _bind_items(table, clause.items, StatementScalars(scope, "SET"))
    return ConflictAction("update", assignments, _bind_condition(clause.where, scope, "WHERE"))


# ---- MERGE -----------------------------------------------------------------------------------------------------------


def _bind_merge(statement: ast.Merge, table: Table, catalog: Catalog) -> BoundMerge:
    names = Names(catalog)
    plan, source_scope = bind_table(Binder(names), statement.source)
    relation = source_scope.relations[0]
    columns = tuple(Column(f"{relation.alias}.{c.name}", c.name, c.type) for c in schema(plan))
    source_scope = Scope((Relation(relation.alias, columns, relation.stream, relation.span),))
    scope = Scope((_relation(table, statement.table, statement.alias),)).joined(source_scope)
    condition = StatementScalars(scope, "ON").condition(statement.condition)
    actions = tuple(_bind_branch(branch, table, scope, source_scope) for branch in statement.branches)
    source = BoundSource(plan, frozenset(names.reads), columns, statement.source)
    return BoundMerge(table, source, condition, actions, _bind_at(statement.at))


def _bind_branch(branch: ast.MergeBranch, table: Table, scope: Scope, source_scope: Scope) -> MergeAction:
    match branch:
        case ast.MergeUpdate(condition, items):
            assignments = _bind_items(table, items, StatementScalars(scope, "SET"))
            return MergeAction("update", _bind_condition(condition, scope, "WHEN"), assignments)
        case ast.MergeDelete(condition):
            return MergeAction("delete", _bind_condition(condition, scope, "WHEN"))
        case ast.MergeInsert(condition, columns, values):
            # A source row without a match has no row of the table beside it.
            names = _bind_targets(table, columns, len(values), branch)
            scalars = StatementScalars(source_scope, "VALUES")
            operands = {name: scalars.operand(value) for name, value in zip(names, values, strict=True)}
            assignments = _assign_all(table, operands)
            return MergeAction("insert", _bind_condition(condition, source_scope, "WHEN"), assignments)
        case _:
            assert_never(branch)
