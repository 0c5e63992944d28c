"""A plan over rows in memory: the local engine computes the whole result at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.source import TableSource
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import ALWAYS, FOREVER, OPEN, Instant
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.pipeline import BATCH_ROWS, RunningPipeline
from strandline.runtime.result import from_result
from strandline.runtime.result_buffer import concat_results
from strandline.runtime.watermark import SourceStatus

_QUERY = "q"


class FrameSource(Source):
    """The rows of a frame, with their times; it ends after the last of them."""

    traits = Traits(True, True, True, "rows in memory")

    def __init__(self, stream: BaseStream, rows: pl.DataFrame) -> None:
        super().__init__(stream, None)
        self.rows = rows

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        end = min(position + limit_rows, self.rows.height)
        return end, end == self.rows.height

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        yield Chunk(self.rows.slice(start, end - start), pl.DataFrame(schema=REJECT_SCHEMA))


class FrameTable(TableSource):
    """The elements of a frame as a table: its log has them all when the query begins, with given times."""

    def __init__(self, stream: BaseStream, rows: pl.DataFrame) -> None:
        super().__init__(stream, None)
        begin = rows.with_row_index(ID).with_columns(pl.col(ID).cast(pl.Int64))
        begin = begin.with_columns(pl.col(FROM).alias(SINCE), pl.col(UNTIL).alias(CEASED))
        ends = begin.filter(pl.col(UNTIL) < FOREVER)
        is_open = pl.lit(OPEN, pl.Int64)
        self.log = pl.concat([begin.with_columns(is_open.alias(UNTIL), is_open.alias(CEASED)), ends])

    def statistics(self) -> StreamStatistics:
        return StreamStatistics()

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        return self.log.height, at_least

    def log_end(self) -> int:
        return self.log.height

    def last_change(self) -> Instant:
        return ALWAYS

    def rows_left(self, position: int) -> int | None:
        return None

    def seal(self, position: int) -> str:
        return ""

    def bytes_per_row(self) -> float:
        return 1.0

    def _parts(self, start: int, end: int, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        yield self.log.slice(start, end - start).select(names)


def run_in_memory(
    plan: Plan,
    streams: Sequence[BaseStream],
    rows: Callable[[str], pl.DataFrame],
    *,
    batch_rows: int = BATCH_ROWS,
    shards: int = 1,
    begin: Instant | None = None,
) -> pl.DataFrame:
    """The elements of the result by column id, with `@from` and `@until`.

    `rows` gives the rows of a stream that the plan reads, or the elements of a table. Time begins at `begin`, also for
    streams without a row; without it, with the first row.
    """
    pipeline = lower(_QUERY, optimize(plan), streams, shards)
    sources: dict[str, Source] = {
        stream.name: (FrameSource if stream.table is None else FrameTable)(stream, rows(stream.name))
        for stream in pipeline.streams
    }
    run = LocalRun(RunningPipeline(pipeline, batch_rows=batch_rows), sources=sources)
    if begin is not None:
        run.statuses = {name: SourceStatus(name, low=begin) for name in sources}
    tables = [table for report in run.batches() for table in report.results.get(_QUERY, ())]
    run.close()
    return from_result(concat_results(tables, schema(plan)), schema(plan))
