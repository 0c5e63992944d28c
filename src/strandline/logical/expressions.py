"""Scalar expressions: inert, typed trees over the columns of a plan.

Operators and functions are one node, `Call`; `functions/registry.py` lists them with types and meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias
from typing import Literal as LiteralType

from strandline.core.types import BOOLEAN, Type
from strandline.logical.udf import UserAggregate, UserFunction

# A TIMESTAMP literal is a naive datetime in UTC, an INTERVAL literal is microseconds, an array is a tuple.
Value: TypeAlias = "bool | int | float | Decimal | str | date | datetime | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value of a column of the input, named by its id in the plan."""

    id: str
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments; `function` is a name of `functions.registry.FUNCTIONS`."""

    function: str
    arguments: tuple[Expression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Case:
    """The result of the first branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """The operand in another type; NULL where a text does not denote a value of that type."""

    operand: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class UserCall:
    """A function of the user's applied to arguments of its types."""

    function: UserFunction
    arguments: tuple[Expression, ...]

    @property
    def type(self) -> Type:
        return self.function.returns


Expression: TypeAlias = Literal | ColumnRef | Call | Case | Cast | UserCall


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of ORDER BY."""

    column: ColumnRef
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the elements of a group; no argument means `*`.

    `distinct` counts equal values once. `order` is the order in which FIRST, LAST and STRING_AGG see the values, and
    that of a percentile; `parameter` the fraction of a percentile or the separator of STRING_AGG. `user` is what the
    function does if it is an aggregate of the user's.

    ARRAY_AGG keeps NULLs, and yet an argument of NULL is left out by it as by every other: its argument is an array of
    one element each, and the aggregate is all of these arrays as one.
    """

    function: str
    argument: ColumnRef | None
    type: Type
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    parameter: Value = None
    user: UserAggregate | None = None

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        named = () if self.argument is None else (self.argument,)
        return tuple(dict.fromkeys((*named, *(key.column for key in self.order))))


FrameUnit: TypeAlias = LiteralType["rows", "range"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that a window function reads, from `start` to `end` relative to the current row: a number of rows, or of
    microseconds; what precedes is negative, and None is unbounded.

    A frame by `range` has rows that are equal in the order, peers, in it or not together: 0 are the peers of the row.
    """

    unit: FrameUnit
    start: int | None
    end: int | None


# Up to the current row and its peers, which is what SQL means where a window has an order and no frame.
UP_TO_PEERS: Final = Frame("range", None, 0)
WHOLE_PARTITION: Final = Frame("range", None, None)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function over the rows of its partition in their order; `call` is what an aggregate computes.

    row_number, rank, dense_rank        its number in the order; of the first of its peers; the number of its peers
    lag, lead                           the value `offset` rows before or after, or else the `default`
    first_value, last_value, nth_value  the value of a row of the frame, the `offset`th of it

    With `ignores_nulls`, rows without a value do not count.
    """

    function: str
    argument: ColumnRef | None
    type: Type
    frame: Frame = UP_TO_PEERS
    call: AggregateCall | None = None
    offset: int = 1
    default: ColumnRef | None = None
    ignores_nulls: bool = False

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        named = [column for column in (self.argument, self.default) if column is not None]
        return tuple(dict.fromkeys((*named, *(() if self.call is None else self.call.columns))))

    @property
    def rows_after(self) -> int:
        """How many rows after the current one it reads."""
        if self.function == "lead":
            return self.offset
        return max(self.frame.end or 0, 0) if self.frame.unit == "rows" else 0


def children(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case Literal() | ColumnRef():
            return ()
        case Call(_, arguments, _) | UserCall(_, arguments):
            return arguments
        case Case(branches, otherwise, _):
            return (*(part for branch in branches for part in branch), otherwise)
        case Cast(operand, _):
            return (operand,)


class Extent(NamedTuple):
    """Size of an expression: the number of its nodes, and its height."""

    nodes: int
    height: int


_LEAF = Extent(1, 1)


def extent(expression: Expression, columns: Mapping[str, Extent] | None = None) -> Extent:
    """The extent of an expression; with `columns`, after these columns are replaced."""
    if isinstance(expression, ColumnRef) and columns is not None:
        return columns.get(expression.id, _LEAF)
    below = [extent(child, columns) for child in children(expression)]
    return Extent(1 + sum(e.nodes for e in below), 1 + max((e.height for e in below), default=0))


def columns_of(expression: Expression | None) -> frozenset[str]:
    """The ids of the columns that the expression reads."""
    if expression is None:
        return frozenset()
    if isinstance(expression, ColumnRef):
        return frozenset((expression.id,))
    return frozenset().union(*(columns_of(child) for child in children(expression)))


def reads_only(expression: Expression, columns: frozenset[str]) -> bool:
    """True if an expression reads at least one of these columns and no others."""
    read = columns_of(expression)
    return bool(read) and read <= columns


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The expression with each column in `values` replaced by its expression."""
    if isinstance(expression, ColumnRef):
        return values.get(expression.id, expression)
    return rebuilt(expression, lambda child: substitute(child, values))


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with each of its children changed."""
    match expression:
        case Literal() | ColumnRef():
            return expression
        case Call(function, arguments, kind):
            return Call(function, tuple(map(change, arguments)), kind)
        case Case(branches, otherwise, kind):
            return Case(tuple((change(c), change(r)) for c, r in branches), change(otherwise), kind)
        case Cast(operand, kind):
            return Cast(change(operand), kind)
        case UserCall(function_of_user, arguments):
            return UserCall(function_of_user, tuple(map(change, arguments)))


def conjuncts(predicate: Expression | None) -> tuple[Expression, ...]:
    """The parts of a conjunction: `a AND (b AND c)` gives a, b, c, and no condition gives none."""
    if predicate is None:
        return ()
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(part for argument in predicate.arguments for part in conjuncts(argument))
    return (predicate,)


def conjunction(parts: Iterable[Expression]) -> Expression | None:
    """The opposite of `conjuncts`: one flat AND of all parts; None for no parts."""
    flat = tuple(conjunct for part in parts for conjunct in conjuncts(part))
    if len(flat) > 1:
        return Call("and", flat, BOOLEAN)
    return flat[0] if flat else None


def split_conjunction(
    predicate: Expression | None, test: Callable[[Expression], bool]
) -> tuple[Expression | None, Expression | None]:
    """The conjunction of the parts that satisfy a test, and that of the others."""
    parts = conjuncts(predicate)
    return conjunction(part for part in parts if test(part)), conjunction(part for part in parts if not test(part))
