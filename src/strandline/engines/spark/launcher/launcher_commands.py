"""Commands that Spark's launcher has given, kept in the user's cache directory by everything that they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.engines.spark.launcher.java import Java
from strandline.engines.spark.launcher.settings import cache_directory

# What the launcher reads of its environment, beside SPARK_HOME.
_PREFIXES: Final = ("SPARK_", "PYSPARK_", "JAVA_", "_JAVA", "JDK_", "HADOOP_", "YARN_", "CLASSPATH")
_VOLATILE: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY", "SPARK_LOCAL_DIRS")
_FILES: Final = ("spark-defaults.conf", "java-opts")


class LauncherCommands:
    """The command for a Java, a pyspark and settings; a cache that cannot be used is no error."""

    def __init__(self, java: Java, pyspark: Path, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        configuration = Path(environment.get("SPARK_CONF_DIR") or pyspark / "conf")
        reads = {k: v for k, v in environment.items() if k.startswith(_PREFIXES) and not k.startswith(_VOLATILE)}
        depends = [
            str(java.executable),
            java.version,
            str(pyspark),
            importlib.metadata.version("pyspark"),
            sorted(settings.items()),
            sorted(reads.items()),
            [_content(configuration / name) for name in _FILES],
        ]
        digest = hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:24]
        self._path = cache_directory() / "commands" / f"{digest}.json"

    def read(self) -> list[str] | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if self._path.stat().st_uid == os.getuid():
                command = json.loads(self._path.read_text())
                if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
                    return command
        return None

    def write(self, command: list[str]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = self._path.with_name(f".{os.getpid()}-{self._path.name}")
            fresh.touch(0o600)
            fresh.write_text(json.dumps(command))
            fresh.replace(self._path)


def _content(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
