"""Plans whose edges have forms chosen at random: intervals, changes, converters between them.

A form is not part of an answer: whatever the choice, the answer at every instant is that of the definition. Many more
of the same: `python tests/test_random_forms.py 20000`, with the number of instants to compare.
"""

from __future__ import annotations

import sys
from random import Random

import pytest

from random_streams import cut
from strandline.core.types import INT
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import numbered
from strandline.planner.stages import optimize
from support import Arrivals, Cuts, arrange, assert_exact, bind, examples, form_strategy, raw, run_plan

COLUMNS = {"k": INT, "v": INT}
WINDOWS = (
    "RANGE 7 MICROSECONDS",
    "RANGE 3 MICROSECONDS",
    "RANGE UNBOUNDED",
    "RANGE 6 MICROSECONDS SLIDE 4 MICROSECONDS",
    "ROWS 3",
    "PARTITION BY k ROWS 2",
)
# Operators over operators whose results stay open.
RUNNING = (
    "(SELECT k, SUM(v) AS x FROM b WINDOW({w}) GROUP BY k)",
    "(SELECT k, COUNT(*) AS x FROM b WINDOW({w}) GROUP BY k)",
    "(SELECT k, MAX(v) AS x FROM b WINDOW({w}) GROUP BY k HAVING COUNT(*) < 3)",
    "(SELECT k, v AS x FROM b WINDOW(PARTITION BY k ROWS 1))",
    "(SELECT l.k, l.v AS x FROM b WINDOW({w}) l ANTI JOIN a WINDOW({w}) r ON l.k = r.k)",
    "(SELECT DISTINCT k, v AS x FROM b WINDOW({w}))",
    "(SELECT l.k, r.v AS x FROM b WINDOW({w}) l LEFT JOIN a WINDOW({w}) r ON l.k = r.v)",
)
QUERIES = (
    "SELECT a.k, a.v, h.x FROM a JOIN {r} h ON a.k = h.k",
    "SELECT a.k, a.v, h.x FROM a WINDOW({w}) JOIN {r} h ON a.k = h.k",
    "SELECT a.k, a.v, h.x FROM a WINDOW({w}) JOIN {r} h ON a.v < h.x",
    "SELECT g.k, g.x, h.x AS y FROM {r} g JOIN {s} h ON g.k = h.k",
    "SELECT g.k, h.x FROM {r} g, {s} h WHERE g.x = h.x AND g.k <> h.k",
    "SELECT a.k, a.v, h.x FROM a LEFT JOIN {r} h ON a.k = h.k",
    "SELECT g.k, g.x, h.x AS y FROM {r} g LEFT JOIN {s} h ON g.k = h.x",
    "SELECT g.k, g.x, h.x AS y FROM {r} g FULL JOIN {s} h ON g.k = h.x",
    "SELECT k, x FROM {r} g WHERE EXISTS (SELECT 1 FROM {s} h WHERE h.k = g.k AND h.x > g.x)",
    "SELECT k, x, x IN (SELECT x FROM {s} h) AS found FROM {r} g",
    "SELECT k, x FROM {r} g WHERE x >= (SELECT MAX(x) FROM {s} h)",
    "SELECT x, COUNT(*) AS n, MIN(k) AS m FROM {r} g GROUP BY x",
    "SELECT SUM(x) AS s, MAX(x) AS m, COUNT(*) AS n FROM {r} g",
    "SELECT k, LAST(x ORDER BY x) AS l, COUNT(DISTINCT x) AS n FROM {r} g GROUP BY k",
    "SELECT DISTINCT x FROM {r} g",
    "(SELECT k, x FROM {r} g) EXCEPT (SELECT k, x FROM {s} h)",
    "(SELECT x FROM {r} g) INTERSECT ALL (SELECT x FROM {s} h)",
    "(SELECT DISTINCT x FROM {r} g) UNION ALL (SELECT v FROM a WINDOW({w}))",
    "SELECT k, x FROM {r} g ORDER BY x DESC, k LIMIT 2",
)


def stream(dice: Random, name: str) -> Arrivals:
    drawn = [
        (dice.randint(-3, 14), dice.randint(0, 6), (dice.choice((1, 1, 2, None)), dice.choice((0, 1, 2, None))))
        for _ in range(dice.randint(0, 9))
    ]
    return arrange(name, COLUMNS, drawn, dice.choice((0, 0, 3)))


def draw(seed: int) -> tuple[str, list[Arrivals], Cuts]:
    dice = Random(seed)
    running = [dice.choice(RUNNING).format(w=dice.choice(WINDOWS)) for _ in range(2)]
    query = dice.choice(QUERIES).format(r=running[0], s=running[1], w=dice.choice(WINDOWS))
    streams = [stream(dice, name) for name in ("a", "b")]
    return query, streams, cut(dice, streams)


def check(seed: int) -> tuple[int, set[str]]:
    """Compare one question with the definition; returns at how many instants, and the operators that ran."""
    query, streams, cuts = draw(seed)
    try:
        plan = bind(query, streams)
        instants = assert_exact(plan, raw(streams), run_plan(plan, streams, cuts))
        pipeline = lower(
            "q",
            optimize(plan),
            [s.declared for s in streams],
            cuts.shards,
            form=cuts.form,
            strategy=form_strategy(cuts.forms),
        )
    except BaseException as error:
        error.add_note(f"seed {seed}, {cuts}, streams {streams}:\n{query}")
        raise
    return instants, {shown(node) for fragment in pipeline.fragments for node in numbered(fragment.root)}


def shown(node: physical.Node) -> str:
    """An operator and the forms that it takes."""
    match node:
        case physical.HashJoin() | physical.OuterHashJoin():
            return f"{node.tag} {node.input_forms}"
        case physical.IncrementalAggregate():
            return f"{node.tag} {node.input_form}"
        case physical.Distinct():
            return f"{node.tag} {node.form}"
        case _:
            return node.tag


@pytest.mark.parametrize("block", range(examples(6)))
def test_the_form_of_an_edge_is_not_part_of_the_answer(block: int) -> None:
    used: set[str] = set()
    for seed in range(block * 40, block * 40 + 40):
        used |= check(seed)[1]
    for tag in ("HashJoin", "OuterHashJoin", "IncrementalAggregate", "Distinct"):
        assert any(each.startswith(f"{tag} ") and "changes" in each for each in used), tag
    assert {"AsChanges", "AsIntervals", "Coalesce"} <= used


def main(goal: int) -> None:
    compared, seed, used = 0, 0, set[str]()
    while compared < goal:
        instants, nodes = check(seed)
        compared, seed, used = compared + instants, seed + 1, used | nodes
    print(f"{seed:,} plans, {compared:,} instants, none wrong; operators: {', '.join(sorted(used))}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
