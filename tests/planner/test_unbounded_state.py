"""State without bound: what the plan says about it, and whether it is true."""

from __future__ import annotations

import pytest

from strandline.core.types import INT, TIMESTAMP
from strandline.engines.local import LocalRun
from strandline.logical.catalog import Catalog
from strandline.logical.reference.interpreter import Element
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.planner.unbounded_state import growing_state
from strandline.runtime.pipeline import RunningPipeline
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import Arrivals, MemorySource, moment

W = "[RANGE 3 MICROSECONDS]"
ALL = "[RANGE UNBOUNDED]"

# Every row has a k of its own, so that what is kept per key grows; v is one of three values.
BATCHES, PER_BATCH = 48, 4
TIMES = range(BATCHES * PER_BATCH)
S = Arrivals(
    "s",
    (("k", INT), ("v", INT), ("ts", TIMESTAMP)),
    tuple(Element(t, {"k": t, "v": t % 3, "ts": moment(t)}) for t in TIMES),
)
STAY = Arrivals(
    "stay",
    (("k", INT), ("ts", TIMESTAMP), ("te", TIMESTAMP)),
    tuple(Element(t, {"k": t, "ts": moment(t), "te": None}, 2**63 - 1) for t in TIMES),
    intervals=True,
)

BOUNDED = [
    f"SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k",
    f"SELECT DISTINCT k, v FROM s {W}",
    f"SELECT a.k FROM s {W} a JOIN s {W} b ON a.k = b.k",
    f"SELECT k FROM s {W} EXCEPT SELECT v FROM s {W}",
    f"SELECT k, v FROM s {ALL} WHERE v = 1",
    f"SELECT COUNT(*) AS n, SUM(v) AS t, MAX(k) AS top, VAR_POP(k) AS spread FROM s {ALL}",
    "SELECT k FROM s [ROWS 5]",
    "SELECT COUNT(*) AS n FROM s [ROWS 5]",
    "SELECT MEDIAN(k) AS m FROM s [ROWS 5]",
    f"SELECT k FROM s {W} UNION ALL SELECT v FROM s {ALL}",
    f"ISTREAM(SELECT k FROM s {ALL})",
    f"DSTREAM(SELECT k FROM s {W})",
    f"SELECT k FROM s {W} ORDER BY k LIMIT 2",
    f"SELECT k FROM s {ALL} ORDER BY k LIMIT 2",
    f"SELECT k FROM s {ALL} ORDER BY k DESC LIMIT 2",
    "SELECT k FROM stay ORDER BY k LIMIT 2",
    f"SELECT k FROM (SELECT k, RANK() OVER (PARTITION BY v ORDER BY k) AS place FROM s {W}) AS r WHERE place = 1",
    "SELECT COUNT(*) AS n FROM s [SESSION 1 MICROSECOND]",
    "SELECT k FROM stay",
    "SELECT MAX(k) AS top FROM stay",
]

GROWING = [
    (
        f"SELECT k, SUM(v) AS t FROM s {ALL} GROUP BY k",
        "Aggregate by s.k: sum_v := sum(s.v)\n  keeps totals per distinct s.k: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT DISTINCT k, v FROM s {ALL}",
        "Distinct\n  keeps every distinct row: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT COUNT(DISTINCT k) AS n FROM s {ALL}",
        "Aggregate: count_k := count(distinct s.k)\n  keeps every distinct value: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT MEDIAN(k) AS m FROM s {ALL}",
        "…\n  keeps every row: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT a.k FROM s a JOIN s {ALL} b ON a.k = b.k",
        "Join on a.k = b.k\n  keeps every row of the right side: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT a.k FROM s {ALL} a LEFT JOIN s {W} b ON a.k = b.v",
        "Left join on a.k = b.v\n  keeps every row of the left side: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT k FROM s {W} t WHERE k NOT IN (SELECT v FROM s {ALL} u)",
        "…\n  keeps every row of the right side: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT k FROM s {ALL} INTERSECT SELECT v FROM s {W}",
        "Intersect (k#2)\n  keeps a count per distinct row: RANGE UNBOUNDED over s",
    ),
    (
        "SELECT k, v FROM s [PARTITION BY k ROWS 2]",
        "CountWindow 2 rows by s.k\n  keeps 2 rows per distinct s.k: keys never expire",
    ),
    (
        f"SELECT v FROM s {ALL} QUALIFY RANK() OVER (PARTITION BY k ORDER BY v) < 3",
        "TopRows 2 by s.v of each s.k\n  keeps 2 rows per distinct s.k: RANGE UNBOUNDED over s",
    ),
    (
        f"SELECT k, RANK() OVER (ORDER BY v) AS place FROM s {ALL}",
        "Rank rank by s.v\n  keeps every row: RANGE UNBOUNDED over s",
    ),
    (
        f"ISTREAM(SELECT k, COUNT(*) AS n FROM s {ALL} GROUP BY k)",
        "…\n  keeps a row per distinct s.k: RANGE UNBOUNDED over s",
    ),
    (
        "SELECT k, COUNT(*) AS n FROM stay GROUP BY k",
        "Aggregate by stay.k: count_all := count(*)\n  keeps totals per distinct stay.k: rows of stay may never expire",
    ),
    (
        f"SELECT n.k FROM (SELECT k, COUNT(*) AS n FROM s {ALL} GROUP BY k) n JOIN s {W} b ON n.k = b.k",
        "Join on n.k = b.k\n  keeps a row per distinct s.k of the left side: RANGE UNBOUNDED over s",
    ),
]


def state_rows(text: str) -> tuple[list[str], list[int]]:
    """What the plan says of the query, and how many rows its state has after every batch."""
    catalog = Catalog()
    for stream in (S, STAY):
        catalog.add(stream.declared)
    statement = parse_one(text)
    assert isinstance(statement, ast.Query)
    plan = optimize(bind_query(statement, catalog))
    pipeline = lower("q", plan, [S.declared, STAY.declared], 2)
    sources = {
        s.name: MemorySource(s, [PER_BATCH] * BATCHES) for s in (S, STAY) if s.name in pipeline.queries[0].streams
    }
    running = RunningPipeline(pipeline)
    run = LocalRun(running, sources=sources)
    sizes = []
    for _ in range(BATCHES):
        run.step()
        sizes.append(running.metrics.state_rows)
    return growing_state(plan), sizes


@pytest.mark.parametrize("text", BOUNDED)
def test_nothing_is_said_where_state_does_not_grow(text: str) -> None:
    lines, sizes = state_rows(text)
    assert lines == []
    assert max(sizes[BATCHES // 2 :]) <= max(sizes[: BATCHES // 2])


@pytest.mark.parametrize(("text", "line"), GROWING)
def test_what_grows_is_named(text: str, line: str) -> None:
    lines, sizes = state_rows(text)
    assert any(found.endswith(line.removeprefix("…")) for found in lines), lines
    assert sizes[-1] >= sizes[BATCHES // 2] + PER_BATCH * BATCHES // 4


def test_keys_that_come_again_cost_nothing() -> None:
    """The line says how state can grow; with three keys it does not."""
    _, sizes = state_rows(f"SELECT v, COUNT(*) AS n FROM s {ALL} GROUP BY v")
    assert max(sizes) <= 3 + PER_BATCH
