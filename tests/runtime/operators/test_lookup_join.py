"""The look-up join: elements meet what is valid when they begin, and keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import OPEN
from strandline.core.types import BOOLEAN, INT, VARCHAR, Column, Schema
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, ColumnRef, Expression
from strandline.logical.plan import LookupKind
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.lookup_join import LookupJoinOperator
from support import (
    Elements,
    Payload,
    Slicing,
    at,
    batch,
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

KINDS: tuple[LookupKind, ...] = get_args(LookupKind)
MARK = Column("mark", "mark", BOOLEAN)
LEFT, RIGHT = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r")
NO_CUTS = Slicing()


def operator(
    kind: LookupKind, left: Schema, right: Schema, keys: int, condition: Expression | None, slicing: Slicing
) -> LookupJoinOperator:
    """The join on the first `keys` columns of both sides."""
    l_keys, r_keys = ([ColumnRef(c.id, c.type) for c in side[:keys]] for side in (left, right))
    mark = MARK if kind == "mark" else None
    return LookupJoinOperator(kind, l_keys, r_keys, condition, left, right, mark, forms=slicing.input_forms)


def looked_up(kind: LookupKind, lefts: Elements, rights: Elements, slicing: Slicing = NO_CUTS) -> Elements:
    return drive(lambda: operator(kind, LEFT, RIGHT, 1, None, slicing), [(LEFT, lefts), (RIGHT, rights)], slicing)


def expected(kind: LookupKind, row: Payload, matches: Sequence[Payload], width: int) -> list[Payload]:
    """What one element becomes, given its matches."""
    match kind:
        case "inner":
            return [row + other for other in matches]
        case "left":
            return [row + other for other in matches or [(None,) * width]]
        case "semi" | "anti":
            return [row] if bool(matches) == (kind == "semi") else []
        case "mark":
            return [(*row, bool(matches))]


CUTS = [NO_CUTS, Slicing((2, 5), "save"), Slicing((3, 4, 6), changes=(True, True), form="changes")]


@pytest.mark.parametrize("slicing", CUTS)
@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("inner", "a,a[0,10) a,a[5,8)"),
        ("left", "a,a[0,10) a,a[5,8) a,NULL[7,9) b,NULL[1,∞)"),
        ("semi", "a[0,10) a[5,8)"),
        ("anti", "a[7,9) b[1,∞)"),
        ("mark", "a,False[7,9) a,True[0,10) a,True[5,8) b,False[1,∞)"),
    ],
)
def test_later_changes_of_the_right_do_not_concern_an_element(kind: LookupKind, result: str, slicing: Slicing) -> None:
    #   t        0    5    10
    #   left  a  [=========)
    #         a       [==)
    #         a         [=)
    #         b   [===========>
    #   right a [===)[=)             none from 7 on; at 5 there is the second one
    #         b     [=====)          too late
    found = looked_up(kind, line("a[0,10) b[1,∞) a[5,8) a[7,9)"), line("a[-1,4) a[5,7) b[3,9)"), slicing)
    assert sorted(show(found).split()) == sorted(result.split())


def test_nothing_of_the_left_is_kept_but_what_elements_without_an_end_have_found() -> None:
    whole = operator("inner", LEFT, RIGHT, 1, None, NO_CUTS)
    whole.step([batch(LEFT, line("a[0,100) b[1,100)")), batch(RIGHT, line("a[0,50)"))], Watermark(10))
    assert {name: log.segments for name, log in whole.logs.items() if log.segments}.keys() == {"join/right"}
    slicing = Slicing(changes=(True, False))
    opened = operator("inner", LEFT, RIGHT, 1, None, slicing)
    opened.step([batch(LEFT, [(("a",), 0, OPEN), (("b",), 1, OPEN)]), batch(RIGHT, line("a[0,50)"))], Watermark(10))
    assert opened.open.all().height == 1


FREE = (Column("k", "k", INT), Column("l", "l", INT))
OTHER = (Column("j", "j", INT), Column("r", "r", INT))
CONDITION = Call("<", (ColumnRef("l", INT), ColumnRef("r", INT)), BOOLEAN)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(KINDS),
    intervals(payloads(INT, INT), endless=True),
    intervals(payloads(INT, INT), endless=True),
    st.sampled_from((0, 1)),
    st.sampled_from((None, CONDITION)),
    slicings(takes_changes=True),
)
def test_every_element_has_what_was_valid_when_it_began(
    kind: LookupKind, lefts: Elements, rights: Elements, keys: int, condition: Expression | None, slicing: Slicing
) -> None:
    def matches(row: Payload, start: int) -> list[Payload]:
        pairs = [(other, {"k": row[0], "l": row[1], "j": other[0], "r": other[1]}) for other in at(rights, start)]
        equal = [(o, v) for o, v in pairs if not keys or (v["k"] is not None and v["k"] == v["j"])]
        return [other for other, values in equal if condition is None or evaluate(condition, values) is True]

    found = drive(
        lambda: operator(kind, FREE, OTHER, keys, condition, slicing), [(FREE, lefts), (OTHER, rights)], slicing
    )
    meaning = [
        (row, start, end)
        for payload, start, end in lefts
        for row in expected(kind, payload, matches(payload, start), len(OTHER))
    ]
    same_snapshots(found, lambda t: at(meaning, t), edges(lefts, rights))
