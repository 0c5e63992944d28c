"""Queries as they are written: SELECT with its clauses, set operators, joins and windows.

A room of the parser, above `expressions` and below the statements of `parser`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.core.errors import ParseError
from strandline.logical.catalog import SYSTEM
from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser.expressions import Expressions
from strandline.sql.parser.phrases import MAX_DEPTH, RESERVED, too_deep

QUERY_DEPTH: Final = 2  # a nested query takes about twice the stack of a nested expression
OUTER_JOINS: Final = ("LEFT", "RIGHT", "FULL")
MOST_ROWS: Final = 10**9
AFTER_QUERY: Final = ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH")
PARTNER_JOINS: Final = ("SEMI", "ANTI")
CHANGES: Final = ("ISTREAM", "DSTREAM", "RSTREAM")
# Reserved words that may begin the list of a SELECT.
FIRST_IN_LIST: Final = ("ALL", "CASE", "CAST", "DISTINCT", "EXISTS", "FALSE", "LEFT", "NOT", "NULL", "RIGHT", "TRUE")

_CHANGES_HINT: Final = "Write SELECT ISTREAM(a, b) FROM … or ISTREAM(SELECT a, b FROM …)."
_ORDER_HINT: Final = (
    "A continuous result is unordered and unbounded. ORDER BY x LIMIT n gives the first n rows at every instant, "
    "with ties."
)
_WINDOW_HINT: Final = (
    "Write WINDOW(RANGE 10 MINUTES), WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE), WINDOW(ROWS 10), "
    "WINDOW(SESSION 5 MINUTES) or WINDOW(NOW)."
)


class Queries(Expressions):
    """SELECTs and what stands in FROM; `query` is the way in."""

    def query(self) -> ast.Query:
        """SELECTs joined by set operators, of which INTERSECT binds most; WITH before them names queries."""
        self.deeper(QUERY_DEPTH)
        start = self.token
        named = self.common_tables() if self.sees("WITH") else ()
        query: ast.Query = self.set_operations(("UNION", "EXCEPT", "MINUS"), self.intersections)
        if self.sees_any(("ORDER", "LIMIT", "OFFSET", "FETCH")):
            query = self.ordered(query, finite=ast.reads_system(*named, query))
        self.depth -= QUERY_DEPTH
        return ast.With(named, query, span=self.since(start)) if named else query

    def common_tables(self) -> tuple[ast.CommonTable, ...]:
        start = self.next()
        if self.sees("RECURSIVE"):
            hint = "Refer only to earlier queries of WITH."
            raise self.refusal("WITH RECURSIVE", start.span.to(self.token.span), hint)
        return self.listed(self.common_table)

    def common_table(self) -> ast.CommonTable:
        start = self.token
        name = self.name("a name for a query")
        columns = self.column_names()
        self.expect("AS", hint="Write WITH name AS (SELECT …) SELECT … FROM name.")
        self.expect_symbol("(", hint="Write WITH name AS (SELECT …) SELECT … FROM name.")
        query = self.closed_query()
        return ast.CommonTable(name, columns, query, span=self.since(start))

    def column_names(self) -> tuple[ast.Identifier, ...]:
        """`(name, …)`, or nothing."""
        if not self.accept_symbol("("):
            return ()
        names = self.listed(lambda: self.name("a column name"))
        self.expect_symbol(")")
        return names

    def ordered(self, query: ast.Query, finite: bool) -> ast.Query:
        """`ORDER BY … LIMIT n` or `ORDER BY … FETCH FIRST n ROWS WITH TIES`. Of what is finite, as the tables of the
        system are, the whole may be ordered, and its beginning shown without an order."""
        clause = self.token
        order = self.order_by() if self.sees("ORDER") else ()
        if finite and self.depth == QUERY_DEPTH and not self.sees_any(("OFFSET", "FETCH")):
            bare = self.whole_number("the number of rows", 1, MOST_ROWS) if self.accept("LIMIT") else MOST_ROWS
            return ast.Ordered(query, order, bare, span=query.span.to(self.tokens[self.at - 1].span))
        if not order or not self.sees_any(("LIMIT", "FETCH")):
            at = clause.span.to(self.tokens[self.at - 1].span) if order else self.token.span
            feature = "ORDER BY without LIMIT" if order else self.token.keyword
            raise self.refusal(feature, at, _ORDER_HINT)
        limit = self.whole_number("the number of rows", 1, MOST_ROWS) if self.accept("LIMIT") else self.fetch()
        if self.sees("OFFSET"):
            raise self.refusal("OFFSET", self.token.span, _ORDER_HINT)
        return ast.Ordered(query, order, limit, span=query.span.to(self.tokens[self.at - 1].span))

    def fetch(self) -> int:
        self.expect("FETCH")
        if not self.sees_any(("FIRST", "NEXT")):
            raise self.unexpected("FIRST after FETCH")
        self.next()
        limit = 1 if self.sees_any(("ROW", "ROWS")) else self.whole_number("the number of rows", 1, MOST_ROWS)
        if not self.sees_any(("ROW", "ROWS")):
            raise self.unexpected("ROWS")
        self.next()
        if self.sees("ONLY"):
            hint = "Write WITH TIES: rows of equal rank are kept together."
            raise self.refusal("FETCH … ONLY", self.token.span, hint)
        self.expect("WITH", "TIES")
        return limit

    def intersections(self) -> ast.Query:
        return self.set_operations(("INTERSECT",), self.query_operand)

    def set_operations(self, words: tuple[str, ...], operand: Callable[[], ast.Query]) -> ast.Query:
        """Operands with operators between them, from the left; neighbours in UNION ALL are one list."""
        start, depth = self.token, self.depth
        left = operand()
        listed: list[ast.Query] = [left]  # what a further UNION ALL would add to
        while self.sees_any(words):
            operator = self.set_operator()
            right = operand()
            if operator == "UNION ALL":
                listed.append(right)
                left = ast.UnionAll(tuple(listed), span=self.since(start))
            else:
                self.deeper(QUERY_DEPTH)
                left = ast.SetOperation(operator, left, right, span=self.since(start))
                listed = [left]
        self.depth = depth
        return left

    def set_operator(self) -> str:
        """UNION, INTERSECT or EXCEPT with what may follow; MINUS is another word for EXCEPT."""
        word = "EXCEPT" if self.sees("MINUS") else self.token.keyword
        self.next()
        if self.accept("ALL"):
            return f"{word} ALL"
        if word == "UNION" and self.accept("MAX"):
            return "UNION MAX"
        if word == "EXCEPT" and self.accept("STRICT"):
            return "EXCEPT STRICT"
        self.accept("DISTINCT")
        return word

    def query_operand(self) -> ast.Query:
        if self.sees("SELECT"):
            return self.select()
        if self.sees_changes():
            return self.changes()
        if self.sees("WITH"):
            hint = "WITH stands before the whole query, or in parentheses: (WITH … SELECT …)."
            raise self.error("WITH is out of place", "syntax", self.token.span, hint)
        if self.sees("VALUES"):
            raise self.refusal("VALUES", self.token.span, "A query begins with SELECT.")
        if not self.accept_symbol("("):
            raise self.unexpected("SELECT")
        query = self.query()
        self.expect_symbol(")")
        return query

    def sees_query(self) -> bool:
        return self.sees_any(("SELECT", "WITH")) or self.sees_symbol("(") or self.sees_changes()

    def holds_query(self) -> bool:
        return self.opens_query(self.at - 1)

    def sees_changes(self) -> bool:
        """ISTREAM(…), DSTREAM(…) or RSTREAM(…); the words are names elsewhere."""
        return self.sees_any(CHANGES) and self.sees_symbol("(", 1)

    def changes(self) -> ast.Changes:
        """The changes of a query, or of a stream by its name."""
        start = self.next()
        self.deeper(QUERY_DEPTH)
        self.expect_symbol("(")
        if self.at_name() and self.sees_symbol(")", 1):
            name = self.name("a stream")
            star = ast.Item(ast.Star(span=name.span), None, span=name.span)
            table = ast.StreamTable(name, None, None, span=name.span)
            query: ast.Query = ast.Select(False, (star,), (table,), None, (), None, span=name.span)
        else:
            query = self.query()
        self.expect_symbol(")")
        self.depth -= QUERY_DEPTH
        return ast.Changes(start.keyword, query, span=self.since(start))

    def select(self) -> ast.Select | ast.Changes:
        """A SELECT, or the changes of one: CQL writes ISTREAM around its list, or before it."""
        start = self.next()
        if not self.sees_changes_of_list():
            return self.select_from(start, *self.select_list())
        word = self.next()
        column = None
        if self.sees_symbol("("):
            if self.tokens[self.closing(self.at)].value == ")" and not self.sees_changes_end():
                raise self.error(
                    f"{word.keyword} must enclose the whole SELECT list", "syntax", word.span, _CHANGES_HINT
                )
            self.next()
            listed = self.select_list()
            self.expect_symbol(")")
        else:
            if self.at_name() and (self.sees_symbol(",", 1) or self.peek().keyword == "FROM"):
                column = ast.Identifier(word.value, False, span=word.span)
            listed = self.select_list()
        select = self.select_from(start, *listed)
        return ast.Changes(word.keyword, select, column, span=self.since(start))

    def sees_changes_of_list(self) -> bool:
        """ISTREAM, DSTREAM or RSTREAM as a word of SELECT, and not as the name of a column."""
        if not self.sees_any(CHANGES):
            return False
        after = self.peek()
        if after.kind is Kind.SYMBOL:
            before_list = after.value == "*" and (self.sees_symbol(",", 2) or self.peek(2).keyword == "FROM")
            return after.value == "(" or before_list
        self.at += 1
        continues = self.infix_level() > 0
        begins = self.at_name() or after.kind is not Kind.WORD or after.keyword in FIRST_IN_LIST
        self.at -= 1
        return begins and not continues and after.kind is not Kind.END

    def sees_changes_end(self) -> bool:
        """Whether FROM follows the parenthesis that is opened here."""
        return self.tokens[self.closing(self.at) + 1].keyword == "FROM"

    def select_list(self) -> tuple[bool, tuple[ast.Item, ...]]:
        distinct = self.accept("DISTINCT")
        if distinct and self.sees("ON"):
            raise self.refusal(
                "DISTINCT ON", self.tokens[self.at - 1].span.to(self.token.span), "Use GROUP BY with MIN or MAX."
            )
        if not distinct:
            self.accept("ALL")
        elif self.sees_changes():
            word = self.token.keyword
            hint = f"Write SELECT {word}(DISTINCT a, b) FROM …."
            raise self.error(f"DISTINCT must follow {word}", "syntax", self.token.span, hint)
        return distinct, self.listed(self.item)

    def select_from(self, start: Token, distinct: bool, items: tuple[ast.Item, ...]) -> ast.Select:
        """What follows the list of a SELECT."""
        if not self.accept("FROM"):
            if self.token.kind is Kind.END or self.token.value in (";", ")") or self.sees_any(RESERVED):
                raise self.error(
                    "SELECT has no FROM",
                    "missing-from",
                    self.since(start),
                    "Every query reads a stream: SELECT … FROM name.",
                )
            raise self.unexpected("FROM")
        tables = self.listed(self.table)
        where = self.expression() if self.accept("WHERE") else None
        group_by = self.group_by() if self.sees("GROUP") else ()
        having = self.expression() if self.accept("HAVING") else None
        qualify = self.expression() if self.accept("QUALIFY") else None
        self.check_clause_order()
        return ast.Select(distinct, items, tables, where, group_by, having, qualify, span=self.since(start))

    def check_clause_order(self) -> None:
        if self.sees("WINDOW"):
            raise self.refusal(
                "a WINDOW clause", self.token.span, "Put the window right after its stream: FROM s WINDOW(RANGE …)."
            )
        if self.sees_any(("WHERE", "GROUP", "HAVING", "QUALIFY")):
            hint = "The order is SELECT, FROM, WHERE, GROUP BY, HAVING, QUALIFY, each at most once."
            raise self.error(f"{self.token.keyword} is out of place", "syntax", self.token.span, hint)

    def item(self) -> ast.Item:
        start = self.token
        value = self.item_value()
        alias: ast.Identifier | None = None
        if self.accept("AS"):
            alias = self.name("a name after AS")
        elif self.at_name():
            alias = self.name("a name")
        if alias is not None and isinstance(value, ast.Star):
            raise self.error("* cannot have an alias", "syntax", alias.span, "List the columns to rename them.")
        return ast.Item(value, alias, span=self.since(start))

    def item_value(self) -> ast.Expression | ast.Star:
        start = self.token
        if self.accept_symbol("*"):
            return ast.Star(span=start.span)
        if self.at_name() and self.sees_symbol(".", 1) and self.sees_symbol("*", 2):
            qualifier = self.name("a name")
            self.at += 2
            return ast.Star(qualifier, span=self.since(start))
        return self.expression()

    def group_by(self) -> tuple[ast.Grouping, ...]:
        self.expect("GROUP", "BY")
        if self.sees_any(("ALL", "DISTINCT")):
            raise self.refusal(f"GROUP BY {self.token.keyword}", self.token.span, "List the grouping expressions.")
        return self.listed(self.grouping)

    def grouping(self) -> ast.Grouping:
        """An expression, a list of them in parentheses, or GROUPING SETS, ROLLUP or CUBE of such."""
        start = self.token
        if self.sees("GROUPING", "SETS") or (self.sees_any(("CUBE", "ROLLUP")) and self.sees_symbol("(", 1)):
            kind = self.next().keyword
            self.accept("SETS")
            self.deeper()
            self.expect_symbol("(")
            elements = self.listed(self.grouping if kind == "GROUPING" else self.grouping_item)
            self.expect_symbol(")")
            self.depth -= 1
            return ast.GroupingSets(kind, elements, span=self.since(start))
        return self.grouping_item()

    def grouping_item(self) -> ast.Expression | ast.GroupingList:
        start = self.token
        if self.opens_list():
            self.next()
            items = () if self.sees_symbol(")") else self.listed(self.expression)
            self.expect_symbol(")")
            return ast.GroupingList(items, span=self.since(start))
        return self.expression()

    def opens_list(self) -> bool:
        """Whether a parenthesis here holds a list, or nothing, rather than a part of an expression."""
        if not self.sees_symbol("("):
            return False
        depth = 0
        for token in self.tokens[self.at : self.closing(self.at) + 1]:
            symbol = token.value if token.kind is Kind.SYMBOL else ""
            depth += (symbol == "(") - (symbol == ")")
            if symbol == "," and depth == 1:
                return True
        return self.sees_symbol(")", 1)

    # ---- FROM ------------------------------------------------------------------------------------------------------

    def table(self) -> ast.Table:
        """A stream or subquery and the joins that follow it."""
        start = self.token
        left = self.table_operand()
        while True:
            if self.accept("CROSS"):
                self.expect("JOIN")
                right = self.table_operand()
                left = ast.Join(None, left, right, span=self.since(start))
            elif self.sees_any(("JOIN", "INNER", "NATURAL", *OUTER_JOINS)) or self.sees_partner_join():
                left = self.join(left, start)
            else:
                self.refuse_other_joins()
                return left

    def join(self, left: ast.Table, start: Token) -> ast.Join:
        """What follows the left side of a join, all but CROSS JOIN."""
        natural = self.accept("NATURAL")
        kind = None
        if self.sees("LEFT") and self.sees_partner_join(1):
            self.next()
        if self.sees_partner_join():
            kind = self.next().keyword
        elif self.sees_any(OUTER_JOINS):
            kind = self.next().keyword
            self.accept("OUTER")
        else:
            self.accept("INNER")
        self.expect("JOIN")
        right = self.table_operand()
        condition, using = (None, ()) if natural else self.join_condition()
        return ast.Join(condition, left, right, kind, using, natural, span=self.since(start))

    def sees_partner_join(self, ahead: int = 0) -> bool:
        """SEMI JOIN or ANTI JOIN; the words are names elsewhere."""
        return self.peek(ahead).keyword in PARTNER_JOINS and self.peek(ahead + 1).keyword == "JOIN"

    def join_condition(self) -> tuple[ast.Expression | None, tuple[ast.Identifier, ...]]:
        if self.accept("USING"):
            self.expect_symbol("(")
            names = self.listed(lambda: self.name("a column of both sides"))
            self.expect_symbol(")")
            return None, names
        self.expect("ON", hint="Write JOIN … ON condition, JOIN … USING (columns), or CROSS JOIN for all pairs.")
        return self.expression(), ()

    def refuse_other_joins(self) -> None:
        token = self.token
        if token.keyword == "ASOF" and self.peek().keyword == "JOIN":
            raise self.refusal(
                "ASOF JOIN", token.span.to(self.peek().span), "Join on conditions over the time columns."
            )

    def table_operand(self) -> ast.Table:
        if self.sees("LATERAL"):
            raise self.refusal("LATERAL", self.token.span, "Join the subquery on the columns that it would look up.")
        if self.sees_changes():
            return self.changes_table()
        if not self.sees_symbol("("):
            return self.stream_table()
        if self.opens_query(self.at):
            return self.query_table()
        return self.nested_joins()

    def opens_query(self, outer: int) -> bool:
        """Whether the parenthesis at position `outer` holds a query rather than a join or a list of values.

        `((SELECT …) UNION ALL …)`, `((SELECT …) AS a JOIN …)` and `((SELECT …), 2)` begin alike; what follows the inner
        parenthesis tells.
        """
        inner = outer
        while self.tokens[inner].value == "(" and self.tokens[inner].kind is Kind.SYMBOL:
            inner += 1
        if inner - outer > MAX_DEPTH:
            raise too_deep(self.tokens[inner].span)
        changes = self.tokens[inner].keyword in CHANGES and self.tokens[inner + 1].value == "("
        if self.tokens[inner].keyword not in ("SELECT", "WITH", "VALUES") and not changes:
            return False
        for opening in range(inner - 1, outer, -1):
            after = self.tokens[min(self.closing(opening) + 1, len(self.tokens) - 1)]
            symbol = after.value if after.kind is Kind.SYMBOL else ""
            if symbol != ")" and after.keyword not in AFTER_QUERY:
                return False
        return True

    def nested_joins(self) -> ast.Table:
        self.deeper()
        self.expect_symbol("(")
        table = self.table()
        self.expect_symbol(")")
        if self.sees_window() or self.sees("AS") or self.at_name():
            hint = "Windows and aliases belong to the streams and subqueries inside."
            raise self.error("parenthesised joins take no window and no alias", "syntax", self.token.span, hint)
        self.depth -= 1
        return table

    def stream_table(self) -> ast.StreamTable:
        start = self.token
        name = self.name("a stream or a subquery")
        if self.sees_symbol("("):
            hint = "Declare it first: CREATE STREAM name (columns) SOURCE function(…) ORDERED BY column."
            raise self.refusal("a function in FROM", name.span, hint)
        if self.sees_symbol("."):
            if not name.matches("sys"):
                hint = "Stream names have one part."
                raise self.refusal("a schema name", self.since(start).to(self.peek().span), hint)
            return self.system_table(name)
        window, granularity, alias = self.window_and_alias()
        return ast.StreamTable(name, window, alias, granularity, span=self.since(start))

    def system_table(self, schema: ast.Identifier) -> ast.StreamTable:
        """`sys.operators [alias]`: what it is now, so it has no window."""
        name = self.name_in(schema)
        at = self.token
        window, granularity, alias = self.window_and_alias()
        if window is not None or granularity is not None:
            hint = "Remove the window."
            raise self.error(f'a window over "{name.name}"', "system-table", at.span, hint)
        alias = alias or ast.Identifier(name.name.removeprefix(SYSTEM), span=name.span)
        return ast.StreamTable(name, None, alias, span=name.span.to(alias.span))

    def name_in(self, schema: ast.Identifier) -> ast.Identifier:
        """The rest of a name such as `sys.operators`."""
        self.expect_symbol(".")
        last = self.name("a table of sys")
        return ast.Identifier(f"{SYSTEM}{last.name.lower()}", span=schema.span.to(last.span))

    def changes_table(self) -> ast.QueryTable:
        start = self.token
        query = self.changes()
        window, granularity, alias = self.window_and_alias()
        match query.query:
            case ast.Select(_, _, (ast.StreamTable(name, None, None),), _, _, _) if alias is None:
                alias = name
        if alias is None:
            raise self.unnamed(start)
        return ast.QueryTable(query, window, alias, granularity, span=self.since(start))

    def query_table(self) -> ast.QueryTable:
        start = self.token
        self.expect_symbol("(")
        query = self.query()
        self.expect_symbol(")")
        window, granularity, alias = self.window_and_alias()
        if alias is None:
            raise self.unnamed(start)
        return ast.QueryTable(query, window, alias, granularity, span=self.since(start))

    def unnamed(self, start: Token) -> ParseError:
        hint = "Add one: (SELECT …) AS name."
        return self.error("a subquery in FROM has no name", "missing-alias", self.since(start), hint)

    def window_and_alias(self) -> tuple[ast.Window | None, ast.Duration | None, ast.Identifier | None]:
        """A window with its granularity, and an alias, in either order, all optional."""
        window = self.window() if self.sees_window() else None
        granularity = self.granularity()
        alias: ast.Identifier | None = None
        if self.accept("AS"):
            alias = self.name("a name after AS")
        elif self.at_name() and not (
            self.sees("ALLOW", "SHEDDING") or (self.sees_any(("SEMI", "ANTI", "ASOF", "MINUS")) and self.peek().keyword)
        ):
            alias = self.name("a name")
        if alias is not None and self.sees_symbol("("):
            raise self.refusal(
                "a column list after an alias", self.token.span, "Name the columns in the subquery with AS."
            )
        if self.sees_window():
            if window is not None:
                raise self.error(
                    "a second window over one stream", "duplicate-window", self.token.span, "Keep one of them."
                )
            window = self.window()
        return window, granularity or self.granularity(), alias

    def granularity(self) -> ast.Duration | None:
        """`GRANULARITY(n unit)`."""
        if not (self.sees("GRANULARITY") and self.sees_symbol("(", 1)):
            return None
        self.next()
        self.expect_symbol("(")
        length = self.duration("GRANULARITY", least=1)
        self.expect_symbol(")")
        return length

    def sees_window(self) -> bool:
        return self.sees_symbol("[") or (self.sees("WINDOW") and self.sees_symbol("(", 1))

    def window(self) -> ast.Window:
        """`WINDOW(…)` or `[…]`."""
        start = self.token
        closing = "]" if self.accept_symbol("[") else ")"
        if closing == ")":
            self.expect("WINDOW")
            self.expect_symbol("(")
        if self.accept("NOW"):
            self.expect_symbol(closing)
            return ast.NowWindow(span=self.since(start))
        partition: tuple[ast.ColumnName, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            partition = self.listed(self.partition_column)
        if self.accept("RANGE"):
            return self.range_window(start, closing, partition)
        if self.accept("ROWS"):
            return self.rows_window(start, closing, partition)
        if self.accept("SESSION"):
            gap = self.duration("SESSION", least=1)
            self.expect_symbol(closing)
            return ast.SessionWindow(partition, gap, span=self.since(start))
        raise self.unexpected("RANGE, ROWS or SESSION" if partition else "RANGE, ROWS, SESSION or NOW", _WINDOW_HINT)

    def range_window(self, start: Token, closing: str, partition: tuple[ast.ColumnName, ...]) -> ast.RangeWindow:
        if self.sees_any(("MIN", "MAX")):
            raise self.refusal(
                f"RANGE {self.token.keyword}", self.token.span, "Give the range a length: RANGE 10 MINUTES."
            )
        length = None if self.accept("UNBOUNDED") else self.duration("RANGE", least=1)
        slide = self.duration("SLIDE", least=1) if self.accept("SLIDE") else None
        if not self.sees_symbol(closing):
            raise self.unexpected(closing if slide else f"SLIDE or {closing}", _WINDOW_HINT)
        self.next()
        return ast.RangeWindow(length, slide, partition, span=self.since(start))

    def rows_window(
        self, start: Token, closing: str, partition: tuple[ast.ColumnName, ...]
    ) -> ast.RowsWindow | ast.RangeWindow:
        """`ROWS n [SLIDE m]`; the rows so far, without a bound, are those of all times so far."""
        if self.accept("UNBOUNDED"):
            if self.sees("SLIDE"):
                hint = "Leave SLIDE out, or write RANGE UNBOUNDED SLIDE 1 MINUTE to let rows in once a minute."
                raise self.refusal("SLIDE after ROWS UNBOUNDED", self.token.span, hint)
            self.expect_symbol(closing, _WINDOW_HINT)
            return ast.RangeWindow(None, None, partition, span=self.since(start))
        rows = self.whole_number("the number of rows", 1, MOST_ROWS)
        slide = self.whole_number("the slide in rows", 1, MOST_ROWS) if self.accept("SLIDE") else 1
        if not self.sees_symbol(closing):
            raise self.unexpected(closing, _WINDOW_HINT)
        self.next()
        return ast.RowsWindow(partition, rows, slide, span=self.since(start))

    def partition_column(self) -> ast.ColumnName:
        start = self.token
        name = self.name("a column of the stream")
        return ast.ColumnName(None, name, span=self.since(start))
