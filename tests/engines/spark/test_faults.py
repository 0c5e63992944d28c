"""Spark's processes are killed, disks are full, strange files lie about: real runs, real kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.runtime.kernels.changes import coalesce
from support import heed_interrupts, kill_tree

ROWS = 300  # of a file
PATIENCE = 300


def write(directory: Path, number: int) -> None:
    """The next file of a directory that is followed."""
    first = number * ROWS
    numbers = np.arange(first, first + ROWS)
    instants = pa.array(1_700_000_000_000_000 + numbers * 10_000).cast(pa.timestamp("us"))
    directory.mkdir(exist_ok=True)
    temporary = directory / f".{number}"
    pq.write_table(pa.table({"k": numbers % 7, "v": numbers, "ts": instants}), temporary)
    os.replace(temporary, directory / f"{number:04d}.parquet")


def write_script(directory: Path, query: str = "CREATE STREAM n AS") -> Path:
    file = directory / "q.sql"
    file.write_text(f"""
CREATE STREAM t (k BIGINT, v BIGINT, ts TIMESTAMP) 
  SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts;
{query} SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t WINDOW(RANGE 1 SECOND) GROUP BY k;""")
    return file


def result_bytes(out: Path) -> int:
    """The size of the files of results, which grow."""
    return sum(path.stat().st_size for path in (out / "n").glob("*.parquet"))


class Run:
    """`strandline run` as a process; what it says is kept."""

    def __init__(self, file: Path, out: Path, *more: str, **options: object) -> None:
        self.out = out
        command = [sys.executable, "-m", "strandline", "run", str(file), "--out", str(out), *more]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heed_interrupts,
            **options,  # type: ignore[call-overload]
        )

    def wait_for(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.05)

    def has_results(self, after: int = 0) -> bool:
        return result_bytes(self.out) > after

    def children(self, kind: str) -> list[psutil.Process]:
        """Processes below: `java`, or the Python `worker`s."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in family if _kind(process) == kind]

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


def _kind(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        if process.name() == "java":
            return "java"
        parent = process.parent()
        if (
            parent is not None
            and parent.name() != "java"
            and "strandline.engines.spark.launcher.daemon" in process.cmdline()
        ):
            return "worker"
    return ""


@contextmanager
def killing(run: Run) -> Iterator[Run]:
    """A test that fails leaves nothing behind."""
    try:
        yield run
    finally:
        kill_tree(run.process)


def answer(out: Path) -> pl.DataFrame:
    """What a plain Parquet reader sees, with the cuts taken out."""
    frame = pl.from_arrow(pq.read_table(out / "n"))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us"))
    return coalesce(frame, ["k", "n", "s"]).sort(pl.all())


def expected(file: Path, out: Path) -> pl.DataFrame:
    code, said = Run(file, out, "--engine", "local").end()
    assert code == 0, said
    return answer(out)


STRAYS = ("json", "polars", "socket")


@pytest.mark.spark
def test_a_lost_jvm_is_named_and_the_same_command_goes_on_past_lost_workers(tmp_path: Path) -> None:
    """Also: files of the working directory are not executed, and the temporary directory is left as it was found."""
    file, inputs, out = write_script(tmp_path), tmp_path / "in", tmp_path / "out"
    work, temporary = tmp_path / "work", Path("/tmp") / f"faults-{os.getpid()}"
    work.mkdir()
    temporary.mkdir()
    for name in STRAYS:
        (work / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r} + ' ')")
    about = {"cwd": work, "env": {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": _absolute_path()}}
    write(inputs, 0)
    with killing(Run(file, out, "--log", str(tmp_path / "log"), **about)) as run:
        run.wait_for(run.has_results)
        run.children("java")[0].send_signal(signal.SIGKILL)
        code, said = run.end()
    assert code == 1
    assert re.fullmatch(
        r"error\[spark-lost\]: Spark's JVM has ended: killed by signal 9 \(SIGKILL\)\n"
        r"Its log is .*spark-\d+\.log\.\n"
        r"hint: .*Restart the query: Spark is started again, and .* resumes where it stopped\.\n",
        said,
    ), said
    assert _left(temporary) == []

    with killing(Run(file, out, "--log", str(tmp_path / "log"), **about)) as run:
        for number in range(1, 7):
            seen = result_bytes(out)
            write(inputs, number)
            if number in (2, 4):
                for worker in run.children("worker"):
                    worker.send_signal(signal.SIGKILL)
            run.wait_for(lambda seen=seen: run.has_results(after=seen))  # type: ignore[misc]
        (inputs / "_END").touch()
        code, said = run.end()
    assert code == 0, said
    assert answer(out).equals(expected(file, tmp_path / "expected"))
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()
    assert _left(temporary) == []
    log = (tmp_path / "log").read_text()
    for line in ("spark started master=", "query started name=n engine=spark", "query failed name=n code=spark-lost",
                 "checkpoint resumed name=n last_batch=", "query ended name=n", "spark stopped"):  # fmt: skip
        assert line in log


def _absolute_path() -> str:
    return os.pathsep.join(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "src").split(os.pathsep))


def _left(temporary: Path) -> list[str]:
    """What a run left in its temporary directory, the log aside."""
    base = temporary / f"strandline-{os.getuid()}"
    assert [path.name for path in temporary.iterdir()] == [base.name]
    return [path.name for path in base.iterdir() if path.name != ".sweep" and path.suffix != ".log"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_program_starts_spark_again(tmp_path: Path) -> None:
    program = Path(__file__).with_name("losing_spark.py")
    run = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=600)
    killed = "Spark's JVM has ended: killed by signal 9 (SIGKILL)"
    assert run.stdout.splitlines() == [
        f"while it runs, spark-lost: {killed}",
        "failed [] True",
        "again, running None",
        "while it is idle, Spark's JVM has ended: out of memory",
        f"while it starts, spark-lost: {killed}",
        "at last, no error ended",
        "as it should be: True",
        "left",
    ]
    assert run.stderr == ""


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.spark
@pytest.mark.slow
def test_a_full_disk_and_a_read_only_one_are_named_and_the_restart_is_exact(tmp_path: Path) -> None:
    file, inputs, disk = write_script(tmp_path), tmp_path / "in", tmp_path / "disk"
    out = disk / "out"
    for number in range(4):
        write(inputs, number)
    (inputs / "_END").touch()
    with small_disk(disk, "192k"):
        code, said = Run(file, out, "--batch-rows", "100").end()
        assert code == 1
        assert said.startswith("error[disk-full]: the disk is full"), said
        assert "MiB free of" in said and "Free disk space" in said

        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        code, said = Run(file, out, "--batch-rows", "100").end()
        assert code == 1
        assert said.startswith("error[disk-read-only]: the file system is read-only"), said

        subprocess.run(["mount", "-o", "remount,rw,size=64m", disk], check=True)
        code, said = Run(file, out, "--batch-rows", "100").end()
        assert code == 0, said
        assert answer(out).equals(expected(file, tmp_path / "expected"))
