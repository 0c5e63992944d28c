"""`strandline verify` as a process: it ends cleanly on Ctrl-C and TERM, and leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from strandline.apps.verify.instants import sample_instants
from strandline.apps.verify.server import installed
from strandline.core.interrupts import call_interruptibly

ENDLESS = """CREATE STREAM s (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 50) ORDERED BY ts;
SELECT value FROM s;"""
# Many instants, each with many rows: the oracle takes minutes.
HEAVY = """CREATE STREAM s (value BIGINT, ts TIMESTAMP)
  SOURCE rate(total => 20000, start => '2024-01-01', pace => false) ORDERED BY ts;
SELECT count(*) AS n FROM s WINDOW(RANGE 1 HOUR) AS a, s WINDOW(RANGE 1 HOUR) AS b WHERE a.value < b.value;"""


def start(tmp_path: Path, text: str, *options: str) -> subprocess.Popen[str]:
    script = tmp_path / "q.sql"
    script.write_text(text)
    command = [sys.executable, "-m", "strandline", "verify", str(script), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A directory whose path is short enough for the socket of a server, and open to its user."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="v-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def servers(directory: Path) -> list[int]:
    """The PostgreSQL servers whose data are below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                program, *arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if Path(program).name == "postgres" and any(str(directory) in argument for argument in arguments):
                found.append(int(entry.name))
    return found


def wait_for(condition: object, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_stoppable(process: int) -> bool:
    """Whether a process has a handler for SIGTERM: the command has begun."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(installed() is None, reason="no PostgreSQL server")
def test_no_server_is_left_behind(short_tmp: Path, number: signal.Signals) -> None:
    process = start(short_tmp, ENDLESS, "--database", "postgresql")
    try:
        wait_for(lambda: servers(short_tmp) or process.poll() is not None)
        assert process.poll() is None
        time.sleep(2.0)  # it starts, or the query runs
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in said and "error[" not in said
    assert process.returncode in (0, 130)  # Ctrl-C while the query runs ends its input, and what came is compared
    assert servers(short_tmp) == []
    assert not list(short_tmp.glob("strandline-pg-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_comparison_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, HEAVY)
    try:
        wait_for(lambda: process.poll() is not None or is_stoppable(process.pid))
        time.sleep(8.0)
        if process.poll() is not None:
            pytest.skip("the comparison took no time")
        for _ in range(2 if number == signal.SIGINT else 1):  # the first Ctrl-C may only end the input of the query
            if process.poll() is None:
                process.send_signal(number)
                time.sleep(1.0)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said and "error[" not in said


def test_native_code_is_cancelled_by_a_signal() -> None:
    cancelled = threading.Event()

    def send() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, send)
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call_interruptibly(lambda: cancelled.wait(60), cancelled.set)
    assert cancelled.is_set() and time.monotonic() - began < 30


def test_calls_give_their_results_and_their_errors() -> None:
    assert call_interruptibly(lambda: 7, lambda: None) == 7
    with pytest.raises(ValueError, match="broken"):
        call_interruptibly(lambda: int("broken"), lambda: None)


def test_instants_with_rows_are_sampled_first() -> None:
    instants = np.arange(0, 3000)
    starts = np.arange(0, 3000, 100)
    chosen = sample_instants(instants, starts, starts + 1, 40)
    assert len(chosen) == 40 and len(np.unique(chosen)) == 40
    assert np.isin(chosen, starts).sum() == 30  # all that there are
    few = sample_instants(instants, starts, starts + 1, 8)
    assert np.isin(few, starts).sum() == 6 and len(few) == 8


def test_without_rows_or_with_rows_everywhere_instants_are_spread() -> None:
    instants = np.arange(0, 1000)
    nothing = np.zeros(0, dtype=np.int64)
    assert len(sample_instants(instants, nothing, nothing, 10)) == 10
    everywhere = sample_instants(instants, np.array([0]), np.array([2000]), 10)
    assert len(everywhere) == 10 and (everywhere[0], everywhere[-1]) == (0, 999)
    assert sample_instants(instants, nothing, nothing, None) is instants
    assert list(sample_instants(instants[:3], nothing, nothing, 5)) == [0, 1, 2]
