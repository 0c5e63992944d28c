"""Columns of subqueries that are INTERVALs: passed on, compared, grouped and aggregated as the definition says."""

from __future__ import annotations

from random import Random

import pytest

from random_streams import cut
from strandline.core.types import INT
from support import arrange, assert_exact, bind, raw, run_plan

GAPS = "(SELECT k, ts, ts - LAG(ts) OVER (PARTITION BY k ORDER BY ts) AS gap FROM a) g"
QUERIES = {
    "compared": f"SELECT k, ts, epoch(gap) AS s FROM {GAPS} WHERE gap > INTERVAL '3' MICROSECOND",
    "grouped": "SELECT gap > INTERVAL '3' MICROSECOND AS long, COUNT(*) AS n, epoch(MAX(gap)) AS most "
    f"FROM {GAPS} WINDOW(RANGE 9 MICROSECONDS) GROUP BY gap",
    "distinct": f"SELECT epoch(gap) AS s FROM (SELECT DISTINCT gap FROM {GAPS} WINDOW(RANGE 9 MICROSECONDS)) d",
    "joined": f"WITH g AS {GAPS[:-2]} SELECT x.k, ts + x.gap AS next FROM g WINDOW(RANGE 5 MICROSECONDS) x "
    "JOIN (SELECT gap FROM g WINDOW(RANGE 4 MICROSECONDS)) y ON x.gap = y.gap",
    "together": f"SELECT epoch(gap) AS s FROM (SELECT gap FROM {GAPS} UNION ALL "
    "SELECT ts - TIMESTAMP '1970-01-01' AS gap FROM a) both WHERE gap >= INTERVAL '2' MICROSECOND",
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", QUERIES)
def test_an_interval_is_a_value_within_a_query(form: str, seed: int) -> None:
    dice = Random(seed)
    rows = [(dice.randint(0, 25), dice.randint(0, 3), (dice.randint(0, 2),)) for _ in range(dice.randint(3, 14))]
    streams = [arrange("a", {"k": INT}, rows, 3)]
    plan = bind(QUERIES[form], streams)
    assert_exact(plan, raw(streams), run_plan(plan, streams, cut(dice, streams)))
