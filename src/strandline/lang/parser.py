"""Tokens to syntax tree: recursive descent for statements, precedence climbing for expressions.

What belongs to SQL but not to the language yet is recognised and refused by name (`not-supported`), so that a user
learns what is missing rather than which comma was unexpected. To add such a feature, replace its refusal by a node.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, NoReturn, TypeVar

from strandline import types
from strandline.catalog import Argument
from strandline.errors import ParseError, Span
from strandline.lang import ast
from strandline.lang.tokens import Kind, Token, tokenize
from strandline.temporal import UNITS
from strandline.types import MAX_PRECISION, Type, decimal

T = TypeVar("T")

# Deeper trees than this would exhaust Python's stack somewhere between here and the last rewrite of the plan.
MAX_DEPTH: Final = 100
QUERY_DEPTH: Final = 2  # a nested query takes about twice the stack of a nested expression

# Durations stay far inside of int64, so that adding one to any instant of a row cannot overflow.
MAX_DURATION_US: Final = 2**61

# Words that cannot be names unless quoted: each of them could follow a name with a meaning of its own.
RESERVED: Final = frozenset(
    """ALL AND AS BETWEEN CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FROM FULL GROUP HAVING IN
    INNER INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER RIGHT SELECT THEN TRUE UNION USING
    WHEN WHERE WINDOW WITH""".split()
)

# PostgreSQL's precedence, weakest first. Comparisons and the level above do not chain: a < b < c is an error.
OR, AND, NOT, IS, COMPARE, MATCH, CONCAT, ADD, MULTIPLY, SIGN, CAST = range(1, 12)
BINARY: Final = {
    **dict.fromkeys(("=", "<>", "!=", "==", "<", "<=", ">", ">="), COMPARE),
    "||": CONCAT,
    **dict.fromkeys("+-", ADD),
    **dict.fromkeys("*/%", MULTIPLY),
}
MATCHES: Final = ("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR")

SIMPLE_TYPES: Final[dict[str, Type]] = {
    "BOOLEAN": types.BOOLEAN,
    "BOOL": types.BOOLEAN,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "FLOAT": types.DOUBLE,
    "REAL": types.DOUBLE,
    "VARCHAR": types.VARCHAR,
    "TEXT": types.VARCHAR,
    "STRING": types.VARCHAR,
    "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP,
}
TYPE_NAMES: Final = (*SIMPLE_TYPES, "DECIMAL", "NUMERIC")

STATEMENTS: Final = ("SELECT", "CREATE", "DROP", "EXPLAIN")
OTHER_STATEMENTS: Final = frozenset("ALTER DELETE DESCRIBE INSERT MERGE SHOW TRUNCATE UPDATE VALUES WITH".split())
OUTER_JOINS: Final = ("LEFT", "RIGHT", "FULL")

_WINDOW_HINT: Final = "Write WINDOW(RANGE 10 MINUTES), WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE) or WINDOW(NOW)."
_SUBQUERY_HINT: Final = "Put the subquery into FROM and join it."
_AMOUNT: Final = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)\s*([A-Za-z]*)\s*(?:,\s*(?=.))?")


def parse(text: str) -> list[ast.Statement]:
    """The statements of a script; they are separated by semicolons."""
    return _Parser(text).script()


def parse_one(text: str) -> ast.Statement:
    """The only statement of `text`."""
    statements = parse(text)
    if not statements:
        raise ParseError("expected a statement, found the end of the text", code="syntax", span=Span(text, 0, 0))
    if len(statements) > 1:
        raise ParseError(
            "expected one statement, found another",
            code="one-statement",
            hint="Run them one by one, or as a script.",
            span=statements[1].span,
        )
    return statements[0]


class _Parser:
    """A position in the tokens of one text, and a method per phrase of the grammar.

    A method named after a phrase starts at the first token of the phrase and leaves the position right after it.
    """

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0

    # ---- looking and moving ----------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        if token.kind is not Kind.END:
            self.at += 1
        return token

    def sees(self, *keywords: str) -> bool:
        """Whether the next tokens are these keywords."""
        return all(self.peek(i).keyword == word for i, word in enumerate(keywords))

    def sees_any(self, keywords: Iterable[str]) -> bool:
        return self.token.keyword in keywords

    def sees_symbol(self, symbol: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind is Kind.SYMBOL and token.value == symbol

    def accept(self, *keywords: str) -> bool:
        """Move over these keywords if all of them are next."""
        if not self.sees(*keywords):
            return False
        self.at += len(keywords)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.sees_symbol(symbol):
            return False
        self.at += 1
        return True

    def expect(self, *keywords: str, hint: str | None = None) -> None:
        for keyword in keywords:
            if not self.accept(keyword):
                self.unexpected(keyword, hint)

    def expect_symbol(self, symbol: str, hint: str | None = None) -> None:
        if not self.accept_symbol(symbol):
            self.unexpected(symbol, hint)

    def since(self, start: Token) -> Span:
        """From `start` to the last token that was taken."""
        return start.span.to(self.tokens[max(self.at - 1, 0)].span)

    def listed(self, element: Callable[[], T]) -> tuple[T, ...]:
        """One or more elements between commas."""
        elements = [element()]
        while self.accept_symbol(","):
            elements.append(element())
        return tuple(elements)

    # ---- errors ----------------------------------------------------------------------------------------------------

    def unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        self.fail(f"expected {wanted}, found {self.token}", "syntax", self.token.span, hint)

    def fail(self, message: str, code: str, span: Span, hint: str | None = None) -> NoReturn:
        raise ParseError(message, code=code, hint=hint, span=span)

    def refuse(self, feature: str, span: Span, hint: str) -> NoReturn:
        raise ParseError(f"{feature} is not supported", code="not-supported", hint=hint, span=span)

    def deeper(self, levels: int = 1) -> None:
        """Go down `levels` in the tree; whoever calls goes up again by as many."""
        self.depth += levels
        if self.depth > MAX_DEPTH:
            _too_deep(self.token.span)

    # ---- statements ------------------------------------------------------------------------------------------------

    def script(self) -> list[ast.Statement]:
        statements: list[ast.Statement] = []
        while True:
            while self.accept_symbol(";"):
                pass
            if self.token.kind is Kind.END:
                return statements
            statement = self.statement()
            if self.token.kind is not Kind.END and not self.sees_symbol(";"):
                self.unexpected("; or the end of the statement", self.leftover_hint())
            _check_height(statement)
            statements.append(statement)

    def leftover_hint(self) -> str | None:
        if self.sees_symbol("["):
            return "A window stands right after a stream or subquery in FROM, before or after its alias."
        if self.token.keyword in RESERVED:
            return f'A name that is also a keyword needs quotes: "{self.token.value}".'
        return None

    def statement(self) -> ast.Statement:
        token = self.token
        match token.keyword:
            case "SELECT":
                return self.query()
            case "CREATE":
                return self.create()
            case "DROP":
                return self.drop()
            case "EXPLAIN":
                return self.explain()
            case "WITH":
                self.refuse("WITH", token.span, "Name the query first: CREATE STREAM name AS SELECT ….")
            case word if word in OTHER_STATEMENTS:
                self.refuse(word, token.span, "Statements are SELECT, CREATE STREAM, DROP STREAM and EXPLAIN.")
        if self.sees_symbol("("):
            return self.query()
        near = difflib.get_close_matches(token.keyword, STATEMENTS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "A statement begins with SELECT, CREATE STREAM, DROP or EXPLAIN."
        self.unexpected("a statement", hint)

    def explain(self) -> ast.Explain:
        start = self.next()
        if self.sees("ANALYZE"):
            self.refuse("EXPLAIN ANALYZE", start.span.to(self.token.span), "Write EXPLAIN alone for the plan.")
        if self.sees("CREATE"):
            statement = self.create()
            if isinstance(statement, ast.CreateStream):
                hint = "EXPLAIN shows the plan of a SELECT or CREATE STREAM … AS SELECT."
                self.fail("a stream from a source has no plan", "nothing-to-explain", statement.span, hint)
            return ast.Explain(statement, span=self.since(start))
        if not self.sees("SELECT") and not self.sees_symbol("("):
            self.unexpected("SELECT or CREATE STREAM after EXPLAIN")
        return ast.Explain(self.query(), span=self.since(start))

    def create(self) -> ast.CreateStream | ast.CreateStreamAs:
        start = self.next()
        if self.sees("OR", "REPLACE"):
            self.refuse(
                "CREATE OR REPLACE", self.token.span.to(self.peek().span), "Drop the stream first: DROP STREAM."
            )
        if self.sees_any(("TABLE", "VIEW", "MATERIALIZED", "TEMPORARY", "INDEX", "FUNCTION")):
            feature = f"CREATE {self.token.keyword}"
            self.refuse(feature, start.span.to(self.token.span), "Declare a stream: CREATE STREAM.")
        self.expect("STREAM", hint="Declare a stream: CREATE STREAM name (columns) SOURCE … or AS SELECT ….")
        if self.sees("IF", "NOT", "EXISTS"):
            self.refuse("IF NOT EXISTS", self.token.span.to(self.peek(2).span), "Leave it out.")
        name = self.name("a stream name")
        if self.accept("AS"):
            if not self.sees("SELECT") and not self.sees_symbol("("):
                self.unexpected("SELECT after AS")
            return ast.CreateStreamAs(name, self.query(), span=self.since(start))
        self.expect_symbol(
            "(", hint="Write CREATE STREAM name (column TYPE, …) SOURCE … or CREATE STREAM name AS SELECT …."
        )
        columns = self.listed(self.column_definition)
        self.expect_symbol(")")
        return self.create_from_source(start, name, columns)

    def create_from_source(
        self, start: Token, name: ast.Identifier, columns: tuple[ast.ColumnDefinition, ...]
    ) -> ast.CreateStream:
        self.expect("SOURCE", hint="Say where the rows come from: SOURCE file('path') ORDERED BY column.")
        source = self.source()
        self.expect("ORDERED", "BY", hint="Say which column is the time: ORDERED BY column [WITHIN 5 SECONDS].")
        time_column = self.name("the time column")
        within: ast.Duration | None = None
        idle_after: ast.Duration | None = None
        while True:
            clause = self.token
            if within is None and self.accept("WITHIN"):
                within = self.duration("WITHIN", least=0)
            elif idle_after is None and self.accept("IDLE"):
                self.expect("AFTER")
                idle_after = self.duration("IDLE AFTER", least=1)
            elif self.sees_any(("WITHIN", "IDLE")):
                self.fail(f"{clause.keyword} is given twice", "duplicate-clause", clause.span)
            else:
                break
        return ast.CreateStream(name, columns, source, time_column, within, idle_after, span=self.since(start))

    def column_definition(self) -> ast.ColumnDefinition:
        start = self.token
        name = self.name("a column name")
        kind = self.type_name()
        return ast.ColumnDefinition(name, kind, span=self.since(start))

    def drop(self) -> ast.DropStream:
        start = self.next()
        if self.sees_any(("TABLE", "VIEW", "INDEX", "FUNCTION")):
            self.refuse(f"DROP {self.token.keyword}", start.span.to(self.token.span), "Write DROP STREAM name.")
        self.expect("STREAM", hint="Write DROP STREAM name.")
        if_exists = self.accept("IF", "EXISTS")
        name = self.name("a stream name")
        if self.sees_any(("CASCADE", "RESTRICT")):
            self.refuse(self.token.keyword, self.token.span, "Drop the dependants first.")
        return ast.DropStream(name, if_exists, span=self.since(start))

    # ---- sources ---------------------------------------------------------------------------------------------------

    def source(self) -> ast.Source:
        start = self.token
        function = self.name("a source function")
        self.expect_symbol("(", hint="A source is a function: file('path'), rows((1, 'a'), …), ….")
        arguments: list[ast.SourceValue] = []
        options: list[tuple[ast.Identifier, ast.SourceValue]] = []
        if not self.sees_symbol(")"):
            self.source_argument(arguments, options)
            while self.accept_symbol(","):
                self.source_argument(arguments, options)
        self.expect_symbol(")")
        return ast.Source(function, tuple(arguments), tuple(options), span=self.since(start))

    def source_argument(
        self, arguments: list[ast.SourceValue], options: list[tuple[ast.Identifier, ast.SourceValue]]
    ) -> None:
        """Read one argument into `arguments` or, if it is named, into `options`."""
        if not (self.sees_symbol("=>", 1) or self.sees_symbol("=", 1)):
            value = self.source_value()
            if options:
                hint = "Positional arguments come first, then name => value."
                self.fail("a positional argument follows a named one", "argument-order", value.span, hint)
            arguments.append(value)
            return
        name = self.name("an option name")
        self.next()
        if any(name.name.lower() == other.name.lower() for other, _ in options):
            self.fail(f'option "{name.name}" is given twice', "duplicate-option", name.span)
        options.append((name, self.source_value()))

    def source_value(self) -> ast.SourceValue:
        start = self.token
        value = self.plain_value()
        return ast.SourceValue(value, span=self.since(start))

    def plain_value(self) -> Argument:
        """A literal or a parenthesised row of them. A number with a point stays text, so that it stays exact."""
        token = self.token
        if self.accept_symbol("("):
            return self.row()
        if self.accept("NULL"):
            return None
        if self.sees_any(("TRUE", "FALSE")):
            return self.next().keyword == "TRUE"
        if self.sees_any(("TIMESTAMP", "DATE")) and self.peek().kind is Kind.TEXT:
            self.next()
        if self.token.kind is Kind.TEXT:
            return self.next().value
        sign = self.next().value if self.sees_symbol("-") or self.sees_symbol("+") else ""
        if self.token.kind is Kind.NUMBER:
            return plain_number(sign.replace("+", "") + self.next().value, self.since(token))
        hint = f"Put texts in single quotes: '{token.value}'." if token.kind in (Kind.WORD, Kind.QUOTED) else None
        self.unexpected("a literal", hint)

    def row(self) -> list[Argument]:
        self.deeper()
        values: list[Argument] = []
        if not self.sees_symbol(")"):
            values.extend(self.listed(self.plain_value))
        self.expect_symbol(")")
        self.depth -= 1
        return values

    # ---- queries ---------------------------------------------------------------------------------------------------

    def query(self) -> ast.Query:
        """One or more SELECTs joined by UNION ALL."""
        self.deeper(QUERY_DEPTH)
        start = self.token
        branches = [self.query_operand()]
        while self.sees_any(("UNION", "INTERSECT", "EXCEPT", "MINUS")):
            self.set_operator()
            branches.append(self.query_operand())
        if self.sees_any(("ORDER", "LIMIT", "OFFSET", "FETCH")):
            self.refuse_order()
        self.depth -= QUERY_DEPTH
        return branches[0] if len(branches) == 1 else ast.UnionAll(tuple(branches), span=self.since(start))

    def set_operator(self) -> None:
        operator = self.next()
        if operator.keyword == "UNION" and self.accept("ALL"):
            return
        feature = operator.keyword
        if self.sees_any(("ALL", "DISTINCT")):
            feature = f"{feature} {self.next().keyword}"
        hint = "UNION ALL is." if operator.keyword != "UNION" else "Write UNION ALL, and SELECT DISTINCT around it."
        self.refuse(feature, self.since(operator), hint)

    def refuse_order(self) -> NoReturn:
        token = self.token
        by = token.keyword == "ORDER" and self.peek().keyword == "BY"
        span = token.span.to(self.peek().span) if by else token.span
        hint = "A continuous answer has no order and no end: each row carries valid_from and valid_until."
        self.refuse("ORDER BY" if by else token.keyword, span, hint)

    def query_operand(self) -> ast.Query:
        if self.sees("SELECT"):
            return self.select()
        if self.sees_any(("WITH", "VALUES")):
            self.refuse(self.token.keyword, self.token.span, "A query begins with SELECT.")
        if not self.accept_symbol("("):
            self.unexpected("SELECT")
        query = self.query()
        self.expect_symbol(")")
        return query

    def select(self) -> ast.Select:
        start = self.next()
        distinct = self.accept("DISTINCT")
        if distinct and self.sees("ON"):
            self.refuse(
                "DISTINCT ON", self.tokens[self.at - 1].span.to(self.token.span), "Use GROUP BY with MIN or MAX."
            )
        if not distinct:
            self.accept("ALL")
        items = self.listed(self.item)
        if not self.accept("FROM"):
            if self.token.kind is Kind.END or self.token.value in (";", ")") or self.sees_any(RESERVED):
                self.fail(
                    "SELECT has no FROM",
                    "missing-from",
                    self.since(start),
                    "Every query reads a stream: SELECT … FROM name.",
                )
            self.unexpected("FROM")
        tables = self.listed(self.table)
        where = self.expression() if self.accept("WHERE") else None
        group_by = self.group_by() if self.sees("GROUP") else ()
        having = self.expression() if self.accept("HAVING") else None
        self.check_clause_order()
        return ast.Select(distinct, items, tables, where, group_by, having, span=self.since(start))

    def check_clause_order(self) -> None:
        if self.sees("WINDOW"):
            self.refuse(
                "a WINDOW clause", self.token.span, "A window stands right after its stream: FROM s WINDOW(RANGE …)."
            )
        if self.sees_any(("WHERE", "GROUP", "HAVING")):
            hint = "The order is SELECT, FROM, WHERE, GROUP BY, HAVING, each at most once."
            self.fail(f"{self.token.keyword} is out of place", "syntax", self.token.span, hint)

    def item(self) -> ast.Item:
        start = self.token
        value = self.item_value()
        alias: ast.Identifier | None = None
        if self.accept("AS"):
            alias = self.name("a name after AS")
        elif self.at_name():
            alias = self.name("a name")
        if alias is not None and isinstance(value, ast.Star):
            self.fail("* cannot have a name", "syntax", alias.span, "List the columns to rename them.")
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

    def group_by(self) -> tuple[ast.Expression, ...]:
        self.expect("GROUP", "BY")
        if self.sees_any(("ALL", "DISTINCT")):
            self.refuse(f"GROUP BY {self.token.keyword}", self.token.span, "List the grouping expressions.")
        return self.listed(self.grouping)

    def grouping(self) -> ast.Expression:
        feature = None
        if self.sees("GROUPING", "SETS"):
            feature = "GROUPING SETS"
        elif self.sees_any(("CUBE", "ROLLUP")) and self.sees_symbol("(", 1):
            feature = self.token.keyword
        elif self.sees_symbol("(") and self.sees_symbol(")", 1):
            feature = "the empty grouping set"
        if feature is not None:
            self.refuse(feature, self.token.span, "Write one query per grouping and join them by UNION ALL.")
        return self.expression()

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
            elif self.sees("JOIN") or self.sees("INNER"):
                self.accept("INNER")
                self.expect("JOIN")
                right = self.table_operand()
                left = ast.Join(self.join_condition(), left, right, span=self.since(start))
            else:
                self.refuse_other_joins()
                return left

    def join_condition(self) -> ast.Expression:
        if self.sees("USING"):
            self.refuse("JOIN … USING", self.token.span, "Write ON a.x = b.x.")
        self.expect("ON", hint="Write JOIN … ON condition, or CROSS JOIN for all pairs.")
        return self.expression()

    def refuse_other_joins(self) -> None:
        token = self.token
        if token.keyword in OUTER_JOINS:
            feature = f"{token.keyword} JOIN"
        elif token.keyword == "NATURAL" or (
            token.keyword in ("SEMI", "ANTI", "ASOF") and self.peek().keyword == "JOIN"
        ):
            feature = f"{token.keyword} JOIN"
        else:
            return
        ahead = 2 if self.peek().keyword == "OUTER" else 1
        span = token.span.to(self.peek(ahead).span) if self.peek(ahead).keyword == "JOIN" else token.span
        self.refuse(feature, span, "[INNER] JOIN … ON and CROSS JOIN are.")

    def table_operand(self) -> ast.Table:
        if self.sees("LATERAL"):
            self.refuse("LATERAL", self.token.span, "Join the subquery on the columns that it would look up.")
        if not self.sees_symbol("("):
            return self.stream_table()
        if self.opens_query():
            return self.query_table()
        return self.nested_joins()

    def opens_query(self) -> bool:
        """Whether the parenthesis here holds a query rather than a join.

        `((SELECT …) UNION ALL …)` and `((SELECT …) AS a JOIN …)` begin alike; what follows the inner parenthesis tells.
        """
        inner = self.at
        while self.tokens[inner].value == "(" and self.tokens[inner].kind is Kind.SYMBOL:
            inner += 1
        if self.tokens[inner].keyword not in ("SELECT", "WITH", "VALUES"):
            return False
        for opening in range(inner - 1, self.at, -1):
            after = (
                self.tokens[self.closing(opening) + 1]
                if self.closing(opening) + 1 < len(self.tokens)
                else self.tokens[-1]
            )
            symbol = after.value if after.kind is Kind.SYMBOL else ""
            if symbol != ")" and after.keyword not in ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT"):
                return False
        return True

    def closing(self, opening: int) -> int:
        """The position of the parenthesis that closes the one at `opening`, or of the last token."""
        depth = 0
        for position in range(opening, len(self.tokens)):
            token = self.tokens[position]
            if token.kind is Kind.SYMBOL and token.value in "()":
                depth += 1 if token.value == "(" else -1
                if depth == 0:
                    return position
        return len(self.tokens) - 1

    def nested_joins(self) -> ast.Table:
        self.deeper()
        self.expect_symbol("(")
        table = self.table()
        self.expect_symbol(")")
        if self.sees_window() or self.sees("AS"):
            hint = "Windows and aliases belong to the streams and subqueries inside."
            self.fail("parenthesised joins take no window and no alias", "syntax", self.token.span, hint)
        self.depth -= 1
        return table

    def stream_table(self) -> ast.StreamTable:
        start = self.token
        name = self.name("a stream or a subquery")
        if self.sees_symbol("("):
            hint = "Declare it first: CREATE STREAM name (columns) SOURCE function(…) ORDERED BY column."
            self.refuse("a function in FROM", name.span, hint)
        if self.sees_symbol("."):
            self.refuse("a schema name", self.since(start).to(self.peek().span), "Stream names have one part.")
        window, alias = self.window_and_alias()
        return ast.StreamTable(name, window, alias, span=self.since(start))

    def query_table(self) -> ast.QueryTable:
        start = self.token
        self.expect_symbol("(")
        query = self.query()
        self.expect_symbol(")")
        window, alias = self.window_and_alias()
        if alias is None:
            self.fail(
                "a subquery in FROM has no name", "missing-alias", self.since(start), "Add one: (SELECT …) AS name."
            )
        return ast.QueryTable(query, window, alias, span=self.since(start))

    def window_and_alias(self) -> tuple[ast.Window | None, ast.Identifier | None]:
        """A window and an alias in either order, both optional."""
        window = self.window() if self.sees_window() else None
        alias: ast.Identifier | None = None
        if self.accept("AS"):
            alias = self.name("a name after AS")
        elif self.at_name() and not (self.sees_any(("SEMI", "ANTI", "ASOF", "MINUS")) and self.peek().keyword):
            alias = self.name("a name")
        if alias is not None and self.sees_symbol("("):
            self.refuse("a column list after an alias", self.token.span, "Name the columns in the subquery with AS.")
        if self.sees_window():
            if window is not None:
                self.fail("a second window over one stream", "duplicate-window", self.token.span, "Keep one of them.")
            window = self.window()
        return window, alias

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
        for words in (("PARTITION", "BY"), ("ROWS",), ("UNBOUNDED",)):
            if self.sees(*words):
                span = self.token.span.to(self.peek(len(words) - 1).span)
                self.refuse(f"a {' '.join(words)} window", span, "Use a time window: RANGE 10 MINUTES.")
        if not self.accept("RANGE"):
            self.unexpected("RANGE or NOW", _WINDOW_HINT)
        if self.sees_any(("UNBOUNDED", "MIN", "MAX")):
            self.refuse(f"RANGE {self.token.keyword}", self.token.span, "Give the range a length: RANGE 10 MINUTES.")
        length = self.duration("RANGE", least=1)
        slide = self.duration("SLIDE", least=1) if self.accept("SLIDE") else None
        if not self.sees_symbol(closing):
            self.unexpected(closing if slide else f"SLIDE or {closing}", _WINDOW_HINT)
        self.next()
        return ast.RangeWindow(length, slide, span=self.since(start))

    # ---- names, types and durations --------------------------------------------------------------------------------

    def at_name(self) -> bool:
        token = self.token
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.keyword not in RESERVED)

    def name(self, what: str) -> ast.Identifier:
        token = self.token
        if self.at_name():
            self.next()
            return ast.Identifier(token.value, token.kind is Kind.QUOTED, span=token.span)
        hint = f'A name that is also a keyword needs quotes: "{token.value}".' if token.keyword in RESERVED else None
        self.unexpected(what, hint)

    def type_name(self) -> ast.TypeName:
        start = self.token
        word = start.keyword
        if word in ("DECIMAL", "NUMERIC"):
            self.next()
            kind = self.decimal_type(start)
        elif word in SIMPLE_TYPES:
            self.next()
            kind = SIMPLE_TYPES[word]
            self.type_suffix(start)
        elif start.kind is Kind.WORD:
            near = difflib.get_close_matches(word, TYPE_NAMES, n=1)
            known = "Types are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE and TIMESTAMP."
            self.fail(
                f"type {start.value} does not exist",
                "unknown-type",
                start.span,
                f"Did you mean {near[0]}?" if near else known,
            )
        else:
            self.unexpected("a type")
        return ast.TypeName(kind, span=self.since(start))

    def type_suffix(self, start: Token) -> None:
        match start.keyword:
            case "DOUBLE":
                self.accept("PRECISION")
            case "VARCHAR" if self.accept_symbol("("):
                self.whole_number("a length", 1, 2**31)
                self.expect_symbol(")")
            case "TIMESTAMP" if self.sees("WITH"):
                self.refuse("TIMESTAMP WITH TIME ZONE", self.since(start).to(self.token.span), "A TIMESTAMP is in UTC.")
            case "TIMESTAMP" if self.sees("WITHOUT", "TIME", "ZONE"):
                self.at += 3

    def decimal_type(self, start: Token) -> Type:
        hint = f"Write {start.keyword}(precision, scale), as in {start.keyword}(18, 2)."
        if not self.accept_symbol("("):
            self.fail(f"{start.keyword} has no precision", "missing-precision", start.span, hint)
        precision = self.whole_number("a precision", 1, MAX_PRECISION)
        scale = self.whole_number("a scale", 0, precision) if self.accept_symbol(",") else 0
        self.expect_symbol(")")
        return decimal(precision, scale)

    def whole_number(self, what: str, least: int, most: int) -> int:
        token = self.token
        if token.kind is not Kind.NUMBER:
            self.unexpected(what)
        self.next()
        if not token.value.isdecimal() or len(token.value) > 18 or not least <= int(token.value) <= most:
            self.fail(f"{what} is a whole number from {least} to {most}", "out-of-range", token.span)
        return int(token.value)

    def duration(self, clause: str, least: int) -> ast.Duration:
        """The length of time after `clause`, at least `least` microseconds."""
        start = self.token
        explicit = self.accept("INTERVAL")
        microseconds = self.interval_text() if self.token.kind is Kind.TEXT else self.interval_number(explicit)
        span = self.since(start)
        if microseconds < least:
            bound = "be longer than zero" if least else "not be negative"
            self.fail(f"{clause} must {bound}", "bad-duration", span)
        return ast.Duration(microseconds, span=span)

    def interval_number(self, explicit: bool) -> int:
        start = self.token
        sign = self.next().value if self.sees_symbol("-") or self.sees_symbol("+") else ""
        if self.token.kind is not Kind.NUMBER:
            wanted = "a number or a text after INTERVAL" if explicit else "a length of time"
            self.unexpected(wanted, "Write a number and a unit, as in 10 SECONDS.")
        number = self.next().value
        return microseconds_of([(sign + number, self.unit())], self.since(start))

    def interval_text(self) -> int:
        """`'10' SECOND`, `'10 seconds'` or `'1 hour 30 minutes'`."""
        token = self.next()
        amounts = amounts_of(token.value)
        if amounts is not None and len(amounts) == 1 and amounts[0][1] == "":
            return microseconds_of([(amounts[0][0], self.unit())], self.since(token))
        if amounts is None:
            self.fail(
                f"{token} is not a length of time",
                "bad-duration",
                token.span,
                "Write '10 seconds' or '1 hour 30 minutes'.",
            )
        return microseconds_of(amounts, token.span)

    def unit(self) -> str:
        if self.token.kind is not Kind.WORD:
            self.unexpected(
                "a unit of time", "Units are MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, WEEKS."
            )
        if unit_size(self.token.value) is None:
            self.fail(
                f"{self.token} is not a unit of time", "unknown-unit", self.token.span, unit_hint(self.token.value)
            )
        return self.next().value

    # ---- expressions -----------------------------------------------------------------------------------------------

    def expression(self, weakest: int = OR) -> ast.Expression:
        """An expression of operators that bind at least as strongly as `weakest`."""
        self.deeper()
        start = self.token
        left = self.prefix()
        chained = 0  # the level of the comparison just read: another one of that level must not follow
        while (level := self.infix_level()) >= weakest:
            if level == chained:
                hint = "Use parentheses, or join two conditions by AND."
                self.fail(f"{self.token} cannot follow another comparison", "chained-comparison", self.token.span, hint)
            left = self.infix(start, left, level)
            chained = level if level in (COMPARE, MATCH) else 0
        self.depth -= 1
        return left

    def infix_level(self) -> int:
        """How strongly the operator here binds; 0 if there is none."""
        token = self.token
        if token.kind is Kind.SYMBOL:
            return CAST if token.value == "::" else BINARY.get(token.value, 0)
        match token.keyword:
            case "OR":
                return OR
            case "AND":
                return AND
            case "IS" | "ISNULL" | "NOTNULL":
                return IS
            case "NOT" if self.peek().keyword in MATCHES:
                return MATCH
            case word if word in MATCHES:
                return MATCH
        return 0

    def infix(self, start: Token, left: ast.Expression, level: int) -> ast.Expression:
        match level:
            case 1 | 2:  # OR, AND
                return self.logical(start, left, level)
            case 4:  # IS
                return self.is_test(start, left)
            case 6:  # MATCH
                return self.match_test(start, left)
            case 11:  # CAST
                self.next()
                return ast.Cast(left, self.type_name(), span=self.since(start))
        operator = self.next()
        if operator.value == "==":
            self.fail("== is not an operator", "syntax", operator.span, "Write = to compare.")
        if level == COMPARE and self.sees_any(("ANY", "ALL", "SOME")):
            self.refuse(
                f"{operator.value} {self.token.keyword}", self.since(operator).to(self.token.span), _SUBQUERY_HINT
            )
        right = self.expression(level + 1)
        symbol = "<>" if operator.value == "!=" else operator.value
        return ast.Binary(symbol, left, right, span=self.since(start))

    def logical(self, start: Token, left: ast.Expression, level: int) -> ast.Logical:
        operator = self.token.keyword
        operands = [left]
        while self.accept(operator):
            operands.append(self.expression(level + 1))
        return ast.Logical(operator, tuple(operands), span=self.since(start))

    def is_test(self, start: Token, left: ast.Expression) -> ast.Expression:
        word = self.next()
        if word.keyword != "IS":
            return ast.IsTest(left, "NULL", word.keyword == "NOTNULL", span=self.since(start))
        negated = self.accept("NOT")
        if self.sees("DISTINCT", "FROM"):
            self.refuse("IS DISTINCT FROM", self.since(word).to(self.peek().span), "Combine = with IS NULL.")
        if not self.sees_any(("NULL", "TRUE", "FALSE", "UNKNOWN")):
            self.unexpected("NULL, TRUE, FALSE or UNKNOWN after IS")
        what = self.next().keyword
        return ast.IsTest(left, what, negated, span=self.since(start))

    def match_test(self, start: Token, left: ast.Expression) -> ast.Expression:
        negated = self.accept("NOT")
        operator = self.next()
        match operator.keyword:
            case "BETWEEN":
                if self.sees_any(("SYMMETRIC", "ASYMMETRIC")):
                    self.refuse(f"BETWEEN {self.token.keyword}", self.token.span, "Order the bounds.")
                low = self.expression(MATCH + 1)
                self.expect("AND", hint="Write x BETWEEN low AND high.")
                high = self.expression(MATCH + 1)
                return ast.Between(left, low, high, negated, span=self.since(start))
            case "IN":
                items = self.in_items(operator)
                return ast.InList(left, items, negated, span=self.since(start))
            case "LIKE":
                pattern = self.expression(MATCH + 1)
                if self.sees("ESCAPE"):
                    self.refuse("LIKE … ESCAPE", self.token.span, "The escape character is the backslash.")
                return ast.Like(left, pattern, negated, span=self.since(start))
        hint = "Write lower(x) LIKE lower(pattern)." if operator.keyword == "ILIKE" else "Use LIKE."
        self.refuse(operator.keyword, operator.span, hint)

    def in_items(self, operator: Token) -> tuple[ast.Expression, ...]:
        self.expect_symbol("(", hint="Write x IN (value, …).")
        self.refuse_subquery("IN (SELECT …)", operator)
        items = self.listed(self.expression)
        self.expect_symbol(")")
        return items

    def refuse_subquery(self, feature: str, start: Token) -> None:
        """Refuse a query that begins here, inside of a parenthesis; `start` is where the whole construct begins."""
        if not self.sees_any(("SELECT", "WITH", "VALUES")):
            return
        closing = self.tokens[self.closing(self.at - 1)]
        self.refuse(feature, start.span.to(closing.span), _SUBQUERY_HINT)

    def prefix(self) -> ast.Expression:
        """A literal, a name, a call, a parenthesis, or a prefix operator and its operand."""
        token = self.token
        match token.kind:
            case Kind.NUMBER:
                self.next()
                return ast.Number(token.value, span=token.span)
            case Kind.TEXT:
                self.next()
                return ast.Text(token.value, span=token.span)
            case Kind.SYMBOL:
                return self.prefix_symbol()
            case Kind.WORD:
                return self.prefix_word()
            case Kind.QUOTED:
                return self.named()
        self.unexpected("an expression")

    def prefix_symbol(self) -> ast.Expression:
        start = self.token
        if self.accept_symbol("("):
            self.refuse_subquery("a subquery in an expression", start)
            inner = self.expression()
            if self.sees_symbol(","):
                self.refuse(
                    "a row of values in an expression", start.span.to(self.token.span), "Compare column by column."
                )
            self.expect_symbol(")")
            return inner
        if start.value in ("-", "+"):
            self.next()
            operand = self.expression(SIGN)
            return ast.Unary(start.value, operand, span=self.since(start))
        hint = "COUNT(*) and SELECT * are the only places for *." if start.value == "*" else None
        self.unexpected("an expression", hint)

    def prefix_word(self) -> ast.Expression:
        start = self.token
        match start.keyword:
            case "TRUE" | "FALSE":
                self.next()
                return ast.Truth(start.keyword == "TRUE", span=start.span)
            case "NULL":
                self.next()
                return ast.Null(span=start.span)
            case "NOT":
                self.next()
                operand = self.expression(NOT)
                return ast.Unary("NOT", operand, span=self.since(start))
            case "CASE":
                return self.case()
            case "CAST":
                return self.cast()
            case "EXISTS":
                self.next()
                closing = self.tokens[self.closing(self.at)] if self.sees_symbol("(") else start
                self.refuse("EXISTS", start.span.to(closing.span), _SUBQUERY_HINT)
            case ("TIMESTAMP" | "DATE") as word if self.peek().kind is Kind.TEXT:
                self.next()
                text = self.next().value
                return ast.TypedText(SIMPLE_TYPES[word], text, span=self.since(start))
            case "INTERVAL" if self.at_interval():
                self.next()
                amount = self.interval_text() if self.token.kind is Kind.TEXT else self.interval_number(explicit=True)
                return ast.Interval(amount, span=self.since(start))
        if start.keyword in RESERVED:
            self.unexpected("an expression", f'A name that is also a keyword needs quotes: "{start.value}".')
        return self.named()

    def at_interval(self) -> bool:
        """Whether INTERVAL begins a literal: `interval - 5` may also be a column minus a number."""
        if self.peek().kind is Kind.TEXT:
            return True
        ahead = 2 if self.sees_symbol("-", 1) or self.sees_symbol("+", 1) else 1
        return self.peek(ahead).kind is Kind.NUMBER and (ahead == 1 or unit_size(self.peek(3).value) is not None)

    def named(self) -> ast.Expression:
        """A column or a call."""
        start = self.token
        name = self.name("an expression")
        if self.sees_symbol("("):
            return self.call(start, name)
        if not self.accept_symbol("."):
            return ast.ColumnName(None, name, span=start.span)
        if self.sees_symbol("*"):
            self.fail(f"{name.name}.* stands only in the SELECT list", "syntax", self.since(start).to(self.token.span))
        column = self.name("a column name")
        if self.sees_symbol("."):
            self.refuse("a name of three parts", self.since(start), "Write stream.column.")
        return ast.ColumnName(name, column, span=self.since(start))

    def call(self, start: Token, name: ast.Identifier) -> ast.Function:
        self.expect_symbol("(")
        arguments: tuple[ast.Expression, ...] | ast.Star = ()
        star = self.token
        if self.accept_symbol("*"):
            arguments = ast.Star(span=star.span)
        elif not self.sees_symbol(")"):
            self.refuse_argument_syntax(start)
            arguments = self.listed(self.expression)
            if self.sees_any(("FROM", "FOR", "ORDER")):
                self.refuse(f"{self.token.keyword} in {start.value}(…)", self.token.span, self.argument_hint(start))
        self.expect_symbol(")")
        if self.sees_any(("OVER", "FILTER", "WITHIN")) and (self.sees_symbol("(", 1) or self.sees("WITHIN", "GROUP")):
            hint = "Use CASE inside of the aggregate." if self.sees("FILTER") else "Group a windowed stream instead."
            self.refuse(self.token.keyword, self.token.span, hint)
        return ast.Function(name, arguments, span=self.since(start))

    def refuse_argument_syntax(self, start: Token) -> None:
        if self.sees("DISTINCT"):
            feature = f"{start.value.upper()}(DISTINCT …)"
            self.refuse(feature, self.token.span, "Aggregate over a subquery with SELECT DISTINCT.")
        if self.sees("ALL"):
            self.next()
        self.refuse_subquery("a subquery in an expression", self.tokens[self.at - 1])

    def argument_hint(self, start: Token) -> str:
        if start.keyword == "EXTRACT":
            return "Write year(ts), month(ts), day(ts), hour(ts), minute(ts), second(ts) or epoch(ts)."
        return "Separate the arguments by commas."

    def case(self) -> ast.Case:
        start = self.next()
        operand = None if self.sees("WHEN") else self.expression()
        branches: list[tuple[ast.Expression, ast.Expression]] = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            branches.append((condition, self.expression()))
        if not branches:
            self.unexpected("WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        if not self.sees("END"):
            self.unexpected("END" if otherwise else "WHEN, ELSE or END", "CASE is closed by END.")
        self.next()
        return ast.Case(operand, tuple(branches), otherwise, span=self.since(start))

    def cast(self) -> ast.Cast:
        start = self.next()
        self.expect_symbol("(", hint="Write CAST(x AS type).")
        operand = self.expression()
        self.expect("AS", hint="Write CAST(x AS type).")
        kind = self.type_name()
        self.expect_symbol(")")
        return ast.Cast(operand, kind, span=self.since(start))


# ---- values ----------------------------------------------------------------------------------------------------------


def plain_number(digits: str, span: Span) -> int | float | str:
    """A number of a source argument: whole numbers and exponents as numbers, decimals as their text."""
    if "e" in digits.lower():
        return float(digits)
    if "." in digits:
        return digits
    if len(digits) > MAX_PRECISION:
        raise ParseError("the number is too large", code="number-too-large", hint="Quote it as a text.", span=span)
    return int(digits)


def unit_size(word: str) -> int | None:
    """The microseconds of a unit in singular or plural, in any case; None for anything else."""
    upper = word.upper()
    return UNITS.get(upper) or UNITS.get(upper.removesuffix("S"))


def unit_hint(word: str) -> str:
    upper = word.upper().removesuffix("S")
    if upper in ("MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY"):
        return "Months and years differ in length; say how many DAYS."
    near = difflib.get_close_matches(upper, UNITS, n=1)
    return f"Did you mean {near[0]}S?" if near else f"Units are {', '.join(f'{unit}S' for unit in UNITS)}."


def amounts_of(text: str) -> list[tuple[str, str]] | None:
    """The (number, unit) pairs of an interval text such as '1 hour 30 minutes'; None if it is not one."""
    amounts: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _AMOUNT.match(text, at)
        if match is None:
            return None
        amounts.append((match.group(1), match.group(2)))
        at = match.end()
    bare = [unit for _, unit in amounts if not unit]
    return amounts if amounts and (not bare or len(amounts) == 1) else None


def microseconds_of(amounts: list[tuple[str, str]], span: Span) -> int:
    """The sum of (number, unit) pairs, which must be a whole number of microseconds."""
    total = Fraction(0)
    for number, unit in amounts:
        size = unit_size(unit)
        if size is None:
            raise ParseError(f"{unit} is not a unit of time", code="unknown-unit", hint=unit_hint(unit), span=span)
        if len(number) > 2 * MAX_PRECISION or "e" in number.lower():
            hint = "Write it without an exponent, in a larger or smaller unit."
            raise ParseError("the length of time is not a plain number", code="bad-duration", hint=hint, span=span)
        total += Fraction(number) * size
    if total.denominator != 1:
        hint = "Time has a resolution of one microsecond."
        raise ParseError("not a whole number of microseconds", code="bad-duration", hint=hint, span=span)
    if abs(total) > MAX_DURATION_US:
        raise ParseError(
            "the length of time is too large", code="bad-duration", hint="70,000 years are allowed.", span=span
        )
    return int(total)


def _check_height(statement: ast.Statement) -> None:
    """Refuse trees that are deeper than the text is nested: a + b + c + … leans to the left, a level per operator."""
    pending: list[tuple[ast.Node, int]] = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            _too_deep(node.span)
        pending.extend((child, depth + 1) for child in ast.children(node))


def _too_deep(span: Span) -> NoReturn:
    hint = "Split it: CREATE STREAM name AS SELECT … gives a part a name."
    raise ParseError(f"the statement is nested deeper than {MAX_DEPTH} levels", code="too-deep", hint=hint, span=span)
