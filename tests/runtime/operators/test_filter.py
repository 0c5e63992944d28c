"""Filter: what stays is what satisfies the predicate, for as long as before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import BOOLEAN, DOUBLE, INT, VARCHAR
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal
from strandline.runtime.operators.stateless import FilterOperator
from support import (
    TEXT,
    Elements,
    Slicing,
    at,
    columns,
    drive,
    edges,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)

IS_A = Call("=", (ColumnRef("x", VARCHAR), Literal("a", VARCHAR)), BOOLEAN)


def test_unknown_is_not_true() -> None:
    negated = Call("not", (IS_A,), BOOLEAN)
    assert show(drive(lambda: FilterOperator(negated), [(TEXT, line("NULL[0,3) b[1,4) a[2,5)"))])) == "b[1,4)"


C = columns(INT, DOUBLE, BOOLEAN)
SMALL, REAL, TRUTH = (ColumnRef(c.id, c.type) for c in C)
PREDICATES: tuple[Expression, ...] = (
    Call(">=", (SMALL, Literal(1, INT)), BOOLEAN),
    Call("<", (REAL, Literal(float("inf"), DOUBLE)), BOOLEAN),
    Call("or", (TRUTH, Call("is_null", (SMALL,), BOOLEAN)), BOOLEAN),
    TRUTH,
    Literal(True, BOOLEAN),
    Literal(False, BOOLEAN),
    Literal(None, BOOLEAN),
)


@settings(max_examples=examples(25))
@given(intervals(payloads(INT, DOUBLE, BOOLEAN), endless=True), slicings(), st.sampled_from(PREDICATES))
def test_filter_is_the_snapshot_filter(source: Elements, slicing: Slicing, predicate: Expression) -> None:
    out = drive(lambda: FilterOperator(predicate), [(C, source)], slicing)
    same_snapshots(
        out,
        lambda t: [
            p for p in at(source, t) if evaluate(predicate, dict(zip(["c0", "c1", "c2"], p, strict=True))) is True
        ],
        edges(source),
    )
