"""Ingestion: accept rows in order of arrival, advance the watermark, run stage 0 up to the first exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk, Source
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.catalog import WEIGHT, BaseStream
from strandline.planner.physical.plan import Fragment, Pipeline, ports
from strandline.runtime.edge_metrics import Meter
from strandline.runtime.exchange import DRIVER, Message, to_table
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Mask, Times, is_sorted, times
from strandline.runtime.kernels.compiled import working_seconds
from strandline.runtime.offsets import Piece
from strandline.runtime.operators.base import Progress
from strandline.runtime.stage import Outbox
from strandline.runtime.watermark import Heartbeat, progress_of
from strandline.shedding.sampler import drop, with_counts, with_setting


def ingest(
    pipeline: Pipeline,
    source: Source,
    piece: Piece,
    before: Mapping[str, Heartbeat],
    out: Outbox,
) -> Heartbeat:
    """Read an input split and send its rows to every shard; returns the source status of this task.

    Which rows are late depends on the order of arrival and nothing else: a row is late if it is older than the latest
    row before it in its partition by more than the declared disorder. The same rows are late whatever the batches,
    splits and order of partitions.
    """
    stream = source.stream
    beat = before.get(stream.name) or Heartbeat(stream.name)
    beat = replace(beat, kept=with_setting(beat.kept, beat.high, piece.shares))
    known = source.partitions(piece.end)
    if piece.start > piece.begin:
        # The first split continues the counts; the others add theirs and carry only the time reached before.
        reached = Heartbeat(stream.name, high=beat.high, partitions=beat.partitions, kept=beat.kept)
        if known is None:
            before_it = piece.arrived if stream.time_column is None else source.latest(piece.begin, piece.start)
            reached = replace(reached, high=max(beat.high, before_it))
        beat = reached
    if known is not None:
        partitions = {name: beat.partitions.get(name, BEFORE_ALL) for name in known}
        beat = replace(beat, partitions=partitions, resting=tuple(name for name, rests in known.items() if rests))
    floor = _floor(pipeline, stream.name, before)
    fragments = [f for f in pipeline.at(0) if ports(f.root)[0].name == f"source:{stream.name}"]
    wanted = frozenset(c.name for f in fragments for c in ports(f.root)[0].columns) - {WEIGHT}
    out.meter = Meter(piece.measure)
    if piece.start < piece.end:
        began = working_seconds()
        for chunk in source.read(piece.start, piece.end, wanted):
            out.count_reading(stream.name, chunk.rows.height, working_seconds() - began)
            beat = replace(beat, read=beat.read + chunk.count, high=max(beat.high, chunk.reached))
            if chunk.rejected.height:
                out.for_driver.append(Message("rejected", stream.name, DRIVER, table=to_table(chunk.rejected)))
                beat = replace(beat, rejected=beat.rejected + chunk.rejected.height)
            if chunk.rows.height:
                timed = _at_arrival(chunk, piece) if stream.time_column is None else chunk
                beat = _accept(stream, timed, beat, floor, fragments, dict(piece.shares), out)
            floor = max(floor, chunk.promise)
            began = working_seconds()
    beat = replace(_tell_time(beat, stream, floor, piece), measure=piece.measure)
    for bucket in range(pipeline.buckets):
        out.send(bucket, Message("heartbeat", stream.name, 1, facts=beat.to_json()))
    out.for_driver.append(Message("heartbeat", stream.name, DRIVER, facts=beat.to_json()))
    return beat


def _at_arrival(chunk: Chunk, piece: Piece) -> Chunk:
    """Stamp rows without a time column with the time of their batch, which is part of the offsets."""
    return replace(chunk, rows=chunk.rows.with_columns(pl.lit(piece.arrived, pl.Int64).alias(FROM)))


def _accept(
    stream: BaseStream,
    chunk: Chunk,
    beat: Heartbeat,
    floor: Instant,
    fragments: list[Fragment],
    shares: Mapping[str, float],
    out: Outbox,
) -> Heartbeat:
    rows = chunk.rows
    time = times(rows, FROM)
    late = late_rows(time, _high_before(chunk, beat, stream), stream.disorder_us, floor)
    late_count = int(late.sum())
    if late_count:
        kept = pl.Series(late)
        # The side output has the original row, also where the queries need only some columns.
        aside = (chunk.whole() if chunk.whole is not None else rows).filter(kept)
        out.for_driver.append(
            Message("late", stream.name, DRIVER, table=to_table(aside.drop(FROM, UNTIL, strict=False)))
        )
        rows = rows.filter(~kept)
        time = times(rows, FROM)
    if rows.height:
        if out.meter.wish:
            out.meter.look(f"source:{stream.name}", rows.with_columns(_until(rows)))
        left, dropped = drop(rows, stream.name, shares)
        for fragment in fragments:
            # One row in, one element out: stage 0 has neither state nor a watermark.
            batch = _elements(left.get(fragment.query, rows), fragment, shares.get(fragment.query, 1.0))
            runner = out.runner(fragment)
            out.route(fragment.route, runner.step(batch, Progress(FOREVER, kept={stream.name: beat.kept})).frame)
            out.count(fragment, runner)
        beat = replace(beat, dropped=with_counts(beat.dropped, dropped))
        high = int(time.max())
        beat = replace(beat, low=min(beat.low, int(time.min())), high=max(beat.high, high))
        if chunk.partition is not None:
            reached = max(beat.partitions[chunk.partition], high - stream.disorder_us)
            beat = replace(beat, partitions={**beat.partitions, chunk.partition: reached})
    return replace(beat, rows=beat.rows + rows.height, late=beat.late + late_count)


def _high_before(chunk: Chunk, beat: Heartbeat, stream: BaseStream) -> Instant:
    """The latest time before a chunk, in the order that the chunk continues."""
    if chunk.partition is None:
        return beat.high
    reached = beat.partitions[chunk.partition]
    return reached + stream.disorder_us if reached != BEFORE_ALL else BEFORE_ALL


def _elements(rows: pl.DataFrame, fragment: Fragment, share: float) -> dict[str, Batch]:
    """Rows as elements under the column ids of the plan: points in time, unless intervals are declared. At sampling
    rate `share` each stands for 1 / share rows."""
    port = ports(fragment.root)[0]
    weight = pl.lit(1.0 / share if share > 0 else 0.0)
    columns = [(weight if c.name == WEIGHT else pl.col(c.name)).alias(c.id) for c in port.columns]
    return {port.name: Batch(rows.select(*columns, pl.col(FROM), _until(rows)))}


def _until(rows: pl.DataFrame) -> pl.Expr:
    return pl.col(UNTIL) if UNTIL in rows.columns else (pl.col(FROM) + 1).alias(UNTIL)


def late_rows(time: Times, high: Instant, disorder_us: int, floor: Instant) -> Mask:
    """Mask of late rows: further behind the latest row than the allowed out-of-orderness, or behind the floor."""
    first_in_time = max(high - disorder_us if high != BEFORE_ALL else BEFORE_ALL, floor)
    if not len(time) or (time[0] >= first_in_time and is_sorted(time)):
        return np.zeros(len(time), dtype=np.bool_)
    latest_before = np.maximum.accumulate(np.concatenate(([high], time)))[:-1]
    bound = np.where(latest_before == BEFORE_ALL, BEFORE_ALL, latest_before - disorder_us)
    late: Mask = time < np.maximum(bound, floor)
    return late


def _tell_time(beat: Heartbeat, stream: BaseStream, floor: Instant, piece: Piece) -> Heartbeat:
    if piece.ended:
        return replace(beat, progress=FOREVER, idle=False, ended=True)
    progress = max(beat.progress, floor)
    if stream.time_column is None:
        return replace(beat, progress=max(progress, piece.arrived + 1))  # the next batch arrives later
    if beat.high != BEFORE_ALL:
        in_order = beat.slowest() if beat.partitions else beat.high - stream.disorder_us
        # An idle source is treated as complete: no earlier row is expected from it.
        progress = max(progress, beat.high + 1 if piece.idle else in_order)
    return replace(beat, progress=progress, idle=piece.idle)


def _floor(pipeline: Pipeline, stream: str, before: Mapping[str, Heartbeat]) -> Instant:
    """Watermark that the queries reached while this source was idle: older rows are late."""
    known = before.get(stream)
    if known is None or not known.idle:
        return BEFORE_ALL if known is None else known.progress
    reached = [progress_of(before, query.streams).until for query in pipeline.queries if stream in query.streams]
    return max([known.progress, *(r for r in reached if r < FOREVER)])
