"""Parts of a plain query of an oracle: clauses, set operations, and the columns that they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.types import Column, Schema
from strandline.functions.oracles import Untranslatable
from strandline.sql import ast
from strandline.sql.binder.scope import Scope

STANDARD: Final = ("UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")  # databases have these, too


@dataclass(frozen=True, slots=True)
class SqlText:
    """A query of the database and its columns, whose ids are c1, c2, …"""

    sql: str
    columns: Schema


@dataclass(frozen=True, slots=True)
class FromText:
    """What stands in FROM: its text, its columns, and the row time of its rows, where they have one. `is_looked_up` if
    its rows are those of a table at the row time of the rows that it is joined with."""

    sql: str
    scope: Scope
    row_time: str | None
    is_looked_up: bool = False


def rename_columns(columns: Schema, names: tuple[str, ...]) -> Schema:
    """The columns under other names; none means that they keep theirs."""
    return tuple(replace(c, name=name) for c, name in zip(columns, names, strict=True)) if names else columns


def partition_clause(names: tuple[ast.ColumnName, ...], columns: Schema) -> str:
    by_name = {c.name.lower(): c.id for c in columns}
    keys = [f"e.{by_name[name.column.name.lower()]}" for name in names]
    return f"PARTITION BY {', '.join(keys)}" if keys else ""


def listed_position(node: ast.Expression, columns: Schema) -> int | None:
    """Position among the outputs, from 1 on, of an element of ORDER BY by name or position."""
    match node:
        case ast.Number(digits) if digits.isdecimal():
            return int(digits)
        case ast.ColumnName(None, name):
            return next((n for n, c in enumerate(columns, 1) if name.matches(c.name)), None)
    return None


def sort_direction(item: ast.SortItem) -> str:
    # As in PostgreSQL, NULL is greater than every value.
    nulls = item.nulls or ("FIRST" if item.descending else "LAST")
    return f" {'DESC' if item.descending else 'ASC'} NULLS {nulls}"


def last_multiple(value: str, slide: int, offset: int = 0) -> str:
    """The last multiple of the slide, plus an offset, up to a value, which may be negative: % has the sign of its left
    side."""
    if offset:
        return f"({last_multiple(f'({value} - {offset})', slide)} + {offset})"
    return value if slide == 1 else f"({value} - (({value} % {slide}) + {slide}) % {slide})"


def set_operation(operator: str, one: SqlText, two: SqlText) -> str:
    if operator in STANDARD:
        return f"({one.sql}) {operator} ({two.sql})"
    if operator == "UNION MAX":  # max(l, r) = max(l - r, 0) + r
        return f"(({one.sql}) EXCEPT ALL ({two.sql})) UNION ALL ({two.sql})"
    if operator == "EXCEPT STRICT":
        same = " AND ".join(f"x.{c.id} IS NOT DISTINCT FROM y.{c.id}" for c in one.columns)
        return f"SELECT x.* FROM ({one.sql}) AS x WHERE NOT EXISTS (SELECT 1 FROM ({two.sql}) AS y WHERE {same})"
    raise Untranslatable(operator)


def shared_columns(join: ast.Join, left: Scope, right: Scope) -> list[tuple[Column, Column]]:
    """The pairs of columns that USING names, or that NATURAL finds under one name."""
    names: Iterable[ast.Identifier] = join.using
    if join.natural:
        mine = dict.fromkeys(c.name for relation in left.relations for c in relation.visible)
        exactly = (ast.Identifier(name, span=join.span) for name in mine)
        names = [name for name in exactly if right.matches(name)]
    return [(left.matches(name)[0][1], right.matches(name)[0][1]) for name in names]


def export_scope(scope: Scope, alias: str) -> tuple[dict[str, str], Scope]:
    """All columns of a scope as a SELECT list by id, and the scope of that list."""
    ids = dict.fromkeys(c.id for relation in scope.relations for c in relation.columns)
    short = {column_id: f"e{n}" for n, column_id in enumerate(ids, 1)}
    relations = tuple(
        replace(
            relation,
            columns=tuple(replace(c, id=f"{alias}.{short[c.id]}") for c in relation.columns),
            merged=frozenset(f"{alias}.{short[column_id]}" for column_id in relation.merged if column_id in short),
        )
        for relation in scope.relations
    )
    return {column_id: f"{column_id} AS {name}" for column_id, name in short.items()}, Scope(relations)
