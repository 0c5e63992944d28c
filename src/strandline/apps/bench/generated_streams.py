"""Generated streams with known statistics, to compare the model with measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar, cast, get_args

import numpy as np
import polars as pl

from strandline.connectors.sinks.parquet_parts import open_result_writer
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import SECOND, instant
from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP, Type
from strandline.logical.catalog import BaseStream, Catalog, ConnectorCall, StreamStatistics
from strandline.logical.plan import Plan
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Pipeline, ports
from strandline.runtime.exchange import decode, encode
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch
from strandline.runtime.operators.base import Watermark
from strandline.runtime.stage import FragmentRunner, StageOutput
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one

Figure = TypeVar("Figure", int, float)

START: Final = instant("2024-01-01 00:00:00")


@dataclass(frozen=True, slots=True)
class GeneratedStream:
    """A generated stream: rows per second, its key columns with their distinct values, and measure columns."""

    name: str
    rate: int
    keys: Mapping[str, int] = field(default_factory=dict)
    measures: tuple[str, ...] = ("v",)

    @property
    def columns(self) -> tuple[tuple[str, Type], ...]:
        keys = ((name, BIGINT) for name in self.keys)
        return (*keys, *((name, DOUBLE) for name in self.measures), ("t", TIMESTAMP))

    @property
    def stream(self) -> BaseStream:
        return BaseStream(
            self.name, self.columns, ConnectorCall("made"), "t", statistics=StreamStatistics(self.rate, self.keys)
        )

    def rows(self, number: int, seconds: float) -> pl.DataFrame:
        """The rows of one batch, in order of time, the same in every run: values at random, times evenly."""
        draw = np.random.default_rng([number, *self.name.encode()])
        first, last = (round(n * seconds * self.rate) for n in (number, number + 1))
        at = START + (np.arange(first, last, dtype=np.int64) * SECOND + draw.integers(0, SECOND)) // self.rate
        at = np.maximum(at, START + round(number * seconds * SECOND))
        at = np.minimum(at, START + round((number + 1) * seconds * SECOND) - 1)
        keys = {name: draw.integers(0, values, len(at)) for name, values in self.keys.items()}
        measures = {name: draw.random(len(at)) for name in self.measures}
        return pl.DataFrame({**keys, **measures, "t": at, FROM: at}).with_columns(pl.col("t").cast(pl.Datetime("us")))


class GeneratedSource(Source):
    """A source over rows that lie in memory: position n is after the nth batch."""

    traits: ClassVar[Traits] = Traits(True, True, True, "made for a benchmark")

    def __init__(self, made: GeneratedStream, batches: Sequence[pl.DataFrame]) -> None:
        super().__init__(made.stream, None)
        self.batches = batches

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        return min(position + 1, len(self.batches)), position >= len(self.batches)

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        rejected = pl.DataFrame(schema=REJECT_SCHEMA)
        for batch in self.batches[start:end]:
            yield Chunk(batch.select(*(c for c in batch.columns if c in columns), FROM), rejected)


def statistics_of(streams: Sequence[GeneratedStream]) -> dict[str, StreamStatistics]:
    return {made.name: made.stream.statistics for made in streams}


def bound(text: str, streams: Sequence[GeneratedStream]) -> Plan:
    return bind_over(text, [made.stream for made in streams])


def bind_over(text: str, streams: Sequence[BaseStream]) -> Plan:
    """The logical plan of a query over these streams."""
    catalog = Catalog()
    for stream in streams:
        catalog.add(stream)
    statement = parse_one(text)
    assert isinstance(statement, get_args(ast.Query)), "a benchmark has queries only"
    return bind_query(cast(ast.Query, statement), catalog)


class TimedRun:
    """A pipeline in one shard, batch after batch, with the CPU seconds of every operator and every exchange."""

    def __init__(self, pipeline: Pipeline, keep: Callable[[pl.DataFrame], None] = lambda rows: None) -> None:
        assert pipeline.shards == 1, "operators are timed in one shard"
        self.keep = keep
        self.pipeline = pipeline
        self.runners = {fragment.id: FragmentRunner(fragment.root) for fragment in pipeline.fragments}
        self.forget()

    def forget(self) -> None:
        """Reset the counters after the state is filled."""
        self.sending = dict.fromkeys(self.runners, 0.0)
        self.results = 0  # elements
        for runner in self.runners.values():
            runner.seconds, runner.passed = [0.0] * len(runner.operators), [0] * len(runner.operators)

    def seconds(self) -> dict[str, float]:
        return self._by_step(lambda runner: runner.seconds)

    def passed(self) -> dict[str, int]:
        return self._by_step(lambda runner: runner.passed)

    def state_rows(self) -> dict[str, int]:
        return self._by_step(lambda runner: [state.rows() for state in runner.save()])

    def _by_step(self, figures: Callable[[FragmentRunner], Sequence[Figure]]) -> dict[str, Figure]:
        return {
            f"{name}.{number}": figure
            for name, runner in self.runners.items()
            for number, figure in enumerate(figures(runner))
        }

    def step(self, rows: Mapping[str, pl.DataFrame], until: int) -> None:
        waiting: dict[str, Batch] = {}
        for fragment in self.pipeline.fragments:
            inputs = {}
            for port in ports(fragment.root):
                if port.name.startswith("source:"):
                    frame = rows[port.name.removeprefix("source:")]
                    columns = [pl.col(c.name).alias(c.id) for c in port.columns]
                    inputs[port.name] = Batch(frame.select(*columns, FROM, (pl.col(FROM) + 1).alias(UNTIL)))
                elif port.name in waiting:
                    inputs[port.name] = waiting[port.name]
            out = self.runners[fragment.id].step(inputs, Watermark(until, START))[0]
            began = time.process_time()
            output = StageOutput(1, 0, open_result_writer(self.pipeline, {}, 0, "0"))
            output.route(fragment.route, out)
            output.close()
            if isinstance(fragment.route, physical.ExchangeTo):
                for message in decode(encode(output.by_shard.get(0, []))):
                    waiting[message.name] = Batch(message.frame)
            else:
                self.results += len(out)
                self.keep(out.frame)
            self.sending[fragment.id] += time.process_time() - began
