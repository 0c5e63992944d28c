"""Prepared changes: statements that differ from an earlier one in their literals only are not parsed and bound again.

The key is the text without its numbers and texts. What follows from it, the table, its columns and where each literal
goes, is kept from the first statement; of the next, the literals are converted to the types of their columns. Whatever
is not plain, a value that does not fit among it, takes the long way, which has the error with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.connectors.tables.statements import DeleteRows, InsertRows, InsertValues, TableStatement, UpdateRows
from strandline.core.errors import Span, StrandlineError
from strandline.core.types import BOOLEAN, VARCHAR, Type
from strandline.database.at_once import ReadRows
from strandline.database.tables import to_table_statement
from strandline.logical.catalog import Catalog, Table
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, Value, conjunction
from strandline.sql import ast
from strandline.sql.binder.dml import bind_change
from strandline.sql.binder.insert_values import evaluate_default

LONGEST: Final = 4096  # characters of a statement; longer ones have many rows, and their time is that of the rows
MOST: Final = 512  # texts that are remembered
# A text, or a number that is no part of a name.
_LITERAL: Final = re.compile(r"('[^']*(?:''[^']*)*'|(?<![\w$.])(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_NOT_PLAIN: Final = ('"', "--", "/*", "'")  # outside of literals: names in quotes, and comments, may hide some
_BOUNDS: Final = {"INT": 2**31, "BIGINT": 2**63}
_KEY_TYPES: Final = ("INT", "BIGINT", "VARCHAR")


class _UnfitError(Exception):
    """The literal takes the long way."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a value comes from: the literal of a number, perhaps with a sign before it, or a constant."""

    column: str
    kind: Type
    literal: int | None
    negative: bool = False
    constant: Value = None

    def value(self, literals: Sequence[str], table: Table) -> Value:
        if self.literal is None:
            return self.constant
        return _CONVERSIONS.get(self.kind.name, _convert_other)(literals[self.literal], self, table)


_Slots: TypeAlias = tuple[_Slot, ...]


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A change of a table but for its literals; `place` is where its name stands in the text."""

    table: Table
    place: tuple[int, int]
    form: InsertRows | UpdateRows | DeleteRows
    rows: tuple[_Slots, ...] = ()
    assigned: _Slots = ()
    key: _Slots = ()

    def statement(self, literals: Sequence[str]) -> TableStatement:
        table = self.table
        if isinstance(self.form, InsertRows):
            rows = tuple(tuple(slot.value(literals, table) for slot in row) for row in self.rows)
            return InsertValues(rows, self.form.on_conflict, self.form.assignments, self.form.condition)
        predicate = conjunction(_equality(slot, literals, table) for slot in self.key)
        if isinstance(self.form, DeleteRows):
            return DeleteRows(predicate)
        values = ((slot.column, Literal(slot.value(literals, table), slot.kind)) for slot in self.assigned)
        return UpdateRows(tuple(values), predicate)


class PreparedChanges:
    """The prepared changes of a database, by their text without literals."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changes: dict[tuple[str, ...], PreparedChange | None] = {}

    def find(self, text: str) -> tuple[Table, TableStatement, Span] | None:
        """The change that a text asks for, with the place of its table; None if it takes the long way."""
        if len(text) > LONGEST:
            return None
        parts = _LITERAL.split(text)
        prepared = self._changes.get(tuple(parts[::2]))
        if prepared is None or not self._is_current(prepared.table):
            return None
        try:
            return prepared.table, prepared.statement(parts[1::2]), Span(text, *prepared.place)
        except (_UnfitError, StrandlineError):
            return None

    def learn(self, text: str, statement: ast.TableChange, read_rows: ReadRows) -> None:
        """Prepare for statements like one that has been executed."""
        if len(text) > LONGEST:
            return
        key = tuple(_LITERAL.split(text)[::2])
        known = self._changes.get(key)
        if key in self._changes and (known is None or self._is_current(known.table)):
            return
        if len(self._changes) >= MOST:
            self._changes.clear()
        is_plain = not any(mark in part for part in key for mark in _NOT_PLAIN)
        self._changes[key] = _prepare(text, statement, self._catalog, read_rows) if is_plain else None

    def _is_current(self, table: Table) -> bool:
        """False if the table was dropped, and perhaps declared again."""
        return table.name in self._catalog and self._catalog.get(table.name) is table


def _prepare(text: str, statement: ast.TableChange, catalog: Catalog, read_rows: ReadRows) -> PreparedChange | None:
    places = {match.start(): number for number, match in enumerate(_LITERAL.finditer(text))}
    table = catalog.get(statement.table.name)
    assert isinstance(table, Table), "a statement has changed it"
    place = (statement.table.span.start, statement.table.span.end)
    try:
        match statement:
            case ast.Insert(_, columns, ast.Values(rows), _, None):
                form = to_table_statement(bind_change(statement, catalog), read_rows)
                assert isinstance(form, InsertRows), "an insertion has rows"
                slots = tuple(_row_slots(table, columns, row, places) for row in rows)
                prepared = PreparedChange(table, place, form, slots)
            case ast.Update(_, None, items, ast.Binary() | ast.Logical() as where, None):
                assigned = tuple(_slot(table, item.column, item.value, places) for item in items)
                prepared = PreparedChange(table, place, UpdateRows(()), (), assigned, _key_slots(table, where, places))
            case ast.Delete(_, None, ast.Binary() | ast.Logical() as where, None):
                prepared = PreparedChange(table, place, DeleteRows(), key=_key_slots(table, where, places))
            case _:
                return None
        used = [slot.literal for row in (*prepared.rows, prepared.assigned, prepared.key) for slot in row]
        # A literal elsewhere, as in ON CONFLICT … WHERE, is part of what was bound.
        return prepared if sorted(n for n in used if n is not None) == list(range(len(places))) else None
    except (_UnfitError, StrandlineError):
        return None


def _row_slots(
    table: Table, columns: Sequence[ast.Identifier], row: Sequence[ast.NewValue], places: Mapping[int, int]
) -> _Slots:
    """The values of all columns of a row."""
    names = [_find(table, name) for name in columns] if columns or not row else [name for name, _ in table.columns]
    given = dict(zip(names, row, strict=True))
    return tuple(
        _value_slot(table, name, kind, given[name], places)
        if name in given
        else _Slot(name, kind, None, constant=table.defaults.get(name))
        for name, kind in table.columns
    )


def _key_slots(table: Table, where: ast.Expression, places: Mapping[int, int]) -> _Slots:
    """The primary key, where a condition has a literal for each of its columns, and nothing else."""
    parts = where.operands if isinstance(where, ast.Logical) and where.operator == "AND" else (where,)
    slots: list[_Slot] = []
    for part in parts:
        match part:
            case ast.Binary("=", ast.ColumnName(None, column), value):
                slots.append(_slot(table, column, value, places))
            case _:
                raise _UnfitError
    is_key = sorted(slot.column for slot in slots) == sorted(table.unique_key)
    if not is_key or any(slot.literal is None or slot.kind.name not in _KEY_TYPES for slot in slots):
        raise _UnfitError
    return tuple(slots)


def _slot(table: Table, column: ast.Identifier, value: ast.NewValue, places: Mapping[int, int]) -> _Slot:
    name = _find(table, column)
    return _value_slot(table, name, table.column_type(name), value, places)


def _value_slot(table: Table, name: str, kind: Type, value: ast.NewValue, places: Mapping[int, int]) -> _Slot:
    match value:
        case ast.Number() | ast.Text():
            return _Slot(name, kind, places[value.span.start])
        case ast.Unary("-", ast.Number() as number):
            return _Slot(name, kind, places[number.span.start], negative=True)
        case ast.Null() | ast.Truth() | ast.Default():
            return _Slot(name, kind, None, constant=evaluate_default(table, name, value))
        case _:
            raise _UnfitError


def _find(table: Table, column: ast.Identifier) -> str:
    return next(name for name, _ in table.columns if column.matches(name))


def _equality(slot: _Slot, literals: Sequence[str], table: Table) -> Expression:
    assert slot.literal is not None, "keys are compared with literals"
    if slot.kind == VARCHAR and literals[slot.literal][0] != "'":
        raise _UnfitError  # a number may be assigned to a text, but not compared with one
    return Call("=", (ColumnRef(slot.column, slot.kind), Literal(slot.value(literals, table), slot.kind)), BOOLEAN)


# ---- conversions -----------------------------------------------------------------------------------------------------


def _convert_integer(literal: str, slot: _Slot, table: Table) -> Value:
    if not literal.isdecimal() or (value := int(literal)) >= _BOUNDS[slot.kind.name]:
        raise _UnfitError
    return -value if slot.negative else value


def _convert_double(literal: str, slot: _Slot, table: Table) -> Value:
    # The nearest DOUBLE, as of the exact number that it denotes, which has no negative zero.
    if literal[0] == "'" or len(literal) > 20 or not math.isfinite(value := float(literal)):
        raise _UnfitError
    if slot.negative and not value:
        raise _UnfitError
    return -value if slot.negative else value


def _convert_text(literal: str, slot: _Slot, table: Table) -> Value:
    if literal[0] != "'" or not literal.isascii():
        return _convert_other(literal, slot, table)
    return literal[1:-1].replace("''", "'")


def _convert_other(literal: str, slot: _Slot, table: Table) -> Value:
    """What the binder makes of it."""
    span = Span(literal, 0, len(literal))
    node: ast.Expression
    if literal[0] == "'":
        text = literal[1:-1].replace("''", "'")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _UnfitError
        node = ast.Text(text, span=span)
    else:
        node = ast.Number(literal, span=span)
    return evaluate_default(table, slot.column, ast.Unary("-", node, span=span) if slot.negative else node)


_CONVERSIONS: Final[Mapping[str, Callable[[str, _Slot, Table], Value]]] = {
    "INT": _convert_integer,
    "BIGINT": _convert_integer,
    "DOUBLE": _convert_double,
    "VARCHAR": _convert_text,
}
