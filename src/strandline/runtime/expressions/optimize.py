"""Expression optimizer: evaluates expensive subexpressions once, over distinct values, or only where a CASE needs them.

Law    compiled over the frame that comes out, each expression has the values it had over the frame that went in

Three strategies, chosen by the cost of a subexpression (`functions/subexpressions.py`) and by the data:

    over few values     a subexpression of one column is evaluated over its distinct values, if they are few
    once                a common subexpression is evaluated once
    where it is taken   a CASE branch is evaluated only for the rows that reach it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeAlias

import polars as pl

from strandline.core.temporal import DAY, MICROSECOND
from strandline.core.types import BOOLEAN, VARCHAR, array_of
from strandline.functions.registry import declaration
from strandline.functions.subexpressions import Part, Parts, own_cost
from strandline.logical.expressions import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    children,
    conjunction,
    conjuncts,
    rebuilt,
)
from strandline.runtime.kernels.batch import spread
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.distinct_values import DistinctValues, encode_distinct, runs

# The values of expressions over a frame: as many as it has rows each.
Compute: TypeAlias = Callable[[pl.DataFrame, Sequence[Expression]], list[pl.Series]]
Optimized: TypeAlias = tuple[pl.DataFrame, list[Expression]]

# Minimum saving over all rows, in nanoseconds, for a strategy to be tried: choosing it has a cost.
MIN_SAVING_NS: Final = 3_000_000
# Minimum cost per row of a subexpression for a strategy to pay off: the cost of the strategy, and a margin.
BY_RUNS: Final = 20
BY_NUMBERS: Final = 60
BY_TEXTS: Final = 120
WHERE_TAKEN: Final = 60
# Equal values have equal results: not so 0 and -0, which are equal DOUBLEs.
_EXACT_EQUALITY_TYPES: Final = (pl.String, pl.Datetime, pl.Date, pl.Int32, pl.Int64)


_counter = count()


class _Rewriting:
    """Expressions over a frame, of which more and more subexpressions become columns."""

    def __init__(self, frame: pl.DataFrame, expressions: Sequence[Expression]) -> None:
        self.frame = frame
        self.parts = Parts(expressions)
        self._expressions = expressions
        self._columns: dict[int, Expression] = {}

    def put(self, number: int, values: pl.Series) -> None:
        """Replace a subexpression by a column that no frame has: ids of columns never begin like this."""
        name = f"@{next(_counter)}"
        self.frame = self.frame.with_columns(values.alias(name))
        self._columns[number] = ColumnRef(name, self.parts.all[number].expression.type)

    def written(self, number: int) -> Expression:
        return self.parts.written(number, self._columns)

    def result(self) -> Optimized:
        roots = self.parts.roots
        return self.frame, [self.written(root) for root in roots] if self._columns else list(self._expressions)


def optimize(frame: pl.DataFrame, expressions: Sequence[Expression], plain: Compute) -> Optimized:
    """Optimize expressions: the frame with columns for expensive subexpressions, and the expressions over these."""
    if sum(map(_whole_cost, expressions)) < _least_cost(frame):
        return frame, list(expressions)
    expressions = [_in_steps(expression) for expression in expressions]
    return _all_rows(*_evaluate_distinct(frame, expressions, plain), plain)


def _least_cost(frame: pl.DataFrame) -> float:
    return MIN_SAVING_NS / max(frame.height, 1)


def _all_rows(frame: pl.DataFrame, expressions: Sequence[Expression], plain: Compute) -> Optimized:
    """The strategies that are left where every row has a value of its own."""
    return _evaluate_lazily(*_once(frame, expressions, plain), plain)


def short_circuit_and(predicate: Expression) -> Expression:
    """Short-circuit a conjunction: evaluate expensive conjuncts only where the cheap ones hold."""
    cheap: list[Expression] = []
    expensive: list[Expression] = []
    for part in conjuncts(predicate):
        (expensive if _whole_cost(part) >= WHERE_TAKEN else cheap).append(part)
    first, then = conjunction(tuple(cheap)), conjunction(tuple(expensive))
    if first is None or then is None:
        return predicate
    return Case(((first, then),), Literal(False, BOOLEAN), BOOLEAN)


def _whole_cost(expression: Expression) -> int:
    return own_cost(expression) + sum(map(_whole_cost, children(expression)))


def _in_steps(expression: Expression) -> Expression:
    """The expression with functions of two steps as these steps: several parts of a text need one that is split."""
    match rebuilt(expression, _in_steps):
        case Call("split_part", (text, Literal(str(by), _) as separator, number), kind) if by:
            return Call("@part", (Call("@split", (text, separator), array_of(VARCHAR)), number), kind)
        case whole:
            return whole


# ---- over few values -------------------------------------------------------------------------------------------------


def _evaluate_distinct(frame: pl.DataFrame, expressions: Sequence[Expression], plain: Compute) -> Optimized:
    rewriting = _Rewriting(frame, expressions)
    parts = rewriting.parts
    for (column_id, length), numbers in _by_column(parts, frame).items():
        cost = parts.cost(numbers)
        values = _few(frame.get_column(column_id), length, cost) if cost >= _least_cost(frame) else None
        if values is None:
            continue
        fewer = frame.select(column_id)[values.rows]
        fewer, inner = _all_rows(fewer, [parts.all[number].expression for number in numbers], plain)
        results = (result.alias(str(number)) for number, result in zip(numbers, plain(fewer, inner), strict=True))
        for number, column in zip(numbers, values.decode(pl.DataFrame(results)).get_columns(), strict=True):
            rewriting.put(number, column)
    return rewriting.result()


def _by_column(parts: Parts, frame: pl.DataFrame) -> dict[tuple[str, int], list[int]]:
    """Largest subexpressions of a single column, by that column and their time granularity."""
    subexpressions: dict[tuple[str, int], list[int]] = {}
    seen: set[int] = set()

    def visit(number: int) -> None:
        part = parts.all[number]
        if number in seen or part.is_leaf:
            return
        seen.add(number)
        if len(part.columns) > 1:
            for below in part.below:
                visit(below)
        for column_id in part.columns if len(part.columns) == 1 else ():
            kind = frame.schema[column_id]
            if kind in _EXACT_EQUALITY_TYPES:
                length = granule(part.expression) if kind == pl.Datetime else 1
                subexpressions.setdefault((column_id, length), []).append(number)

    for root in parts.roots:
        visit(root)
    return subexpressions


def _few(column: pl.Series, length: int, cost: int) -> DistinctValues | None:
    """Distinct values of a column, or granules of its instants, if there are few enough to pay off."""
    if cost < BY_RUNS:
        return None
    keys = column if column.dtype == pl.String else column.to_physical()
    keys = keys // length if length > 1 else keys
    if (distinct_values := runs(keys)) is not None:
        return distinct_values
    return encode_distinct(keys) if cost >= (BY_TEXTS if column.dtype == pl.String else BY_NUMBERS) else None


def granule(expression: Expression) -> int:
    """The length of the granules within which the expression is constant, if it reads one column of instants: what
    asks for the hour has one value for all instants of an hour.

    Law    where `granule(e)` is g, the value of e at an instant t is its value at any other t' with t // g = t' // g
    """
    match expression:
        case ColumnRef():
            return MICROSECOND
        case Literal():
            return DAY
        case Call() if (declared := _declared_granularity(expression)) is not None:
            return declared
        case Cast(ColumnRef(_, source), target) if (source.name, target.name) == ("TIMESTAMP", "DATE"):
            return DAY
    return min((granule(child) for child in children(expression)), default=DAY)


def _declared_granularity(call: Call) -> int | None:
    """That of a function of the column itself; what is computed from the column has one of its own."""
    if not all(isinstance(argument, ColumnRef | Literal) for argument in call.arguments):
        return None
    declared = declaration(call.function).granularity
    return declared(call) if callable(declared) else declared


# ---- once ------------------------------------------------------------------------------------------------------------


def _once(frame: pl.DataFrame, expressions: Sequence[Expression], plain: Compute) -> Optimized:
    rewriting = _Rewriting(frame, expressions)
    for number in rewriting.parts.shared(_least_cost(frame)):
        rewriting.put(number, plain(*_evaluate_lazily(rewriting.frame, [rewriting.written(number)], plain))[0])
    return rewriting.result()


# ---- where it is taken -----------------------------------------------------------------------------------------------


def _evaluate_lazily(frame: pl.DataFrame, expressions: Sequence[Expression], plain: Compute) -> Optimized:
    if not any(map(_has_case, expressions)):
        return frame, list(expressions)
    rewriting = _Rewriting(frame, expressions)
    parts = rewriting.parts
    min_cost = max(WHERE_TAKEN, _least_cost(frame))
    for conditions, choices in _expensive_cases(parts, min_cost):
        left = pl.repeat(True, frame.height, eager=True)
        results = plain(rewriting.frame, [rewriting.written(number) for number in conditions])
        for condition, choice, values in zip((*conditions, None), choices, (*results, None), strict=True):
            taken = left if values is None else left & values.fill_null(False)
            left &= ~taken
            if condition is not None and values is not None and not parts.all[condition].is_leaf:
                rewriting.put(condition, values)
            if _is_expensive(parts, choice, min_cost):
                chosen = _for_rows(rewriting.frame, taken, parts.all[choice], plain)
                if chosen is not None:
                    rewriting.put(choice, chosen)
    return rewriting.result()


def _has_case(expression: Expression) -> bool:
    return isinstance(expression, Case) or any(map(_has_case, children(expression)))


def _expensive_cases(parts: Parts, least_cost: float) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Conditions and branches of each outermost CASE with an expensive branch."""
    cases: dict[int, tuple[Sequence[int], Sequence[int]]] = {}

    def visit(number: int) -> None:
        part = parts.all[number]
        if number in cases:
            return
        if isinstance(part.expression, Case):
            conditions, choices = part.below[:-1:2], (*part.below[1::2], part.below[-1])
            if any(_is_expensive(parts, choice, least_cost) for choice in choices):
                cases[number] = conditions, choices
                return
        for below in part.below:
            visit(below)

    for root in parts.roots:
        visit(root)
    return list(cases.values())


def _is_expensive(parts: Parts, number: int, least_cost: float) -> bool:
    part = parts.all[number]
    # Subexpressions used elsewhere, too, are needed in other rows.
    return part.uses == 1 and bool(part.columns) and not part.is_leaf and parts.cost((number,)) >= least_cost


def _for_rows(frame: pl.DataFrame, taken: pl.Series, part: Part, plain: Compute) -> pl.Series | None:
    """The values of a part for some rows, and NULL for the others; None if these rows are almost all there are."""
    rows = taken.sum()
    if rows > frame.height * 3 // 4:
        return None
    if not rows:
        return pl.repeat(None, frame.height, dtype=polars_type(part.expression.type), eager=True)
    values = plain(*optimize(frame.select(part.columns).filter(taken), [part.expression], plain))[0]
    return spread(values, taken.to_numpy())
