"""One writer per directory: the second is refused, and one that was taken over finds out before it writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from strandline.core import lease as lease_module
from strandline.core.durable import read_document, write_document
from strandline.core.errors import CheckpointError
from strandline.core.lease import KIND, LEASE, Lease

HOLD = """
import sys, time
from pathlib import Path
from strandline.core.lease import Lease
lease = Lease.acquire(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def hold(directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    first = Lease.acquire(tmp_path / "c")
    with pytest.raises(CheckpointError) as caught:
        Lease.acquire(tmp_path / "c")
    assert caught.value.code == "checkpoint-busy" and str(os.getpid()) in caught.value.render()
    first.check()
    first.release()
    second = Lease.acquire(tmp_path / "c")
    assert second.epoch == first.epoch + 1
    second.release()


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_was_killed_has_no_lease_and_a_paused_one_has(tmp_path: Path, stop: signal.Signals) -> None:
    process = hold(tmp_path)
    process.send_signal(stop)
    try:
        if stop == signal.SIGKILL:
            process.wait()
            Lease.acquire(tmp_path).release()
        else:
            began = time.monotonic()
            with pytest.raises(CheckpointError) as caught:
                Lease.acquire(tmp_path)
            assert caught.value.code == "checkpoint-busy" and time.monotonic() - began < 1
    finally:
        process.kill()
        process.wait()


def test_one_that_was_taken_over_may_not_write(tmp_path: Path) -> None:
    first = Lease.acquire(tmp_path)
    second = Lease.acquire(tmp_path, take_over=True)
    second.check()
    with pytest.raises(CheckpointError) as caught:
        first.check()
    assert caught.value.code == "checkpoint-lost"
    first.release()
    second.check()
    second.release()


def test_a_holder_on_another_machine_counts_while_it_renews_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "EXPIRES_SECONDS", 0.5)
    write_document(tmp_path / LEASE, KIND, [7, "token", "elsewhere", 1])
    with pytest.raises(CheckpointError) as caught:
        Lease.acquire(tmp_path)
    assert caught.value.code == "checkpoint-busy" and "elsewhere" in caught.value.render()
    time.sleep(0.6)
    lease = Lease.acquire(tmp_path)
    assert lease.epoch == 8
    lease.release()
    assert read_document(tmp_path / LEASE, KIND)[1] == "", "it is free"


def test_a_lease_that_was_removed_is_lost(tmp_path: Path) -> None:
    lease = Lease.acquire(tmp_path)
    (tmp_path / LEASE).unlink()
    with pytest.raises(CheckpointError) as caught:
        lease.check()
    assert caught.value.code == "checkpoint-lost"
    lease.release()
    assert Lease.acquire(tmp_path, after_epoch=5).epoch == 6


SCRIPT = """
CREATE STREAM s (key BIGINT, value BIGINT, ts TIMESTAMP)
  SOURCE rate(rows_per_second => 300, total => 9000) ORDERED BY ts;
CREATE STREAM counted AS SELECT COUNT(*) AS n FROM s WINDOW(RANGE 2 SECONDS);
CREATE STREAM every AS SELECT value FROM s;
"""


def run(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "strandline", "run", str(tmp_path / "script.sql"), "--out", str(tmp_path / "out")]
    return subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_records(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    while not list(tmp_path.rglob("batches/*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def everything(tmp_path: Path) -> list[int]:
    return sorted(pq.read_table(tmp_path / "out" / "every")["value"].to_pylist())


@pytest.mark.spark
def test_two_runs_of_one_command_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    first = run(tmp_path)
    wait_for_records(tmp_path, first)
    second = run(tmp_path)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1 and "error[checkpoint-busy]" in errors and "Traceback" not in errors
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert everything(tmp_path) == list(range(9000))


@pytest.mark.spark
@pytest.mark.slow
def test_a_paused_run_that_was_taken_over_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    first = run(tmp_path)
    wait_for_records(tmp_path, first)
    os.killpg(first.pid, signal.SIGSTOP)  # Python alone: its JVM has a session of its own
    try:
        second = run(tmp_path, "--take-over")
        (lease,) = tmp_path.rglob(LEASE)
        while read_document(lease, KIND)[0] < 2:
            assert second.poll() is None, second.communicate()
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGCONT)
        _, errors = first.communicate(timeout=120)
        assert first.returncode == 1 and "error[checkpoint-lost]" in errors, errors
        _, errors = second.communicate(timeout=120)
        assert second.returncode == 0, errors
    finally:
        os.killpg(first.pid, signal.SIGKILL) if first.poll() is None else None
    assert everything(tmp_path) == list(range(9000))
