"""Tokens to syntax tree: recursive descent for statements, precedence climbing for expressions.

What belongs to SQL but not to the language yet is recognised and refused by name (`not-supported`), so that a user
learns what is missing rather than which comma was unexpected. To add such a feature, replace its refusal by a node.
"""

from __future__ import annotations

import difflib
from typing import Final

from strandline import types
from strandline.catalog import Argument
from strandline.errors import ParseError, Span
from strandline.lang import ast
from strandline.lang.tokens import (
    Cursor,
    Kind,
    Token,
    amounts_of,
    microseconds_of,
    plain_number,
    unit_hint,
    unit_size,
)
from strandline.types import MAX_PRECISION, Type, decimal


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Deeper trees than this would exhaust Python's stack somewhere between here and the last rewrite of the plan.
MAX_DEPTH: Final = 100
QUERY_DEPTH: Final = 2  # a nested query takes about twice the stack of a nested expression

# Words that cannot be names unless quoted: each of them could follow a name with a meaning of its own.
RESERVED: Final = _words(
    """ALL AND AS BETWEEN CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FROM FULL GROUP HAVING
        IN INNER INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER RIGHT SELECT THEN TRUE UNION
        USING WHEN WHERE WINDOW WITH"""
)

# Those of them that people call columns, and that do not end a list.
LIKELY_NAMES: Final = _words("ALL CREATE CROSS END FETCH FULL GROUP INNER LEFT LIMIT OFFSET ORDER RIGHT WINDOW")

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
OTHER_STATEMENTS: Final = _words("ALTER DELETE DESCRIBE INSERT MERGE SHOW TRUNCATE UPDATE VALUES")
OTHER_JOINS: Final = ("LEFT", "RIGHT", "FULL", "NATURAL")

_WINDOW_HINT: Final = "Write WINDOW(RANGE 10 MINUTES), WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE) or WINDOW(NOW)."
_SUBQUERY_HINT: Final = "Where a join says the same, put the subquery into FROM."


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


class _Parser(Cursor):
    """A method per phrase of the grammar.

    A method named after a phrase starts at the first token of the phrase and leaves the position right after it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def deeper(self, levels: int = 1) -> None:
        """Go down `levels` in the tree; whoever calls goes up again by as many."""
        self.depth += levels
        if self.depth > MAX_DEPTH:
            raise _too_deep(self.token.span)

    # ---- statements ------------------------------------------------------------------------------------------------

    def script(self) -> list[ast.Statement]:
        statements: list[ast.Statement] = []
        while True:
            while self.accept_symbol(";"):
                pass
            if self.at_end():
                return statements
            statement = self.statement()
            if not (self.at_end() or self.sees_symbol(";")):
                raise self.unexpected("; or the end of the statement", self.leftover_hint())
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
                raise self.refusal("WITH", token.span, "Name the query first: CREATE STREAM name AS SELECT ….")
            case word if word in OTHER_STATEMENTS:
                raise self.refusal(word, token.span, "Statements are SELECT, CREATE STREAM, DROP STREAM and EXPLAIN.")
        if self.sees_symbol("("):
            return self.query()
        near = difflib.get_close_matches(token.keyword, STATEMENTS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "A statement begins with SELECT, CREATE STREAM, DROP or EXPLAIN."
        raise self.unexpected("a statement", hint)

    def explain(self) -> ast.Explain:
        start = self.next()
        if self.sees("ANALYZE"):
            raise self.refusal("EXPLAIN ANALYZE", start.span.to(self.token.span), "Write EXPLAIN alone for the plan.")
        if self.sees("CREATE"):
            statement = self.create()
            if isinstance(statement, ast.CreateStream):
                hint = "EXPLAIN shows the plan of a SELECT or CREATE STREAM … AS SELECT."
                raise self.error("a stream from a source has no plan", "nothing-to-explain", statement.span, hint)
            return ast.Explain(statement, span=self.since(start))
        if not self.sees("SELECT") and not self.sees_symbol("("):
            raise self.unexpected("SELECT or CREATE STREAM after EXPLAIN")
        return ast.Explain(self.query(), span=self.since(start))

    def create(self) -> ast.CreateStream | ast.CreateStreamAs:
        start = self.next()
        if self.sees("OR", "REPLACE"):
            raise self.refusal(
                "CREATE OR REPLACE", self.token.span.to(self.peek().span), "Drop the stream first: DROP STREAM."
            )
        if self.sees_any(("TABLE", "VIEW", "MATERIALIZED", "TEMPORARY", "INDEX", "FUNCTION")):
            feature = f"CREATE {self.token.keyword}"
            raise self.refusal(feature, start.span.to(self.token.span), "Declare a stream: CREATE STREAM.")
        self.expect("STREAM", hint="Declare a stream: CREATE STREAM name (columns) SOURCE … or AS SELECT ….")
        if self.sees("IF", "NOT", "EXISTS"):
            raise self.refusal("IF NOT EXISTS", self.token.span.to(self.peek(2).span), "Leave it out.")
        name = self.name("a stream name")
        if self.accept("AS"):
            if not self.sees("SELECT") and not self.sees_symbol("("):
                raise self.unexpected("SELECT after AS")
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
                raise self.error(f"{clause.keyword} is given twice", "duplicate-clause", clause.span)
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
            raise self.refusal(f"DROP {self.token.keyword}", start.span.to(self.token.span), "Write DROP STREAM name.")
        self.expect("STREAM", hint="Write DROP STREAM name.")
        if_exists = self.accept("IF", "EXISTS")
        name = self.name("a stream name")
        if self.sees_any(("CASCADE", "RESTRICT")):
            raise self.refusal(self.token.keyword, self.token.span, "Drop the dependants first.")
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
                raise self.error("a positional argument follows a named one", "argument-order", value.span, hint)
            arguments.append(value)
            return
        name = self.name("an option name")
        self.next()
        if any(name.name.lower() == other.name.lower() for other, _ in options):
            raise self.error(f'option "{name.name}" is given twice', "duplicate-option", name.span)
        options.append((name, self.source_value()))

    def source_value(self) -> ast.SourceValue:
        start = self.token
        value = self.plain_value()
        return ast.SourceValue(value, span=self.since(start))

    def plain_value(self) -> Argument:
        """A literal or a parenthesised row of them. A number with a point stays text, so that it stays exact."""
        token = self.next()
        match token.kind, token.keyword or token.value:
            case Kind.TEXT, text:
                return text
            case Kind.NUMBER, digits:
                return plain_number(digits, token.span)
            case Kind.SYMBOL, "(":
                return self.row()
            case Kind.SYMBOL, "-" | "+" if self.token.kind is Kind.NUMBER:
                return plain_number(token.value.replace("+", "") + self.next().value, self.since(token))
            case Kind.WORD, "NULL":
                return None
            case Kind.WORD, ("TRUE" | "FALSE") as word:
                return word == "TRUE"
            case Kind.WORD, "TIMESTAMP" | "DATE" if self.token.kind is Kind.TEXT:
                return self.next().value
        hint = f"Put texts in single quotes: '{token.value}'." if token.kind in (Kind.WORD, Kind.QUOTED) else None
        raise self.error(f"expected a literal, found {token}", "syntax", token.span, hint)

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
            raise self.order_refusal()
        self.depth -= QUERY_DEPTH
        return branches[0] if len(branches) == 1 else ast.UnionAll(tuple(branches), span=self.since(start))

    def set_operator(self) -> None:
        operator = self.next()
        if operator.keyword == "UNION" and self.accept("ALL"):
            return
        feature = operator.keyword
        if self.sees_any(("ALL", "DISTINCT")):
            feature = f"{feature} {self.next().keyword}"
        hint = (
            "UNION ALL is supported."
            if operator.keyword != "UNION"
            else "Write UNION ALL, and SELECT DISTINCT around it."
        )
        raise self.refusal(feature, self.since(operator), hint)

    def order_refusal(self) -> ParseError:
        token = self.token
        by = token.keyword == "ORDER" and self.peek().keyword == "BY"
        span = token.span.to(self.peek().span) if by else token.span
        hint = "A continuous answer has no order and no end: each row carries valid_from and valid_until."
        raise self.refusal("ORDER BY" if by else token.keyword, span, hint)

    def query_operand(self) -> ast.Query:
        if self.sees("SELECT"):
            return self.select()
        if self.sees_any(("WITH", "VALUES")):
            raise self.refusal(self.token.keyword, self.token.span, "A query begins with SELECT.")
        if not self.accept_symbol("("):
            raise self.unexpected("SELECT")
        query = self.query()
        self.expect_symbol(")")
        return query

    def select(self) -> ast.Select:
        start = self.next()
        distinct = self.accept("DISTINCT")
        if distinct and self.sees("ON"):
            raise self.refusal(
                "DISTINCT ON", self.tokens[self.at - 1].span.to(self.token.span), "Use GROUP BY with MIN or MAX."
            )
        if not distinct:
            self.accept("ALL")
        items = self.listed(self.item)
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
        self.check_clause_order()
        return ast.Select(distinct, items, tables, where, group_by, having, span=self.since(start))

    def check_clause_order(self) -> None:
        if self.sees("WINDOW"):
            raise self.refusal(
                "a WINDOW clause", self.token.span, "A window stands right after its stream: FROM s WINDOW(RANGE …)."
            )
        if self.sees_any(("WHERE", "GROUP", "HAVING")):
            hint = "The order is SELECT, FROM, WHERE, GROUP BY, HAVING, each at most once."
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
            raise self.error("* cannot have a name", "syntax", alias.span, "List the columns to rename them.")
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
            raise self.refusal(f"GROUP BY {self.token.keyword}", self.token.span, "List the grouping expressions.")
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
            raise self.refusal(feature, self.token.span, "Write one query per grouping and join them by UNION ALL.")
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
            raise self.refusal("JOIN … USING", self.token.span, "Write ON a.x = b.x.")
        self.expect("ON", hint="Write JOIN … ON condition, or CROSS JOIN for all pairs.")
        return self.expression()

    def refuse_other_joins(self) -> None:
        token = self.token
        marked = token.keyword in ("SEMI", "ANTI", "ASOF") and self.peek().keyword == "JOIN"
        if token.keyword not in OTHER_JOINS and not marked:
            return
        ahead = 2 if self.peek().keyword == "OUTER" else 1
        span = token.span.to(self.peek(ahead).span) if self.peek(ahead).keyword == "JOIN" else token.span
        raise self.refusal(f"{token.keyword} JOIN", span, "[INNER] JOIN … ON and CROSS JOIN are supported.")

    def table_operand(self) -> ast.Table:
        if self.sees("LATERAL"):
            raise self.refusal("LATERAL", self.token.span, "Join the subquery on the columns that it would look up.")
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
        if inner - self.at > MAX_DEPTH:
            raise _too_deep(self.tokens[inner].span)
        if self.tokens[inner].keyword not in ("SELECT", "WITH", "VALUES"):
            return False
        for opening in range(inner - 1, self.at, -1):
            after = self.tokens[min(self.closing(opening) + 1, len(self.tokens) - 1)]
            symbol = after.value if after.kind is Kind.SYMBOL else ""
            if symbol != ")" and after.keyword not in ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT"):
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
            raise self.refusal("a schema name", self.since(start).to(self.peek().span), "Stream names have one part.")
        window, alias = self.window_and_alias()
        return ast.StreamTable(name, window, alias, span=self.since(start))

    def query_table(self) -> ast.QueryTable:
        start = self.token
        self.expect_symbol("(")
        query = self.query()
        self.expect_symbol(")")
        window, alias = self.window_and_alias()
        if alias is None:
            raise self.error(
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
            raise self.refusal(
                "a column list after an alias", self.token.span, "Name the columns in the subquery with AS."
            )
        if self.sees_window():
            if window is not None:
                raise self.error(
                    "a second window over one stream", "duplicate-window", self.token.span, "Keep one of them."
                )
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
                raise self.refusal(f"{' '.join(words)} in a window", span, "Use a time window: RANGE 10 MINUTES.")
        if not self.accept("RANGE"):
            raise self.unexpected("RANGE or NOW", _WINDOW_HINT)
        if self.sees_any(("UNBOUNDED", "MIN", "MAX")):
            raise self.refusal(
                f"RANGE {self.token.keyword}", self.token.span, "Give the range a length: RANGE 10 MINUTES."
            )
        length = self.duration("RANGE", least=1)
        slide = self.duration("SLIDE", least=1) if self.accept("SLIDE") else None
        if not self.sees_symbol(closing):
            raise self.unexpected(closing if slide else f"SLIDE or {closing}", _WINDOW_HINT)
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
        raise self.unexpected(what, hint)

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
            raise self.error(
                f"type {start.value} does not exist",
                "unknown-type",
                start.span,
                f"Did you mean {near[0]}?" if near else known,
            )
        else:
            raise self.unexpected("a type")
        return ast.TypeName(kind, span=self.since(start))

    def cast_type(self) -> ast.TypeName:
        start = self.token
        kind = self.type_name()
        if start.keyword == "VARCHAR" and kind.span.end > start.span.end:
            # A declared length is a promise of the source; in a cast it would have to cut the text.
            raise self.refusal("CAST to VARCHAR(n)", kind.span, "Write substring(x, 1, n).")
        return kind

    def type_suffix(self, start: Token) -> None:
        match start.keyword:
            case "DOUBLE":
                self.accept("PRECISION")
            case "VARCHAR" if self.accept_symbol("("):
                self.whole_number("a length", 1, 2**31)
                self.expect_symbol(")")
            case "TIMESTAMP" if self.sees("WITH"):
                raise self.refusal(
                    "TIMESTAMP WITH TIME ZONE", self.since(start).to(self.token.span), "A TIMESTAMP is in UTC."
                )
            case "TIMESTAMP" if self.sees("WITHOUT", "TIME", "ZONE"):
                self.at += 3

    def decimal_type(self, start: Token) -> Type:
        hint = f"Write {start.keyword}(precision, scale), as in {start.keyword}(18, 2)."
        if not self.accept_symbol("("):
            raise self.error(f"{start.keyword} has no precision", "missing-precision", start.span, hint)
        precision = self.whole_number("a precision", 1, MAX_PRECISION)
        scale = self.whole_number("a scale", 0, precision) if self.accept_symbol(",") else 0
        self.expect_symbol(")")
        return decimal(precision, scale)

    def whole_number(self, what: str, least: int, most: int) -> int:
        token = self.token
        if token.kind is not Kind.NUMBER:
            raise self.unexpected(what)
        self.next()
        if not token.value.isdecimal() or len(token.value) > 18 or not least <= int(token.value) <= most:
            raise self.error(f"{what} is a whole number from {least} to {most}", "out-of-range", token.span)
        return int(token.value)

    def duration(self, clause: str, least: int) -> ast.Duration:
        """The length of time after `clause`, at least `least` microseconds."""
        start = self.token
        explicit = self.accept("INTERVAL")
        microseconds = self.interval_text() if self.token.kind is Kind.TEXT else self.interval_number(explicit)
        span = self.since(start)
        if microseconds < least:
            bound = "be longer than zero" if least else "not be negative"
            raise self.error(f"{clause} must {bound}", "bad-duration", span)
        return ast.Duration(microseconds, span=span)

    def interval_number(self, explicit: bool) -> int:
        start = self.token
        sign = self.next().value if self.sees_symbol("-") or self.sees_symbol("+") else ""
        if self.token.kind is not Kind.NUMBER:
            wanted = "a number or a text after INTERVAL" if explicit else "a length of time"
            raise self.unexpected(wanted, "Write a number and a unit, as in 10 SECONDS.")
        number = self.next().value
        return microseconds_of([(sign + number, self.unit())], self.since(start))

    def interval_text(self) -> int:
        """`'10' SECOND`, `'10 seconds'` or `'1 hour 30 minutes'`."""
        token = self.next()
        amounts = amounts_of(token.value)
        if amounts is not None and len(amounts) == 1 and amounts[0][1] == "":
            return microseconds_of([(amounts[0][0], self.unit())], self.since(token))
        if amounts is None:
            raise self.error(
                f"{token} is not a length of time",
                "bad-duration",
                token.span,
                "Write '10 seconds' or '1 hour 30 minutes'.",
            )
        return microseconds_of(amounts, token.span)

    def unit(self) -> str:
        if self.token.kind is not Kind.WORD:
            raise self.unexpected(
                "a unit of time", "Units are MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, WEEKS."
            )
        if unit_size(self.token.value) is None:
            raise self.error(
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
                raise self.error(
                    f"{self.token} cannot follow another comparison", "chained-comparison", self.token.span, hint
                )
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
        if level in (OR, AND):
            return self.logical(start, left, level)
        if level == IS:
            return self.is_test(start, left)
        if level == MATCH:
            return self.match_test(start, left)
        if level == CAST:
            self.next()
            return ast.Cast(left, self.cast_type(), span=self.since(start))
        operator = self.next()
        if operator.value == "==":
            raise self.error("== is not an operator", "syntax", operator.span, "Write = to compare.")
        if level == COMPARE and self.sees_any(("ANY", "ALL", "SOME")):
            raise self.refusal(
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
            raise self.refusal("IS DISTINCT FROM", self.since(word).to(self.peek().span), "Combine = with IS NULL.")
        if not self.sees_any(("NULL", "TRUE", "FALSE", "UNKNOWN")):
            raise self.unexpected("NULL, TRUE, FALSE or UNKNOWN after IS")
        what = self.next().keyword
        return ast.IsTest(left, what, negated, span=self.since(start))

    def match_test(self, start: Token, left: ast.Expression) -> ast.Expression:
        negated = self.accept("NOT")
        operator = self.next()
        match operator.keyword:
            case "BETWEEN":
                if self.sees_any(("SYMMETRIC", "ASYMMETRIC")):
                    raise self.refusal(f"BETWEEN {self.token.keyword}", self.token.span, "Order the bounds.")
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
                    raise self.refusal("LIKE … ESCAPE", self.token.span, "The escape character is the backslash.")
                return ast.Like(left, pattern, negated, span=self.since(start))
        hint = "Write lower(x) LIKE lower(pattern)." if operator.keyword == "ILIKE" else "Use LIKE."
        raise self.refusal(operator.keyword, operator.span, hint)

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
        raise self.refusal(feature, start.span.to(closing.span), _SUBQUERY_HINT)

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
        raise self.unexpected("an expression")

    def prefix_symbol(self) -> ast.Expression:
        start = self.token
        if self.accept_symbol("("):
            self.refuse_subquery("a subquery in an expression", start)
            inner = self.expression()
            if self.sees_symbol(","):
                raise self.refusal(
                    "a row of values in an expression", start.span.to(self.token.span), "Compare column by column."
                )
            self.expect_symbol(")")
            return inner
        if start.value in ("-", "+"):
            self.next()
            operand = self.expression(SIGN)
            return ast.Unary(start.value, operand, span=self.since(start))
        hint = "COUNT(*) and SELECT * are the only places for *." if start.value == "*" else None
        raise self.unexpected("an expression", hint)

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
                raise self.refusal("EXISTS", start.span.to(closing.span), _SUBQUERY_HINT)
            case ("TIMESTAMP" | "DATE") as word if self.peek().kind is Kind.TEXT:
                self.next()
                text = self.next().value
                return ast.TypedText(SIMPLE_TYPES[word], text, span=self.since(start))
            case "INTERVAL" if self.at_interval():
                self.next()
                amount = self.interval_text() if self.token.kind is Kind.TEXT else self.interval_number(explicit=True)
                return ast.Interval(amount, span=self.since(start))
        if start.keyword in LIKELY_NAMES:
            raise self.unexpected("an expression", f'A name that is also a keyword needs quotes: "{start.value}".')
        if start.keyword in RESERVED:
            comma = self.at > 0 and self.tokens[self.at - 1].value == ","
            raise self.unexpected("an expression", "There is a comma too many." if comma else None)
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
            raise self.error(
                f"{name.name}.* stands only in the SELECT list", "syntax", self.since(start).to(self.token.span)
            )
        column = self.name("a column name")
        if self.sees_symbol("."):
            raise self.refusal("a name of three parts", self.since(start), "Write stream.column.")
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
                raise self.refusal(
                    f"{self.token.keyword} in {start.value}(…)", self.token.span, self.argument_hint(start)
                )
        self.expect_symbol(")")
        if self.sees_any(("OVER", "FILTER", "WITHIN")) and (self.sees_symbol("(", 1) or self.sees("WITHIN", "GROUP")):
            hint = "Use CASE inside of the aggregate." if self.sees("FILTER") else "Group a windowed stream instead."
            raise self.refusal(self.token.keyword, self.token.span, hint)
        return ast.Function(name, arguments, span=self.since(start))

    def refuse_argument_syntax(self, start: Token) -> None:
        if self.sees("DISTINCT"):
            feature = f"{start.value.upper()}(DISTINCT …)"
            raise self.refusal(feature, self.token.span, "Aggregate over a subquery with SELECT DISTINCT.")
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
            raise self.unexpected("WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        if not self.sees("END"):
            raise self.unexpected("END" if otherwise else "WHEN, ELSE or END", "CASE is closed by END.")
        self.next()
        return ast.Case(operand, tuple(branches), otherwise, span=self.since(start))

    def cast(self) -> ast.Cast:
        start = self.next()
        self.expect_symbol("(", hint="Write CAST(x AS type).")
        operand = self.expression()
        self.expect("AS", hint="Write CAST(x AS type).")
        kind = self.cast_type()
        self.expect_symbol(")")
        return ast.Cast(operand, kind, span=self.since(start))


def _check_height(statement: ast.Statement) -> None:
    """Refuse trees that are deeper than the text is nested: a + b + c + … leans to the left, a level per operator."""
    pending: list[tuple[ast.Node, int]] = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(node.span)
        pending.extend((child, depth + 1) for child in ast.children(node))


def _too_deep(span: Span) -> ParseError:
    hint = "Split it: CREATE STREAM name AS SELECT … gives a part a name."
    return ParseError(f"the statement is nested deeper than {MAX_DEPTH} levels", code="too-deep", hint=hint, span=span)
