"""What the tests of sources share: a source alone, a free port, patience."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

from strandline.connectors.sources.base import Source, open_source
from strandline.sql import ast
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.parser.statements import parse_one


def declared(columns: str, call: str, clauses: str = "ORDERED BY ts", directory: Path | None = None) -> Source:
    """The source of a stream that is declared so."""
    statement = parse_one(f"CREATE STREAM s {columns} SOURCE {call} {clauses}")
    assert isinstance(statement, ast.CreateStream)
    return open_source(bind_create_stream(statement), directory)


def free_port() -> int:
    """A port without a listener, below the ephemeral ones, which the system gives to connections."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
