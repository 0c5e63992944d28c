"""Declared streams and functions, and what we know about them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from strandline.errors import CatalogError, Span
from strandline.types import Type

if TYPE_CHECKING:
    from strandline.algebra.operators import Plan
    from strandline.algebra.user import UserFunction

Argument: TypeAlias = str | int | float | bool | list["Argument"] | None


@dataclass(frozen=True, slots=True)
class SourceCall:
    """`SOURCE fn(...)` as the user wrote it: the function, its positional and its named arguments."""

    function: str
    arguments: tuple[Argument, ...] = ()
    options: Mapping[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BaseStream:
    """A stream that comes from outside: its columns, its source and the promise about its order."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    source: SourceCall
    time_column: str
    disorder_us: int = 0
    idle_after_us: int | None = None

    def column_type(self, name: str) -> Type:
        return dict(self.columns)[name]


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """A query with a name; other queries read it like a stream.

    A derived stream that is read is inlined, so the plan shows base streams only. `reads` keeps the names of the
    streams, base and derived, that the query itself reads.
    """

    name: str
    plan: Plan
    text: str
    reads: frozenset[str]


Stream: TypeAlias = BaseStream | DerivedStream


class Catalog:
    """The streams, and the functions of the user's, by name.

    Names are case-insensitive, as SQL's are, and streams keep the user's spelling for display.
    """

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self.functions: dict[str, UserFunction] = {}

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._streams

    def get(self, name: str, span: Span | None = None) -> Stream:
        stream = self._streams.get(name.lower())
        if stream is None:
            near = difflib.get_close_matches(name.lower(), self._streams, n=1)
            if near:
                hint = f'Did you mean "{self._streams[near[0]].name}"?'
            else:
                hint = "Declare it first: CREATE STREAM name (columns) SOURCE … ORDERED BY column."
            raise CatalogError(f'stream "{name}" does not exist', code="unknown-stream", hint=hint, span=span)
        return stream

    def add(self, stream: Stream, span: Span | None = None) -> None:
        if stream.name in self:
            raise CatalogError(
                f'stream "{stream.name}" exists already',
                code="stream-exists",
                hint=f"Choose another name, or DROP STREAM {stream.name} first.",
                span=span,
            )
        self._streams[stream.name.lower()] = stream

    def add_function(self, function: UserFunction) -> None:
        if function.name in self.functions:
            raise CatalogError(
                f"there is a function {function.name} already", code="function-exists", hint="Choose another name."
            )
        self.functions[function.name] = function

    def drop(self, name: str, span: Span | None = None) -> Stream:
        """Remove a stream that nothing else reads. Direct readers are enough: none of them goes before its own."""
        stream = self.get(name, span)
        dependants = [s.name for s in self if isinstance(s, DerivedStream) and reads(s, stream)]
        if dependants:
            raise CatalogError(
                f'stream "{stream.name}" is still read by {", ".join(dependants)}',
                code="stream-in-use",
                hint="Drop the dependants first.",
                span=span,
            )
        return self._streams.pop(name.lower())


def reads(derived: DerivedStream, stream: Stream) -> bool:
    """Whether the query of `derived` names `stream`, in whatever case."""
    return stream.name.lower() in {name.lower() for name in derived.reads}
