"""Spark's JVM as a process of ours, started by the command that Spark's own launcher gives."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from strandline.core.errors import QueryError, SetupError, StrandlineError
from strandline.core.interrupts import finishes_within
from strandline.core.log import SPARK
from strandline.engines.spark.launcher import zygote
from strandline.engines.spark.launcher.daemon import IMPORT_PATH, SAFE_PATH, THREAD_LIMITS
from strandline.engines.spark.launcher.java import VECTOR_MODULE, Java
from strandline.engines.spark.launcher.launcher_commands import LauncherCommands
from strandline.engines.spark.launcher.scratch import Scratch
from strandline.engines.spark.launcher.settings import archive_options, is_local, java_options, nameless

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession

SPARK_VERSION: Final = "4.3"


_OTHER_OPEN_FILES: Final = 200  # open files of the JVM apart from the jars: its modules, sockets, files of state
_GATEWAY_SECONDS: Final = 120.0  # until the JVM responds; a loaded machine with a cold disk needs ten
# For Spark to stop, and for its JVM to end after that; then it is killed, which does no harm: queries have ended by
# then, and on this machine all that Spark leaves behind is in the scratch directory. Elsewhere executors are let go.
_STOP_SECONDS, _EXIT_SECONDS, _CLUSTER_SECONDS = 1.5, 0.5, 15.0
_EXIT_NOTICE_SECONDS: Final = 2.0  # between the end of a connection and that of its process
_OUT_OF_MEMORY: Final = (3, 52)  # exit codes: of -XX:+ExitOnOutOfMemoryError, and of Spark's own handler
_ARCHIVE_SECONDS: Final = 300.0
_USAGE: Final = "--usage-error"  # an option of the command that a confused launcher gives
_SCRATCH: Final = "/@scratch@"  # in the place of the scratch directory, which differs for every session


class Jvm:
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
        scratch: Scratch,
        archive: Path | None,
    ) -> None:
        self.scratch = scratch
        self._java = java
        self._master = master
        self._archiving = archive is not None
        self._gateway: ClientServer | None = None
        _check_open_files(pyspark)
        environment = _environment(java, pyspark, master)
        command = _launcher_command(java, pyspark, settings, environment, scratch)
        options = [*java_options(scratch), *archive_options(java, pyspark, archive)]
        self._connection = scratch.directory / "connection"
        environment |= {
            "SPARK_HOME": str(scratch.home(pyspark) if is_local(master) else pyspark),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }
        self._process = _spawn([command[0], *options, *command[1:]], environment, scratch)
        self._zygote: subprocess.Popen[bytes] | None = None
        if is_local(master):  # planning processes are forked from it
            own = [sys.executable, "-P", "-m", zygote.__name__, zygote.address(str(scratch.directory))]
            self._zygote = _spawn(own, {**environment, **THREAD_LIMITS}, scratch)

    def connect(self) -> SparkSession:
        """Wait for the gateway and let PySpark make its session through it."""
        from pyspark.core.context import SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        port, secret = self._wait_for_gateway()
        local = is_local(self._master)
        ours = zygote.interpreter(str(self.scratch.directory), sys.executable)
        python = ours if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
        gateway = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        with _variables(gateway | {"PYSPARK_PYTHON": python}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
            if not self._java.vector_module:
                _forget_vector_module(self._gateway)
            if nameless():
                _log_in(self._gateway)
            with _keeping_interrupts():
                context = SparkContext(gateway=self._gateway)
            _silence_py4j(context)
            return SparkSession(context)

    def _wait_for_gateway(self) -> tuple[int, str]:
        deadline = time.monotonic() + _GATEWAY_SECONDS
        while not self._connection.exists():
            if self._process.poll() is not None:
                raise not_started(f"Java ended with exit code {self._process.returncode}", self.scratch)
            if time.monotonic() > deadline:
                raise not_started(f"no response from Java for {_GATEWAY_SECONDS:.0f} seconds", self.scratch)
            time.sleep(0.01)
        content = self._connection.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()

    def lost(self, after_error: bool = False) -> StrandlineError | None:
        """The error of queries whose JVM has ended; None while it lives.

        `after_error` is true if a connection to it broke: then its process may be a moment from its end.
        """
        if after_error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_NOTICE_SECONDS)
        code = self._process.poll()
        return None if code is None else spark_lost(code, self.scratch)

    def close(self, spark: SparkSession | None = None, hung: bool = False) -> None:
        """Stop `spark` if possible, then the JVM, and drop both, so that another session can be started.

        With `hung` it is killed without a request to end.
        """
        if spark is not None and self._gateway is not None and self._process.poll() is None and not hung:
            # A JVM that dies under our hands has stopped as well.
            hung = not finishes_within(self._timeout(_STOP_SECONDS), spark.stop)
        if hung:
            self._process.kill()
        if spark is not None:
            _forget_session(spark)
        if self._gateway is not None:
            _forget_gateway(self._gateway)
            self._gateway = None
        for process in (self._process, self._zygote):
            if process is not None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        try:
            self._process.wait(self._timeout(_EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._zygote is not None:
            self._zygote.wait()
        self.scratch.remove()

    def _timeout(self, seconds: float) -> float:
        if self._archiving:
            return _ARCHIVE_SECONDS
        return seconds if is_local(self._master) else _CLUSTER_SECONDS


def _spawn(command: list[str], environment: Mapping[str, str], scratch: Scratch) -> subprocess.Popen[bytes]:
    """A process that writes to the log of the session and ends with its standard input."""
    with scratch.log_file.open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def _environment(java: Java, pyspark: Path, master: str) -> dict[str, str]:
    """Our environment, with the additions of Spark's own scripts and without variables of another Spark."""
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
        **SAFE_PATH,
        IMPORT_PATH: os.pathsep.join(os.path.abspath(path) for path in sys.path),
    }
    if is_local(master):
        # No resolution of the machine's name, which may have no address, and no warning about it.
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    packages = Path(__file__).parents[4]
    if packages.name not in ("site-packages", "dist-packages"):
        # Run from a source tree: the workers find us where this process found us.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return environment


def _launcher_jar(pyspark: Path) -> tuple[Path, str]:
    """Spark's launcher and the Scala version in its name, which it cannot determine by itself."""
    for jar in pyspark.glob("jars/spark-launcher_*.jar"):
        if name := re.match(r"spark-launcher_(\d+\.\d+)-", jar.name):
            return jar, name[1]
    raise SetupError(
        f"the pyspark in {pyspark} has no jars",
        code="pyspark-incomplete",
        hint="Install pyspark, not pyspark-client.",
    )


def _check_open_files(pyspark: Path) -> None:
    """Refuse to start Java where it may not open the jars of Spark: it would fail with an error about something else.

    Java raises its own soft limit to the hard one, so the hard limit decides.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = sum(1 for _ in (pyspark / "jars").glob("*.jar")) + _OTHER_OPEN_FILES
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise SetupError(
            f"Spark did not start: a process may open {limit:,} files here, and Spark needs {needed:,}",
            code="too-many-files",
            hint="Raise the limit of the shell or the service (`ulimit -Hn`, `LimitNOFILE=`) and start again.",
        )


def _launcher_command(
    java: Java, pyspark: Path, settings: Mapping[str, str], environment: Mapping[str, str], scratch: Scratch
) -> list[str]:
    """The command with which Spark would start its gateway, without the module that this Java does not have.

    Spark's launcher is a JVM of its own, half a second: what it gave for the same settings is kept.
    """
    directory = str(scratch.directory)
    general = {key: value.replace(directory, _SCRATCH) for key, value in settings.items()}
    kept = LauncherCommands(java, pyspark, general, environment)
    command = kept.read()
    if command is None or _USAGE in command:
        command = _ask_launcher(java, pyspark, general, environment, scratch)
        kept.write(command)
    command = [part.replace(_SCRATCH, directory) for part in command]
    return [part for part in command if java.vector_module or part != f"--add-modules={VECTOR_MODULE}"]


def _ask_launcher(
    java: Java, pyspark: Path, settings: Mapping[str, str], environment: Mapping[str, str], scratch: Scratch
) -> list[str]:
    arguments = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    launcher = [str(java.executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    launcher += ["-cp", str(_launcher_jar(pyspark)[0]), "org.apache.spark.launcher.Main"]
    launcher += ["org.apache.spark.deploy.SparkSubmit", *arguments, "pyspark-shell"]
    # A setting that the launcher does not understand it reports here, and then gives a command that prints usage. That
    # one must not be kept: without the report, nothing says what is wrong.
    with scratch.log_file.open("ab") as log:
        run = subprocess.run(launcher, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    # Other output comes first; then a line with a NUL, and the parts of the command, each ended by a NUL.
    command = run.stdout.partition("\0\n")[2].split("\0")[:-1]
    if run.returncode != 0 or not command:
        raise not_started("its launcher gave no command", scratch)
    if _USAGE in command:
        raise not_started("its launcher does not accept the settings", scratch)
    return command


def _forget_vector_module(gateway: ClientServer) -> None:
    """Keep the executors of a local cluster from being started with the module that this Java does not have.

    Spark adds its list of module options to whatever is configured, so the list itself has to change.
    """
    options = gateway.jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    for index in range(len(options)):
        if options[index] == f"--add-modules={VECTOR_MODULE}":
            options[index] = options[0]  # there is no way to shorten a Java array; an option twice does no harm


def _log_in(gateway: ClientServer) -> None:
    """Set Hadoop's user. By default it asks the operating system, and fails if the user has no name there."""
    hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    hadoop.setLoginUser(hadoop.createRemoteUser(f"uid-{os.getuid()}"))


def _silence_py4j(context: SparkContext) -> None:
    """Send what py4j and PySpark print at the end of their JVM to our own log: it is reported as `spark-lost`."""
    import py4j.java_gateway

    def handle_error(request: object, address: object) -> None:
        SPARK.debug("the connection for accumulators has ended", exc_info=True)

    py4j.java_gateway.logging = SimpleNamespace(info=SPARK.debug, exception=partial(SPARK.debug, exc_info=True))
    context._accumulatorServer.handle_error = handle_error  # type: ignore[method-assign,assignment]


def _forget_session(spark: SparkSession) -> None:
    """Reset what `spark.stop()` leaves undone without a JVM."""
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession as Sessions
    from pyspark.sql.context import SQLContext

    context = spark.sparkContext
    if SparkContext._active_spark_context is not context:
        return
    context._jsc = None
    if (server := getattr(context, "_accumulatorServer", None)) is not None:
        finishes_within(1.0, server.shutdown)
    SparkContext._active_spark_context = None
    Sessions._instantiatedSession = None
    Sessions._activeSession = None
    SQLContext._instantiatedContext = None


def _forget_gateway(gateway: ClientServer) -> None:
    from pyspark.core.context import SparkContext

    with contextlib.suppress(Exception):
        gateway.shutdown()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None


@contextlib.contextmanager
def _keeping_interrupts() -> Iterator[None]:
    """Keep the handler of Ctrl-C. PySpark's would cancel all jobs of the session: queries in the background would die
    with an interrupt in the foreground."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler is installed from here
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as a block runs."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)


def pyspark_directory() -> Path:
    """Directory of the supported pyspark. Finding it does not import it: that happens while Java starts."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("pyspark is not installed", code="pyspark-missing", hint="Run `pip install strandline` again.")
    version = importlib.metadata.version("pyspark")
    if not version.startswith(SPARK_VERSION + "."):
        raise SetupError(
            f"unsupported pyspark {version}: strandline needs {SPARK_VERSION}",
            code="pyspark-version",
            hint=f"Run `pip install 'pyspark=={SPARK_VERSION}.*'`, if necessary in a separate environment.",
        )
    return Path(spec.origin).parent


def spark_lost(code: int, scratch: Scratch) -> StrandlineError:
    """Spark's JVM has ended under the queries of this process."""
    how = f"exit code {code}"
    remedy = ""
    if code in _OUT_OF_MEMORY:
        how = "out of memory"
        remedy = 'Give it more memory: connect(config={"spark.driver.memory": "4g"}), or use smaller batches. '
    elif code < 0:
        how = f"killed by signal {-code} ({signal.Signals(-code).name})"
        if -code == signal.SIGKILL:
            remedy = "The system kills processes when memory runs out: see `dmesg`. "
    return QueryError(
        f"Spark's JVM has ended: {how}",
        code="spark-lost",
        detail=f"Its log is {scratch.log_file}.",
        hint=f"{remedy}Restart the query: Spark is started again, and with a checkpoint the query resumes where it "
        "stopped.",
    )


def not_started(reason: str, scratch: Scratch) -> SetupError:
    return SetupError(
        f"Spark did not start: {reason}",
        code="spark-start",
        detail=scratch.complaint(),
        hint=f"See {scratch.log_file} for details; `strandline doctor` examines the machine.",
    )
