"""ASOF JOIN: each row of a stream, at its instant, with the last row of another stream at or before it.

`a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts` is the join of `a` with `b WINDOW(PARTITION BY k ROWS 1)`: at the instant
of a row of `a`, that window holds the last row of `b` of each key. With `>` a row of `b` at the same instant does not
count: then the window as it was an instant before is needed, too, which is the window and what it has just let go.

A window over `a` is applied to the pairs: they stay for as long as the row of `a` does. A table is looked up as of the
time of the row: `a ASOF JOIN t ON a.k = t.k AND a.ts >= t.valid_from` is `JOIN t FOR SYSTEM_TIME AS OF a.ts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, Column
from strandline.logical.catalog import BaseStream, Catalog, Table
from strandline.logical.expressions import Call, Cast, ColumnRef, Expression, Literal, columns_of, conjunction
from strandline.logical.plan import Changes, CountWindow, Join, Map, OuterJoin, Plan, TimeWindow, Union
from strandline.logical.properties.instant_columns import instant_columns
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.schema import column_ids, pass_on, schema
from strandline.sql import ast
from strandline.sql.binder.expressions import Operand, Scalars, call, equality
from strandline.sql.binder.names import freshened
from strandline.sql.binder.scope import Scope

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

HINT: Final = "Write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, where a and b are ORDERED BY ts."
_MIRRORED: Final = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class _Condition:
    """What ON or USING of an ASOF JOIN says: the equalities, the values of the right that they compare, and the
    comparison of times."""

    equalities: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    comparison: Expression
    is_strict: bool


def time_column_of(catalog: Catalog) -> Callable[[str], str | None]:
    """The time column of a base stream, by the name of the stream."""

    def time_column(name: str) -> str | None:
        stream = catalog.get(name)
        return stream.time_column if isinstance(stream, BaseStream) else None

    return time_column


def bind_asof_join(
    binder: Binder,
    join: ast.Join,
    left: tuple[Plan, Scope],
    right: tuple[Plan, Scope],
    pairs: list[tuple[Column, Column]],
) -> Plan:
    """The join of two streams; `pairs` are the columns of USING, of which the last is the time."""
    times = time_column_of(binder.names.catalog)
    window, rows = _without_window(left[0], join.left.span)
    if not is_chronon_stream(right[0]):
        hint = (
            "Remove its window: ASOF JOIN finds the last row by itself. To bound its age, compare the times in WHERE."
        )
        raise _error("the right side of ASOF JOIN must be a stream without a window", join.right.span, hint)
    sides = instant_columns(rows, times), instant_columns(right[0], times)
    condition = _conditions(join, left[1].joined(right[1]), (rows, right[0]), sides, pairs)
    last, keys = right[0], list[str]()
    for key in condition.keys:
        if isinstance(key, ColumnRef):
            keys.append(key.id)
            continue
        column = Column(binder.ids.fresh("key"), "key", key.type)
        last = Map((*pass_on(schema(last)), (column, key)), last)
        keys.append(column.id)
    last = CountWindow(tuple(dict.fromkeys(keys)), 1, 1, last)
    tests = condition.equalities
    if condition.is_strict:
        last = _or_just_gone(last, binder.ids.fresh)
        tests = (*tests, condition.comparison)
    predicate = conjunction(tests)
    if join.kind == "LEFT":
        joined: Plan = OuterJoin(False, Literal(True, BOOLEAN) if predicate is None else predicate, rows, last)
    else:
        joined = Join(predicate, rows, last)
    return joined if window is None else replace(window, source=joined)


def _without_window(plan: Plan, span: Span) -> tuple[TimeWindow | None, Plan]:
    """A window over the left side, and what is below it."""
    window = plan if isinstance(plan, TimeWindow) else None
    rows = plan if window is None else window.source
    if not is_chronon_stream(rows):
        hint = "Apply the window to the join: FROM (SELECT … FROM a ASOF JOIN b ON …) AS j WINDOW(…)."
        raise _error(
            "the left side of ASOF JOIN must be a stream without a window, or with WINDOW(RANGE …)", span, hint
        )
    return window, rows


def _or_just_gone(window: Plan, fresh: Callable[[str], str]) -> Plan:
    """The rows of a window at an instant and at the one before: S(t) and S(t - 1) - S(t)."""
    now, before = freshened(window, fresh), freshened(window, fresh)
    return Union(schema(window), (now, Changes("delete", before)))


def _conditions(
    join: ast.Join,
    scope: Scope,
    plans: tuple[Plan, Plan],
    instants: tuple[frozenset[str], frozenset[str]],
    pairs: list[tuple[Column, Column]],
) -> _Condition:
    left, right = map(column_ids, plans)
    equalities: list[Expression] = []
    keys: list[Expression] = []
    comparisons: list[tuple[Expression, bool]] = []
    for test, span in _tests(join, scope, pairs):
        match test:
            case Call("=", (one, two)) if columns_of(one) <= left and columns_of(two) <= right:
                equalities.append(test)
                keys.append(two)
            case Call("=", (one, two)) if columns_of(one) <= right and columns_of(two) <= left:
                equalities.append(test)
                keys.append(one)
            case Call("<" | "<=" | ">" | ">=" as written, (one, two)):
                of_left, of_right = (one, two) if _column(one) in left else (two, one)
                word = written if of_left is one else _MIRRORED[written]
                if _column(of_left) not in instants[0] or _column(of_right) not in instants[1]:
                    message = "ASOF JOIN compares other columns than the time columns of the two streams"
                    raise _error(message, span, "Compare the columns of ORDERED BY: a.ts >= b.ts.")
                if word in ("<", "<="):
                    message = "ASOF JOIN finds the last row at or before another, not the next one after it"
                    raise _error(message, span, "Write a.ts >= b.ts, or exchange the two streams.")
                comparisons.append((test, word == ">"))
            case _:
                message = "ASOF JOIN takes equalities and one comparison of times"
                raise _error(
                    message, span, "Put other conditions on the pair into WHERE, those on one stream into a subquery."
                )
    if len(comparisons) != 1:
        message = f"ASOF JOIN needs one comparison of times, found {len(comparisons) or 'none'}"
        raise _error(message, join.span if join.condition is None else join.condition.span, HINT)
    return _Condition(tuple(equalities), tuple(keys), *comparisons[0])


def _tests(join: ast.Join, scope: Scope, pairs: list[tuple[Column, Column]]) -> list[tuple[Expression, Span]]:
    """The parts of the condition, each with its place; the last column of USING is that of the times."""
    if pairs:
        *same, (one, two) = pairs
        refs = [Operand(ColumnRef(column.id, column.type), join.span) for column in (one, two)]
        tests = [*(equality(*pair, join.span) for pair in same), call(">=", refs, join.span)]
        return [(test, name.span) for test, name in zip(tests, join.using, strict=True)]
    assert join.condition is not None, "ASOF JOIN has a condition or USING"
    scalars = Scalars(scope, "ON")
    return [(scalars.condition(part), part.span) for part in conjuncts_of(join.condition)]


def conjuncts_of(node: ast.Expression) -> tuple[ast.Expression, ...]:
    """The parts of a conjunction as it is written."""
    if isinstance(node, ast.Logical) and node.operator == "AND":
        return tuple(part for operand in node.operands for part in conjuncts_of(operand))
    return (node,)


def _column(value: Expression) -> str | None:
    """The column that a side of a comparison is, also where a DATE is compared with a TIMESTAMP."""
    match value:
        case ColumnRef(column_id) | Cast(ColumnRef(column_id)):
            return column_id
    return None


# ---- tables ----------------------------------------------------------------------------------------------------------


def as_table_join(join: ast.Join, catalog: Catalog) -> ast.Join:
    """An ASOF JOIN with a table as the join FOR SYSTEM_TIME AS OF that it is; any other join as it is."""
    right = join.right
    if not join.asof or not isinstance(right, ast.StreamTable) or right.name.name not in catalog:
        return join
    if not isinstance(catalog.get(right.name.name), Table):
        return join
    alias = (right.alias or right.name).name
    others: list[ast.Expression] = []
    times: list[ast.ColumnName] = []
    for part in () if join.condition is None else conjuncts_of(join.condition):
        time = _as_of_time(part, alias)
        others, times = ([*others, part], times) if time is None else (others, [*times, time])
    if len(times) != 1:
        hint = f"Write ASOF JOIN {right.name.name} ON a.k = {alias}.k AND a.ts >= {alias}.valid_from."
        raise _error(
            f'ASOF JOIN with table "{right.name.name}" goes by the times of its changes', join.right.span, hint
        )
    condition: ast.Expression | None = others[0] if len(others) == 1 else None
    if len(others) > 1:
        condition = ast.Logical("AND", tuple(others), span=join.span)
    looked_up = replace(right, as_of=times[0])
    return replace(join, condition=condition or ast.Truth(True, span=join.span), right=looked_up, asof=False)


def _as_of_time(part: ast.Expression, table: str) -> ast.ColumnName | None:
    """The column x of `x >= table.valid_from`."""
    match part:
        case ast.Binary(">=", ast.ColumnName() as time, ast.ColumnName() as begin):
            pass
        case ast.Binary("<=", ast.ColumnName() as begin, ast.ColumnName() as time):
            pass
        case _:
            return None
    named = begin.qualifier is not None and begin.qualifier.matches(table)
    return time if named and begin.column.name.lower() == "valid_from" else None


def _error(message: str, span: Span, hint: str) -> BindError:
    return BindError(message, code="asof-join", hint=hint, span=span)
