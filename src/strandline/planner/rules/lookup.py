"""Rules about look-ups: Λ(S, T) has each element of S with the rows of T at its row time.

An element of a chronon stream is valid at its row time only, so there a look-up is an ordinary join, which stores
nothing of the stream. The rules move look-ups down to where the streams are such: below everything that takes elements
one by one and keeps their row time. What remains stands over joins of streams and windows by rows, whose elements begin
at their row time: the physical look-up join meets them there.

A look-up is a barrier for the order of joins: of a pair the later row decides which state of the table it meets, so
Λ(A ⋈ B, T) is another query than Λ(A, T) ⋈ B.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.core.errors import PlanError
from strandline.core.types import BOOLEAN, Column
from strandline.logical.explain import show_node
from strandline.logical.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    conjunction,
    conjuncts,
    reads_only,
    split_conjunction,
    substitute,
)
from strandline.logical.plan import (
    Filter,
    Join,
    Lookup,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Scan,
    SemiJoin,
    SessionWindow,
    TimeWindow,
    Union,
)
from strandline.logical.properties.row_time import window_in_the_way
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.schema import column_ids, filtered, pass_on, rename, schema
from strandline.logical.tree import transform_up, walk
from strandline.planner.rules.expressions import stays_small

TRUE: Final = Literal(True, BOOLEAN)


def lookup_of_instants_as_join(plan: Plan) -> Plan | None:
    """Λ(S, T) = S ⋈ T for a chronon stream S, and ⟕, ⋉, ▷ and the mark join likewise: an element is valid at its row
    time and never else."""
    match plan:
        case Lookup(kind, mark, predicate, source, table) if is_chronon_stream(source):
            match kind:
                case "inner":
                    return Join(predicate, source, table)
                case "left":
                    return OuterJoin(False, TRUE if predicate is None else predicate, source, table)
                case "semi" | "anti":
                    return SemiJoin(kind == "anti", predicate, source, table)
                case "mark":
                    assert mark is not None, "a mark has a column"
                    return MarkJoin(mark, predicate, source, table)
    return None


def push_lookup_below_time_window(plan: Plan) -> Plan | None:
    """Λ(ω(S), T) = ω(Λ(S, T)): a time window changes how long an element is valid, neither its payload nor its row
    time, also where it slides. Which rows are the last N would change."""
    match plan:
        case Lookup(_, _, _, TimeWindow() as window) if is_chronon_stream(window.source):
            return replace(window, source=replace(plan, source=window.source))
    return None


def push_lookup_below_filter(plan: Plan) -> Plan | None:
    """Λ(σ(S), T) = σ(Λ(S, T)), where Λ can move on below: fewer elements are looked up where it cannot."""
    match plan:
        case Lookup(_, _, _, Filter(predicate, source)) if _can_move_below(source):
            return Filter(predicate, replace(plan, source=source))
    return None


def push_lookup_below_map(plan: Plan) -> Plan | None:
    """Λp(μf(S), T) = μf(Λ(p∘f)(S, T)), with the columns of T, where Λ can move on below."""
    match plan:
        case Lookup(_, _, predicate, Map(outputs, source), table) if _can_move_below(source):
            values = {column.id: expression for column, expression in outputs}
            if column_ids(source) & column_ids(table) or (predicate is not None and not stays_small(predicate, values)):
                return None
            tested = None if predicate is None else substitute(predicate, values)
            found = [column for column in schema(plan) if column.id not in values]
            return Map((*outputs, *pass_on(found)), replace(plan, predicate=tested, source=source))
    return None


def push_lookup_below_union(plan: Plan) -> Plan | None:
    """Λ(S1 ⊎ S2, T) = Λ(S1, T) ⊎ Λ(S2, T), with the column names of each side."""
    match plan:
        case Lookup(_, _, predicate, Union(columns, inputs), table) if not is_chronon_stream(plan.source):
            if any(column_ids(source) & column_ids(table) for source in inputs):
                return None
            found = schema(plan)[len(columns) :]
            branches: list[Plan] = []
            for source in inputs:
                names = {column.id: value for column, value in rename(schema(source), columns)}
                tested = None if predicate is None else substitute(predicate, names)
                branches.append(replace(plan, predicate=tested, source=source))
            return Union((*columns, *found), tuple(branches))
    return None


def push_lookup_below_session(plan: Plan) -> Plan | None:
    """Λ(ω(S), T) = σm(ω(S ⟕ μm(T))) for a session ω: whether an element met a row of T is a column m, and what met none
    is taken away above. For semi and anti look-ups and marks m is that of a mark join.

    A session goes by the times of its rows: it stays what it is as long as every row is there, once or more often.
    """
    match plan:
        case Lookup(kind, mark, predicate, SessionWindow() as window):
            source, table = window.source, plan.table
            if kind == "left":
                return replace(window, source=replace(plan, source=source))
            # No other column has such an id.
            found = mark or Column(f"found {min(column_ids(table), default='')}", "found", BOOLEAN)
            test: Expression = ColumnRef(found.id, BOOLEAN)
            if kind == "inner":
                marked = Map((*pass_on(schema(table)), (found, TRUE)), table)
                below: Plan = Lookup("left", None, predicate, source, marked)
            else:
                below = Lookup("mark", found, predicate, source, table)
            above = replace(window, source=below)
            if kind == "mark":
                return above
            tested = Filter(Call("not", (test,), BOOLEAN) if kind == "anti" else test, above)
            return Map(pass_on(schema(plan)), tested)
    return None


def _can_move_below(plan: Plan) -> bool:
    """True if a look-up over a plan finds something below that it can pass, on the way to a chronon stream."""
    while isinstance(plan, Filter | Map | Lookup):
        plan = plan.source
    return isinstance(plan, TimeWindow | SessionWindow | Union)


# ---- conditions ------------------------------------------------------------------------------------------------------


def push_filter_below_lookup(plan: Plan) -> Plan | None:
    """σp(Λ(S, T)) = Λ(σp(S), T) where p reads S only."""
    match plan:
        case Filter(predicate, Lookup() as lookup):
            columns = column_ids(lookup.source)
            pushed, remaining = split_conjunction(predicate, lambda part: reads_only(part, columns))
            if pushed is None:
                return None
            return filtered(replace(lookup, source=Filter(pushed, lookup.source)), remaining)
    return None


def push_filter_into_lookup(plan: Plan) -> Plan | None:
    """σp(Λq(S, T)) = Λ(q ∧ p)(S, T) for an inner look-up."""
    match plan:
        case Filter(predicate, Lookup("inner", _, condition) as lookup):
            return replace(lookup, predicate=conjunction((*conjuncts(condition), *conjuncts(predicate))))
    return None


def push_condition_below_lookup(plan: Plan) -> Plan | None:
    """Λ(p ∧ q)(S, T) = Λp(S, σq(T)) where q reads T only; for inner and semi look-ups Λ(p ∧ q)(S, T) = Λp(σq(S), T)
    where q reads S only. For others an element that fails q is not gone but unmatched."""
    match plan:
        case Lookup(kind, _, condition, source, table):
            own, others = column_ids(table), column_ids(source)
            of_table, rest = split_conjunction(condition, lambda part: reads_only(part, own))
            of_source = None
            if kind in ("inner", "semi"):
                of_source, rest = split_conjunction(rest, lambda part: reads_only(part, others))
            if of_table is None and of_source is None:
                return None
            sides = filtered(source, of_source), filtered(table, of_table)
            return replace(plan, predicate=rest, source=sides[0], table=sides[1])
    return None


# ---- constant tables -------------------------------------------------------------------------------------------------


def join_constant_below_window(plan: Plan) -> Plan | None:
    """ω(S) ⋈ C = ω(S ⋈ C) for a time window and a constant table C, and the same for ⟕, ⋉, ▷ and marks: C is the same
    at every instant. Below the window nothing of the stream is stored."""
    match plan:
        case Join(_, left, right) if _is_constant(left) and isinstance(right, TimeWindow):
            if is_chronon_stream(right.source):
                return replace(right, source=replace(plan, right=right.source))
        case Join() | OuterJoin(False) | SemiJoin() | MarkJoin() if _is_constant(plan.right):
            window = plan.left
            if isinstance(window, TimeWindow) and is_chronon_stream(window.source):
                return replace(window, source=replace(plan, left=window.source))
    return None


def _is_constant(plan: Plan) -> bool:
    while isinstance(plan, Filter | Map):
        plan = plan.source
    return isinstance(plan, Scan) and plan.constant


# ---- placement -------------------------------------------------------------------------------------------------------

PLACEMENT: Final = (
    lookup_of_instants_as_join,
    push_lookup_below_time_window,
    push_lookup_below_filter,
    push_lookup_below_map,
    push_lookup_below_union,
    push_lookup_below_session,
)


def place_lookups(plan: Plan) -> Plan:
    """The plan with each look-up where it can be computed: as a join of instants, or over elements that begin at their
    row time. The binder has refused what has no such place."""

    def place(node: Plan) -> Plan:
        for rule in PLACEMENT:
            if (other := rule(node)) is not None:
                return transform_up(other, place)
        return node

    if not any(isinstance(node, Lookup) for node in walk(plan)):
        return plan
    plan = transform_up(plan, place)
    for node in walk(plan):
        if isinstance(node, Lookup) and (window := window_in_the_way(node)) is not None:
            message = f"cannot look up the rows of {show_node(window)} when they come"
            raise PlanError(message, code="lookup-window", hint="Join the table before this window.")
    return plan
