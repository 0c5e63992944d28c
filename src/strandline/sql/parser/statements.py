"""Tokens to syntax tree: recursive descent for statements, precedence climbing for expressions.

What belongs to SQL but not to the language yet is recognised and refused by name (`not-supported`), so that a user
learns what is missing rather than which comma was unexpected. To add such a feature, replace its refusal by a node.

Here are the statements, and the sources and sinks that they name; below are `queries`, `expressions`, `forms`,
`phrases` and `tokens`.
"""

from __future__ import annotations

import difflib
from typing import Final

from strandline.core.errors import ParseError, Span
from strandline.core.security.secret import Secret, parse_reference
from strandline.core.types import Type
from strandline.logical.catalog import Argument
from strandline.sql import ast
from strandline.sql.lexer import Kind, Token, plain_number
from strandline.sql.parser.phrases import MAX_DEPTH, RESERVED, too_deep, words
from strandline.sql.parser.queries import Queries

STATEMENTS: Final = ("SELECT", "WITH", "CREATE", "DROP", "EXPLAIN", "SHOW", "DESCRIBE", "SET")
OTHER_STATEMENTS: Final = words("ALTER DELETE INSERT MERGE TRUNCATE UPDATE VALUES")
LISTS: Final = ("STREAMS", "VIEWS", "QUERIES", "SINKS", "SHEDDING")

_STATEMENT_HINT: Final = "Statements are SELECT, WITH, CREATE, DROP, EXPLAIN, SHOW, DESCRIBE and SET."


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
            "expected one statement, found several",
            code="one-statement",
            hint="Run them one by one, or as a script.",
            span=statements[1].span,
        )
    return statements[0]


def parse_type(text: str) -> Type:
    """The type that a text such as `DECIMAL(10, 2)` denotes."""
    parser = _Parser(text)
    kind = parser.type_name()
    if not parser.at_end():
        raise parser.unexpected("the end of the type")
    return kind.type


class _Parser(Queries):
    """Statements, and the sources and sinks that they name; `script` is the way in."""

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
            return "Put a window right after a stream or subquery in FROM, before or after its alias."
        if self.token.keyword in RESERVED:
            return f'A name that is also a keyword needs quotes: "{self.token.value}".'
        return None

    def statement(self) -> ast.Statement:
        token = self.token
        match token.keyword:
            case "SELECT" | "WITH":
                return self.running_query()
            case _ if self.sees_changes():
                return self.running_query()
            case "CREATE":
                return self.create()
            case "DROP":
                return self.drop()
            case "EXPLAIN":
                return self.explain()
            case "SHOW":
                return self.show()
            case "DESCRIBE":
                return self.describe()
            case "SET":
                return self.set()
            case word if word in OTHER_STATEMENTS:
                raise self.refusal(word, token.span, _STATEMENT_HINT)
        if self.sees_symbol("("):
            return self.running_query()
        near = difflib.get_close_matches(token.keyword, STATEMENTS, n=1)
        raise self.unexpected("a statement", f"Did you mean {near[0]}?" if near else _STATEMENT_HINT)

    def show(self) -> ast.Show:
        start = self.next()
        if not self.sees_any(LISTS):
            raise self.unexpected("STREAMS, VIEWS, QUERIES, SINKS or SHEDDING after SHOW")
        return ast.Show(self.next().keyword, span=self.since(start))

    def running_query(self) -> ast.Query | ast.Allowing:
        """A query that is a statement of its own, and what it allows."""
        query = self.query()
        shedding = self.allowed()
        return query if shedding is None else ast.Allowing(query, shedding, span=query.span.to(shedding.span))

    def allowed(self) -> ast.Shedding | None:
        """`ALLOW SHEDDING [UP TO n PERCENT]`, or nothing."""
        start = self.token
        if not self.accept("ALLOW", "SHEDDING"):
            return None
        most = self.percent("the percentage of rows that may be dropped") if self.accept("UP", "TO") else 1.0
        return ast.Shedding(most, span=self.since(start))

    def percent(self, what: str) -> float:
        """`n PERCENT`, as a share."""
        number = self.token
        if number.kind is not Kind.NUMBER:
            raise self.unexpected(f"a number: {what}")
        self.next()
        self.expect("PERCENT")
        if not 0 < float(number.value) <= 100:
            raise self.error("percentage must be in (0, 100]", "out-of-range", number.span)
        return float(number.value) / 100

    def set(self) -> ast.Set:
        start = self.next()
        if self.accept("CAPACITY"):
            value = None if self.accept("MEASURED") else self.percent("the percentage of the machine that may be used")
            return ast.Set("CAPACITY", value, span=self.since(start))
        self.expect("SHEDDING", hint="Write SET CAPACITY 80 PERCENT, or SET SHEDDING UP TO 40 PERCENT.")
        if self.accept("OFF"):
            return ast.Set("SHEDDING", None, span=self.since(start))
        if self.accept("UP", "TO"):
            return ast.Set(
                "SHEDDING", self.percent("the percentage of rows that may be dropped"), span=self.since(start)
            )
        self.expect("ON", hint="Write SET SHEDDING ON, OFF, or UP TO 40 PERCENT.")
        return ast.Set("SHEDDING", 1.0, span=self.since(start))

    def describe(self) -> ast.Describe:
        start = self.next()
        name = self.name("the name of a stream or view")
        if name.matches("sys") and self.sees_symbol("."):
            name = self.name_in(name)
        return ast.Describe(name, span=self.since(start))

    def explain(self) -> ast.Explain | ast.ExplainAnalyze:
        start = self.next()
        if self.accept("ANALYZE"):
            if self.sees_query() or self.sees("CREATE"):
                hint = "Start the query, then write EXPLAIN ANALYZE and its name; EXPLAIN alone shows the plan."
                raise self.refusal("EXPLAIN ANALYZE of a statement", self.since(start), hint)
            name = self.name("the name of a running query")
            return ast.ExplainAnalyze(name, span=self.since(start))
        why = self.accept("WHY")
        if self.sees("CREATE"):
            statement = self.create()
            if isinstance(statement, ast.CreateStream):
                hint = "EXPLAIN shows the plan of a SELECT or CREATE STREAM … AS SELECT."
                raise self.error("a stream from a source has no plan", "nothing-to-explain", statement.span, hint)
            return ast.Explain(statement, why, span=self.since(start))
        if not self.sees_query():
            raise self.unexpected("SELECT or CREATE STREAM after EXPLAIN")
        return ast.Explain(self.running_query(), why, span=self.since(start))

    def create(self) -> ast.CreateStream | ast.CreateStreamAs | ast.CreateView | ast.CreateSink:
        start = self.next()
        if self.sees("OR", "REPLACE") and self.peek(2).keyword != "VIEW":
            raise self.refusal(
                "CREATE OR REPLACE", self.token.span.to(self.peek().span), "Drop the stream first: DROP STREAM."
            )
        replaces = self.accept("OR", "REPLACE")
        if self.sees_any(("TABLE", "MATERIALIZED", "TEMPORARY", "INDEX", "FUNCTION")):
            feature = f"CREATE {self.token.keyword}"
            raise self.refusal(feature, start.span.to(self.token.span), "Declare a stream: CREATE STREAM.")
        kind = next((word for word in ("VIEW", "SINK") if self.sees(word)), "STREAM")
        self.expect(kind, hint="Declare a stream: CREATE STREAM name (columns) SOURCE … or AS SELECT ….")
        if self.sees("IF", "NOT", "EXISTS"):
            raise self.refusal("IF NOT EXISTS", self.token.span.to(self.peek(2).span), "Leave it out.")
        name = self.name(f"a {kind.lower()} name")
        if name.matches("sys") and self.sees_symbol("."):
            hint = "Names that begin with sys. are reserved; choose another name."
            raise self.error("cannot create a table of sys", "system-table", self.name_in(name).span, hint)
        if kind == "SINK":
            return self.create_sink(start, name)
        if kind == "VIEW":
            names = self.column_names()
            self.expect("AS", hint="Write CREATE VIEW name AS SELECT ….")
            return ast.CreateView(name, names, self.query_after_as(), replaces, span=self.since(start))
        if self.accept("AS"):
            return ast.CreateStreamAs(name, self.query_after_as(), self.allowed(), span=self.since(start))
        if self.sees("SOURCE"):
            return self.create_from_source(start, name, ())
        self.expect_symbol(
            "(", hint="Write CREATE STREAM name (column TYPE, …) SOURCE … or CREATE STREAM name AS SELECT …."
        )
        columns = self.listed(self.column_definition)
        self.expect_symbol(")")
        return self.create_from_source(start, name, columns)

    def create_sink(self, start: Token, name: ast.Identifier) -> ast.CreateSink:
        hint = "Write CREATE SINK name INTO parquet('directory') AS SELECT …."
        self.expect("INTO", hint=hint)
        target = self.connector("sink", "parquet('directory'), sqlite('file', table => 'name'), ….")
        self.expect("AS", hint=hint)
        return ast.CreateSink(name, target, self.query_after_as(), self.allowed(), span=self.since(start))

    def query_after_as(self) -> ast.Query:
        if not self.sees_query():
            raise self.unexpected("SELECT after AS")
        return self.query()

    def create_from_source(
        self, start: Token, name: ast.Identifier, columns: tuple[ast.ColumnDefinition, ...]
    ) -> ast.CreateStream:
        self.expect("SOURCE", hint="Add a source: SOURCE file('path') ORDERED BY column.")
        source = self.connector("source", "file('path'), rows((1, 'a'), …), ….")
        time_column, end_column = self.time_columns()
        within: ast.Duration | None = None
        idle_after: ast.Duration | None = None
        bad_input: ast.BadInput | None = None
        while True:
            clause = self.token
            if within is None and self.accept("WITHIN"):
                within = self.duration("WITHIN", least=0)
            elif idle_after is None and self.accept("IDLE"):
                self.expect("AFTER")
                idle_after = self.duration("IDLE AFTER", least=1)
            elif bad_input is None and self.accept("ON"):
                bad_input = self.bad_input(clause)
            elif self.sees_any(("WITHIN", "IDLE", "ON")):
                raise self.error(f"{clause.keyword} specified more than once", "duplicate-clause", clause.span)
            else:
                break
        hints = self.hints()
        order = (time_column, within, idle_after, end_column)
        return ast.CreateStream(name, columns, source, *order, hints, bad_input, span=self.since(start))

    def bad_input(self, start: Token) -> ast.BadInput:
        """`BAD INPUT { SKIP | STOP [ AFTER n [ ROWS ] | AFTER n PERCENT ] }`, after ON."""
        hint = "Write ON BAD INPUT SKIP, STOP, STOP AFTER 1000 ROWS, or STOP AFTER 1 PERCENT."
        self.expect("BAD", hint=hint)
        self.expect("INPUT", hint=hint)
        if self.accept("SKIP"):
            return ast.BadInput(False, span=self.since(start))
        self.expect("STOP", hint=hint)
        if not self.accept("AFTER"):
            return ast.BadInput(True, most_rows=0, span=self.since(start))
        number = self.token
        if number.kind is not Kind.NUMBER:
            raise self.unexpected("a number of rows, or of percent", hint)
        if self.peek().keyword == "PERCENT":
            return ast.BadInput(True, most_share=self.percent("of the rows"), span=self.since(start))
        rows = self.whole_number("a number of rows", 1, 2**62)
        self.accept("ROWS")
        return ast.BadInput(True, most_rows=rows, span=self.since(start))

    def hints(self) -> tuple[ast.Hint, ...]:
        """`WITH (rate = 5000, distinct(k) = 100)`, or nothing."""
        if not self.accept("WITH"):
            return ()
        self.expect_symbol("(", hint="Write WITH (rate = 5000, distinct(k) = 100).")
        found = self.listed(self.hint)
        self.expect_symbol(")")
        for number, hint in enumerate(found):
            if any(hint.about == other.about for other in found[:number]):
                raise self.error("duplicate hint", "duplicate-clause", hint.span)
        return found

    def hint(self) -> ast.Hint:
        start = self.token
        if self.accept("DISTINCT"):
            name = ast.Identifier("distinct", span=start.span)
            self.expect_symbol("(", hint="Write distinct(column) = 100.")
            column = self.name("the column")
            self.expect_symbol(")")
        else:
            name, column = self.name("rate or distinct(column)"), None
        self.expect_symbol("=", hint="Write WITH (rate = 5000, distinct(k) = 100).")
        number = self.token
        if number.kind is not Kind.NUMBER:
            raise self.unexpected("a number")
        self.next()
        if not float(number.value) > 0:
            raise self.error(f"{name.name} must be greater than 0", "out-of-range", number.span)
        return ast.Hint(name, column, float(number.value), span=self.since(start))

    def time_columns(self) -> tuple[ast.Identifier | None, ast.Identifier | None]:
        """`ORDERED BY column`, `VALID FROM column UNTIL column`, or nothing."""
        if self.accept("VALID"):
            self.expect("FROM", hint="Write VALID FROM column UNTIL column.")
            begin = self.name("the column with the start")
            self.expect("UNTIL", hint="Write VALID FROM column UNTIL column.")
            return begin, self.name("the column with the end")
        if self.accept("ORDERED"):
            self.expect("BY", hint="Name the time column: ORDERED BY column [WITHIN 5 SECONDS].")
            return self.name("the time column"), None
        if self.sees_any(("WITHIN", "IDLE")):
            raise self.error(
                f"{self.token.keyword} needs ORDERED BY",
                "clause-without-order",
                self.token.span,
                "Put ORDERED BY column before it, or remove it: rows are then stamped on arrival.",
            )
        return None, None

    def column_definition(self) -> ast.ColumnDefinition:
        start = self.token
        name = self.name("a column name")
        kind = self.type_name()
        return ast.ColumnDefinition(name, kind, span=self.since(start))

    def drop(self) -> ast.Drop | ast.DropSink:
        start = self.next()
        if self.sees_any(("TABLE", "INDEX", "FUNCTION")):
            hint = "Write DROP STREAM name, DROP VIEW name or DROP SINK name."
            raise self.refusal(f"DROP {self.token.keyword}", start.span.to(self.token.span), hint)
        kind = next((word for word in ("VIEW", "SINK") if self.sees(word)), "STREAM")
        self.expect(kind, hint="Write DROP STREAM name, DROP VIEW name or DROP SINK name.")
        if_exists = self.accept("IF", "EXISTS")
        name = self.name(f"a {kind.lower()} name")
        if kind == "SINK":
            return ast.DropSink(name, if_exists, span=self.since(start))
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")  # the default
        return ast.Drop(kind, name, if_exists, cascade, span=self.since(start))

    # ---- sources and sinks -----------------------------------------------------------------------------------------

    def connector(self, kind: str, examples: str) -> ast.Connector:
        start = self.token
        function = self.name(f"a {kind} function")
        self.expect_symbol("(", hint=f"A {kind} is a function: {examples}")
        arguments: list[ast.SourceValue] = []
        options: list[tuple[ast.Identifier, ast.SourceValue]] = []
        if not self.sees_symbol(")"):
            self.source_argument(arguments, options)
            while self.accept_symbol(","):
                self.source_argument(arguments, options)
        self.expect_symbol(")")
        return ast.Connector(function, tuple(arguments), tuple(options), span=self.since(start))

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
            raise self.error(f'option "{name.name}" specified more than once', "duplicate-option", name.span)
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
            case Kind.WORD, "SECRET" if self.sees_symbol("("):
                return self.secret_reference()
        hint = f"Put texts in single quotes: '{token.value}'." if token.kind in (Kind.WORD, Kind.QUOTED) else None
        raise self.error(f"expected a literal, found {token}", "syntax", token.span, hint)

    def secret_reference(self) -> Secret:
        """`secret('env:NAME')` or `secret('file:PATH')`, from its parenthesis on."""
        self.expect_symbol("(")
        token = self.token
        hint = "Write secret('env:HOOK_TOKEN') or secret('file:/run/secrets/hook')."
        if token.kind is not Kind.TEXT:
            raise self.error("a secret reference must be a text literal", "secret-reference", token.span, hint)
        reference = parse_reference(self.next().value)
        if reference is None:
            message = "invalid secret reference: expected env:NAME or file:PATH"
            raise self.error(message, "secret-reference", token.span, hint)
        self.expect_symbol(")")
        return reference

    def row(self) -> list[Argument]:
        self.deeper()
        values: list[Argument] = []
        if not self.sees_symbol(")"):
            values.extend(self.listed(self.plain_value))
        self.expect_symbol(")")
        self.depth -= 1
        return values


def _check_height(statement: ast.Statement) -> None:
    """Refuse trees that are deeper than the text is nested: a + b + c + … leans to the left, a level per operator."""
    pending: list[tuple[ast.Node, int]] = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise too_deep(node.span)
        pending.extend((child, depth + 1) for child in ast.children(node))
