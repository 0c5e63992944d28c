"""The sources of a pipeline as one Spark data source. Must stay light: see below.

Spark starts a Python process of its own for every streaming source and asks it for the latest offset. That process is
started by Spark, in local mode as a fork of the zygote (`launcher/zygote.py`), and imports this module while the user
waits for the query to start. So here are only requests and responses: offsets are planned in the driver's process
(`offset_server.py`), and input splits are read by `worker.py`, which the workers have imported before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "shard int, data binary"


class PipelinePartition(InputPartition):
    """One task of stage 0: the `number`th split of the batch between two offsets."""

    def __init__(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        self.number, self.start, self.end = number, start, end


class PipelineSource(DataSource):
    """All sources of a pipeline as one: one offset, one planner."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> PipelineReader:
        return PipelineReader(self.options["planner"], self.options["secret"], self.options["job"])


class PipelineReader(DataSourceStreamReader):
    """An offset is {"n": count of batches, "sources": {name: position}}; see `runtime/offsets.py`."""

    def __init__(self, planner: str, secret: str, job: str) -> None:
        self.planner, self.secret, self.job = planner, secret, job
        self._connection: Connection | None = None

    def initialOffset(self) -> dict[str, Any]:
        offset: dict[str, Any] = self._ask("beginning")
        return offset

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        offset: dict[str, Any] = self._ask("next", start)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [PipelinePartition(number, start, end) for number in range(self._ask("tasks", start, end))]

    def _ask(self, what: str, *about: dict[str, Any]) -> Any:
        if self._connection is None:
            self._connection = Client(self.planner, authkey=bytes.fromhex(self.secret))
        self._connection.send_bytes(json.dumps([what, *about]).encode())
        response = json.loads(self._connection.recv_bytes())
        if "error" in response:
            raise RuntimeError(response["error"])
        return response["value"]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from strandline.engines.spark.worker import read_split

        assert isinstance(partition, PipelinePartition)
        yield read_split(self.job, partition.number, partition.start, partition.end)
