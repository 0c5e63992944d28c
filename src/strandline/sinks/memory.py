"""Answers that stay in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from strandline.plugins import Traits
from strandline.sinks.base import Arguments, Outlet, Sink
from strandline.types import Schema


@dataclass(frozen=True, slots=True)
class Memory(Sink):
    """Keep the answer in this process; `Query.results()` and the like read it.

    The rows are kept beside the progress that goes with them, where all queries of a pipeline have theirs
    (`query.Group`): whoever looks sees both of one moment.
    """

    kind: ClassVar[str] = "memory"
    traits: ClassVar[Traits] = Traits(False, True, False, "kept in this process; a restart keeps only what is new")

    @classmethod
    def from_arguments(cls, arguments: Arguments) -> Self:
        arguments.done(most=0)
        return cls()

    def open(self, query: str, columns: Schema) -> Outlet:
        return Outlet()
