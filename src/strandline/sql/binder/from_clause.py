"""FROM: streams, named queries, subqueries and joins become a plan and the scope of their columns.

A subquery in FROM reads nothing of the queries around it, unless it is LATERAL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, DOUBLE, Column
from strandline.functions.signatures import meet
from strandline.logical.catalog import ONE_ROW, WEIGHT, BaseStream, DerivedStream, Table
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, conjunction
from strandline.logical.plan import Join, Map, OuterJoin, Plan, Scan, SemiJoin
from strandline.logical.schema import pass_on, rename, schema
from strandline.logical.tree import size
from strandline.sql import ast
from strandline.sql.binder import laterals, window_tables
from strandline.sql.binder.asof_joins import as_table_join, bind_asof_join
from strandline.sql.binder.expressions import Scalars, equality
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.lookups import join_as_of
from strandline.sql.binder.names import freshened
from strandline.sql.binder.notices import is_read_without_window
from strandline.sql.binder.scaled_aggregates import not_weighted
from strandline.sql.binder.scope import Relation, Scope, suggestion
from strandline.sql.binder.stored import bind_as_of, not_stored
from strandline.sql.binder.unnest import bind_unnest, join_unnest, not_behind_rows
from strandline.sql.binder.windows import Validity, granular, validity, windowed

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

# What a statement may take over from the queries behind its streams, in nodes of plans and expressions.
MAX_INLINED: Final = 20_000

_CONSTANT_HINT: Final = (
    "Write the constants into the SELECT list of the stream, or declare the rows and join them:"
    " CREATE TABLE x (k VARCHAR, a INT) SOURCE rows(('x', 1)) CONSTANT."
)


def bind_tables(binder: Binder, tables: tuple[ast.TableReference, ...]) -> tuple[Plan, Scope]:
    """A comma list: all pairs, left-deep; the optimizer moves conditions from WHERE to where they belong. Without FROM
    there is one row without columns."""
    if not tables:
        if not binder.names.stored:
            raise BindError(
                "a continuous query cannot read rows that are not in a stream or table",
                code="missing-from",
                hint=_CONSTANT_HINT,
                span=binder.select_span,
            )
        return Scan(ONE_ROW, ONE_ROW, ()), Scope(())
    plan, scope = _first_table(binder, tables[0])
    for table in tables[1:]:
        if isinstance(table, ast.QueryTable) and table.lateral:
            pair = ast.Join(None, tables[0], table, span=table.span)
            plan, scope = laterals.bind_lateral(binder, pair, table, plan, scope)
            continue
        if isinstance(table, ast.UnnestTable):
            plan, scope = bind_unnest(binder, plan, scope, table)
            continue
        right, added = bind_table(binder, table)
        plan, scope = _joined(None, None, (plan, scope), (right, added), table), scope.joined(added)
    return plan, scope


def bind_table(binder: Binder, table: ast.TableReference) -> tuple[Plan, Scope]:
    match table:
        case ast.StreamTable():
            return _stream_table(binder, table)
        case ast.QueryTable(query, window, alias, granularity):
            plan = binder.query(query, prefix=f"{alias.name}.")
            scope = Scope((Relation(alias.name, schema(plan), None, alias.span),))
            binder.spans.update(dict.fromkeys((column.id for column in schema(plan)), alias.span))
            plan = windowed(plan, window, f'subquery "{alias.name}"', scope)
            return _without_window(binder, granular(plan, granularity), window, alias.name), scope
        case ast.WindowTable():
            return window_tables.bind_window_table(binder, table)
        case ast.Join():
            return _join(binder, table)
        case ast.UnnestTable():
            raise not_behind_rows(table)
        case _:
            assert_never(table)


def _join(binder: Binder, join: ast.Join) -> tuple[Plan, Scope]:
    join = as_table_join(join, binder.names.catalog)
    left, left_scope = _first_table(binder, join.left)
    if isinstance(join.right, ast.QueryTable) and join.right.lateral:
        if join.using or join.natural or join.asof:
            hint = "Write JOIN LATERAL (…) AS m ON TRUE."
            raise BindError("LATERAL takes ON only", code="lateral", hint=hint, span=join.right.span)
        return laterals.bind_lateral(binder, join, join.right, left, left_scope)
    if isinstance(join.right, ast.UnnestTable):
        return join_unnest(binder, left, left_scope, join, join.right)
    right, right_scope = bind_table(binder, join.right)
    scope = left_scope.joined(right_scope)
    shared = join.using or (_shared(left_scope, right_scope, join.span) if join.natural else ())
    pairs = [(_of_side(left_scope, name, "left"), _of_side(right_scope, name, "right")) for name in shared]
    if join.asof:
        plan = bind_asof_join(binder, join, (left, left_scope), (right, right_scope), pairs)
    else:
        if shared:
            predicate = conjunction(
                tuple(equality(one, two, name.span) for (one, two), name in zip(pairs, shared, strict=True))
            )
        else:
            predicate = None if join.condition is None else Scalars(scope, "ON").condition(join.condition)
        plan = _joined(join.kind, predicate, (left, left_scope), (right, right_scope), join.right)
    if join.kind in ("SEMI", "ANTI"):
        return plan, left_scope
    if not shared:
        return plan, scope
    plan, merged = _merged(binder, join.kind, plan, pairs)
    return plan, scope.using(left_scope, right_scope, merged, join.span)


def _first_table(binder: Binder, table: ast.TableReference) -> tuple[Plan, Scope]:
    """What nothing stands to the left of: there is no stream whose rows could say as of when a table counts."""
    if (as_of := _time_column(table)) is not None:
        hint = "Write the stream first: FROM s JOIN table FOR SYSTEM_TIME AS OF s.ts ON …."
        raise as_of.error("a table AS OF the time of a stream must be on the right of the stream", "lookup-as-of", hint)
    return bind_table(binder, table)


def _time_column(table: ast.TableReference) -> ast.ColumnName | None:
    """The column after FOR SYSTEM_TIME AS OF, if there is one."""
    as_of = table.as_of if isinstance(table, ast.StreamTable) else None
    return as_of if isinstance(as_of, ast.ColumnName) else None


def _joined(
    kind: str | None,
    predicate: Expression | None,
    left: tuple[Plan, Scope],
    right: tuple[Plan, Scope],
    table: ast.TableReference,
) -> Plan:
    """A join with a table of FROM; one AS OF the time of a stream is a look-up."""
    if (as_of := _time_column(table)) is None:
        return _join_of_kind(kind, predicate, left[0], right[0])
    span = right[1].relations[0].span
    return join_as_of(left[0], left[1], right[0], kind, predicate, span, as_of)


def _merged(
    binder: Binder, kind: str | None, plan: Plan, pairs: list[tuple[Column, Column]]
) -> tuple[Plan, tuple[Column, ...]]:
    """The columns that stand for the shared ones: those of the side that always has them, or either."""
    if kind != "FULL":
        return plan, tuple(two if kind == "RIGHT" else one for one, two in pairs)
    added: list[tuple[Column, Expression]] = []
    for one, two in pairs:
        type_ = meet([one.type, two.type])
        assert type_ is not None, "columns that can be compared have a common type"
        values = tuple(cast_to(ColumnRef(c.id, c.type), type_) for c in (one, two))
        added.append((Column(binder.ids.fresh(one.name), one.name, type_), Call("coalesce", values, type_)))
    return Map((*pass_on(schema(plan)), *added), plan), tuple(column for column, _ in added)


def _stream_table(binder: Binder, table: ast.StreamTable) -> tuple[Plan, Scope]:
    stream = binder.names.get(table.name)
    label = table.alias or table.name
    alias = table.alias.name if table.alias else stream.name
    plan: Plan
    time = None
    valid: Validity = (None, None)
    at = bind_as_of(table, stream, binder.names.stored)
    match stream:
        case BaseStream() if binder.names.stored:
            raise not_stored(table.name, stream)
        case BaseStream():
            if table.weighted and stream.changes is not None:
                raise not_weighted(table)
            visible = stream.queried_columns
            declared = (*visible, (WEIGHT, DOUBLE)) if table.weighted else visible
            columns = tuple(Column(binder.ids.fresh(f"{alias}.{name}"), name, kind) for name, kind in declared)
            intervals = stream.has_intervals or stream.changes is not None
            plan = Scan(stream.name, alias, columns, intervals, stream.changes)
            time = next((column.id for column in columns if column.name == stream.time_column), None)
            valid = validity(stream, columns, table)
        case DerivedStream() | Table() if table.weighted:
            raise not_weighted(table)
        case Table():
            visible = stream.queried_columns
            columns = tuple(Column(binder.ids.fresh(f"{alias}.{name}"), name, kind) for name, kind in visible)
            key = tuple(column.id for column in columns if column.name in stream.key)
            plan = Scan(stream.name, alias, columns, True, None, stream.kind, key, stream.retroactive, at)
        case DerivedStream(is_materialized=True) if binder.names.stored:
            columns = tuple(Column(binder.ids.fresh(f"{alias}.{c.name}"), c.name, c.type) for c in schema(stream.plan))
            plan = Scan(stream.name, alias, columns, intervals=True, table="changing", at=at)
        case DerivedStream():
            _count_inlined(binder, stream, table.span)
            inlined = freshened(binder.stored_plan(stream, table.name), binder.ids.fresh)
            columns = schema(inlined)
            renamed = tuple(Column(binder.ids.fresh(f"{alias}.{c.name}"), c.name, c.type) for c in columns)
            plan = Map(rename(columns, renamed), inlined)
        case _:
            assert_never(stream)
    scope = Scope((Relation(alias, schema(plan), stream.name, label.span, time_column=time, validity=valid),))
    binder.spans.update(dict.fromkeys((column.id for column in schema(plan)), label.span))
    what = "query" if binder.names.is_local(stream) else stream.word
    plan = windowed(plan, table.window, f'{what} "{stream.name}"', scope)
    return _without_window(binder, granular(plan, table.granularity), table.window, alias), scope


def _without_window(binder: Binder, plan: Plan, window: ast.Window | None, alias: str) -> Plan:
    """The plan; note if no window says for how long its rows are valid."""
    if window is None and is_read_without_window(plan):
        binder.unwindowed.update(dict.fromkeys((column.id for column in schema(plan)), alias))
    return plan


def _count_inlined(binder: Binder, stream: DerivedStream, span: Span) -> None:
    """Count what comes from behind a name: queries that read others twice double with every level."""
    binder.inlined += size(stream.plan)
    if binder.inlined > MAX_INLINED:
        message = "the plan of the queries behind these streams is too large"
        hint = "Each reference to a derived stream expands to its query; refer to it less often."
        raise BindError(message, code="too-large", hint=hint, span=span)


def _join_of_kind(kind: str | None, predicate: Expression | None, left: Plan, right: Plan) -> Plan:
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
    right_names = {column.name.lower() for relation in right.relations for column in relation.visible}
    left_names = dict.fromkeys(c.name for relation in left.relations for c in relation.visible)
    return tuple(ast.Identifier(name, True, span=span) for name in left_names if name.lower() in right_names)


def _of_side(scope: Scope, name: ast.Identifier, side: str) -> Column:
    matches = scope.matches(name)
    if len(matches) == 1:
        return matches[0][1]
    if matches:
        hint = "Write the condition with ON."
        raise name.error(f'column "{name.name}" is ambiguous on the {side} side of the join', "ambiguous-column", hint)
    names = [column.name for relation in scope.relations for column in relation.visible]
    hint = suggestion(name.name, names, "Columns are")
    raise name.error(f'column "{name.name}" does not exist on the {side} side of the join', "unknown-column", hint)
