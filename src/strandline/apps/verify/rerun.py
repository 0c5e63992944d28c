"""Recorded rows through the local engine again: to see whether fewer of them show the same difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from strandline.apps.verify.record import Recorded
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.core.errors import Span
from strandline.engines.local import LocalRun
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import from_result, result_schema


class RecordedSource(Source):
    """Rows from memory."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__(recorded.stream, None)
        self.rows = recorded.rows

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        end = min(position + limit_rows, self.rows.height)
        return end, end == self.rows.height

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        yield Chunk(self.rows.slice(start, end - start), pl.DataFrame(schema=REJECT_SCHEMA))


def rerun(plan: Plan, streams: Sequence[Recorded], *, batch_rows: int, shards: int) -> pl.DataFrame:
    """The elements of the result over these rows, by column id, with `@from` and `@until`."""
    pipeline = lower("q", optimize(plan), [recorded.stream for recorded in streams], shards)
    sources = {r.stream.name: RecordedSource(r) for r in streams if r.stream in pipeline.streams}
    run = LocalRun(RunningPipeline(pipeline, batch_rows=batch_rows), sources=sources)
    tables = [table for report in run.batches() for table in report.results.get("q", ())]
    shape = result_schema(schema(plan))
    return from_result(pa.concat_tables([shape.empty_table(), *(t.cast(shape) for t in tables)]), schema(plan))
