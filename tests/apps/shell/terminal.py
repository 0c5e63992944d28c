"""A terminal for tests and pictures: a program in a pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

ROOT = Path(__file__).resolve().parents[3]
CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


class Terminal:
    """`until` reads what the program writes until the screen shows what is expected, or fails with the screen."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, rows: int = 40, columns: int = 120
    ) -> None:
        self.screen = _Screen(columns, rows, self)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            command[0],
            list(command[1:]),
            env=dict(env),
            cwd=str(cwd),
            dimensions=(rows, columns),
            timeout=10,
            # What a shell has put into the background ignores Ctrl-C, and so would all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.child.delaybeforesend = None

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def send(self, keys: str) -> None:
        self.child.send(keys)

    def type(self, line: str) -> None:
        """A line as a person types it: the keys, then Enter."""
        self.send(line + "\r")

    def pump(self, seconds: float = 0.05) -> bool:
        """Take in what has been written; false if the program has ended."""
        try:
            self._stream.feed(self.child.read_nonblocking(65536, seconds))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            return False
        return True

    def until(self, wanted: str | Callable[[str], bool], seconds: float = 10.0) -> str:
        """Wait until the screen has a text, or looks as a function wants it; returns the screen."""
        looks_right = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            alive = self.pump()
            if looks_right(self.text()):
                return self.text()
            if not alive:
                break
        raise AssertionError(f"never saw {wanted!r}; the screen is\n{self.text()}")

    def until_gone(self, seconds: float = 10.0) -> int:
        """Wait until the program has ended; its exit code."""
        deadline = time.monotonic() + seconds
        while self.pump():
            assert time.monotonic() < deadline, f"it does not end; the screen is\n{self.text()}"
        self._wait(seconds)  # it has closed its terminal, and ends: a signal now would change its exit code
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)

    def close(self) -> None:
        if not self.child.closed and self.child.isalive():
            self.child.kill(signal.SIGHUP)
            if not self._wait(1.0):
                self.child.kill(signal.SIGKILL)
                self._wait(60.0)
        self.child.close(force=True)

    def _wait(self, seconds: float) -> bool:
        """Whether the program ends within a time."""
        deadline = time.monotonic() + seconds
        while alive := self.child.isalive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return not alive


class _Screen(pyte.Screen):
    """A screen that answers: programs ask terminals where the cursor is."""

    def __init__(self, columns: int, rows: int, terminal: Terminal) -> None:
        self._terminal = terminal
        super().__init__(columns, rows)

    def write_process_input(self, data: str) -> None:
        self._terminal.send(data)


def shell(*options: str, state: Path, cwd: Path, rows: int = 40, columns: int = 120, **variables: str) -> Terminal:
    """`strandline shell` in a terminal, with a history of its own."""
    command = [sys.executable, "-m", "strandline", "shell", *options]
    env = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm-256color", "COLUMNS": str(columns)}
    env |= {"PYTHONPATH": str(ROOT / "src"), "LINES": str(rows), **variables}
    return Terminal(command, env, cwd, rows, columns)
