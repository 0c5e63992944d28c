"""Task-side writer of Parquet results.

A task stages its Parquet file next to the final directory; the driver concatenates the files of all tasks and moves the
result there once the whole batch is done. The name has the batch and the task, so a replayed batch replaces its own
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sinks.parquet_join import PartSums, sum_part
from strandline.core.durable import encode_name
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.exchange import DRIVER, Message, ResultWriter
from strandline.runtime.result import to_result


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Directory of a query's result and its staging directory, on the same file system."""

    directory: str
    staging: str


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file of a task that waits for the end of its batch."""

    path: str
    rows: int
    sums: PartSums

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StagedFile:
        return StagedFile(data["path"], data["rows"], PartSums(**data["sums"]))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Whole numbers and times as packed differences: smaller than compressed, and half the work."""
    packed = [field.name for field in table.schema if _is_whole(field.type)]
    texts = [field.name for field in table.schema if pa.types.is_large_string(field.type)]
    pq.write_table(
        table,
        path,
        compression={name: "none" if name in packed else "lz4" for name in table.column_names},
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        use_dictionary=texts,
    )


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def open_result_writer(pipeline: Pipeline, targets: Mapping[str, ParquetTarget], batch: int, task: str) -> ResultWriter:
    """Function that turns results into messages of this task."""
    columns = {query.name: query.columns for query in pipeline.queries}

    def write_result(query: str, frame: pl.DataFrame) -> Message:
        table = to_result(frame, columns[query])
        target = targets.get(query)
        if target is None:
            return Message("result", query, DRIVER, table=table)
        staged = Path(target.staging) / f"{encode_name(query)}-{batch:09d}-{task}.staged"
        staged.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(table, staged)
        file = StagedFile(str(staged), table.num_rows, sum_part(staged))
        return Message("file", query, DRIVER, facts=asdict(file))

    return write_result
