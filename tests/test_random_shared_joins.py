"""Joins that queries share, written at random, against the executable meaning of the algebra.

Several queries join the same streams in windows of their own, of rows that they select, and go on with what they like.
As a command, `python tests/test_random_shared_joins.py 50000`, it goes on until so many instants were compared.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import ge
from random import Random

import pytest

from random_streams import cut
from strandline.core.types import INT, VARCHAR
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.scheduling.budget import WorkBudget
from support import Arrivals, Cuts, RandomBudgets, arrange, assert_exact, bind, examples, raw, run_plans
from test_random_pipelines import count_operators

BLOCK = 10
COLUMNS = {"a": INT, "b": INT, "c": VARCHAR}
SELECTIONS = (
    "",
    "",
    "{p}.b > 1",
    "{p}.b <= 2 AND {p}.c = 'x'",
    "{p}.c = 'x' AND {p}.b <= 2",
    "{p}.b + {q}.b = 3",
    "{q}.b < 2",
)
CONDITIONS = ("{p}.a = {q}.a",) * 4 + ("{p}.a = {q}.a AND {p}.b < {q}.b", "{p}.a + 1 = {q}.b", "{p}.b < {q}.b")
RESULTS = (
    "SELECT {p}.a, {q}.b AS d FROM {join}",
    "SELECT * FROM {join}",
    "SELECT {p}.c, {q}.b + {p}.b AS e FROM {join}",
    "SELECT {p}.a, COUNT(*) AS n, MAX({q}.b) AS m FROM {join} GROUP BY {p}.a",
    "SELECT COUNT(*) AS n FROM {join}",
    "SELECT DISTINCT {q}.a FROM {join}",
    "SELECT {p}.a, {q}.b AS d, r.c FROM {join} JOIN t WINDOW(RANGE 3 MICROSECONDS) r ON r.a = {p}.a",
)


def stream(dice: Random, name: str) -> Arrivals:
    rows = [
        (dice.randint(0, 15), dice.randint(0, 6), (dice.choice((0, 1, 1, None)), dice.randint(0, 3), dice.choice("xy")))
        for _ in range(dice.randint(0, 8))
    ]
    return arrange(name, COLUMNS, rows, dice.choice((0, 0, 1, 6)))


def window(dice: Random) -> str:
    match dice.randint(1, 6):
        case 1:
            return ""
        case 2:
            return " WINDOW(RANGE UNBOUNDED)" if dice.random() < 0.3 else " WINDOW(RANGE 4 MICROSECONDS)"
        case 3:
            slide = dice.randint(2, 5)
            return f" WINDOW(RANGE {dice.randint(slide, 9)} MICROSECONDS SLIDE {slide} MICROSECONDS)"
        case _:
            return f" WINDOW(RANGE {dice.choice((1, 2, 3, 7, 12))} MICROSECONDS)"


def query(dice: Random, right: str, condition: str) -> str:
    p, q = dice.choice((("p", "q"), ("u", "v")))
    join = f"s{window(dice)} {p} JOIN {right}{window(dice)} {q} ON {condition}"
    selection = dice.choice(SELECTIONS)
    text = dice.choice(RESULTS).replace("{join}", join)
    if selection:
        before, group, after = text.partition(" GROUP BY")
        text = f"{before} WHERE {selection}{group}{after}"
    return text.format(p=p, q=q)


def check(dice: Random, budgets: int | None = None) -> tuple[int, int, int]:
    """Run queries together; returns how many instants were compared, how many joins were shared, and in how many
    batches queries waited for work that was put off."""
    streams = [stream(dice, name) for name in ("s", "t")]
    right, condition = dice.choice("ts"), dice.choice(CONDITIONS)
    plans = [bind(query(dice, right, condition), streams) for _ in range(dice.randint(2, 6))]
    cuts = cut(dice, streams)
    cuts = replace(cuts, forms=dice.choice((0, 1, cuts.forms)), budgets=budgets)
    answers = run_plans(plans, streams, cuts, optimised=dice.random() < 0.8)
    instants = sum(assert_exact(plan, raw(streams), answer) for plan, answer in zip(plans, answers, strict=True))
    for answer in answers if cuts.form == "intervals" else ():
        assert all(map(ge, answer.begins, answer.watermarks)), "what is below the watermark is final"
    parts = [lower(f"q{n}", optimize(p), [s.declared for s in streams], 2) for n, p in enumerate(plans)]
    pipeline = combine(parts, [s.declared for s in streams], [str(sorted(part.queries[0].streams)) for part in parts])
    shared = count_operators(pipeline, physical.SharedWindowJoin)
    return instants, shared, sum(answer.waited for answer in answers)


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_means_its_snapshots(first: int) -> None:
    shared = 0
    for seed in range(first, first + BLOCK):
        try:
            shared += check(Random(seed))[1]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert shared


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_means_its_snapshots_where_work_is_put_off(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 2)
    waited = 0
    for seed in range(first, first + BLOCK):
        try:
            waited += check(Random(seed), budgets=seed)[2]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert waited


# ---- what is shared --------------------------------------------------------------------------------------------------

S: Arrivals = arrange("s", COLUMNS, [(t, 0, (t % 3, t, "x")) for t in range(9)], 0)
T: Arrivals = arrange("t", COLUMNS, [(t, 0, (t % 2, t, "y")) for t in range(9)], 0)
JOIN = (
    "SELECT p.b, q.b AS d FROM s WINDOW(RANGE {0} MICROSECONDS) p JOIN t WINDOW(RANGE {1} MICROSECONDS) q ON p.a = q.a"
)


def together(*texts: str) -> Pipeline:
    declared = [S.declared, T.declared]
    plans = [optimize(bind(text, [S, T])) for text in texts]
    parts = [lower(f"q{number}", plan, declared, 2) for number, plan in enumerate(plans)]
    return combine(parts, declared, [""] * len(parts))


def shared_join(pipeline: Pipeline) -> physical.SharedWindowJoin:
    (join,) = {
        node
        for f in pipeline.fragments
        for node in physical.numbered(f.root)
        if isinstance(node, physical.SharedWindowJoin)
    }
    return join


def operator_id(pipeline: Pipeline, kind: type) -> str:
    (found,) = {
        operator
        for f in pipeline.fragments
        for node, operator in zip(physical.numbered(f.root), f.operators, strict=True)
        if isinstance(node, kind)
    }
    return found


def test_other_windows_share_a_join_and_its_exchanges() -> None:
    pipeline = together(*(JOIN.format(n, 2 * n) for n in (1, 2, 3)))
    assert count_operators(pipeline, physical.SharedWindowJoin) == 1
    assert count_operators(pipeline, physical.HashJoin) == 0
    assert len(pipeline.at(0)) == 2, "each side is sent once"
    assert len(shared_join(pipeline).uses) == 3


def test_equal_joins_stay_as_they_are() -> None:
    """An operator that two queries have needs no routes."""
    pipeline = together(JOIN.format(3, 3), JOIN.format(3, 3))
    assert count_operators(pipeline, physical.HashJoin) == 1
    assert count_operators(pipeline, physical.SharedWindowJoin) == 0


def test_a_query_alone_has_a_join_of_its_own() -> None:
    other = JOIN.format(3, 3).replace("p.a = q.a", "p.b = q.b")
    pipeline = together(JOIN.format(3, 3), other)
    assert count_operators(pipeline, physical.HashJoin) == 2
    assert count_operators(pipeline, physical.SharedWindowJoin) == 0


def test_another_condition_is_another_join() -> None:
    pipeline = together(JOIN.format(3, 3), f"{JOIN.format(4, 4)} AND p.b < q.b")
    assert count_operators(pipeline, physical.SharedWindowJoin) == 0


def test_selections_are_bits() -> None:
    """Each predicate is computed once, in stage 0; rows that no query wants stay there."""
    join = JOIN.format(3, 3)
    texts = [f"{join} WHERE p.b > 2", f"{join} WHERE p.b > 2 AND q.c = 'y'", f"{JOIN.format(5, 5)} WHERE p.b > 2"]
    pipeline = together(*texts)
    shared = shared_join(pipeline)
    assert shared.left_word is None, "all have one selection of the left: it is a filter"
    assert shared.right_word is not None
    assert len({use.selections for use in shared.uses}) == 2
    other = together(f"{join} WHERE p.b > 2", f"{join} WHERE p.b > 5 AND p.c = 'x'")
    (left,) = (f for f in other.at(0) if isinstance(f.root, physical.Filter))
    assert isinstance(left.root, physical.Filter) and isinstance(left.root.source, physical.Project)


def test_more_selections_than_a_word_has_bits() -> None:
    pipeline = together(*(f"{JOIN.format(3, 3)} WHERE p.b > {number}" for number in range(70)))
    assert count_operators(pipeline, physical.SharedWindowJoin) == 2


def test_without_keys_only_equal_selections_share() -> None:
    """All rows would meet, also those that no query wants together."""
    texts = [JOIN.format(n, 3).replace("p.a = q.a", "p.b < q.b") for n in (3, 4)]
    assert count_operators(together(*texts), physical.SharedWindowJoin) == 1
    texts = [f"{text} AND p.b > {number}" for number, text in enumerate(texts)]
    assert count_operators(together(*texts), physical.SharedWindowJoin) == 0


def test_the_state_is_known_by_the_join_whatever_its_uses() -> None:
    texts = [JOIN.format(n, n) for n in (1, 2, 3)]
    ids = [
        operator_id(together(*chosen), physical.SharedWindowJoin)
        for chosen in (texts, texts[:2], texts[1:], texts[::-1])
    ]
    assert len(set(ids)) == 1


def test_many_windows_of_one_join() -> None:
    """Windows in no order, with slides, over a join that is read by count and by row, one row at a time."""
    texts = [JOIN.format(1 + n * 7 % 11, 1 + n * 5 % 9) for n in range(12)]
    texts += [text.replace("MICROSECONDS) q", "MICROSECONDS SLIDE 2 MICROSECONDS) q") for text in texts[:3]]
    plans = [bind(text, [S, T]) for text in texts]
    answers = run_plans(plans, [S, T], Cuts(((1,) * 9, (2,) * 9), shards=2))
    for plan, answer in zip(plans, answers, strict=True):
        assert_exact(plan, raw([S, T]), answer)


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("shards", [1, 2])
def test_whatever_reads_a_join_waits_with_it(result: str, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind an exchange, and where it meets another stream: that is held back."""
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 2)
    monkeypatch.setattr(RandomBudgets, "decide", lambda self, rows, parts, has_work: WorkBudget(0, "SWF"))
    join = "s WINDOW(RANGE {0} MICROSECONDS) p JOIN t WINDOW(RANGE {0} MICROSECONDS) q ON p.a = q.a"
    texts = [result.replace("{join}", join.format(window)).format(p="p", q="q") for window in (2, 8)]
    plans = [bind(text, [S, T]) for text in texts]
    cuts = Cuts(((3,) * 3, (3,) * 3), shards=shards, forms=1, budgets=1)
    answers = run_plans(plans, [S, T], cuts)
    for plan, answer in zip(plans, answers, strict=True):
        assert_exact(plan, raw([S, T]), answer)
        assert all(map(ge, answer.begins, answer.watermarks))
        assert answer.waited > 2


def main() -> None:
    instants, shared, waited, seed = 0, 0, 0, 1_000_000
    SharedWindowJoinOperator.chunk_rows = 2
    while instants < int(sys.argv[1]):
        try:
            compared, joins, waits = check(Random(seed), budgets=seed if seed % 2 else None)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        instants, shared, waited, seed = instants + compared, shared + joins, waited + waits, seed + 1
    print(f"{instants:,} instants of {seed - 1_000_000:,} pipelines with {shared:,} shared joins, 0 wrong")
    print(f"{waited:,} times a query waited in a batch for work that was put off")


if __name__ == "__main__":
    main()
