"""Queries over different streams that share parts, which run ahead of some, against the definition of each alone.

As a command, `python tests/test_parts_ahead.py 50000`, it goes on until so many instants were compared.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from idle_streams import Turn, assemble, turns
from random_streams import cut
from strandline.core.types import INT
from strandline.planner.physical import plan as physical
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, numbered
from support import Arrivals, Cuts, arrange, assert_exact, bind, examples, raw, run_plans
from test_idle_pipelines import compare
from test_random_pipelines import count_operators

BLOCK = 10
GROUPED = "SELECT a, COUNT(*) AS b FROM {x} WINDOW(RANGE {n} MICROSECONDS) GROUP BY a"
# Parts over one or two streams, with the columns a and b.
PARTS = (
    GROUPED,
    GROUPED,
    "SELECT a, MAX(b) AS b FROM {x} WINDOW(RANGE {n} MICROSECONDS SLIDE {m} MICROSECONDS) GROUP BY a",
    "SELECT a, SUM(b) AS b FROM {x} WINDOW(ROWS {n}) GROUP BY a",
    "SELECT a, MIN(b) AS b FROM {x} GROUP BY a",
    "SELECT a, MAX(b) AS b FROM {x} WINDOW(RANGE UNBOUNDED) GROUP BY a",
    "SELECT DISTINCT a, b FROM {x} WINDOW(RANGE {n} MICROSECONDS)",
    "SELECT a, b FROM {x} WINDOW(ROWS {n})",
    "SELECT p.a, q.b FROM {x} WINDOW(RANGE {n} MICROSECONDS) p JOIN {y} WINDOW(RANGE {m} MICROSECONDS) q ON p.a = q.a",
    "SELECT p.a, q.b FROM {x} WINDOW(RANGE {n} MICROSECONDS) p LEFT JOIN {y} WINDOW(ROWS {m}) q ON p.a = q.a",
    "SELECT a, b FROM {x} WINDOW(RANGE {n} MICROSECONDS) EXCEPT SELECT a, b FROM {y} WINDOW(RANGE {m} MICROSECONDS)",
    "SELECT a, COUNT(*) AS b FROM (SELECT a FROM {x} WINDOW(ROWS {n}) UNION ALL SELECT a FROM {y} WINDOW(ROWS 2)) v \
     GROUP BY a",
)
# What reads a part, beside another stream.
READERS = (
    "SELECT * FROM ({part}) z",
    "SELECT a, b + 1 AS b FROM ({part}) z WHERE a > 0",
    "SELECT z.a, w.b FROM ({part}) z JOIN {t} WINDOW(RANGE {n} MICROSECONDS) w ON z.a = w.a",
    "SELECT w.a, z.b FROM {t} WINDOW(ROWS {n}) w JOIN ({part}) z ON z.a = w.a AND z.b < 3",
    "SELECT z.a, w.b FROM ({part}) z LEFT JOIN {t} WINDOW(RANGE {n} MICROSECONDS) w ON z.a = w.a",
    "SELECT w.a, z.b FROM {t} WINDOW(RANGE {n} MICROSECONDS) w LEFT JOIN ({part}) z ON z.a = w.a",
    "SELECT a, b FROM ({part}) z UNION ALL SELECT a, b FROM {t}",
    "SELECT a, b FROM ({part}) z UNION ALL SELECT a, b FROM {t} WINDOW(ROWS {n})",
    "SELECT a, b FROM ({part}) z EXCEPT SELECT a, b FROM {t} WINDOW(RANGE {n} MICROSECONDS)",
    "SELECT a, COUNT(*) AS b FROM ({part}) z GROUP BY a",
    "SELECT a, SUM(b) AS b FROM (SELECT a, b FROM ({part}) z UNION ALL SELECT a, b FROM {t} WINDOW(ROWS 2)) v \
     GROUP BY a",
    "SELECT a, b FROM ({part}) z WHERE a IN (SELECT a FROM {t} WINDOW(RANGE {n} MICROSECONDS))",
)


def streams_of(dice: Random) -> list[Arrivals]:
    return [_stream(dice, name) for name in "stu"]


def _stream(dice: Random, name: str) -> Arrivals:
    rows = [
        (dice.randint(0, 20), dice.randint(0, 3), (dice.choice((0, 1, 1, 2, None)), dice.choice((0, 1, 2, 5, None))))
        for _ in range(dice.randint(0, 9))
    ]
    return arrange(name, {"a": INT, "b": INT}, rows, dice.choice((0, 0, 1, 3)))


def texts_of(dice: Random) -> list[str]:
    """Queries over some streams, most of them readers of one part; some of them are parts of further ones."""

    def fill(text: str, **parts: str) -> str:
        x, y, t = dice.sample("stu", 3)
        return text.format(**{"x": x, "y": y, "t": t, "n": dice.randint(1, 9), "m": dice.randint(1, 5), **parts})

    texts = [fill(dice.choice(PARTS))]
    for _ in range(dice.randint(1, 4)):
        texts.append(fill(dice.choice(READERS), part=dice.choice(texts[:2])))
    dice.shuffle(texts)
    return texts


def is_ahead(pipeline: Pipeline) -> bool:
    return any(isinstance(node, physical.Reorder) and bool(node.below) for node in _nodes(pipeline))


def _nodes(pipeline: Pipeline) -> list[Node]:
    return [node for fragment in pipeline.fragments for node in numbered(fragment.root)]


def check(dice: Random) -> tuple[int, bool]:
    """Run queries together; returns how many instants were compared, and whether a part ran ahead."""
    streams = streams_of(dice)
    plans = [bind(text, streams) for text in texts_of(dice)]
    cuts, optimised = cut(dice, streams), dice.random() < 0.8
    if dice.random() < 0.5:
        ran = is_ahead(assemble(plans, streams, cuts, optimised=optimised, steady="stu"))
        answers = run_plans(plans, streams, cuts, optimised=optimised)
        return sum(assert_exact(plan, raw(streams), a) for plan, a in zip(plans, answers, strict=True)), ran
    steady = dice.sample("stu", dice.randint(1, 3))
    script = [replace(turn, idle=turn.idle - set(steady)) for turn in turns(dice, streams)]
    ran = is_ahead(assemble(plans, streams, cuts, optimised=optimised, steady=steady))
    with TemporaryDirectory() as directory:
        stored = Path(directory) if dice.random() < 0.3 else None
        return compare(plans, streams, script, cuts, optimised=optimised, steady=steady, directory=stored), ran


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_each_query_means_its_snapshots(first: int) -> None:
    ahead = 0
    for seed in range(first, first + BLOCK):
        try:
            ahead += check(Random(seed))[1]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert ahead, "else nothing is tested"


# ---- what is shared --------------------------------------------------------------------------------------------------

S, T, U = (arrange(n, {"a": INT, "b": INT}, [(t, 0, (t % 3, t)) for t in range(9)], 0) for n in "stu")
COUNTED = GROUPED.format(x="s", n=3)
BESIDE = f"SELECT z.a, z.b + w.b AS b FROM ({COUNTED}) z JOIN {{t}} WINDOW(RANGE 2 MICROSECONDS) w ON z.a = w.a"


def together(*texts: str, steady: str = "stu") -> Pipeline:
    return assemble([bind(text, [S, T, U]) for text in texts], [S, T, U], Cuts(shards=2), steady=steady)


def buffers(pipeline: Pipeline) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The buffers above parts that run ahead: the streams below, and above."""
    return {(node.below, node.above) for node in _nodes(pipeline) if isinstance(node, physical.Reorder) and node.below}


def test_an_aggregate_is_one_for_queries_over_more_streams() -> None:
    pipeline = together(COUNTED, BESIDE.format(t="t"), BESIDE.format(t="u"))
    assert count_operators(pipeline, physical.IncrementalAggregate) == 1
    assert buffers(pipeline) == {(("s",), ("s", "t")), (("s",), ("s", "u"))}
    assert len({fragment.streams for fragment in pipeline.at(0)}) == 3, "s by itself, t and u with their queries"
    assert "Reorder, s ahead of t" in show_pipeline(pipeline)


def test_an_aggregate_is_one_where_no_query_is_over_its_streams_alone() -> None:
    pipeline = together(BESIDE.format(t="t"), BESIDE.format(t="u"))
    assert count_operators(pipeline, physical.IncrementalAggregate) == 1
    assert len(buffers(pipeline)) == 2


def test_a_part_of_a_part_runs_ahead_of_it() -> None:
    beside_both = f"SELECT a, b FROM ({BESIDE.format(t='t')}) y UNION ALL SELECT a, b FROM u WINDOW(ROWS 2)"
    pipeline = together(COUNTED, BESIDE.format(t="t"), beside_both)
    assert count_operators(pipeline, physical.IncrementalAggregate) == 1
    assert count_operators(pipeline, physical.HashJoin) == 1
    assert buffers(pipeline) == {(("s",), ("s", "t")), (("s", "t"), ("s", "t", "u"))}


@pytest.mark.parametrize(
    "texts",
    [
        [BESIDE.format(t="t")],
        [BESIDE.format(t="t"), BESIDE.format(t="t").replace("+", "-")],
        [COUNTED, f"SELECT a FROM ({COUNTED}) z WHERE b > 1"],
        [COUNTED, "SELECT z.a, w.b FROM s WINDOW(ROWS 2) z JOIN t WINDOW(RANGE 2 MICROSECONDS) w ON z.a = w.a"],
    ],
)
def test_nothing_runs_ahead_that_queries_over_other_streams_do_not_have(texts: list[str]) -> None:
    assert not buffers(together(*texts))


def test_a_part_over_a_stream_that_may_be_idle_is_computed_for_each_set_of_streams() -> None:
    """Other rows are late for its readers."""
    pipeline = together(COUNTED, BESIDE.format(t="t"), steady="tu")
    assert not buffers(pipeline)
    assert count_operators(pipeline, physical.IncrementalAggregate) == 2


def test_a_count_of_no_rows_begins_with_its_query() -> None:
    """Its first result is at the first row of any stream, also of t: it is none of s alone."""
    text = "SELECT COUNT(*) AS b FROM s WINDOW(RANGE 3 MICROSECONDS)"
    pipeline = together(text, f"SELECT z.b FROM ({text}) z, t WINDOW(RANGE 9 MICROSECONDS) w")
    assert not buffers(pipeline)
    assert count_operators(pipeline, physical.IncrementalAggregate) == 2


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_a_part_runs_ahead_of_a_slow_stream_and_ends_before_it(form: StreamForm) -> None:
    plans = [bind(text, [S, T]) for text in (COUNTED, BESIDE.format(t="t"))]
    script = [Turn({"s": 5}), Turn({"s": 2, "t": 1}), Turn({"s": 2}), Turn({"t": 6}, ended=frozenset("s"))]
    assert compare(plans, [S, T], script, Cuts(shards=2, form=form), steady="st") > 10


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_elements_that_never_end_wait_for_the_end_of_all_streams(form: StreamForm) -> None:
    total = "SELECT a, SUM(b) AS b FROM s WINDOW(RANGE UNBOUNDED) GROUP BY a"
    texts = total, f"SELECT a, b FROM ({total}) z UNION ALL SELECT a, b FROM t WINDOW(RANGE 2 MICROSECONDS)"
    plans = [bind(text, [S, T]) for text in texts]
    assert is_ahead(assemble(plans, [S, T], Cuts(form=form), steady="st"))
    ended = frozenset("s")
    script = [Turn({"s": 9, "t": 2}), Turn({"t": 2}, ended=ended), Turn({"t": 2}, ended=ended)]
    assert compare(plans, [S, T], script, Cuts(form=form), steady="st") > 10


def main() -> None:
    instants, seed, ahead = 0, 1_000_000, 0
    while instants < int(sys.argv[1]):
        try:
            compared, ran = check(Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        instants, ahead, seed = instants + compared, ahead + ran, seed + 1
    print(f"{instants:,} instants of {seed - 1_000_000:,} pipelines, {ahead:,} of them with a part ahead, 0 wrong")


if __name__ == "__main__":
    main()
