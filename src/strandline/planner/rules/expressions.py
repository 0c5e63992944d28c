"""What rules ask of expressions: whether they respect equality, how large they would become, what they connect.

Equal but distinguishable values are the zeros of DOUBLE. Duplicates, groups, partitions and set operations treat 0 and
-0 as one value, and which of the two stays is undefined. A condition or computation above must not distinguish them, or
the result would depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.core.types import Type, is_numeric
from strandline.logical.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    UserCall,
    children,
    columns_of,
    extent,
    reads_only,
)
from strandline.logical.plan import Plan
from strandline.logical.tree import expressions

# A user's expression is at most 100 levels high. Trees are walked by recursion, here and in array libraries, so that
# expressions of rules must not be much higher.
MAX_HEIGHT = 120
MAX_NODES = 1_000


def takes_whole_groups(condition: Expression, keys: frozenset[str]) -> bool:
    """True if a condition over these keys holds for whole groups."""
    return reads_only(condition, keys) and respects_equality(condition)


def respects_equality(expression: Expression | None) -> bool:
    """True if equal values give equal results: not for texts of DOUBLEs, `atan2` and user-defined functions."""
    if expression is None:
        return True
    match expression:
        case Call("atan2"):
            return False
        case Call() | Cast() | UserCall():
            reads_double = any(has_double(child.type) for child in children(expression))
            if reads_double and (isinstance(expression, UserCall) or _shows_signs(expression.type)):
                return False
    return all(map(respects_equality, children(expression)))


def node_respects_equality(plan: Plan) -> bool:
    """The same for all expressions of a node."""
    return all(map(respects_equality, expressions(plan)))


def has_double(kind: Type) -> bool:
    """True if values of a type may be equal and yet distinguishable."""
    return kind.name == "DOUBLE" or (kind.element is not None and has_double(kind.element))


def _shows_signs(kind: Type) -> bool:
    if kind.element is not None:
        return _shows_signs(kind.element)
    return not is_numeric(kind) and kind.name != "BOOLEAN"


def stays_small(expression: Expression, values: Mapping[str, Expression]) -> bool:
    """True if an expression may have its columns replaced by these values: it grows little or not at all."""
    read = {column_id: value for column_id in columns_of(expression) if (value := values.get(column_id)) is not None}
    if all(isinstance(value, ColumnRef | Literal) for value in read.values()):
        return True
    before = extent(expression)
    after = extent(expression, {column_id: extent(value) for column_id, value in read.items()})
    # A long list of constants does not matter, but growth from map to map does.
    return after.height <= MAX_HEIGHT and after.nodes <= max(MAX_NODES, before.nodes * 11 // 10)


def connects(part: Expression, left: frozenset[str], right: frozenset[str]) -> bool:
    """True if a condition equates a value of one side with one of the other."""
    match part:
        case Call("=", (one, two)):
            sides = ((left, right), (right, left))
            return any(reads_only(one, here) and reads_only(two, there) for here, there in sides)
    return False
