"""The class archive of Spark's JVM: made once, in the background, so that later starts take half the time.

It lies in the user's cache directory. One process makes it at a time; a home that cannot be written, and a Java that
makes none, leave everything as it is. STRANDLINE_ARCHIVE=off keeps it from being made without a request.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.core.log import INFO, SPARK, log_event
from strandline.engines.spark.launcher.java import Java
from strandline.engines.spark.launcher.settings import archive_file

VARIABLE: Final = "STRANDLINE_ARCHIVE"
_RETRY_SECONDS: Final = 7 * 24 * 3600.0  # after an attempt that failed
_STALE_SECONDS: Final = 30 * 24 * 3600.0  # archives of a Java or Spark that was not used since


def build_in_background(java: Java, pyspark: Path) -> bool:
    """Have the archive made by a process of its own, if there is none and one can be made; whether it was begun."""
    target = archive_file(java, pyspark)
    if os.environ.get(VARIABLE, "").lower() in ("off", "0", "no", "false") or target.exists():
        return False
    failed = target.with_suffix(".failed")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK) or time.time() - failed.stat().st_mtime < _RETRY_SECONDS:
            return False
    except FileNotFoundError:
        pass  # no attempt has failed
    except OSError:
        return False
    if is_being_built(target):
        return False
    subprocess.Popen(
        ["nice", "-n", "10", sys.executable, "-P", "-m", "strandline", "warmup"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    log_event(SPARK, INFO, "class archive begun", file=target)
    return True


@contextlib.contextmanager
def sole_builder(target: Path) -> Iterator[bool]:
    """Whether this process is the one that makes the archive."""
    with _lock_file(target).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def is_being_built(target: Path) -> bool:
    try:
        with sole_builder(target) as is_sole:
            return not is_sole
    except OSError:
        return True


def note_failure(target: Path) -> None:
    """Remember that no archive could be made, so that not every run tries."""
    with contextlib.suppress(OSError):
        target.with_suffix(".failed").touch()


def remove_stale(target: Path) -> None:
    """Remove archives of other installations that were not read for a month, and what attempts have left."""
    for path in target.parent.glob("*.archive"):
        with contextlib.suppress(OSError):
            status = path.stat()
            age = time.time() - max(status.st_atime, status.st_mtime)
            if path != target and age > (3600.0 if path.name.startswith("new-") else _STALE_SECONDS):
                path.unlink()


def _lock_file(target: Path) -> Path:
    return target.with_suffix(".lock")
