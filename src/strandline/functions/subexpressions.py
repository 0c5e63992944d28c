"""The different parts of some expressions, each of them once: how often each is used, and its cost."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.core.types import Type
from strandline.functions.registry import declaration
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall, children, rebuilt

# ---- costs -----------------------------------------------------------------------------------------------------------

# Nanoseconds for each row, on columns of usual values; those of functions are in their declarations. They decide
# between strategies with the same result, never the result. They are of one machine and need to be right only up to a
# factor of two: most functions cost next to nothing, and a few a hundred times as much.
_CHEAP: Final = 4
_DECIMAL: Final = 12  # arithmetic of 128 bits
_USER: Final = 1_000


def own_cost(expression: Expression) -> int:
    """What the outermost step of an expression costs, its parts aside."""
    match expression:
        case Literal() | ColumnRef():
            return 0
        case UserCall():
            return _USER
        case Case(branches, _, _):
            return _CHEAP * len(branches)
        case Cast(operand, kind):
            return _cost_of_cast(operand.type, kind)
        case Call(function, arguments, kind):
            if (cost := declaration(function).cost) is not None:
                return cost
            return _DECIMAL if "DECIMAL" in (kind.name, *(a.type.name for a in arguments)) else _CHEAP


def _cost_of_cast(source: Type, target: Type) -> int:
    match source.name, target.name:
        case "VARCHAR", "TIMESTAMP" | "DATE" | "DECIMAL":
            return 400
        case "TIMESTAMP" | "DOUBLE", "VARCHAR":
            return 150
        case ("VARCHAR", _) | (_, "VARCHAR"):
            return 40
    return _DECIMAL if "DECIMAL" in (source.name, target.name) else _CHEAP


# ---- parts -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
    """A part of an expression: its own parts by number, how many places ask for it, the columns it reads."""

    expression: Expression
    below: tuple[int, ...]
    uses: int
    columns: frozenset[str]
    cost: int

    @property
    def is_leaf(self) -> bool:
        return not self.below


class Parts:
    """All parts of some expressions, numbered so that each comes after its own parts; equal ones have one number.

    Expressions are compared step by step and not as trees: a tree of many levels would be walked once for each level.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self.all: list[Part] = []
        self._numbers: dict[Hashable, int] = {}
        self.roots = [self._number(expression) for expression in expressions]
        for root in self.roots:
            self.all[root].uses += 1

    def _number(self, expression: Expression) -> int:
        below = tuple(self._number(child) for child in children(expression))
        key = (_outermost(expression), below)
        if key in self._numbers:
            return self._numbers[key]
        if isinstance(expression, ColumnRef):
            columns = frozenset((expression.id,))
        else:
            columns = frozenset().union(*(self.all[number].columns for number in below))
        for number in below:
            self.all[number].uses += 1
        self._numbers[key] = len(self.all)
        self.all.append(Part(expression, below, 0, columns, own_cost(expression)))
        return len(self.all) - 1

    def cost(self, numbers: Sequence[int]) -> int:
        """What these parts cost together, if what they have in common is computed once."""
        return sum(self.all[number].cost for number in self._under(numbers))

    def _under(self, numbers: Sequence[int]) -> set[int]:
        visited: set[int] = set()
        ahead = list(numbers)
        while ahead:
            number = ahead.pop()
            if number not in visited:
                visited.add(number)
                ahead += self.all[number].below
        return visited

    def shared(self, least_cost: float) -> list[int]:
        """The parts that several places ask for and that cost something, each after its own parts."""
        return [
            number
            for number, part in enumerate(self.all)
            if part.uses > 1 and part.columns and not part.is_leaf and self.cost((number,)) >= least_cost
        ]

    def common(self, one: Sequence[int], other: Sequence[int], least_cost: float) -> list[int]:
        """The largest parts that both ask for and that cost something."""
        both = self._under(one) & self._under(other)
        common: dict[int, None] = {}
        ahead = list(one)
        while ahead:
            number = ahead.pop()
            if number in both and self.all[number].columns and self.cost((number,)) >= least_cost:
                common[number] = None
            else:
                ahead += self.all[number].below
        return list(common)

    def written(self, number: int, instead: Mapping[int, Expression]) -> Expression:
        """A part as an expression, with others in the place of some parts."""
        if number in instead:
            return instead[number]
        part = self.all[number]
        inner = iter([self.written(child, instead) for child in part.below])
        return rebuilt(part.expression, lambda _: next(inner))


def _outermost(expression: Expression) -> Hashable:
    """What tells an expression from another one over the same parts."""
    match expression:
        case Literal(value, kind):
            return "literal", repr(value), kind  # 0.0 and -0.0 are equal, but not the same
        case ColumnRef(id, kind):
            return "column", id, kind
        case Call(function, _, kind):
            return "call", function, kind
        case Case(branches, _, kind):
            return "case", len(branches), kind
        case Cast(_, kind):
            return "cast", kind
        case UserCall(function_of_user, _):
            return "user", function_of_user
