"""Second readers of streams: how far they read, and when a query may be taken over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.errors import CheckpointError
from strandline.core.types import INT
from strandline.runtime import catch_up
from strandline.runtime.catch_up import CatchUpPace, check_level, follow, name_reader
from strandline.runtime.offsets import SourceOffset
from support import MemorySource, arrange

ROWS = [(time, 0, (time,)) for time in range(30)]


@given(
    own=st.integers(0, 30),
    first=st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted),
    rows=st.integers(1, 9),
    ended=st.booleans(),
    idle=st.booleans(),
)
def test_a_second_reader_is_never_ahead_and_stays_level(
    own: int, first: list[int], rows: int, ended: bool, idle: bool
) -> None:
    begin, end = first
    own = min(own, begin)
    source = MemorySource(arrange("s", {"k": INT}, ROWS, 0), [rows])
    before = SourceOffset(own)
    after = follow(source, before, SourceOffset(begin), SourceOffset(end, ended=ended, idle=idle), rows)
    assert own <= after.at <= end and after.log == "s"
    if own == begin:
        assert after.at == end
    else:
        assert after.at == min(own + rows, end)
    # It ends, and is idle, where the first one is.
    assert (after.ended, after.idle) == ((ended, idle) if after.at == end else (False, False))


def test_one_that_has_ended_stays_as_it_is() -> None:
    source = MemorySource(arrange("s", {"k": INT}, ROWS, 0), [5])
    before = SourceOffset(30, ended=True)
    assert follow(source, before, before, before, 9) == before


def test_the_pace_goes_by_how_long_batches_take() -> None:
    pace = CatchUpPace(1_000_000)
    for _ in range(5):
        pace.observe(0.2, 0)
    slow = pace.rows
    pace.observe(2.0, slow)
    assert pace.rows == slow // 2  # 2 s is more than 1.25 times 0.2 s and a little
    for _ in range(5):
        pace.observe(0.05, pace.rows)
    assert slow // 2 < pace.rows < slow  # as many as that are too many
    for _ in range(200):
        pace.observe(0.05, pace.rows)
    assert pace.rows == 1_000_000
    for _ in range(40):
        pace.observe(9.0, pace.rows)
    assert pace.rows == catch_up.LEAST_ROWS
    pace.observe(0.01, 3)  # there was no more to read: that says nothing
    assert pace.rows == catch_up.LEAST_ROWS


def test_a_query_that_was_taken_over_does_not_go_on_from_before_it_was_level() -> None:
    reader = name_reader("s", "q")
    positions = {"s": SourceOffset(9), reader: SourceOffset(4, log="s")}
    with pytest.raises(CheckpointError, match="q had not caught up") as refused:
        check_level(positions, ["p", "q"], {"s"})
    assert refused.value.code == "repair-impossible"
    check_level(positions, ["p", "q"], {"s", reader})  # it still has its reader
    check_level(positions, ["p"], {"s"})  # it was dropped
    check_level({**positions, reader: SourceOffset(9, log="s")}, ["q"], {"s"})
