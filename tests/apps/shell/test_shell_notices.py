"""Each notice, on the screen of the shell, through a real pseudo-terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import ROOT, Terminal, shell

PROMPT = "strandline> "
PATIENCE = 60.0  # seconds; the machine may be busy with other things

STREAMS = (
    "CREATE STREAM a (k INT, ts TIMESTAMP) SOURCE"
    " rows((1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:02')) ORDERED BY ts;",
    "CREATE STREAM c (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-02 00:00:01')) ORDERED BY ts;",
    "CREATE STREAM l (k INT, ts TIMESTAMP) SOURCE"
    " rows((1, '2024-01-01 00:20:00'), (2, '2024-01-01 00:08:49')) ORDERED BY ts WITHIN 5 MINUTES;",
)

# What is typed, and what the screen must show; a long line goes over several lines of the screen.
SHOWN = {
    "arrival-time": (
        "CREATE STREAM w (k INT, ts TIMESTAMP) SOURCE rows();",
        'the rows of "w" have the time of their arrival, not that of column "ts"; declare ORDERED BY ts',
    ),
    "no-window": (
        "SELECT k, count(*) AS n FROM a GROUP BY k;",
        "a is read without a window: an aggregate meets only rows of the same microsecond; "
        "write FROM a WINDOW(RANGE 10 MINUTES)",
    ),
    "time-groups": (
        "SELECT date_trunc('month', ts) AS m, count(*) AS n FROM a GROUP BY date_trunc('month', ts);",
        "write FROM a WINDOW(RANGE UNBOUNDED)",
    ),
    "unordered-result": ("SELECT k FROM a ORDER BY k;", "a continuous result has no order"),
    "derived-windows": (
        "SELECT a.k FROM a JOIN c ON c.ts BETWEEN a.ts AND a.ts + INTERVAL '2 days';",
        "the windows follow from the condition: a WINDOW(RANGE",
    ),
    "time-zone": ("SELECT ts AT TIME ZONE 'Europe/Berlin' AS t FROM a;", "UTC"),
    "late-rows": (
        "SELECT k FROM l;",
        '1 of 2 rows of "l" came later than WITHIN allows, the latest by 11 min 11 s; WITHIN 12 MINUTES would keep all',
    ),
    "rejected-rows": ("SELECT k FROM r;", "1 of 2 rows of \"r\" was rejected, the first because of k: 'x' is not INT"),
    "times-apart": (
        "SELECT a.k FROM a WINDOW(RANGE 1 MINUTE) LEFT JOIN c WINDOW(RANGE 1 MINUTE) ON a.k = c.k;",
        "their times do not overlap: a ends at 2024-01-01 00:00:02, before c begins at 2024-01-02 00:00:01",
    ),
    "no-rows": (
        "SELECT k FROM a WINDOW(RANGE 1 MINUTE) WHERE k > 100;",
        'ended without a row: the filter "a.k > 100" lets nothing through; .why q',
    ),
}


def last_prompt(text: str) -> str | None:
    lines = [line for line in text.splitlines() if line.startswith(PROMPT.rstrip())]
    return lines[-1][len(PROMPT) :].strip() if lines else None


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    state: Path = tmp_path_factory.mktemp("state")
    (state / "r.csv").write_text("k,ts\n1,2024-01-01 00:00:01\nx,2024-01-01 00:00:02\n")
    streams = (*STREAMS, f"CREATE STREAM r (k INT, ts TIMESTAMP) SOURCE file('{state}/r.csv') ORDERED BY ts;")
    terminal = shell("--engine", "local", state=state, cwd=ROOT)
    try:
        terminal.until("ready", PATIENCE)
        for statement in streams:
            clear(terminal)
            terminal.type(statement)
            terminal.until(lambda text: "is declared" in text and last_prompt(text) == "", PATIENCE)
        yield terminal
    finally:
        terminal.close()


def is_back(screen: str) -> bool:
    return last_prompt(screen) == ""


def clear(terminal: Terminal) -> None:
    terminal.until(lambda text: last_prompt(text) == "", PATIENCE)
    terminal.send("\x0c")
    terminal.until(lambda text: text.startswith(PROMPT.rstrip()), PATIENCE)


@pytest.mark.parametrize("code", SHOWN)
def test_the_shell_shows_the_notice_once_in_a_line(terminal: Terminal, code: str) -> None:
    typed, text = SHOWN[code]
    clear(terminal)
    terminal.type(typed)

    def is_shown(screen: str) -> bool:
        joined = "".join(screen.split())  # a long line goes on in the next one
        return "".join(f"notice[{code}]:".split()) in joined and "".join(text.split()) in joined and is_back(screen)

    screen = terminal.until(is_shown, PATIENCE)
    assert screen.count(f"notice[{code}]") == 1
