"""Names and types resolved: syntax tree to algebra.

Every column gets an id that no other column of the plan has. Ids are readable: `b.price` is the price of the stream
called b in FROM, a computed column has the name of the output, and `#2` marks the second of a kind. The one place
where an id appears again is the Map below an Aggregate, which passes columns on under the ids that they had.

The shape of a SELECT is always the same, from the bottom: scans and joins, Filter (WHERE), then if it groups
Map (keys and arguments), Aggregate and Filter (HAVING), and on top the Map of the output columns and a Distinct.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final, assert_never

from strandline.algebra import evaluate
from strandline.algebra.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    children,
    substitute,
)
from strandline.algebra.functions import (
    AGGREGATES,
    ALIASES,
    FUNCTIONS,
    FunctionError,
    aggregate_type,
    castable,
    check,
    meet,
    resolve,
)
from strandline.algebra.operators import Aggregate, Distinct, Filter, Join, Map, Plan, Scan, TimeWindow, Union
from strandline.algebra.schema import schema
from strandline.algebra.tree import sources, transform_up, walk
from strandline.catalog import BaseStream, Catalog, DerivedStream, SourceCall
from strandline.errors import BindError, ParseError, Span
from strandline.lang import ast
from strandline.lang.tokens import amounts_of, microseconds_of
from strandline.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    MAX_PRECISION,
    NULL,
    TIMESTAMP,
    VARCHAR,
    Column,
    Type,
    decimal,
)

# Every later phase walks plans recursively; this keeps the walks well inside of Python's stack.
MAX_PLAN_HEIGHT: Final = 100
# BETWEEN and CASE x WHEN repeat their operand. Nested in each other they would repeat it exponentially often.
MAX_REPEATED_NODES: Final = 1_000

RESERVED_OUTPUTS: Final = ("valid_from", "valid_until")
TIME_TYPES: Final = ("TIMESTAMP", "DATE", "BIGINT")
# Names of operators in `FUNCTIONS` that look like functions, but are not written as calls.
OPERATOR_WORDS: Final = frozenset(("neg", "is_null", "in", "like", "and", "or", "not"))
COMPARISONS: Final = frozenset(("=", "<>", "<", "<=", ">", ">=", "in"))


def bind_query(query: ast.Query, catalog: Catalog) -> Plan:
    """The plan of a query. Its schema gives the result columns with their names."""
    return _Binder(catalog).query(query, prefix="")


def bind_derived_stream(statement: ast.CreateStreamAs, catalog: Catalog) -> DerivedStream:
    """The stream that `CREATE STREAM name AS query` declares."""
    return DerivedStream(statement.name.name, bind_query(statement.query, catalog), statement.query.text)


def bind_create_stream(statement: ast.CreateStream) -> BaseStream:
    """The stream that `CREATE STREAM name (columns) SOURCE …` declares; whether the source exists is not asked."""
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.name.lower() in seen:
            raise BindError(
                f'column "{column.name.name}" is declared twice', code="duplicate-column", span=column.name.span
            )
        seen.add(column.name.name.lower())
    source = statement.source
    options = {_folded(name): value.value for name, value in source.options}
    return BaseStream(
        name=statement.name.name,
        columns=tuple((column.name.name, column.type.type) for column in statement.columns),
        source=SourceCall(_folded(source.function), tuple(each.value for each in source.arguments), options),
        time_column=_time_column(statement),
        disorder_us=statement.within.microseconds if statement.within else 0,
        idle_after_us=statement.idle_after.microseconds if statement.idle_after else None,
    )


def _time_column(statement: ast.CreateStream) -> str:
    wanted = statement.time_column
    found = next((column for column in statement.columns if wanted.matches(column.name.name)), None)
    if found is None:
        names = [column.name.name for column in statement.columns]
        raise BindError(
            f'column "{wanted.name}" does not exist in stream "{statement.name.name}"',
            code="unknown-column",
            hint=_suggestion(wanted.name, names, "Columns are"),
            span=wanted.span,
        )
    if found.type.type.name not in TIME_TYPES:
        raise BindError(
            f'the time column "{found.name.name}" is {found.type.type}',
            code="time-column-type",
            hint="A time column is a TIMESTAMP, a DATE, or a BIGINT in microseconds since 1970.",
            span=wanted.span,
        )
    return found.name.name


def _folded(name: ast.Identifier) -> str:
    return name.name if name.quoted else name.name.lower()


# ---- names in scope --------------------------------------------------------------------------------------------------


class _Ids:
    """Hands out ids that are unique within one plan."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        # Only plain characters: array libraries read some names, such as * or ^x$, as patterns.
        base = re.sub(r"[^\w.]", "_", wanted.split("#")[0]) or "column"
        self.used[base] = count = self.used.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"


@dataclass(frozen=True, slots=True)
class _Relation:
    """What one entry of FROM makes visible, and under which name."""

    alias: str
    columns: tuple[Column, ...]
    stream: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class _Scope:
    """The relations that names may refer to."""

    relations: tuple[_Relation, ...]

    def joined(self, other: _Scope) -> _Scope:
        taken = {relation.alias.lower() for relation in self.relations}
        for relation in other.relations:
            if relation.alias.lower() in taken:
                raise BindError(
                    f'the name "{relation.alias}" is used twice in FROM',
                    code="duplicate-alias",
                    hint=f"Give one of them another name: {relation.stream or '(SELECT …)'} AS other.",
                    span=relation.span,
                )
        return _Scope(self.relations + other.relations)

    def matches(self, name: ast.Identifier) -> list[tuple[_Relation, Column]]:
        """The visible columns of this name, whatever their relation."""
        return [(r, column) for r in self.relations for column in r.columns if name.matches(column.name)]

    def relation(self, qualifier: ast.Identifier) -> _Relation:
        for relation in self.relations:
            if qualifier.matches(relation.alias):
                return relation
        renamed = [r.alias for r in self.relations if r.stream is not None and qualifier.matches(r.stream)]
        hint = _suggestion(qualifier.name, [r.alias for r in self.relations], "Names are")
        raise BindError(
            f'the name "{qualifier.name}" is not known here',
            code="unknown-alias",
            hint=f'The stream is called "{renamed[0]}" here.' if renamed else hint,
            span=qualifier.span,
        )

    def column(self, name: ast.ColumnName) -> Column:
        """The column that a name means."""
        found = self.matches(name.column)
        if name.qualifier is not None:
            relation = self.relation(name.qualifier)
            found = [match for match in found if match[0] is relation]
        if not found:
            raise self._unknown(name)
        if len(found) > 1:
            qualified = " or ".join(f"{relation.alias}.{column.name}" for relation, column in found)
            raise BindError(
                f'column "{name.column.name}" is ambiguous',
                code="ambiguous-column",
                hint=f"Write {qualified}.",
                span=name.span,
            )
        return found[0][1]

    def _unknown(self, name: ast.ColumnName) -> BindError:
        relations = self.relations if name.qualifier is None else (self.relation(name.qualifier),)
        where = f' in "{relations[0].alias}"' if len(relations) == 1 else ""
        return BindError(
            f'column "{name.column.name}" does not exist{where}',
            code="unknown-column",
            hint=_suggestion(name.column.name, [c.name for r in relations for c in r.columns], "Columns are"),
            span=name.column.span,
        )


def _suggestion(wanted: str, known: Iterable[str], otherwise: str) -> str:
    """A hint for a name that is not known: the nearest one, or all of them."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    if near:
        return f'Did you mean "{by_lower[near[0]]}"?'
    names = list(by_lower.values())
    return f"{otherwise} {', '.join(names[:12])}{' and others' if len(names) > 12 else ''}."


# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Output:
    """A column of the SELECT list, stars expanded: its expression, its name and its place."""

    node: ast.Expression
    name: str
    span: Span


class _Binder:
    """Binds one statement: the ids of all its parts come from one source."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ids = _Ids()

    def query(self, query: ast.Query, prefix: str) -> Plan:
        """The plan of a query whose output columns get ids that begin with `prefix`."""
        match query:
            case ast.Select():
                return self.select(query, prefix)
            case ast.UnionAll():
                return self.union(query, prefix)
            case _:
                assert_never(query)

    def union(self, union: ast.UnionAll, prefix: str) -> Plan:
        branches = list(_branches(union))
        plans = [self.select(branch, prefix, in_union=True) for branch in branches]
        schemas = [schema(plan) for plan in plans]
        for branch, columns in zip(branches, schemas, strict=True):
            if len(columns) != len(schemas[0]):
                raise BindError(
                    f"UNION ALL of {len(schemas[0])} and {len(columns)} columns",
                    code="union-columns",
                    hint="All branches need the same number of columns.",
                    span=branch.span,
                )
        kinds = [
            self.union_type(branches, position, column) for position, column in enumerate(zip(*schemas, strict=True))
        ]
        columns = tuple(
            Column(self.ids.fresh(prefix + first.name), first.name, kind)
            for first, kind in zip(schemas[0], kinds, strict=True)
        )
        return Union(columns, tuple(self.retyped(plan, kinds) for plan in plans))

    def union_type(self, branches: list[ast.Select], position: int, columns: tuple[Column, ...]) -> Type:
        for count in range(2, len(columns) + 1):
            if meet([column.type for column in columns[:count]]) is None:
                branch = branches[count - 1]
                starred = any(isinstance(item.value, ast.Star) for item in branch.items)
                raise BindError(
                    f'UNION ALL of {columns[0].type} and {columns[count - 1].type} in column "{columns[0].name}"',
                    code="union-types",
                    hint="CAST one of them to the type of the other.",
                    span=branch.span if starred else branch.items[position].span,
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
                return Map(tuple((replace(c, type=kind), _cast(value, kind)) for (c, value), kind in changed), source)
            case Distinct(source) if all(c.type in (NULL, kind) for c, kind in zip(schema(plan), kinds, strict=True)):
                return Distinct(self.retyped(source, kinds))
        # Above a Distinct: two values may become equal by the cast, and are two rows all the same.
        pairs = zip(schema(plan), kinds, strict=True)
        outputs = tuple(
            (Column(self.ids.fresh(c.id), c.name, kind), _cast(ColumnRef(c.id, c.type), kind)) for c, kind in pairs
        )
        return Map(outputs, plan)

    def select(self, select: ast.Select, prefix: str, *, in_union: bool = False) -> Plan:
        """The plan of one SELECT; in a UNION ALL a bare NULL keeps its open type until the branches meet."""
        source, scope = self.tables(select.tables)
        if select.where is not None:
            predicate = _Scalars(scope, "WHERE").condition(select.where)
            source = Filter(predicate, source)
        outputs = _outputs(select.items, scope)
        if select.group_by or select.having is not None or any(_has_aggregate(output.node) for output in outputs):
            source, values = self.grouped(select, outputs, source, scope)
        else:
            scalars = _Scalars(scope, "SELECT")
            values = [scalars.bind(output.node) for output in outputs]
        columns = []
        for output, value in zip(outputs, values, strict=True):
            if value.type == INTERVAL:
                hint = "Results hold no INTERVAL; write epoch(later) - epoch(earlier) for seconds."
                raise BindError(
                    f'column "{output.name}" is an INTERVAL', code="interval-output", hint=hint, span=output.span
                )
            kept = value if in_union or value.type != NULL else _cast(value, VARCHAR)
            columns.append((Column(self.ids.fresh(prefix + output.name), output.name, kept.type), kept))
        plan: Plan = Map(tuple(columns), source)
        plan = Distinct(plan) if select.distinct else plan
        _check_height(plan, select.span)
        return plan

    # ---- FROM ------------------------------------------------------------------------------------------------------

    def tables(self, tables: tuple[ast.Table, ...]) -> tuple[Plan, _Scope]:
        """A comma list: all pairs, left-deep; the optimizer moves conditions from WHERE to where they belong."""
        plan, scope = self.table(tables[0])
        for table in tables[1:]:
            right, added = self.table(table)
            plan, scope = Join(None, plan, right), scope.joined(added)
        return plan, scope

    def table(self, table: ast.Table) -> tuple[Plan, _Scope]:
        match table:
            case ast.StreamTable():
                return self.stream_table(table)
            case ast.QueryTable(query, window, alias):
                plan = self.query(query, prefix=f"{alias.name}.")
                relation = _Relation(alias.name, schema(plan), None, alias.span)
                return _windowed(plan, window, f'subquery "{alias.name}"'), _Scope((relation,))
            case ast.Join(condition, left, right):
                left_plan, left_scope = self.table(left)
                right_plan, right_scope = self.table(right)
                scope = left_scope.joined(right_scope)
                predicate = None if condition is None else _Scalars(scope, "ON").condition(condition)
                return Join(predicate, left_plan, right_plan), scope
            case _:
                assert_never(table)

    def stream_table(self, table: ast.StreamTable) -> tuple[Plan, _Scope]:
        stream = self.catalog.get(table.name.name, table.name.span)
        label = table.alias or table.name
        alias = table.alias.name if table.alias else stream.name
        plan: Plan
        match stream:
            case BaseStream():
                columns = tuple(Column(self.ids.fresh(f"{alias}.{name}"), name, kind) for name, kind in stream.columns)
                plan = Scan(stream.name, alias, columns)
            case DerivedStream():
                inlined = freshened(stream.plan, self.ids.fresh)
                renamed = tuple(
                    (Column(self.ids.fresh(f"{alias}.{c.name}"), c.name, c.type), ColumnRef(c.id, c.type))
                    for c in schema(inlined)
                )
                plan = Map(renamed, inlined)
            case _:
                assert_never(stream)
        relation = _Relation(alias, schema(plan), stream.name, label.span)
        return _windowed(plan, table.window, f'stream "{stream.name}"'), _Scope((relation,))

    # ---- GROUP BY --------------------------------------------------------------------------------------------------

    def grouped(
        self, select: ast.Select, outputs: list[_Output], source: Plan, scope: _Scope
    ) -> tuple[Plan, list[Expression]]:
        """The plan up to HAVING, and the values of the outputs over its columns."""
        groups = _Groups(self.ids, scope)
        scalars = _Scalars(scope, "GROUP BY")
        for node in select.group_by:
            key, name = _grouping_key(node, outputs, scope)
            groups.add_key(scalars.bind(key), name)
        values = [groups.bind(output.node, "SELECT") for output in outputs]
        having = None
        if select.having is not None:
            having = groups.condition(select.having, "HAVING")
        plan = groups.plan(source)
        return (plan if having is None else Filter(having, plan)), values


def _branches(union: ast.UnionAll) -> Iterator[ast.Select]:
    """The SELECTs of a UNION ALL in order; nesting does not matter, bags are added in any grouping."""
    pending: list[ast.Query] = [union]
    while pending:
        query = pending.pop()
        if isinstance(query, ast.UnionAll):
            pending.extend(reversed(query.branches))
        else:
            yield query


def _windowed(plan: Plan, window: ast.Window | None, what: str) -> Plan:
    """The window over a plan whose elements are valid for one instant each; NOW and no window are that plan itself."""
    if window is None:
        return plan
    cause = next((node for node in walk(plan) if isinstance(node, TimeWindow | Aggregate)), None)
    if cause is not None:
        inside = "a window" if isinstance(cause, TimeWindow) else "an aggregate"
        raise BindError(
            f"a window over {what}, whose elements have intervals already",
            code="window-over-intervals",
            detail=f"It contains {inside}, so its elements are valid for longer than one instant.",
            hint="Leave out this window, or put the windows on the streams that it reads.",
            span=window.span,
        )
    match window:
        case ast.NowWindow():
            return plan
        case ast.RangeWindow(length, slide):
            return TimeWindow(length.microseconds, slide.microseconds if slide else 1, plan)
        case _:
            assert_never(window)


def freshened(plan: Plan, fresh: Callable[[str], str]) -> Plan:
    """The same plan under other ids, so that it can stand in one plan with its original."""
    names: dict[str, str] = {}
    refs: dict[str, Expression] = {}

    def define(column: Column) -> Column:
        # A Map below an Aggregate passes columns on under their ids: the same id is the same column.
        if column.id not in names:
            names[column.id] = fresh(column.id)
        refs[column.id] = ColumnRef(names[column.id], column.type)
        return replace(column, id=names[column.id])

    def argument(call: AggregateCall) -> AggregateCall:
        return (
            call
            if call.argument is None
            else replace(call, argument=replace(call.argument, id=names[call.argument.id]))
        )

    def change(node: Plan) -> Plan:
        match node:
            case Scan(stream, alias, columns):
                return Scan(stream, alias, tuple(map(define, columns)))
            case Filter(predicate, source):
                return Filter(substitute(predicate, refs), source)
            case Join(predicate, left, right):
                return Join(None if predicate is None else substitute(predicate, refs), left, right)
            case Map(outputs, source):
                values = [substitute(value, refs) for _, value in outputs]
                return Map(tuple((define(c), v) for (c, _), v in zip(outputs, values, strict=True)), source)
            case Aggregate(keys, aggregates, source):
                calls = tuple((define(column), argument(call)) for column, call in aggregates)
                return Aggregate(tuple(names[key] for key in keys), calls, source)
            case Union(columns, inputs):
                return Union(tuple(map(define, columns)), inputs)
            case TimeWindow() | Distinct():
                return node
            case _:
                assert_never(node)

    return transform_up(plan, change)


def _check_height(plan: Plan, span: Span) -> None:
    pending = [(plan, 1)]
    while pending:
        node, height = pending.pop()
        if height > MAX_PLAN_HEIGHT:
            raise BindError(
                f"the plan is deeper than {MAX_PLAN_HEIGHT} operators",
                code="too-deep",
                hint="Join fewer streams in one query, or build on fewer named queries.",
                span=span,
            )
        pending.extend((child, height + 1) for child in sources(node))


# ---- the SELECT list -------------------------------------------------------------------------------------------------


def _outputs(items: tuple[ast.Item, ...], scope: _Scope) -> list[_Output]:
    """The output columns: stars expanded, every column with a name of its own."""
    outputs: list[_Output] = []
    taken: set[str] = set()
    for item in items:
        for node in _expanded(item.value, scope):
            name = item.alias.name if item.alias else _output_name(node, scope) or f"col{len(outputs) + 1}"
            if name.lower() in RESERVED_OUTPUTS:
                raise BindError(
                    f'the output name "{name}" is reserved',
                    code="reserved-name",
                    hint="Every result has valid_from and valid_until; give the column another name with AS.",
                    span=item.alias.span if item.alias else item.span,
                )
            outputs.append(_Output(node, _unused(name, taken), item.span))
    return outputs


def _expanded(value: ast.Expression | ast.Star, scope: _Scope) -> list[ast.Expression]:
    if not isinstance(value, ast.Star):
        return [value]
    relations = scope.relations if value.qualifier is None else (scope.relation(value.qualifier),)
    return [
        ast.ColumnName(_exactly(relation.alias, value.span), _exactly(column.name, value.span), span=value.span)
        for relation in relations
        for column in relation.columns
    ]


def _exactly(name: str, span: Span) -> ast.Identifier:
    return ast.Identifier(name, True, span=span)


def _unused(name: str, taken: set[str]) -> str:
    unused, count = name, 1
    while unused.lower() in taken:
        count += 1
        unused = f"{name}_{count}"
    taken.add(unused.lower())
    return unused


def _output_name(node: ast.Expression, scope: _Scope) -> str | None:
    """The name that an expression gives its column, or None."""
    match node:
        case ast.ColumnName():
            return scope.column(node).name
        case ast.Function(name, _):
            return name.name.lower()
        case ast.Cast(operand, _):
            return _output_name(operand, scope)
        case ast.Case():
            return "case"
    return None


def _has_aggregate(node: ast.Expression) -> bool:
    pending: list[ast.Node] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Function) and each.name.name.lower() in AGGREGATES:
            return True
        pending.extend(ast.children(each))
    return False


def _grouping_key(node: ast.Expression, outputs: list[_Output], scope: _Scope) -> tuple[ast.Expression, str]:
    """The expression that an element of GROUP BY means, and a name for it.

    As in PostgreSQL a name is a column of the input if there is one, else an output; a whole number is a position.
    """
    match node:
        case ast.Number(digits) if digits.isdecimal():
            if len(digits) > 9 or not 1 <= int(digits) <= len(outputs):
                raise BindError(
                    f"GROUP BY position {digits} is not in the SELECT list",
                    code="group-by-position",
                    hint=f"Positions go from 1 to {len(outputs)}.",
                    span=node.span,
                )
            output = outputs[int(digits) - 1]
            return output.node, output.name
        case ast.ColumnName(None, column) if not scope.matches(column):
            for output in outputs:
                if column.matches(output.name):
                    return output.node, output.name
        case ast.Number() | ast.Text() | ast.Truth() | ast.Null() | ast.TypedText() | ast.Interval():
            raise BindError(
                "GROUP BY a constant",
                code="group-by-constant",
                hint="Name a column, an output or the position of an output.",
                span=node.span,
            )
    return node, _output_name(node, scope) or "key"


class _Groups:
    """The keys and aggregates of one SELECT.

    Expressions above the Aggregate are bound over its input first; then what equals a key becomes the key, and a
    column that is left over is not grouped.
    """

    def __init__(self, ids: _Ids, scope: _Scope) -> None:
        self.ids = ids
        self.scope = scope
        self.inputs: dict[Expression, Column] = {}  # what the Map below computes, by meaning
        self.keys: dict[Expression, Column] = {}
        self.calls: dict[AggregateCall, Column] = {}
        self.named = {column.id: column for relation in scope.relations for column in relation.columns}

    def add_key(self, value: Expression, name: str) -> None:
        value = _cast(value, VARCHAR) if value.type == NULL else value
        self.keys[value] = self.input(value, name)

    def input(self, value: Expression, name: str) -> Column:
        """The column of the Map below that has this value."""
        if value not in self.inputs:
            column = self.named[value.id] if isinstance(value, ColumnRef) else None
            self.inputs[value] = column or Column(self.ids.fresh(name), name, value.type)
        return self.inputs[value]

    def aggregate(self, function: str, value: Expression | None, kind: Type) -> ColumnRef:
        """The column of the Aggregate with this aggregate; equal ones are computed once."""
        argument, label = None, "all"
        if value is not None:
            column = self.input(_cast(value, VARCHAR) if value.type == NULL else value, "argument")
            argument, label = ColumnRef(column.id, column.type), column.name
        call = AggregateCall(function, argument, kind)
        if call not in self.calls:
            name = f"{function}_{label}"
            self.calls[call] = Column(self.ids.fresh(name), name, kind)
        return ColumnRef(self.calls[call].id, kind)

    def bind(self, node: ast.Expression, clause: str) -> Expression:
        scalars = _Scalars(self.scope, clause, self)
        return self.regrouped(scalars.bind(node), scalars.places)

    def condition(self, node: ast.Expression, clause: str) -> Expression:
        scalars = _Scalars(self.scope, clause, self)
        return self.regrouped(scalars.condition(node), scalars.places)

    def regrouped(self, value: Expression, places: _Places) -> Expression:
        """The value in terms of keys and aggregates."""
        if value in self.keys:
            key = self.keys[value]
            return ColumnRef(key.id, key.type)
        match value:
            case Literal():
                return value
            case ColumnRef(id, _):
                if id in self.named:
                    raise self.ungrouped(id, places.span(value))
                return value
            case Call(function, arguments, kind):
                return Call(function, tuple(self.regrouped(each, places) for each in arguments), kind)
            case Case(branches, otherwise, kind):
                changed = tuple((self.regrouped(c, places), self.regrouped(r, places)) for c, r in branches)
                return Case(changed, self.regrouped(otherwise, places), kind)
            case Cast(operand, kind):
                return Cast(self.regrouped(operand, places), kind)
            case _:
                assert_never(value)

    def ungrouped(self, id: str, span: Span | None) -> BindError:
        name = self.named[id].name
        grouped = "Add it to GROUP BY" if self.keys else f"Add GROUP BY {name}"
        return BindError(
            f'column "{name}" is neither grouped nor inside of an aggregate',
            code="ungrouped-column",
            hint=f"{grouped}, or aggregate it, as in MAX({name}).",
            span=span,
        )

    def plan(self, source: Plan) -> Plan:
        if not self.keys and not self.calls:
            # HAVING alone groups too. A count gives the one element of the answer a column.
            self.aggregate("count", None, BIGINT)
        if self.inputs:
            # COUNT(*) alone needs no column at all; then the columns of the source stay rather than none.
            outputs = ((column, value) for value, column in self.inputs.items())
            source = Map(tuple(outputs), source)
        keys = dict.fromkeys(column.id for column in self.keys.values())
        return Aggregate(tuple(keys), tuple((column, call) for call, column in self.calls.items()), source)


# ---- expressions -----------------------------------------------------------------------------------------------------


class _Places:
    """Where each use of a column stands in the text, by the identity of its node: equal nodes have many places."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Expression, Span]] = {}

    def note(self, value: ColumnRef, span: Span) -> ColumnRef:
        self.known[id(value)] = (value, span)  # the node is kept, so that its identity is not reused
        return value

    def span(self, value: Expression) -> Span | None:
        found = self.known.get(id(value))
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class _Operand:
    """A bound argument, with its place. `open` marks a text literal, which takes the type that is needed."""

    value: Expression
    span: Span
    open: bool = False

    @property
    def type(self) -> Type:
        return NULL if self.open else self.value.type


class _Scalars:
    """Binds scalar expressions over one scope; aggregates only where there are `groups` to collect them."""

    def __init__(self, scope: _Scope, clause: str, groups: _Groups | None = None) -> None:
        self.scope = scope
        self.clause = clause
        self.groups = groups
        self.places = _Places()

    def condition(self, node: ast.Expression, what: str | None = None) -> Expression:
        """A BOOLEAN; NULL is one too."""
        operand = self.operand(node)
        if operand.type not in (BOOLEAN, NULL):
            raise BindError(
                f"{what or self.clause} needs a condition, not {_article(operand.type)}",
                code="not-boolean",
                hint="Compare it with something, as in x > 0 or x IS NOT NULL.",
                span=node.span,
            )
        return _fitted(operand, BOOLEAN)

    def operand(self, node: ast.Expression) -> _Operand:
        return _Operand(self.bind(node), node.span, isinstance(node, ast.Text))

    def bind(self, node: ast.Expression) -> Expression:
        match node:
            case ast.Number(digits):
                return _number(digits, node.span)
            case ast.Text(text):
                return Literal(text, VARCHAR)
            case ast.Truth(truth):
                return Literal(truth, BOOLEAN)
            case ast.Null():
                return Literal(None, NULL)
            case ast.TypedText(kind, text):
                return _read(text, kind, node.span)
            case ast.Interval(microseconds):
                return Literal(microseconds, INTERVAL)
            case ast.ColumnName():
                column = self.scope.column(node)
                return self.places.note(ColumnRef(column.id, column.type), node.span)
            case ast.Unary(operator, operand):
                return self.unary(operator, operand, node.span)
            case ast.Binary(operator, left, right):
                return self.apply(operator, (left, right), node.span)
            case ast.Logical(operator, operands):
                return self.apply(operator.lower(), operands, node.span)
            case ast.IsTest():
                return self.is_test(node)
            case ast.Between():
                return self.between(node)
            case ast.InList(operand, items, negated):
                return _negated(self.apply("in", (operand, *items), node.span), negated)
            case ast.Like(operand, pattern, negated):
                return _negated(self.apply("like", (operand, pattern), node.span), negated)
            case ast.Case():
                return self.case(node)
            case ast.Cast():
                return self.cast(node)
            case ast.Function():
                return self.function(node)
            case _:
                assert_never(node)

    def apply(self, function: str, nodes: tuple[ast.Expression, ...], span: Span) -> Expression:
        return _call(function, [self.operand(node) for node in nodes], span)

    def unary(self, operator: str, node: ast.Expression, span: Span) -> Expression:
        if operator == "NOT":
            return self.apply("not", (node,), span)
        if isinstance(node, ast.Number):
            return _number(node.digits if operator == "+" else f"-{node.digits}", span)
        if operator == "-":
            return self.apply("neg", (node,), span)
        operand = self.operand(node)
        _call("neg", [operand], span)  # + changes nothing, but is defined for what - is defined for
        return operand.value

    def is_test(self, node: ast.IsTest) -> Expression:
        if node.what == "NULL":
            return _negated(self.apply("is_null", (node.operand,), node.span), node.negated)
        # x IS TRUE is never NULL: an unknown x is not true, and it is not false.
        truth = self.condition(node.operand, f"IS {node.what}")
        if node.what == "UNKNOWN":
            return _negated(Call("is_null", (truth,), BOOLEAN), node.negated)
        truth = _negated(truth, node.what == "FALSE")
        return _negated(Call("coalesce", (truth, Literal(False, BOOLEAN)), BOOLEAN), node.negated)

    def between(self, node: ast.Between) -> Expression:
        operand = self.operand(node.operand)
        _check_repeatable(operand)
        above = _call(">=", [operand, self.operand(node.low)], node.span)
        below = _call("<=", [operand, self.operand(node.high)], node.span)
        return _negated(Call("and", (above, below), BOOLEAN), node.negated)

    def case(self, node: ast.Case) -> Expression:
        subject = None if node.operand is None else self.operand(node.operand)
        if subject is not None:
            _check_repeatable(subject)
        conditions = [self.when(subject, condition) for condition, _ in node.branches]
        results = [self.operand(result) for _, result in node.branches]
        if node.otherwise is not None:
            results.append(self.operand(node.otherwise))
        kind = meet([result.type for result in results])
        if kind is None:
            kinds = " and ".join(dict.fromkeys(str(result.value.type) for result in results))
            raise BindError(
                f"CASE has results of {kinds}",
                code="type-mismatch",
                hint="CAST them to one type.",
                span=node.span,
            )
        fitted = [_fitted(result, kind) for result in results]
        otherwise = Literal(None, kind) if node.otherwise is None else fitted.pop()
        return Case(tuple(zip(conditions, fitted, strict=True)), otherwise, kind)

    def when(self, subject: _Operand | None, node: ast.Expression) -> Expression:
        if subject is None:
            return self.condition(node, "WHEN")
        return _call("=", [subject, self.operand(node)], node.span)

    def cast(self, node: ast.Cast) -> Expression:
        value, kind = self.bind(node.operand), node.type.type
        if not castable(value.type, kind):
            raise BindError(
                f"{value.type} cannot be cast to {kind}",
                code="cannot-cast",
                hint=_cast_hint(value.type),
                span=node.span,
            )
        return _cast(value, kind)

    def function(self, node: ast.Function) -> Expression:
        name = node.name.name.lower()
        if name in AGGREGATES:
            return self.aggregate(name, node)
        if isinstance(node.arguments, ast.Star):
            hint = "Only COUNT(*) takes a star."
            raise BindError(f"{name} does not take *", code="type-mismatch", hint=hint, span=node.arguments.span)
        if name in OPERATOR_WORDS:
            raise BindError(
                f"function {name} does not exist",
                code="unknown-function",
                hint=f"Write {FUNCTIONS[name].usage}.",
                span=node.name.span,
            )
        known = name in FUNCTIONS or name in ALIASES
        return _call(name, [self.operand(each) for each in node.arguments], node.span if known else node.name.span)

    def aggregate(self, name: str, node: ast.Function) -> Expression:
        if self.groups is None:
            raise self.misplaced_aggregate(name, node.span)
        value: Expression | None = None
        if not isinstance(node.arguments, ast.Star):
            if len(node.arguments) != 1:
                usage = f"Write {AGGREGATES[name].usage}."
                raise BindError(f"{name} takes one argument", code="type-mismatch", hint=usage, span=node.span)
            value = _Scalars(self.scope, "an aggregate").bind(node.arguments[0])
        if name == "count" and isinstance(value, Literal) and value.value is not None:
            value = None  # COUNT(1) counts rows
        try:
            kind = aggregate_type(name, None if value is None else value.type)
        except FunctionError as error:
            raise BindError(error.message, code="type-mismatch", hint=error.hint, span=node.span) from None
        return self.groups.aggregate(name, value, kind)

    def misplaced_aggregate(self, name: str, span: Span) -> BindError:
        if self.clause == "an aggregate":
            hint = "Aggregate in a subquery in FROM, and aggregate that."
            return BindError(f"{name} inside of another aggregate", code="nested-aggregate", hint=hint, span=span)
        hints = {"WHERE": "Conditions on aggregates belong into HAVING."}
        hint = hints.get(self.clause, "Aggregate in a subquery in FROM.")
        return BindError(
            f"aggregate {name} is not allowed in {self.clause}", code="aggregate-not-allowed", hint=hint, span=span
        )


def _call(function: str, operands: list[_Operand], span: Span) -> Expression:
    """The function that fits the operands, applied to them after the casts that it asks for."""
    try:
        resolved = resolve(function, tuple(operand.type for operand in operands))
        pairs = zip(operands, resolved.argument_types, strict=True)
        arguments = tuple(_fitted(operand, kind) for operand, kind in pairs)
        check(resolved.function, arguments)
    except FunctionError as error:
        known = function in FUNCTIONS or function in ALIASES
        code = "type-mismatch" if known else "unknown-function"
        hint = "CAST them so that all have one type." if function in COMPARISONS else error.hint
        raise BindError(error.message, code=code, hint=hint, span=span) from None
    return Call(resolved.function, arguments, resolved.result)


def _negated(value: Expression, negated: bool) -> Expression:
    return Call("not", (value,), BOOLEAN) if negated else value


def _check_repeatable(operand: _Operand) -> None:
    pending, count = [operand.value], 0
    while pending:
        count += 1
        pending.extend(children(pending.pop()))
        if count > MAX_REPEATED_NODES:
            raise BindError(
                "the operand is too large to be compared more than once",
                code="too-large",
                hint="Compute it in a subquery in FROM, and compare its column.",
                span=operand.span,
            )


def _article(kind: Type) -> str:
    return f"{'an' if str(kind)[0] in 'AEIOU' else 'a'} {kind}"


def _cast_hint(kind: Type) -> str | None:
    if kind == INTERVAL:
        return "Subtract epoch(a) - epoch(b) to get seconds."
    return "Write epoch(ts) for the seconds since 1970." if kind == TIMESTAMP else None


# ---- literals --------------------------------------------------------------------------------------------------------

_EXAMPLES: Final = {
    "TIMESTAMP": "Write it like '2024-01-31 23:59:59.5'.",
    "DATE": "Write it like '2024-01-31'.",
    "BOOLEAN": "Write TRUE or FALSE.",
    "INTERVAL": "Write it like '10 seconds' or '1 hour 30 minutes'.",
}


def _number(digits: str, span: Span) -> Literal:
    """A number: INT, BIGINT or DECIMAL by its size, DECIMAL with a point, DOUBLE with an exponent."""
    if "e" in digits.lower():
        value = float(digits)
        if not math.isfinite(value):
            hint = "A DOUBLE goes up to about 1.8e308."
            raise BindError("the number is too large", code="number-too-large", hint=hint, span=span)
        return Literal(value, DOUBLE)
    whole, _, fraction = digits.lstrip("-").partition(".")
    precision = max(len(whole.lstrip("0")) + len(fraction), 1)
    if precision > MAX_PRECISION:
        hint = f"A DECIMAL has up to {MAX_PRECISION} digits; write an exponent for a DOUBLE, as in 1e40."
        raise BindError("the number has too many digits", code="number-too-large", hint=hint, span=span)
    exact = Decimal(digits)
    if "." not in digits and -(2**63) <= exact < 2**63:
        return Literal(int(exact), INT if -(2**31) <= exact < 2**31 else BIGINT)
    return Literal(exact, decimal(precision, len(fraction)))


def _fitted(operand: _Operand, kind: Type) -> Expression:
    """The operand in the type that is needed; a text literal is read as a value of that type."""
    if operand.open and kind != VARCHAR:
        assert isinstance(operand.value, Literal), "only a text literal is open"
        return _read(str(operand.value.value), kind, operand.span)
    return _cast(operand.value, kind)


def _read(text: str, kind: Type, span: Span) -> Literal:
    """The literal of type `kind` that a text denotes."""
    value = _interval(text) if kind == INTERVAL else evaluate.parse(text, kind)
    # Reading '1.005' as DECIMAL(3,2) would compare with another number than the one that is written.
    if value is None or (isinstance(value, Decimal) and not _denotes(text, value)):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        hint = _EXAMPLES.get(kind.name, "Write the number without quotes.")
        raise BindError(f"'{shown}' is not {_article(kind)}", code="invalid-literal", hint=hint, span=span)
    return Literal(value, kind)


def _denotes(text: str, value: Decimal) -> bool:
    try:
        return Decimal(text.strip()) == value
    except InvalidOperation:  # an exponent beyond all bounds
        return False


def _interval(text: str) -> int | None:
    amounts = amounts_of(text)
    try:
        return None if amounts is None else microseconds_of(amounts, Span(text, 0, len(text)))
    except ParseError:
        return None


def _cast(value: Expression, kind: Type) -> Expression:
    """The value in another type. A literal is cast here, unless it has no value there: that is decided at run time."""
    if value.type == kind:
        return value
    if isinstance(value, Literal):
        cast = evaluate.cast(value.value, value.type, kind)
        if cast is not None or value.value is None:
            return Literal(cast, kind)
    return Cast(value, kind)
