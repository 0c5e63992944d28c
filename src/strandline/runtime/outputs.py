"""The files that the driver delivers with a batch: results of queries, and late and rejected rows of streams.

Every file is whole and durable before it gets its name: a reader sees all of a batch or nothing of it. A file of the
same batch that an earlier attempt has left is replaced, or removed if there is none now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sinks.parquet_join import join_parquet
from strandline.core.durable import checksum_file, encode_name, sync_directory, sync_file
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.chain import DeliveredFile, OutputKind


def side_output(directory: Path, kind: str, stream: str) -> Path:
    """Where the late or rejected rows of a stream are kept."""
    return directory / f"_{kind}" / encode_name(stream)


def write_side_outputs(directory: Path | None, pipeline: Pipeline, report: BatchReport) -> Iterator[DeliveredFile]:
    """Write the late and the rejected rows of a batch, a file per stream, if there is a directory for them."""
    if directory is None:
        return
    # Other pipelines may read the same stream: the first query tells them apart.
    name = f"part-{encode_name(pipeline.queries[0].name)}-{report.batch:09d}.parquet"
    outputs: tuple[tuple[OutputKind, dict[str, list[pa.Table]]], ...] = (
        ("late", report.late),
        ("rejected", report.rejected),
    )
    for kind, by_stream in outputs:
        for stream, tables in by_stream.items():
            path = side_output(directory, kind, stream) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}")
            table = pa.concat_tables(tables)
            pq.write_table(table, temporary)
            sync_file(temporary)
            size, checksum = temporary.stat().st_size, checksum_file(temporary)
            os.replace(temporary, path)
            sync_directory(path.parent)
            yield DeliveredFile(kind, stream, path.name, size, checksum, table.num_rows)
        for stream in {stream.name for stream in pipeline.streams} - set(by_stream):
            (side_output(directory, kind, stream) / name).unlink(missing_ok=True)


def publish_results(directories: Mapping[str, Path], report: BatchReport) -> Iterator[DeliveredFile]:
    """Make the results that tasks have staged one file per query, and move it into place."""
    for query, directory in directories.items():
        final = directory / f"part-{report.batch:09d}.parquet"
        parts = sorted(report.staged.get(query, []), key=lambda part: part.path)
        if not parts:
            final.unlink(missing_ok=True)
            continue
        rows = sum(part.rows for part in parts)
        whole = Path(parts[0].path)
        if len(parts) == 1:
            size, checksum = parts[0].sums.size, parts[0].sums.checksum
            sync_file(whole)
        else:
            size, checksum = join_parquet([(Path(part.path), part.sums) for part in parts])
        os.replace(whole, final)
        sync_directory(directory)
        for part in parts[1:]:
            Path(part.path).unlink(missing_ok=True)
        yield DeliveredFile("result", query, final.name, size, checksum, rows)
