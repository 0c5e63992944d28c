"""Tables of the syntax tree: their declarations, and the statements that change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from strandline.sql.ast.connectors import ChangesIn, ColumnDefinition, Connector, Hint
from strandline.sql.ast.expressions import Expression, TypedText
from strandline.sql.ast.nodes import Duration, Identifier, Node
from strandline.sql.ast.queries import Query, QueryTable, StreamTable


@dataclass(frozen=True, slots=True)
class CreateTable(Node):
    """`CREATE TABLE [IF NOT EXISTS] name (columns, PRIMARY KEY (…)) [SOURCE …] [clauses] [WITH (…)]`.

    `key` are the columns of PRIMARY KEY, wherever it stands, `required` those that are NOT NULL, `defaults` those with
    DEFAULT. `retroactive` is None where neither RETROACTIVE nor NON RETROACTIVE is written. Without columns, the source
    declares them.
    """

    name: Identifier
    columns: tuple[ColumnDefinition, ...]
    key: tuple[Identifier, ...] = ()
    required: tuple[Identifier, ...] = ()
    defaults: tuple[SetItem, ...] = ()
    source: Connector | None = None
    time_column: Identifier | None = None
    end_column: Identifier | None = None
    within: Duration | None = None
    idle_after: Duration | None = None
    changes: ChangesIn | None = None
    constant: bool = False
    retroactive: bool | None = None
    keep: Duration | None = None
    hints: tuple[Hint, ...] = ()
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableAs(Node):
    """`CREATE TABLE [IF NOT EXISTS] name [(columns)] [clauses] AS query`: the result now, as a table that statements
    change. Its columns have the types of the query; the rest is as in CreateTable."""

    name: Identifier
    columns: tuple[Identifier, ...]
    query: Query
    key: tuple[Identifier, ...] = ()
    required: tuple[Identifier, ...] = ()
    defaults: tuple[SetItem, ...] = ()
    time_column: Identifier | None = None
    end_column: Identifier | None = None
    constant: bool = False
    retroactive: bool | None = None
    keep: Duration | None = None
    hints: tuple[Hint, ...] = ()
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(Node):
    """`CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(columns)] AS query [KEEP duration]`."""

    name: Identifier
    columns: tuple[Identifier, ...]
    query: Query
    keep: Duration | None = None
    if_not_exists: bool = False
    replace: bool = False


# ---- changes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Default(Node):
    """`DEFAULT` in place of a value: what the declaration of the column says, or NULL."""


NewValue: TypeAlias = Expression | Default


@dataclass(frozen=True, slots=True)
class Values(Node):
    """`VALUES (value, …), …`; all rows have the same length. A row without values is `DEFAULT VALUES`."""

    rows: tuple[tuple[NewValue, ...], ...]


@dataclass(frozen=True, slots=True)
class SetItem(Node):
    """`column = value` of SET, or `column … DEFAULT value` of a declaration."""

    column: Identifier
    value: NewValue


@dataclass(frozen=True, slots=True)
class OnConflict(Node):
    """`ON CONFLICT [(columns)] DO NOTHING`, or `… DO UPDATE SET items [WHERE condition]`; no items are DO NOTHING."""

    columns: tuple[Identifier, ...]
    items: tuple[SetItem, ...] = ()
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class Insert(Node):
    """`INSERT INTO table [(columns)] VALUES … | query [ON CONFLICT …] [AT TIMESTAMP '…']`."""

    table: Identifier
    columns: tuple[Identifier, ...]
    source: Values | Query
    conflict: OnConflict | None = None
    at: TypedText | None = None


@dataclass(frozen=True, slots=True)
class Update(Node):
    """`UPDATE table [[AS] alias] SET items [WHERE condition] [AT TIMESTAMP '…']`."""

    table: Identifier
    alias: Identifier | None
    items: tuple[SetItem, ...]
    where: Expression | None = None
    at: TypedText | None = None


@dataclass(frozen=True, slots=True)
class Delete(Node):
    """`DELETE FROM table [[AS] alias] [WHERE condition] [AT TIMESTAMP '…']`."""

    table: Identifier
    alias: Identifier | None
    where: Expression | None = None
    at: TypedText | None = None


@dataclass(frozen=True, slots=True)
class MergeUpdate(Node):
    """`WHEN MATCHED [AND condition] THEN UPDATE SET items`."""

    condition: Expression | None
    items: tuple[SetItem, ...]


@dataclass(frozen=True, slots=True)
class MergeDelete(Node):
    """`WHEN MATCHED [AND condition] THEN DELETE`."""

    condition: Expression | None


@dataclass(frozen=True, slots=True)
class MergeInsert(Node):
    """`WHEN NOT MATCHED [AND condition] THEN INSERT [(columns)] VALUES (expression, …)`."""

    condition: Expression | None
    columns: tuple[Identifier, ...]
    values: tuple[NewValue, ...]


MergeBranch: TypeAlias = MergeUpdate | MergeDelete | MergeInsert


@dataclass(frozen=True, slots=True)
class Merge(Node):
    """`MERGE INTO table [[AS] alias] USING source ON condition branches [AT TIMESTAMP '…']`."""

    table: Identifier
    alias: Identifier | None
    source: StreamTable | QueryTable
    condition: Expression
    branches: tuple[MergeBranch, ...]
    at: TypedText | None = None


@dataclass(frozen=True, slots=True)
class Truncate(Node):
    """`TRUNCATE [TABLE] table [AT TIMESTAMP '…']`."""

    table: Identifier
    at: TypedText | None = None


TableChange: TypeAlias = Insert | Update | Delete | Merge | Truncate
