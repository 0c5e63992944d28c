"""Callback sink: results for a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from strandline.connectors.sinks.base import Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.traits import Traits
from strandline.core.types import Schema


@dataclass(frozen=True, slots=True)
class Callback(Sink):
    """Call `function(batch_id, table)` for every batch that brings results, in the driver's process.

    Delivery is at least once: after a crash the last batch may come again, with the same `batch_id` and the same rows.
    """

    kind: ClassVar[str] = "callback"
    traits: ClassVar[Traits] = Traits(False, True, False, "at least once; a repeated batch has the same number")

    function: Callable[[int, pa.Table], None]

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        raise arguments.error("callback() needs a Python function: db.sql(…, sink=sl.Callback(function))")

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _CallbackWriter(self.function)


class _CallbackWriter(SinkWriter):
    def __init__(self, function: Callable[[int, pa.Table], None]) -> None:
        self._function = function

    def write(self, sink_batch: SinkBatch) -> None:
        if sink_batch.table.num_rows:
            self._function(sink_batch.batch, sink_batch.table)
