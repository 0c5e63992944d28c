"""Ingestion: accept rows in order of arrival, advance the watermark, run stage 0 up to the first exchange."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from time import monotonic

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk, Source
from strandline.connectors.tables.source import TableSource
from strandline.core.temporal import ALWAYS, BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.logical.catalog import WEIGHT, BaseStream
from strandline.planner.physical.plan import Fragment, Pipeline, ports
from strandline.planner.physical.table_ends import tables_open_at_end
from strandline.runtime.arrival_rate import smooth_distance
from strandline.runtime.edge_metrics import EdgeProfiler
from strandline.runtime.exchange import DRIVER, Message, to_table
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Mask, Times, times
from strandline.runtime.kernels.compiled import cpu_seconds
from strandline.runtime.lateness import largest_lateness, late_for_sets, late_message, late_rows
from strandline.runtime.offsets import InputSplit
from strandline.runtime.operators.base import Watermark
from strandline.runtime.split_times import SplitTimes
from strandline.runtime.stage import OperatorError, StageOutput
from strandline.runtime.watermark import SetStatus, SourceStatus, StreamSet, lows_from, stream_set
from strandline.shedding.sampler import drop, with_counts, with_setting


def ingest(
    pipeline: Pipeline,
    source: Source,
    split: InputSplit,
    before: Mapping[str, SourceStatus],
    out: StageOutput,
    split_times: SplitTimes | None = None,
) -> SourceStatus:
    """Read an input split and send its rows to every shard; returns the source status of this task.

    Which rows are late depends on the order of arrival and nothing else: a row is late if it is older than the latest
    row before it in its partition by more than the declared disorder. The same rows are late whatever the batches,
    splits and order of partitions. After the source was idle, a row is also late for the queries that have gone on
    beyond it: by the streams that a query reads, so other queries do not matter. Through `split_times` the tasks of a
    batch report their latest times to each other.
    """
    # A second reader of a log has a name of its own.
    stream = source.stream if source.stream.name == split.stream else replace(source.stream, name=split.stream)
    if isinstance(source, TableSource):
        return _ingest_table(pipeline, source, split, before.get(stream.name), out)
    status = before.get(stream.name) or SourceStatus(stream.name)
    status = replace(status, was_over=status.ended)
    sampling_rates = split.after.sampling_rates
    if sampling_rates or status.rate_history:
        status = replace(status, rate_history=with_setting(status.rate_history, status.high, sampling_rates))
    source_partitions = source.partitions(split.end)
    fragments, columns = _readers(pipeline, stream.name)
    began = cpu_seconds()
    chunks: Iterable[Chunk] = source.read(split.start, split.end, columns) if split.start < split.end else ()
    latest_before = BEFORE_ALL
    if stream.time_column is not None and source_partitions is None and split.after.split_points:
        chunks, latest_before = _read_beside(source, split, chunks, split_times)
    status = status.with_floors(_sets_with(pipeline, stream), before)
    if split.start > split.begin:
        # The first split continues the totals; others start at zero and inherit only the times.
        high = status.high
        if source_partitions is None:
            high = max(high, split.after.arrived if stream.time_column is None else latest_before)
        status = SourceStatus(
            stream.name,
            status.watermark,
            high=high,
            partitions=status.partitions,
            rate_history=status.rate_history,
            was_over=status.was_over,
            by_set=tuple(SetStatus(one.streams, one.floor) for one in status.by_set),
        )
    if source_partitions is not None:
        partitions = {name: status.partitions.get(name, BEFORE_ALL) for name in source_partitions}
        status = replace(
            status, partitions=partitions, resting=tuple(name for name, is_idle in source_partitions.items() if is_idle)
        )
    floor = status.watermark
    out.profiler = EdgeProfiler(split.after.requested_metrics)
    for chunk in chunks:
        out.count_reading(stream.name, chunk.rows.height, cpu_seconds() - began)
        status = replace(status, read=status.read + chunk.count, high=max(status.high, chunk.reached))
        if chunk.rejected.height:
            out.for_driver.append(Message("rejected", stream.name, DRIVER, table=to_table(chunk.rejected)))
            status = replace(status, rejected=status.rejected + chunk.rejected.height)
        if chunk.rows.height:
            if stream.time_column is None:  # then rows have the time of their batch, which is part of the offsets
                arrived = pl.lit(split.after.arrived, pl.Int64).alias(FROM)
                chunk = replace(chunk, rows=chunk.rows.with_columns(arrived))
            status = _accept(pipeline, stream, chunk, status, floor, fragments, dict(sampling_rates), out)
        floor = max(floor, chunk.promise)
        began = cpu_seconds()
    return _report(pipeline, _advance_watermark(status, stream, floor, split), split, out)


def _read_beside(
    source: Source, split: InputSplit, chunks: Iterable[Chunk], split_times: SplitTimes | None
) -> tuple[Iterable[Chunk], Instant]:
    """The chunks of a split that is one of several, and the latest time in the splits before it."""
    points = [split.begin, *split.after.split_points, split.after.at]
    earlier = [(start, end) for start, end in pairwise(points) if end <= split.start]
    if split_times is None or not source.latest_by_reading(split.begin, split.after.at):
        return chunks, source.latest(split.begin, split.start) if earlier else BEFORE_ALL
    began = monotonic()
    chunks = list(chunks)
    split_times.report(split.number, max((chunk.latest for chunk in chunks), default=BEFORE_ALL))
    patience, highs = monotonic() - began, [BEFORE_ALL]
    for number, (start, end) in enumerate(earlier, split.number - len(earlier)):
        reported = split_times.wait_for(number, patience)
        highs.append(source.latest(start, end) if reported is None else reported)
    return chunks, max(highs)


def _sets_with(pipeline: Pipeline, stream: BaseStream) -> list[StreamSet]:
    """The sets of streams that queries wait for together, with a stream that may be idle while the others go on."""
    if stream.idle_after_us is None:
        return []
    sets = {query.streams for query in pipeline.queries if stream.name in query.streams and len(query.streams) > 1}
    return sorted(map(stream_set, sets))


def _readers(pipeline: Pipeline, stream: str) -> tuple[list[Fragment], frozenset[str]]:
    """The fragments that read a stream, and the columns of it that they need."""
    fragments = [f for f in pipeline.at(0) if ports(f.root)[0].name == f"source:{stream}"]
    return fragments, frozenset(c.name for f in fragments for c in ports(f.root)[0].columns) - {WEIGHT}


def _report(pipeline: Pipeline, status: SourceStatus, split: InputSplit, out: StageOutput) -> SourceStatus:
    """Send the status of a source to every shard, and to the driver."""
    after = split.after
    status = replace(status, requested_metrics=after.requested_metrics, announced=after.announced)
    for shard in range(pipeline.shards):
        if out.version is not None:
            out.send(shard, Message("version", "", 1, facts=dict(out.version)))
        out.send(shard, Message("watermark", status.stream, 1, facts=status.to_json()))
    if out.version is not None:
        out.for_driver.append(Message("version", "", DRIVER, facts=dict(out.version)))
    out.for_driver.append(Message("watermark", status.stream, DRIVER, facts=status.to_json()))
    return status


def _ingest_table(
    pipeline: Pipeline, source: TableSource, split: InputSplit, before: SourceStatus | None, out: StageOutput
) -> SourceStatus:
    """Send the changes of a table between two positions. None is late: each took effect when it was written, or later.

    When everything ends, what the table has left comes once more, as elements that never end, if that matters.
    """
    name, after = source.stream.name, split.after
    status = before or SourceStatus(name)
    status = replace(status, table=True, base=after.base, was_over=status.ended)
    fragments, columns = _readers(pipeline, name)
    out.profiler = EdgeProfiler(after.requested_metrics)
    began = cpu_seconds()
    rows = source.read_changes(split.start, split.end, after.base, columns)
    count = split.end - split.start  # some cancel each other before the query begins
    if split.end > after.base:
        status = replace(status, changed=max(status.changed, _last_change(rows)))
    if after.ended and name in tables_open_at_end(pipeline):
        rows = pl.concat([rows, source.read_live(split.end, after.base, columns)], rechunk=True)
    out.count_reading(name, rows.height, cpu_seconds() - began)
    if rows.height:
        if out.profiler.requested_metrics:
            out.profiler.record(f"source:{name}", rows)
        for fragment in fragments:
            _run_reader(pipeline, fragment, _elements(rows, fragment, 1.0), Watermark(FOREVER), out)
    watermark = FOREVER if after.ended else max(status.watermark, after.arrived)
    low = min(status.low, ALWAYS if after.base > 0 else after.arrived)
    if source.stream.table == "temporal":  # time begins with the first of its rows
        low = min(status.low, int(times(rows, FROM).min(initial=FOREVER)))
    status = replace(status, rows=status.rows + count, read=status.read + count, low=low, watermark=watermark)
    return _report(pipeline, replace(status, ended=after.ended), split, out)


def _last_change(rows: pl.DataFrame) -> Instant:
    """The instant of the last of some changes; `BEFORE_ALL` without one."""
    start, end = times(rows, FROM), times(rows, UNTIL)
    return int(np.where(end == OPEN, start, end).max(initial=BEFORE_ALL))


def _accept(
    pipeline: Pipeline,
    stream: BaseStream,
    chunk: Chunk,
    status: SourceStatus,
    floor: Instant,
    fragments: list[Fragment],
    sampling_rates: Mapping[str, float],
    out: StageOutput,
) -> SourceStatus:
    rows, time = chunk.rows, times(chunk.rows, FROM)
    high_before = _high_before(chunk, status, stream)
    late = late_rows(time, high_before, stream.disorder_us, floor)
    floors = {one.streams: one.floor for one in status.by_set if one.floor > floor}
    late_by_set = late_for_sets(time, late, floors)
    late_count = int(late.sum())
    # The side output has the original row, also where the queries need only some columns.
    whole = chunk.whole() if chunk.whole is not None and (late_count or late_by_set) else rows
    if (message := late_message(stream.name, whole, late, late_by_set)) is not None:
        out.for_driver.append(message)
        status = _count_late(status, time, high_before, late, late_by_set)
    if late_count:
        rows, time = rows.filter(pl.Series(~late)), time[~late]
        late_by_set = {streams: mask[~late] for streams, mask in late_by_set.items()}
    if rows.height:
        if out.profiler.requested_metrics:
            out.profiler.record(f"source:{stream.name}", rows.with_columns(_until(rows)))
        status = _run_stage_0(pipeline, stream.name, rows, late_by_set, status, fragments, sampling_rates, out)
        if chunk.partition is None:
            status = replace(status, distance=smooth_distance(status.distance, status.rows, status.high, time))
        high = int(time.max())
        beginnings = {fragment.since for fragment in fragments} - {BEFORE_ALL}
        lows = lows_from(status.lows, time, beginnings)
        status = replace(status, low=min(status.low, int(time.min())), lows=lows, high=max(status.high, high))
        status = replace(status, by_set=tuple(_lower(s, time, late_by_set, beginnings) for s in status.by_set))
        if chunk.partition is not None:
            reached = max(status.partitions[chunk.partition], high - stream.disorder_us)
            status = replace(status, partitions={**status.partitions, chunk.partition: reached})
    return replace(status, rows=status.rows + rows.height, late=status.late + late_count)


def _count_late(
    status: SourceStatus, time: Times, high_before: Instant, late: Mask, late_by_set: Mapping[StreamSet, Mask]
) -> SourceStatus:
    """The status with the largest lateness, and with the rows that are late for some queries only."""
    by_set = list(status.by_set)
    for number, one in enumerate(by_set):
        if (mask := late_by_set.get(one.streams)) is not None:
            lateness = max(one.lateness, largest_lateness(time, high_before, mask))
            by_set[number] = replace(one, late=one.late + int(mask.sum()), lateness=lateness)
    lateness = max(status.lateness, largest_lateness(time, high_before, late))
    return replace(status, lateness=lateness, by_set=tuple(by_set))


def _lower(
    one: SetStatus, time: Times, late_by_set: Mapping[StreamSet, Mask], beginnings: Collection[Instant]
) -> SetStatus:
    """The status for a set of streams with the earliest of the rows that are not late for it."""
    late = late_by_set.get(one.streams)
    own = time if late is None else time[~late]
    low = min(one.low, int(own.min(initial=FOREVER)))
    return replace(one, low=low, lows=lows_from(one.lows, own, beginnings))


def _run_stage_0(
    pipeline: Pipeline,
    stream: str,
    rows: pl.DataFrame,
    late_by_set: Mapping[StreamSet, Mask],
    status: SourceStatus,
    fragments: list[Fragment],
    sampling_rates: Mapping[str, float],
    out: StageOutput,
) -> SourceStatus:
    """Run the fragments that read a stream over accepted rows, without those that are late for their queries."""
    accepted: dict[frozenset[str], tuple[pl.DataFrame, dict[str, pl.DataFrame]]] = {}
    for fragment in fragments:
        # One row in, one element out: stage 0 has neither state nor a watermark.
        # A query that may drop rows has fragments of its own.
        query = fragment.queries[0]
        if fragment.streams not in accepted:
            mask = late_by_set.get(stream_set(fragment.streams))
            accepted[fragment.streams] = (rows if mask is None else rows.filter(pl.Series(~mask))), {}
        own, sampled = accepted[fragment.streams]
        if query in sampling_rates and query not in sampled:
            samples, dropped = drop(own, stream, {query: sampling_rates[query]})
            sampled |= samples
            if dropped:
                status = replace(status, dropped=with_counts(status.dropped, dropped))
        taken = _rows_since(sampled.get(query, own), fragment.since)
        if not taken.height or out.failed.issuperset(fragment.queries):
            continue
        batch = _elements(taken, fragment, sampling_rates.get(query, 1.0))
        watermark = Watermark(FOREVER, rate_history={stream: status.rate_history})
        _run_reader(pipeline, fragment, batch, watermark, out)
    return status


def _run_reader(
    pipeline: Pipeline, fragment: Fragment, batch: Mapping[str, Batch], watermark: Watermark, out: StageOutput
) -> None:
    """Run a fragment of stage 0. If it fails, so do the queries that need it; the others go on."""
    runner = out.runner(fragment)
    try:
        [result] = runner.step(batch, watermark)
    except OperatorError as failure:
        failed = frozenset(fragment.queries)
        if len(out.failed | failed) == len(pipeline.queries):
            raise failure.error from None
        out.fail(failed, failure.error)
        return
    out.route(fragment.route, result)
    out.count([fragment], runner)


def _rows_since(rows: pl.DataFrame, since: Instant) -> pl.DataFrame:
    """The rows with a time from an instant on."""
    return rows if since == BEFORE_ALL else rows.filter(pl.col(FROM) >= since)


def _high_before(chunk: Chunk, status: SourceStatus, stream: BaseStream) -> Instant:
    """The latest time before a chunk, in the order that the chunk continues."""
    if chunk.partition is None:
        return status.high
    reached = status.partitions[chunk.partition]
    return reached + stream.disorder_us if reached != BEFORE_ALL else BEFORE_ALL


def _elements(rows: pl.DataFrame, fragment: Fragment, sampling_rate: float) -> dict[str, Batch]:
    """Rows as elements under the column ids of the plan: points in time, unless intervals are declared. At sampling
    rate `sampling_rate` each stands for 1 / `sampling_rate` rows."""
    port = ports(fragment.root)[0]
    weight = pl.lit(1.0 / sampling_rate if sampling_rate > 0 else 0.0)
    columns = [(weight if c.name == WEIGHT else pl.col(c.name)).alias(c.id) for c in port.columns]
    return {port.name: Batch(rows.select(*columns, pl.col(FROM), _until(rows)))}


def _until(rows: pl.DataFrame) -> pl.Expr:
    return pl.col(UNTIL) if UNTIL in rows.columns else (pl.col(FROM) + 1).alias(UNTIL)


def _advance_watermark(status: SourceStatus, stream: BaseStream, floor: Instant, split: InputSplit) -> SourceStatus:
    if split.after.ended:
        return replace(status, watermark=FOREVER, idle=False, ended=True)
    watermark = max(status.watermark, floor)
    if stream.time_column is None:
        return replace(status, watermark=max(watermark, split.after.arrived + 1))  # the next batch arrives later
    if status.high != BEFORE_ALL:
        in_order = status.slowest() if status.partitions else status.high - stream.disorder_us
        # An idle source is treated as complete: no earlier row is expected from it.
        watermark = max(watermark, status.high + 1 if split.after.idle else in_order)
    return replace(status, watermark=watermark, idle=split.after.idle)
