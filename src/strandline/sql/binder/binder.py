"""Names and types resolved: syntax tree to algebra.

Every column gets an id that no other column of the plan has. Ids are readable: `b.price` is the price of the stream
called b in FROM, a computed column has the name of the output, and `#2` marks the second of a kind. The one place
where an id appears again is the Map below an Aggregate, which passes columns on under the ids that they had.

The shape of a SELECT is always the same, from the bottom: scans and joins, Filter (WHERE) and the joins of its
subqueries, then if it groups Map (keys and arguments), Aggregate and Filter (HAVING), and on top the Map of the output
columns and a Distinct.

The rooms below, each with one question: `scope` (what does a name mean), `names` (and in FROM), `literals` (what value
is written), `scalars` (what does an expression mean), `aggregates` (what does an aggregate see), `subqueries` (who has
a partner), `reach` (and who further out), `outputs` (what does SELECT list), `groups` (what does GROUP BY keep),
`having` (and of that HAVING), `scaled` (for how many rows does one stand), `ranks` (which place has a row), `windows`
(how long do rows count), `validity` (from when until when), `copies` (a named query, used again).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, assert_never

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, DOUBLE, INTERVAL, NULL, VARCHAR, Column, Type
from strandline.functions.signatures import meet
from strandline.logical.catalog import WEIGHT, BaseStream, Catalog, DerivedStream
from strandline.logical.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from strandline.logical.plan import (
    Changes,
    Distinct,
    Filter,
    Join,
    Map,
    OuterJoin,
    Plan,
    Scan,
    SemiJoin,
    SetKind,
    SetOperation,
    TopRows,
    Union,
)
from strandline.logical.schema import schema
from strandline.logical.tree import size, sources
from strandline.sql import ast
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.binder.decorrelate import Reach, Rows
from strandline.sql.binder.expressions import Operand, Scalars, equality
from strandline.sql.binder.grouping import Groups, grouping_key, grouping_sets, is_grouping
from strandline.sql.binder.having import Grouped
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.names import Names, with_names
from strandline.sql.binder.rename_columns import freshened
from strandline.sql.binder.scaled_aggregates import not_weighted, rescaled
from strandline.sql.binder.scope import Ids, Relation, Scope, suggestion
from strandline.sql.binder.select_list import Output, is_listed, listed_column, output_columns, sort_key
from strandline.sql.binder.subqueries import Subqueries, is_partner_test
from strandline.sql.binder.validity import Validity, validity
from strandline.sql.binder.window_functions import Ranks, is_ranking, over_outputs
from strandline.sql.binder.windows import granular, windowed

# Every later phase walks plans recursively; this keeps the walks well inside of Python's stack.
MAX_PLAN_HEIGHT: Final = 100
# What a statement may take over from the queries behind its streams, in nodes of plans and expressions.
MAX_INLINED: Final = 20_000
# IN, ANY and ALL as values are two questions, and so are those inside of them: they double with every level.
MAX_SUBQUERIES: Final = 400

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


def bind_reading(query: ast.Query, catalog: Catalog) -> tuple[Plan, frozenset[str]]:
    """The plan of a query, and the streams and views that its text names."""
    names = Names(catalog)
    plan = _Binder(names).query(with_definitions(query, catalog.functions, catalog.allow), prefix="")
    return plan, frozenset(names.reads)


def bind_derived_stream(statement: ast.CreateStreamAs, catalog: Catalog) -> DerivedStream:
    """The stream that `CREATE STREAM name AS query` declares."""
    plan, reads = bind_reading(statement.query, catalog)
    shedding = None if statement.shedding is None else statement.shedding.most
    return DerivedStream(statement.name.name, plan, statement.query.text, reads, shedding=shedding)


def bind_view(statement: ast.CreateView, catalog: Catalog) -> DerivedStream:
    """The view that `CREATE VIEW name AS query` declares."""
    plan, reads = bind_reading(statement.query, catalog)
    name = statement.name.name
    plan = with_names(plan, statement.columns, f'view "{name}"')
    return DerivedStream(name, plan, statement.query.text, reads, is_view=True)


# ---- queries ---------------------------------------------------------------------------------------------------------


class _Binder:
    """Binds one statement: the ids of all its parts come from one source."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.ids = Ids()
        self.inlined = 0
        self.subqueries = 0

    def query(self, query: ast.Query, prefix: str) -> Plan:
        """The plan of a query whose output columns get ids that begin with `prefix`."""
        match query:
            case ast.Select():
                return self.select(query, prefix)
            case ast.UnionAll():
                return self.union(query, prefix)
            case ast.SetOperation(operator, left, right):
                columns, plans = self.branches(operator, [left, right], prefix)
                if operator == "UNION":
                    return Distinct(Union(columns, plans))
                plan = SetOperation(_SET_KINDS[operator], columns, *plans)
                _check_height(plan, query.span)
                return plan
            case ast.Changes(kind, inner, column):
                self.refuse_column_as_changes(inner, column)
                whole = self.query(inner, prefix)
                # All rows at every instant, RSTREAM, is what an answer is.
                return whole if kind == "RSTREAM" else Changes("insert" if kind == "ISTREAM" else "delete", whole)
            case ast.Ordered():
                return self.ordered(query, prefix)
            case ast.With(tables, body):
                with self.named(tables):
                    return self.query(body, prefix)
            case _:
                assert_never(query)

    def refuse_column_as_changes(self, query: ast.Query, column: ast.Identifier | None) -> None:
        """`SELECT istream a FROM s` must not change its meaning where s has such a column."""
        if column is None or not isinstance(query, ast.Select):
            return
        _, scope = _Binder(self.names).tables(query.tables)
        if scope.matches(column):
            word = column.name.upper()
            raise BindError(
                f'"{column.name}" is ambiguous: it is the name of a column',
                code="ambiguous-column",
                hint=f"Write SELECT {word}(…) for the changes, or {column.name} AS … for the column.",
                span=column.span,
            )

    def ordered(self, query: ast.Ordered, prefix: str) -> Plan:
        """The first rows of a query. What it is ordered by need not be among its columns."""
        if isinstance(query.query, ast.Select):
            return self.select(query.query, prefix, top=query)
        plan = self.query(query.query, prefix)
        keys = []
        for item in query.order:
            column = listed_column(item.value, [(c.name, c) for c in schema(plan)])
            if column is None:
                raise BindError(
                    "ORDER BY expression is not in the select list",
                    code="order-by-output",
                    hint="Order by an output column or its position.",
                    span=item.span,
                )
            keys.append(sort_key(item, ColumnRef(column.id, column.type)))
        return TopRows((), tuple(keys), query.limit, plan)

    def named(self, tables: tuple[ast.CommonTable, ...]) -> AbstractContextManager[None]:
        """Within it the queries of a WITH have their names. Each has ids of its own; every use makes new ones."""
        return self.names.within(tables, lambda query: _Binder(self.names).query(query, prefix=""))

    def union(self, union: ast.UnionAll, prefix: str) -> Plan:
        columns, plans = self.branches("UNION ALL", list(_listed(union)), prefix)
        return Union(columns, plans)

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
                raise BindError(
                    f"each {operator} branch must have {len(schemas[0])} columns, found {len(columns)}",
                    code="union-columns",
                    hint="Select the same number of columns in each branch.",
                    span=query.span,
                )
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
        for count in range(2, len(columns) + 1):
            if meet([column.type for column in columns[:count]]) is None:
                query = queries[count - 1]
                listed = isinstance(query, ast.Select) and not any(isinstance(i.value, ast.Star) for i in query.items)
                raise BindError(
                    f'{operator} types {columns[0].type} and {columns[count - 1].type} of "{columns[0].name}" differ',
                    code="union-types",
                    hint="CAST one of them to the type of the other.",
                    span=query.items[position].span if isinstance(query, ast.Select) and listed else query.span,
                )
        kind = meet([column.type for column in columns])
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
        select = rescaled(select)
        source, scope = self.tables(select.tables)
        rows = self.where(select.where, source, scope)
        assert not rows.ties, "a query of its own has none around it"
        outputs = output_columns(select.items, scope)
        hidden = [] if top is None else [i.value for i in top.order if not is_listed(i.value, outputs)]
        ranks = Ranks(self.ids)
        qualify = None if select.qualify is None else over_outputs(select.qualify, outputs, scope)
        if is_grouping(select):
            grouped = self.grouped(select, [*(o.node for o in outputs), *hidden], outputs, rows, scope, ranks)
            groups, listed = grouped.groups, grouped.in_list
            wanted = None if qualify is None else groups.condition(qualify, "QUALIFY", listed.value, ranks)
            grouped.complete(rows, select.span)
            source, values = rows.plan(None), grouped.values
        else:
            asked = Subqueries(self, rows.reach)
            scalars = Scalars(
                scope, "SELECT", subquery=asked.value, rank=lambda node, inner: ranks.place(node, inner.bind)
            )
            values = [scalars.bind(node) for node in (*(o.node for o in outputs), *hidden)]
            wanted = None if qualify is None else scalars.condition(qualify, "QUALIFY")
            source = asked.joined(rows.plan(None))
        source = ranks.plan(source)
        source = source if wanted is None else Filter(wanted, source)
        columns = []
        for output, value in zip(outputs, values, strict=False):
            if value.type == INTERVAL:
                hint = "Write epoch(later) - epoch(earlier) for seconds."
                raise BindError(
                    f'output column "{output.name}" cannot be an INTERVAL',
                    code="interval-output",
                    hint=hint,
                    span=output.span,
                )
            kept = value if in_union or value.type != NULL else cast_to(value, VARCHAR)
            columns.append((Column(self.ids.fresh(prefix + output.name), output.name, kept.type), kept))
        if top is not None:
            return self.top(top, select, outputs, columns, values[len(outputs) :], source)
        plan: Plan = Map(tuple(columns), source)
        plan = Distinct(plan) if select.distinct else plan
        _check_height(plan, select.span)
        return plan

    def top(
        self,
        top: ast.Ordered,
        select: ast.Select,
        outputs: list[Output],
        columns: list[tuple[Column, Expression]],
        hidden: list[Expression],
        source: Plan,
    ) -> Plan:
        """The first rows of a SELECT; `hidden` are the values of ORDER BY that it does not list."""
        more = [(Column(self.ids.fresh("order"), "order", value.type), value) for value in hidden]
        if more and select.distinct:
            raise BindError(
                "for SELECT DISTINCT, ORDER BY expressions must appear in the select list",
                code="order-by-output",
                hint="Order by an output column.",
                span=top.span,
            )
        plan: Plan = Map((*columns, *more), source)
        plan = Distinct(plan) if select.distinct else plan
        named = [(output.name, column) for output, (column, _) in zip(outputs, columns, strict=True)]
        rest = iter(more)
        keys = []
        for item in top.order:
            column = listed_column(item.value, named) or next(rest)[0]
            keys.append(sort_key(item, ColumnRef(column.id, column.type)))
        plan = TopRows((), tuple(keys), top.limit, plan)
        if more:
            plan = Map(tuple((column, ColumnRef(column.id, column.type)) for column, _ in columns), plan)
        _check_height(plan, top.span)
        return plan

    # ---- WHERE -----------------------------------------------------------------------------------------------------

    def where(self, node: ast.Expression | None, source: Plan, scope: Scope) -> Rows:
        """The source under a condition; the parts of it that read columns of the queries around are ties."""
        reach = Reach(self.ids, scope)
        if node is None:
            return Rows(source, reach)
        parts = node.operands if isinstance(node, ast.Logical) and node.operator == "AND" else (node,)
        joined = [part for part in parts if is_partner_test(part)]
        asked, last = Subqueries(self, reach), Subqueries(self, reach)
        scalars = Scalars(scope, "WHERE", subquery=asked.value)
        conditions = [scalars.condition(part) for part in parts if part not in joined]
        correlated = [each for each in conditions if columns_of(each) & reach.around]
        own = [each for each in conditions if each not in correlated]
        condition = conjunction(tuple(own))
        for part in joined:
            last.keep(part, Scalars(scope, "WHERE", subquery=last.value))

        def kept(plan: Plan) -> Plan:
            plan = asked.joined(plan)
            return last.joined(plan if condition is None else Filter(condition, plan))

        return Rows(source, reach, correlated, own, kept)

    def inner(self, query: ast.Query, around: Scope) -> tuple[Rows, list[Operand]]:
        """A subquery in an expression, and its outputs over its rows. What combines queries or takes the first rows is
        bound on its own: it reads nothing of the queries around it."""
        if isinstance(query, ast.With):
            with self.named(query.tables):
                return self.inner(query.body, around)
        if not isinstance(query, ast.Select) or is_ranking(query):
            plan = self.query(query, prefix="")
            alone = Rows(plan, Reach(self.ids, Scope(())))
            return alone, [Operand(ColumnRef(c.id, c.type), query.span) for c in schema(plan)]
        rows, scope = self.below(query, around)
        outputs = output_columns(query.items, scope)
        nodes = [output.node for output in outputs]
        if is_grouping(query):
            grouped = self.grouped(query, nodes, outputs, rows, scope)
            grouped.complete(rows, query.span)
            values = grouped.values
        else:
            asked = Subqueries(self, rows.reach)
            scalars = Scalars(scope, "SELECT", subquery=asked.value)
            values = [scalars.bind(node) for node in nodes]
            rows.above = lambda plan, _: asked.joined(plan)
        listed = zip(nodes, values, strict=True)
        return rows, [Operand(value, node.span, isinstance(node, ast.Text)) for node, value in listed]

    def below(self, select: ast.Select, around: Scope) -> tuple[Rows, Scope]:
        """A subquery up to its WHERE, and what it can name."""
        self.subqueries += 1
        if self.subqueries > MAX_SUBQUERIES:
            raise BindError(
                "the plan of the nested subqueries is too large",
                code="too-large",
                hint="IN, ANY and ALL outside a top-level AND expand to two joins each; nest fewer.",
                span=select.span,
            )
        source, scope = self.tables(select.tables)
        scope = replace(scope, outer=around)
        return self.where(select.where, source, scope), scope

    # ---- FROM ------------------------------------------------------------------------------------------------------

    def tables(self, tables: tuple[ast.Table, ...]) -> tuple[Plan, Scope]:
        """A comma list: all pairs, left-deep; the optimizer moves conditions from WHERE to where they belong."""
        plan, scope = self.table(tables[0])
        for table in tables[1:]:
            right, added = self.table(table)
            plan, scope = Join(None, plan, right), scope.joined(added)
        return plan, scope

    def table(self, table: ast.Table) -> tuple[Plan, Scope]:
        match table:
            case ast.StreamTable():
                return self.stream_table(table)
            case ast.QueryTable(query, window, alias, granularity):
                plan = self.query(query, prefix=f"{alias.name}.")
                scope = Scope((Relation(alias.name, schema(plan), None, alias.span),))
                plan = windowed(plan, window, f'subquery "{alias.name}"', scope)
                return granular(plan, granularity), scope
            case ast.Join():
                return self.join(table)
            case _:
                assert_never(table)

    def join(self, join: ast.Join) -> tuple[Plan, Scope]:
        left, left_scope = self.table(join.left)
        right, right_scope = self.table(join.right)
        scope = left_scope.joined(right_scope)
        shared = join.using or (_shared(left_scope, right_scope, join.span) if join.natural else ())
        pairs = [(_of_side(left_scope, name, "left"), _of_side(right_scope, name, "right")) for name in shared]
        if shared:
            predicate = conjunction(
                tuple(equality(one, two, name.span) for (one, two), name in zip(pairs, shared, strict=True))
            )
        else:
            predicate = None if join.condition is None else Scalars(scope, "ON").condition(join.condition)
        plan = _joined(join.kind, predicate, left, right)
        if join.kind in ("SEMI", "ANTI"):
            return plan, left_scope
        if not shared:
            return plan, scope
        plan, merged = self.merged(join.kind, plan, pairs)
        return plan, scope.using(left_scope, right_scope, merged, join.span)

    def merged(
        self, kind: str | None, plan: Plan, pairs: list[tuple[Column, Column]]
    ) -> tuple[Plan, tuple[Column, ...]]:
        """The columns that stand for the shared ones: those of the side that always has them, or either."""
        if kind != "FULL":
            return plan, tuple(two if kind == "RIGHT" else one for one, two in pairs)
        added: list[tuple[Column, Expression]] = []
        for one, two in pairs:
            type_ = meet([one.type, two.type])
            assert type_ is not None, "columns that can be compared have a common type"
            values = tuple(cast_to(ColumnRef(c.id, c.type), type_) for c in (one, two))
            added.append((Column(self.ids.fresh(one.name), one.name, type_), Call("coalesce", values, type_)))
        kept: list[tuple[Column, Expression]] = [(c, ColumnRef(c.id, c.type)) for c in schema(plan)]
        return Map((*kept, *added), plan), tuple(column for column, _ in added)

    def stream_table(self, table: ast.StreamTable) -> tuple[Plan, Scope]:
        stream = self.names.get(table.name)
        label = table.alias or table.name
        alias = table.alias.name if table.alias else stream.name
        plan: Plan
        time = None
        valid: Validity = (None, None)
        match stream:
            case BaseStream():
                known = (*stream.columns, (WEIGHT, DOUBLE)) if table.weighted else stream.columns
                columns = tuple(Column(self.ids.fresh(f"{alias}.{name}"), name, kind) for name, kind in known)
                plan = Scan(stream.name, alias, columns, stream.has_intervals)
                time = next((column.id for column in columns if column.name == stream.time_column), None)
                valid = validity(stream, columns, table)
            case DerivedStream() if table.weighted:
                raise not_weighted(table)
            case DerivedStream():
                self.take_over(stream, table.span)
                inlined = freshened(stream.plan, self.ids.fresh)
                renamed = tuple(
                    (Column(self.ids.fresh(f"{alias}.{c.name}"), c.name, c.type), ColumnRef(c.id, c.type))
                    for c in schema(inlined)
                )
                plan = Map(renamed, inlined)
            case _:
                assert_never(stream)
        scope = Scope((Relation(alias, schema(plan), stream.name, label.span, time_column=time, validity=valid),))
        what = "query" if self.names.is_local(stream) else stream.word
        plan = windowed(plan, table.window, f'{what} "{stream.name}"', scope)
        return granular(plan, table.granularity), scope

    def take_over(self, stream: DerivedStream, span: Span) -> None:
        """Count what comes from behind a name: queries that read others twice double with every level."""
        self.inlined += size(stream.plan)
        if self.inlined > MAX_INLINED:
            raise BindError(
                "the plan of the queries behind these streams is too large",
                code="too-large",
                hint="Each reference to a derived stream expands to its query; refer to it less often.",
                span=span,
            )

    # ---- GROUP BY --------------------------------------------------------------------------------------------------

    def group_key(self, node: ast.Expression, groups: Groups, outputs: list[Output], scalars: Scalars) -> Expression:
        key, name = grouping_key(node, outputs, scalars.scope)
        return groups.add_key(scalars.bind(key), name)

    def grouped(
        self,
        select: ast.Select,
        nodes: list[ast.Expression],
        outputs: list[Output],
        rows: Rows,
        scope: Scope,
        ranks: Ranks | None = None,
    ) -> Grouped:
        """The groups up to HAVING, and the values of some expressions over its columns."""
        groups = Groups(self.ids, scope)
        scalars = Scalars(scope, "GROUP BY")
        for chosen in grouping_sets(select.group_by):
            groups.sets.append(tuple(self.group_key(node, groups, outputs, scalars) for node in chosen))
        listed, asked = (Subqueries(self, rows.reach, groups.regrouped) for _ in range(2))
        values = [groups.bind(node, "SELECT", listed.value, ranks) for node in nodes]
        having: tuple[Expression, ...] = ()
        if select.having is not None:
            having = conjuncts(groups.condition(select.having, "HAVING", asked.value))
        return Grouped(groups, values, having, asked, listed)


def _joined(kind: str | None, predicate: Expression | None, left: Plan, right: Plan) -> Plan:
    always = Literal(True, BOOLEAN) if predicate is None else predicate
    match kind:
        case "LEFT" | "FULL":
            return OuterJoin(kind == "FULL", always, left, right)
        case "RIGHT":  # columns go by their ids, so it is a left join from the other side
            return OuterJoin(False, always, right, left)
        case "SEMI" | "ANTI":
            return SemiJoin(kind == "ANTI", predicate, left, right)
    return Join(predicate, left, right)


def _shared(left: Scope, right: Scope, span: Span) -> tuple[ast.Identifier, ...]:
    """The names that NATURAL finds on both sides, in the order of the left."""
    theirs = {column.name.lower() for relation in right.relations for column in relation.visible}
    mine = dict.fromkeys(c.name for relation in left.relations for c in relation.visible)
    return tuple(ast.Identifier(name, True, span=span) for name in mine if name.lower() in theirs)


def _of_side(scope: Scope, name: ast.Identifier, side: str) -> Column:
    found = scope.matches(name)
    if len(found) == 1:
        return found[0][1]
    if found:
        raise BindError(
            f'column "{name.name}" is ambiguous on the {side} side of the join',
            code="ambiguous-column",
            hint="Write the condition with ON.",
            span=name.span,
        )
    names = [column.name for relation in scope.relations for column in relation.visible]
    raise BindError(
        f'column "{name.name}" does not exist on the {side} side of the join',
        code="unknown-column",
        hint=suggestion(name.name, names, "Columns are"),
        span=name.span,
    )


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
            raise BindError(
                f"the plan is deeper than {MAX_PLAN_HEIGHT} operators",
                code="too-deep",
                hint="Join fewer streams in one query, or nest fewer named queries.",
                span=span,
            )
        pending.extend((child, height + 1) for child in sources(node))
