"""Statements that change a table, and their effect: which rows begin and which end.

Predicates and assignments are bound expressions over the columns of the table, which are named as they were declared.
A column of the row that comes in (EXCLUDED of ON CONFLICT, the source of MERGE) has the id `incoming(name)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

import numpy as np
import polars as pl

from strandline.connectors.tables import errors, keys
from strandline.connectors.tables.blocks import ID
from strandline.connectors.tables.content import RowChanges, TableContent
from strandline.connectors.tables.lookup import matching_rows
from strandline.connectors.tables.matching import matching_pairs
from strandline.logical.catalog import Table
from strandline.logical.expressions import ColumnRef, Expression, Value
from strandline.logical.expressions import Literal as Constant
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame
from strandline.runtime.kernels.batch import Index, gather, pick
from strandline.runtime.kernels.changes import rank_in_group
from strandline.runtime.kernels.grouping import group_codes

Assignments: TypeAlias = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class InsertRows:
    """INSERT: new rows. Where the key of one is there already, it is refused, left out, or its row updated: by
    `assignments` over both rows or, where there are none, by the new row as a whole."""

    rows: pl.DataFrame
    on_conflict: Literal["error", "ignore", "update"] = "error"
    assignments: Assignments = ()
    condition: Expression | None = None  # DO UPDATE … WHERE


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT of a few rows that are no columns yet, each with all values in their types: those of several statements
    become columns together."""

    values: tuple[tuple[Value, ...], ...]
    on_conflict: Literal["error", "ignore", "update"] = "error"
    assignments: Assignments = ()
    condition: Expression | None = None

    def with_columns(self, schema: Mapping[str, pl.DataType]) -> InsertRows:
        return InsertRows(make_columns(self.values, schema), self.on_conflict, self.assignments, self.condition)


def make_columns(values: Sequence[tuple[Value, ...]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    columns = zip(schema.items(), zip(*values, strict=True), strict=True)
    return pl.DataFrame([pl.Series(name, column, kind) for (name, kind), column in columns])


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """UPDATE: assignments to the rows for which the predicate is true, all over the values before."""

    assignments: Assignments
    predicate: Expression | None = None


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """DELETE: the rows for which the predicate is true end."""

    predicate: Expression | None = None


@dataclass(frozen=True, slots=True)
class MergeBranch:
    """WHEN [NOT] MATCHED [AND condition] THEN action. Columns that an insertion does not assign have their default."""

    is_matched: bool
    action: Literal["update", "delete", "insert", "nothing"]
    assignments: Assignments = ()
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class MergeRows:
    """MERGE: the first branch that applies to each pair of a row of the table and a source row, and to each source row
    without a match. The columns of `rows` have their own names; in expressions they are `incoming(name)`."""

    rows: pl.DataFrame
    condition: Expression
    branches: tuple[MergeBranch, ...]


@dataclass(frozen=True, slots=True)
class ReplaceContent:
    """The table has these rows from now on; rows that stay as they are do not change."""

    rows: pl.DataFrame


TableStatement: TypeAlias = InsertRows | InsertValues | UpdateRows | DeleteRows | MergeRows | ReplaceContent


def incoming(column: str) -> str:
    """The id of a column of the row that comes in."""
    return f"@incoming {column}"


def evaluate(statement: TableStatement, content: TableContent, table: Table) -> RowChanges:
    """The effect of a statement on the content; an error, if the result would not satisfy PRIMARY KEY and NOT NULL."""
    match statement:
        case InsertRows():
            return _insert(statement, content, table)
        case InsertValues():
            schema = {name: content.schema[name] for name in content.columns}
            return _insert(statement.with_columns(schema), content, table)
        case UpdateRows(assignments, predicate):
            rows = matching_rows(content, predicate)
            changes = RowChanges(_assigned(rows, assignments, content), rows)
            return keys.checked(changes, content, table) if keys.is_assigned(table, assignments) else changes
        case DeleteRows(predicate):
            return RowChanges(_no_rows(content), matching_rows(content, predicate))
        case MergeRows():
            return keys.checked(_merge(statement, content, table), content, table)
        case ReplaceContent(rows):
            return _replace(rows, content, table)
        case _:
            assert_never(statement)


# INSERT


def _insert(statement: InsertRows, content: TableContent, table: Table) -> RowChanges:
    rows = statement.rows
    nothing = pl.DataFrame(schema=content.schema)
    keys.check_nulls(rows, table)  # also of rows that a conflict would keep out, as in PostgreSQL
    if not table.key:
        return RowChanges(rows, nothing)
    if table.kind == "temporal":
        if statement.on_conflict != "error":
            raise errors.conflict_of_periods(table)
        return keys.checked(RowChanges(rows, nothing), content, table)
    of_rows = pick(rows, table.key)
    if (repeated := keys.repeated(of_rows, table)) is not None:
        rows = _without_repetitions(statement, table, repeated)
        of_rows = pick(rows, table.key)
    numbers, existing = content.find(of_rows)
    if not len(numbers):
        return RowChanges(rows, nothing)
    match statement.on_conflict:
        case "error":
            raise errors.duplicate_key(table, of_rows[int(numbers[0])])
        case "ignore":
            fresh = np.ones(rows.height, np.bool_)
            fresh[numbers] = False
            return RowChanges(rows.filter(pl.Series(fresh)), nothing)
        case "update":
            return _upsert(replace(statement, rows=rows), numbers, existing, content, table)
        case _:
            assert_never(statement.on_conflict)


def _without_repetitions(statement: InsertRows, table: Table, repeated: pl.DataFrame) -> pl.DataFrame:
    """The rows of an insertion with one of each key: the first where conflicts are ignored, the last where a row is
    replaced as a whole."""
    if statement.on_conflict == "error" or statement.assignments or statement.condition is not None:
        raise errors.duplicate_key(table, repeated, "The rows of the statement have the key twice.")
    rows = statement.rows
    backwards = statement.on_conflict == "update"
    _, first = group_codes(rows.reverse() if backwards else rows, table.key)
    return gather(rows, np.sort(rows.height - 1 - first if backwards else first))


def _upsert(
    statement: InsertRows, numbers: Index, existing: pl.DataFrame, content: TableContent, table: Table
) -> RowChanges:
    """Rows with a new key as they are; of the others, the existing row with the assignments."""
    rows = statement.rows
    if not statement.assignments and statement.condition is None:
        return RowChanges(rows, existing, replaced_by=numbers)
    fresh = np.ones(rows.height, np.bool_)
    fresh[numbers] = False
    pairs = existing.hstack(_renamed(gather(rows, numbers)))
    if statement.condition is not None:
        pairs = filter_frame(pairs, statement.condition)
    updated = _assigned(pairs, statement.assignments or _whole_row(table), content)
    changes = RowChanges(pl.concat([rows.filter(pl.Series(fresh)), updated]), pairs.select(list(content.schema)))
    return keys.checked(changes, content, table) if keys.is_assigned(table, statement.assignments) else changes


def _whole_row(table: Table) -> Assignments:
    return tuple((name, ColumnRef(incoming(name), kind)) for name, kind in table.columns)


def _renamed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.rename(incoming)


def _assigned(rows: pl.DataFrame, assignments: Assignments, content: TableContent) -> pl.DataFrame:
    """The payload of rows after assignments, which all see the values before."""
    values = {f"@set {name}": expression for name, expression in assignments}
    kept = [name for name in content.columns if f"@set {name}" not in values]
    result = evaluate_columns(rows, list(values.items()), kept)
    return result.rename({f"@set {name}": name for name, _ in assignments}).select(content.columns)


def _no_rows(content: TableContent) -> pl.DataFrame:
    return pl.DataFrame(schema={name: content.schema[name] for name in content.columns})


# MERGE


def _merge(statement: MergeRows, content: TableContent, table: Table) -> RowChanges:
    source = _renamed(statement.rows)
    pairs, is_matched = matching_pairs(content, source, statement.condition)
    inserted: list[pl.DataFrame] = []
    ended: list[pl.DataFrame] = []
    unmatched = source.filter(pl.Series(~is_matched))
    for branch in statement.branches:
        rows = pairs if branch.is_matched else unmatched
        chosen, rest = _split(rows, branch.condition)
        if branch.is_matched:
            pairs = rest
        else:
            unmatched = rest
        if branch.action in ("update", "delete"):
            ended.append(chosen.select(list(content.schema)))
        if branch.action == "update":
            inserted.append(_assigned(chosen, branch.assignments, content))
        elif branch.action == "insert":
            inserted.append(_new_rows(chosen, branch.assignments, table))
    deleted = pl.concat([pl.DataFrame(schema=content.schema), *ended])
    _refuse_second_change(deleted, content, table)
    return RowChanges(pl.concat([_no_rows(content), *inserted]), deleted)


def _split(rows: pl.DataFrame, condition: Expression | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows for which a condition is true, and the others."""
    if condition is None:
        return rows, rows.clear()
    numbered = rows.with_row_index("@row")
    chosen = filter_frame(numbered, condition)
    return chosen.drop("@row"), numbered.join(chosen.select("@row"), on="@row", how="anti").drop("@row")


def _new_rows(rows: pl.DataFrame, assignments: Assignments, table: Table) -> pl.DataFrame:
    values = dict(assignments)
    outputs = [(name, values.get(name, Constant(table.defaults.get(name), kind))) for name, kind in table.columns]
    return evaluate_columns(rows, outputs)


def _refuse_second_change(deleted: pl.DataFrame, content: TableContent, table: Table) -> None:
    again = deleted.filter(pl.col(ID).is_duplicated())
    if again.height:
        raise errors.merge_twice(table, again.select(list(table.key) or content.columns))


# Whole content


def _replace(rows: pl.DataFrame, content: TableContent, table: Table) -> RowChanges:
    """The difference between the content and these rows. With a key, a row changes if it has other values; without,
    the k-th of equal rows is the k-th before."""
    names = content.columns
    keys.check_rows(rows, table)
    current = content.frame()
    both = pl.concat([current.select(names), rows.select(names)], rechunk=True)
    codes, _ = group_codes(both, names)
    ranks = _ranks(codes[: current.height]), _ranks(codes[current.height :])
    before = pl.DataFrame({"code": codes[: current.height], "rank": ranks[0]})
    after = pl.DataFrame({"code": codes[current.height :], "rank": ranks[1]})
    gone = before.with_row_index("row").join(after, on=["code", "rank"], how="anti", maintain_order="left")
    new = after.with_row_index("row").join(before, on=["code", "rank"], how="anti", maintain_order="left")
    return RowChanges(
        gather(rows.select(names), new.get_column("row").to_numpy().astype(np.int64)),
        gather(current, gone.get_column("row").to_numpy().astype(np.int64)),
    )


def _ranks(codes: Index) -> Index:
    """The number of rows of the same code before each."""
    order = np.argsort(codes, kind="stable")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = rank_in_group(codes[order])
    return ranks
