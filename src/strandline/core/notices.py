"""Notices: what a user should hear although nothing has failed, in one line with a remedy.

A notice is produced in one place per cause: while a statement is executed, by `catalog.notices.add(…)` in the binder,
the catalog or `database/statements.py`; while a query runs, by `database/running_notices.py` from its counters. Every
database has one `NoticeLog`, which lists notices and shows each once per statement and query. `NoticeLog.show` is
where: standard error in a program, the console of a command; the shell sets None and takes them before its prompt.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from strandline.core.errors import one_line
from strandline.core.log import NOTICE, WARNING, log_event
from strandline.core.security.redaction import redact


@dataclass(frozen=True, slots=True)
class Notice:
    """A statement without a full stop, and what to write or do instead: `text; remedy`.

    `code` is stable, as that of an error. `subject` is the stream or query that the notice is about, where its text
    changes while a query runs: two notices with the same code and subject are one, and the newer text is the right one.
    """

    code: str
    text: str
    remedy: str | None = None
    subject: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the notice."""
        return self.code, self.text if self.subject is None else self.subject

    def __str__(self) -> str:
        line = self.text if self.remedy is None else f"{self.text}; {self.remedy}"
        return one_line(redact(f"notice[{self.code}]: {line}"))


class NoticeLog:
    """The notices of a database, in order. `diagnosis` is how the user asks why a query has no result."""

    def __init__(self) -> None:
        self.diagnosis = "query.why()"
        self.show: Callable[[Notice], None] | None = show_in_program
        self._notices: dict[tuple[str, str], Notice] = {}
        self._pending: list[Notice] = []
        self._lock = threading.Lock()
        self._local = threading.local()  # the statement that a thread is executing

    def add(self, notice: Notice) -> None:
        """Raise a notice. One of a statement is shown when the statement has succeeded."""
        collected: list[Notice] | None = getattr(self._local, "collected", None)
        if collected is None:
            self.publish([notice])
        elif all(other.key != notice.key for other in collected):
            collected.append(notice)  # a statement may be bound twice

    @contextmanager
    def collect(self) -> Iterator[list[Notice]]:
        """Collect the notices that this thread raises. They are passed on, and shown, unless an error is raised."""
        around: list[Notice] | None = getattr(self._local, "collected", None)
        self._local.collected = collected = list[Notice]()
        try:
            yield collected
        finally:
            self._local.collected = around
        for notice in collected:
            self.add(notice)

    def publish(self, notices: Sequence[Notice]) -> None:
        """List notices, and show them."""
        with self._lock:
            self._notices |= {notice.key: notice for notice in notices}
            show = self.show
            if show is None:
                self._pending += notices
        for notice in notices:
            log_event(NOTICE, WARNING, "notice", code=notice.code, text=notice.text, remedy=notice.remedy)
            if show is not None:
                show(notice)

    def take(self) -> list[Notice]:
        """The notices that have not been shown because `show` is None; they count as shown."""
        with self._lock:
            pending, self._pending = self._pending, []
        return pending

    def all(self) -> list[Notice]:
        with self._lock:
            return list(self._notices.values())


def show_in_program(notice: Notice) -> None:
    """Print a notice on standard error, unless the program shows the lines of its loggers itself."""
    if not is_shown_by_logging():
        print_notice(notice)


def print_notice(notice: Notice) -> None:
    print(notice, file=sys.stderr, flush=True)


def is_shown_by_logging() -> bool:
    """Whether a logger has a handler that shows lines to the user; one that drops, keeps or files them does not."""
    logger: logging.Logger | None = NOTICE
    while logger is not None:
        if any(map(_shows_lines, logger.handlers)):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _shows_lines(handler: logging.Handler) -> bool:
    if isinstance(handler, logging.StreamHandler):
        return handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return not isinstance(handler, logging.NullHandler)
