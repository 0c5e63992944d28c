"""Window functions over the past of a stream, against the definition and against DuckDB: whatever the batches and the
shards."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from fuzz import bound_question, recorded
from over_queries import OverQueries, over_stream
from random_streams import cut
from strandline.apps.verify import check as judged
from strandline.apps.verify.oracle import OracleDatabase
from strandline.logical.schema import schema
from strategies import Question
from support import Cuts, assert_exact, batch, bind, examples, raw, run_plan

BLOCK = 25


@pytest.mark.parametrize("first", range(0, examples(12) * BLOCK, BLOCK))
def test_every_window_function_means_its_definition(first: int) -> None:
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        stream = over_stream(dice)
        text = OverQueries(dice).query()
        try:
            plan = bind(text, [stream])
            answers = [run_plan(plan, [stream], cuts) for cuts in (Cuts(), cut(dice, [stream]), cut(dice, [stream]))]
            assert_exact(plan, raw([stream]), *answers)
        except BaseException as error:
            error.add_note(f"seed {seed}, {stream}:\n{text}")
            raise


@pytest.mark.parametrize("first", range(100_000, 100_000 + examples(4) * BLOCK, BLOCK))
def test_duckdb_agrees_on_every_row(duckdb: OracleDatabase, first: int) -> None:
    unchecked: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        stream = over_stream(dice)
        question = Question((stream,), OverQueries(dice).query())
        bound = bound_question(question)
        answer = run_plan(bound.plan, [stream], cut(dice, [stream]))
        verdict = judged.check(duckdb, bound, [recorded(stream)], batch(schema(bound.plan), answer.elements).frame)
        if verdict.unchecked is not None:
            unchecked[verdict.unchecked] += 1
        assert verdict.equal, f"seed {seed}, {stream}:\n{question.text}\n{verdict.differences}"
    assert sum(unchecked.values()) <= BLOCK // 3, unchecked
