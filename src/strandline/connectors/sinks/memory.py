"""Memory sink: results that stay in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from strandline.connectors.sinks.base import Sink, SinkArguments, SinkWriter
from strandline.connectors.traits import Traits
from strandline.core.errors import SinkError
from strandline.core.types import Schema
from strandline.runtime.result_buffer import DEFAULT_LIMIT, ResultBuffer


@dataclass(frozen=True, slots=True)
class Memory(Sink):
    """Keep the result in this process, for `Query.results()`.

    The rows are stored with their watermark by the pipeline: readers see both of one moment. Of more than `keep`
    elements those that ended first are evicted, but none that is valid; None keeps everything. With `keep_us` those
    are evicted that ended so many microseconds before the watermark.
    """

    kind: ClassVar[str] = "memory"
    traits: ClassVar[Traits] = Traits(False, True, False, "in this process; a restart has only new results")

    keep: int | None = DEFAULT_LIMIT
    keep_us: int | None = None

    def __post_init__(self) -> None:
        Sink.__post_init__(self)
        if self.keep is not None and self.keep < 1:
            raise SinkError(
                f"keep of a memory sink must be at least 1, not {self.keep}",
                code="sink-argument",
                hint="Set keep to a number of elements, or None (in SQL NULL) for all of them.",
            )

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        keep = arguments.option("keep", (int, type(None)), DEFAULT_LIMIT)
        arguments.done(most=0)
        if keep is not None and keep < 1:
            raise arguments.error("keep of memory() must be at least 1, or NULL for all elements")
        return cls(keep)

    @property
    def takes_changes(self) -> bool:
        return True

    def make_buffer(self, columns: Schema, in_fragments: bool) -> ResultBuffer:
        return ResultBuffer(columns, self.keep, in_fragments=in_fragments, keep_us=self.keep_us)

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return SinkWriter()
