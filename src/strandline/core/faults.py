"""Faults of the machine under a query: disks, files, memory, worker processes.

The operating system reports `[Errno 28]`, Java `No space left on device`, SQLite `database or disk is full`. Here they
become one error with a stable code, the path, and a hint.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.core.errors import QueryError, StrandlineError

_RESUME: Final = "restart the query; with a checkpoint it resumes where it stopped"


@dataclass(frozen=True, slots=True)
class _DiskFault:
    """A fault of a file system: messages of the system, and our error."""

    numbers: tuple[int, ...]
    words: str  # a pattern: messages of Java and C libraries
    code: str
    statement: str
    remedy: str


_DISK_FAULTS: Final = (
    _DiskFault(
        (errno.ENOSPC, errno.EDQUOT),
        r"[Nn]o space left on device|[Dd]isk quota exceeded|Not enough space|database or disk is full",
        code="disk-full",
        statement="the disk is full",
        remedy=f"Free disk space and {_RESUME}.",
    ),
    _DiskFault(
        (errno.EROFS,),
        r"[Rr]ead-only file system|attempt to write a readonly database",
        code="disk-read-only",
        statement="the file system is read-only",
        remedy=f"Make it writable and {_RESUME}.",
    ),
    _DiskFault(
        (errno.EMFILE, errno.ENFILE),
        r"Too many open files",
        code="too-many-files",
        statement="too many files are open",
        remedy=f"Raise the limit (`ulimit -n`) and {_RESUME}.",
    ),
    _DiskFault(
        (errno.EFBIG,),
        r"File too large",
        code="file-too-large",
        statement="a file may not grow further",
        remedy=f"Raise the limit on the size of files (`ulimit -f`, or that of the file system) and {_RESUME}.",
    ),
    _DiskFault(
        (errno.EACCES, errno.EPERM),
        r"[Pp]ermission denied|AccessDeniedException",
        code="permission-denied",
        statement="no permission to read or write a file",
        remedy=f"Correct its permissions and {_RESUME}.",
    ),
    _DiskFault(
        (errno.EIO, errno.ESTALE),
        r"[Ii]nput/output error|[Ss]tale (?:NFS )?file handle|disk I/O error",
        code="disk-failing",
        statement="cannot read or write the disk",
        remedy=f"Check the system log; replace or remount the disk and {_RESUME}.",
    ),
)
_NO_MEMORY: Final = re.compile(
    r"^(?:\S+: )?MemoryError\b|ArrowMemoryError|\bmalloc of size \d+ failed|java\.lang\.OutOfMemoryError", re.MULTILINE
)
_WORKER_LOST: Final = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)|reading the port number from \S+ stdout"
)
_PYTHON_OS_ERROR: Final = re.compile(r"\[[Ee]rrno (\d+)\][^'\"\n]*(?:['\"]([^'\"\n]+)['\"])?")
_MEASURED: Final = "MiB free of"
_PATH: Final = r"(?:file:)?(/[^\s'\"():,]+)"


def explain_fault(error: BaseException) -> StrandlineError | None:
    """The named error for an exception that a fault of the machine has raised; None for any other exception."""
    if isinstance(error, StrandlineError):
        return error
    if isinstance(error, MemoryError):  # Arrow's is a kind of it
        return out_of_memory(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        path = error.filename2 or error.filename
        return _by_number(error.errno, os.fsdecode(path) if isinstance(path, str | bytes) else None, str(error))
    # These have exceptions of their own, with the words of the system in them. Of others the text may be data.
    if type(error).__module__.partition(".")[0] in ("polars", "pyarrow", "sqlite3"):
        return explain_fault_text(f"{type(error).__name__}: {error}")
    return None


def explain_fault_text(text: str) -> StrandlineError | None:
    """The same for a message that came out of the JVM or of a library."""
    for number, path in _PYTHON_OS_ERROR.findall(text):
        if (named := _by_number(int(number), path or None, _line_with(text, f"rrno {number}]"))) is not None:
            return named
    for fault in _DISK_FAULTS:
        if (match := re.search(fault.words, text)) is not None:
            line = _line_with(text, match.group())
            path = re.search(_PATH + rf":? \(?(?:{fault.words})", line)
            return _disk_error(fault, path.group(1) if path is not None else None, line)
    if (match := _NO_MEMORY.search(text)) is not None:
        return out_of_memory(_line_with(text, match.group()))
    if (match := _WORKER_LOST.search(text)) is not None:
        return worker_lost(_line_with(text, match.group()))
    return None


def name_place(error: StrandlineError, places: Iterable[str | os.PathLike[str]]) -> StrandlineError:
    """Add to a fault of a disk without a path the one of `places` that it must be about: a write to a file that is open
    fails without its name."""
    if error.code != "disk-full" or _MEASURED in (error.detail or ""):
        return error
    usages = {str(path): usage for path in places if (usage := _usage(str(path))) is not None}
    if not usages:
        return error
    fullest = min(usages, key=lambda path: usages[path][1].free)
    detail = " ".join(filter(None, (error.detail, _free_space(fullest))))
    return QueryError(f"{error.message}: {fullest}", code=error.code, detail=detail, hint=error.hint)


@contextmanager
def named_faults() -> Iterator[None]:
    """Raise faults of the machine under their names."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if (named := explain_fault(error)) is not None:
            raise named from error
        raise


def out_of_memory(detail: str | None = None) -> StrandlineError:
    return QueryError(
        "out of memory while processing a batch",
        code="out-of-memory",
        detail=_shortened(detail),
        hint="Use smaller batches (--batch-rows), more shards, shorter windows, or a machine with more memory; then "
        f"{_RESUME}.",
    )


def worker_lost(detail: str | None = None) -> StrandlineError:
    return QueryError(
        "a Python worker of Spark was killed on every attempt of its task",
        code="worker-lost",
        detail=_shortened(detail),
        hint="The system kills processes when memory runs out (see `dmesg`): use smaller batches (--batch-rows) or "
        f"fewer cores (--master). Then {_RESUME}.",
    )


def _by_number(number: int, path: str | None, message: str) -> StrandlineError | None:
    if number == errno.ENOMEM:
        return out_of_memory(message)
    for fault in _DISK_FAULTS:
        if number in fault.numbers:
            return _disk_error(fault, path, message)
    return None


def _disk_error(fault: _DiskFault, path: str | None, message: str) -> StrandlineError:
    where = f": {path}" if path is not None else ""
    detail = " ".join(filter(None, (_shortened(message), _free_space(path) if path is not None else None)))
    return QueryError(f"{fault.statement}{where}", code=fault.code, detail=detail, hint=fault.remedy)


def _free_space(path: str) -> str | None:
    """Free space of the file system of a path."""
    if (directory_usage := _usage(path)) is None:
        return None
    directory, usage = directory_usage
    return f"({usage.free / 2**20:,.1f} {_MEASURED} {usage.total / 2**20:,.1f} MiB at {directory})"


def _usage(path: str) -> tuple[Path, shutil._ntuple_diskusage] | None:
    """The file system of a path, by its nearest directory that exists."""
    directory = Path(path)
    try:
        while not directory.exists() and directory != directory.parent:
            directory = directory.parent
        return directory, shutil.disk_usage(directory)
    except OSError:
        return None


def _line_with(text: str, words: str) -> str:
    return next((line.strip() for line in text.splitlines() if words in line), words)


def _shortened(text: str | None, longest: int = 300) -> str | None:
    return text if text is None or len(text) <= longest else text[: longest - 1] + "…"
