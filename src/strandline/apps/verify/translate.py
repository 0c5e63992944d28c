"""Translation of a continuous query at one instant to a plain query of an oracle.

The syntax tree is followed as it is written: joins stay joins, subqueries stay subqueries, and the database resolves
them itself. Only a stream with a window is replaced, by the rows that the window holds at the instant
(`window_rows.py`), and a table by its rows at the instant. A table that is not retroactive has its rows at the time of
the row that looks them up: `t.valid_from <= s.ts AND s.ts < t.valid_until`.

A window over a query needs the results of that query at all its instants: they are put into a table first, a *stage*.
Changes since the instant before contain the query twice. Columns are called c1, c2, … everywhere, so that user names
never collide with those of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, assert_never

from strandline.apps.verify import asof_text, over_text, sql_text, window_table_text
from strandline.apps.verify.dataset import Dataset, NameScope, Times, base_streams
from strandline.apps.verify.dialect import Dialect
from strandline.apps.verify.instants import element_instants
from strandline.apps.verify.row_times import RowTimes, has_tables, later, row_times_of_query, row_times_of_stream
from strandline.apps.verify.scalar_text import Texts
from strandline.apps.verify.sql_text import FromText, SqlText, sort_direction
from strandline.apps.verify.window_rows import held_rows
from strandline.core.errors import Span
from strandline.core.types import NULL, VARCHAR, Column, Schema
from strandline.functions.oracles import Untranslatable
from strandline.functions.signatures import meet
from strandline.logical.catalog import BaseStream, Stream, Table
from strandline.logical.properties.temporal import is_chronon_stream, keeps_arrival_order
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.asof_joins import as_table_join
from strandline.sql.binder.derived_windows import with_derived_windows
from strandline.sql.binder.expressions import Scalars, equality
from strandline.sql.binder.grouping import grouping_key, is_grouping
from strandline.sql.binder.names import Names
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.binder.select_list import Output, output_columns, write_out_aliases
from strandline.sql.binder.unnest import unnest_relation
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
    _over: dict[int, tuple[ast.Select, over_text.OverRows]] = field(default_factory=dict)  # by the identity of a SELECT
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    # ---- queries ---------------------------------------------------------------------------------------------------

    def query(
        self,
        query: ast.Query,
        outer: Scope | None = None,
        *,
        ordered: bool = False,
        timed: bool = False,
    ) -> SqlText:
        """The query at the instant; `ordered` adds a column with the order of arrival, `timed` one with row times."""
        match query:
            case ast.Select():
                return self.select(query, outer, ordered, timed)
            case ast.UnionAll(branches):
                texts = self.branches(query, branches, timed)
                return SqlText(" UNION ALL ".join(f"({text.sql})" for text in texts), texts[0].columns)
            case ast.SetOperation(operator, left, right):
                one, two = self.branches(query, (left, right))
                return SqlText(sql_text.set_operation(operator, one, two), one.columns)
            case ast.Changes(kind, inner):
                same = kind == "RSTREAM"
                return self.query(inner, ordered=ordered, timed=timed) if same else self.changes(kind, inner)
            case ast.Ordered(inner, limit=None):
                return self.query(inner)  # a result has no order
            case ast.Ordered(inner, order, limit):
                assert limit is not None, "the binder refuses an order of a continuous result"
                return self.first_rows(inner, order, limit, outer)
            case ast.With(_, body):
                inside = replace(self, name_scope=self.name_scope.inside(query))
                return inside.query(body, outer, ordered=ordered, timed=timed)
            case _:
                assert_never(query)

    def changes(self, kind: str, query: ast.Query) -> SqlText:
        """Insertions or deletions since the instant before."""
        now = self.query(query)
        before = replace(self, now=f"({self.now} - 1)").query(query)
        one, two = (now, before) if kind == "ISTREAM" else (before, now)
        return SqlText(f"({one.sql}) EXCEPT ALL ({two.sql})", now.columns)

    def first_rows(
        self, query: ast.Query, order: tuple[ast.SortItem, ...], limit: int, outer: Scope | None = None
    ) -> SqlText:
        """The rows that fewer than `limit` rows come before."""
        if isinstance(query, ast.Select):
            listed = [item.value for item in order]
            body, positions = self.select_with(query, listed, outer)
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

    def select_with(
        self, select: ast.Select, values: list[ast.Expression], outer: Scope | None = None
    ) -> tuple[SqlText, list[int]]:
        """A SELECT with further columns for the values that it does not list, and the position of each value."""
        whole = self.select(select, outer)
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
        wider = self.select(replace(select, items=(*select.items, *more)), outer)
        return SqlText(wider.sql, whole.columns), positions

    def branches(self, query: ast.Query, parts: Iterable[ast.Query], timed: bool = False) -> list[SqlText]:
        """The operands of a set operator, with columns of the common types."""
        common_columns = schema(self.name_scope.plan(query))
        columns = tuple(replace(column, id=f"c{n}") for n, column in enumerate(common_columns, 1))
        return [self.retyped(self.query(part, timed=timed), columns, timed) for part in parts]

    def retyped(self, text: SqlText, columns: Schema, timed: bool = False) -> SqlText:
        if [c.type for c in text.columns] == [c.type for c in columns]:
            return SqlText(text.sql, columns)
        pairs = zip(text.columns, columns, strict=True)
        listed = ", ".join(f"{self.dialect.cast(f'b.{c.id}', c.type, to.type)} AS {to.id}" for c, to in pairs)
        time = ", b.at_us" if timed else ""
        return SqlText(f"SELECT {listed}{time} FROM ({text.sql}) AS b", columns)

    def select(self, select: ast.Select, outer: Scope | None, ordered: bool = False, timed: bool = False) -> SqlText:
        select = with_derived_windows(select, Names(self.name_scope.catalog))
        if over_text.window_calls(select) and is_chronon_stream(self.name_scope.plan(over_text.only_rows(select))):
            return self.window_functions(select)
        source = self.tables(select.tables, ordered)
        scope = replace(source.scope, outer=outer)
        reads_stream = any(map(self.reads_stream, select.tables))
        texts = Texts(self, scope, "SELECT", source.row_time if reads_stream else None)
        outputs = output_columns(select.items, scope)
        values = [texts.bind(output.node) for output in outputs]
        pairs = enumerate(zip(outputs, values, strict=True), 1)
        columns = tuple(Column(f"c{n}", output.name, value.type) for n, (output, value) in pairs)
        listed = [f"{self.dialect.sql(value)} AS {c.id}" for value, c in zip(values, columns, strict=True)]
        if ordered:
            listed.append(f"{source.sql.rpartition(' AS ')[2]}.seq AS seq")
        if timed:
            listed.append(f"{source.row_time} AS at_us")
        qualify = over_outputs(select.qualify, outputs, scope)
        if qualify is not None:
            listed.append(f"{self.dialect.sql(texts.condition(qualify))} AS wanted")
        distinct = "DISTINCT " if select.distinct else ""
        parts = [f"SELECT {distinct if qualify is None else ''}{', '.join(listed)} FROM {source.sql}"]
        where = write_out_aliases(select.where, outputs, scope)
        if where is not None:
            parts.append(f"WHERE {self.dialect.sql(texts.condition(where))}")
        if select.group_by:
            keys = [self.grouping(element, texts, outputs) for element in select.group_by]
            parts.append(f"GROUP BY {', '.join(keys)}")
        having = self.having(replace(select, having=write_out_aliases(select.having, outputs, scope)), texts)
        if having:
            parts.append(f"HAVING {' AND '.join(having)}")
        sql = " ".join(parts)
        if qualify is not None:
            named = ", ".join(f"q.{c.id}" for c in columns)
            named += (", q.seq" if ordered else "") + (", q.at_us" if timed else "")
            sql = f"SELECT {distinct}{named} FROM ({sql}) AS q WHERE q.wanted"
        return SqlText(sql, columns)

    def window_functions(self, select: ast.Select) -> SqlText:
        """A SELECT with window functions over a stream of points: over all its rows, those that are known now."""
        key = id(select)
        if key not in self._over:  # whose identity is that of their stage
            scope = self.tables(select.tables, False).scope
            self._over[key] = (select, over_text.over_rows(over_text.without_stars(select, scope)))
        rows = self._over[key][1]
        plan = self.name_scope.plan(rows.inner)
        stage = self.stage(rows.inner, None)
        texts = Texts(self, over_text.stage_scope(stage.body.columns, select), "SELECT", None)
        texts.windows = over_text.WindowTexts.of(rows, stage, plan, self.name_scope, self.dialect.row_id)
        outputs = output_columns(rows.outer.items, texts.scope)
        values = [texts.bind(output.node) for output in outputs]
        pairs = enumerate(zip(outputs, values, strict=True), 1)
        columns = tuple(Column(f"c{n}", output.name, value.type) for n, (output, value) in pairs)
        listed = [f"{self.dialect.sql(value)} AS {c.id}" for value, c in zip(values, columns, strict=True)]
        qualify = over_outputs(rows.outer.qualify, outputs, texts.scope)
        if qualify is not None:
            listed.append(f"{self.dialect.sql(texts.condition(qualify))} AS wanted")
        waiting = [call for call in over_text.window_calls(rows.outer) if over_text.rows_after(call)]
        waits = max(map(over_text.rows_after, waiting), default=0)
        windows = [
            over_text.window_text(call, lambda key: self.dialect.sql(texts.bind(key)), texts.windows)[1]
            for call in waiting
        ]
        listed.append(f"{over_text.known_at(waits, windows[0] if windows else '')} AS known_us")
        body = f"SELECT {', '.join(listed)} FROM {stage.table} AS {over_text.ROWS_OF}"
        named = ", ".join(f"q.{c.id}" for c in columns)
        wanted = "" if qualify is None else " AND q.wanted"
        distinct = "DISTINCT " if select.distinct else ""
        return SqlText(f"SELECT {distinct}{named} FROM ({body}) AS q WHERE q.known_us = {self.now}{wanted}", columns)

    def having(self, select: ast.Select, texts: Texts) -> list[str]:
        """The conditions on groups. At another instant than that of the result, and in a stage over a table, no stream
        may have rows yet: then there is no group of no rows."""
        found = [] if select.having is None else [self.dialect.sql(texts.condition(select.having))]
        has_tables = not all(rows.is_stream for rows in self.dataset.rows.values())
        if (has_tables or self.now != INSTANT) and is_grouping(select):
            begins = "FALSE" if self.dataset.begins is None else f"{self.now} >= {self.dataset.begins}"
            found.append(f"({begins} OR count(*) > 0)")
        return found

    def grouping(self, element: ast.Grouping, texts: Texts, outputs: list[Output]) -> str:
        match element:
            case ast.GroupingList(items):
                return f"({', '.join(self.grouping(item, texts, outputs) for item in items)})"
            case ast.GroupingSets(kind, elements):
                if INSTANT not in self.now and not self.dialect.correlates_grouping_sets:
                    raise Untranslatable("grouping sets at the time of another row")
                word = "GROUPING SETS" if kind == "GROUPING" else kind
                return f"{word} ({', '.join(self.grouping(inner, texts, outputs) for inner in elements)})"
            case _:
                return self.dialect.sql(texts.bind(grouping_key(element, outputs, texts.scope)[0]))

    # ---- FROM ------------------------------------------------------------------------------------------------------

    def tables(self, tables: tuple[ast.TableReference, ...], ordered: bool) -> FromText:
        """A comma list: all pairs, left-deep."""
        if len(tables) == 1:
            return self.table(tables[0], ordered)
        whole = tables[0]
        for table in tables[1:]:
            whole = ast.Join(None, whole, table, span=table.span)
        return self.table(whole)

    def table(self, table: ast.TableReference, ordered: bool = False) -> FromText:
        match table:
            case ast.StreamTable(name, window, alias, granularity):
                named = self.name_scope.named(name)
                stream = self.name_scope.catalog.get(name.name)
                shown, span = alias.name if alias else stream.name, (alias or name).span
                if named is None:
                    base = stream.input if isinstance(stream, Table) else stream
                    assert isinstance(base, BaseStream), "what has no query has rows"
                    held = self.granular(granularity, lambda at: at.base(base, window))
                    if isinstance(stream, Table):  # whose interval may be in columns of its input alone
                        seen = [column for column, _ in stream.queried_columns]
                        held = replace(held, columns=tuple(c for c in held.columns if c.name in seen))
                    time = RowTimes.none if granularity else row_times_of_stream(base, window)
                    return self.entry(held, shown, stream.name, span, time, base.time_column)
                there = replace(self, name_scope=named.name_scope)
                held, time = there.named_rows(named.query, window, granularity, ordered, named.columns)
                return self.entry(held, shown, stream.name, span, time)
            case ast.QueryTable(query, window, alias, granularity):
                held, time = self.named_rows(query, window, granularity, ordered, ())
                return self.entry(held, alias.name, None, alias.span, time)
            case ast.WindowTable():
                return window_table_text.window_table(self, table)
            case ast.Join():
                return self.join(table)
            case ast.UnnestTable():
                raise AssertionError("the binder has refused UNNEST without rows left of it")
            case _:
                assert_never(table)

    def named_rows(
        self,
        query: ast.Query,
        window: ast.Window | None,
        granularity: ast.Duration | None,
        ordered: bool,
        names: tuple[str, ...],
    ) -> tuple[SqlText, RowTimes]:
        """The rows of a query in FROM, and what is known of their row times."""
        time = RowTimes.none
        if granularity is None and has_tables(self.name_scope.catalog):
            time = row_times_of_query(self.name_scope.plan(query), window)
        timed = time is RowTimes.own and (window is None or is_identity(window, self.name_scope.plan(query)))
        return self.granular(granularity, lambda at: at.derived(query, window, ordered, names, timed)), time

    def granular(self, granularity: ast.Duration | None, make: Callable[[Translation], SqlText]) -> SqlText:
        """A part as it was at the last border of a granule."""
        if granularity is None:
            return make(self)
        return make(replace(self, now=sql_text.last_multiple(self.now, granularity.microseconds)))

    def base(self, stream: BaseStream, window: ast.Window | None) -> SqlText:
        columns = tuple(Column(f"c{n}", c, kind) for n, (c, kind) in enumerate(stream.queried_columns, 1))
        has_intervals = stream.has_intervals or stream.changes is not None
        over = None if has_intervals else window  # a window over intervals is the identity, or refused
        return SqlText(self.held(self.dataset.rows[stream.name.lower()].table, columns, over, arrived=True), columns)

    def held(self, table: str, columns: Schema, window: ast.Window | None, *, arrived: bool) -> str:
        return held_rows(table, columns, window, self.now, arrived=arrived)

    def derived(
        self, query: ast.Query, window: ast.Window | None, ordered: bool, names: tuple[str, ...], timed: bool
    ) -> SqlText:
        if window is None or is_identity(window, self.name_scope.plan(query)):
            body = self.query(query, ordered=ordered, timed=timed)
            return SqlText(body.sql, sql_text.rename_columns(body.columns, names))
        stage = self.stage(query, window)
        columns = sql_text.rename_columns(stage.body.columns, names)
        return SqlText(self.held(stage.table, columns, window, arrived=stage.ordered), columns)

    def stage(self, query: ast.Query, window: ast.Window | None) -> TranslatedStage:
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
        self, held: SqlText, shown: str, stream: str | None, span: Span, times: RowTimes, time: str | None = None
    ) -> FromText:
        alias = self.name("t")
        visible = tuple(Column(f"{alias}.{c.id}", c.name, VARCHAR if c.type == NULL else c.type) for c in held.columns)
        by = next((c.id for c in visible if c.name == time), None)
        scope = Scope((Relation(shown, visible, stream, span, time_column=by),))
        row_time = {RowTimes.now: self.now, RowTimes.own: f"{alias}.at_us", RowTimes.none: None}[times]
        return FromText(f"({held.sql}) AS {alias}", scope, row_time)

    # ---- joins -----------------------------------------------------------------------------------------------------

    def join(self, join: ast.Join) -> FromText:
        """A join; one with a table that is not retroactive, or AS OF the time of a stream, is a look-up."""
        if isinstance(join.right, ast.UnnestTable):
            return self.unnested(self.table(join.left), join.right, outer=join.kind == "LEFT")
        join = as_table_join(join, self.name_scope.catalog)
        if isinstance(join.right, ast.QueryTable) and join.right.lateral:
            return self.lateral(join, join.right)
        if join.asof:
            return asof_text.asof_join(self, join)
        as_of = join.right.as_of if isinstance(join.right, ast.StreamTable) else None
        if isinstance(as_of, ast.ColumnName):
            left = self.table(join.left)
            alias = left.scope.column(as_of).id.partition(".")[0]
            return self.joined(join, left, self.looked_up(join.right, f"{alias}.at_us"))
        if self.is_looked_up(join.right) and self.reads_stream(join.left):
            left = self.table(join.left)
            return self.joined(join, left, self.looked_up(join.right, left.row_time))
        if self.is_looked_up(join.left) and self.reads_stream(join.right):
            right = self.table(join.right)
            return self.joined(join, self.looked_up(join.left, right.row_time), right)
        return self.joined(join, self.table(join.left), self.table(join.right))

    def joined(self, join: ast.Join, left: FromText, right: FromText) -> FromText:
        scope = left.scope.joined(right.scope)
        shared = sql_text.shared_columns(join, left.scope, right.scope)
        if shared:
            tests = [self.dialect.sql(equality(one, two, join.span)) for one, two in shared]
            condition = " AND ".join(tests)
        elif join.condition is not None:
            condition = self.dialect.sql(Scalars(scope, "ON").condition(join.condition))
        else:
            condition = "TRUE"
        row_time = later(self.now, *(side.row_time for side in (left, right) if not side.is_looked_up))
        if join.kind in ("SEMI", "ANTI"):
            word = "NOT EXISTS" if join.kind == "ANTI" else "EXISTS"
            listed, renamed = sql_text.export_scope(left.scope, alias := self.name("j"))
            where = f"{word} (SELECT 1 FROM {right.sql} WHERE {condition})"
            time = "" if left.row_time is None else f", {left.row_time} AS at_us"
            sql = f"(SELECT {', '.join(listed.values())}{time} FROM {left.sql} WHERE {where}) AS {alias}"
            return FromText(sql, renamed, None if left.row_time is None else f"{alias}.at_us")
        if shared:
            merged = tuple(self.merged(join.kind, one, two) for one, two in shared)
            scope = scope.using(left.scope, right.scope, merged, join.span)
        if left.is_looked_up or right.is_looked_up:
            table, source = (left, right) if left.is_looked_up else (right, left)
            word = "JOIN" if join.kind is None else "LEFT JOIN"
            return FromText(f"({source.sql} {word} LATERAL {table.sql} ON {condition})", scope, row_time)
        if join.kind == "FULL" and not self.dialect.has_full_join:
            sql, scope = self.full_join(left.sql, right.sql, left.scope, condition, scope)
            return FromText(sql, scope, row_time if row_time == self.now else None)
        word = f"{join.kind} JOIN" if join.kind else "JOIN"
        return FromText(f"({left.sql} {word} {right.sql} ON {condition})", scope, row_time)

    def lateral(self, join: ast.Join, table: ast.QueryTable) -> FromText:
        """A subquery that reads columns of the left."""
        left = self.table(join.left)
        # Rows are joined as those of a table in FROM are; other subqueries have no row time.
        timed = left.row_time is not None and self.has_row_times(table.query)
        held = self.query(table.query, left.scope, timed=timed)
        times = RowTimes.own if timed else RowTimes.none
        right = self.entry(held, table.alias.name, None, table.alias.span, times)
        scope = left.scope.joined(right.scope)
        condition = "TRUE"
        if join.condition is not None:
            condition = self.dialect.sql(Scalars(scope, "ON").condition(join.condition))
        word = "LEFT JOIN" if join.kind == "LEFT" else "JOIN"
        row_time = later(self.now, left.row_time, right.row_time) if timed and word == "JOIN" else None
        return FromText(f"({left.sql} {word} LATERAL {right.sql} ON {condition})", scope, row_time)

    def has_row_times(self, query: ast.Query) -> bool:
        """True if a correlated subquery is the rows of its FROM, and these have row times; the binder has refused
        DISTINCT in it."""
        return (
            isinstance(query, ast.Select)
            and not is_grouping(query)
            and self.tables(query.tables, ordered=False).row_time is not None
        )

    def unnested(self, left: FromText, table: ast.UnnestTable, outer: bool) -> FromText:
        """The elements of an array, with their positions."""
        value = Scalars(left.scope, "UNNEST").bind(table.array)
        alias = self.name("u")
        relation = unnest_relation(table, value, (f"{alias}.c1", f"{alias}.c2"))
        listed = self.dialect.unnest.format(self.dialect.sql(value))
        word = "LEFT JOIN" if outer else "JOIN"
        sql = f"({left.sql} {word} LATERAL {listed} AS {alias}(c1, c2) ON TRUE)"
        return FromText(sql, left.scope.joined(Scope((relation,))), left.row_time)

    # ---- look-ups --------------------------------------------------------------------------------------------------

    def is_looked_up(self, node: ast.Node) -> bool:
        """True if a part of a query reads tables only, and one of them is not retroactive."""
        read = self._read(node)
        tables = [table for table in read if isinstance(table, Table)]
        return len(tables) == len(read) and any(not t.retroactive and t.kind != "constant" for t in tables)

    def reads_stream(self, node: ast.Node) -> bool:
        return not all(isinstance(stream, Table) for stream in self._read(node))

    def _read(self, node: ast.Node) -> list[Stream]:
        return [self.name_scope.catalog.get(name) for name in base_streams(node, self.name_scope)]

    def looked_up(self, node: ast.TableReference, row_time: str | None) -> FromText:
        """The rows of tables as they were at the row time of those that look them up."""
        assert row_time is not None, "the binder has refused what has no row time"
        item = replace(self, now=row_time).table(node)
        if not isinstance(node, ast.Join):
            return replace(item, is_looked_up=True)
        listed, renamed = sql_text.export_scope(item.scope, alias := self.name("j"))
        sql = f"(SELECT {', '.join(listed.values())} FROM {item.sql}) AS {alias}"
        return FromText(sql, renamed, None, is_looked_up=True)

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
