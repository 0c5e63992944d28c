"""Map: other columns, the same validity, duplicates kept."""

from __future__ import annotations

from hypothesis import given, settings

from strandline.core.types import BIGINT, BOOLEAN, DOUBLE, INT, VARCHAR, Column
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, Cast, ColumnRef, Expression, Literal
from strandline.runtime.operators.stateless import ProjectOperator
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

X = ColumnRef("x", VARCHAR)


def is_text(text: str) -> Expression:
    return Call("=", (X, Literal(text, VARCHAR)), BOOLEAN)


def test_a_constant_has_as_many_rows_as_the_input() -> None:
    one = (Column("n", "n", INT), Literal(1, INT))
    assert show(drive(lambda: ProjectOperator((one,)), [(TEXT, line("a[0,2) b[1,3)"))])) == "1[0,2) 1[1,3)"


def test_no_columns_at_all_still_have_intervals() -> None:
    assert drive(lambda: ProjectOperator(()), [(TEXT, line("a[0,2) b[1,3)"))]) == [((), 0, 2), ((), 1, 3)]


C = columns(INT, DOUBLE, VARCHAR)
SMALL, REAL, WORD = (ColumnRef(c.id, c.type) for c in C)
OUTPUTS: tuple[tuple[Column, Expression], ...] = (
    (Column("sum", "sum", BIGINT), Call("+", (Cast(SMALL, BIGINT), Literal(1, BIGINT)), BIGINT)),
    (Column("quotient", "quotient", DOUBLE), Call("/", (Literal(1.0, DOUBLE), REAL), DOUBLE)),
    (Column("word", "word", VARCHAR), Call("||", (WORD, Literal("!", VARCHAR)), VARCHAR)),
    (Column("constant", "constant", BOOLEAN), Literal(None, BOOLEAN)),
)


@settings(max_examples=examples(25))
@given(intervals(payloads(INT, DOUBLE, VARCHAR), endless=True), slicings())
def test_map_is_the_snapshot_map(source: Elements, slicing: Slicing) -> None:
    out = drive(lambda: ProjectOperator(OUTPUTS), [(C, source)], slicing)
    rows = {c.id: i for i, c in enumerate(C)}
    same_snapshots(
        out,
        lambda t: [tuple(evaluate(e, {n: p[i] for n, i in rows.items()}) for _, e in OUTPUTS) for p in at(source, t)],
        edges(source),
    )
