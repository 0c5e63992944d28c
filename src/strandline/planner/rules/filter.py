"""Rules that move filters towards the sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.core.types import Schema
from strandline.logical.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    split_conjunction,
    substitute,
)
from strandline.logical.plan import (
    Aggregate,
    Changes,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    Over,
    Plan,
    Rank,
    SessionWindow,
    SetOperation,
    TimeWindow,
    TopRows,
    Union,
    Unnest,
)
from strandline.logical.schema import filtered, rename, schema
from strandline.planner.rules.expressions import respects_equality, stays_small, takes_whole_groups


def merge_filters(plan: Plan) -> Plan | None:
    """σp(σq(S)) = σ(q ∧ p)(S)."""
    match plan:
        case Filter(outer, Filter(inner, source)):
            return filtered(source, conjunction((inner, outer)))
    return None


def push_filter_below_map(plan: Plan) -> Plan | None:
    """σp(μf(S)) = μf(σ(p∘f)(S)): a predicate over computed columns is one over what they are computed from.

    It computes them once more, so it stays above where that would be much: over a chain of maps that each read a column
    twice, the predicate would double with every one of them.
    """
    match plan:
        case Filter(predicate, Map(outputs, source)):
            values = {column.id: expression for column, expression in outputs}
            if not stays_small(predicate, values):
                return None
            return Map(outputs, Filter(substitute(predicate, values), source))
    return None


def push_filter_below_unnest(plan: Plan) -> Plan | None:
    """σ(p ∧ q)(υ(S)) = σp(υ(σq(S))): a predicate over the row holds for all elements of its array or for none."""
    match plan:
        case Filter(predicate, Unnest() as over):
            added = {column.id for column in over.added}
            above, below = split_conjunction(predicate, lambda part: bool(columns_of(part) & added))
            return None if below is None else filtered(replace(over, source=Filter(below, over.source)), above)
    return None


def push_filter_below_time_window(plan: Plan) -> Plan | None:
    """σ(ω(S)) = ω(σ(S)): a time window changes how long an element is valid, never its payload.

    So do a change of granularity and the streams of changes. A count window is different: which rows are the last N
    depends on what was filtered before.
    """
    match plan:
        case Filter(predicate, TimeWindow() | Granularity() | Changes() as over):
            return replace(over, source=Filter(predicate, over.source))
    return None


def push_filter_into_join(plan: Plan) -> Plan | None:
    """σp(L ⋈q R) = L ⋈(q ∧ p) R."""
    match plan:
        case Filter(predicate, Join(condition, left, right)):
            return Join(conjunction((*conjuncts(condition), *conjuncts(predicate))), left, right)
    return None


def push_filter_below_union(plan: Plan) -> Plan | None:
    """σ(S1 ⊎ S2) = σ(S1) ⊎ σ(S2), with the column names of each side."""
    match plan:
        case Filter(predicate, Union(columns, sources)):
            return Union(columns, tuple(_filter_branch(source, predicate, columns) for source in sources))
    return None


def push_filter_below_set_operation(plan: Plan) -> Plan | None:
    """σ(S1 - S2) = σ(S1) - σ(S2), and so on: the multiplicity of a payload depends only on its duplicates."""
    match plan:
        case Filter(predicate, SetOperation(kind, columns, left, right)) if respects_equality(predicate):
            sides = (_filter_branch(side, predicate, columns) for side in (left, right))
            return SetOperation(kind, columns, *sides)
    return None


def _filter_branch(source: Plan, predicate: Expression, columns: Schema) -> Plan:
    """The filter over a source, whose columns correspond to `columns` by position."""
    return Filter(substitute(predicate, {c.id: value for c, value in rename(schema(source), columns)}), source)


def push_filter_below_distinct(plan: Plan) -> Plan | None:
    """σ(δ(S)) = δ(σ(S)): the predicate holds for all duplicates of a payload or for none."""
    match plan:
        case Filter(predicate, Distinct(source)) if respects_equality(predicate):
            return Distinct(Filter(predicate, source))
    return None


def push_filter_below_aggregate(plan: Plan) -> Plan | None:
    """σp(γk(S)) = γk(σp(S)) for the parts of p that read keys only: they drop whole groups.

    Without keys the one group exists even over nothing, so nothing may be pushed.
    """
    match plan:
        case Filter(predicate, Aggregate(keys) as groups) if keys:
            return push_by_groups(predicate, groups, keys)
    return None


def push_by_groups(
    predicate: Expression, over: Aggregate | TopRows | Rank | Over | CountWindow | SessionWindow, keys: tuple[str, ...]
) -> Plan | None:
    """A filter below an operator that works group by group, as far as the filter takes whole groups."""
    pushed, remaining = split_conjunction(predicate, lambda part: takes_whole_groups(part, frozenset(keys)))
    if pushed is None:
        return None
    return filtered(replace(over, source=Filter(pushed, over.source)), remaining)


def push_filter_below_first_rows(plan: Plan) -> Plan | None:
    """σp(τ(S)) = τ(σp(S)) for the parts of p that read partition columns only: they drop whole partitions."""
    match plan:
        case Filter(predicate, TopRows() | Rank() as first):
            return push_by_groups(predicate, first, first.partition)
    return None


def push_filter_below_over(plan: Plan) -> Plan | None:
    """σp(ω(S)) = ω(σp(S)) for the parts of p that read partition columns only: they drop whole partitions.

    A condition on other columns leaves out rows that the functions of the others read.
    """
    match plan:
        case Filter(predicate, Over(partition) as over):
            return push_by_groups(predicate, over, partition)
    return None


def limit_rank_by_filter(plan: Plan) -> Plan | None:
    """σ(rank ≤ n)(ρ(S)) = ρn(S): ranks beyond the limit are not computed.

    A single rank, `rank = n`, is a limit too, but lower ranks still have to be filtered.
    """
    match plan:
        case Filter(predicate, Rank(rank_column, _, _, limit, _) as rank):
            bounds = [(part, *_bound(part, rank_column.id)) for part in conjuncts(predicate)]
            lowest = min((n for _, n, _ in bounds if n is not None), default=limit)
            if limit is not None and lowest is not None:
                lowest = min(limit, lowest)
            remaining = conjunction(part for part, _, is_pure_bound in bounds if not is_pure_bound)
            if lowest == limit and remaining == predicate:
                return None
            return filtered(replace(rank, limit=lowest), remaining)
    return None


def _bound(part: Expression, rank_id: str) -> tuple[int | None, bool]:
    """The last rank that a condition accepts, if it is a bound, and whether it is nothing else."""
    match part:
        case Call(operator, (ColumnRef(id), Literal(int(n))), _) if id == rank_id:
            pass
        case Call(operator, (Literal(int(n)), ColumnRef(id)), _) if id == rank_id and operator in _MIRRORED:
            operator = _MIRRORED[operator]
        case _:
            return None, False
    match operator:
        case "<=" | "<":
            last_rank = n if operator == "<=" else n - 1
            return max(last_rank, 1), last_rank >= 1
        case "=":
            return max(n, 1), n == 1
        case ">=" | ">":
            return None, (n if operator == ">=" else n + 1) <= 1
    return None, False


_MIRRORED: Final = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "="}
