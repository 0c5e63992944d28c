"""Queries that run together over streams that are idle for a while: each result is that of the query alone.

Which rows are late for a query follows from the streams that it reads, and from nothing else. As a command,
`python tests/test_idle_pipelines.py 50000`, it goes on until so many instants were compared.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random

import pytest

from idle_streams import Turn, accepted, accepted_elements, run_turns, turns
from random_streams import cut
from strandline.core.types import INT
from strandline.logical.plan import Plan
from strategies import Writer, is_allowed
from support import Arrivals, Cuts, arrange, assert_exact, bind, examples
from test_random_pipelines import questions

BLOCK = 10


def compare(
    plans: Sequence[Plan],
    streams: Sequence[Arrivals],
    script: Sequence[Turn],
    cuts: Cuts,
    *,
    optimised: bool = True,
    steady: Collection[str] = (),
    directory: Path | None = None,
) -> int:
    """Run queries together; returns how many instants were compared with the definition of each query alone."""
    run = run_turns(plans, streams, script, cuts, optimised=optimised, steady=steady, directory=directory)
    instants = 0
    late_for_any: dict[str, set[int]] = {stream.name: set() for stream in streams}
    for query, plan, answer in zip(run.pipeline.queries, plans, run.answers, strict=True):
        rows = accepted(streams, query.streams, script)
        instants += assert_exact(plan, accepted_elements(streams, rows), answer)
        for stream in streams:
            if stream.name not in query.streams:
                continue
            late = sorted(set(range(len(stream.elements))) - set(rows[stream.name]))
            late_for_any[stream.name] |= set(late)
            assert answer.late_count[stream.name] == len(late)
            found, names = answer.late.get(stream.name, []), [name for name, _ in stream.columns]
            expected = [stream.elements[number].values for number in late]
            assert len(found) == len(expected)
            read = [name for name in names if found and name in found[0]]
            assert [[str(row[n]) for n in read] for row in found] == [[str(row[n]) for n in read] for row in expected]
    assert all(count == len(late_for_any[name]) for name, count in run.written.items()), "each is written once"
    return instants


def check(dice: Random) -> int:
    while True:
        asked, texts = questions(dice)
        if len(asked.streams) > 1:
            break
    for _ in range(dice.randint(0, 2)):  # over some of the streams only
        some = dice.sample(asked.streams, dice.randint(1, len(asked.streams) - 1))
        text = Writer(dice, some, (), (), 2).script()
        texts += [text] if is_allowed(text, asked.streams, ()) else []
    plans: list[Plan] = []
    for text in texts:
        try:
            plans.append(bind(text, asked.streams))
        except Exception:
            if text == asked.text:  # of those below another query some are refused
                raise
    script, cuts, optimised = turns(dice, asked.streams), cut(dice, asked.streams), dice.random() < 0.8
    alone = dice.choice(plans)
    return compare(plans, asked.streams, script, cuts, optimised=optimised) + compare(
        [alone], asked.streams, script, cuts, optimised=optimised
    )


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_has_its_own_late_rows(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            check(Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def streams_at(s: Sequence[int], t: Sequence[int], disorder: int = 0) -> list[Arrivals]:
    return [
        arrange(name, {"k": INT}, [(time, 0, (number,)) for number, time in enumerate(times)], disorder)
        for name, times in (("s", s), ("t", t))
    ]


BOTH = "SELECT k FROM s UNION ALL SELECT k FROM t"
S_WAS_IDLE = [Turn({"s": 1, "t": 1}), Turn({"t": 1}, frozenset("s")), Turn({}, frozenset("s")), Turn({"s": 1})]


@pytest.mark.parametrize("neighbour", [False, True])
def test_a_row_is_not_late_because_of_another_query(neighbour: bool) -> None:
    """Rows at 10 and 50, idle in between, while a neighbour goes on to 100."""
    streams = streams_at([10, 50], [5, 100])
    texts = ["SELECT k FROM s", *([BOTH] if neighbour else [])]
    plans = [bind(text, streams) for text in texts]
    run = run_turns(plans, streams, S_WAS_IDLE, Cuts())
    assert [(start, row) for row, start, _ in run.answers[0].elements] == [(10, (0,)), (50, (1,))]
    assert run.answers[0].late_count == {"s": 0}
    assert not run.answers[0].late.get("s")
    if neighbour:
        assert run.answers[1].late_count == {"s": 1, "t": 0}
        assert [row["k"] for row in run.answers[1].late["s"]] == [1]
        assert run.written == {"s": 1, "t": 0}
    compare(plans, streams, S_WAS_IDLE, Cuts())


def test_a_result_begins_with_the_rows_that_its_query_accepts() -> None:
    """The first row of s is late for the second query: its count of no rows begins with t, not before."""
    streams = streams_at([50, 200], [60, 100, 210])
    count = "SELECT COUNT(*) AS n FROM (SELECT k FROM s WINDOW(RANGE 9 MICROSECONDS) UNION ALL \
        SELECT k FROM t WINDOW(RANGE 9 MICROSECONDS)) u"
    plans = [bind(text, streams) for text in ("SELECT k FROM s", count)]
    script = [Turn({"t": 2}, frozenset("s")), Turn({}, frozenset("s")), Turn({"s": 1})]
    run = run_turns(plans, streams, script, Cuts())
    assert min(start for _, start, _ in run.answers[1].elements) == 60
    compare(plans, streams, script, Cuts())


def test_a_query_whose_streams_have_ended_is_over_while_others_go_on() -> None:
    """Its operators do not run again: an element that was given its end would be given it once more."""
    streams = streams_at([1, 2, 4], [3, 9])
    counted = "SELECT k, COUNT(*) AS n FROM s WINDOW(ROWS 3) GROUP BY k"
    text = f"SELECT a.k, b.n FROM s WINDOW(ROWS 1) a LEFT JOIN ({counted}) b ON a.k = b.k"
    plans = [bind(each, streams) for each in (text, BOTH)]
    script = [Turn({"s": 2, "t": 1}), Turn({"s": 1}, ended=frozenset("s")), Turn({"t": 1}, ended=frozenset("s"))]
    compare(plans, streams, script, Cuts(form="changes"))


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
