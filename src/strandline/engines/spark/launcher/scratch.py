"""Files of a session: its temporary directory, and its log, which stays."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from strandline.core.temporary import base_directory, temporary_directory


class Scratch:
    """The directory of one session, and its log, which stays."""

    def __init__(self, log_directory: Path | None) -> None:
        self.directory = temporary_directory("spark")
        logs = log_directory or base_directory()
        logs.mkdir(parents=True, exist_ok=True)
        self.log_file = (logs / f"spark-{os.getpid()}.log").absolute()
        self.log_settings = self.directory / "log4j2.properties"
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
        """The lines of this session's log that most likely explain a failure."""
        with self.log_file.open(errors="replace") as log:
            log.seek(self._log_start)
            return _telling(log.read())

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _telling(text: str) -> str | None:
    """The first Java error message, with a second line if there is one; else the last line.

    Names of threads and of exception classes are for the log: only their messages are shown.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"\s+at |\s*\.\.\. ", line)]
    for index, line in enumerate(lines):
        if re.search(r"Exception|Error", line):
            return "\n".join(_JAVA_NAMES.sub("", line) or line for line in lines[index : index + 2])
    return lines[-1] if lines else None


_JAVA_NAMES: Final = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:[\w$]+(?:\.[\w$]+)+: )*')


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
