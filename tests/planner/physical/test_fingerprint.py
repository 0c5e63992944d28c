"""The identity of a plan for checkpoints: equal for equal plans, whatever their text; different for different ones."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP
from strandline.logical import expressions
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import FORMAT, fingerprint_plan
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.tags import TAGS
from strandline.planner.stages import optimize
from support import Arrivals, bind

STREAMS = [Arrivals(name, (("k", BIGINT), ("v", DOUBLE), ("ts", TIMESTAMP)), ()) for name in ("a", "b")]

# Pinned: a digest that changes makes every checkpoint foreign. If the canonical form has to change, raise FORMAT.
DIGESTS = {
    "SELECT k, v * 2 AS w FROM a WHERE v > 1.5": "198a2ef1464e080e9eeb9354cc11a7c2",
    "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k": "4bdd1a823dbbe1232a0f63a05ee23608",
    "SELECT a.k FROM a WINDOW(RANGE 9 SECONDS), b WINDOW(ROWS 5) WHERE a.k = b.k": "5730917aa75c8b4e1e9ff27a2a995343",
    "SELECT window_end, k, v FROM HOP(a, ts, 1s, 10s)": "2d8812da747389ce5863ba69846a976e",
    "SELECT k, v FROM a WINDOW(RANGE 10s SLIDE 5s) ORDER BY v LIMIT 3": "86f832070d69cf4ef37fcc71fd80f9e3",
}


def lower_text(text: str, shards: int = 2) -> physical.Pipeline:
    return lower("q", optimize(bind(text, STREAMS)), [stream.declared for stream in STREAMS], shards)


@pytest.mark.parametrize("text", DIGESTS)
def test_fingerprints_are_pinned(text: str) -> None:
    assert FORMAT == 5
    assert fingerprint_plan(lower_text(text)) == DIGESTS[text]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 11 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS SLIDE 5 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS SLIDE 5 SECONDS OFFSET 1 SECOND) GROUP BY k",
        "SELECT window_end, k, v FROM HOP(a, ts, 1s, 10s, 500ms)",
        "SELECT k, v FROM a WINDOW(RANGE 10s SLIDE 5s OFFSET 1s) ORDER BY v LIMIT 3",
        "SELECT k, COUNT(v) AS n FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS m FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM b WINDOW(RANGE 10 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) WHERE v > 1 GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) WHERE v > 1.0000000000000002 GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM a WINDOW(ROWS 10) GROUP BY k",
    ],
)
def test_other_plans_have_other_fingerprints(text: str) -> None:
    others = ["SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) WHERE v > 2 GROUP BY k", *DIGESTS]
    own = fingerprint_plan(lower_text(text))
    assert own == fingerprint_plan(lower_text(text))
    assert all(own != fingerprint_plan(lower_text(other)) for other in others if other != text)


def test_the_number_of_shards_belongs_to_the_identity() -> None:
    text = next(iter(DIGESTS))
    assert fingerprint_plan(lower_text(text, 2)) != fingerprint_plan(lower_text(text, 3))


def test_every_node_and_expression_has_a_tag_of_its_own() -> None:
    nodes = {*get_args(physical.Node), *get_args(expressions.Expression)}
    assert nodes <= set(TAGS)
    assert len(set(TAGS.values())) == len(TAGS)


def test_shared_subplans_are_digested_once() -> None:
    """A plan whose size doubles with each level of sharing."""
    source: Any = physical.Input("source:a", ())
    for _ in range(60):
        source = physical.UnionAll((), (source, source))
    fragment = physical.Fragment("f1", ("q",), 0, source, physical.ResultOf("q"), frozenset({"a"}), True)
    assert len(fingerprint_plan(physical.Pipeline((), (fragment,), (), 2))) == 32


def test_a_plan_may_be_deeper_than_the_stack() -> None:
    source: Any = physical.Input("source:a", ())
    for number in range(2000):
        source = physical.AlignTime(number, source)
    fragment = physical.Fragment("f1", ("q",), 0, source, physical.ResultOf("q"), frozenset({"a"}), True)
    assert len(fingerprint_plan(physical.Pipeline((), (fragment,), (), 2))) == 32
