"""Watches file operations of a process, through Python's audit events.

Two uses. *Images*: before an operation below the directory of a run, all other processes of the run are stopped and the
directory is copied. The copy is what kill -9 of all of them at this moment leaves, and ten of them can be restarted in
the time that one real kill takes. *Kills*: all processes of the run are killed at the n-th operation.

This module is imported by every Python process of a run, before anything else: it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CONTROL: Final = "STRANDLINE_ATTACK"  # the environment variable that names the control directory
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_busy = threading.local()


class _Hook:
    """Reads its orders from `orders.json` in the control directory, anew when that has changed."""

    def __init__(self, control: str) -> None:
        self.control = control
        self._orders: dict[str, Any] = {}
        self._stamp: tuple[int, int] | None = None
        self._guard = threading.Lock()

    def orders(self) -> dict[str, Any]:
        path = os.path.join(self.control, "orders.json")
        try:
            stat = os.stat(path)
        except OSError:
            return {}
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            with open(path) as file:
                self._orders = json.load(file)
            self._stamp = stamp
            forget_caches()
        return self._orders

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        path, writes = _touched(event, arguments)
        if path is None or getattr(_busy, "now", False):
            return
        _busy.now = True
        try:
            orders = self.orders()
            root = orders.get("root")
            if writes and root and path.startswith(root):
                self._operate(orders, f"{event} {os.path.relpath(path, root)}")
        finally:
            _busy.now = False

    def _operate(self, orders: dict[str, Any], label: str) -> None:
        if not orders.get("images") and not orders.get("kill"):
            return
        with self._guard, open(os.path.join(self.control, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = self._count()
            if orders.get("kill") == number:
                for pid in family(orders["pid"]):
                    with contextlib.suppress(ProcessLookupError):
                        if pid != os.getpid():
                            os.kill(pid, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            if orders.get("images") and random.random() < orders.get("share", 1.0):
                take_image(orders, number, label)

    def _count(self) -> int:
        path = os.path.join(self.control, "count")
        try:
            with open(path) as file:
                number = int(file.read() or 0) + 1
        except FileNotFoundError:
            number = 1
        with open(path, "w") as file:
            file.write(str(number))
        return number


def _touched(event: str, arguments: tuple[Any, ...]) -> tuple[str | None, bool]:
    """The path of an operation and whether it changes something. Before a worker reads, it must hear of new orders."""
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(path, str):
            return None, False
        writes = any(sign in mode for sign in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
        return path, writes
    if event in ("os.rename", "os.link"):
        return _text(arguments[1]), True
    if event in ("os.remove", "os.truncate", "os.rmdir"):
        return _text(arguments[0]), True
    if event == "os.mkdir":
        path = _text(arguments[0])
        return path, path is not None and not os.path.isdir(path)
    return None, False


def _text(path: Any) -> str | None:
    try:
        return os.fsdecode(path)
    except TypeError:
        return None


def take_image(orders: dict[str, Any], number: int, label: str) -> None:
    """Copy the directory of the run while everybody else stands still."""
    from attack.tree import copy_tree

    with everybody_stopped(orders["pid"]):
        copy_tree(Path(orders["root"]), Path(orders["images"]) / f"{number:06d}")
        (Path(orders["images"]) / f"{number:06d}.label").write_text(label)


@contextlib.contextmanager
def everybody_stopped(pid: int) -> Iterator[None]:
    """All processes of a run but this one are stopped meanwhile."""
    others = [member for member in family(pid) if member != os.getpid()]
    _signal(others, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(others, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def family(pid: int) -> list[int]:
    """A process and everything below it."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(name))
    members, queue = [], [pid]
    while queue:
        member = queue.pop()
        members.append(member)
        queue += parents.get(member, [])
    return members


def forget_caches() -> None:
    """New orders are a new run for a process that stays: what it knows of files may not outlive that.

    Caches of modules have names like `_opened`; constants are written in capitals.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(("strandline.runtime", "strandline.connectors", "strandline.engines")):
            for own, value in list(vars(module).items()):
                if own.startswith("_") and own == own.lower() and not own.startswith("__"):
                    if isinstance(value, dict | set):
                        value.clear()
                    elif hasattr(value, "cache_clear"):
                        value.cache_clear()


def write_orders(control: Path, **orders: Any) -> None:
    """Give orders to all processes of a run; none for peace."""
    temporary = control / f".orders-{time.monotonic_ns()}"
    temporary.write_text(json.dumps(orders))
    os.replace(temporary, control / "orders.json")


def install() -> None:
    sys.addaudithook(_Hook(os.environ[CONTROL]))
