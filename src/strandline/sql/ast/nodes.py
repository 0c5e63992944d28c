"""The base of the syntax tree: nodes with their place in the text, names, types and durations."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from strandline.core.errors import BindError, Span
from strandline.core.types import Type


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the syntax tree and its place in the text."""

    span: Span = field(kw_only=True, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The user's own words."""
        return self.span.text[self.span.start : self.span.end]

    def error(self, message: str, code: str, hint: str | None = None) -> BindError:
        """An error of the binder at this place; the caller raises it."""
        return BindError(message, code=code, hint=hint, span=self.span)


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A name. Quoted, it means exactly this spelling; unquoted, any mixture of upper and lower case."""

    name: str
    quoted: bool = False

    def matches(self, declared: str) -> bool:
        return self.name == declared if self.quoted else self.name.lower() == declared.lower()


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type as written, resolved: `DOUBLE PRECISION` and `REAL` are DOUBLE, the length of a VARCHAR is dropped."""

    type: Type


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """`10 SECONDS`, `INTERVAL '10' SECOND` or `'10 seconds'` in microseconds."""

    microseconds: int


def children(node: Node) -> list[Node]:
    """The nodes directly below, in the order of the text."""
    names = _FIELDS.get(type(node))
    if names is None:
        names = _FIELDS[type(node)] = tuple(part.name for part in fields(node) if part.name != "span")
    below: list[Node] = []
    for name in names:
        _add_nodes(getattr(node, name), below)
    return below


_FIELDS: Final[dict[type[Node], tuple[str, ...]]] = {}  # by class, since statements may have very many nodes


def _add_nodes(value: object, below: list[Node]) -> None:
    if isinstance(value, Node):
        below.append(value)
    elif isinstance(value, tuple):
        for part in value:
            _add_nodes(part, below)
