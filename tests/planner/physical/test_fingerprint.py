"""The identity of a plan for checkpoints: equal for equal plans, whatever their text; different for different ones."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP
from strandline.logical import expressions
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import _TAGS, FORMAT, fingerprint_plan
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from support import Arrivals, bind

STREAMS = [Arrivals(name, (("k", BIGINT), ("v", DOUBLE), ("ts", TIMESTAMP)), ()) for name in ("a", "b")]

# Pinned: a digest that changes makes every checkpoint foreign. If the canonical form has to change, raise FORMAT.
DIGESTS = {
    "SELECT k, v * 2 AS w FROM a WHERE v > 1.5": "aa45b66df854ed4c1b303d35494596fb",
    "SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k": "2c0c575778d69a820584d87979e64c3c",
    "SELECT a.k FROM a WINDOW(RANGE 9 SECONDS), b WINDOW(ROWS 5) WHERE a.k = b.k": "61d19764d0e5345523bd848bfb81dc00",
    "SELECT window_end, k, v FROM HOP(a, ts, 1s, 10s)": "ab6e7f1e74f52586fb7111f3a56721fe",
    "SELECT k, v FROM a WINDOW(RANGE 10s SLIDE 5s) ORDER BY v LIMIT 3": "02f1938d161edfa99c3cc371cb8d43c4",
}


def lower_text(text: str, shards: int = 2) -> physical.Pipeline:
    return lower("q", optimize(bind(text, STREAMS)), [stream.declared for stream in STREAMS], shards)


@pytest.mark.parametrize("text", DIGESTS)
def test_fingerprints_are_pinned(text: str) -> None:
    assert FORMAT == 4
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
    assert nodes <= set(_TAGS)
    assert len(set(_TAGS.values())) == len(_TAGS)


def test_shared_subplans_are_digested_once() -> None:
    """A plan whose size doubles with each level of sharing."""
    source: Any = physical.Input("source:a", ())
    for _ in range(60):
        source = physical.UnionAll((), (source, source))
    fragment = physical.Fragment("f1", "q", 0, source, physical.ResultOf("q"), frozenset({"a"}), True)
    assert len(fingerprint_plan(physical.Pipeline((), (fragment,), (), 2))) == 32
