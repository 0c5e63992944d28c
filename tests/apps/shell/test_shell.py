"""The shell as a person uses it: keys in, a screen out, through a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from terminal import CTRL_C, CTRL_D, ROOT, TAB, UP, Terminal, shell

PROMPT = "strandline> "
PATIENCE = 30.0  # seconds; the machine may be busy with other things
SPARK_PATIENCE = 120.0

TRADES = """CREATE STREAM trades (sym VARCHAR, price DOUBLE, qty INT, ts TIMESTAMP)
  SOURCE file('docs/examples/trades/*.csv') ORDERED BY ts WITHIN 2 SECONDS;"""
TICKS = """CREATE STREAM ticks (value BIGINT, key INT, ts TIMESTAMP)
  SOURCE rate(rows_per_second => 200, keys => 3) ORDERED BY ts;"""


def fresh(terminal: Terminal) -> None:
    """An empty prompt at the top of an empty screen."""
    terminal.until(lambda text: last_prompt(text) == "", PATIENCE)
    terminal.send("\x0c")
    terminal.until(lambda text: text.startswith(PROMPT.rstrip()), PATIENCE)


def last_prompt(text: str) -> str | None:
    """What stands at the last prompt of a screen."""
    lines = [line for line in text.splitlines() if line.startswith(PROMPT.rstrip())]
    return lines[-1][len(PROMPT) :].strip() if lines else None


@pytest.fixture(scope="module")
def open_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = shell("--engine", "local", state=tmp_path_factory.mktemp("state"), cwd=ROOT)
    try:
        terminal.until("ready", PATIENCE)
        for statement in (TRADES, TICKS):
            terminal.type(statement.replace("\n", "\r"))
            terminal.until("is declared", PATIENCE)
            fresh(terminal)
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def terminal(open_shell: Terminal) -> Terminal:
    fresh(open_shell)
    return open_shell


def run(terminal: Terminal, line: str, seen: str) -> str:
    """Type a line, wait until something is seen and the prompt is back."""
    terminal.type(line)
    return terminal.until(lambda text: seen in text and last_prompt(text) == "", PATIENCE)


def test_the_prompt_is_there_at_once(tmp_path: Path) -> None:
    terminal = shell("--engine", "local", state=tmp_path, cwd=ROOT)
    try:
        terminal.until(PROMPT.rstrip(), PATIENCE)
        # The process's own seconds: those on the wall depend on what else the machine does.
        used = psutil.Process(terminal.child.pid).cpu_times()
        assert used.user + used.system < 0.9
        terminal.send(CTRL_D)
        assert terminal.until_gone(PATIENCE) == 0
    finally:
        terminal.close()


def test_completion(terminal: Terminal) -> None:
    for typed, wanted in (
        ("SELEC", "SELECT"),
        ("SELECT sym FROM trad", "SELECT sym FROM trades"),
        ("SELECT sym FROM trades AS t WHERE t.pri", "SELECT sym FROM trades AS t WHERE t.price"),
        (".str", ".streams"),
    ):
        terminal.send(typed + TAB)
        terminal.until(lambda text, wanted=wanted: last_prompt(text) == wanted, PATIENCE)  # type: ignore[misc]
        terminal.send(CTRL_C)
        terminal.until(lambda text: last_prompt(text) == "", PATIENCE)


def test_a_statement_over_many_lines(terminal: Terminal) -> None:
    terminal.type("SELECT sym, qty")
    terminal.type("  FROM trades -- a semicolon; in a comment ends nothing")
    terminal.type(" WHERE sym = 'A;' OR qty > 45")
    assert "error" not in terminal.text()
    text = run(terminal, ";", " ended, ")
    assert "ACME  100  [09:00]" in text


def test_the_answer_of_a_query_that_ends_stays_on_the_screen(terminal: Terminal) -> None:
    text = run(terminal, "SELECT sym, SUM(qty) AS shares FROM trades [RANGE 10 MINUTES] GROUP BY sym;", " ended, ")
    assert "at 2024-01-02 09:11:00, 2 rows" in text, "when the last row came, not when the windows were empty"
    assert [line.split() for line in text.splitlines() if line.startswith(("ACME", "NOVA"))] == [
        ["ACME", "90"],
        ["NOVA", "15"],
    ]
    fresh(terminal)
    rows = run(terminal, ".tail rows", " ended, ")
    assert "ACME     100  [09:00:00, 09:04:00)" in rows
    changes = run(terminal, ".tail changes", "time on")
    assert "-  09:04:00            ACME     100" in changes and "+  09:04:00            ACME     120" in changes
    fresh(terminal)
    past = run(terminal, ".tail AT TIMESTAMP '2024-01-02 09:03:00'", "2 rows")
    assert "at 2024-01-02 09:03:00, 2 rows" in past and "ACME     100" in past


def test_a_live_tail_in_its_forms_and_ctrl_c(terminal: Terminal) -> None:
    terminal.type("SELECT key, COUNT(*) AS n FROM ticks [RANGE 2 SECONDS] GROUP BY key;")
    table = terminal.until(lambda text: ", 3 rows" in text and "state" in text, PATIENCE)
    assert re.search(r"\nkey +n\n", table)
    assert "rows/s in │" in table and "lag " in table and "Ctrl-C leaves" in table
    terminal.send(TAB)
    terminal.until(lambda text: "changes, the latest after" in text and "\n+  " in text, PATIENCE)
    terminal.send(TAB)
    terminal.until(lambda text: "rows, the latest after" in text and ", …)" in text, PATIENCE)
    terminal.send(CTRL_C)
    left = terminal.until(lambda text: "is still running" in text and last_prompt(text) == "", PATIENCE)
    name = left.split(" is still running")[0].split()[-1]
    fresh(terminal)
    assert f"{name}  {name}    running" in run(terminal, ".queries", "running")
    fresh(terminal)
    terminal.type(f".tail {name} table")
    terminal.until(", 3 rows", PATIENCE)
    terminal.send(".met")  # whoever types on means the prompt
    terminal.until(lambda text: last_prompt(text) == ".met", PATIENCE)
    assert re.search(r"\nrows_in +ticks", run(terminal, f"rics {name}", "rate_out"))
    fresh(terminal)
    run(terminal, f".stop {name}", f"{name} is stopped")


def test_columns_that_do_not_fit_are_named_and_expand_shows_them(terminal: Terminal) -> None:
    wide = ", ".join(f"'{letter * 30}' AS {letter * 5}" for letter in "abcdef")
    text = run(terminal, f"SELECT sym, {wide} FROM trades WHERE qty > 60;", " ended, ")
    assert "4 columns hidden: ccccc, ddddd, eeeee, fffff; .expand shows them" in text and "[09:00]" in text
    fresh(terminal)
    text = run(terminal, ".expand", "valid on 2024-01-02")
    assert f"  fffff                {'f' * 30}" in text and "  sym                  ACME" in text
    fresh(terminal)
    assert "expanded display is on" in run(terminal, ".expand on", "expanded display")
    run(terminal, ".expand off", "expanded display is off")


def test_long_output_goes_to_a_pager(tmp_path: Path) -> None:
    terminal = shell("--engine", "local", state=tmp_path, cwd=ROOT, rows=24, PAGER="sh -c 'sort -r | head -3'")
    try:
        terminal.until("ready", PATIENCE)
        run(terminal, "CREATE TABLE t (n INT PRIMARY KEY);", "is declared")
        values = ", ".join(f"({n})" for n in range(100, 140))
        run(terminal, f"INSERT INTO t VALUES {values};", "inserted")
        fresh(terminal)
        text = run(terminal, "SELECT n FROM t;", "139")
        assert "138" in text and "100" not in text
        assert "pager is off" in run(terminal, ".pager off", "pager is")
        fresh(terminal)
        terminal.type("SELECT n FROM t;")  # the first rows scroll away: the screen has 24 lines
        terminal.until(lambda text: "125" in text and "139" in text, PATIENCE)
    finally:
        terminal.close()


def test_an_error_has_its_caret(terminal: Terminal) -> None:
    text = run(terminal, "SELECT pice FROM trades;", "hint")
    assert '\n  SELECT pice FROM trades;\n         ^^^^\nhint: Did you mean "price"?' in text
    assert "\n  .tial\n  ^^^^^\nhint: Did you mean .tail?" in run(terminal, ".tial", ".tail?")
    assert "\n        ^^^\n" in run(terminal, ".tail q99", "unknown query"), "below the name of the query"


def test_plans(terminal: Terminal) -> None:
    text = run(terminal, ".explain SELECT sym FROM trades WHERE qty > 5;", "physical plan")
    assert "Filter trades.qty > 5" in text
    fresh(terminal)
    name = run(terminal, "SELECT sym FROM trades WHERE qty > 5;", " ended, ").split(" ended, ")[0].split()[-1]
    fresh(terminal)
    assert "● Read trades" in run(terminal, f".graph {name}", "result of")
    assert "Filter trades.qty > 5" in run(terminal, ".explain", "stage 0")


def test_why_an_answer_is_empty(terminal: Terminal) -> None:
    text = run(terminal, "SELECT sym FROM trades WHERE price > 1000000;", "ended without a row")
    name = text.split(" ended without a row")[0].split()[-1]
    assert f".why {name} shows where" in text.replace("\n", "")
    fresh(terminal)
    text = run(terminal, ".why", "hint")
    assert 'the filter "trades.price > 1000000.0" lets nothing through' in text


def test_ctrl_c_clears_a_statement_and_then_leaves(tmp_path: Path) -> None:
    terminal = shell("--engine", "local", state=tmp_path, cwd=ROOT)
    try:
        terminal.until("ready", PATIENCE)
        run(terminal, TICKS.replace("\n", "\r"), "is declared")
        terminal.type("SELECT key FROM ticks [RANGE 1 SECOND];")
        terminal.until("q1 at", PATIENCE)
        terminal.send(CTRL_C)
        terminal.until(lambda text: "q1 is still running" in text and last_prompt(text) == "", PATIENCE)
        terminal.send("SELECT half")
        terminal.until(lambda text: last_prompt(text) == "SELECT half", PATIENCE)
        terminal.send(CTRL_C)
        terminal.until(lambda text: last_prompt(text) == "", PATIENCE)
        terminal.send(CTRL_C)
        terminal.until("q1 is running. Stop and leave? [y/N]", PATIENCE)
        terminal.type("n")
        terminal.until(lambda text: text.endswith(PROMPT.rstrip()) or "q1 │" in text.splitlines()[-1], PATIENCE)
        fresh(terminal)
        terminal.send(CTRL_C)
        terminal.until("Stop and leave?", PATIENCE)
        terminal.type("y")
        assert terminal.until_gone(PATIENCE) == 0
        assert "stopping q1" in terminal.text()
        assert "Traceback" not in terminal.text()
    finally:
        terminal.close()
    again = shell("--engine", "local", state=tmp_path, cwd=ROOT)
    try:
        again.until(PROMPT.rstrip(), PATIENCE)
        again.send(UP)
        again.until(lambda text: last_prompt(text) == "SELECT key FROM ticks [RANGE 1 SECOND];", PATIENCE)
        again.send(CTRL_C + CTRL_D)
        assert again.until_gone(PATIENCE) == 0
    finally:
        again.close()


def piped(text: str, *options: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "strandline", "shell", "--engine", "local", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def test_a_pipe_gets_whole_answers_and_an_exit_code() -> None:
    good = piped(f"{TRADES}\nSELECT sym, qty FROM trades WHERE qty > 60;\n.tail q1 changes\n")
    assert good.returncode == 0 and good.stderr == ""
    lines = [line for line in good.stdout.splitlines() if not line.startswith("notice[")]
    assert lines == [
        "trades is declared",
        "q1 rows",
        "sym   qty  valid on 2024-01-02",
        "ACME  100  [09:00]",
        "q1 changes",
        "   time on 2024-01-02  sym   qty",
        "+  09:00:00            ACME  100",
        "-  09:00:00.000001     ACME  100",
    ]
    bad = piped("SELECT x FROM nowhere;\n.help\n")
    assert bad.returncode == 1 and "error[unknown-stream]" in bad.stdout and ".tail" not in bad.stdout


def test_init_writes_a_project_that_works(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from strandline.apps.cli import app

    project = tmp_path / "first"
    written = CliRunner().invoke(app, ["init", str(project)])
    assert written.exit_code == 0
    assert written.stdout.splitlines() == [
        f"explore it:  cd {project} && strandline shell --init market.sql",
        f"run it:      cd {project} && strandline run market.sql --out results",
    ]
    looked = piped(".start watched_volume\n", "--init", "market.sql", cwd=project)
    assert looked.returncode == 0, looked.stdout
    assert "ACME       14    2280  [09:45:10, 09:45:20)" in looked.stdout
    again = CliRunner().invoke(app, ["init", str(project)])
    assert again.exit_code != 0 and "already exists" in str(again.exception), "nothing is overwritten"


def test_a_run_says_what_it_waits_for(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("""CREATE STREAM r (value BIGINT, ts TIMESTAMP)
      SOURCE rate(total => 900000000, start => '2024-01-01', pace => false) ORDERED BY ts;
      SELECT COUNT(*) AS n FROM r [RANGE 1 SECOND SLIDE 1 SECOND];""")
    command = [sys.executable, "-m", "strandline", "run", str(script), "--out", str(tmp_path / "out")]
    command += ["--engine", "local", "--batch-rows", "50000"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"}
    terminal = Terminal(command, env, ROOT, columns=160)
    try:
        seen = terminal.until(lambda text: "catching up, about" in text and "rows left" in text, PATIENCE)
        assert "rows/s in" in seen and "%" in seen
        terminal.send(CTRL_C)
        terminal.until("stopped; the local engine cannot resume: remove", PATIENCE)
        assert terminal.until_gone(PATIENCE) == 130
    finally:
        terminal.close()


def test_a_file_is_read_behind_the_prompt(tmp_path: Path) -> None:
    first = tmp_path / "first.sql"
    first.write_text(f"{TICKS}\nCREATE VIEW v AS SELECT key FROM ticks;\nSELECT key FROM nowhere;\n")
    terminal = shell("--engine", "local", "--init", str(first), state=tmp_path, cwd=ROOT)
    try:
        terminal.until(PROMPT.rstrip(), PATIENCE)
        terminal.type("DESCRIBE v;")  # typed before the file was read, and still after it
        text = terminal.until(lambda text: "ticks is declared" in text and "property" in text, PATIENCE)
        assert "  line 4: SELECT key FROM nowhere;\n" in text, "a mistake names its line of the file"
        assert re.search(r"\ncolumn +key +INT\n", text)
        terminal.until(lambda text: text.count(PROMPT.rstrip()) == 2, PATIENCE)
        terminal.send(CTRL_D)
        assert terminal.until_gone(PATIENCE) == 0
    finally:
        terminal.close()


def test_a_term_signal_ends_the_shell_in_order(tmp_path: Path) -> None:
    terminal = shell("--engine", "local", state=tmp_path, cwd=ROOT)
    try:
        terminal.until("ready", PATIENCE)
        terminal.child.kill(signal.SIGTERM)
        assert terminal.until_gone(PATIENCE) == 130
        assert "exception" not in terminal.text().lower()
    finally:
        terminal.close()


def test_a_term_signal_ends_the_shell_while_an_answer_is_shown(tmp_path: Path) -> None:
    terminal = shell("--engine", "local", state=tmp_path, cwd=ROOT)
    try:
        terminal.until("ready", PATIENCE)
        run(terminal, TICKS.replace("\n", "\r"), "ticks is declared")
        terminal.type("SELECT key FROM ticks;")
        terminal.until("Ctrl-C leaves", PATIENCE)
        terminal.child.kill(signal.SIGTERM)
        assert terminal.until_gone(PATIENCE) == 130
        assert "exception" not in terminal.text().lower()
    finally:
        terminal.close()


def test_without_java_the_shell_says_so_and_goes_on(tmp_path: Path) -> None:
    terminal = shell(state=tmp_path, cwd=ROOT, STRANDLINE_JAVA_HOME=str(tmp_path))
    try:
        terminal.until("Spark did not start", PATIENCE)
        run(terminal, TRADES.replace("\n", "\r"), "trades is declared")
        text = run(terminal, "SELECT sym FROM trades;", "error[java-unusable]")
        assert "STRANDLINE_JAVA_HOME" in text and "Traceback" not in text
        assert "Scan trades (sym)" in run(terminal, "EXPLAIN SELECT sym FROM trades;", "physical plan")
        terminal.send(CTRL_D)
        assert terminal.until_gone(PATIENCE) == 0
    finally:
        terminal.close()


@pytest.mark.spark
def test_spark_starts_behind_the_prompt(tmp_path: Path) -> None:
    terminal = shell(state=tmp_path, cwd=ROOT)
    try:
        terminal.until(PROMPT.rstrip(), SPARK_PATIENCE)
        terminal.type(TRADES.replace("\n", "\r"))
        terminal.type("SELECT sym, SUM(qty) AS shares FROM trades [RANGE 10 MINUTES] GROUP BY sym;")
        terminal.until(lambda text: "Java" in text or "planning" in text, SPARK_PATIENCE)
        text = terminal.until(lambda text: "q1 ended" in text and last_prompt(text) == "", SPARK_PATIENCE)
        assert "at 2024-01-02 09:11:00, 2 rows" in text
        assert ".log" in run(terminal, ".log", "/spark-")
        run(terminal, TICKS.replace("\n", "\r"), "ticks is declared")
        terminal.type("SELECT COUNT(*) AS n FROM ticks [RANGE 1 SECOND];")
        terminal.until(lambda text: "q2 at" in text and ", 1 row" in text, SPARK_PATIENCE)
        terminal.send(CTRL_C)
        terminal.until(lambda text: "q2 is still running" in text and last_prompt(text) == "", SPARK_PATIENCE)
        terminal.send(CTRL_D)
        assert terminal.until_gone(SPARK_PATIENCE) == 0
        assert "stopping q2" in terminal.text() and "Traceback" not in terminal.text()
    finally:
        terminal.close()


@pytest.mark.spark
def test_the_shell_says_that_spark_was_lost_and_starts_it_again(tmp_path: Path) -> None:
    terminal = shell(state=tmp_path, cwd=ROOT)
    try:
        terminal.until("spark: ready", SPARK_PATIENCE)
        run(terminal, TICKS.replace("\n", "\r"), "ticks is declared")
        terminal.type("SELECT COUNT(*) AS n FROM ticks [RANGE 1 SECOND];")
        terminal.until(lambda text: "q1 at" in text and ", 1 row" in text, SPARK_PATIENCE)
        terminal.send(CTRL_C)
        terminal.until(lambda text: "q1 is still running" in text and last_prompt(text) == "", SPARK_PATIENCE)
        next(p for p in psutil.Process(terminal.child.pid).children() if p.name() == "java").kill()
        terminal.until("killed by signal 9 (SIGKILL): the next query starts Spark again", PATIENCE)
        assert "spark: ready" not in terminal.text()
        terminal.type("SELECT MAX(value) AS m FROM ticks [RANGE 1 SECOND];")
        terminal.until(lambda text: "starting Spark" in text, SPARK_PATIENCE)
        terminal.until(lambda text: "q2 at" in text and ", 1 row" in text, SPARK_PATIENCE)
        terminal.send(CTRL_C)
        text = terminal.until(lambda text: "q2 is still running" in text and last_prompt(text) == "", SPARK_PATIENCE)
        assert "q1 failed" in text and "error[spark-lost]" in text
        next(p for p in psutil.Process(terminal.child.pid).children() if p.name() == "java").kill()
        terminal.send(CTRL_D)
        assert terminal.until_gone(SPARK_PATIENCE) == 0
        assert "Traceback" not in terminal.text() and "internal" not in terminal.text()
    finally:
        terminal.close()
