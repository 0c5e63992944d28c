"""Callback sink: results for a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from strandline.connectors.sinks.base import Arguments, Delivered, Outlet, Sink
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
    def from_arguments(cls, arguments: Arguments) -> Self:
        raise arguments.error("callback() needs a Python function: db.sql(…, sink=sl.Callback(function))")

    def open(self, query: str, columns: Schema) -> Outlet:
        return _Calling(self.function)


class _Calling(Outlet):
    def __init__(self, function: Callable[[int, pa.Table], None]) -> None:
        self._function = function

    def take(self, delivered: Delivered) -> None:
        if delivered.table.num_rows:
            self._function(delivered.batch, delivered.table)
