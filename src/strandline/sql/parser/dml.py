"""Statements that change tables: INSERT, UPDATE, DELETE, MERGE and TRUNCATE."""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser import queries, tables
from strandline.sql.parser.expressions import parse_expression
from strandline.sql.parser.token_stream import TokenStream

_INSERT_HINT: Final = "Write INSERT INTO name [(columns)] VALUES (…), … or INSERT INTO name SELECT …."
_CONFLICT_HINT: Final = "Write ON CONFLICT DO NOTHING, or ON CONFLICT DO UPDATE SET column = excluded.column."
_MERGE_HINT: Final = (
    "Write MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET … WHEN NOT MATCHED THEN INSERT VALUES (…)."
)


def parse_insert(tokens: TokenStream) -> ast.Insert:
    start = tokens.advance()
    tokens.expect("INTO", hint=_INSERT_HINT)
    table = _parse_target(tokens)
    if tokens.sees("AS"):
        raise tokens.unsupported("an alias in INSERT", "Write the name of the table before its columns.")
    columns = () if tokens.sees("(") and queries.opens_query(tokens) else queries.parse_column_names(tokens)
    source = _parse_rows(tokens)
    conflict = _parse_conflict(tokens) if tokens.sees("ON") else None
    _refuse_returning(tokens)
    return ast.Insert(table, columns, source, conflict, tables.parse_at(tokens), span=tokens.since(start))


def parse_update(tokens: TokenStream) -> ast.Update:
    start = tokens.advance()
    table, alias = _parse_target(tokens), _parse_alias(tokens, "SET")
    items = _parse_items(tokens)
    if tokens.sees("FROM"):
        raise tokens.unsupported("FROM in UPDATE", _write_merge("UPDATE SET …"))
    where = _parse_where(tokens, "UPDATE")
    _refuse_returning(tokens)
    return ast.Update(table, alias, items, where, tables.parse_at(tokens), span=tokens.since(start))


def parse_delete(tokens: TokenStream) -> ast.Delete:
    start = tokens.advance()
    tokens.expect("FROM", hint="Write DELETE FROM name [WHERE condition].")
    table, alias = _parse_target(tokens), _parse_alias(tokens, "WHERE")
    if tokens.sees("USING"):
        raise tokens.unsupported("USING in DELETE", _write_merge("DELETE"))
    where = _parse_where(tokens, "DELETE")
    _refuse_returning(tokens)
    return ast.Delete(table, alias, where, tables.parse_at(tokens), span=tokens.since(start))


def parse_truncate(tokens: TokenStream) -> ast.Truncate:
    start = tokens.advance()
    tokens.accept("TABLE")
    table = _parse_target(tokens)
    return ast.Truncate(table, tables.parse_at(tokens), span=tokens.since(start))


def _parse_target(tokens: TokenStream) -> ast.Identifier:
    name = tokens.expect_name("the name of a table")
    if name.matches("sys") and tokens.sees("."):
        system_name = tables.parse_system_name(tokens, name)
        message = f'cannot change the system table "{system_name.name}"'
        raise tokens.error(message, "system-table", system_name.span, "System tables are read only: use SELECT.")
    return name


def _parse_alias(tokens: TokenStream, following: str) -> ast.Identifier | None:
    """`[AS] alias` before the word `following`, which is a name elsewhere; or nothing."""
    if tokens.sees("AS"):
        return queries.parse_alias(tokens)
    if not tokens.sees_name() or tokens.sees(following) or tokens.sees("AT", "TIMESTAMP"):
        return None
    return queries.parse_alias(tokens)


def _parse_where(tokens: TokenStream, statement: str) -> ast.Expression | None:
    """`[WHERE condition]`, which says alone which rows a statement changes."""
    where = parse_expression(tokens) if tokens.accept("WHERE") else None
    for word in ("ORDER", "LIMIT"):
        if tokens.sees(word):
            hint = "Say in WHERE which rows it changes: it changes all of them at one instant."
            raise tokens.unsupported(f"{word} in {statement}", hint)
    return where


def _refuse_returning(tokens: TokenStream) -> None:
    if tokens.sees("RETURNING"):
        raise tokens.unsupported("RETURNING", "Read the rows by a SELECT after the statement.")


def _write_merge(action: str) -> str:
    return f"Write MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN {action}."


# ---- rows and assignments --------------------------------------------------------------------------------------------


def _parse_rows(tokens: TokenStream) -> ast.Values | ast.Query:
    if tokens.sees("VALUES"):
        return _parse_values(tokens)
    if tokens.sees("DEFAULT", "VALUES"):
        start = tokens.advance()
        tokens.advance()
        return ast.Values(((),), span=tokens.since(start))
    if not queries.sees_query(tokens):
        raise tokens.unexpected("VALUES or SELECT", _INSERT_HINT)
    return queries.parse_query(tokens)


def _parse_values(tokens: TokenStream) -> ast.Values:
    start = tokens.advance()
    rows: list[tuple[ast.NewValue, ...]] = []
    while True:
        first = tokens.token
        row = parse_row(tokens)
        if rows and len(row) != len(rows[0]):
            message = f"VALUES lists must all have the same length: {len(rows[0])}, found {len(row)}"
            raise tokens.error(message, "column-count", tokens.since(first))
        rows.append(row)
        if not tokens.accept(","):
            return ast.Values(tuple(rows), span=tokens.since(start))


def parse_row(tokens: TokenStream) -> tuple[ast.NewValue, ...]:
    """`(value, …)`. Most values are literals, and lists of them are long: these take the short way."""
    tokens.expect("(", hint="Write VALUES (1, 'a'), (2, 'b').")
    values: list[ast.NewValue] = []
    while True:
        token = tokens.token
        if token.kind in _LITERALS and tokens.peek().keyword in (",", ")"):
            tokens.advance()
            values.append(_LITERALS[token.kind](token.value, span=token.span))
        else:
            values.append(_parse_value(tokens))
        if not tokens.accept(","):
            tokens.expect(")")
            return tuple(values)


_LITERALS: Final[dict[Kind, type[ast.Number] | type[ast.Text]]] = {Kind.NUMBER: ast.Number, Kind.TEXT: ast.Text}


def _parse_value(tokens: TokenStream) -> ast.NewValue:
    if tokens.sees("DEFAULT") and tokens.peek().keyword not in (".", "("):
        return ast.Default(span=tokens.advance().span)
    return parse_expression(tokens)


def _parse_items(tokens: TokenStream) -> tuple[ast.SetItem, ...]:
    tokens.expect("SET", hint="Write UPDATE name SET column = value, … [WHERE condition].")
    return tokens.parse_list(_parse_item)


def _parse_item(tokens: TokenStream) -> ast.SetItem:
    if tokens.sees("("):
        raise tokens.unsupported("SET of a row", "Assign column by column: SET a = 1, b = 2.")
    column = tokens.expect_name("a column name")
    if tokens.sees("."):
        hint = "Write the column without the name of the table: it is always a column of the changed one."
        raise tokens.error("a qualified name left of =", "syntax", column.span.to(tokens.peek().span), hint)
    tokens.expect("=", hint="Write SET column = value.")
    return ast.SetItem(column, _parse_value(tokens), span=tokens.since(column))


def _parse_conflict(tokens: TokenStream) -> ast.OnConflict:
    """`ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET … [WHERE …]`."""
    start = tokens.advance()
    tokens.expect("CONFLICT", hint=_CONFLICT_HINT)
    if tokens.sees("ON", "CONSTRAINT"):
        raise tokens.unsupported("ON CONSTRAINT", _CONFLICT_HINT)
    columns = queries.parse_column_names(tokens)
    tokens.expect("DO", hint=_CONFLICT_HINT)
    if tokens.accept("NOTHING"):
        return ast.OnConflict(columns, span=tokens.since(start))
    tokens.expect("UPDATE", hint=_CONFLICT_HINT)
    items = _parse_items(tokens)
    where = parse_expression(tokens) if tokens.accept("WHERE") else None
    return ast.OnConflict(columns, items, where, span=tokens.since(start))


# ---- MERGE -----------------------------------------------------------------------------------------------------------


def parse_merge(tokens: TokenStream) -> ast.Merge:
    start = tokens.advance()
    tokens.expect("INTO", hint=_MERGE_HINT)
    table, alias = _parse_target(tokens), _parse_alias(tokens, "USING")
    tokens.expect("USING", hint=_MERGE_HINT)
    source = tables.parse_entry(tokens)
    if not isinstance(source, ast.StreamTable | ast.QueryTable):
        raise tokens.unsupported(
            "a join or a table function after USING", "Write it as a subquery: USING (SELECT …) AS s.", source.span
        )
    tokens.expect("ON", hint=_MERGE_HINT)
    condition = parse_expression(tokens)
    branches: list[ast.MergeBranch] = []
    while tokens.sees("WHEN"):
        branches.append(_parse_branch(tokens))
    if not branches:
        raise tokens.unexpected("WHEN", _MERGE_HINT)
    _refuse_returning(tokens)
    at = tables.parse_at(tokens)
    return ast.Merge(table, alias, source, condition, tuple(branches), at, span=tokens.since(start))


def _parse_branch(tokens: TokenStream) -> ast.MergeBranch:
    start = tokens.advance()
    matched = not tokens.accept("NOT")
    tokens.expect("MATCHED", hint=_MERGE_HINT)
    if tokens.sees("BY"):
        hint = "Delete the others by a statement of their own: DELETE FROM t WHERE …."
        raise tokens.unsupported("NOT MATCHED BY", hint, tokens.through(start))
    condition = parse_expression(tokens) if tokens.accept("AND") else None
    tokens.expect("THEN", hint=_MERGE_HINT)
    if tokens.sees("DO", "NOTHING"):
        raise tokens.unsupported("DO NOTHING in MERGE", "Put the opposite into the conditions of the other branches.")
    return _parse_matched(tokens, start, condition) if matched else _parse_not_matched(tokens, start, condition)


def _parse_matched(tokens: TokenStream, start: Token, condition: ast.Expression | None) -> ast.MergeBranch:
    if tokens.accept("DELETE"):
        return ast.MergeDelete(condition, span=tokens.since(start))
    if not tokens.accept("UPDATE"):
        raise tokens.unexpected("UPDATE or DELETE after WHEN MATCHED THEN", _MERGE_HINT)
    return ast.MergeUpdate(condition, _parse_items(tokens), span=tokens.since(start))


def _parse_not_matched(tokens: TokenStream, start: Token, condition: ast.Expression | None) -> ast.MergeBranch:
    if not tokens.accept("INSERT"):
        raise tokens.unexpected("INSERT after WHEN NOT MATCHED THEN", _MERGE_HINT)
    columns = queries.parse_column_names(tokens)
    tokens.expect("VALUES", hint=_MERGE_HINT)
    return ast.MergeInsert(condition, columns, parse_row(tokens), span=tokens.since(start))
