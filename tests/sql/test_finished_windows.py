"""Windows as table functions and in GROUP BY: every way to write them is one plan, and what is refused says why."""

from __future__ import annotations

import pytest

import strandline as sl
from strandline.core.types import INT
from strandline.logical.explain import show_plan
from support import arrange, bind

STREAMS = [arrange("s", {"k": INT}, [], 0)]
ONE, TEN = "INTERVAL '1' MINUTE", "INTERVAL '10' MINUTE"


@pytest.mark.parametrize(
    "texts",
    [
        (
            f"SELECT k FROM TUMBLE(s, ts, {TEN})",
            "SELECT k FROM TUMBLE(s, s.ts, 10m)",
            f"SELECT k FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), {TEN}))",
            f"SELECT k FROM TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN})",
        ),
        (
            f"SELECT k FROM HOP(s, ts, {ONE}, {TEN})",
            f"SELECT k FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), {ONE}, {TEN}))",
            f"SELECT k FROM HOP(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN}, SLIDE => {ONE})",
        ),
        (
            f"SELECT k FROM SESSION(s PARTITION BY k, ts, {TEN})",
            f"SELECT k FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), {TEN})",
            f"SELECT k FROM SESSION(TABLE s, DESCRIPTOR(ts), DESCRIPTOR(k), {TEN})",
        ),
        (
            f"SELECT k, window_start, COUNT(*) AS n FROM TUMBLE(s, ts, {TEN}) GROUP BY k, window_start, window_end",
            f"SELECT k, TUMBLE_START(ts, {TEN}) AS window_start, COUNT(*) AS n FROM s GROUP BY k, TUMBLE(ts, {TEN})",
            "SELECT k, window.start AS window_start, COUNT(*) AS n FROM s GROUP BY k, window(ts, '10 minutes')",
        ),
        (
            f"SELECT k, window_time AS t FROM HOP(s, ts, {ONE}, {TEN}) "
            "GROUP BY k, window_start, window_end, window_time",
            f"SELECT k, HOP_ROWTIME(ts, {ONE}, {TEN}) AS t FROM s GROUP BY k, HOP(ts, {ONE}, {TEN})",
        ),
        (
            f"SELECT k, window_end, COUNT(*) AS n FROM SESSION(s PARTITION BY k, ts, {TEN}) "
            "GROUP BY k, window_start, window_end",
            f"SELECT k, SESSION_END(ts, {TEN}) AS window_end, COUNT(*) AS n FROM s GROUP BY k, SESSION(ts, {TEN})",
            "SELECT k, session_window.end AS window_end, COUNT(*) AS n FROM s "
            "GROUP BY k, session_window(ts, '10 minutes')",
        ),
    ],
)
def test_all_ways_to_write_a_window_are_one(texts: tuple[str, ...]) -> None:
    plans = [show_plan(bind(text, STREAMS)) for text in texts]
    assert plans == [plans[0]] * len(texts)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT k FROM TUMBLE(s, k, 10m)", "window-table"),
        ("SELECT k FROM TUMBLE((SELECT k, ts FROM s [RANGE 5s]), ts, 10m)", "window-table"),
        ("SELECT k FROM TUMBLE(s, ts)", "syntax"),
        ("SELECT k FROM TUMBLE(s, ts, 10m, ORIGIN => 5m)", "not-supported"),
        ("SELECT k FROM TUMBLE(s, ts, 10m, 5m, 1m)", "syntax"),
        ("SELECT k FROM SESSION(s, ts, 10m, 5m)", "syntax"),
        ("SELECT k FROM HOP(s, ts, 10m, 25m)", "bad-duration"),
        ("SELECT k FROM TUMBLE(s PARTITION BY k, ts, 10m)", "not-supported"),
        ("SELECT k FROM TUMBLE(s, ts, 10m) WINDOW(RANGE 5s)", "duplicate-window"),
        (f"SELECT COUNT(*) AS n FROM s [RANGE 5s] GROUP BY TUMBLE(ts, {TEN})", "group-window"),
        (f"SELECT COUNT(*) AS n FROM s, s AS t GROUP BY TUMBLE(s.ts, {TEN})", "group-window"),
        (f"SELECT TUMBLE_START(ts, {ONE}) AS a FROM s GROUP BY TUMBLE(ts, {TEN})", "group-window"),
        (f"SELECT COUNT(*) AS n FROM s GROUP BY k + 1, SESSION(ts, {TEN})", "group-window"),
        ("SELECT COUNT(*) AS n FROM s GROUP BY window(ts, 'soon')", "group-window"),
    ],
)
def test_refusals_have_a_hint(text: str, code: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        bind(text, STREAMS)
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)


def test_the_words_are_names_elsewhere() -> None:
    text = "SELECT tumble.session AS hop FROM (SELECT k AS session FROM s) tumble"
    assert show_plan(bind(text, STREAMS)).startswith("Map hop := tumble.session")
