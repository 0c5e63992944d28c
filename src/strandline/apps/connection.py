"""Databases and signals of commands."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import strandline
from strandline.apps.console import say_notice
from strandline.core.errors import StrandlineError
from strandline.core.notices import Notice
from strandline.core.security.allow import Allow

if TYPE_CHECKING:
    from strandline.database.database import Database


class Stopped(Exception):
    """The user or the system requested a stop."""


def parse_engine(name: str) -> Literal["spark", "local"]:
    match name:
        case "spark" | "local":
            return name
    raise StrandlineError(f'unknown engine "{name}"', code="usage", hint="Engines are spark and local.")


def connect_engine(engine: str, allow: list[str] | None, **options: Any) -> Database:
    """A database whose notices go to the console of the command."""
    database = strandline.connect(engine=parse_engine(engine), allow=Allow.parse(allow or ()), **options)
    return to_console(database)


def to_console(database: Database) -> Database:
    """Show the notices of a database on the console of the command, each once."""
    database.catalog.notices.show = _say_once()
    return database


def _say_once() -> Callable[[Notice], None]:
    """Print notices, each text once: the queries of a script may have the same to say of the stream that they share."""
    said: set[str] = set()

    def say(notice: Notice) -> None:
        if (text := str(notice)) not in said:
            said.add(text)
            say_notice(notice)

    return say


@contextmanager
def stoppable() -> Iterator[None]:
    """A TERM signal ends a run as cleanly as Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
