"""Bytewax: a dataflow with state per key in Python, two processes of one worker each.

Its windows do not move with every event, and its join over intervals is not part of the free package, so the logic per
key is written out, as its guide does it with `StatefulBatchLogic`.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import bytewax.operators as op
import harness
import nexmark
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main
from harness import Delays, Job
from works import TABLES, WORKS
from works import WINDOW_US as W

PROCESSES = 2
BATCH = 4_096
Item = tuple[int, int, int, int]  # which stream, time, key, value


def start() -> None:
    return None


def version() -> str:
    return version_of("bytewax")


def _keyed(stream: int, columns: dict[str, list[int]]) -> list[tuple[str, Item]]:
    rows = zip(columns["t"], columns["k"], columns["v"], strict=True)
    return [(str(k), (stream, t, k, v)) for t, k, v in rows]


def _rows(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*columns.values(), strict=True))


def _batches(path: str) -> Iterator[Any]:
    """Pieces of a file, which lies in a directory of the name of its stream."""
    if path.endswith(".parquet"):
        yield from pq.ParquetFile(path).iter_batches(BATCH)
        return
    reading = pa_csv.ReadOptions(column_names=list(TABLES[Path(path).parent.name]))
    for batch in pa_csv.open_csv(path, read_options=reading):
        for first in range(0, batch.num_rows, BATCH):
            yield batch.slice(first, BATCH)


class Lane(StatefulSourcePartition[tuple[Any, ...], None]):
    def __init__(self, stream: int | None, path: str) -> None:
        self.stream, self.batches = stream, _batches(path)

    def next_batch(self) -> list[tuple[Any, ...]]:
        columns = next(self.batches).to_pydict()
        return _rows(columns) if self.stream is None else _keyed(self.stream, columns)

    def snapshot(self) -> None:
        return None


class Files(FixedPartitionedSource[tuple[Any, ...], None]):
    """The lanes of a stream: rows under their key with the number of the stream, or as they are."""

    def __init__(self, job: Job, number: int | None, stream: str) -> None:
        self.number, self.paths = number, job.files("lanes", stream)

    def list_parts(self) -> list[str]:
        return self.paths

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Lane:
        return Lane(self.number, for_part)


class PacedLane(StatefulSourcePartition[tuple[str, Item], None]):
    """Rows as their time comes, a hundred times a second."""

    def __init__(self, stream: int, lane: int, rate: int, seconds: int, keys: int) -> None:
        self.stream, self.lane, self.rate, self.total, self.keys = stream, lane, rate, rate * seconds, keys
        self.began, self.sent = time.time(), 0

    def next_batch(self) -> list[tuple[str, Item]]:
        if self.sent >= self.total:
            raise StopIteration
        ready = min(int((time.time() - self.began) * self.rate), self.total)
        numbers = range(self.sent, ready)
        self.sent = ready
        drawn = [n * 2_654_435_761 % (1 << 32) * PROCESSES % self.keys + self.lane for n in numbers]
        times = [int((self.began + n / self.rate) * 1e6) for n in numbers]
        return _keyed(self.stream, {"t": times, "k": drawn, "v": list(numbers)})

    def next_awake(self) -> datetime:
        return datetime.now(UTC) + timedelta(milliseconds=10)

    def snapshot(self) -> None:
        return None


class PacedRows(FixedPartitionedSource[tuple[str, Item], None]):
    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number

    def list_parts(self) -> list[str]:
        return [str(lane) for lane in range(PROCESSES)]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> PacedLane:
        keys = 100_000 if self.job.work == "join" else 1_000
        rate = self.job.rate // PROCESSES
        return PacedLane(self.number, int(for_part), rate, self.job.paced_seconds, keys)


class Logic(StatefulBatchLogic[Item, tuple[int, ...], None]):
    """Item after item of one key; each stream comes in order of time, one stream may be ahead of another."""

    @abstractmethod
    def take(self, item: Item, emit: Callable[[tuple[int, ...]], None]) -> None: ...

    def on_batch(self, values: list[Item]) -> tuple[list[tuple[int, ...]], bool]:
        found: list[tuple[int, ...]] = []
        for item in values:
            self.take(item, found.append)
        return found, StatefulBatchLogic.RETAIN

    def snapshot(self) -> None:
        return None


class Join(Logic):
    def __init__(self) -> None:
        self.kept: tuple[deque[tuple[int, int]], deque[tuple[int, int]]] = (deque(), deque())

    def take(self, item: Item, emit: Callable[[tuple[int, ...]], None]) -> None:
        stream, t, k, v = item
        others = self.kept[1 - stream]
        while others and others[0][0] <= t - W:  # no later row of this stream meets it either
            others.popleft()
        for u, w in others:
            if u - t >= W:
                break
            emit((k, v, w, max(t, u)) if stream == 0 else (k, w, v, max(t, u)))
        self.kept[stream].append((t, v))


class Join3(Logic):
    def __init__(self) -> None:
        self.kept: list[deque[tuple[int, int]]] = [deque(), deque(), deque()]
        self.latest = [-1, -1, -1]

    def take(self, item: Item, emit: Callable[[tuple[int, ...]], None]) -> None:
        stream, t, k, v = item
        self.latest[stream] = t
        one, two = (other for other in range(3) if other != stream)
        for side, third in ((one, two), (two, one)):
            dead = min(t, self.latest[third]) - W  # rows of both other streams complete a triple with it
            while self.kept[side] and self.kept[side][0][0] <= dead:
                self.kept[side].popleft()
        for u, w in self.kept[one]:
            if abs(u - t) < W:
                for x, y in self.kept[two]:
                    if abs(x - t) < W and abs(x - u) < W:
                        values = {stream: v, one: w, two: y}
                        emit((k, values[0], values[1], values[2]))
        self.kept[stream].append((t, v))


class Aggregate(Logic):
    def __init__(self) -> None:
        self.kept: deque[tuple[int, int]] = deque()
        self.total = 0

    def take(self, item: Item, emit: Callable[[tuple[int, ...]], None]) -> None:
        _, t, k, v = item
        kept = self.kept
        kept.append((t, v))
        self.total += v
        while kept[0][0] <= t - W:
            self.total -= kept.popleft()[1]
        emit((k, t, len(kept), self.total))


class Distinct(Logic):
    """A key is present from its first row to 10 s after the last one that follows in time."""

    def __init__(self) -> None:
        self.present: tuple[int, int, int] | None = None

    def take(self, item: Item, emit: Callable[[tuple[int, ...]], None]) -> None:
        _, t, k, _ = item
        if self.present is not None and t <= self.present[2]:
            self.present = (k, self.present[1], t + W)
            return
        if self.present is not None:
            emit(self.present)
        self.present = (k, t, t + W)

    def on_eof(self) -> tuple[list[tuple[int, ...]], bool]:
        return ([] if self.present is None else [self.present]), StatefulBatchLogic.DISCARD


LOGIC: dict[str, Callable[[], Logic]] = {"join": Join, "join3": Join3, "aggregate": Aggregate, "distinct": Distinct}


class Lines(StatelessSinkPartition[tuple[int, ...]]):
    def __init__(self, path: Path, width: int) -> None:
        self.file, self.width = path.open("w"), width

    def write_batch(self, items: list[tuple[int, ...]]) -> None:
        width = self.width
        self.file.writelines(",".join(map(str, item[:width])) + "\n" for item in items)

    def close(self) -> None:
        self.file.close()


class Clocked(StatelessSinkPartition[tuple[int, ...]]):
    def __init__(self, path: Path, column: int) -> None:
        self.file, self.column = path.open("w"), column

    def write_batch(self, items: list[tuple[int, ...]]) -> None:
        now = time.time() * 1e3
        self.file.writelines(f"{item[self.column] / 1e3},{now - item[self.column] / 1e3}\n" for item in items)

    def close(self) -> None:
        self.file.close()


class Out(DynamicSink[tuple[int, ...]]):
    def __init__(self, build: Callable[[Path], StatelessSinkPartition[tuple[int, ...]]], place: Path) -> None:
        self.make, self.place = build, place

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[tuple[int, ...]]:
        self.place.mkdir(parents=True, exist_ok=True)
        return self.make(self.place / f"{worker_index}.csv")


def _flow(job: Job, sources: list[FixedPartitionedSource[tuple[str, Item], None]], out: Out) -> Dataflow:
    flow = Dataflow("peer")
    inputs = [op.input(f"in{number}", flow, source) for number, source in enumerate(sources)]
    rows = op.merge("merge", *inputs) if len(inputs) > 1 else inputs[0]
    if job.work == "filter":
        found = op.flat_map_batch("keep", rows, lambda batch: [(k, v * 2) for _, (_, _, k, v) in batch if v < 100_000])
    else:
        found = op.map("values", op.stateful_batch("logic", rows, lambda _: LOGIC[job.work]()), lambda pair: pair[1])
    op.output("out", found, out)
    return flow


def _cluster(flow: Dataflow) -> None:
    """Two processes that know each other's address; forked, so that nothing is loaded twice."""
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(PROCESSES)]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=cluster_main, args=(flow, addresses, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"a Bytewax process ended with {[process.exitcode for process in processes]}")


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def _nexmark(job: Job, place: Path) -> None:
    flow = Dataflow("peer")
    streams = [op.input(stream, flow, Files(job, None, stream)) for stream in WORKS[job.work].streams]
    found = nexmark.QUERIES[job.work](*streams)
    op.output("out", found, Out(lambda path: Lines(path, len(WORKS[job.work].columns)), place / "out"))
    _cluster(flow)


def _run(job: Job, place: Path) -> None:
    sources = [Files(job, number, stream) for number, stream in enumerate(WORKS[job.work].streams)]
    _cluster(_flow(job, sources, Out(lambda path: Lines(path, len(WORKS[job.work].columns)), place / "out")))


def _paced(job: Job) -> Delays:
    """A result counts when the sink has it."""
    sources = [PacedRows(job, number) for number, _ in enumerate(WORKS[job.work].streams)]
    due = 3 if job.work == "join" else 1
    place = job.out / "paced"
    _cluster(_flow(job, sources, Out(lambda path: Clocked(path, due), place)))
    lines = [line.split(",") for path in place.glob("*.csv") for line in path.read_text().splitlines()]
    return [(float(when), float(delay)) for when, delay in lines]


RUNS = {**dict.fromkeys([*LOGIC, "filter"], _run), **dict.fromkeys(nexmark.QUERIES, _nexmark)}
PACED = {"join": _paced, "aggregate": _paced}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
