"""Sources with partitions: each is in an order of its own, and which is read first does not matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connectors.sinks.parquet_parts import open_result_writer
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.core.errors import Span
from strandline.core.temporal import BEFORE_ALL, FOREVER
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import SourceOffset, plan_splits
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import from_result
from strandline.runtime.stage import StageOutput
from strandline.runtime.watermark import SourceStatus, merge_statuses
from support import Answer, Arrivals, assert_exact, bind, elements_of, examples, moment

COLUMNS = (("x", VARCHAR), ("n", BIGINT), ("ts", TIMESTAMP))
Partitions = Sequence[Sequence[int]]  # the times of each partition's rows, in order of arrival


class PartitionedSource(Source):
    """Rows of several partitions. A round reads some of each, as many as the next of `rounds` says, and what is left in
    the end; a position is one reading of one partition. `resting` says which partitions rest in which round."""

    def __init__(
        self, partitions: Partitions, disorder: int, rounds: Sequence[Sequence[int]], resting: Mapping[int, set[int]]
    ) -> None:
        super().__init__(BaseStream("s", COLUMNS, ConnectorCall("test"), "ts", disorder), None)
        self.rows = partitions
        self.resting = resting
        self.reads: list[tuple[int, int, int, int]] = []  # round, partition, from, to
        at = [0] * len(partitions)
        rest = [len(times) for times in partitions]
        self.ends: list[int] = []
        for number, sizes in enumerate([*rounds, rest]):
            for p, size in enumerate(sizes[: len(partitions)]):
                to = min(at[p] + size, len(partitions[p]))
                self.reads.append((number, p, at[p], to))
                at[p] = to
            self.ends.append(len(self.reads))

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        end = next(end for end in self.ends if end > position)
        return end, end == self.ends[-1]

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        for _, p, begin, to in self.reads[start:end]:
            rows = [(f"p{p}", n, t, t) for n, t in enumerate(self.rows[p])][begin:to]
            kinds = {"x": pl.String, "n": pl.Int64, "ts": pl.Int64, "@from": pl.Int64}
            frame = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(pl.col("ts").cast(pl.Datetime("us")))
            yield Chunk(frame, pl.DataFrame(schema=REJECT_SCHEMA), partition=str(p))

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        return tuple(sorted({start + (end - start) * task // tasks for task in range(1, tasks)} - {start}))

    def partitions(self, end: int) -> Mapping[str, bool]:
        number = self.reads[end - 1][0] if end else 0
        return {str(p): p in self.resting.get(number, ()) for p in range(len(self.rows))}


def late_by_definition(times: Sequence[int], disorder: int) -> list[bool]:
    """Within one partition: older than the latest row before it by more than the disorder."""
    return [any(t < before - disorder for before in times[:i]) for i, t in enumerate(times)]


def run(source: PartitionedSource, text: str, tasks: int, shards: int) -> Answer:
    arrivals = Arrivals("s", COLUMNS, (), source.stream.disorder_us)
    plan = bind(text, [arrivals])
    pipeline = lower("q", optimize(plan), [source.stream], shards)
    answer = Answer()
    running = RunningPipeline(pipeline)
    for report in LocalRun(running, sources={"s": source}, tasks=tasks).batches():
        for table in report.results.get("q", ()):
            answer.elements += elements_of(from_result(table, schema(plan)))
        for rows in report.late.get("s", ()):
            answer.late.setdefault("s", []).extend(rows.table.to_pylist())
    answer.late_count = {"s": running.metrics.statuses["s"].late}
    return answer


partitions = st.lists(st.lists(st.integers(0, 30), max_size=10), min_size=1, max_size=4)
rounds = st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), max_size=5)
QUERY = "SELECT x, COUNT(*) AS n, SUM(n) AS total FROM s [RANGE 5 MICROSECONDS] GROUP BY x"


@settings(max_examples=examples(150))
@given(partitions, st.sampled_from((0, 2, 7)), rounds, st.integers(1, 4), st.integers(1, 2))
def test_whichever_partition_is_read_first_nobody_is_late_for_it(
    rows: Partitions, disorder: int, cut: list[list[int]], tasks: int, shards: int
) -> None:
    answer = run(PartitionedSource(rows, disorder, cut, {}), QUERY, tasks, shards)
    late, accepted = [], []
    for p, times in enumerate(rows):
        for n, (t, is_late) in enumerate(zip(times, late_by_definition(times, disorder), strict=True)):
            if is_late:
                late.append((f"p{p}", n))
            else:
                accepted.append(Element(t, {"x": f"p{p}", "n": n, "ts": moment(t)}))
    assert sorted((row["x"], row["n"]) for row in answer.late.get("s", [])) == late
    assert answer.late_count == {"s": len(late)}
    accepted.sort(key=lambda element: element.time)
    plan = bind(QUERY, [Arrivals("s", COLUMNS, (), disorder)])
    assert_exact(plan, {"s": tuple(accepted)}, answer)


def pipeline_of(source: Source) -> Pipeline:
    plan = bind("SELECT x FROM s", [Arrivals("s", COLUMNS, (), source.stream.disorder_us)])
    return lower("q", plan, [source.stream], 1)


def heartbeats(source: PartitionedSource, tasks: int = 1) -> list[SourceStatus]:
    """What is known of the time after each round."""
    pipeline = pipeline_of(source)
    before: dict[str, SourceStatus] = {}
    found: list[SourceStatus] = []
    position, ended = SourceOffset(), False
    while not ended:
        end, ended = source.advance(position.at, 100)
        after = SourceOffset(end, ended=ended, split_points=source.split_points(position.at, end, tasks))
        statuses = []
        for piece in plan_splits({"s": position}, {"s": after}):
            box = StageOutput(1, 0, open_result_writer(pipeline, {}, len(found), "0"))
            statuses.append(ingest(pipeline, source, piece, before, box))
        before = merge_statuses(statuses)
        found.append(before["s"])
        position = after
    return found


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_the_slowest_partition_tells_the_time(tasks: int) -> None:
    #   p0  5 9 | 12 |
    #   p1      | 3  | 20
    #   p2  1   | 11 | 12
    source = PartitionedSource([[5, 9, 12], [3, 20], [1, 11, 12]], 2, [[2, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 0]], {})
    progress = [status.watermark for status in heartbeats(source, tasks)]
    assert progress == [BEFORE_ALL, 1, 10, 10, FOREVER]


def test_a_partition_that_rests_holds_nobody_back_and_may_come_too_late_afterwards() -> None:
    rows = [[5, 9, 12, 30], [3, 4, 25]]
    source = PartitionedSource(rows, 0, [[2, 1], [1, 0], [0, 1], [1, 1]], {1: {1}})
    statuses = heartbeats(source)
    #   round 1: p1 rests, p0 has reached 12; round 2: p1 comes with 4, which is behind what was told
    assert [status.watermark for status in statuses[:4]] == [3, 12, 12, 25]
    assert [status.late for status in statuses[:4]] == [0, 0, 1, 1]


def test_a_heartbeat_goes_through_a_file() -> None:
    status = SourceStatus("s", 3, partitions={"0": 3, "1": 9}, resting=("1",))
    assert SourceStatus.from_json(status.to_json()) == status
    assert SourceStatus.from_json({"stream": "s"}) == SourceStatus("s"), "written before there were partitions"
    assert replace(status, resting=()).slowest() == 3 and status.slowest() == 3
    assert replace(status, resting=("0",)).slowest() == 9
