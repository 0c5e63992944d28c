"""Translation of a continuous query at one instant to a plain query of an oracle.

The syntax tree is followed as it is written: joins stay joins, subqueries stay subqueries, and the database resolves
them itself. Only a stream with a window is replaced, by the rows that the window holds at the instant:

    no window, NOW            at = t
    RANGE r SLIDE s           T - r <= at < T,  T the last multiple of s up to t + 1
    ROWS n SLIDE s            of the c rows up to t, by time and then by arrival, those with T - n < number <= T,
                              T the last multiple of s up to c; PARTITION BY: of each partition
    SESSION g                 the rows up to t behind the last pause of g or more

A window over a query needs the results of that query at all its instants: they are put into a table first, a *stage*.
Changes since the instant before contain the query twice. Columns are called c1, c2, … everywhere, so that user names
never collide with those of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, assert_never

from strandline.apps.verify import sql_text
from strandline.apps.verify.dataset import Dataset, NameScope, Times
from strandline.apps.verify.dialect import Aggregated, Dialect
from strandline.apps.verify.instants import element_instants
from strandline.apps.verify.sql_text import SqlText, sort_direction
from strandline.core.errors import Span
from strandline.core.types import BIGINT, BOOLEAN, NULL, VARCHAR, Column, Schema
from strandline.functions.aggregates import AggregateFunction
from strandline.functions.signatures import meet
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import ColumnRef, Expression, children
from strandline.logical.properties.temporal import keeps_arrival_order
from strandline.logical.schema import schema
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.aggregates import bind_aggregate
from strandline.sql.binder.expressions import Operand, Scalars, Subquery, call, equality
from strandline.sql.binder.grouping import grouping_key
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.binder.select_list import Output, output_columns
from strandline.sql.binder.window_functions import over_outputs
from strandline.sql.binder.windows import is_identity

INSTANT: Final = "moment.t"


@dataclass(frozen=True, slots=True)
class TranslatedStage:
    """A table to create first: `body` at some instants; `ordered` if it has the order of arrival."""

    table: str
    instants: Times
    body: SqlText
    ordered: bool


@dataclass(frozen=True, slots=True)
class Translation:
    """Translates one query, or a part of it in another scope or at another instant; `stages` are the tables that it
    needs, in order. All parts share the stages and the names that are taken."""

    dataset: Dataset
    name_scope: NameScope
    dialect: Dialect
    now: str = INSTANT  # the instant that the part at hand is about
    stages: list[TranslatedStage] = field(default_factory=list)
    _staged: dict[int, TranslatedStage] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    # ---- queries ---------------------------------------------------------------------------------------------------

    def query(self, query: ast.Query, outer: Scope | None = None, *, ordered: bool = False) -> SqlText:
        """The query at the instant; `ordered` adds a column with the order of arrival."""
        match query:
            case ast.Select():
                return self.select(query, outer, ordered)
            case ast.UnionAll(branches):
                texts = self.branches(query, branches)
                return SqlText(" UNION ALL ".join(f"({text.sql})" for text in texts), texts[0].columns)
            case ast.SetOperation(operator, left, right):
                one, two = self.branches(query, (left, right))
                return SqlText(sql_text.set_operation(operator, one, two), one.columns)
            case ast.Changes(kind, inner):
                return self.query(inner, ordered=ordered) if kind == "RSTREAM" else self.changes(kind, inner)
            case ast.Ordered(inner, order, limit):
                assert limit is not None, "the binder refuses an order of a continuous result"
                return self.first_rows(inner, order, limit)
            case ast.With(_, body):
                return replace(self, name_scope=self.name_scope.inside(query)).query(body, outer, ordered=ordered)
            case _:
                assert_never(query)

    def at_other_instant(self, now: str, make: Callable[[Translation], SqlText]) -> SqlText:
        """A part at another instant, which may lie before the first row of all: then there is nothing."""
        body = make(replace(self, now=now))
        begins = "FALSE" if self.dataset.begins is None else f"{now} >= {self.dataset.begins}"
        return SqlText(f"SELECT w.* FROM ({body.sql}) AS w WHERE {begins}", body.columns)

    def changes(self, kind: str, query: ast.Query) -> SqlText:
        """Insertions or deletions since the instant before."""
        now = self.query(query)
        before = self.at_other_instant(f"({self.now} - 1)", lambda earlier: earlier.query(query))
        one, two = (now, before) if kind == "ISTREAM" else (before, now)
        return SqlText(f"({one.sql}) EXCEPT ALL ({two.sql})", now.columns)

    def first_rows(self, query: ast.Query, order: tuple[ast.SortItem, ...], limit: int) -> SqlText:
        """The rows that fewer than `limit` rows come before."""
        if isinstance(query, ast.Select):
            listed = [item.value for item in order]
            body, positions = self.select_with(query, listed)
        else:
            body = self.query(query)
            listed_positions = [sql_text.listed_position(item.value, body.columns) for item in order]
            positions = [position for position in listed_positions if position is not None]
        keys = ", ".join(
            f"o.c{position}{sort_direction(item)}" for position, item in zip(positions, order, strict=True)
        )
        columns = ", ".join(f"f.{c.id}" for c in body.columns)
        ranked = f"SELECT o.*, rank() OVER (ORDER BY {keys}) AS place FROM ({body.sql}) AS o"
        return SqlText(f"SELECT {columns} FROM ({ranked}) AS f WHERE f.place <= {limit}", body.columns)

    def select_with(self, select: ast.Select, values: list[ast.Expression]) -> tuple[SqlText, list[int]]:
        """A SELECT with further columns for the values that it does not list, and the position of each value."""
        whole = self.select(select, None, False)
        positions: list[int] = []
        more: list[ast.Item] = []
        for value in values:
            position = sql_text.listed_position(value, whole.columns)
            if position is None:
                more.append(ast.Item(value, None, span=value.span))
                position = len(whole.columns) + len(more)
            positions.append(position)
        if not more:
            return whole, positions
        wider = self.select(replace(select, items=(*select.items, *more)), None, False)
        return SqlText(wider.sql, whole.columns), positions

    def branches(self, query: ast.Query, parts: Iterable[ast.Query]) -> list[SqlText]:
        """The operands of a set operator, with columns of the common types."""
        common_columns = schema(self.name_scope.plan(query))
        columns = tuple(replace(column, id=f"c{n}") for n, column in enumerate(common_columns, 1))
        return [self.retyped(self.query(part), columns) for part in parts]

    def retyped(self, text: SqlText, columns: Schema) -> SqlText:
        if [c.type for c in text.columns] == [c.type for c in columns]:
            return SqlText(text.sql, columns)
        pairs = zip(text.columns, columns, strict=True)
        listed = ", ".join(f"{self.dialect.cast(f'b.{c.id}', c.type, to.type)} AS {to.id}" for c, to in pairs)
        return SqlText(f"SELECT {listed} FROM ({text.sql}) AS b", columns)

    def select(self, select: ast.Select, outer: Scope | None, ordered: bool) -> SqlText:
        source, scope = self.tables(select.tables, ordered)
        scope = replace(scope, outer=outer)
        texts = Texts(self, scope, "SELECT")
        outputs = output_columns(select.items, scope)
        values = [texts.bind(output.node) for output in outputs]
        pairs = enumerate(zip(outputs, values, strict=True), 1)
        columns = tuple(Column(f"c{n}", output.name, value.type) for n, (output, value) in pairs)
        listed = [f"{self.dialect.sql(value)} AS {c.id}" for value, c in zip(values, columns, strict=True)]
        if ordered:
            listed.append(f"{source.rpartition(' AS ')[2]}.seq AS seq")
        qualify = over_outputs(select.qualify, outputs, scope)
        if qualify is not None:
            listed.append(f"{self.dialect.sql(texts.condition(qualify))} AS wanted")
        distinct = "DISTINCT " if select.distinct else ""
        parts = [f"SELECT {distinct if qualify is None else ''}{', '.join(listed)} FROM {source}"]
        if select.where is not None:
            parts.append(f"WHERE {self.dialect.sql(texts.condition(select.where))}")
        if select.group_by:
            keys = [self.grouping(element, texts, outputs) for element in select.group_by]
            parts.append(f"GROUP BY {', '.join(keys)}")
        if select.having is not None:
            parts.append(f"HAVING {self.dialect.sql(texts.condition(select.having))}")
        sql = " ".join(parts)
        if qualify is not None:
            named = ", ".join(f"q.{c.id}" for c in columns) + (", q.seq" if ordered else "")
            sql = f"SELECT {distinct}{named} FROM ({sql}) AS q WHERE q.wanted"
        return SqlText(sql, columns)

    def grouping(self, element: ast.Grouping, texts: Texts, outputs: list[Output]) -> str:
        match element:
            case ast.GroupingList(items):
                return f"({', '.join(self.grouping(item, texts, outputs) for item in items)})"
            case ast.GroupingSets(kind, elements):
                word = "GROUPING SETS" if kind == "GROUPING" else kind
                return f"{word} ({', '.join(self.grouping(inner, texts, outputs) for inner in elements)})"
            case _:
                return self.dialect.sql(texts.bind(grouping_key(element, outputs, texts.scope)[0]))

    # ---- FROM ------------------------------------------------------------------------------------------------------

    def tables(self, tables: tuple[ast.TableReference, ...], ordered: bool) -> tuple[str, Scope]:
        source, scope = self.table(tables[0], ordered)
        for table in tables[1:]:
            right, added = self.table(table)
            source, scope = f"{source} CROSS JOIN {right}", scope.joined(added)
        return source, scope

    def table(self, table: ast.TableReference, ordered: bool = False) -> tuple[str, Scope]:
        match table:
            case ast.StreamTable(name, window, alias, granularity):
                named = self.name_scope.named(name)
                stream = self.name_scope.catalog.get(name.name)
                shown, span = alias.name if alias else stream.name, (alias or name).span
                if named is None:
                    assert isinstance(stream, BaseStream), "what has no query has rows"
                    held = self.granular(granularity, lambda at: at.base(stream, window))
                    return self.entry(held, shown, stream.name, span, stream.time_column)
                there = replace(self, name_scope=named.name_scope)
                held = there.granular(granularity, lambda at: at.derived(named.query, window, ordered, named.columns))
                return self.entry(held, shown, stream.name, span)
            case ast.QueryTable(query, window, alias, granularity):
                held = self.granular(granularity, lambda at: at.derived(query, window, ordered, ()))
                return self.entry(held, alias.name, None, alias.span)
            case ast.Join():
                return self.join(table)
            case _:
                assert_never(table)

    def granular(self, granularity: ast.Duration | None, make: Callable[[Translation], SqlText]) -> SqlText:
        """A part as it was at the last border of a granule."""
        if granularity is None:
            return make(self)
        return self.at_other_instant(sql_text.last_multiple(self.now, granularity.microseconds), make)

    def base(self, stream: BaseStream, window: ast.Window | None) -> SqlText:
        columns = tuple(Column(f"c{n}", c, kind) for n, (c, kind) in enumerate(stream.queried_columns, 1))
        has_intervals = stream.has_intervals or stream.changes is not None
        over = None if has_intervals else window  # a window over intervals is the identity, or refused
        return SqlText(self.held(self.dataset.rows[stream.name.lower()].table, columns, over, arrived=True), columns)

    def derived(self, query: ast.Query, window: ast.Window | None, ordered: bool, names: tuple[str, ...]) -> SqlText:
        if window is None or is_identity(window, self.name_scope.plan(query)):
            body = self.query(query, ordered=ordered)
            return SqlText(body.sql, sql_text.rename_columns(body.columns, names))
        stage = self.stage(query, window)
        columns = sql_text.rename_columns(stage.body.columns, names)
        return SqlText(self.held(stage.table, columns, window, arrived=stage.ordered), columns)

    def stage(self, query: ast.Query, window: ast.Window) -> TranslatedStage:
        if id(query) not in self._staged:
            in_order = keeps_arrival_order(self.name_scope.plan(query))
            body = replace(self, now=INSTANT).query(query, ordered=in_order)
            made = TranslatedStage(
                self.name("stage"), element_instants(query, self.name_scope, self.dataset, window), body, in_order
            )
            self._staged[id(query)] = made
            self.stages.append(made)
        return self._staged[id(query)]

    def entry(
        self, held: SqlText, shown: str, stream: str | None, span: Span, time: str | None = None
    ) -> tuple[str, Scope]:
        alias = self.name("t")
        visible = tuple(Column(f"{alias}.{c.id}", c.name, VARCHAR if c.type == NULL else c.type) for c in held.columns)
        by = next((c.id for c in visible if c.name == time), None)
        return f"({held.sql}) AS {alias}", Scope((Relation(shown, visible, stream, span, time_column=by),))

    def held(self, table: str, columns: Schema, window: ast.Window | None, arrived: bool) -> str:
        """The rows of a table that a window holds at the instant. Rows of one instant are ordered by arrival or, where
        that is undefined, by their values."""
        listed = ", ".join(f"r.{c.id}" for c in columns)
        match window:
            case None | ast.NowWindow():
                return f"SELECT r.* FROM {table} AS r WHERE r.at_us <= {self.now} AND {self.now} < r.until_us"
            case ast.RangeWindow(length, slide):
                last = sql_text.last_multiple(f"({self.now} + 1)", slide.microseconds if slide else 1)
                since = "" if length is None else f"r.at_us >= {last} - {length.microseconds} AND "
                return f"SELECT r.* FROM {table} AS r WHERE {since}r.at_us < {last}"
            case ast.RowsWindow(partition, rows, slide):
                partition_by = sql_text.partition_clause(partition, columns)
                by = "e.seq" if arrived else ", ".join(f"e.{c.id} ASC NULLS LAST" for c in columns)
                numbered = (
                    f"SELECT e.*, row_number() OVER ({partition_by} ORDER BY e.at_us, {by}) AS number, "
                    f"count(*) OVER ({partition_by}) AS c FROM {table} AS e WHERE e.at_us <= {self.now}"
                )
                last = sql_text.last_multiple("r.c", slide)
                return f"SELECT {listed} FROM ({numbered}) AS r WHERE r.number > {last} - {rows} AND r.number <= {last}"
            case ast.SessionWindow(partition, gap):
                partition_by = sql_text.partition_clause(partition, columns)
                later = f"lead(e.at_us) OVER ({partition_by} ORDER BY e.at_us)"
                followed = f"SELECT e.*, {later} AS later FROM {table} AS e WHERE e.at_us <= {self.now}"
                pause = f"CASE WHEN coalesce(e.later, {self.now}) - e.at_us >= {gap.microseconds} THEN 1 ELSE 0 END"
                # In order of time backwards: the pauses between a row and now. Rows of one instant count alike.
                pauses = (
                    f"SELECT e.*, sum({pause}) OVER ({partition_by} ORDER BY e.at_us DESC) AS pauses "
                    f"FROM ({followed}) AS e"
                )
                return f"SELECT {listed} FROM ({pauses}) AS r WHERE r.pauses = 0"
            case _:
                assert_never(window)

    # ---- joins -----------------------------------------------------------------------------------------------------

    def join(self, join: ast.Join) -> tuple[str, Scope]:
        left, left_scope = self.table(join.left)
        right, right_scope = self.table(join.right)
        scope = left_scope.joined(right_scope)
        shared = sql_text.shared_columns(join, left_scope, right_scope)
        if shared:
            tests = [self.dialect.sql(equality(one, two, join.span)) for one, two in shared]
            condition = " AND ".join(tests)
        elif join.condition is not None:
            condition = self.dialect.sql(Scalars(scope, "ON").condition(join.condition))
        else:
            condition = "TRUE"
        if join.kind in ("SEMI", "ANTI"):
            word = "NOT EXISTS" if join.kind == "ANTI" else "EXISTS"
            listed, renamed = sql_text.export_scope(left_scope, alias := self.name("j"))
            where = f"{word} (SELECT 1 FROM {right} WHERE {condition})"
            return f"(SELECT {', '.join(listed.values())} FROM {left} WHERE {where}) AS {alias}", renamed
        if shared:
            merged = tuple(self.merged(join.kind, one, two) for one, two in shared)
            scope = scope.using(left_scope, right_scope, merged, join.span)
        if join.kind == "FULL" and not self.dialect.has_full_join:
            return self.full_join(left, right, left_scope, condition, scope)
        word = f"{join.kind} JOIN" if join.kind else "JOIN"
        return f"({left} {word} {right} ON {condition})", scope

    def merged(self, kind: str | None, one: Column, two: Column) -> Column:
        """Meaning of a shared column: that of the side that always has it, or of either."""
        if kind != "FULL":
            return two if kind == "RIGHT" else one
        common = meet([one.type, two.type])
        assert common is not None, "columns that can be compared have a common type"
        sides = [self.dialect.cast(c.id, c.type, common) for c in (one, two)]
        return Column(f"coalesce({', '.join(sides)})", one.name, common)

    def full_join(self, left: str, right: str, left_scope: Scope, condition: str, scope: Scope) -> tuple[str, Scope]:
        """A left join, and the unmatched rows of the right."""
        listed, renamed = sql_text.export_scope(scope, alias := self.name("j"))
        mine = {c.id for relation in left_scope.relations for c in relation.columns}
        kinds = {c.id: c.type for relation in scope.relations for c in relation.columns}
        missing = [
            f"{self._without(column_id, mine, kinds)} AS {text.rpartition(' AS ')[2]}"
            for column_id, text in listed.items()
        ]
        pairs = f"SELECT {', '.join(listed.values())} FROM {left} LEFT JOIN {right} ON {condition}"
        alone = f"SELECT {', '.join(missing)} FROM {right} WHERE NOT EXISTS (SELECT 1 FROM {left} WHERE {condition})"
        return f"({pairs} UNION ALL {alone}) AS {alias}", renamed

    def _without(self, column_id: str, mine: set[str], kinds: Mapping[str, object]) -> str:
        """A column where the left side is missing."""
        kind = kinds[column_id]
        nothing = self.dialect.literal(None, kind)  # type: ignore[arg-type]
        if column_id in mine:
            return nothing
        if column_id.startswith("coalesce("):
            return "coalesce(NULL, " + column_id.removeprefix("coalesce(").split(", ", 1)[1]
        return column_id


class Texts(Scalars):
    """Binds scalar expressions; their subqueries and aggregates are columns whose ids are SQL texts."""

    def __init__(self, translation: Translation, scope: Scope, clause: str) -> None:
        super().__init__(scope, clause)
        self.translation = translation
        self.dialect = translation.dialect

    def subquery(self, node: Subquery) -> Expression:
        inner = self.translation.query(node.query, self.scope)
        if isinstance(node, ast.Exists):
            return ColumnRef(f"EXISTS ({inner.sql})", BOOLEAN)
        if isinstance(node, ast.ScalarQuery):
            # LIMIT 1 leaves several rows of one value where they are level.
            value = f"SELECT DISTINCT * FROM ({inner.sql}) AS s" if _is_ordered(node.query) else inner.sql
            return ColumnRef(f"({value})", inner.columns[0].type)
        column = inner.columns[0]
        asked = Operand(ColumnRef("s.c1", column.type), node.span)
        test = call(node.operator, [self.operand(node.operand), asked], node.span)
        one, two = (self.dialect.sql(part) for part in children(test))
        listed = inner.sql if two == "s.c1" else f"SELECT {two} FROM ({inner.sql}) AS s"
        return ColumnRef(f"({one} {node.operator} {node.quantifier} ({listed}))", BOOLEAN)

    def rank(self, node: ast.Ranking) -> Expression:
        keys = ", ".join(self.dialect.sql(self.bind(key)) for key in node.partition)
        partition_by = f"PARTITION BY {keys} " if keys else ""
        order = ", ".join(self.dialect.sql(self.bind(item.value)) + sort_direction(item) for item in node.order)
        return ColumnRef(f"rank() OVER ({partition_by}ORDER BY {order})", BIGINT)

    def grouping(self, node: ast.FunctionCall) -> Expression:
        """GROUPING(a, b): a bit for each key, 1 where it is left out."""
        keys = () if isinstance(node.arguments, ast.Star) else node.arguments
        listed = ", ".join(self.dialect.sql(self.bind(key)) for key in keys)
        return ColumnRef(f"CAST(GROUPING({listed}) AS BIGINT)", BIGINT)

    def aggregate(self, function: AggregateFunction, node: ast.FunctionCall) -> Expression:
        inside = Texts(self.translation, self.scope, "an aggregate")
        column = self.scope.time()
        time = None if column is None else ColumnRef(column.id, column.type)
        kind = bind_aggregate(function, node, inside.bind, inside.condition, time).type
        arguments = () if isinstance(node.arguments, ast.Star) else node.arguments
        items = node.within or node.order
        order = [self.dialect.sql(inside.bind(item.value)) + sort_direction(item) for item in items]
        if function.form in ("within group", "fraction within group"):
            value: Expression | None = inside.bind(node.within[0].value)
            parameter = arguments[0].text if arguments else ""
        else:
            value = inside.bind(arguments[0]) if arguments else None
            parameter = self.dialect.sql(inside.bind(arguments[1])) if len(arguments) > 1 else ""
        if function.name in ("first", "last") and not order:
            assert time is not None, "the binder has refused an order that is not clear"
            order = [f"{time.id} ASC"]
        user = node.definition if isinstance(node.definition, UserAggregate) else None
        if value is not None and (user is not None or value.type == NULL):
            value = cast_to(value, VARCHAR if user is None else user.arguments[0])
        given = None if value is None else self.dialect.sql(value)
        condition = None if node.filter is None else self.dialect.sql(inside.condition(node.filter))
        part = Aggregated(given, node.distinct, condition, tuple(order), parameter)
        if user is not None:
            return ColumnRef(self.dialect.user_aggregate(user, part), kind)
        return ColumnRef(self.dialect.aggregate(function.name, None if value is None else value.type, part), kind)


def _is_ordered(query: ast.Query) -> bool:
    return isinstance(query.body if isinstance(query, ast.With) else query, ast.Ordered)
