"""What plans say about their keys, held against the rows that they have."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from rule_queries import shaped_question
from strandline.core.types import INT, VARCHAR
from strandline.logical.plan import Plan
from strandline.logical.properties.keys import determines, equalities, is_duplicate_free, keys
from strandline.logical.reference.interpreter import RawStreams, bag, change_instants, snapshots
from strandline.logical.schema import schema
from strandline.logical.tree import walk
from strandline.planner.stages import optimize
from strategies import question
from support import arrange, bind, examples, raw

BLOCK = 16


def check(plan: Plan, streams: RawStreams) -> int:
    """Every fact of a node is true of its snapshots; returns how many facts there are."""
    found, pairs = keys(plan), equalities(plan)
    instants = change_instants(plan, streams) if found or pairs else []
    columns = {c.id for c in schema(plan)}
    assert all(key <= columns for key in found)
    for rows in snapshots(plan, streams, instants):
        for key in found:
            assert all(
                n == 1 for n in Counter(map(repr, bag([tuple(row[c] for c in sorted(key)) for row in rows]))).values()
            )
        for one, two in pairs:
            assert all(row[one] is not None and bag([(row[one],)]) == bag([(row[two],)]) for row in rows)
    return len(found)


@pytest.mark.parametrize("first", range(0, examples(3) * BLOCK, BLOCK))
def test_what_plans_say_about_their_keys_is_true(first: int) -> None:
    facts = 0
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = shaped_question(dice) if seed % 2 else question(dice)
        plan = bind(asked.text, asked.streams)
        try:
            facts += sum(check(node, raw(asked.streams)) for same in (plan, optimize(plan)) for node in walk(same))
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert facts > BLOCK, "there is something to hold true"


S = [arrange(name, {"k": INT, "x": VARCHAR}, [], 0) for name in ("l", "r")]
L = "l [RANGE 3 MICROSECONDS]"
LAST = "r [PARTITION BY k ROWS 1]"

# Whether a query has no copies, by what can be seen of its plan.
COPIES = {
    f"SELECT k, x FROM {L}": True,
    f"SELECT DISTINCT k, x FROM {L}": False,
    f"SELECT k, COUNT(*) AS n FROM {L} GROUP BY k": False,
    f"SELECT COUNT(*) AS n FROM {L} GROUP BY k": True,
    f"SELECT COUNT(*) AS n FROM {L}": False,
    f"SELECT k, x FROM {LAST}": False,
    f"SELECT x FROM {LAST}": True,
    "SELECT x FROM r [ROWS 1]": False,
    "SELECT x FROM r [ROWS 2]": True,
    f"SELECT a.k, x FROM (SELECT DISTINCT k FROM {L}) AS a JOIN {LAST} ON a.k = r.k": False,
    f"SELECT a.k FROM (SELECT DISTINCT k FROM {L}) AS a JOIN {LAST} ON a.k = r.k": False,
    f"SELECT a.k FROM (SELECT DISTINCT k FROM {L}) AS a JOIN {LAST} ON a.k < r.k": True,
    f"SELECT a.k, x FROM (SELECT DISTINCT k FROM {L}) AS a LEFT JOIN {LAST} ON a.k = r.k": False,
    f"SELECT a.k, x FROM (SELECT DISTINCT k FROM {L}) AS a FULL JOIN {LAST} ON a.k = r.k": True,
    f"SELECT k FROM {L} EXCEPT SELECT k FROM {LAST}": False,
    f"SELECT k FROM {L} EXCEPT ALL SELECT k FROM {LAST}": True,
    f"SELECT k FROM {LAST} EXCEPT ALL SELECT k FROM {L}": False,
    f"SELECT k FROM {L} INTERSECT ALL SELECT k FROM {LAST}": False,
    f"SELECT k FROM {LAST} UNION MAX SELECT k FROM {LAST}": False,
    f"SELECT k FROM {LAST} UNION ALL SELECT k FROM {LAST}": True,
    f"SELECT k FROM (SELECT DISTINCT k FROM {L}) GRANULARITY(2 MICROSECONDS) AS t": False,
}  # fmt: skip


@pytest.mark.parametrize("text", COPIES)
def test_copies(text: str) -> None:
    assert is_duplicate_free(bind(text, S)) != COPIES[text]


def test_columns_that_equal_a_key_determine_a_row() -> None:
    plan = bind(f"SELECT l.k, r.k AS q, r.x FROM (SELECT DISTINCT k FROM {L}) AS l JOIN {LAST} ON l.k = r.k", S)
    k, q, x = (c.id for c in schema(plan))
    assert determines(plan, [k]) and determines(plan, [q])
    assert not determines(plan, [x])
