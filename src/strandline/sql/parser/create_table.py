"""Declarations of tables: CREATE TABLE with its clauses, CREATE TABLE … AS, CREATE MATERIALIZED VIEW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.sql import ast
from strandline.sql.lexer import Token
from strandline.sql.parser import connectors
from strandline.sql.parser.expressions import parse_expression
from strandline.sql.parser.literals import parse_duration
from strandline.sql.parser.queries import parse_as_query, parse_column_names
from strandline.sql.parser.tables import parse_new_name
from strandline.sql.parser.token_stream import TokenStream

_TABLE_HINT: Final = "Write CREATE TABLE name (column TYPE, …, PRIMARY KEY (column)) or CREATE TABLE name AS SELECT …."
_KEY_HINT: Final = "Write PRIMARY KEY (column, …)."
_VIEW_HINT: Final = "Write CREATE MATERIALIZED VIEW name AS SELECT …."
# What other databases let a column or a table declare, with what to write instead.
_CONSTRAINTS: Final = {
    "UNIQUE": "Declare the columns as the PRIMARY KEY.",
    "CHECK": "Put the condition into the WHERE of the queries.",
    "REFERENCES": "Leave it out: keys of other tables are not enforced.",
    "FOREIGN": "Leave it out: keys of other tables are not enforced.",
    "CONSTRAINT": "Write the constraint without a name.",
    "GENERATED": "Compute the value in INSERT, or in a view.",
    "COLLATE": "Texts compare by code point.",
}


_AFTER_NAME: Final = (",", ")", "PRIMARY", "NOT", "DEFAULT")  # a column without a type
_CONSTRAINT_KINDS: Final = ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "NOT")  # after CONSTRAINT and its name


def parse_create_table(tokens: TokenStream, start: Token) -> ast.CreateTable | ast.CreateTableAs:
    """`[IF NOT EXISTS] name …`, after CREATE TABLE."""
    if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
    name = parse_new_name(tokens, "table")
    definitions = _Definitions()
    if not tokens.sees_any(("SOURCE", "AS", "PRIMARY", *_CLAUSES)):
        tokens.parse_enclosed_list(definitions.parse, _TABLE_HINT)
    if tokens.sees("PRIMARY", "KEY"):
        definitions.parse(tokens)
    clauses = _parse_clauses(tokens)
    clauses |= {field: tuple(getattr(definitions, field)) for field in ("key", "required", "defaults")}
    if tokens.sees("AS") or definitions.names:
        query = parse_as_query(tokens, _TABLE_HINT)
        _refuse_beside_query(definitions, clauses)
        _parse_after_query(tokens)
        names = tuple(definitions.names)
        return ast.CreateTableAs(name, names, query, if_not_exists=if_not_exists, **clauses, span=tokens.since(start))
    columns = tuple(definitions.columns)
    return ast.CreateTable(name, columns, if_not_exists=if_not_exists, **clauses, span=tokens.since(start))


def _refuse_beside_query(definitions: _Definitions, clauses: dict[str, Any]) -> None:
    """Refuse what says where else the columns or the rows come from."""
    if definitions.columns:
        hint = "Leave the types out, or write a CAST in the SELECT: CREATE TABLE name (a, b) AS SELECT …."
        raise definitions.columns[0].type.error("columns of AS SELECT have the types of the query", "syntax", hint)
    for word, node in (("SOURCE", clauses.get("source")), ("CHANGES IN", clauses.get("changes"))):
        if node is not None:
            hint = "Remove one of them: the rows come from the query."
            raise node.error(f"{word} and AS SELECT exclude each other", "conflicting-clauses", hint)


def _parse_after_query(tokens: TokenStream) -> None:
    """`WITH DATA`, which is what AS means, or nothing."""
    if tokens.sees("PRIMARY", "KEY"):
        raise tokens.unexpected(
            "the end of the statement", "Write it before AS: CREATE TABLE name PRIMARY KEY (a) AS …."
        )
    if tokens.sees("WITH", "NO", "DATA"):
        hint = "Declare the columns: CREATE TABLE name (column TYPE, …)."
        raise tokens.unsupported("WITH NO DATA", hint)
    tokens.accept("WITH", "DATA")


def parse_create_materialized_view(tokens: TokenStream, start: Token) -> ast.CreateMaterializedView:
    """`VIEW [IF NOT EXISTS] name [(columns)] AS query [KEEP duration]`, after CREATE MATERIALIZED."""
    tokens.expect("VIEW", hint=_VIEW_HINT)
    if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
    name = parse_new_name(tokens, "view")
    columns = parse_column_names(tokens)
    query = parse_as_query(tokens, _VIEW_HINT)
    keep = parse_duration(tokens, "KEEP", least=1) if tokens.accept("KEEP") else None
    return ast.CreateMaterializedView(name, columns, query, keep, if_not_exists, span=tokens.since(start))


class _Definitions:
    """The columns of a table and their constraints, read one by one. Before AS they are `names` without types."""

    def __init__(self) -> None:
        self.names: list[ast.Identifier] = []
        self.columns: list[ast.ColumnDefinition] = []
        self.key: list[ast.Identifier] = []
        self.required: list[ast.Identifier] = []
        self.defaults: list[ast.SetItem] = []

    def parse(self, tokens: TokenStream) -> None:
        """`PRIMARY KEY (column, …)`, or `column TYPE` with its constraints."""
        if tokens.sees("PRIMARY", "KEY"):
            self._start_key(tokens)
            self.key.extend(tokens.parse_enclosed_list(lambda each: each.expect_name("a column of the key"), _KEY_HINT))
            return
        _refuse_constraint(tokens, followed_by=("(", "KEY"))
        if tokens.sees("CONSTRAINT") and tokens.peek(2).keyword in _CONSTRAINT_KINDS:
            raise tokens.unsupported("CONSTRAINT in CREATE TABLE", _CONSTRAINTS["CONSTRAINT"])
        name = self._parse_column(tokens)
        while True:
            if tokens.sees("PRIMARY", "KEY"):
                self._start_key(tokens)
                self.key.append(name)
            elif tokens.accept("NOT", "NULL"):
                self.required.append(name)
            elif tokens.sees("DEFAULT"):
                self._parse_default(tokens, name)
            elif not tokens.accept("NULL"):  # what a column may be anyway
                _refuse_constraint(tokens)
                return

    def _parse_column(self, tokens: TokenStream) -> ast.Identifier:
        """`column TYPE`, or a name alone in a list of such."""
        if tokens.sees_name() and tokens.peek().keyword in _AFTER_NAME and not self.columns:
            self.names.append(tokens.expect_name("a column name"))
            return self.names[-1]
        column = connectors.parse_column_definition(tokens)
        self.columns.append(column)
        return column.name

    def _parse_default(self, tokens: TokenStream, column: ast.Identifier) -> None:
        """`DEFAULT value`."""
        if any(item.column is column for item in self.defaults):
            raise tokens.error("DEFAULT specified more than once", "duplicate-clause")
        start = tokens.advance()
        self.defaults.append(ast.SetItem(column, parse_expression(tokens), span=tokens.since(start)))

    def _start_key(self, tokens: TokenStream) -> None:
        if self.key:
            hint = "Name all columns of the key in one list: PRIMARY KEY (a, b)."
            raise tokens.error("PRIMARY KEY specified more than once", "duplicate-clause", hint=hint)
        tokens.expect("PRIMARY", "KEY")


def _refuse_constraint(tokens: TokenStream, followed_by: tuple[str, ...] = ()) -> None:
    """Refuse what is no part of the language; at the beginning of a definition the words may also be names."""
    word = tokens.token.keyword
    if word in _CONSTRAINTS and (not followed_by or tokens.peek().keyword in followed_by):
        feature = "FOREIGN KEY" if word == "FOREIGN" else word
        raise tokens.unsupported(f"{feature} in CREATE TABLE", _CONSTRAINTS[word])


# ---- clauses ---------------------------------------------------------------------------------------------------------


def _parse_clauses(tokens: TokenStream) -> dict[str, Any]:
    """What follows the columns: each clause once, in any order. They are named as in `ast.CreateTable`."""
    clauses: dict[str, Any] = {}
    seen: set[str] = set()
    while (word := tokens.token.keyword) in _CLAUSES:
        clause = _SAME_CLAUSE.get(word, word)
        if clause in seen:
            raise tokens.error(f"{clause} specified more than once", "duplicate-clause")
        seen.add(clause)
        clauses |= _CLAUSES[word](tokens)
    return clauses


def _parse_source(tokens: TokenStream) -> dict[str, Any]:
    tokens.advance()
    return {"source": connectors.parse_connector(tokens, "source", "file('path'), rows((1, 'a'), …), ….")}


def _parse_change_feed(tokens: TokenStream) -> dict[str, Any]:
    return {"changes": connectors.parse_change_feed(tokens, tokens.advance())}


def _parse_time(tokens: TokenStream) -> dict[str, Any]:
    """`ORDERED BY column [WITHIN d] [IDLE AFTER d]`, or `VALID FROM column UNTIL column`."""
    ordered = tokens.sees("ORDERED")
    time_column, end_column = connectors.parse_time_columns(tokens)
    clauses: dict[str, Any] = {"time_column": time_column, "end_column": end_column}
    if ordered and tokens.accept("WITHIN"):
        clauses["within"] = parse_duration(tokens, "WITHIN", least=0)
    if ordered and tokens.accept("IDLE"):
        tokens.expect("AFTER")
        clauses["idle_after"] = parse_duration(tokens, "IDLE AFTER", least=1)
    return clauses


def _refuse_stray(tokens: TokenStream) -> dict[str, Any]:
    word = "IDLE AFTER" if tokens.sees("IDLE") else "WITHIN"
    hint = f"Write it right after the time column: ORDERED BY column {word} 5 SECONDS."
    raise tokens.error(f"{word} needs ORDERED BY", "clause-without-order", hint=hint)


def _parse_constant(tokens: TokenStream) -> dict[str, Any]:
    tokens.advance()
    return {"constant": True}


def _parse_retroactive(tokens: TokenStream) -> dict[str, Any]:
    retroactive = not tokens.accept("NON")
    tokens.expect("RETROACTIVE", hint="Write RETROACTIVE or NON RETROACTIVE.")
    return {"retroactive": retroactive}


def _parse_keep(tokens: TokenStream) -> dict[str, Any]:
    tokens.advance()
    return {"keep": parse_duration(tokens, "KEEP", least=1)}


def _parse_statistics(tokens: TokenStream) -> dict[str, Any]:
    tokens.advance()
    return {"hints": connectors.parse_hints(tokens)}


_CLAUSES: Final[dict[str, Callable[[TokenStream], dict[str, Any]]]] = {
    "SOURCE": _parse_source,
    "CHANGES": _parse_change_feed,
    "ORDERED": _parse_time,
    "VALID": _parse_time,
    "WITHIN": _refuse_stray,
    "IDLE": _refuse_stray,
    "CONSTANT": _parse_constant,
    "NON": _parse_retroactive,
    "RETROACTIVE": _parse_retroactive,
    "KEEP": _parse_keep,
    "WITH": _parse_statistics,
}
# Words of one clause: of either only one may stand there.
_SAME_CLAUSE: Final = {"NON": "RETROACTIVE", "VALID": "ORDERED BY or VALID FROM", "ORDERED": "ORDERED BY or VALID FROM"}
