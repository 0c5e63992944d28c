"""Queries whose fragments put off input, written at random, against the executable meaning of the algebra.

Strategies, budgets and batches are drawn, too: whatever waits, and in whatever order it is taken, each query has its
result, in order. As a command, `python tests/test_random_strategies.py 50000`, it goes on until so many instants were
compared.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import ge
from random import Random
from unittest.mock import patch

import pytest

from random_streams import cut
from strandline.core.types import INT, VARCHAR
from strandline.runtime import fragment_turns
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from support import Arrivals, arrange, assert_exact, bind, examples, raw, run_plans
from test_random_pipelines import questions

BLOCK = 10
COLUMNS = {"a": INT, "b": INT, "c": VARCHAR}
PAIRS = "{s} p JOIN {t} q ON p.a = q.a"
RESULTS = (
    "SELECT a, COUNT(*) AS n, MAX(b) AS m FROM {s} GROUP BY a",
    "SELECT COUNT(*) AS n FROM {s}",
    "SELECT DISTINCT c FROM {t}",
    "SELECT a, b FROM {s} WHERE b > 1 ORDER BY b LIMIT 2",
    f"SELECT p.b, q.c FROM {PAIRS}",
    f"SELECT p.b, COUNT(*) AS n FROM {PAIRS} GROUP BY p.b",
    f"SELECT p.b, q.c, r.a FROM {PAIRS} JOIN {{t}} r ON p.b = r.b",
    "SELECT p.b, q.c FROM {s} p LEFT JOIN {t} q ON p.a = q.a",
    "SELECT a, b FROM {s} EXCEPT SELECT a, b FROM {t}",
    "SELECT x.n, y.b FROM (SELECT a, COUNT(*) AS n FROM {s} GROUP BY a) x JOIN {t} y ON x.n = y.b",
    "SELECT a, b FROM s WINDOW(PARTITION BY a ROWS 2)",
    "SELECT a, COUNT(*) AS n FROM (SELECT a, b FROM {s} UNION ALL SELECT b, a FROM {t}) u GROUP BY a",
    "SELECT n, COUNT(*) AS k FROM (SELECT a, COUNT(*) AS n FROM {t} GROUP BY a) x GROUP BY n",
)


def stream(dice: Random, name: str) -> Arrivals:
    rows = [
        (dice.randint(0, 25), dice.randint(0, 6), (dice.choice((0, 1, 1, None)), dice.randint(0, 3), dice.choice("xy")))
        for _ in range(dice.randint(4, 16))
    ]
    return arrange(name, COLUMNS, rows, dice.choice((0, 0, 1, 6)))


def window(dice: Random) -> str:
    match dice.randint(1, 5):
        case 1:
            slide = dice.randint(2, 5)
            return f"WINDOW(RANGE {dice.randint(slide, 9)} MICROSECONDS SLIDE {slide} MICROSECONDS)"
        case 2 if dice.random() < 0.2:
            return "WINDOW(RANGE UNBOUNDED)"
        case _:
            return f"WINDOW(RANGE {dice.choice((1, 2, 3, 7, 12))} MICROSECONDS)"


def query(dice: Random) -> str:
    return dice.choice(RESULTS).format(s=f"s {window(dice)}", t=f"{dice.choice('stt')} {window(dice)}")


def check(dice: Random, seed: int) -> tuple[int, int]:
    """Run queries together; returns how many instants were compared, and in how many batches queries waited."""
    if dice.random() < 0.1:
        asked, texts = questions(dice)
        streams, texts = list(asked.streams), [asked.text]
    else:
        streams, texts = [stream(dice, name) for name in ("s", "t")], [query(dice) for _ in range(dice.randint(1, 5))]
    plans = [bind(text, streams) for text in texts]
    cuts = cut(dice, streams)
    sizes = tuple(tuple(dice.randint(2, 9) for _ in range(4)) for _ in streams)
    cuts = replace(cuts, sizes=dice.choice((cuts.sizes, sizes)), forms=dice.choice((0, 1, cuts.forms)), budgets=seed)
    answers = run_plans(plans, streams, cuts, optimised=dice.random() < 0.8)
    instants = sum(assert_exact(plan, raw(streams), answer) for plan, answer in zip(plans, answers, strict=True))
    for answer in answers if cuts.form == "intervals" else ():
        assert all(map(ge, answer.begins, answer.watermarks)), "what is below the watermark is final"
    return instants, sum(answer.waited for answer in answers)


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_means_its_snapshots(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 2)
    monkeypatch.setattr(fragment_turns, "PART_ROWS", 1)
    waited = 0
    for seed in range(first, first + BLOCK):
        try:
            waited += check(Random(seed), seed)[1]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert waited


def main() -> None:
    SharedWindowJoinOperator.chunk_rows = 2
    instants, waited, seed = 0, 0, 1_000_000
    while instants < int(sys.argv[1]):
        try:
            with patch.object(fragment_turns, "PART_ROWS", 1):
                compared, waits = check(Random(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        instants, waited, seed = instants + compared, waited + waits, seed + 1
    print(f"{instants:,} instants of {seed - 1_000_000:,} pipelines, 0 wrong")
    print(f"{waited:,} times a query waited in a batch for input that was put off")


if __name__ == "__main__":
    main()
