"""The command line in a process that kills itself, and everything below it, in the midst of a sink's write.

    python self_killing_run.py MOMENT BATCH DELAY run script.sql --out …

MOMENT is one of `MOMENTS`; the process dies the BATCH-th time that it comes there, DELAY seconds later. With a delay,
the write goes on meanwhile, and nobody knows how far it gets.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import deltalake
import psutil

from strandline.apps.cli import main
from strandline.connectors.sinks import postgresql, sqlite
from strandline.connectors.sinks.sql_table import TableWriter
from strandline.runtime.checkpoint.chain import CheckpointChain


def die() -> None:
    """kill -9 for the JVM, its workers and ourselves."""
    for process in psutil.Process().children(recursive=True):
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    os.kill(os.getpid(), signal.SIGKILL)


def patched(owner: Any, name: str, moment: Callable[[], None], before: bool, only: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def wrapper(*arguments: Any, **named: Any) -> Any:
        counts = only(*arguments)
        if before and counts:
            moment()
        result = original(*arguments, **named)
        if not before and counts:
            moment()
        return result

    setattr(owner, name, wrapper)


def always(*_: object) -> bool:
    return True


# Where to die: what is called, before or after it, and which of the calls count.
MOMENTS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    "parquet, between two files": (os, "replace", False, lambda _, to: str(to).endswith(".parquet")),
    "delta, before the commit": (deltalake, "write_deltalake", True, always),
    "delta, after the commit": (deltalake, "write_deltalake", False, always),
    "postgresql, before the commit": (postgresql._PostgreSQLStore, "remember", False, always),
    "sqlite, before the commit": (sqlite._SQLiteStore, "remember", False, always),
    "tables, after the commit": (TableWriter, "write", False, always),
    "the checkpoint, before it knows": (CheckpointChain, "commit", True, always),
}


def arm(moment: str, batch: int, delay: float) -> None:
    left = [batch]

    def come() -> None:
        left[0] -= 1
        if left[0] == 0:
            if delay:
                threading.Timer(delay, die).start()
            else:
                die()

    owner, name, before, only = MOMENTS[moment]
    patched(owner, name, come, before, only)


if __name__ == "__main__":
    moment, batch, delay, *command = sys.argv[1:]
    arm(moment, int(batch), float(delay))
    sys.argv = ["strandline", *command]
    main()
