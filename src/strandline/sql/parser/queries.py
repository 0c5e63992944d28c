"""Queries: WITH, set operators, SELECT with its clauses, and ORDER BY … LIMIT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import RESERVED, Kind, Token
from strandline.sql.parser import expressions, group_windows, select_items, tables, unnest, windows
from strandline.sql.parser.literals import parse_row_count
from strandline.sql.parser.token_stream import MAX_DEPTH, TokenStream, too_deep

QUERY_DEPTH: Final = 2  # a nested query takes about twice the stack of a nested expression
AFTER_QUERY: Final = ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH", ")")
MAX_VALUES: Final = 1_000  # rows of a VALUES that is a query: each is a branch of the plan
CHANGES: Final = ("ISTREAM", "DSTREAM", "RSTREAM")
# Reserved words that may begin the list of a SELECT.
FIRST_IN_LIST: Final = ("ALL", "CASE", "CAST", "DISTINCT", "EXISTS", "FALSE", "LEFT", "NOT", "NULL", "RIGHT", "TRUE")

_WITH_HINT: Final = "Write WITH name AS (SELECT …) SELECT … FROM name."
_CHANGES_HINT: Final = "Write SELECT ISTREAM(a, b) FROM … or ISTREAM(SELECT a, b FROM …)."


def parse_query(tokens: TokenStream) -> ast.Query:
    """SELECTs joined by set operators, of which INTERSECT binds most; WITH before them names queries."""
    tokens.enter(QUERY_DEPTH)
    start = tokens.token
    named = _parse_common_tables(tokens) if tokens.sees("WITH") else ()
    query: ast.Query = _parse_set_operations(tokens, ("UNION", "EXCEPT", "MINUS"), _parse_intersections)
    if tokens.sees_any(("ORDER", "LIMIT", "OFFSET", "FETCH")):
        query = _parse_order(tokens, query)
    tokens.leave(QUERY_DEPTH)
    return ast.With(named, query, span=tokens.since(start)) if named else query


def parse_enclosed_query(tokens: TokenStream, hint: str | None = None) -> ast.Query:
    return tokens.parse_enclosed(parse_query, hint)


def parse_as_query(tokens: TokenStream, hint: str | None = None) -> ast.Query:
    """`AS query`."""
    tokens.expect("AS", hint=hint)
    if not sees_query(tokens):
        raise tokens.unexpected("SELECT after AS")
    return parse_query(tokens)


def sees_query(tokens: TokenStream) -> bool:
    """Whether a query may begin here, itself in parentheses perhaps."""
    return (
        tokens.sees_any(("SELECT", "FROM", "WITH", "VALUES", "(")) or _sees_whole_table(tokens) or sees_changes(tokens)
    )


def opens_query(tokens: TokenStream) -> bool:
    """Whether the parenthesis here holds a query rather than a join or a list of values.

    `((SELECT …) UNION ALL …)`, `((SELECT …) AS a JOIN …)` and `((SELECT …), 2)` begin alike; what follows the inner
    parenthesis decides.
    """
    inner = 0
    while tokens.peek(inner).keyword == "(":
        inner += 1
    first = tokens.peek(inner)
    if inner > MAX_DEPTH:
        raise too_deep(first.span)
    changes = first.keyword in CHANGES and tokens.peek(inner + 1).keyword == "("
    if first.keyword not in ("SELECT", "FROM", "WITH", "VALUES") and not changes:
        return False
    closings = map(tokens.find_closing, range(inner - 1, 0, -1))
    return all(tokens.peek(closing + 1).keyword in AFTER_QUERY for closing in closings)


def parse_column_names(tokens: TokenStream) -> tuple[ast.Identifier, ...]:
    """`(name, …)`, or nothing."""
    return tokens.parse_enclosed_list(lambda names: names.expect_name("a column name")) if tokens.sees("(") else ()


def _parse_common_tables(tokens: TokenStream) -> tuple[ast.CommonTable, ...]:
    start = tokens.advance()
    if tokens.sees("RECURSIVE"):
        hint = "Refer only to earlier queries of WITH."
        raise tokens.unsupported("WITH RECURSIVE", hint, tokens.through(start))
    return tokens.parse_list(_parse_common_table)


def _parse_common_table(tokens: TokenStream) -> ast.CommonTable:
    name = tokens.expect_name("a name for a query")
    columns = parse_column_names(tokens)
    tokens.expect("AS", hint=_WITH_HINT)
    query = parse_enclosed_query(tokens, hint=_WITH_HINT)
    return ast.CommonTable(name, columns, query, span=tokens.since(name))


# ---- set operators ---------------------------------------------------------------------------------------------------


def _parse_set_operations(
    tokens: TokenStream, operators: tuple[str, ...], parse_operand: Callable[[TokenStream], ast.Query]
) -> ast.Query:
    """Operands with operators between them, from the left; neighbours in UNION ALL are one list."""
    start, depth = tokens.token, tokens.depth
    left = parse_operand(tokens)
    branches = [left]  # what a further UNION ALL would add to
    while tokens.sees_any(operators):
        operator = _parse_set_operator(tokens)
        right = parse_operand(tokens)
        if operator == "UNION ALL":
            branches.append(right)
            left = ast.UnionAll(tuple(branches), span=tokens.since(start))
        else:
            tokens.enter(QUERY_DEPTH)
            left = ast.SetOperation(operator, left, right, span=tokens.since(start))
            branches = [left]
    tokens.depth = depth
    return left


def _parse_intersections(tokens: TokenStream) -> ast.Query:
    return _parse_set_operations(tokens, ("INTERSECT",), _parse_query_operand)


def _parse_set_operator(tokens: TokenStream) -> str:
    """UNION, INTERSECT or EXCEPT with what may follow; MINUS is another word for EXCEPT."""
    word = tokens.advance().keyword.replace("MINUS", "EXCEPT")
    if tokens.sees_any({"UNION": ("ALL", "MAX"), "EXCEPT": ("ALL", "STRICT")}.get(word, ("ALL",))):
        return f"{word} {tokens.advance().keyword}"
    tokens.accept("DISTINCT")
    return word


def _parse_query_operand(tokens: TokenStream) -> ast.Query:
    if tokens.sees("SELECT"):
        return _parse_select(tokens)
    if tokens.sees("FROM"):
        return _parse_from_first(tokens)
    if sees_changes(tokens):
        return parse_changes(tokens)
    if tokens.sees("WITH"):
        hint = "WITH stands before the whole query, or in parentheses: (WITH … SELECT …)."
        raise tokens.error("WITH is out of place", "syntax", hint=hint)
    if tokens.sees("VALUES"):
        return _parse_values(tokens)
    if _sees_whole_table(tokens):
        return _parse_whole_table(tokens)
    if not tokens.sees("("):
        raise tokens.unexpected("SELECT")
    return parse_enclosed_query(tokens)


def _parse_values(tokens: TokenStream) -> ast.Query:
    """`VALUES (1, 'a'), (2, 'b')`: a SELECT without FROM for each row, with the columns column1, column2, …."""
    start = tokens.advance()
    rows: list[ast.Query] = []
    while True:
        first = tokens.token
        values = tokens.parse_enclosed_list(expressions.parse_expression, "Write VALUES (1, 'a'), (2, 'b').")
        items = tuple(
            ast.Item(value, ast.Identifier(f"column{number}", span=value.span), span=value.span)
            for number, value in enumerate(values, 1)
        )
        if rows and isinstance(rows[0], ast.Select) and len(items) != len(rows[0].items):
            message = f"VALUES lists must all have the same length: {len(rows[0].items)}, found {len(items)}"
            raise tokens.error(message, "column-count", tokens.since(first))
        if len(rows) == MAX_VALUES:
            hint = "Insert them into a table: INSERT INTO t VALUES …."
            raise tokens.error(f"VALUES as a query has at most {MAX_VALUES} rows", "too-large", first.span, hint)
        rows.append(ast.Select(False, items, (), None, (), None, span=tokens.since(first)))
        if not tokens.accept(","):
            return rows[0] if len(rows) == 1 else ast.UnionAll(tuple(rows), span=tokens.since(start))


def _sees_whole_table(tokens: TokenStream) -> bool:
    """`TABLE name`; the word is a name elsewhere."""
    return tokens.sees("TABLE") and tokens.sees_name(1)


def _parse_whole_table(tokens: TokenStream) -> ast.Select:
    """`TABLE name`, which is `SELECT * FROM name`."""
    start = tokens.advance()
    table = tables.parse_table(tokens)
    star = ast.Item(ast.Star(span=start.span), None, span=start.span)
    return ast.Select(False, (star,), (table,), None, (), None, span=tokens.since(start))


# ---- ISTREAM, DSTREAM, RSTREAM ---------------------------------------------------------------------------------------


def sees_changes(tokens: TokenStream) -> bool:
    """ISTREAM(…), DSTREAM(…) or RSTREAM(…); the words are names elsewhere."""
    return tokens.sees_any(CHANGES) and tokens.peek().keyword == "("


def parse_changes(tokens: TokenStream) -> ast.Changes:
    """The changes of a query, or of a stream by its name."""
    start = tokens.advance()
    tokens.enter(QUERY_DEPTH)
    tokens.expect("(")
    if tokens.sees_name() and tokens.peek().keyword == ")":
        name = tokens.expect_name("a stream")
        star = ast.Item(ast.Star(span=name.span), None, span=name.span)
        table = ast.StreamTable(name, None, None, span=name.span)
        query: ast.Query = ast.Select(False, (star,), (table,), None, (), None, span=name.span)
    else:
        query = parse_query(tokens)
    tokens.expect(")")
    tokens.leave(QUERY_DEPTH)
    return ast.Changes(start.keyword, query, span=tokens.since(start))


def _sees_changes_of_list(tokens: TokenStream) -> bool:
    """ISTREAM, DSTREAM or RSTREAM as a word of SELECT, and not as the name of a column."""
    if not tokens.sees_any(CHANGES):
        return False
    after = tokens.peek()
    if after.kind is Kind.SYMBOL:
        return after.value == "(" or (after.value == "*" and tokens.peek(2).keyword in (",", "FROM"))
    begins = tokens.sees_name(1) or after.kind is not Kind.WORD or after.keyword in FIRST_IN_LIST
    return begins and expressions.operator_level(tokens, 1) == 0 and after.kind is not Kind.END


# ---- SELECT ----------------------------------------------------------------------------------------------------------


def _parse_select(tokens: TokenStream) -> ast.Select | ast.Changes:
    """A SELECT, or the changes of one: CQL writes ISTREAM around its list, or before it."""
    start = tokens.advance()
    if not _sees_changes_of_list(tokens):
        return _parse_clauses(tokens, start, *_parse_select_list(tokens))
    word = tokens.advance()
    column = None
    if tokens.sees("("):
        closing = tokens.find_closing()
        if tokens.peek(closing).keyword == ")" and tokens.peek(closing + 1).keyword != "FROM":
            message = f"{word.keyword} must enclose the whole SELECT list"
            raise tokens.error(message, "syntax", word.span, _CHANGES_HINT)
        tokens.advance()
        select_list = _parse_select_list(tokens)
        tokens.expect(")")
    else:
        if tokens.sees_name() and tokens.peek().keyword in (",", "FROM"):
            column = ast.Identifier(word.value, False, span=word.span)
        select_list = _parse_select_list(tokens)
    select = _parse_clauses(tokens, start, *select_list)
    return ast.Changes(word.keyword, select, column, span=tokens.since(start))


def _parse_from_first(tokens: TokenStream) -> ast.Select:
    """`FROM tables [SELECT list] [WHERE …] …`, as DuckDB writes it; without a list it is SELECT *."""
    start = tokens.advance()
    from_tables = tokens.parse_list(tables.parse_table)
    star = ast.Item(ast.Star(span=start.span), None, span=start.span)
    distinct, items = _parse_select_list(tokens) if tokens.accept("SELECT") else (False, (star,))
    return _parse_later_clauses(tokens, start, distinct, items, from_tables)


def _parse_select_list(tokens: TokenStream) -> tuple[bool, tuple[ast.Item, ...]]:
    """Whether it is DISTINCT, and the items."""
    distinct = tokens.accept("DISTINCT")
    if distinct and tokens.sees("ON"):
        raise tokens.unsupported("DISTINCT ON", "Use GROUP BY with MIN or MAX.", tokens.through(tokens.previous))
    if not distinct:
        tokens.accept("ALL")
    elif sees_changes(tokens):
        word = tokens.token.keyword
        hint = f"Write SELECT {word}(DISTINCT a, b) FROM …."
        raise tokens.error(f"DISTINCT must follow {word}", "syntax", hint=hint)
    return distinct, select_items.parse_items(tokens)


def parse_alias(tokens: TokenStream) -> ast.Identifier:
    return tokens.expect_name("a name after AS" if tokens.accept("AS") else "a name")


def _parse_clauses(tokens: TokenStream, start: Token, distinct: bool, items: tuple[ast.Item, ...]) -> ast.Select:
    """What follows the list of a SELECT."""
    from_tables: tuple[ast.TableReference, ...] = ()
    if tokens.accept("FROM"):
        from_tables = tokens.parse_list(tables.parse_table)
    elif tokens.token.kind is not Kind.END and not tokens.sees_any((";", ")", *RESERVED)):
        raise tokens.unexpected("FROM")
    return _parse_later_clauses(tokens, start, distinct, items, from_tables)


def _parse_later_clauses(
    tokens: TokenStream,
    start: Token,
    distinct: bool,
    items: tuple[ast.Item, ...],
    from_tables: tuple[ast.TableReference, ...],
) -> ast.Select:
    """What follows the list and FROM of a SELECT."""
    where = expressions.parse_expression(tokens) if tokens.accept("WHERE") else None
    group_by = _parse_group_by(tokens, items) if tokens.sees("GROUP") else ()
    having = expressions.parse_expression(tokens) if tokens.accept("HAVING") else None
    named = windows.parse_window_clause(tokens)
    qualify = expressions.parse_expression(tokens) if tokens.accept("QUALIFY") else None
    named = named or windows.parse_window_clause(tokens)  # some databases have it behind QUALIFY
    if tokens.sees_any(("WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY")):
        hint = "The order is SELECT, FROM, WHERE, GROUP BY, HAVING, WINDOW, QUALIFY, each at most once."
        raise tokens.error(f"{tokens.token.keyword} is out of place", "syntax", hint=hint)
    items, qualify = windows.define(items, named), windows.define(qualify, named)
    span = tokens.since(start)
    select = ast.Select(distinct, items, from_tables, where, group_by, having, qualify, named, span=span)
    return unnest.with_unnest(group_windows.with_group_windows(tokens, select))


def _parse_group_by(tokens: TokenStream, items: tuple[ast.Item, ...]) -> tuple[ast.Grouping, ...]:
    tokens.expect("GROUP", "BY")
    if tokens.sees("ALL"):
        return select_items.all_keys(items, tokens.advance())
    if tokens.sees("DISTINCT"):
        raise tokens.unsupported(f"GROUP BY {tokens.token.keyword}", "List the grouping expressions.")
    return tokens.parse_list(_parse_grouping)


def _parse_grouping(tokens: TokenStream) -> ast.Grouping:
    """An expression, a list of them in parentheses, or GROUPING SETS, ROLLUP or CUBE of such."""
    start = tokens.token
    if tokens.sees("GROUPING", "SETS") or tokens.sees("CUBE", "(") or tokens.sees("ROLLUP", "("):
        kind = tokens.advance().keyword
        tokens.accept("SETS")
        tokens.enter()
        elements = tokens.parse_enclosed_list(_parse_grouping if kind == "GROUPING" else _parse_grouping_item)
        tokens.leave()
        return ast.GroupingSets(kind, elements, span=tokens.since(start))
    return _parse_grouping_item(tokens)


def _parse_grouping_item(tokens: TokenStream) -> ast.Expression | ast.GroupingList:
    start = tokens.token
    if tokens.accept("(", ")"):
        return ast.GroupingList((), span=tokens.since(start))
    if _opens_list(tokens):
        items = tokens.parse_enclosed_list(expressions.parse_expression)
        return ast.GroupingList(items, span=tokens.since(start))
    return expressions.parse_expression(tokens)


def _opens_list(tokens: TokenStream) -> bool:
    """Whether a parenthesis here holds a list rather than a part of an expression."""
    if not tokens.sees("("):
        return False
    depth = 0
    for ahead in range(tokens.find_closing()):
        keyword = tokens.peek(ahead).keyword
        depth += (keyword == "(") - (keyword == ")")
        if keyword == "," and depth == 1:
            return True
    return False


# ---- ORDER BY … LIMIT ------------------------------------------------------------------------------------------------


def _parse_order(tokens: TokenStream, query: ast.Query) -> ast.Query:
    """`ORDER BY … LIMIT n` or `ORDER BY … FETCH FIRST n ROWS WITH TIES`.

    A whole statement may have one of them without the other: whether its result is finite is seen when it is bound.
    """
    clause = tokens.token
    order = expressions.parse_order_by(tokens) if tokens.sees("ORDER") else ()
    order = windows.define(order, query.windows if isinstance(query, ast.Select) else ())
    if isinstance(query, ast.Select):
        order = tuple(replace(by, value=group_windows.moved_position(by.value, query.items)) for by in order)
    limit: int | None = None
    if tokens.accept("LIMIT"):
        limit = parse_row_count(tokens, "the number of rows")
    elif tokens.sees("FETCH"):
        limit = _parse_fetch(tokens, is_ordered=bool(order))
    if tokens.sees_any(("OFFSET", "FETCH")):
        raise tokens.unsupported(tokens.token.keyword, ast.ORDER_HINT)
    ordered = ast.Ordered(query, order, limit, tokens.since(clause), span=tokens.since(query))
    if not ordered.is_top and tokens.depth != QUERY_DEPTH:
        raise tokens.unsupported(ordered.lacking, ast.ORDER_HINT, ordered.clause)
    return ordered


def _parse_fetch(tokens: TokenStream, is_ordered: bool) -> int:
    """`FETCH FIRST n ROWS WITH TIES`; without an order, any n rows, `ONLY`."""
    tokens.expect("FETCH")
    tokens.expect_any(("FIRST", "NEXT"), "FIRST after FETCH")
    limit = 1 if tokens.sees_any(("ROW", "ROWS")) else parse_row_count(tokens, "the number of rows")
    tokens.expect_any(("ROW", "ROWS"), "ROWS")
    if tokens.sees("ONLY") and not is_ordered:
        tokens.advance()
        return limit
    if tokens.sees("ONLY"):
        raise tokens.unsupported("FETCH … ONLY", "The order of tied rows is undefined. Write WITH TIES.")
    tokens.expect("WITH", "TIES")
    return limit
