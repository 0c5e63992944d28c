"""RANK() OVER (…): ranks as further columns of the input of a SELECT.

A rank is counted among all rows that are left after WHERE, GROUP BY and HAVING, so the columns come above these and
below the list of outputs. What limits the ranks is a condition like any other, from which the optimizer derives which
rows need not be counted.
"""

from __future__ import annotations

from typing import TypeAlias

from strandline.core.types import BIGINT, NULL, VARCHAR, Column
from strandline.logical.expressions import ColumnRef, Expression, SortKey
from strandline.logical.plan import Map, Plan, Rank
from strandline.logical.schema import Ids, pass_on, schema
from strandline.sql import ast
from strandline.sql.binder.expressions import Scalars
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.select_list import Output, sort_key

Ranking: TypeAlias = tuple[tuple[ColumnRef, ...], tuple[SortKey, ...]]  # partition and order


class Ranks:
    """The rankings of one SELECT: their expressions, and their rank columns."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.computed: dict[Expression, Column] = {}  # keys that are no columns yet
        self.rank_columns: dict[Ranking, Column] = {}  # two equal RANK() are one column
        self._inside = False

    def rank_column(self, node: ast.Ranking, scalars: Scalars) -> ColumnRef:
        """The column that will have the rank of each row; `scalars` binds the keys."""
        if self._inside:
            hint = "Compute the inner RANK() in a subquery in FROM."
            raise node.error("RANK() calls cannot be nested", "misplaced-rank", hint)
        self._inside = True
        partition = tuple(dict.fromkeys(self._key(scalars.key(key)) for key in node.partition))
        order = tuple(sort_key(item, self._key(scalars.key(item.value))) for item in node.order)
        self._inside = False
        ranking = partition, order
        if ranking not in self.rank_columns:
            self.rank_columns[ranking] = Column(self.ids.fresh("rank"), "rank", BIGINT)
        return ColumnRef(self.rank_columns[ranking].id, BIGINT)

    def _key(self, value: Expression) -> ColumnRef:
        if isinstance(value, ColumnRef):
            return value
        value = cast_to(value, VARCHAR) if value.type == NULL else value
        if value not in self.computed:
            self.computed[value] = Column(self.ids.fresh("key"), "key", value.type)
        return ColumnRef(self.computed[value].id, value.type)

    def plan(self, source: Plan) -> Plan:
        """The rows with their ranks."""
        if self.computed:
            keys = ((column, value) for value, column in self.computed.items())
            source = Map((*pass_on(schema(source)), *keys), source)
        for (partition, order), rank_column in self.rank_columns.items():
            source = Rank(rank_column, tuple(key.id for key in partition), order, None, source)
        return source


def is_ranking(select: ast.Select) -> bool:
    """Whether a SELECT asks for the ranks of its rows."""
    return select.qualify is not None or any(isinstance(node, ast.Ranking) for node in ast.own_nodes(select.items))


def over_outputs(tree: ast.Tree, outputs: list[Output], scope: Scope) -> ast.Tree:
    """A condition of QUALIFY with outputs written out: a name is a column of the input if there is one, else that."""

    def written_out(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.ColumnName) or node.qualifier is not None or scope.matches(node.column):
            return node
        return next((output.node for output in outputs if node.column.matches(output.name)), node)

    return ast.rewrite(tree, written_out, into_queries=False)
