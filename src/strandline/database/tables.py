"""The tables of a database: their stores, and the statements that change them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

import polars as pl

from strandline.connectors.tables import errors, statements
from strandline.connectors.tables.declaration import is_declared
from strandline.connectors.tables.feeds.feeder import TableFeeder
from strandline.connectors.tables.feeds.registry import feed_class
from strandline.connectors.tables.groups import CommittedChange
from strandline.connectors.tables.rows import conform_rows
from strandline.connectors.tables.statements import (
    DeleteRows,
    InsertRows,
    MergeBranch,
    MergeRows,
    ReplaceContent,
    TableStatement,
    UpdateRows,
)
from strandline.connectors.tables.store import Clock, TableStore, open_table, wall_clock
from strandline.connectors.tables.validity import read_content, read_history
from strandline.core.arguments import checked, parse_instant
from strandline.core.durable import encode_name
from strandline.core.errors import ArgumentError, CatalogError, ParseError, QueryError, Span, StrandlineError
from strandline.core.table import Form, in_form
from strandline.core.temporal import FOREVER, OPEN, show_instant
from strandline.core.temporary import temporary_directory
from strandline.core.types import Column
from strandline.database.at_once import ReadRows, execute_at_once
from strandline.logical.catalog import BaseStream, Catalog, Table
from strandline.logical.expressions import ColumnRef, Expression, substitute
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.result import to_result
from strandline.sql.binder.assignments import Assignment
from strandline.sql.binder.dml import (
    EXCLUDED,
    BoundChange,
    BoundDelete,
    BoundInsert,
    BoundMerge,
    BoundSource,
    BoundUpdate,
    ConflictAction,
    unknown_table,
)

Moment: TypeAlias = datetime | str | int  # as `instant` takes them


FIRST_ROWS: Final = "CREATE TABLE AS"  # the mark of the rows that a table was created with


class Tables:
    """The stores of tables: in `directory`, where they outlive the program, or in a temporary one. `clock` is that of
    the changes without a given time, of tables that are opened from then on."""

    def __init__(self, catalog: Catalog, directory: Path | None) -> None:
        self._catalog = catalog
        self._directory = directory
        self._is_temporary = directory is None
        self.clock: Clock = wall_clock
        self._stores: dict[str, TableStore] = {}  # by folded name
        self._feeders: dict[str, TableFeeder] = {}

    def create(self, table: Table, span: Span | None = None) -> Table:
        """Open the log of a table, which may have rows of an earlier run, and load what its source has; returns the
        table with its directory."""
        if self._directory is None:
            self._directory = temporary_directory("tables")
        path = self._directory / encode_name(table.name.lower())
        table = replace(table, directory=str(path))
        is_new = not is_declared(path)
        if table.source is not None and table.feed is None and is_new:
            feed_class(table.source).check(table, span)
        self.open(table)
        try:
            if table.source is not None:
                feeder = TableFeeder(feed_class(table.source)(table, self.store(table)))
                feeder.start()
                self._feeders[table.name.lower()] = feeder
        except BaseException:
            self._stores.pop(table.name.lower()).close()
            if is_new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        return table

    def open(self, table: Table) -> None:
        """Open the log of a table, which this process may have open already."""
        self._stores[table.name.lower()] = open_table(table, self.clock)

    def evaluate(self, change: BoundChange, read_rows: ReadRows) -> TableStatement:
        """A change with the rows that its query has now."""
        return to_table_statement(change, read_rows)

    def create_filled(self, insertion: BoundInsert, rows: TableStatement) -> tuple[Table, CommittedChange]:
        """Open the log of a table, and insert its first rows unless it has them from an earlier run."""
        table = self.create(insertion.table)
        store = self.store(table)
        is_new = not store.reach
        try:
            return table, store.commit(rows, mark=FIRST_ROWS)
        except BaseException:
            if is_new:
                self.drop(table)
            raise

    def drop(self, table: Table) -> None:
        """Remove a table with its log."""
        if (feeder := self._feeders.pop(table.name.lower(), None)) is not None:
            feeder.stop()
        self._stores.pop(table.name.lower()).close()
        shutil.rmtree(table.directory, ignore_errors=True)

    def feeders(self) -> Mapping[str, TableFeeder]:
        """The feeders by the names of their tables."""
        return {feeder.table.name: feeder for feeder in self._feeders.values()}

    def store(self, table: Table) -> TableStore:
        return self._stores[table.name.lower()]

    def inputs(self) -> Iterator[BaseStream]:
        """The changes of each table as a stream, with what the planner can know of it."""
        for table in self._catalog:
            if isinstance(table, Table):
                yield replace(table.input, statistics=self.store(table).statistics())

    def handle(self, name: str) -> TableHandle:
        if name not in self._catalog:
            raise unknown_table(name, self._catalog)
        table = self._catalog.get(name)
        if not isinstance(table, Table):
            hint = "CREATE TABLE declares a table; Database.append gives rows to a stream."
            raise CatalogError(f'{table.word} "{table.name}" is not a table', code="not-a-table", hint=hint)
        return TableHandle(table, self.store(table))

    def row_counts(self) -> dict[str, int]:
        return {store.table.name: store.row_count for store in self._stores.values()}

    def change(self, change: BoundChange, read_rows: ReadRows, mark: str | None = None) -> CommittedChange:
        """Commit a statement, whose query reads relations by `read_rows`; `mark` names one of a script, which has an
        effect once however often the script runs."""
        return self.store(change.table).commit(to_table_statement(change, read_rows), at=change.at, mark=mark)

    def close(self) -> None:
        for feeder in self._feeders.values():
            feeder.stop()
        self._feeders = {}
        for store in self._stores.values():
            store.close()
        self._stores = {}
        if self._is_temporary and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


# ---- statements ------------------------------------------------------------------------------------------------------


def to_table_statement(change: BoundChange, read_rows: ReadRows) -> TableStatement:
    """The statement over columns that a bound change is."""
    match change:
        case BoundInsert():
            return _insertion(change, read_rows)
        case BoundUpdate(_, assignments, predicate):
            return UpdateRows(_pairs(assignments), predicate)
        case BoundDelete(_, predicate):
            return DeleteRows(predicate)
        case BoundMerge():
            return _merge(change, read_rows)
        case _:
            assert_never(change)


def _insertion(change: BoundInsert, read_rows: ReadRows) -> InsertRows:
    rows = (
        change.rows if change.source is None else _assigned_rows(change.source, change.values, change.table, read_rows)
    )
    assert rows is not None, "an insertion has constant rows or a query"
    conflict = change.conflict
    if conflict is None:
        return InsertRows(rows)
    if conflict.kind == "ignore":
        return InsertRows(rows, "ignore")
    if rows.height == 1 and _replaces_row(change.table, conflict):
        return InsertRows(rows, "update")  # such statements of several threads are evaluated together
    columns = change.table.columns
    references = {f"{EXCLUDED}.{name}": ColumnRef(statements.incoming(name), kind) for name, kind in columns}
    assignments = tuple((item.column, substitute(item.value, references)) for item in conflict.assignments)
    return InsertRows(rows, "update", assignments, _substituted(conflict.predicate, references))


def _replaces_row(table: Table, conflict: ConflictAction) -> bool:
    """True if ON CONFLICT DO UPDATE sets every column but the key to the value of the row that was to be inserted."""
    assigned = {item.column: item.value for item in conflict.assignments}
    taken = {name: ColumnRef(f"{EXCLUDED}.{name}", kind) for name, kind in table.columns if name not in table.key}
    return conflict.predicate is None and assigned == taken


def _merge(change: BoundMerge, read_rows: ReadRows) -> MergeRows:
    references = {c.id: ColumnRef(statements.incoming(c.name), c.type) for c in change.source.columns}
    branches = tuple(
        MergeBranch(
            action.kind != "insert",
            action.kind,
            tuple((item.column, substitute(item.value, references)) for item in action.assignments),
            _substituted(action.condition, references),
        )
        for action in change.actions
    )
    rows = _source_rows(change.source, read_rows).rename({c.id: c.name for c in change.source.columns})
    return MergeRows(rows, substitute(change.condition, references), branches)


def _source_rows(source: BoundSource, read_rows: ReadRows) -> pl.DataFrame:
    """The result of the query of a statement, now, under the ids that the statement uses."""
    rows = execute_at_once(source.plan, read_rows)
    return rows.select(pl.col(old).alias(new.id) for old, new in zip(rows.columns, source.columns, strict=True))


def _assigned_rows(
    source: BoundSource, values: tuple[Assignment, ...], table: Table, read_rows: ReadRows
) -> pl.DataFrame:
    rows = _source_rows(source, read_rows)
    for item in values:
        if item.unfit is not None and (bad := filter_frame(rows, item.unfit)).height:
            raise _unfit(table, item.column, bad)
    return evaluate_columns(rows, list(_pairs(values)))


def _pairs(assignments: tuple[Assignment, ...]) -> tuple[tuple[str, Expression], ...]:
    return tuple((item.column, item.value) for item in assignments)


def _substituted(expression: Expression | None, references: Mapping[str, ColumnRef]) -> Expression | None:
    return None if expression is None else substitute(expression, references)


def _unfit(table: Table, column: str, rows: pl.DataFrame) -> QueryError:
    return QueryError(
        f'a value does not fit column "{column}" of table "{table.name}"',
        code="unfit-rows",
        detail=f"The first such row is {rows.row(0)!r}. Nothing was changed.",
        hint="Convert it in the SELECT, or leave the row out.",
    )


class TableHandle:
    """A table for programs: changes in one atomic call, and its content now or at an instant."""

    def __init__(self, table: Table, store: TableStore) -> None:
        self._table, self._store = table, store

    @property
    def name(self) -> str:
        return self._table.name

    def __len__(self) -> int:
        return self._store.row_count

    @checked()
    def insert(self, rows: Any, *, at: Moment | None = None) -> CommittedChange:
        """Insert rows: a table of Arrow, Polars or pandas, tuples or dicts; at a given time, or by the clock. Columns
        that such a table leaves out have their DEFAULT, or NULL."""
        return self._commit(InsertRows(conform_rows(self._table, rows, is_partial=True)), at)

    @checked()
    def upsert(self, rows: Any, *, at: Moment | None = None) -> CommittedChange:
        """Insert rows with all columns; those whose key the table has replace its row."""
        self._require_key("upsert")
        return self._commit(InsertRows(conform_rows(self._table, rows), "update"), at)

    @checked()
    def replace(self, rows: Any, *, at: Moment | None = None) -> CommittedChange:
        """Replace the content by these rows; rows that stay as they are do not change."""
        return self._commit(ReplaceContent(conform_rows(self._table, rows)), at)

    def _commit(self, statement: TableStatement, at: Moment | None) -> CommittedChange:
        if self._table.source is not None:
            raise errors.has_source(self._table)
        return self._store.commit(statement, at=None if at is None else parse_instant("insert", "at", at))

    @checked()
    def snapshot(self, at: Moment | None = None, form: Form = "arrow") -> Any:
        """The rows now, or at an instant of the retained past; of a temporal table all rows, or those that are valid at
        an instant."""
        self._store.require_open()
        past = None if at is None else parse_instant("snapshot", "at", at)
        rows = read_content(self._store, past)
        columns = [Column(name, name, kind) for name, kind in self._table.columns]
        now = (pl.lit(0, pl.Int64).alias(FROM), pl.lit(1, pl.Int64).alias(UNTIL))
        result = to_result(rows.with_columns(now), tuple(columns))
        return in_form(result.select(list(range(len(columns)))), form)  # a temporal table may have valid_from itself

    @checked()
    def history(self, form: Form = "arrow", *, since: Moment | None = None, until: Moment | None = None) -> Any:
        """The retained rows with their validity, `[valid_from, valid_until)`; NULL where it goes on.

        From `since` on: without rows that ended before. Before `until`: as it was known then, without later changes.
        The work depends on the changes between the two and on the rows that were there. In a temporal table a row is
        valid in its period.
        """
        self._store.require_open()
        begin = None if since is None else parse_instant("history", "since", since)
        end = None if until is None else parse_instant("history", "until", until)
        if begin is not None and end is not None and begin >= end:
            raise ArgumentError(
                f"since of history() is {show_instant(begin)}, and until is {show_instant(end)}",
                code="bad-argument",
                hint="Pass an until that is later than since.",
            )
        columns = tuple(Column(name, name, kind) for name, kind in self._table.queried_columns)
        finite = pl.when(pl.col(UNTIL) == OPEN).then(FOREVER).otherwise(pl.col(UNTIL)).alias(UNTIL)
        return in_form(to_result(read_history(self._store, begin, end).with_columns(finite), columns), form)

    def _require_key(self, what: str) -> None:
        if not self._table.key:
            raise CatalogError(
                f'cannot {what} rows of table "{self.name}": it has no primary key',
                code="no-key",
                hint="Declare one: CREATE TABLE … (…, PRIMARY KEY (column)), or use insert.",
            )


def compose_update(table: str, assignments: Mapping[str, str], where: str | None) -> str:
    """UPDATE with values as expressions of the language, by column."""
    items = ", ".join(f"{_quoted(name)} = ({value}\n)" for name, value in assignments.items())
    return f"UPDATE {_quoted(table)} SET {items}{_condition(where)}"


@contextmanager
def quoted_values(assignments: Mapping[str, str]) -> Iterator[None]:
    """Say of values that are no expressions how a text is written: they may be texts without quotes."""
    try:
        yield
    except StrandlineError as error:
        if assignments and (isinstance(error, ParseError) or error.code == "unknown-column"):
            column, value = next(iter(assignments.items()))
            written = '"' + value.replace("'", "''").join("''") + '"'
            text = f"Values of update() are expressions; a text is written {{{column!r}: {written}}}."
            error.hint = f"{error.hint} {text}" if error.hint else text
        raise


def compose_delete(table: str, where: str | None) -> str:
    return f"DELETE FROM {_quoted(table)}{_condition(where)}"


def _condition(where: str | None) -> str:
    return "" if where is None else f" WHERE ({where}\n)"  # a comment at its end ends with the line


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
