"""The structure of the state of a join follows from how the elements of its sides leave."""

from __future__ import annotations

import pytest

from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import lower
from support import Arrivals, bind

STREAMS = [Arrivals(name, (("k", BIGINT), ("v", DOUBLE), ("ts", TIMESTAMP)), ()) for name in "abc"]
TEN = "WINDOW(RANGE 10 SECONDS)"


@pytest.mark.parametrize(
    ("text", "structures"),
    [
        (f"SELECT a.k FROM a {TEN} JOIN b {TEN} ON a.k = b.k", [("fifo", "fifo")]),
        (f"SELECT a.k FROM a JOIN b {TEN} ON a.k = b.k", [("fifo", "fifo")]),
        (f"SELECT a.k FROM a WINDOW(RANGE 9 SECONDS SLIDE 2 SECONDS) JOIN b {TEN} ON a.k = b.k", [("fifo", "fifo")]),
        (
            f"SELECT a.k FROM a {TEN} JOIN b {TEN} ON a.k = b.k JOIN c {TEN} ON b.v = c.v",
            [("fifo", "fifo"), ("calendar", "fifo")],
        ),
        (f"SELECT a.k FROM a {TEN} LEFT JOIN (SELECT DISTINCT k FROM b {TEN}) x ON a.k = x.k", [("fifo", "calendar")]),
        (
            f"SELECT c.k FROM (SELECT k FROM a {TEN} UNION ALL SELECT k FROM b {TEN}) x JOIN c {TEN} ON x.k = c.k",
            [("fifo", "fifo")],
        ),
        (
            "SELECT c.k FROM (SELECT k FROM a WINDOW(RANGE 1 SECOND) UNION ALL"
            f" SELECT k FROM b {TEN}) x JOIN c {TEN} ON x.k = c.k",
            [("calendar", "fifo")],
        ),
    ],
)
def test_elements_that_end_in_any_order_are_kept_in_a_calendar(text: str, structures: list[tuple[str, str]]) -> None:
    pipeline = lower("q", bind(text, STREAMS), [stream.declared for stream in STREAMS], 2)
    nodes = [node for fragment in pipeline.fragments for node in physical.numbered(fragment.root)]
    joins = [node for node in nodes if isinstance(node, physical.HashJoin | physical.OuterHashJoin)]
    assert [join.structures for join in joins] == structures
