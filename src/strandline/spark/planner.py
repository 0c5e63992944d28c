"""Answers, in the driver's process, what Spark asks the sources of a pipeline through `source.py`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from strandline.errors import StrandlineError
from strandline.execution.advance import Advance, Position, Positions, pieces
from strandline.execution.measuring import Wish
from strandline.execution.shedding import Shedder
from strandline.execution.sources.base import open_source
from strandline.physical.plan import Pipeline
from strandline.spark.failure import guarded
from strandline.temporary import remove_socket, socket_path


class Planner:
    """Serves the planning process of one running pipeline; ends with it."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: Path,
        batch_rows: int,
        shedder: Shedder | None = None,
        wish: Callable[[], Wish] = tuple,
    ) -> None:
        sources = {s.name: open_source(s, checkpoint / "sources" / s.name) for s in pipeline.streams}
        self._advance = Advance(sources, batch_rows, tasks=pipeline.buckets, shedder=shedder, wish=wish)
        # A Unix socket in a directory that only we can enter: Spark starts the other end on this machine.
        self._listener = Listener(socket_path("planner"))
        self.address = str(self._listener.address)
        self._open: list[Connection] = []
        threading.Thread(target=self._welcome, name="strandline-planner", daemon=True).start()

    @property
    def rows_left(self) -> int | None:
        return self._advance.rows_left

    def close(self) -> None:
        self._listener.close()
        remove_socket(self.address)
        for connection in self._open:
            connection.close()
        self._advance.close()

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):  # when the listener is closed
            while True:
                connection = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):  # when either end is closed
            while (asked := _heard(connection)) is not None:
                what, *about = json.loads(asked)
                connection.send_bytes(json.dumps(self._answer(what, about)).encode())

    def _answer(self, what: str, about: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            match what:
                case "beginning":
                    return {"value": _offset(0, self._advance.beginning())}
                case "next":
                    return {"value": self._next(about[0])}
                case "tasks":
                    return {"value": len(pieces(positions(about[0]), positions(about[1])))}
            raise AssertionError(f"nobody asks for {what}")
        except StrandlineError as error:
            return {"error": guarded(error)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _next(self, start: dict[str, Any]) -> dict[str, Any]:
        before = positions(start)
        after = self._advance.next(before)
        return start if after == before else _offset(start["n"] + 1, after)


def _heard(connection: Connection) -> bytes | None:
    """The next message; None when either end is closed. One that is closed in the middle of the call has no handle left
    to read from, and Python calls that a TypeError."""
    try:
        return connection.recv_bytes()
    except (OSError, EOFError, TypeError):
        return None


def positions(offset: Mapping[str, Any]) -> Positions:
    return {name: Position.from_json(position) for name, position in offset["sources"].items()}


def _offset(n: int, after: Positions) -> dict[str, Any]:
    return {"n": n, "sources": {name: position.to_json() for name, position in after.items()}}
