"""Streams without a time of their own: rows are valid when they arrive, by the driver's clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.connectors.sources.clock import SteadyClock
from strandline.core.errors import Span
from strandline.core.temporal import SECOND
from strandline.core.types import INT, Column
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, Catalog, ConnectorCall
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import frame_schema
from strandline.runtime.offsets import OffsetPlanner, SourceOffset, SourceOffsets, plan_splits
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import from_result
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import Answer, assert_exact, elements_of, examples

STREAM = BaseStream("s", (("x", INT),), ConnectorCall("test"), None)


class Feed(Source):
    """Numbers 0, 1, 2, …, as many at a time as the next of `sizes` says; they end with the sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(STREAM, None)
        self.sizes = list(sizes)

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        return (position + self.sizes.pop(0), False) if self.sizes else (position, True)

    def read(self, start: int, end: int, columns: frozenset[str]):  # type: ignore[no-untyped-def]
        shape = {"x": frame_schema((Column("x", "x", INT),))["x"]}
        yield Chunk(pl.DataFrame({"x": range(start, end)}, schema=shape), pl.DataFrame(schema=REJECT_SCHEMA))

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        return tuple(sorted({start + (end - start) * task // tasks for task in range(1, tasks)} - {start}))


class Clock:
    """Tells the given times one by one, and then the last one for ever."""

    def __init__(self, times: Sequence[int]) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def batches(sizes: Sequence[int], times: Sequence[int]) -> list[SourceOffsets]:
    """The positions after every batch, until the end."""
    advance = OffsetPlanner({"s": Feed(sizes)}, 100, 1, Clock(times))
    found = [advance.beginning()]
    for _ in range(100):
        after = advance.next(found[-1])
        if after != found[-1]:
            found.append(after)
        if after["s"].ended:
            return found
    raise AssertionError("the source has an end")


def test_a_batch_has_the_time_of_the_clock_and_time_never_goes_back() -> None:
    times = [50 * SECOND, 60 * SECOND, 10 * SECOND, 10 * SECOND, 70 * SECOND]
    arrived = [positions["s"].arrived for positions in batches([1, 1, 1, 1], times)]
    assert arrived == [0, 50 * SECOND, 60 * SECOND, 60 * SECOND + 1, 60 * SECOND + 2, 70 * SECOND]


def test_a_clock_that_is_set_back_does_not_stop_time() -> None:
    #   wall       100  101   41  42 … 160     set back by a minute, later set right
    #   monotonic    0    1    2   3 … 62
    #   steady     100  101  102 103 … 162     no standstill, and no jump when the clock is right again
    seconds = [(100, 0), (101, 1), (41, 2), (42, 3), (163, 63), (164, 64)]
    wall, monotonic = (iter([first * SECOND for first, _ in seconds]), iter([float(last) for _, last in seconds]))
    clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
    assert [clock() // SECOND for _ in seconds[1:]] == [101, 102, 103, 163, 164]


def test_time_goes_on_after_a_restart_with_a_clock_that_was_set_back() -> None:
    instants = [SECOND, 2 * SECOND, 3 * SECOND]
    elapsed = iter([0.0, 1.5, 3.0, 4.5])
    wall = iter([0, *instants])
    advance = OffsetPlanner({"s": Feed([0, 0, 0])}, 10, 1, SteadyClock(lambda: next(wall), lambda: next(elapsed)))
    position = SourceOffset(at=4, arrived=3600 * SECOND)
    told = []
    for _ in instants[:2]:
        position = advance.next({"s": position})["s"]
        told.append(position.arrived / SECOND)
    assert told == [3601.5, 3603.0]


def test_a_silent_stream_tells_the_time_once_a_second() -> None:
    times = [50 * SECOND + tenth * SECOND // 10 for tenth in range(31)]
    found = batches([1, *[0] * 29], times)
    assert [(p["s"].at, p["s"].arrived) for p in found[1:-1]] == [
        (1, 50 * SECOND),
        (1, 51 * SECOND),
        (1, 52 * SECOND),
    ]


def test_the_time_goes_through_the_offset_log() -> None:
    before, after = batches([2, 2], [7 * SECOND, 9 * SECOND])[:2]
    again = {name: SourceOffset.from_json(position.to_json()) for name, position in after.items()}
    assert plan_splits(before, again) == plan_splits(before, after)
    assert [piece.after.arrived for piece in plan_splits(before, again)] == [7 * SECOND]


QUERIES = (
    "SELECT x FROM s",
    "SELECT x FROM s [RANGE 5 MICROSECONDS] WHERE x % 2 = 0",
    "SELECT COUNT(*) AS n, MAX(x) AS m FROM s [RANGE 9 MICROSECONDS]",
    "SELECT x % 2 AS k, SUM(x) AS t FROM s [RANGE 7 MICROSECONDS SLIDE 3 MICROSECONDS] GROUP BY x % 2",
    "SELECT a.x, b.x AS y FROM s [RANGE 4 MICROSECONDS] a JOIN s [ROWS 3] b ON a.x <= b.x",
)


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 4), max_size=6),
    st.lists(st.integers(5, 40), min_size=1, max_size=6),
    st.sampled_from(QUERIES),
    st.integers(1, 3),
)
def test_every_answer_is_exact_for_the_times_of_arrival(
    sizes: list[int], times: list[int], text: str, shards: int
) -> None:
    catalog = Catalog()
    catalog.add(STREAM)
    statement = parse_one(text)
    assert isinstance(statement, ast.Select)
    plan = bind_query(statement, catalog)
    pipeline = lower("q", optimize(plan), [STREAM], shards)
    answer = Answer()
    running = RunningPipeline(pipeline)
    run = LocalRun(running, sources={"s": Feed(sizes)}, tasks=shards)
    run.planner.clock = Clock(times)
    elements: list[Element] = []
    while not running.ended:
        start = run.positions["s"].at
        report = run.step()
        for table in report.results.get("q", ()) if report is not None else ():
            answer.elements.extend(elements_of(from_result(table, schema(plan))))
        after = run.positions["s"]
        elements += [Element(after.arrived, {"x": x}) for x in range(start, after.at)]
    assert running.metrics.statuses["s"].late == 0
    assert running.metrics.statuses["s"].rows == sum(sizes)
    assert_exact(plan, {"s": elements}, answer)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_without_a_time(tmp_path: Path, ending: str) -> None:
    frame = pl.DataFrame({"x": ["1", "two", "3"]})
    frame.write_parquet(tmp_path / "in.parquet") if ending == "parquet" else frame.write_csv(tmp_path / "in.csv")
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (x INT) SOURCE file('{tmp_path}/in.{ending}')")
        listed, counted = database.sql("SELECT x FROM s"), database.sql("SELECT COUNT(*) AS n FROM s")
        assert listed.await_end(30) and counted.await_end(30)
        assert sorted(listed.results()["x"].to_pylist()) == [1, 3]
        assert [row["reason"] for row in listed.rejected("s").to_pylist()] == ["x: 'two' is not INT"]
        assert max(counted.results()["n"].to_pylist()) == 2


def test_a_silent_stream_holds_nobody_up(tmp_path: Path) -> None:
    """Its elements leave their windows while nothing arrives."""
    (tmp_path / "a.csv").write_text("x\n1\n")
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (x INT) SOURCE file('{tmp_path}/*.csv', follow => true)")
        query = database.sql("SELECT COUNT(*) AS n FROM s [RANGE 100 MILLISECONDS]")
        for _ in range(1_000):
            if query.results()["n"].to_pylist()[-1:] == [0]:
                break
            query.await_end(0.01)
        assert query.results()["n"].to_pylist() == [1, 0]
        os.close(os.open(tmp_path / "_END", os.O_CREAT))
        assert query.await_end(30)


def test_generated_rows_by_arrival() -> None:
    with sl.connect(engine="local", batch_rows=3) as database:
        database.sql("CREATE STREAM s (value BIGINT) SOURCE rate(total => 10, pace => false)")
        query = database.sql("SELECT value FROM s")
        assert query.await_end(30)
        frame = query.results("polars")
        assert frame.get_column("value").to_list() == list(range(10))
        assert frame.get_column("valid_from").n_unique() == 4, "four batches, four times"
