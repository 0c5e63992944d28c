"""Expressions of the syntax tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from strandline.core.types import Type
from strandline.logical.udf import Definition
from strandline.sql.ast.nodes import Identifier, Node, TypeName

if TYPE_CHECKING:
    from strandline.sql.ast.queries import Query


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A number without its sign; `digits` is what the user wrote, so that 1.50 keeps its scale."""

    digits: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A text in quotes. Beside a value of another type it is read as a value of that type, as in PostgreSQL."""

    value: str


@dataclass(frozen=True, slots=True)
class Truth(Node):
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class Null(Node):
    """NULL."""


@dataclass(frozen=True, slots=True)
class TypedText(Node):
    """`TIMESTAMP '…'` or `DATE '…'`."""

    type: Type
    value: str


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """`INTERVAL …` as a value."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class ColumnName(Node):
    """`column` or `qualifier.column`."""

    qualifier: Identifier | None
    column: Identifier


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A prefix operator: `-`, `+`, `~` or `NOT`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An operator of arithmetic, bits or texts, or a comparison; `!=` is stored as `<>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """`AND` or `OR` over two or more operands. A chain is one flat node, so a long one is not a deep tree."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class IsTest(Node):
    """`operand IS [NOT] what`, with what one of NULL, TRUE, FALSE, UNKNOWN."""

    operand: Expression
    what: str
    negated: bool


@dataclass(frozen=True, slots=True)
class DistinctTest(Node):
    """`left IS [NOT] DISTINCT FROM right`: as <> and =, with NULL as a value like any other."""

    left: Expression
    right: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Between(Node):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool
    symmetric: bool = False  # whether the bounds may be in either order


@dataclass(frozen=True, slots=True)
class InList(Node):
    operand: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """`EXISTS (query)`."""

    query: Query


@dataclass(frozen=True, slots=True)
class Quantified(Node):
    """`operand operator ANY (query)` or `… ALL (query)`; IN is = ANY, NOT IN is <> ALL."""

    operator: str
    quantifier: str
    operand: Expression
    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Node):
    """`(query)` as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Like(Node):
    """LIKE, or SIMILAR TO."""

    operand: Expression
    pattern: Expression
    negated: bool
    escape: Expression | None = None
    similar: bool = False


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`CASE [operand] WHEN … THEN … [ELSE …] END`."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """`CAST(operand AS type)` or `operand::type`."""

    operand: Expression
    type: TypeName


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `qualifier.*`: a SELECT item, or the argument of COUNT; `* EXCLUDE (a) REPLACE (b + 1 AS b)` of SELECT."""

    qualifier: Identifier | None = None
    exclude: tuple[Identifier, ...] = ()
    replace: tuple[tuple[Expression, Identifier], ...] = ()


@dataclass(frozen=True, slots=True)
class SortItem(Node):
    """An element of ORDER BY; `nulls` is FIRST, LAST or, by default, None."""

    value: Expression
    descending: bool
    nulls: str | None

    @property
    def nulls_first(self) -> bool:
        """As in PostgreSQL, NULL is by default greater than every value."""
        return self.descending if self.nulls is None else self.nulls == "FIRST"


@dataclass(frozen=True, slots=True)
class FunctionCall(Node):
    """A call of a function or an aggregate; the binder decides which."""

    name: Identifier
    arguments: tuple[Expression, ...] | Star
    filter: Expression | None = None  # of an aggregate: FILTER (WHERE …)
    distinct: bool = False  # of an aggregate: name(DISTINCT x)
    order: tuple[SortItem, ...] = ()  # of an aggregate: name(x ORDER BY …)
    within: tuple[SortItem, ...] = ()  # of an aggregate: WITHIN GROUP (ORDER BY …)
    definition: Definition | None = None  # of a user-defined function; the binder sets it
    written: str | None = None  # what another dialect calls it, which names its column


@dataclass(frozen=True, slots=True)
class FrameBound(Node):
    """`UNBOUNDED PRECEDING`, `n PRECEDING`, `CURRENT ROW`, `n FOLLOWING` or `UNBOUNDED FOLLOWING`; `direction` is the
    last word, and None of CURRENT ROW. No offset is UNBOUNDED."""

    direction: str | None
    offset: Expression | None = None


@dataclass(frozen=True, slots=True)
class FrameClause(Node):
    """`ROWS BETWEEN … AND …` or `RANGE BETWEEN … AND …`; one bound alone is the first, and the other is CURRENT ROW."""

    unit: str
    start: FrameBound
    end: FrameBound


@dataclass(frozen=True, slots=True)
class WindowDefinition(Node):
    """`([name] [PARTITION BY …] [ORDER BY …] [frame])` after OVER, or after a name in WINDOW.

    `name` is a window of the WINDOW clause; the parser replaces it by what that says.
    """

    name: Identifier | None
    partition: tuple[Expression, ...]
    order: tuple[SortItem, ...]
    frame: FrameClause | None


@dataclass(frozen=True, slots=True)
class WindowCall(Node):
    """`call [IGNORE NULLS] OVER (…)`: a window function."""

    call: FunctionCall
    window: WindowDefinition
    ignore_nulls: bool = False


Literal: TypeAlias = Number | Text | Truth | Null | TypedText | Interval
Operation: TypeAlias = Unary | Binary | Logical | Case | Cast | FunctionCall | WindowCall
Test: TypeAlias = IsTest | DistinctTest | Between | InList | Like | Exists | Quantified
Expression: TypeAlias = Literal | ColumnName | Operation | Test | ScalarQuery
