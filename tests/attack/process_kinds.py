"""Kinds of trials with processes of their own: real kills, two writers, faults of the machine, a lost database.

The command line runs; what is left is started again in the attacking process, which takes a second instead of fifteen.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

import strandline as sl
from attack import hook
from attack.kind import Kind, Run
from attack.scenarios import Scenario, run_as_script, script_over_csv, write_csv
from attack.verdict import INTERNAL, Verdict, has_trace
from attack.world import BUCKETS, HERE, Results, World, differ, read_results
from strandline.apps.verify.server import installed, temporary_server
from strandline.database.script import read_script, start_script

BATCH_ROWS: Final = 5
PATIENCE: Final = 180.0  # seconds for a whole run of the command line on a busy machine

SCENARIO: Final = Scenario("process", BATCH_ROWS, write_csv, run_as_script(script_over_csv))


@dataclass
class Live:
    """A directory with a script and input, and the processes that run it."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *more: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "strandline", "run", str(self.path / "script.sql")]
        command += ["--out", str(self.path / "out"), "--batch-rows", str(BATCH_ROWS), "--buckets", str(BUCKETS), *more]
        process = subprocess.Popen(
            command,
            env={**os.environ, **self.environment, "STRANDLINE_COSTS": "built-in"},
            cwd=self.path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: _prepare(before),
        )
        self.started.append(process)
        return process

    @property
    def commits(self) -> int:
        return len(
            [path for path in self.path.glob("out/.strandline/checkpoint/*/spark/commits/*") if path.name[0] != "."]
        )

    def wait_for_commits(self, count: int, process: subprocess.Popen[str]) -> bool:
        """Whether the run came so far; False if it ended before."""
        end = time.monotonic() + PATIENCE
        while self.commits < count and time.monotonic() < end:
            if process.poll() is not None:
                return False
            time.sleep(0.01)
        return self.commits >= count

    def close(self) -> None:
        for process in self.started:
            kill_family(process)


def _prepare(more: Callable[[], None] | None) -> None:
    """For the start of a process: what runs in the background of a shell ignores Ctrl-C, and passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if more is not None:
        more()


def kill_family(process: subprocess.Popen[str]) -> None:
    """kill -9 for a process and everything below it."""
    if process.poll() is None:
        for pid in hook.family(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def new_live(world: World, text: Callable[[Path], str] = script_over_csv) -> Iterator[Live]:
    path = world.directory / "process"
    _unmount(path / "out")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    write_csv(path)
    (path / "script.sql").write_text(text(path))
    live = Live(path, {"PYTHONPATH": os.pathsep.join(filter(None, [_source(), os.environ.get("PYTHONPATH", "")]))})
    try:
        yield live
    finally:
        live.close()
        _unmount(path / "out")


def _source() -> str:
    return str(Path(sl.__file__).parent.parent)


def _unmount(path: Path) -> None:
    if os.path.ismount(path):
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


_expected: dict[str, Results] = {}


def expected(world: World, live: Path) -> Results:
    """The results without an attack, by the local engine."""
    if "process" not in _expected:
        out = live / "expected"
        with sl.connect(engine="local", batch_rows=BATCH_ROWS) as database:
            for query in start_script(database, read_script(database, script_over_csv(live)), out, None):
                assert query.await_end(60)
        _expected["process"] = read_results(out)
        shutil.rmtree(out)
    return _expected["process"]


def finish(world: World, live: Live, what: str) -> Verdict:
    """Start again what is left, and compare."""
    world.forget()
    outcome = world.resume(SCENARIO, live.path)
    if outcome.code == "hang":
        return Verdict("hang", f"{what}, started again: {outcome.text}")
    if outcome.code is not None:
        return Verdict(
            "internal" if outcome.code in INTERNAL else "misnamed", f"{what}, started again: {outcome.text[:400]}"
        )
    difference = differ(outcome.results or {}, expected(world, live.path))
    return Verdict("wrong", f"{what}: {difference}") if difference else Verdict("exact", what)


def judge_end(code: int, screen: str, what: str) -> Verdict | None:
    """What is wrong with how a disturbed run ended; None if nothing is."""
    if has_trace(screen):
        return Verdict("trace", f"{what}: {screen[-500:]}")
    named = re.search(r"error\[([\w-]+)\]", screen)
    if code != 0 and named is None:
        return Verdict("misnamed", f"{what}: exit code {code} without an error: {screen[-300:]}")
    if named is not None and named[1] in INTERNAL:
        return Verdict("internal", f"{what}: {screen[-400:]}")
    return None


def wait_end(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[int, str] | None:
    try:
        _, screen = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return process.returncode, screen


# ---- kills -----------------------------------------------------------------------------------------------------------


def kill_at_operation(first_start: bool) -> Run:
    """A real kill -9 of all processes at a file operation."""

    def trial(world: World, dice: random.Random) -> Verdict:
        with new_live(world) as live:
            control = live.path / "control"
            control.mkdir()
            live.environment |= {**World.make_environment(control)}
            live.environment["PYTHONPATH"] += os.pathsep + _source()
            number = dice.randrange(1, 14) if first_start else dice.randrange(14, 260)
            process = live.start()
            hook.write_orders(control, root=str(live.path / "out"), kill=number, pid=process.pid)
            ended = wait_end(process)
            what = f"killed at operation {number}"
            if ended is None:
                return Verdict("hang", what)
            if ended[0] >= 0 and (flaw := judge_end(*ended, what)):
                return flaw
            return finish(world, live, what)

    return trial


def kill_part(which: str) -> Run:
    """One process of a run dies: the JVM, a worker, the process that plans."""

    def trial(world: World, dice: random.Random) -> Verdict:
        with new_live(world) as live:
            process = live.start()
            what = f"{which} killed"
            if not live.wait_for_commits(dice.randint(1, 4), process):
                return Verdict("skipped", "the run was over before")
            victims = [p for p in psutil.Process(process.pid).children(recursive=True) if _is(p, which)]
            if not victims:
                return Verdict("skipped", f"no {which}")
            with contextlib.suppress(psutil.NoSuchProcess):
                dice.choice(victims).kill()
            ended = wait_end(process, 90)
            if ended is None:
                return Verdict("hang", what)
            return judge_end(*ended, what) or finish(world, live, what)

    return trial


def _is(process: psutil.Process, which: str) -> bool:
    try:
        command = " ".join(process.cmdline())
        parent = " ".join(process.parent().cmdline())
    except (psutil.NoSuchProcess, AttributeError):
        return False
    match which:
        case "JVM":
            return os.path.basename(command.split(" ")[0]) == "java"
        case "worker":
            return (
                "strandline.engines.spark.launcher.daemon" in command
                and "strandline.engines.spark.launcher.daemon" in parent
            )
        case "planner":
            return "zygote" in command and "zygote" in parent
    return False


def stop_and_go_on(world: World, dice: random.Random) -> Verdict:
    """All processes of a run are stopped for a while and go on."""
    with new_live(world) as live:
        process = live.start()
        for _ in range(dice.randint(1, 4)):
            live.wait_for_commits(live.commits + 1, process)
            members = hook.family(process.pid)
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(dice.random() * 0.5)
        ended = wait_end(process)
        if ended is None:
            return Verdict("hang", "stopped and continued")
        if ended[0] != 0:
            return judge_end(*ended, "stopped and continued") or Verdict("misnamed", ended[1][-300:])
        return finish(world, live, "stopped and continued")


# ---- two writers -----------------------------------------------------------------------------------------------------


@functools.cache
def can_take_over() -> bool:
    shown = subprocess.run(
        [sys.executable, "-m", "strandline", "run", "--help"],
        env={**os.environ, "PYTHONPATH": _source(), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "--take-over" in shown.stdout


def write_twice(paused: bool, takes_over: bool) -> Run:
    """The same command twice; the first one runs, or is stopped and goes on later."""

    def trial(world: World, dice: random.Random) -> Verdict:
        if takes_over and not can_take_over():
            return Verdict("skipped", "there is no --take-over yet")
        with new_live(world) as live:
            first = live.start()
            if not live.wait_for_commits(dice.randint(1, 3), first):
                return Verdict("skipped", "the first run was over before")
            if paused:
                os.kill(first.pid, signal.SIGSTOP)
            second = live.start(*(["--take-over"] if takes_over else []))
            if paused and dice.random() < 0.5:
                time.sleep(dice.random() * 10)
                os.kill(first.pid, signal.SIGCONT)
            after = wait_end(second, 120)
            os.kill(first.pid, signal.SIGCONT)
            before = wait_end(first, 120)
            return _judge_writers(world, live, before, after, takes_over)

    return trial


def _judge_writers(
    world: World, live: Live, first: tuple[int, str] | None, second: tuple[int, str] | None, takes_over: bool
) -> Verdict:
    what = f"first: {first and first[1][-160:]!r}, second: {second and second[1][-160:]!r}"
    if first is None or second is None:
        return Verdict("hang", what)
    allowed = ("checkpoint-busy", "checkpoint-lost")
    for code, screen in (first, second):
        if flaw := judge_end(code, screen, "two writers"):
            return flaw
        named = re.search(r"error\[([\w-]+)\]", screen)
        if named is not None and named[1] not in allowed:
            return Verdict("misnamed", what)
    if first[0] == 0 and second[0] == 0 and not takes_over and "checkpoint-busy" not in second[1]:
        # Both ended well: right only if the second found a finished run.
        what = f"both ended well; {what}"
    return finish(world, live, what)


# ---- faults of the machine -------------------------------------------------------------------------------------------


def mount_small(path: Path, kilobytes: int) -> bool:
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)], capture_output=True, check=False
    )
    return done.returncode == 0


def remount(path: Path, options: str) -> bool:
    done = subprocess.run(["mount", "-o", f"remount,{options}", str(path)], capture_output=True, check=False)
    return done.returncode == 0


def fill_disk(world: World, dice: random.Random) -> Verdict:
    """The disk of results and checkpoint is full; with more room the run goes on."""
    with new_live(world) as live:
        kilobytes = dice.choice((8, 40, 120, 300, 500))
        if not mount_small(live.path / "out", kilobytes):
            return Verdict("skipped", "file systems cannot be mounted here")
        ended = wait_end(live.start())
        what = f"disk of {kilobytes} kB"
        if ended is None:
            return Verdict("hang", what)
        if flaw := judge_end(*ended, what):
            return flaw
        remount(live.path / "out", "size=100m")
        return finish(world, live, what)


def write_protect(world: World, dice: random.Random) -> Verdict:
    """The file system becomes read-only in the midst of a run."""
    with new_live(world) as live:
        if not mount_small(live.path / "out", 50_000):
            return Verdict("skipped", "file systems cannot be mounted here")
        process = live.start()
        if not live.wait_for_commits(dice.randint(1, 4), process):
            return Verdict("skipped", "the run was over before")
        end = time.monotonic() + 20
        while not remount(live.path / "out", "ro") and time.monotonic() < end:  # not while a file is being written
            time.sleep(0.001)
        ended = wait_end(process, 90)
        if ended is None:
            return Verdict("hang", "read-only")
        if flaw := judge_end(*ended, "read-only"):
            return flaw
        remount(live.path / "out", "rw")
        return finish(world, live, "read-only")


def limit(which: int, values: tuple[int, ...], what: str) -> Run:
    """The run may have few files, or only small ones."""

    def trial(world: World, dice: random.Random) -> Verdict:
        value = dice.choice(values)
        with new_live(world) as live:
            ended = wait_end(live.start(before=lambda: resource.setrlimit(which, (value, value))))
            if ended is None:
                return Verdict("hang", f"{what} {value}")
            return judge_end(*ended, f"{what} {value}") or finish(world, live, f"{what} {value}")

    return trial


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


def _text_to_postgresql(dsn: str) -> Callable[[Path], str]:
    def text(directory: Path) -> str:
        streams = script_over_csv(directory).partition("CREATE STREAM per_key")[0]
        return f"{streams}\nCREATE SINK totals INTO postgresql('{dsn}', table => 'totals') AS SELECT k, v, s FROM t;"

    return text


def _pg_ctl(dsn: str, *arguments: str) -> None:
    programs = installed()
    directory = re.search(r"host=(\S+)", dsn)
    assert programs is not None and directory is not None
    options = f"-k {directory[1]} -c listen_addresses='' -c fsync=off -c shared_buffers=32MB"
    command = [str(programs / "pg_ctl"), "-D", f"{directory[1]}/data", "-w", "-s", "-l", f"{directory[1]}/log"]
    owner = "postgres" if os.geteuid() == 0 else None
    subprocess.run([*command, "-o", options, *arguments], user=owner, cwd="/", check=True, capture_output=True)


def lose_database(how: str) -> Run:
    """The PostgreSQL of a sink goes away, or somebody holds a lock on the table."""

    def trial(world: World, dice: random.Random) -> Verdict:
        if installed() is None:
            return Verdict("skipped", "no PostgreSQL server is installed here")
        import psycopg

        with temporary_server() as dsn, new_live(world, _text_to_postgresql(dsn)) as live:
            process = live.start()
            if not live.wait_for_commits(dice.randint(1, 4), process):
                return Verdict("skipped", f"the run was over before: {wait_end(process)}")
            if how == "stopped":
                _pg_ctl(dsn, "-m", "immediate", "stop")
                time.sleep(dice.random() * 3)
                _pg_ctl(dsn, "start")
                ended = wait_end(process, 120)
            elif how == "connections cut":
                with psycopg.connect(dsn, autocommit=True) as other:
                    other.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    )
                ended = wait_end(process, 120)
            else:
                with psycopg.connect(dsn) as other:
                    other.execute("LOCK TABLE totals IN ACCESS EXCLUSIVE MODE")
                    time.sleep(1.0)
                    os.kill(process.pid, signal.SIGINT)
                    began = time.monotonic()
                    ended = wait_end(process, 30)
                    if ended is None:
                        return Verdict("hang", "Ctrl-C while a lock is held: more than 30 s")
                    if time.monotonic() - began > 8:
                        return Verdict("hang", f"Ctrl-C while a lock is held took {time.monotonic() - began:.0f} s")
            if ended is None:
                return Verdict("hang", how)
            if ended[0] not in (0, 130) and (flaw := judge_end(*ended, how)):
                return flaw
            again = wait_end(live.start())
            if again is None or again[0] != 0:
                return Verdict("misnamed", f"{how}, started again: {again}")
            with psycopg.connect(dsn) as other:
                rows = other.execute("SELECT k, v, s FROM totals").fetchall()
            return _judge_rows(rows, live.path)

    return trial


def _judge_rows(rows: list[Any], live: Path) -> Verdict:
    with sl.connect(engine="local", batch_rows=BATCH_ROWS) as database:
        database.sql(script_over_csv(live).partition("CREATE STREAM per_key")[0])
        query = database.sql("SELECT k, v, s FROM t")
        assert query.await_end(60)
        wanted = [(row["k"], row["v"], row["s"]) for row in query.results().to_pylist()]
    if sorted(rows) != sorted(wanted):
        return Verdict("wrong", f"{len(rows)} rows in the table instead of {len(wanted)}")
    return Verdict("exact")


# ---- released versions -----------------------------------------------------------------------------------------------

CHECKPOINTS: Final = HERE / "checkpoints"


def restore_release(world: World, dice: random.Random) -> Verdict:
    """A checkpoint of a released version goes on exactly, or is refused by name."""
    archive = dice.choice(sorted(CHECKPOINTS.glob("*.tar.gz")))
    with new_live(world) as live:
        with tarfile.open(archive) as file:
            file.extractall(live.path, filter="data")
        world.forget()
        outcome = world.resume(SCENARIO, live.path)
        what = f"checkpoint of {archive.name.removesuffix('.tar.gz')}: {outcome.text[:300]}"
        if outcome.code in ("checkpoint-version", "checkpoint-foreign", "script-changed"):
            return Verdict("refused", what)
        if outcome.code is not None:
            return Verdict("internal" if outcome.code in INTERNAL else "misnamed", what)
        difference = differ(outcome.results or {}, expected(world, live.path))
        return Verdict("wrong", f"{what}: {difference}") if difference else Verdict("exact", what)


KINDS: Final = [
    Kind("process/killed at an operation", kill_at_operation(first_start=False), 12, "process"),
    Kind("process/first start killed", kill_at_operation(first_start=True), 6, "process"),
    *(Kind(f"process/{which} killed", kill_part(which), 3, "process") for which in ("JVM", "worker", "planner")),
    Kind("process/stopped and continued", stop_and_go_on, 3, "process"),
    Kind("writers/both run", write_twice(paused=False, takes_over=False), 3, "process"),
    Kind("writers/first stopped", write_twice(paused=True, takes_over=False), 3, "process"),
    Kind("writers/taken over", write_twice(paused=False, takes_over=True), 3, "process"),
    Kind("writers/stopped and taken over", write_twice(paused=True, takes_over=True), 4, "process"),
    Kind("faults/disk full", fill_disk, 4, "process"),
    Kind("faults/read-only", write_protect, 3, "process"),
    Kind(
        "faults/small files only",
        limit(resource.RLIMIT_FSIZE, (2_000, 20_000, 200_000), "files of bytes"),
        3,
        "process",
    ),
    Kind("faults/few open files", limit(resource.RLIMIT_NOFILE, (120, 250, 500), "open files"), 3, "process"),
    *(
        Kind(f"faults/PostgreSQL {how}", lose_database(how), 2, "process")
        for how in ("stopped", "connections cut", "locked")
    ),
    Kind("versions/released", restore_release, 3),
]
