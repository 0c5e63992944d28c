"""ASOF JOIN in the SQL of an oracle: for each row of the left, the last row of the right that satisfies the condition,
by `LATERAL (… ORDER BY time DESC LIMIT 1)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.apps.verify import sql_text
from strandline.apps.verify.sql_text import FromText
from strandline.logical.properties.temporal import keeps_arrival_order
from strandline.sql import ast
from strandline.sql.binder.expressions import Scalars, equality

if TYPE_CHECKING:
    from strandline.apps.verify.translate import Translation


def asof_join(translation: Translation, join: ast.Join) -> FromText:
    """The join, at the instants of the rows of the left: now or, where the left has a window, their own."""
    assert isinstance(join.right, ast.StreamTable | ast.QueryTable), "the binder has refused what has no time column"
    left = translation.table(join.left)
    own = join.left.window if isinstance(join.left, ast.StreamTable | ast.QueryTable) else None
    is_windowed = isinstance(own, ast.RangeWindow)
    came = f"{_alias(left)}.at_us" if is_windowed else translation.now
    so_far = replace(join.right, window=ast.RangeWindow(None, None, span=join.span))
    right = replace(translation, now=came).table(so_far, ordered=True)
    scope = left.scope.joined(right.scope)
    shared = sql_text.shared_columns(join, left.scope, right.scope)
    if shared:
        *same, (time, other) = shared
        tests = [translation.dialect.sql(equality(one, two, join.span)) for one, two in same]
        condition = " AND ".join([*tests, f"{time.id} >= {other.id}"])
        scope = scope.using(left.scope, right.scope, tuple(one for one, _ in shared), join.span)
    else:
        assert join.condition is not None, "ASOF JOIN has a condition or USING"
        condition = translation.dialect.sql(Scalars(scope, "ON").condition(join.condition))
    alias = _alias(right)
    columns = [c.id for relation in right.scope.relations for c in relation.columns]
    by_value = [f"{column} DESC NULLS FIRST" for column in columns]
    order = ", ".join(
        [f"{alias}.at_us DESC", *([f"{alias}.seq DESC"] if _has_order(translation, so_far) else by_value)]
    )
    last = f"SELECT {alias}.* FROM {right.sql} WHERE {condition} ORDER BY {order} LIMIT 1"
    word = "LEFT JOIN" if join.kind == "LEFT" else "JOIN"
    return FromText(f"({left.sql} {word} LATERAL ({last}) AS {alias} ON TRUE)", scope, left.row_time)


def _alias(table: FromText) -> str:
    return table.sql.rpartition(" AS ")[2]


def _has_order(translation: Translation, table: ast.StreamTable | ast.QueryTable) -> bool:
    """Whether the rows of a table in FROM have an order of arrival."""
    names = translation.name_scope
    if isinstance(table, ast.QueryTable):
        return keeps_arrival_order(names.plan(table.query))
    named = names.named(table.name)
    return named is None or keeps_arrival_order(named.name_scope.plan(named.query))
