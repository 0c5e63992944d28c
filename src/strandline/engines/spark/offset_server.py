"""Offset server: serves, in the driver's process, the requests of Spark's source processes (`source.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from strandline.core.errors import StrandlineError
from strandline.core.temporary import remove_socket, socket_path
from strandline.engines.spark.failure import seal_error
from strandline.runtime.catch_up import check_level
from strandline.runtime.checkpoint.replay import forget_replayed, planned_again
from strandline.runtime.checkpoint.verify import resume_sources
from strandline.runtime.offsets import PipelineOffset, plan_splits
from strandline.runtime.pipeline import RunningPipeline

_CLOSE_SECONDS = 2.0


class OffsetServer:
    """Serves the planning process of one running pipeline; ends with it."""

    def __init__(self, pipeline: RunningPipeline, secret: str) -> None:
        assert pipeline.chain is not None, "it was opened with a checkpoint"
        self._chain = pipeline.chain
        self.planned_at: float | None = None  # when the last batch was, by `time.monotonic`
        self._graph = graph = pipeline.graph
        # Spark begins with a batch: the one that was not over, or the first, even if there is nothing to read.
        graph.runs_batch = self._chain.last_offset is None or not self._chain.is_committed
        sources = resume_sources(graph.version, self._chain.path, self._chain.last_offset)
        self._planner = pipeline.open_planner(sources, tasks=pipeline.physical.shards)
        # A Unix socket in a private directory, with the secret of the run: Spark starts the other end on this machine.
        self._secret = secret
        self._listener = Listener(socket_path("planner"), authkey=bytes.fromhex(secret))
        self.address = str(self._listener.address)
        self._open: list[Connection] = []
        self._closing = threading.Event()
        self._welcoming = threading.Thread(target=self._accept_connections, name="strandline-planner", daemon=True)
        self._welcoming.start()

    @property
    def rows_left(self) -> int | None:
        return self._planner.rows_left

    def close(self) -> None:
        """End the threads before their sockets are closed: a blocked call would continue on a reused descriptor."""
        self._closing.set()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as knock:
            knock.connect(self.address)
        self._welcoming.join(_CLOSE_SECONDS)
        self._listener.close()
        remove_socket(self.address)
        for connection in self._open:
            _hang_up(connection)
        self._planner.close()

    def _accept_connections(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue  # a stranger, or the end
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(OSError), connection:  # when either end is closed
            while (asked := _heard(connection)) is not None:
                what, *about = json.loads(asked)
                connection.send_bytes(json.dumps(self._respond(what, about)).encode())

    def _respond(self, what: str, about: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            match what:
                case "beginning":
                    return {"value": PipelineOffset(0, self._planner.beginning()).to_json()}
                case "next":
                    return {"value": self._next(about[0])}
                case "tasks":
                    before, after = (read_offset(data, self._chain.path) for data in about)
                    return {"value": len(plan_splits(before.positions, after.positions))}
            raise AssertionError(f"unknown request {what}")
        except StrandlineError as error:
            return {"error": seal_error(error, self._secret)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _next(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset of the next batch; `start` itself if there is nothing new."""
        self._chain.lease.check()
        before = read_offset(start, self._chain.path)
        with self._graph.planning() as is_free:
            planned = self._plan(before) if is_free else None
            if planned is None:
                return start
            self._graph.runs_batch = True
        self.planned_at = time.monotonic()
        return planned.to_json()

    def _plan(self, before: PipelineOffset) -> PipelineOffset | None:
        """The offset of the batch after an offset; None if there is nothing new."""
        forget_replayed(self._chain.path, before.batch)
        after = self._chain.before(before.n)
        planned = planned_again(self._chain.path, before)
        if planned is not None:
            return replace(planned, after=after)
        version, reference = self._graph.version, self._graph.reference
        # Of a query without any batch Spark makes one in any case.
        required = reference != before.version or before.n == 0 or self._planner.has_work
        begin = version.positions_of(before.positions, before.version.number)
        if reference != before.version:
            streams = {stream.name for stream in version.pipeline.streams}
            check_level(before.positions, version.queries_since(before.version.number), streams)
        end = self._planner.next(begin, required=required)
        if not required and end == begin:
            return None
        budget = self._planner.decide_budget(begin, end, version.pipeline)
        return PipelineOffset(before.n + 1, end, after, reference, budget)


def _hang_up(connection: Connection) -> None:
    """Shut down a connection, so that its reader ends; that thread closes it."""
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


def _heard(connection: Connection) -> bytes | None:
    """The next message; None when either end is closed. One that is closed in the middle of the call has no handle left
    to read from, and Python calls that a TypeError."""
    try:
        return connection.recv_bytes()
    except (OSError, EOFError, TypeError):
        return None


def read_offset(data: Mapping[str, Any], checkpoint: Path) -> PipelineOffset:
    """An offset that comes from Spark's log."""
    batch = data.get("n")
    name = str(batch - 1) if isinstance(batch, int) else ""
    return PipelineOffset.from_json(data, checkpoint / "spark" / "offsets" / name)
