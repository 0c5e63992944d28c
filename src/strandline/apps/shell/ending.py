"""TERM signals while a full-screen application runs.

An exception from a signal handler would hit the event loop at any point, which treats it as a defect. So the active
application is ended through its own loop; without one, the exception is right.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from prompt_toolkit.application import Application


class Ending:
    """Tracks the active application, and whether its end was requested."""

    def __init__(self) -> None:
        self.requested = False
        self._on_screen: list[Application[Any]] = []

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle TERM signals, in place of the earlier handler."""
        before = signal.getsignal(signal.SIGTERM)

        def stop(number: int, frame: FrameType | None) -> None:
            self.requested = True
            if not self._request_exit() and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def screen(self, app: Application[Any]) -> Iterator[None]:
        """While an application has the screen."""
        self._on_screen.append(app)
        try:
            yield
        finally:
            self._on_screen.remove(app)

    def _request_exit(self) -> bool:
        app = self._on_screen[-1] if self._on_screen else None
        if app is None or app.loop is None or not app.is_running:
            return False

        def end() -> None:
            if app.is_running and app.future is not None and not app.future.done():
                app.exit(exception=EOFError)

        app.loop.call_soon_threadsafe(end)
        return True
