"""Declared columns of a stream or table: name resolution in the clauses of its CREATE, and what these require."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.core.errors import BindError
from strandline.core.types import Type
from strandline.logical.catalog import SourceSchema, StreamStatistics
from strandline.logical.change_feed import ChangeFeed
from strandline.sql import ast
from strandline.sql.binder.scope import suggestion

Columns: TypeAlias = tuple[tuple[str, Type], ...]

TIME_TYPES: Final = ("TIMESTAMP", "DATE", "BIGINT")


def declare_columns(
    word: str,
    name: ast.Identifier,
    definitions: tuple[ast.ColumnDefinition, ...],
    source: ast.Connector | None,
    source_schema: SourceSchema | None,
) -> DeclaredColumns:
    """The columns of a list, or those that the source provides where there is none. `word` is stream or table."""
    if not definitions and source_schema is not None:
        return DeclaredColumns(word, name.name, source_schema.columns)
    if not definitions:
        hint = f"Declare the columns: CREATE {word.upper()} {name.name} (column TYPE, …) SOURCE …."
        if source is None:
            raise name.error(f'{word} "{name.name}" needs a column list', "columns-missing", hint)
        raise source.error(f"{source.function.name}() needs a column list", "columns-missing", hint)
    seen: set[str] = set()
    for column in definitions:
        if column.name.name.lower() in seen:
            raise column.name.error(f'duplicate column "{column.name.name}"', "duplicate-column")
        seen.add(column.name.name.lower())
    return DeclaredColumns(word, name.name, tuple((column.name.name, column.type.type) for column in definitions))


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """The columns of a stream or table; `word` says which, for messages."""

    word: str
    name: str
    columns: Columns

    def find(self, identifier: ast.Identifier) -> tuple[str, Type]:
        """The column of a name, as it is spelled in the declaration."""
        for column in self.columns:
            if identifier.matches(column[0]):
                return column
        raise self._unknown(identifier)

    def find_time(self, identifier: ast.Identifier) -> str:
        name, kind = self.find(identifier)
        if kind.name not in TIME_TYPES:
            hint = "Use a TIMESTAMP, a DATE, or a BIGINT in microseconds since 1970."
            raise identifier.error(f'the time column "{name}" cannot be of type {kind}', "time-column-type", hint)
        return name

    def find_end(self, begin: ast.Identifier | None, end: ast.Identifier | None) -> str | None:
        """The column of UNTIL, if there is one."""
        if end is None or begin is None:
            return None
        name = self.find_time(end)
        if name == self.find_time(begin):
            hint = "Name two columns: an interval excludes its end, so the row would never be valid."
            raise end.error(f'"{name}" is both the start and the end of an interval', "empty-interval", hint)
        return name

    def find_all(self, identifiers: tuple[ast.Identifier, ...]) -> tuple[str, ...]:
        """The columns of a list that may name each of them once."""
        names: list[str] = []
        for identifier in identifiers:
            name, _ = self.find(identifier)
            if name in names:
                raise identifier.error(f'duplicate column "{name}"', "duplicate-column")
            names.append(name)
        return tuple(names)

    def change_feed(
        self, clause: ast.ChangesIn, key: tuple[ast.Identifier, ...], time_column: str | None
    ) -> ChangeFeed:
        """`CHANGES IN op`, with the primary key that identifies what changes."""
        op_column, kind = self.find(clause.op_column)
        if kind.name != "VARCHAR":
            hint = "Declare it VARCHAR, with values such as 'insert' and 'delete', '+' and '-', or 'c', 'u' and 'd'."
            message = f'the operation column "{op_column}" cannot be of type {kind}'
            raise clause.op_column.error(message, "operation-column-type", hint)
        for identifier in key:
            name, _ = self.find(identifier)
            if name in (op_column, time_column):
                what = "operation" if name == op_column else "time"
                hint = "Name columns that identify a row while it changes."
                raise identifier.error(f'"{name}" is the {what} of a change, not part of a key', "bad-key", hint)
        if all(name in (op_column, time_column) for name, _ in self.columns):
            hint = "Declare further columns: the operation and the time are not part of the rows that queries see."
            raise clause.error("a change feed needs columns that change", "columns-missing", hint)
        return ChangeFeed(op_column, self.find_all(key))

    def statistics(
        self, hints: tuple[ast.Hint, ...], has_intervals: bool, source_schema: SourceSchema | None
    ) -> StreamStatistics:
        """Statistics of `WITH (…)`, completed by those of the source."""
        rate = source_schema.rate if source_schema is not None else None
        length: float | None = None
        values: dict[str, float] = {}
        names = {name.lower(): name for name, _ in self.columns}
        for hint in hints:
            if hint.name.name.lower() == "rate":
                rate = hint.value
            elif hint.name.name.lower() == "length" and has_intervals:
                length = hint.value
            elif hint.column is not None:
                name = names.get(hint.column.name.lower())
                if name is None:
                    raise self._unknown(hint.column)
                values[name] = hint.value
            else:
                listing = (
                    "Hints are rate, in rows per second, distinct(column), its number of distinct values, and for"
                    f" {self.word}s with VALID FROM length, the mean validity in seconds."
                )
                raise hint.name.error(f'unknown hint "{hint.name.name}"', "unknown-hint", listing)
        return StreamStatistics(rate, values, length)

    def _unknown(self, identifier: ast.Identifier) -> BindError:
        hint = suggestion(identifier.name, [name for name, _ in self.columns], "Columns are")
        message = f'column "{identifier.name}" does not exist in {self.word} "{self.name}"'
        return identifier.error(message, "unknown-column", hint)
