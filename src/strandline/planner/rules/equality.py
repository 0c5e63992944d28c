"""Equal but distinguishable values: the zeros of DOUBLE.

Duplicates, groups, partitions and set operations treat 0 and -0 as one value, and which of the two stays is undefined.
A condition or computation above must not distinguish them, or the result would depend on the order of arrival.
"""

from __future__ import annotations

from strandline.core.types import Type, is_numeric
from strandline.logical.expressions import Call, Cast, Expression, UserCall, children
from strandline.logical.plan import Plan
from strandline.logical.tree import expressions


def respects_equality(expression: Expression | None) -> bool:
    """True if equal values give equal results: not for texts of DOUBLEs, `atan2` and user-defined functions."""
    if expression is None:
        return True
    match expression:
        case Call("atan2"):
            return False
        case Call() | Cast() | UserCall():
            reads_double = any(_has_double(child.type) for child in children(expression))
            if reads_double and (isinstance(expression, UserCall) or _shows_signs(expression.type)):
                return False
    return all(map(respects_equality, children(expression)))


def node_respects_equality(plan: Plan) -> bool:
    """The same for all expressions of a node."""
    return all(map(respects_equality, expressions(plan)))


def _has_double(kind: Type) -> bool:
    return kind.name == "DOUBLE" or (kind.element is not None and _has_double(kind.element))


def _shows_signs(kind: Type) -> bool:
    if kind.element is not None:
        return _shows_signs(kind.element)
    return not is_numeric(kind) and kind.name != "BOOLEAN"
