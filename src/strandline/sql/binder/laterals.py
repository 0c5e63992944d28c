"""LATERAL: a subquery in FROM that reads columns of what stands to its left.

What decorrelation can make a join of is possible:

- an aggregate over all rows, as `(SELECT MAX(x), COUNT(*) FROM b WHERE b.k = a.k)`: one row for each row of the left.
  Each column is the value of a subquery, an Apply;
- rows, as `(SELECT b.x FROM b WHERE b.k = a.k)`: a join by the correlated predicates;
- the first of these rows, with ORDER BY … LIMIT n, where the correlated predicates are equalities: the first rows of
  each partition, joined by them. As everywhere, ties with the last of them count, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.core.errors import BindError
from strandline.core.types import BOOLEAN, Column
from strandline.logical import query_block
from strandline.logical.decorrelate import decorrelate
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, columns_of, conjunction
from strandline.logical.plan import Apply, Join, Map, OuterJoin, Outputs, Plan, TopRows
from strandline.logical.schema import filtered, pass_on, schema
from strandline.sql import ast
from strandline.sql.binder import from_clause
from strandline.sql.binder.derived_windows import with_derived_windows
from strandline.sql.binder.expressions import Scalars
from strandline.sql.binder.grouping import is_grouping
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.binder.select_list import Output, output_columns, sort_key

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

_HINT = "Write the subquery without LATERAL, and join it: JOIN (SELECT k, … FROM b … GROUP BY k) AS m ON m.k = a.k."


def bind_lateral(binder: Binder, join: ast.Join, table: ast.QueryTable, left: Plan, scope: Scope) -> tuple[Plan, Scope]:
    """`left, LATERAL (query)`, `left JOIN LATERAL (query) ON …` or `left LEFT JOIN LATERAL (query) ON …`."""
    if join.kind not in (None, "LEFT"):
        raise _error(f"{join.kind} JOIN LATERAL", table, "Write JOIN LATERAL or LEFT JOIN LATERAL … ON TRUE.")
    top = table.query if isinstance(table.query, ast.Ordered) else None
    query = table.query if top is None else top.query
    if not isinstance(query, ast.Select):
        raise _error("LATERAL over a combination of queries", table, _HINT)
    if query.group_by or query.having is not None or query.distinct or query.qualify is not None:
        raise _error("LATERAL over groups or DISTINCT", table, _HINT)
    if top is not None and (not top.is_top or is_grouping(query)):
        raise _error("LATERAL with this ORDER BY or LIMIT", table, "Write ORDER BY x LIMIT n over rows.")
    if is_grouping(query):
        plan, columns = _aggregates(binder, table, query, left, scope)
    else:
        plan, columns = _rows(binder, join, table, query, top, left, scope)
    relation = Relation(table.alias.name, columns, None, table.alias.span)
    binder.spans.update(dict.fromkeys((column.id for column in columns), table.alias.span))
    whole = scope.joined(Scope((relation,)))
    if join.condition is None or _is_true(join.condition):
        return plan, whole
    if join.kind == "LEFT":
        raise _error("LEFT JOIN LATERAL with a condition", table, "Write ON TRUE, and the condition in the subquery.")
    return filtered(plan, Scalars(whole, "ON").condition(join.condition)), whole


def _bound(
    binder: Binder, query: ast.Select, outer: Scope, more: tuple[ast.Expression, ...] = ()
) -> tuple[Plan, list[Output], list[Expression]]:
    """The rows of the subquery, its outputs, and the values of these and of further expressions over the rows."""
    query = with_derived_windows(query, binder.names)
    source, scope = from_clause.bind_tables(binder, query.tables)
    scope = replace(scope, outer=outer)
    source = binder.where(query.where, source, scope)
    outputs = output_columns(query.items, scope)
    nodes = [*(output.node for output in outputs), *more]
    source, values, _ = binder.above_where(query, nodes, outputs, source, scope)
    return source, outputs, values


def _aggregates(
    binder: Binder, table: ast.QueryTable, query: ast.Select, left: Plan, scope: Scope
) -> tuple[Plan, tuple[Column, ...]]:
    """An aggregate over all rows: each of its columns is a value for each row of the left."""
    plan: Plan = left
    columns: list[Column] = []
    count = 1
    while len(columns) < count:
        right, outputs, values = _bound(binder, query, scope)
        count, output, value = len(outputs), outputs[len(columns)], values[len(columns)]
        column = Column(binder.ids.fresh(f"{table.alias.name}.{output.name}"), output.name, value.type)
        plan = Apply("single", column, value, plan, right, table.span)
        columns.append(column)
    whole = Map((*pass_on(schema(left)), *pass_on(columns)), plan)
    renamed = tuple(replace(column, id=binder.ids.fresh(column.id)) for column in columns)
    outputs_of_whole: Outputs = (*pass_on(schema(left)), *zip(renamed, (v for _, v in pass_on(columns)), strict=True))
    return decorrelate(replace(whole, outputs=outputs_of_whole), binder.ids), renamed


def _rows(
    binder: Binder,
    join: ast.Join,
    table: ast.QueryTable,
    query: ast.Select,
    top: ast.Ordered | None,
    left: Plan,
    scope: Scope,
) -> tuple[Plan, tuple[Column, ...]]:
    """Rows, or the first of them: a join by the correlated predicates."""
    order = () if top is None else top.order
    source, outputs, values = _bound(binder, query, scope, tuple(item.value for item in order))
    outer = {column.id: column for column in schema(left)}
    source, predicates = query_block.pull_up_predicates(source, outer)
    if query_block.reads(source, outer):
        raise _error("LATERAL whose own subqueries read the left side", table, _HINT)
    columns = tuple(
        Column(binder.ids.fresh(f"{table.alias.name}.{output.name}"), output.name, value.type)
        for output, value in zip(outputs, values, strict=False)
    )
    own = {c.id: v for c, v in zip(columns, values, strict=False) if not columns_of(v) & outer.keys()}
    if len(own) < len(columns) and join.kind == "LEFT":
        raise _error("LEFT JOIN LATERAL that computes with the left side", table, "Compute it in the SELECT list.")
    listed: list[tuple[Column, Expression]] = [*pass_on(schema(source))]
    listed += [(column, own[column.id]) for column in columns if column.id in own]
    partition: list[str] = []
    if top is not None:
        equalities = [query_block.equality(predicate, outer) for predicate in predicates]
        for number, pair in enumerate(equalities):
            if pair is None:
                hint = "Correlate by equalities only, as in WHERE b.k = a.k; for the last row by time write ASOF JOIN."
                raise _error("LATERAL … LIMIT with another condition than an equality", table, hint)
            key = Column(binder.ids.fresh(f"{table.alias.name}.key"), "key", pair[1].type)
            listed.append((key, pair[1]))
            partition.append(key.id)
            predicates[number] = Call("=", (pair[0], ColumnRef(key.id, key.type)), BOOLEAN)
    keys = [(Column(binder.ids.fresh("order"), "order", v.type), v) for v in values[len(outputs) :]]
    if any(columns_of(value) & outer.keys() for _, value in keys):
        raise _error("LATERAL that is ordered by the left side", table, "Order by columns of the subquery.")
    right: Plan = decorrelate(Map((*listed, *keys), source), binder.ids)
    if top is not None and top.limit is not None:
        sort = tuple(sort_key(i, ColumnRef(c.id, c.type)) for i, (c, _) in zip(order, keys, strict=True))
        right = TopRows(tuple(partition), sort, top.limit, right)
    condition = conjunction(predicates)
    joined: Plan = Join(condition, left, right)
    if join.kind == "LEFT":
        joined = OuterJoin(False, Literal(True, BOOLEAN) if condition is None else condition, left, right)
    found = tuple(
        (column, ColumnRef(column.id, column.type)) if column.id in own else (column, value)
        for column, value in zip(columns, values, strict=False)
    )
    return Map((*pass_on(schema(left)), *found), joined), columns


def _is_true(node: ast.Expression) -> bool:
    return isinstance(node, ast.Truth) and node.value


def _error(what: str, table: ast.QueryTable, hint: str) -> BindError:
    return BindError(f"{what} is not supported", code="lateral", hint=hint, span=table.span)
