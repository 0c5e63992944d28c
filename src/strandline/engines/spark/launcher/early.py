"""A JVM that is started before it is needed: while this process imports its modules and reads the script.

The command line begins it as soon as it knows that a query will run on Spark; `session.start` then takes it.
"""

from __future__ import annotations

import atexit
import threading
from dataclasses import dataclass
from pathlib import Path

from strandline.engines.spark.launcher.java import Java, find_java
from strandline.engines.spark.launcher.jvm import Jvm, pyspark_directory
from strandline.engines.spark.launcher.scratch import Scratch
from strandline.engines.spark.launcher.settings import resolve, settings_for


@dataclass(frozen=True, slots=True)
class StartedJvm:
    java: Java
    jvm: Jvm
    scratch: Scratch


class EarlyJvm:
    """The JVM of a master, coming up in a thread."""

    def __init__(self, master: str | None) -> None:
        self.master = master
        self._started: StartedJvm | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="strandline-jvm", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            java, scratch = find_java(), Scratch(None)
            self._started = open_jvm(java, pyspark_directory(), resolve(self.master), {}, scratch, None)
        except Exception as error:
            self._error = error

    def take(self) -> StartedJvm:
        """The JVM, once it is there; raises why there is none."""
        self._thread.join()
        if self._started is None:
            assert self._error is not None, "it has ended, without a JVM"
            raise self._error
        return self._started


_early: EarlyJvm | None = None


def open_jvm(
    java: Java, pyspark: Path, master: str, config: dict[str, str], scratch: Scratch, archive: Path | None
) -> StartedJvm:
    """Start a JVM with the settings of a master."""
    try:
        settings = settings_for(master, config, scratch)
        return StartedJvm(java, Jvm(java, pyspark, master, settings, scratch, archive), scratch)
    except BaseException:
        scratch.remove()
        raise


def begin_early(master: str | None) -> None:
    """Start the JVM of a session that will be asked for soon."""
    global _early
    if _early is None:
        _early = EarlyJvm(master)
        atexit.register(_drop)


def take_early(master: str | None) -> StartedJvm | None:
    """The JVM that was begun for this master; None if there is none. It is given once."""
    global _early
    early, _early = _early, None
    if early is None:
        return None
    atexit.unregister(_drop)
    started = early.take()
    if early.master == master:
        return started
    started.jvm.close()
    return None


def _drop() -> None:
    """End a JVM that was not needed after all: the script had an error."""
    early = _early
    if early is not None and early._started is not None:
        early._started.jvm.close()
