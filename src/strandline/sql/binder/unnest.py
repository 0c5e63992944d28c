"""UNNEST in FROM: an array of the rows left of it becomes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.core.errors import BindError
from strandline.core.types import BIGINT, Column
from strandline.logical.expressions import ColumnRef, Expression
from strandline.logical.plan import Map, Plan, Unnest
from strandline.logical.schema import pass_on, schema
from strandline.sql import ast
from strandline.sql.binder.expressions import Scalars
from strandline.sql.binder.literals import article
from strandline.sql.binder.scope import Relation, Scope

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

_HINT: Final = "Write FROM s, UNNEST(array) AS t(element), with an array of s, as in split(s.tags, ',')."


def not_behind_rows(table: ast.UnnestTable) -> BindError:
    """The refusal of an UNNEST that nothing stands to the left of; the caller raises it."""
    return table.error("UNNEST must follow the stream whose arrays it reads", "not-supported", _HINT)


def bind_unnest(
    binder: Binder, plan: Plan, scope: Scope, table: ast.UnnestTable, outer: bool = False
) -> tuple[Plan, Scope]:
    """The rows of a plan with the elements of an array of theirs, and the scope with both."""
    value = Scalars(scope, "UNNEST").bind(table.array)
    relation = unnest_relation(table, value, ())
    ids = tuple(binder.ids.fresh(f"{relation.alias}.{column.name}") for column in relation.columns)
    relation = unnest_relation(table, value, ids)
    if isinstance(value, ColumnRef):
        array = value.id
    else:
        array = binder.ids.fresh("array")
        plan = Map((*pass_on(schema(plan)), (Column(array, "array", value.type), value)), plan)
    element, *ordinal = relation.columns
    binder.spans.update(dict.fromkeys((column.id for column in relation.columns), relation.span))
    unnested = Unnest(element, array, ordinal[0] if ordinal else None, outer, plan)
    return unnested, scope.joined(Scope((relation,)))


def join_unnest(binder: Binder, plan: Plan, scope: Scope, join: ast.Join, table: ast.UnnestTable) -> tuple[Plan, Scope]:
    """CROSS JOIN UNNEST(…), and JOIN or LEFT JOIN UNNEST(…) ON TRUE."""
    always = join.condition is None or join.condition == ast.Truth(True, span=join.condition.span)
    if join.kind not in (None, "LEFT") or not always or join.using or join.natural:
        hint = "Write CROSS JOIN UNNEST(array) AS t(x) or LEFT JOIN UNNEST(array) AS t(x) ON TRUE; filter in WHERE."
        raise join.error("UNNEST is joined without a condition", "not-supported", hint)
    return bind_unnest(binder, plan, scope, table, outer=join.kind == "LEFT")


def unnest_relation(table: ast.UnnestTable, value: Expression, ids: tuple[str, ...]) -> Relation:
    """The columns of UNNEST: a single name is that of the relation and of its column."""
    kind = value.type.element
    if kind is None:
        hint = "Split a text into an array first: UNNEST(split(s, ','))."
        raise table.array.error(f"UNNEST needs an array, not {article(value.type)}", "type-mismatch", hint)
    alias = table.alias.name if table.alias else "unnest"
    names = [column.name for column in table.columns] or [alias]
    if table.ordinality and len(names) < 2:
        names.append("ordinality")
    types = (kind, BIGINT)[: len(names)]
    numbered = ids or tuple(names)
    columns = tuple(Column(id_, name, type_) for id_, name, type_ in zip(numbered, names, types, strict=False))
    # Those of the SELECT list are named by their item only.
    hidden = frozenset(numbered) if alias.startswith("#") else frozenset()
    return Relation(alias, columns, None, (table.alias or table).span, merged=hidden)
