"""Names and types resolved: syntax tree to logical plan.

Every column gets an id that no other column of the plan has. Ids are readable: `b.price` is the price of the stream
called b in FROM, a computed column has the name of the output, and `#2` marks the second of a kind. The one place
where an id appears again is the Map below an Aggregate, which passes columns on under the ids that they had.

The shape of a SELECT is always the same, from the bottom: FROM (scans and joins); WHERE (Filter, and Apply for its
subqueries); if it groups Map (keys and arguments), Aggregate and HAVING (Filter and Apply); the Applys of the SELECT
list; Over, Rank and QUALIFY; the Map of the outputs and a Distinct. `decorrelate` makes joins of the Applys then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final, assert_never

from strandline.core.errors import BindError, Span
from strandline.core.types import INTERVAL, NULL, VARCHAR, Column, Type
from strandline.functions.signatures import meet
from strandline.logical.catalog import Catalog, DerivedStream
from strandline.logical.decorrelate import decorrelate
from strandline.logical.expressions import ColumnRef, Expression, columns_of, conjunction
from strandline.logical.plan import ALL_ROWS, Changes, Distinct, Map, Plan, SetKind, SetOperation, TopRows, Union
from strandline.logical.schema import Ids, filtered, pass_on, schema
from strandline.logical.tree import reads_changes, sources, walk
from strandline.sql import ast
from strandline.sql.binder.clock import open_windows, read_clock
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.derived_windows import with_derived_windows
from strandline.sql.binder.expressions import Operand
from strandline.sql.binder.from_clause import bind_tables
from strandline.sql.binder.grouping import Groups, GroupScalars, grouping_sets, is_grouping
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.lookups import look_up_tables
from strandline.sql.binder.names import Names, with_names
from strandline.sql.binder.notices import derived_windows_notices, order_notices, query_notices
from strandline.sql.binder.over_rows import plan_window_functions
from strandline.sql.binder.scaled_aggregates import rescaled
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.select_list import (
    Output,
    is_listed,
    listed_column,
    output_columns,
    sort_key,
    write_out_aliases,
)
from strandline.sql.binder.stored import not_stored
from strandline.sql.binder.subqueries import ClauseScalars, is_match_test
from strandline.sql.binder.window_functions import WindowFunctions, has_window_functions, over_outputs
from strandline.sql.parser.statements import parse_one

# Every later phase walks plans recursively; this keeps the walks well within Python's stack.
MAX_PLAN_HEIGHT: Final = 100
MAX_NOTICED_NODES: Final = 1_000  # of a plan that is examined for notices
# IN, ANY and ALL as values are two joins each, and so are those within them: they double with every level.
MAX_SUBQUERIES: Final = 400
MAX_HINTED: Final = 60  # characters of an expression that a hint repeats

_SET_KINDS: Final[dict[str, SetKind]] = {
    "EXCEPT ALL": "except all",
    "EXCEPT": "except",
    "EXCEPT STRICT": "except strict",
    "INTERSECT ALL": "intersect all",
    "INTERSECT": "intersect",
    "UNION MAX": "union max",
}


def bind_query(query: ast.Query, catalog: Catalog) -> Plan:
    """The plan of a query. Its schema gives the result columns with their names."""
    return bind_reading(query, catalog)[0]


def bind_reading(query: ast.Query, catalog: Catalog, *, stored: bool = False) -> tuple[Plan, frozenset[str]]:
    """The plan of a query, and the streams, tables and views that its text names.

    A `stored` query is executed at once: materialized views are scans of what they hold, and all else is refused that
    is no table.
    """
    names = Names(catalog, stored=stored)
    binder = Binder(names)
    query = read_clock(query) if stored else open_windows(query, catalog)
    plan = binder.query(with_definitions(query, catalog.functions, catalog.allow), prefix="")
    binder.refuse_intervals(plan, query)
    if not stored:
        binder.add_notices(plan)
        for notice in (*derived_windows_notices(names.windows), *order_notices(query)):
            catalog.notices.add(notice)
        plan = look_up_tables(plan, binder.spans, query.span)
    return plan, frozenset(names.reads)


def allowed_shedding(plan: Plan, clause: ast.Shedding) -> float:
    """The share of rows that ALLOW SHEDDING admits to lose."""
    if reads_changes(plan):
        hint = "Remove ALLOW SHEDDING: a row of a change feed that is dropped makes later ones wrong."
        raise clause.error("rows of a change feed cannot be dropped", "shedding-changes", hint)
    return clause.most


def bind_derived_stream(statement: ast.CreateStreamAs, catalog: Catalog) -> DerivedStream:
    """The stream that `CREATE STREAM name AS query` declares."""
    plan, reads = bind_reading(statement.query, catalog)
    shedding = None if statement.shedding is None else allowed_shedding(plan, statement.shedding)
    text, start = statement.query.text, statement.start
    return DerivedStream(statement.name.name, plan, text, reads, shedding=shedding, start=start)


def bind_view(statement: ast.CreateView, catalog: Catalog) -> DerivedStream:
    """The view that `CREATE VIEW name AS query` declares."""
    plan, reads = bind_reading(statement.query, catalog)
    name = statement.name.name
    plan = with_names(plan, statement.columns, f'view "{name}"')
    return DerivedStream(name, plan, statement.query.text, reads, is_view=True)


def bind_materialized_view(statement: ast.CreateMaterializedView, catalog: Catalog) -> DerivedStream:
    """The view that `CREATE MATERIALIZED VIEW name AS query [KEEP …]` declares and starts."""
    plan, reads = bind_reading(statement.query, catalog)
    name = statement.name.name
    plan = with_names(plan, statement.columns, f'view "{name}"')
    keep_us = None if statement.keep is None else statement.keep.microseconds
    return DerivedStream(name, plan, statement.query.text, reads, is_materialized=True, keep_us=keep_us)


# ---- queries ---------------------------------------------------------------------------------------------------------


class Binder:
    """Binds one statement: the ids of all its parts come from one source."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.ids = Ids()
        self.spans: dict[str, Span] = {}  # the names in FROM, by the ids of their columns
        self.unwindowed: dict[str, str] = {}  # the names in FROM without a window, by the ids of their columns
        self.intervals: dict[str, Output] = {}  # those that are INTERVALs, by name; of the outermost SELECT last
        self.inlined = 0
        self.select_span: Span | None = None  # of the SELECT at hand
        self.subqueries = 0

    def query(self, query: ast.Query, prefix: str) -> Plan:
        """The plan of a query whose output columns get ids that begin with `prefix`."""
        match query:
            case ast.Select():
                return self.select(query, prefix)
            case ast.UnionAll():
                return Union(*self.branches("UNION ALL", list(_listed(query)), prefix))
            case ast.SetOperation(operator, left, right):
                columns, plans = self.branches(operator, [left, right], prefix)
                if operator == "UNION":
                    return Distinct(Union(columns, plans))
                combined = SetOperation(_SET_KINDS[operator], columns, *plans)
                _check_height(combined, query.span)
                return combined
            case ast.Changes(kind, inner, column):
                self.refuse_column_as_changes(inner, column)
                whole = self.query(inner, prefix)
                # All rows at every instant, RSTREAM, is what a result is.
                return whole if kind == "RSTREAM" else Changes("insert" if kind == "ISTREAM" else "delete", whole)
            case ast.Ordered(inner, limit=None) if not self.names.stored:
                Binder(self.names).query(replace(query, limit=1), prefix)  # its order must be one, and is not kept
                return self.query(inner, prefix)
            case ast.Ordered() if not (query.is_top or self.names.stored):
                message = f"{query.lacking} is not supported"
                raise BindError(message, code="not-supported", hint=ast.ORDER_HINT, span=query.clause)
            case ast.Ordered(ast.Select() as select):
                return self.select(select, prefix, top=query)  # it may be ordered by what it does not list
            case ast.Ordered(inner):
                whole = self.query(inner, prefix)
                return _first_rows(query, schema(whole), (), whole)
            case ast.With(tables, body):
                with self.names_of(tables):
                    return self.query(body, prefix)
            case _:
                assert_never(query)

    def refuse_intervals(self, plan: Plan, query: ast.Query) -> None:
        """A subquery may have columns that are INTERVALs, a result may not: it has no such type."""
        for column in schema(plan):
            if column.type == INTERVAL:
                output = self.intervals.get(column.name)
                span = query.span if output is None else output.span
                value = column.name if output is None else output.node.text
                value = value if len(value) <= MAX_HINTED and value.isprintable() and value != "*" else column.name
                hint = f"Write epoch({value}) for its seconds."
                message = f'output column "{column.name}" cannot be an INTERVAL'
                raise BindError(message, code="interval-output", hint=hint, span=span)

    def add_notices(self, plan: Plan) -> None:
        """Raise the notices of the plan of a query, unless it is very large."""
        if sum(1 for _ in islice(walk(plan), MAX_NOTICED_NODES + 1)) > MAX_NOTICED_NODES:
            return
        for notice in query_notices(plan, self.unwindowed, self.names.catalog):
            self.names.catalog.notices.add(notice)

    def stored_plan(self, stream: DerivedStream, name: ast.Identifier) -> Plan:
        """The query behind a name. Where a statement is executed at once, its own materialized views are scans, too:
        a view is bound again then, from its text."""
        if not self.names.stored or self.names.is_local(stream):
            return stream.plan
        if not stream.is_view:
            raise not_stored(name, stream)
        query = parse_one(stream.text)
        assert isinstance(query, ast.Query), "the text of a view is a query"
        try:
            plan, _ = bind_reading(query, self.names.catalog, stored=True)
        except BindError as error:  # it points into the text of the view, which the statement does not show
            raise BindError(error.message, code=error.code, hint=error.hint, span=name.span) from None
        columns = tuple(ast.Identifier(column.name, True, span=name.span) for column in schema(stream.plan))
        return with_names(plan, columns, f'view "{stream.name}"')

    def refuse_column_as_changes(self, query: ast.Query, column: ast.Identifier | None) -> None:
        """`SELECT istream a FROM s` must not change its meaning where s has such a column."""
        if column is None or not isinstance(query, ast.Select):
            return
        _, scope = bind_tables(Binder(self.names), query.tables)
        if scope.matches(column):
            word = column.name.upper()
            hint = f"Write SELECT {word}(…) for the changes, or {column.name} AS … for the column."
            raise column.error(f'"{column.name}" is ambiguous: it is the name of a column', "ambiguous-column", hint)

    @contextmanager
    def names_of(self, tables: tuple[ast.CommonTable, ...]) -> Iterator[None]:
        """Bind with the names of the queries of a WITH. Each of these has ids of its own; every use makes new ones."""
        around = self.names
        for number, table in enumerate(tables):
            binder = Binder(self.names.inside(tables, number))
            plan = binder.query(table.query, prefix="")
            binder.add_notices(plan)
            self.names = self.names.with_query(table, plan)
        yield
        self.names = around

    def branches(
        self, operator: str, queries: list[ast.Query], prefix: str
    ) -> tuple[tuple[Column, ...], tuple[Plan, ...]]:
        """What a set operator combines: the columns of its output, and its operands with columns of these types."""
        plans = [
            self.select(query, prefix, in_union=True) if isinstance(query, ast.Select) else self.query(query, prefix)
            for query in queries
        ]
        schemas = [schema(plan) for plan in plans]
        for query, columns in zip(queries, schemas, strict=True):
            if len(columns) != len(schemas[0]):
                hint = "Select the same number of columns in each branch."
                message = f"each {operator} branch must have {len(schemas[0])} columns, found {len(columns)}"
                raise query.error(message, "union-columns", hint)
        kinds = [
            self.branch_type(operator, queries, position, column)
            for position, column in enumerate(zip(*schemas, strict=True))
        ]
        columns = tuple(
            Column(self.ids.fresh(prefix + first.name), first.name, kind)
            for first, kind in zip(schemas[0], kinds, strict=True)
        )
        return columns, tuple(self.retyped(plan, kinds) for plan in plans)

    def branch_type(self, operator: str, queries: list[ast.Query], position: int, columns: tuple[Column, ...]) -> Type:
        kinds = [column.type for column in columns]
        for count in range(2, len(kinds) + 1):
            if meet(kinds[:count]) is None:
                query = queries[count - 1]
                place: ast.Node = query
                if isinstance(query, ast.Select) and not any(isinstance(item.value, ast.Star) for item in query.items):
                    place = query.items[position]
                message = f'{operator} types {kinds[0]} and {kinds[count - 1]} of "{columns[0].name}" differ'
                raise place.error(message, "union-types", "CAST one of them to the type of the other.")
        kind = meet(kinds)
        assert kind is not None, "every prefix of the branches has a common type, so all of them have"
        return kind

    def retyped(self, plan: Plan, kinds: list[Type]) -> Plan:
        """The plan with its columns cast to `kinds`."""
        if [column.type for column in schema(plan)] == kinds:
            return plan
        match plan:
            case Map(outputs, source):
                changed = zip(outputs, kinds, strict=True)
                return Map(tuple((replace(c, type=kind), cast_to(value, kind)) for (c, value), kind in changed), source)
            case Distinct(source) if all(c.type in (NULL, kind) for c, kind in zip(schema(plan), kinds, strict=True)):
                return Distinct(self.retyped(source, kinds))
        # Above a Distinct: two values may become equal by the cast, and are two rows all the same.
        pairs = zip(schema(plan), kinds, strict=True)
        outputs = tuple(
            (Column(self.ids.fresh(c.id), c.name, kind), cast_to(ColumnRef(c.id, c.type), kind)) for c, kind in pairs
        )
        return Map(outputs, plan)

    def select(
        self, select: ast.Select, prefix: str, *, in_union: bool = False, top: ast.Ordered | None = None
    ) -> Plan:
        """The plan of one SELECT, of which only the first rows in an order if there is a `top`.

        In a UNION ALL a bare NULL keeps its open type until the branches meet.
        """
        select = with_derived_windows(rescaled(select), self.names)
        self.select_span = select.span
        source, scope = bind_tables(self, select.tables)
        outputs = output_columns(select.items, scope)
        source = self.where(write_out_aliases(select.where, outputs, scope), source, scope)
        hidden = [] if top is None else [i.value for i in top.order if not is_listed(i.value, outputs)]
        functions = WindowFunctions(self.ids)
        nodes = [*(output.node for output in outputs), *hidden]
        source, values, qualify = self.above_where(select, nodes, outputs, source, scope, functions)
        source = filtered(plan_window_functions(functions, source, self), qualify)
        _check_height(source, select.span)
        columns = []
        for output, value in zip(outputs, values, strict=False):
            if value.type == INTERVAL:
                self.intervals[output.name] = output
            kept = value if in_union or value.type != NULL else cast_to(value, VARCHAR)
            columns.append((Column(self.ids.fresh(prefix + output.name), output.name, kept.type), kept))
        order_values = values[len(outputs) :]
        order = [(Column(self.ids.fresh("order"), "order", value.type), value) for value in order_values]
        plan = decorrelate(Map((*columns, *order), source), self.ids)
        plan = Distinct(plan) if select.distinct else plan
        if top is not None:
            plan = _first_rows(top, [column for column, _ in columns], [column for column, _ in order], plan)
        _check_height(plan, select.span if top is None else top.span)
        return plan

    # ---- the clauses of a SELECT -------------------------------------------------------------------------------------

    def where(self, node: ast.Expression | None, source: Plan, scope: Scope) -> Plan:
        """The source under a condition. Correlated predicates, which read columns of the outer queries, come last."""
        if node is None:
            return source
        parts = node.operands if isinstance(node, ast.Logical) and node.operator == "AND" else (node,)
        tests = [part for part in parts if is_match_test(part)]
        scalars, match_scalars = (ClauseScalars(self, scope, "WHERE") for _ in range(2))
        conditions = [scalars.condition(part) for part in parts if part not in tests]
        for part in tests:
            match_scalars.keep(part)
        outer = scope.outer_ids()
        own = conjunction(condition for condition in conditions if not columns_of(condition) & outer)
        correlated = conjunction(condition for condition in conditions if columns_of(condition) & outer)
        return filtered(match_scalars.over(filtered(scalars.over(source), own)), correlated)

    def above_where(
        self,
        select: ast.Select,
        nodes: list[ast.Expression],
        outputs: list[Output],
        source: Plan,
        scope: Scope,
        functions: WindowFunctions | None = None,
    ) -> tuple[Plan, list[Expression], Expression | None]:
        """The rows that a SELECT lists, the values of some expressions over them, and the condition of QUALIFY."""
        qualify = None if select.qualify is None else over_outputs(select.qualify, outputs, scope)
        if not is_grouping(select):
            scalars = ClauseScalars(self, scope, "SELECT", functions)
            values = [scalars.bind(node) for node in nodes]
            condition = None if qualify is None else scalars.condition(qualify, "QUALIFY")
            return scalars.over(source), values, condition
        groups = Groups(self.ids, scope)
        for keys in grouping_sets(select.group_by):
            groups.sets.append(tuple(groups.add_key(node, outputs) for node in keys))
        select_scalars, having_scalars, qualify_scalars = (
            GroupScalars(self, groups, clause, allowed)
            for clause, allowed in (("SELECT", functions), ("HAVING", None), ("QUALIFY", functions))
        )
        values = [select_scalars.value(node) for node in nodes]
        condition_of_groups = write_out_aliases(select.having, outputs, scope)
        having = conjunction(() if condition_of_groups is None else (having_scalars.truth(condition_of_groups),))
        condition = None if qualify is None else qualify_scalars.truth(qualify)
        plan = filtered(having_scalars.over(groups.plan(source)), having)
        return qualify_scalars.over(select_scalars.over(plan)), values, condition

    def subquery(self, query: ast.Query, outer: Scope) -> tuple[Plan, list[Operand]]:
        """A subquery in an expression: its rows, and its outputs over them. What combines queries, takes the first
        rows or has window functions is bound on its own: it has no outer references."""
        if isinstance(query, ast.With):
            with self.names_of(query.tables):
                return self.subquery(query.body, outer)
        if not isinstance(query, ast.Select) or has_window_functions(query):
            plan = self.query(query, prefix="")
            return plan, [Operand(ColumnRef(c.id, c.type), query.span) for c in schema(plan)]
        self.subqueries += 1
        if self.subqueries > MAX_SUBQUERIES:
            hint = "IN, ANY and ALL outside a top-level AND expand to two joins each; nest fewer."
            raise query.error("the plan of the nested subqueries is too large", "too-large", hint)
        query = with_derived_windows(query, self.names)
        self.select_span = query.span
        source, scope = bind_tables(self, query.tables)
        scope = replace(scope, outer=outer)
        outputs = output_columns(query.items, scope)
        source = self.where(write_out_aliases(query.where, outputs, scope), source, scope)
        nodes = [output.node for output in outputs]
        source, values, _ = self.above_where(query, nodes, outputs, source, scope)
        listed = zip(nodes, values, strict=True)
        return source, [Operand(value, node.span, isinstance(node, ast.Text)) for node, value in listed]


def _first_rows(top: ast.Ordered, columns: Sequence[Column], order_columns: Sequence[Column], plan: Plan) -> Plan:
    """The first rows of a query; `order_columns` are those of ORDER BY that it does not list."""
    if order_columns and isinstance(plan, Distinct):
        hint = "Order by an output column."
        message = "for SELECT DISTINCT, ORDER BY expressions must appear in the select list"
        raise top.error(message, "order-by-output", hint)
    named, hidden = [(column.name, column) for column in columns], iter(order_columns)
    keys = []
    for item in top.order:
        column = listed_column(item.value, named) or next(hidden, None)
        if column is None:
            hint = "Order by an output column or its position."
            raise item.error("ORDER BY expression is not in the select list", "order-by-output", hint)
        keys.append(sort_key(item, ColumnRef(column.id, column.type)))
    first = TopRows((), tuple(keys), ALL_ROWS if top.limit is None else top.limit, plan)
    return Map(pass_on(columns), first) if order_columns else first


def _listed(union: ast.UnionAll) -> Iterator[ast.Query]:
    """The queries of a UNION ALL in order; nesting does not matter, bags are added in any grouping."""
    pending: list[ast.Query] = [union]
    while pending:
        query = pending.pop()
        if isinstance(query, ast.UnionAll):
            pending.extend(reversed(query.branches))
        else:
            yield query


def _check_height(plan: Plan, span: Span) -> None:
    pending = [(plan, 1)]
    while pending:
        node, height = pending.pop()
        if height > MAX_PLAN_HEIGHT:
            message = f"the plan is deeper than {MAX_PLAN_HEIGHT} operators"
            hint = "Join fewer streams in one query, or nest fewer named queries."
            raise BindError(message, code="too-deep", hint=hint, span=span)
        pending.extend((child, height + 1) for child in sources(node))
