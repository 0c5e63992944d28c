"""Sources and sinks of the syntax tree, and what statements declare of their rows."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.logical.catalog import Argument
from strandline.sql.ast.nodes import Identifier, Node, TypeName


@dataclass(frozen=True, slots=True)
class SourceValue(Node):
    """An argument of a source or sink as a plain value; a parenthesised row is a list."""

    value: Argument


@dataclass(frozen=True, slots=True)
class Connector(Node):
    """`fn(value, …, name => value, …)`: a source, or a sink."""

    function: Identifier
    arguments: tuple[SourceValue, ...]
    options: tuple[tuple[Identifier, SourceValue], ...]


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    name: Identifier
    type: TypeName


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """`rate = 5000`, `length = 60` or `distinct(column) = 100` in `WITH (…)`: a statistic for the planner."""

    name: Identifier
    column: Identifier | None
    value: float

    @property
    def about(self) -> tuple[str, str | None]:
        return self.name.name.lower(), None if self.column is None else self.column.name.lower()


@dataclass(frozen=True, slots=True)
class BadInput(Node):
    """`ON BAD INPUT SKIP`, `STOP`, `STOP AFTER n [ROWS]` or `STOP AFTER n PERCENT`: a share, then."""

    stops: bool
    most_rows: int | None = None
    most_share: float | None = None


@dataclass(frozen=True, slots=True)
class ChangesIn(Node):
    """`CHANGES IN column [PRIMARY KEY (column, …)]`."""

    op_column: Identifier
    key: tuple[Identifier, ...] = ()
