"""Lease: one writer per directory, on one machine and on a shared file system.

`lease.json` names the writer: a token, an epoch that grows with every writer, host and process. A kernel lock on `lock`
shows whether a holder on this machine lives. A holder on another machine, which such a lock may not reach, renews the
time of `lease.json`; the lease expires when it does not.

The second writer is refused. One that takes over all the same writes its own token, and the first one finds it before
its next write that others could see (`check`): it may have been paused, or cut off, for any length of time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import uuid
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final

from strandline.core.durable import DocumentKind, read_document, sync_directory, write_document
from strandline.core.errors import CheckpointError

LOCK: Final = "lock"
LEASE: Final = "lease.json"
KIND: Final = DocumentKind("lease", 1)
RENEW_SECONDS: Final = 5.0
EXPIRES_SECONDS: Final = 30.0


@dataclass(slots=True)
class Lease:
    """The right to write to a directory, from `acquire` until `release`."""

    directory: Path
    epoch: int
    token: str
    _lock: int | None  # None where the lease was taken over from a holder that still has the lock
    _stamp: tuple[int, int] = (0, 0)
    _released: threading.Event = field(default_factory=threading.Event)

    @staticmethod
    def acquire(directory: Path, *, take_over: bool = False, after_epoch: int = 0) -> Lease:
        """Become the writer of a directory, which is made if need be; refused while another one is. The epoch is later
        than that of every writer before, and than `after_epoch`."""
        directory.mkdir(parents=True, exist_ok=True)
        lock = _try_lock(directory / LOCK)
        try:
            holder = _read_holder(directory)
            if not take_over and (lock is None or (holder is not None and _lives_elsewhere(directory, holder))):
                raise busy(directory, holder)
            epoch = max(holder.epoch if holder is not None else 0, after_epoch) + 1
            lease = Lease(directory, epoch, uuid.uuid4().hex, lock)
            _write_holder(directory, Holder(epoch, lease.token, socket.gethostname(), os.getpid()))
            sync_directory(directory)
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        threading.Thread(target=lease._renew, name="strandline-lease", daemon=True).start()
        return lease

    def check(self) -> None:
        """Check that no other run has taken over; before every externally visible write."""
        path = self.directory / LEASE
        try:
            status = os.stat(path)
            if (status.st_ino, status.st_ctime_ns) == self._stamp:
                return  # the file is unchanged since we wrote it
            holder = _read_holder(self.directory)
            self._stamp = (status.st_ino, status.st_ctime_ns)
        except OSError:
            holder = None
        if holder is None or holder.token != self.token:
            self._stamp = (0, 0)
            raise CheckpointError(
                f"another run has taken over {self.directory}",
                code="checkpoint-lost",
                detail=_describe(holder) if holder is not None else f"{path} is gone.",
                hint="This run has stopped, and nothing of its last batch was delivered. The other one continues.",
            )

    def release(self) -> None:
        """Release the lease to the next writer."""
        if self._released.is_set():
            return
        self._released.set()
        with contextlib.suppress(OSError, CheckpointError):
            holder = _read_holder(self.directory)
            if holder is not None and holder.token == self.token:
                _write_holder(self.directory, Holder(self.epoch, "", "", 0))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _renew(self) -> None:
        path = self.directory / LEASE
        while not self._released.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError, CheckpointError):
                self.check()
                os.utime(path)


def refuse_busy(directory: Path) -> None:
    """Refuse a directory that another process writes to, without becoming its writer: for an early word to the user."""
    if not (directory / LOCK).exists():
        return
    lock = _try_lock(directory / LOCK)
    if lock is None:
        raise busy(directory, _read_holder(directory))
    os.close(lock)


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of the lease; none, if the token is empty."""

    epoch: int
    token: str
    host: str
    process: int


def _write_holder(directory: Path, holder: Holder) -> None:
    write_document(directory / LEASE, KIND, astuple(holder))


def _read_holder(directory: Path) -> Holder | None:
    path = directory / LEASE
    return Holder(*read_document(path, KIND)) if path.exists() else None


def _try_lock(path: Path) -> int | None:
    """A lock of the kernel's, which it releases however the process ends; None if another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _lives_elsewhere(directory: Path, holder: Holder) -> bool:
    """True if a holder on another machine has renewed its lease recently, by the clock of the file system."""
    if not holder.token or holder.host == socket.gethostname():
        return False  # released, or on this machine: then it would have the lock
    probe = directory / f".now.{uuid.uuid4().hex}"
    try:
        probe.touch()
        age = probe.stat().st_mtime - (directory / LEASE).stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
    return age < EXPIRES_SECONDS


def busy(directory: Path, holder: Holder | None) -> CheckpointError:
    return CheckpointError(
        f"another run is writing to {directory}",
        code="checkpoint-busy",
        detail=_describe(holder) if holder is not None and holder.token else None,
        hint="Stop it first, or wait until it ends. If it is unreachable, take over with --take-over. "
        "Nothing was changed.",
    )


def _describe(holder: Holder) -> str:
    if not holder.token:
        return "It has ended since."
    return f"The writer is process {holder.process} on {holder.host}."
