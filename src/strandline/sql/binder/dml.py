"""Binding of INSERT, UPDATE, DELETE, MERGE and TRUNCATE: names and types resolved, constants evaluated.

A column of the changed table has its own name as its id in expressions. The row that ON CONFLICT did not insert is
`excluded.<name>`, the source of a MERGE `<alias>.<name>`, and the query of an INSERT `<name>`. UPDATE and DELETE with
`x IN (SELECT …)` in WHERE are merges with the distinct values of the query, `subquery.<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, assert_never

from strandline.core.errors import CatalogError, Span
from strandline.core.lazy import pl
from strandline.core.temporal import Instant
from strandline.core.types import Column, Schema
from strandline.functions.signatures import meet
from strandline.logical.catalog import Catalog, Table
from strandline.logical.expressions import ColumnRef, Expression, conjunction
from strandline.logical.plan import Distinct, Map, Plan
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.assignments import Assignment, StatementScalars, assign, check_nullable, default_value
from strandline.sql.binder.binder import Binder, bind_reading
from strandline.sql.binder.clock import read_clock
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.create_table import bind_filled_table
from strandline.sql.binder.declared_columns import DeclaredColumns
from strandline.sql.binder.expressions import Operand, call
from strandline.sql.binder.from_clause import bind_table
from strandline.sql.binder.insert_values import evaluate_values
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.names import Names, with_names
from strandline.sql.binder.scope import Relation, Scope, suggestion
from strandline.sql.binder.stored import read_instant

EXCLUDED: Final = "excluded"
SUBQUERY: Final = "subquery"  # the alias of a query after IN


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
    statement = read_clock(with_definitions(statement, catalog.functions, catalog.allow))
    match statement:
        case ast.Insert():
            return _bind_insert(statement, table, catalog)
        case ast.Update(_, alias, items, where):
            scope = Scope((_relation(table, statement.table, alias),))
            assignments = _bind_items(table, items, StatementScalars(scope, "SET"))
            membership, predicate = _bind_where(where, table, scope, catalog)
            if membership is not None:
                return _merge_by(membership, table, MergeAction("update", predicate, assignments), statement.at)
            return BoundUpdate(table, assignments, predicate, _bind_at(statement.at))
        case ast.Delete(_, alias, where):
            scope = Scope((_relation(table, statement.table, alias),))
            membership, predicate = _bind_where(where, table, scope, catalog)
            if membership is not None:
                return _merge_by(membership, table, MergeAction("delete", predicate), statement.at)
            return BoundDelete(table, predicate, _bind_at(statement.at))
        case ast.Truncate():
            return BoundDelete(table, None, _bind_at(statement.at))
        case ast.Merge():
            return _bind_merge(statement, table, catalog)
        case _:
            assert_never(statement)


def bind_create_table_as(statement: ast.CreateTableAs, catalog: Catalog) -> BoundInsert:
    """The table that `CREATE TABLE name AS query` declares, with the insertion of its first rows."""
    name, query = statement.name.name, statement.query
    plan, reads = bind_reading(query, catalog, stored=True)
    plan = with_names(plan, statement.columns, f'table "{name}"')
    columns = tuple(Column(column.name, column.name, column.type) for column in schema(plan))
    table = bind_filled_table(statement, tuple((column.name, column.type) for column in columns))
    values = tuple(Assignment(column.name, ColumnRef(column.id, column.type)) for column in columns)
    return BoundInsert(table, None, BoundSource(plan, reads, columns, query), values)


def find_changed_table(name: ast.Identifier, catalog: Catalog) -> Table:
    """The table that a statement changes: one without a source."""
    if name.name not in catalog:
        raise unknown_table(name.name, catalog, name.span)
    table = catalog.get(name.name, name.span)
    if not isinstance(table, Table):
        hint = "Statements change tables only: CREATE TABLE declares one."
        raise name.error(f'{table.word} "{table.name}" is not a table', "not-a-table", hint)
    if table.source is not None:
        hint = f"Change the data behind {table.source.function}(), or declare a table without SOURCE."
        raise name.error(f'table "{table.name}" is changed by its source only', "table-has-source", hint)
    return table


def unknown_table(name: str, catalog: Catalog, span: Span | None = None) -> CatalogError:
    """That there is no table of this name, with the nearest one, or with how one is declared."""
    tables = [stream.name for stream in catalog if isinstance(stream, Table)]
    hint = "Declare it first: CREATE TABLE name (column TYPE, …, PRIMARY KEY (column))."
    hint = suggestion(name, tables, "Tables are") if tables else hint
    return CatalogError(f'table "{name}" does not exist', code="unknown-table", hint=hint, span=span)


# ---- parts -----------------------------------------------------------------------------------------------------------


def _relation(table: Table, name: ast.Identifier, alias: ast.Identifier | None = None) -> Relation:
    columns = tuple(Column(name, name, kind) for name, kind in table.columns)
    return Relation(alias.name if alias else table.name, columns, table.name, (alias or name).span)


def _declared(table: Table) -> DeclaredColumns:
    return DeclaredColumns("table", table.name, table.columns)


def _bind_at(at: ast.TypedText | None) -> Instant | None:
    return None if at is None else read_instant(at)


def _bind_condition(node: ast.Expression | None, scope: Scope, clause: str) -> Expression | None:
    return None if node is None else StatementScalars(scope, clause).condition(node)


def _bind_items(table: Table, items: tuple[ast.SetItem, ...], scalars: StatementScalars) -> tuple[Assignment, ...]:
    declared = _declared(table)
    declared.find_all(tuple(item.column for item in items))  # each of them once
    names = [declared.find(item.column)[0] for item in items]
    operands = [scalars.value(table, name, item.value) for name, item in zip(names, items, strict=True)]
    return tuple(assign(table, name, operand) for name, operand in zip(names, operands, strict=True))


def _bind_targets(table: Table, columns: tuple[ast.Identifier, ...], count: int, place: ast.Node) -> tuple[str, ...]:
    """The columns that a list of `count` values is for: those that are named, or else all. The others need a default
    where they may not be NULL."""
    names = _declared(table).find_all(columns) if columns else tuple(name for name, _ in table.columns)
    if len(names) != count:
        message = f"INSERT has {count} value{'' if count == 1 else 's'} for {len(names)} columns"
        hint = f"Columns are {', '.join(names)}." if columns else f"Name them: INSERT INTO {table.name} (column, …) …."
        raise place.error(message, "column-count", hint)
    if len(names) < len(table.columns):
        _check_missing(table, names, columns[0].span.to(columns[-1].span))
    return names


def _check_missing(table: Table, names: tuple[str, ...], span: Span) -> None:
    for name in (*table.key, *table.required):
        if name not in names and table.defaults.get(name) is None:
            check_nullable(table, name, span)


def _check_ids(table: Table, columns: Schema, place: ast.Node) -> None:
    """Refuse a column whose own name is the id of one beside it: `"excluded.a"` next to a."""
    taken = {name for name, _ in table.columns} & {column.id for column in columns}
    if taken:
        hint = "Choose another alias, or rename the column of the table."
        raise place.error(f'column "{min(taken)}" of table "{table.name}" is ambiguous here', "ambiguous-column", hint)


# ---- WHERE of UPDATE and DELETE --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Membership:
    """`x IN (query)`: the distinct values of the query, and the condition under which a row has one of them."""

    source: BoundSource
    condition: Expression


def _bind_where(
    where: ast.Expression | None, table: Table, scope: Scope, catalog: Catalog
) -> tuple[_Membership | None, Expression | None]:
    """The one IN (SELECT …) among the parts of WHERE, and the condition of the others."""
    if where is None:
        return None, None
    parts = where.operands if isinstance(where, ast.Logical) and where.operator == "AND" else (where,)
    tests = [
        part for part in parts if isinstance(part, ast.Quantified) and (part.operator, part.quantifier) == ("=", "ANY")
    ]
    scalars = StatementScalars(scope, "WHERE")
    if len(tests) != 1:
        return None, scalars.condition(where)
    rest = conjunction(scalars.condition(part) for part in parts if part is not tests[0])
    return _bind_membership(tests[0], table, scope, catalog), rest


def _bind_membership(test: ast.Quantified, table: Table, scope: Scope, catalog: Catalog) -> _Membership:
    """x IN (q) is a match with δ(q): each row has at most one, since the values are distinct in the type in which they
    are compared."""
    plan, reads = bind_reading(test.query, catalog, stored=True)
    columns = schema(plan)
    if len(columns) != 1:
        hint = "Select only the column to compare with."
        raise test.query.error(f"subquery must return one column, found {len(columns)}", "subquery-columns", hint)
    operand = StatementScalars(scope, "WHERE").operand(test.operand)
    kind = meet([operand.type, columns[0].type]) or columns[0].type
    value = Column(f"{SUBQUERY}.{columns[0].name}", columns[0].name, kind)
    _check_ids(table, (value,), test)
    compared = Operand(ColumnRef(value.id, kind), test.query.span)
    condition = call("=", [operand, compared], test.span)
    fitted = Column(f"{columns[0].id}#distinct", value.name, kind)
    source = Distinct(Map(((fitted, cast_to(ColumnRef(columns[0].id, columns[0].type), kind)),), plan))
    return _Membership(BoundSource(source, reads, (value,), test.query), condition)


def _merge_by(membership: _Membership, table: Table, action: MergeAction, at: ast.TypedText | None) -> BoundMerge:
    return BoundMerge(table, membership.source, membership.condition, (action,), _bind_at(at))


# ---- INSERT ----------------------------------------------------------------------------------------------------------


def _bind_insert(statement: ast.Insert, table: Table, catalog: Catalog) -> BoundInsert:
    conflict = None if statement.conflict is None else _bind_conflict(statement.conflict, table, statement.table)
    at = _bind_at(statement.at)
    if isinstance(statement.source, ast.Values):
        values = statement.source
        names = _bind_value_targets(table, statement.columns, values)
        return BoundInsert(table, evaluate_values(table, names, values), conflict=conflict, at=at)
    query = statement.source
    plan, reads = bind_reading(query, catalog, stored=True)
    columns = tuple(Column(column.name, column.name, column.type) for column in schema(plan))
    names = _bind_targets(table, statement.columns, len(columns), query)
    operands = [Operand(ColumnRef(column.id, column.type), query.span) for column in columns]
    assignments = _assign_all(table, dict(zip(names, operands, strict=True)))
    return BoundInsert(table, None, BoundSource(plan, reads, columns, query), assignments, conflict, at)


def _bind_value_targets(table: Table, columns: tuple[ast.Identifier, ...], values: ast.Values) -> tuple[str, ...]:
    if values.rows[0]:
        return _bind_targets(table, columns, len(values.rows[0]), values)
    if columns:
        hint = "Leave the columns out: all of them have their defaults."
        raise columns[0].error("DEFAULT VALUES needs no column list", "column-count", hint)
    _check_missing(table, (), values.span)
    return ()


def _assign_all(table: Table, operands: dict[str, Operand]) -> tuple[Assignment, ...]:
    """The values of all columns of a new row; those that are not given have their default, or NULL."""
    return tuple(
        assign(table, name, operands[name]) if name in operands else Assignment(name, default_value(table, name))
        for name, _ in table.columns
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
    _check_ids(table, columns, clause)
    # A bare name means the row that is there: only a qualified one means the row that was to be inserted.
    hidden = frozenset(column.id for column in columns)
    scope = Scope((_relation(table, name), Relation(EXCLUDED, columns, None, clause.span, merged=hidden)))
    assignments = _bind_items(table, clause.items, StatementScalars(scope, "SET"))
    return ConflictAction("update", assignments, _bind_condition(clause.where, scope, "WHERE"))


# ---- MERGE -----------------------------------------------------------------------------------------------------------


def _bind_merge(statement: ast.Merge, table: Table, catalog: Catalog) -> BoundMerge:
    names = Names(catalog, stored=True)
    plan, source_scope = bind_table(Binder(names), statement.source)
    relation = source_scope.relations[0]
    columns = tuple(Column(f"{relation.alias}.{c.name}", c.name, c.type) for c in schema(plan))
    _check_ids(table, columns, statement.source)
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
            operands = {name: scalars.value(table, name, value) for name, value in zip(names, values, strict=True)}
            assignments = _assign_all(table, operands)
            return MergeAction("insert", _bind_condition(condition, source_scope, "WHEN"), assignments)
        case _:
            assert_never(branch)
