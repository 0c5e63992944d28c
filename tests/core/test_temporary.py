"""Temporary directories, and the names of faults."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.core.faults import explain_fault, explain_fault_text, name_place

PROGRAM = """
import os, signal, sys
from strandline.core.temporary import socket_path, temporary_directory
place = temporary_directory("checkpoint")
(place / "state").write_text("much")
print(place, socket_path("planner"), flush=True)
sys.stdin.readline()
"""


def start(temporary: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def place_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().split()[0])


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)
    assert process.returncode == 0


def left(temporary: Path) -> list[str]:
    return [path.name for path in temporary.glob("*/run-*")]


def test_a_run_removes_what_is_its_own_and_what_a_killed_one_left(tmp_path: Path) -> None:
    first, second = start(tmp_path), start(tmp_path)
    killed, alive = place_of(first), place_of(second)
    assert killed.parent != alive.parent
    base = killed.parent.parent
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (killed / "state").exists()
    third = start(tmp_path)
    place_of(third)
    assert not killed.parent.exists() and (alive / "state").exists()
    end(third)
    assert left(tmp_path) == [alive.parent.name]
    end(second)
    assert left(tmp_path) == []


def test_a_directory_that_others_may_enter_is_closed_and_a_link_is_refused(tmp_path: Path) -> None:
    base = tmp_path / f"strandline-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    process = start(tmp_path)
    place_of(process)
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    end(process)
    other = tmp_path / "other"
    other.mkdir()
    (other / base.name).symlink_to(base)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "TMPDIR": str(other)}, capture_output=True, text=True
    )
    assert "temporary-directory" in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("OSError: [Errno 28] No space left on device: '/a/b c.parquet'", "disk-full", "/a/b c.parquet"),
        ("java.io.FileNotFoundException: /a/.3.tmp (Read-only file system)", "disk-read-only", "/a/.3.tmp"),
        ("java.nio.file.FileSystemException: /a/x: Disk quota exceeded", "disk-full", "/a/x"),
        ("polars.exceptions.ComputeError: Too many open files (os error 24)", "too-many-files", ""),
        ("java.io.IOException: File too large", "file-too-large", ""),
        ("OSError: [Errno 27] File too large: '/a/b'", "file-too-large", "/a/b"),
        ("x\njava.lang.OutOfMemoryError: Java heap space", "out-of-memory", ""),
        ("SparkException: Python worker exited unexpectedly (crashed)", "worker-lost", ""),
    ],
)
def test_what_libraries_say_of_a_fault_has_a_name(text: str, code: str, path: str) -> None:
    named = explain_fault_text(text)
    assert named is not None and named.code == code and path in named.message and named.hint


def test_exceptions_of_faults_have_a_name() -> None:
    codes = {number: explain_fault(OSError(number, os.strerror(number), "/a/b")) for number in errno.errorcode}
    assert {error.code for error in codes.values() if error is not None} == {
        "disk-full", "disk-read-only", "disk-failing", "too-many-files", "file-too-large", "permission-denied",
        "out-of-memory",
    }  # fmt: skip
    for error in (MemoryError(), pa.ArrowMemoryError("malloc of size 5 failed")):
        assert (named := explain_fault(error)) is not None and named.code == "out-of-memory"
    assert explain_fault(KeyError("No space left on device, says a row")) is None
    full = explain_fault(sqlite3.OperationalError("database or disk is full"))
    assert full is not None and full.code == "disk-full"
    assert explain_fault(ValueError("nothing of the kind")) is None
    assert explain_fault_text("KeyError: 'memory'") is None


def test_a_full_disk_without_a_path_is_that_of_the_query(tmp_path: Path) -> None:
    fault = explain_fault(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert fault is not None
    named = name_place(fault, [tmp_path / "out"])
    assert str(tmp_path) in named.message and "MiB free of" in (named.detail or "")
