"""External sort by time: sorted runs on disk, and their merge.

Tasks write runs, each a file of rows sorted by time. To merge them, time is divided into ranges with about equally many
rows; each run is memory-mapped, and its part of a range is a slice of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather

from strandline.connectors.sources.journal import write_tables
from strandline.core.types import Type
from strandline.runtime.kernels.batch import Times
from strandline.runtime.kernels.columns import LEAST_INT64, polars_type

RUN_ROWS = 500_000
_SAMPLE = 1_000  # sampling interval of split points in a run


def write_runs(
    batches: Iterable[pa.RecordBatch], directory: Path, columns: Sequence[tuple[str, Type]], time: str | None
) -> Iterator[tuple[str, int]]:
    """Write rows as runs, with the types of the columns; the file of each and how many rows it has.

    A file has a name of its own: a task may run twice, and only one of the two is heard.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= RUN_ROWS:
            yield _write_run(waiting, directory, columns, time), rows
            waiting, rows = [], 0
    if rows:
        yield _write_run(waiting, directory, columns, time), rows


def _write_run(
    batches: list[pa.RecordBatch], directory: Path, columns: Sequence[tuple[str, Type]], time: str | None
) -> str:
    frame = pl.DataFrame(pa.Table.from_batches(batches))
    frame = frame.select(_typed(name, frame.schema[name], kind) for name, kind in columns)
    if time is not None:
        frame = frame.sort(_key(time), maintain_order=True)
    name = f"{uuid.uuid4().hex}.arrow"
    write_tables([frame.to_arrow()], directory / name)
    return name


def _typed(name: str, given: pl.DataType, kind: Type) -> pl.Expr:
    """A column in its declared type; instants with a zone are counted in UTC."""
    dtype = polars_type(kind)
    column = pl.col(name)
    if isinstance(given, pl.Datetime) and given.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif isinstance(given, pl.List) and isinstance(given.inner, pl.Datetime) and given.inner.time_zone is not None:
        column = column.list.eval(pl.element().dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return column.cast(dtype)


def _key(time: str) -> pl.Expr:
    """Sort key; rows without a time come first, and are rejected on reading."""
    return pl.col(time).to_physical().cast(pl.Int64).fill_null(LEAST_INT64)


def merged(paths: Sequence[Path], time: str | None, chunk_rows: int = RUN_ROWS) -> Iterator[pa.Table]:
    """All rows of the runs in order of their time, in tables of about `chunk_rows` rows."""
    runs = [feather.read_table(path, memory_map=True) for path in paths]
    if time is None:
        yield from runs
        return
    keys = [_keys(run, time) for run in runs]
    ends = [np.searchsorted(key, _cuts(keys, chunk_rows)) for key in keys]
    bounds = [[0, *end.tolist(), run.num_rows] for end, run in zip(ends, runs, strict=True)]
    for number in range(len(bounds[0]) - 1):
        parts = [run.slice(b[number], b[number + 1] - b[number]) for run, b in zip(runs, bounds, strict=True)]
        frame = pl.DataFrame(pa.concat_tables(parts))
        if frame.height:
            yield frame.sort(_key(time), maintain_order=True).to_arrow()


def _keys(run: pa.Table, time: str) -> Times:
    return pl.DataFrame(run.select([time])).select(_key(time)).to_series().to_numpy()


def _cuts(keys: Sequence[Times], chunk_rows: int) -> Times:
    """Times that divide the rows of all runs into ranges of about the requested size."""
    step = max(1, min(_SAMPLE, chunk_rows))
    samples = np.sort(np.concatenate([key[step - 1 :: step] for key in keys]))
    every = max(1, chunk_rows // step)
    return np.unique(samples[every - 1 :: every])
