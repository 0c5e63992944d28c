"""Callback sink: results for a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from strandline.connectors.sinks.base import Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.traits import Traits
from strandline.core.types import Schema
from strandline.runtime.result import with_open_ends


@dataclass(frozen=True, slots=True)
class Callback(Sink):
    """Call `function(batch_id, table)` for every batch that brings results, in the driver's process.

    An element whose end is not known yet comes with NULL as `valid_until`. When it ends, a later batch has it again,
    with its end. One that never ends comes once.

    Delivery is at least once: after a crash the last batch may come again, with the same `batch_id` and the same rows;
    with the first batch, all elements that are open come again.
    """

    kind: ClassVar[str] = "callback"
    traits: ClassVar[Traits] = Traits(False, True, False, "at least once; a repeated batch has the same number")

    function: Callable[[int, pa.Table], None]

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        raise arguments.error("callback() needs a Python function: db.sql(…, sink=sl.Callback(function))")

    @property
    def takes_changes(self) -> bool:
        return True

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _CallbackWriter(self.function)


class _CallbackWriter(SinkWriter):
    def __init__(self, function: Callable[[int, pa.Table], None]) -> None:
        self._function = function

    def write(self, sink_batch: SinkBatch) -> None:
        table = with_open_ends(sink_batch.table, sink_batch.begin)
        if table.num_rows:
            self._function(sink_batch.batch, table)
