"""Temporary directories of this process: all below one directory per run, which the next start removes after a crash.

    $TMPDIR/strandline-<uid>/            of this user alone, mode 0700
      run-XXXXXXXX/lock                  locked as long as the process lives
      run-XXXXXXXX/checkpoint-XXXXXXXX/  what `temporary_directory("checkpoint")` returns
      spark-<pid>.log                    logs stay, for a week

The kernel releases a lock however its process ends, so a run directory whose lock is free was left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Final

from strandline.core.errors import SetupError

_MAX_SOCKET_PATH: Final = 100  # bytes; the kernel's limit is 104 or 108
_LOG_RETENTION_SECONDS: Final = 7 * 24 * 3600.0


def temporary_directory(prefix: str) -> Path:
    """A new, empty directory of this process. It may be removed earlier; at the latest it is removed with the
    process."""
    try:
        return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=_run_directory()))
    except OSError as error:
        raise _unusable(error) from error


def socket_path(prefix: str) -> str | None:
    """A path for a Unix socket in its own directory; None where TMPDIR is too long for one, and the default must do."""
    path = temporary_directory(prefix) / "socket"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return str(path)
    path.parent.rmdir()
    return None


def remove_socket(path: str) -> None:
    """Remove the socket of `socket_path`; a path from elsewhere stays."""
    directory = Path(path).parent
    if _run is not None and directory.parent == _run.directory:
        shutil.rmtree(directory, ignore_errors=True)


def base_directory() -> Path:
    """The one directory of this user for logs and temporary files. Its name is no secret, so its owner is checked."""
    try:
        base = Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        status = base.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise SetupError(
                f"{base} is owned by another user",
                code="temporary-directory",
                hint="Set TMPDIR to a directory of your own.",
            )
        if stat.S_IMODE(status.st_mode) != 0o700:
            base.chmod(0o700)
    except OSError as error:
        raise _unusable(error) from error
    return base


def _unusable(error: OSError) -> SetupError:
    return SetupError(
        f"cannot use the temporary directory: {error}",
        code="temporary-directory",
        hint="Set TMPDIR to a directory that you can write to.",
    )


class _Run:
    """The directory of this process, with its lock."""

    def __init__(self) -> None:
        base = base_directory()
        self.owner = os.getpid()
        # Between the making of a directory and the locking of it, a sweep must not take it for one left behind.
        with (base / ".sweep").open("w") as sweep:
            fcntl.flock(sweep, fcntl.LOCK_EX)
            _sweep(base)
            self.directory = Path(tempfile.mkdtemp(prefix="run-", dir=base))
            self._lock: IO[str] = (self.directory / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        atexit.register(self.remove)

    def remove(self) -> None:
        if self.owner == os.getpid():  # not in a child that was forked
            shutil.rmtree(self.directory, ignore_errors=True)
            self._lock.close()


_guard = threading.Lock()
_run: _Run | None = None


def _run_directory() -> Path:
    global _run
    with _guard:
        if _run is None or _run.owner != os.getpid() or not _run.directory.is_dir():
            _run = _Run()
        return _run.directory


def _sweep(base: Path) -> None:
    """Remove the directories of processes that have died, and old logs."""
    for directory in base.glob("run-*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)
    for log in base.glob("spark-*.log*"):
        with contextlib.suppress(OSError):
            if time.time() - log.stat().st_mtime > _LOG_RETENTION_SECONDS:
                log.unlink()


def _is_abandoned(directory: Path) -> bool:
    try:
        with (directory / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return True  # killed before it was locked: creators hold the lock of the sweep
    except OSError:
        return False
