"""Task-side writer of Parquet results.

A task stages its Parquet file next to the final directory; the driver concatenates the files of all tasks and moves the
result there once the whole batch is done. The name has the batch and the task, so a replayed batch replaces its own
files. Elements whose end is not known are not part of the result yet; where all of them are announced, they are staged
as another file.
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
from strandline.core.temporal import FOREVER, OPEN
from strandline.core.types import Schema
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.exchange import DRIVER, Message, ResultWriter
from strandline.runtime.kernels.batch import UNTIL, keep, times
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


def stage_file(table: pa.Table, path: Path) -> StagedFile:
    """Write a file that gets its place at the end of the batch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(table, path)
    return StagedFile(str(path), table.num_rows, sum_part(path))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def open_result_writer(pipeline: Pipeline, targets: Mapping[str, ParquetTarget], batch: int, task: str) -> ResultWriter:
    """Function that turns results into messages of this task."""
    return _TaskWriter({query.name: query.columns for query in pipeline.queries}, targets, f"{batch:09d}-{task}")


class _TaskWriter:
    def __init__(self, columns: Mapping[str, Schema], targets: Mapping[str, ParquetTarget], part: str) -> None:
        self.columns, self.targets, self.part = columns, targets, part
        self.sent: Mapping[str, Schema] = {query: own for query, own in columns.items() if query not in targets}

    def __call__(self, query: str, frame: pl.DataFrame, announced: bool) -> list[Message]:
        columns, target = self.columns[query], self.targets.get(query)
        if target is None:
            return [Message("result", query, DRIVER, table=to_result(frame, columns))]
        messages: list[Message] = []
        path = f"{target.staging}/{encode_name(query)}-{self.part}"
        is_open = times(frame, UNTIL) == OPEN
        ended, still_open = keep(frame, ~is_open), keep(frame, is_open)
        if ended.height:
            facts = asdict(stage_file(to_result(ended, columns), Path(f"{path}.staged")))
            messages.append(Message("file", query, DRIVER, facts=facts))
        if still_open.height:
            file = None
            if announced:
                without_end = still_open.with_columns(pl.lit(FOREVER, pl.Int64).alias(UNTIL))
                file = asdict(stage_file(to_result(without_end, columns), Path(f"{path}.open")))
            messages.append(Message("open", query, DRIVER, facts={"rows": still_open.height, "file": file}))
        return messages
