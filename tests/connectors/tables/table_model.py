"""The slow twin of a table: statements over a list of Python rows, one row at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from strandline.connectors.tables.statements import (
    DeleteRows,
    InsertRows,
    InsertValues,
    MergeRows,
    ReplaceContent,
    TableStatement,
    UpdateRows,
    incoming,
)
from strandline.connectors.tables.store import TableStore
from strandline.core.temporal import OPEN, Instant
from strandline.core.types import BIGINT, BOOLEAN, VARCHAR
from strandline.functions.evaluate import evaluate
from strandline.logical.catalog import Table
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal

Row: TypeAlias = tuple[Any, ...]
COLUMNS = (("k", BIGINT), ("v", BIGINT), ("s", VARCHAR))
NAMES = [name for name, _ in COLUMNS]
SCHEMA = {"k": pl.Int64(), "v": pl.Int64(), "s": pl.String()}

K, V, S = (ColumnRef(name, kind) for name, kind in COLUMNS)
NEW_K, NEW_V, NEW_S = (ColumnRef(incoming(name), kind) for name, kind in COLUMNS)


class RefusedError(Exception):
    """The statement must be refused, with this code."""


def table_in(directory: Path, key: Sequence[str] = ("k",), **settings: Any) -> Table:
    return Table("t", COLUMNS, tuple(key), directory=str(directory), **settings)


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


def text(value: str) -> Literal:
    return Literal(value, VARCHAR)


def call(function: str, *arguments: Expression, kind: Any = BOOLEAN) -> Call:
    return Call(function, arguments, kind)


def equal(left: Expression, right: Expression) -> Call:
    return call("=", left, right)


def plus(left: Expression, right: Expression) -> Call:
    return call("+", left, right, kind=BIGINT)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self, at: Instant = 1_000_000) -> None:
        self.at = at

    def __call__(self) -> Instant:
        return self.at


def rows_of(frame: pl.DataFrame) -> Counter[Row]:
    return Counter(frame.select(NAMES).rows())


@dataclass
class TableModel:
    """The rows, and the content after each instant at which they changed."""

    key: tuple[str, ...] = ("k",)
    rows: list[Row] = field(default_factory=list)
    past: dict[Instant, Counter[Row]] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def apply(self, statement: TableStatement, at: Instant | Callable[[], Instant]) -> None:
        """Change the rows; all or nothing."""
        result = self._effect(statement)
        self._check(result)
        self.rows = result
        self.past[at if isinstance(at, int) else at()] = Counter(result)

    def at(self, instant: Instant) -> Counter[Row]:
        earlier = [time for time in self.past if time <= instant]
        return self.past[max(earlier)] if earlier else Counter()

    def _key_of(self, row: Row) -> Row:
        return tuple(row[NAMES.index(name)] for name in self.key)

    def _check(self, rows: Sequence[Row]) -> None:
        self._check_nulls(rows)
        if not self.key:
            return
        keys = [self._key_of(row) for row in rows]
        if len(set(keys)) < len(keys):
            raise RefusedError("duplicate-key")

    def _check_nulls(self, rows: Sequence[Row]) -> None:
        if any(None in self._key_of(row) for row in rows):
            raise RefusedError("null-key")
        if any(row[NAMES.index(name)] is None for row in rows for name in self.required):
            raise RefusedError("null-value")

    def _effect(self, statement: TableStatement) -> list[Row]:
        match statement:
            case InsertRows():
                return self._inserted(statement)
            case InsertValues():
                return self._inserted(statement.with_columns(SCHEMA))
            case UpdateRows(assignments, predicate):
                return [_assigned(row, assignments) if _holds(predicate, row) else row for row in self.rows]
            case DeleteRows(predicate):
                return [row for row in self.rows if not _holds(predicate, row)]
            case MergeRows():
                return self._merged(statement)
            case ReplaceContent(rows):
                return list(rows.rows())

    def _inserted(self, statement: InsertRows) -> list[Row]:
        result = list(self.rows)
        touched: set[Row] = set()
        self._check_nulls(statement.rows.rows())  # also of rows that a conflict would keep out
        for row in statement.rows.rows():
            key = self._key_of(row)
            places = [place for place, old in enumerate(result) if self.key and self._key_of(old) == key]
            is_plain = not statement.assignments and statement.condition is None
            if statement.on_conflict == "update" and key in touched and self.key and not is_plain:
                raise RefusedError("duplicate-key")
            touched.add(key)
            if not places:
                result.append(row)
            elif statement.on_conflict == "error":
                raise RefusedError("duplicate-key")
            elif statement.on_conflict == "update":
                old = result[places[0]]
                values = _named(old) | {incoming(name): value for name, value in zip(NAMES, row, strict=True)}
                if statement.condition is None or evaluate(statement.condition, values) is True:
                    result[places[0]] = row if not statement.assignments else _set(old, statement.assignments, values)
        return result

    def _merged(self, statement: MergeRows) -> list[Row]:
        result: list[Row | None] = list(self.rows)
        added: list[Row] = []
        touched: set[int] = set()
        for row in statement.rows.rows():
            source = {incoming(name): value for name, value in zip(NAMES, row, strict=True)}
            matches = [
                place
                for place, old in enumerate(self.rows)
                if evaluate(statement.condition, _named(old) | source) is True
            ]
            places: list[int] | list[None] = matches or [None]
            for place in places:
                values = source if place is None else _named(self.rows[place]) | source
                for branch in statement.branches:
                    if branch.is_matched != (place is not None):
                        continue
                    if branch.condition is not None and evaluate(branch.condition, values) is not True:
                        continue
                    if branch.action == "insert":
                        added.append(_set((None,) * len(NAMES), branch.assignments, values))
                    elif branch.action != "nothing":
                        assert place is not None
                        if place in touched:
                            raise RefusedError("merge-twice")
                        touched.add(place)
                        old = self.rows[place]
                        result[place] = _set(old, branch.assignments, values) if branch.action == "update" else None
                    break
        return [row for row in result if row is not None] + added


def _named(row: Row) -> dict[str, Any]:
    return dict(zip(NAMES, row, strict=True))


def _holds(predicate: Expression | None, row: Row) -> bool:
    return predicate is None or evaluate(predicate, _named(row)) is True


def _assigned(row: Row, assignments: Sequence[tuple[str, Expression]]) -> Row:
    return _set(row, assignments, _named(row))


def _set(row: Row, assignments: Sequence[tuple[str, Expression]], values: dict[str, Any]) -> Row:
    changed = dict(zip(NAMES, row, strict=True)) | {name: evaluate(e, values) for name, e in assignments}
    return tuple(changed[name] for name in NAMES)


def check_store(store: TableStore, model: TableModel) -> None:
    """The content, and the history one instant before, at and after every change."""
    content = store.content()
    assert rows_of(content) == Counter(model.rows)
    assert store.row_count == len(model.rows) == content.height
    assert content.get_column("@id").n_unique() == content.height
    history = store.history()
    assert (history.get_column("@from") < history.get_column("@until")).all()
    live = history.filter(pl.col("@until") == OPEN)
    assert rows_of(live) == Counter(model.rows)
    for change in model.past:
        for instant in (change - 1, change, change + 1):
            valid = history.filter(pl.col("@from") <= instant, pl.col("@until") > instant)
            assert rows_of(valid) == model.at(instant), instant
    for change in list(model.past)[::7] + list(model.past)[-3:]:
        for instant in (change - 1, change, change + 1):
            assert rows_of(store.content_at(instant)) == model.at(instant), instant
    if model.key and model.rows:
        keys = [dict(zip(model.key, model._key_of(row), strict=True)) for row in model.rows[:5]]
        assert rows_of(store.find(pl.DataFrame(keys))) == Counter(model.rows[:5])
