"""RANK() OVER (…): ranks as further columns of the input of a SELECT.

A rank is among the rows left after WHERE, GROUP BY and HAVING, so the columns come above these and below the SELECT
list. A limit on the rank is an ordinary condition, which the optimizer pushes into the ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar

from strandline.core.errors import BindError
from strandline.core.types import BIGINT, NULL, VARCHAR, Column
from strandline.logical.expressions import ColumnRef, Expression, SortKey
from strandline.logical.plan import Map, Plan, Rank
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.decorrelate import passed_on
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Ids, Scope
from strandline.sql.binder.select_list import Output, sort_key

Tree = TypeVar("Tree")
Bind: TypeAlias = Callable[[ast.Expression], Expression]


@dataclass(frozen=True, slots=True)
class _Order:
    """Sort order of a ranking: two equal RANK() are one column."""

    partition: tuple[ColumnRef, ...]
    order: tuple[SortKey, ...]


class Ranks:
    """The rankings of one SELECT: their expressions, and their rank columns."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.computed: dict[Expression, Column] = {}  # keys that are no columns yet
        self.places: dict[_Order, Column] = {}
        self._inside = False

    def place(self, node: ast.Ranking, bind: Bind) -> ColumnRef:
        """The column that will have the place of each row."""
        if self._inside:
            hint = "Compute the inner RANK() in a subquery in FROM."
            raise BindError("RANK() calls cannot be nested", code="misplaced-rank", hint=hint, span=node.span)
        self._inside = True
        partition = tuple(dict.fromkeys(self._key(bind(each)) for each in node.partition))
        order = tuple(sort_key(item, self._key(bind(item.value))) for item in node.order)
        self._inside = False
        wanted = _Order(partition, order)
        if wanted not in self.places:
            self.places[wanted] = Column(self.ids.fresh("rank"), "rank", BIGINT)
        return ColumnRef(self.places[wanted].id, BIGINT)

    def _key(self, value: Expression) -> ColumnRef:
        if isinstance(value, ColumnRef):
            return value
        value = cast_to(value, VARCHAR) if value.type == NULL else value
        if value not in self.computed:
            self.computed[value] = Column(self.ids.fresh("key"), "key", value.type)
        return ColumnRef(self.computed[value].id, value.type)

    def plan(self, source: Plan) -> Plan:
        """The rows with their places."""
        if self.computed:
            keys = ((column, value) for value, column in self.computed.items())
            source = Map((*passed_on(schema(source)), *keys), source)
        for wanted, place in self.places.items():
            source = Rank(place, tuple(key.id for key in wanted.partition), wanted.order, None, source)
        return source


def is_ranking(select: ast.Select) -> bool:
    return select.qualify is not None or any(_ranks(item) for item in select.items)


def _ranks(node: ast.Node) -> bool:
    if isinstance(node, ast.Ranking):
        return True
    return any(_ranks(child) for child in ast.children(node) if not isinstance(child, ast.Query))


def over_outputs(tree: Tree, outputs: list[Output], scope: Scope) -> Tree:
    """A condition of QUALIFY with outputs written out: a name is a column of the input if there is one, else that."""
    changed: Any = tree
    if isinstance(tree, tuple):
        changed = tuple(over_outputs(part, outputs, scope) for part in tree)
    elif isinstance(tree, ast.ColumnName) and tree.qualifier is None and not scope.matches(tree.column):
        changed = next((output.node for output in outputs if tree.column.matches(output.name)), tree)
    elif isinstance(tree, ast.Node) and not isinstance(tree, ast.Query):
        parts = {each.name: getattr(tree, each.name) for each in fields(tree) if each.name != "span"}
        changed = replace(tree, **{name: over_outputs(part, outputs, scope) for name, part in parts.items()})
    return changed  # type: ignore[no-any-return]
