"""What files tell the planner: the rate of their rows, and the numbers of distinct values of their columns.

Parquet has row counts in its footers. Of text, of values and of times, a sample decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from strandline.connectors.sources.conversion import conform
from strandline.connectors.sources.files.content import DamagedContent
from strandline.connectors.sources.files.inference import regular_files, spread
from strandline.connectors.sources.files.parquet import without_panics
from strandline.connectors.sources.files.planning import PLAN_ERRORS, FileOptions, declared_paths, read_group_sizes
from strandline.connectors.sources.files.sampling import sample_file
from strandline.connectors.sources.files.tracking import FollowedDirectory
from strandline.connectors.sources.files.units import ListedFile
from strandline.connectors.sources.sampled_values import LEAST_ROWS, estimate_statistics
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.runtime.kernels.batch import FROM, times

FOOTERS: Final = 100  # files whose footers are read
SAMPLED: Final = 3  # files of which rows are read
SAMPLE_ROWS: Final = 10_000


def file_statistics(folder: FollowedDirectory, options: FileOptions, files: Sequence[ListedFile]) -> StreamStatistics:
    """Statistics of the files that are there now; nothing where they cannot be read, or have few rows."""
    files = regular_files(folder, files)
    kinds = {options.kind_of(file.path) for file in files}
    if len(kinds) != 1 or None in kinds:
        return StreamStatistics()
    try:
        if kinds == {"parquet"}:
            return _of_parquet(folder, options.stream, files)
        return _of_text(folder, options, files, kinds.pop() or "")
    except (*PLAN_ERRORS, DamagedContent):
        return StreamStatistics()


def _of_parquet(folder: FollowedDirectory, stream: BaseStream, files: Sequence[ListedFile]) -> StreamStatistics:
    chosen = spread(files, FOOTERS)
    sizes = {file: _count_rows(folder.full(file.path), stream, file.size) for file in chosen}
    intact = [file for file in chosen if sizes[file] > 0]
    rows = sum(sizes.values()) * len(files) // max(len(chosen), 1)
    if rows < LEAST_ROWS or not intact:
        return StreamStatistics()
    names = [name for name, _ in stream.columns if name not in stream.time_columns and "." not in name]
    with without_panics:
        frames = [_scan(folder, file).select(names).head(SAMPLE_ROWS).collect() for file in spread(intact, SAMPLED)]
        ends = [
            _scan(folder, intact[0]).select(stream.time_columns).head(SAMPLE_ROWS).collect(),
            _scan(folder, intact[-1]).select(stream.time_columns).tail(SAMPLE_ROWS).collect(),
        ]
    low, high = _span(pl.concat(ends, how="vertical_relaxed"), stream)
    return estimate_statistics(pl.concat(frames, how="vertical_relaxed"), rows, low, high)


def _scan(folder: FollowedDirectory, file: ListedFile) -> pl.LazyFrame:
    return pl.scan_parquet(folder.full(file.path), glob=False, hive_partitioning=False, use_statistics=False)


def _count_rows(path: str, stream: BaseStream, size: int) -> int:
    """Rows of a file by its footer; 0 where libraries cannot be trusted with it."""
    groups = read_group_sizes(path, declared_paths(stream), size)
    return 0 if any(problem is not None for _, problem in groups) else sum(count for count, _ in groups)


def _span(frame: pl.DataFrame, stream: BaseStream) -> tuple[Instant, Instant]:
    """The first and the last time in some rows."""
    if stream.time_column is None or stream.time_column not in frame.columns:
        return FOREVER, BEFORE_ALL
    only = replace(stream, columns=tuple((n, k) for n, k in stream.columns if n in stream.time_columns), changes=None)
    instants = times(conform(frame.select(only.time_columns), only, "", 1).rows, FROM)
    return (int(instants.min()), int(instants.max())) if len(instants) else (FOREVER, BEFORE_ALL)


def _of_text(
    folder: FollowedDirectory, options: FileOptions, files: Sequence[ListedFile], kind: str
) -> StreamStatistics:
    stream = options.stream
    chosen = spread(files, SAMPLED)
    samples = [sample_file(folder.full(file.path), kind, options) for file in chosen]
    names = [name for name, _ in stream.columns]
    if kind == "csv" and not options.header:
        for sample in samples:
            sample.columns = dict(zip(names, sample.columns.values(), strict=False))
    frames = [
        pl.DataFrame({name: sample.columns[name] for name in names if name in sample.columns}) for sample in samples
    ]
    frame = pl.concat([frame for frame in frames if frame.height] or frames, how="diagonal")
    share = sum(max(file.size, 0) for file in chosen) / max(sum(max(file.size, 0) for file in files), 1)
    rows = int(sum(sample.total for sample in samples) / max(share, 1e-9))
    if rows < LEAST_ROWS:
        return StreamStatistics()
    low, high = _span(frame, stream)
    return estimate_statistics(frame.drop(stream.time_columns, strict=False), rows, low, high)
