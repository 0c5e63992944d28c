"""Limit on the size of expressions that rules create."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.logical.expressions import ColumnRef, Expression, Literal, columns_of, extent

# A user's expression is at most 100 levels high. Trees are walked by recursion, here and in array libraries, so that
# expressions of rules must not be much higher.
MAX_HEIGHT = 120
MAX_NODES = 1_000


def stays_small(expression: Expression, values: Mapping[str, Expression]) -> bool:
    """True if an expression may have its columns replaced by these values: it grows little or not at all."""
    read = {column_id: value for column_id in columns_of(expression) if (value := values.get(column_id)) is not None}
    if all(isinstance(value, ColumnRef | Literal) for value in read.values()):
        return True
    before = extent(expression)
    after = extent(expression, {column_id: extent(value) for column_id, value in read.items()})
    # A long list of constants does not matter, but growth from map to map does.
    return after.height <= MAX_HEIGHT and after.nodes <= max(MAX_NODES, before.nodes * 11 // 10)
