"""Queries that run together, written at random, against the executable meaning of the algebra.

Whatever they have in common and compute once: the result of each is that of the query alone. As a command,
`python tests/test_random_pipelines.py 50000`, it goes on until so many instants were compared.
"""

from __future__ import annotations

import sys
from random import Random

import pytest

from random_streams import cut
from strandline.core.types import INT
from strandline.logical.plan import Plan
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline, numbered
from strandline.planner.stages import optimize
from strategies import Question, Writer, is_allowed, question
from support import Arrivals, Cuts, arrange, assert_exact, bind, examples, raw, run_plans

BLOCK = 10


def questions(dice: Random) -> tuple[Question, list[str]]:
    """Streams, and up to five queries over them, of which some have parts in common."""
    asked = question(dice)
    texts = [asked.text]
    for _ in range(dice.randint(1, 3)):
        match dice.randint(1, 4):
            case 1:
                texts.append(dice.choice(texts))
            case 2:
                texts.append(_renamed(dice.choice(texts)))
            case _:
                text = Writer(dice, list(asked.streams), (), (), 3).script()
                if is_allowed(text, asked.streams, ()):
                    texts.append(text)
    return asked, texts


def _renamed(text: str) -> str:
    """The query below another one, which reads it under another name."""
    *before, last = [part for part in text.split(";") if part.strip()]
    return ";".join([*before, f" SELECT * FROM ({last}) AS other_name"])


def check(dice: Random) -> int:
    """Run queries together; returns how many instants were compared."""
    asked, texts = questions(dice)
    plans: list[Plan] = []
    for text in texts:
        try:
            plans.append(bind(text, asked.streams))
        except Exception:
            if text == asked.text:  # of those below another query some are refused
                raise
    answers = run_plans(plans, asked.streams, cut(dice, asked.streams), optimised=dice.random() < 0.8)
    return sum(assert_exact(plan, raw(asked.streams), answer) for plan, answer in zip(plans, answers, strict=True))


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_means_its_snapshots(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            check(Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


# ---- what is shared --------------------------------------------------------------------------------------------------

S: Arrivals = arrange("s", {"a": INT, "b": INT}, [(t, 0, (t % 3, t)) for t in range(9)], 0)
JOIN = """
SELECT {x}.a, {y}.b FROM s WINDOW(RANGE 3 MICROSECONDS) {x} JOIN s WINDOW(RANGE 2 MICROSECONDS) {y} ON {x}.a = {y}.a
"""


def together(*texts: str) -> Pipeline:
    plans = [optimize(bind(text, [S])) for text in texts]
    parts = [lower(f"q{number}", plan, [S.declared], 2) for number, plan in enumerate(plans)]
    return combine(parts, [S.declared], [""] * len(parts))


def count_operators(pipeline: Pipeline, kind: type) -> int:
    """How many operators of a kind run."""
    return len(
        {
            operator
            for fragment in pipeline.fragments
            for node, operator in zip(numbered(fragment.root), fragment.operators, strict=True)
            if isinstance(node, kind)
        }
    )


def test_queries_that_differ_in_names_share_a_join() -> None:
    pipeline = together(JOIN.format(x="p", y="q"), JOIN.format(x="u", y="v"))
    assert count_operators(pipeline, physical.HashJoin) == 1
    assert len(pipeline.at(0)) == 2, "each side is sent once"


def test_readers_of_a_derived_stream_share_it() -> None:
    below = JOIN.format(x="p", y="q")
    calls = ("SUM(b)", "MAX(b)", "COUNT(DISTINCT b)")
    pipeline = together(*(f"SELECT a, {call} AS x FROM ({below}) t GROUP BY a" for call in calls))
    assert count_operators(pipeline, physical.HashJoin) == 1
    assert count_operators(pipeline, physical.IncrementalAggregate) >= 3


def test_a_part_joined_with_itself_is_computed_once() -> None:
    grouped = "SELECT a, COUNT(*) AS n FROM s WINDOW(RANGE 3 MICROSECONDS) GROUP BY a"
    text = f"SELECT p.n, q.n AS m FROM ({grouped}) p JOIN ({grouped}) q ON p.a = q.a"
    plans = [bind(text, [S]), bind(grouped, [S])]
    for plan, answer in zip(plans, run_plans(plans, [S]), strict=True):
        assert_exact(plan, raw([S]), answer)
    assert count_operators(together(text, grouped), physical.IncrementalAggregate) == 1


def test_a_count_without_keys_runs_in_one_shard() -> None:
    texts = "SELECT a FROM s WINDOW(ROWS 2)", "SELECT COUNT(*) AS n, MAX(a) AS m FROM s WINDOW(ROWS 3 SLIDE 2)"
    plans = [bind(text, [S]) for text in texts]
    for plan, answer in zip(plans, run_plans(plans, [S], Cuts(shards=2, form="changes")), strict=True):
        assert_exact(plan, raw([S]), answer)


def main() -> None:
    instants, seed = 0, 1_000_000
    while instants < int(sys.argv[1]):
        try:
            instants += check(Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seed += 1
    print(f"{instants:,} instants of {seed - 1_000_000:,} pipelines, 0 wrong")


if __name__ == "__main__":
    main()
