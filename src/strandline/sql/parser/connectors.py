"""Sources and sinks: the clauses of CREATE STREAM … SOURCE, and the arguments of connectors."""

from __future__ import annotations

from strandline.core.security.secret import Secret, parse_reference
from strandline.logical.catalog import Argument
from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser.literals import convert_number, parse_duration, parse_percent, parse_whole_number
from strandline.sql.parser.token_stream import TokenStream
from strandline.sql.parser.types import parse_type_name


def parse_source_stream(tokens: TokenStream, start: Token, name: ast.Identifier) -> ast.CreateStream:
    """`[(column TYPE, …)] SOURCE function(…) [ORDERED BY … | VALID FROM …] [clauses] [WITH (…)]`, after the name."""
    columns: tuple[ast.ColumnDefinition, ...] = ()
    if not tokens.sees("SOURCE"):
        hint = "Write CREATE STREAM name (column TYPE, …) SOURCE … or CREATE STREAM name AS SELECT …."
        if tokens.sees("FROM") and tokens.peek().kind is Kind.TEXT:
            hint = f"Write CREATE STREAM {name.name} SOURCE file('{tokens.peek().value}')."
        columns = tokens.parse_enclosed_list(parse_column_definition, hint)
    tokens.expect("SOURCE", hint="Add a source: SOURCE file('path') ORDERED BY column.")
    source = parse_connector(tokens, "source", "file('path'), rows((1, 'a'), …), ….")
    time_column, end_column = parse_time_columns(tokens)
    within: ast.Duration | None = None
    idle_after: ast.Duration | None = None
    bad_input: ast.BadInput | None = None
    changes: ast.ChangesIn | None = None
    while True:
        clause = tokens.token
        if within is None and tokens.accept("WITHIN"):
            within = parse_duration(tokens, "WITHIN", least=0)
        elif idle_after is None and tokens.accept("IDLE"):
            tokens.expect("AFTER")
            idle_after = parse_duration(tokens, "IDLE AFTER", least=1)
        elif bad_input is None and tokens.accept("ON"):
            bad_input = _parse_bad_input(tokens, clause)
        elif changes is None and tokens.accept("CHANGES"):
            changes = parse_change_feed(tokens, clause)
        elif tokens.sees_any(("WITHIN", "IDLE", "ON", "CHANGES")):
            raise tokens.error(f"{clause.keyword} specified more than once", "duplicate-clause")
        else:
            break
    hints = parse_hints(tokens) if tokens.accept("WITH") else ()
    order = (time_column, within, idle_after, end_column)
    return ast.CreateStream(name, columns, source, *order, hints, bad_input, changes, span=tokens.since(start))


def parse_column_definition(tokens: TokenStream) -> ast.ColumnDefinition:
    name = tokens.expect_name("a column name")
    kind = parse_type_name(tokens)
    return ast.ColumnDefinition(name, kind, span=tokens.since(name))


def parse_time_columns(tokens: TokenStream) -> tuple[ast.Identifier | None, ast.Identifier | None]:
    """`ORDERED BY column`, `VALID FROM column UNTIL column`, or nothing."""
    if tokens.accept("VALID"):
        tokens.expect("FROM", hint="Write VALID FROM column UNTIL column.")
        begin = tokens.expect_name("the column with the start")
        tokens.expect("UNTIL", hint="Write VALID FROM column UNTIL column.")
        return begin, tokens.expect_name("the column with the end")
    if tokens.accept("ORDERED"):
        tokens.expect("BY", hint="Name the time column: ORDERED BY column [WITHIN 5 SECONDS].")
        return tokens.expect_name("the time column"), None
    if tokens.sees_any(("WITHIN", "IDLE")):
        message = f"{tokens.token.keyword} needs ORDERED BY"
        hint = "Put ORDERED BY column before it, or remove it: rows are then stamped on arrival."
        raise tokens.error(message, "clause-without-order", hint=hint)
    return None, None


def parse_change_feed(tokens: TokenStream, start: Token) -> ast.ChangesIn:
    """`IN column [PRIMARY KEY (column, …)]`, after CHANGES."""
    hint = "Write CHANGES IN column, or CHANGES IN column PRIMARY KEY (column, …)."
    tokens.expect("IN", hint=hint)
    op_column = tokens.expect_name("the column with the operation")
    key: tuple[ast.Identifier, ...] = ()
    if tokens.accept("PRIMARY"):
        tokens.expect("KEY", hint=hint)
        key = tokens.parse_enclosed_list(lambda each: each.expect_name("a column of the key"), hint)
    return ast.ChangesIn(op_column, key, span=tokens.since(start))


def _parse_bad_input(tokens: TokenStream, start: Token) -> ast.BadInput:
    """`BAD INPUT { SKIP | STOP [ AFTER n [ ROWS ] | AFTER n PERCENT ] }`, after ON."""
    hint = "Write ON BAD INPUT SKIP, STOP, STOP AFTER 1000 ROWS, or STOP AFTER 1 PERCENT."
    tokens.expect("BAD", "INPUT", hint=hint)
    if tokens.accept("SKIP"):
        return ast.BadInput(False, span=tokens.since(start))
    tokens.expect("STOP", hint=hint)
    if not tokens.accept("AFTER"):
        return ast.BadInput(True, most_rows=0, span=tokens.since(start))
    if tokens.token.kind is not Kind.NUMBER:
        raise tokens.unexpected("a number of rows, or of percent", hint)
    if tokens.peek().keyword == "PERCENT":
        return ast.BadInput(True, most_share=parse_percent(tokens, "of the rows"), span=tokens.since(start))
    rows = parse_whole_number(tokens, "a number of rows", 1, 2**62)
    tokens.accept("ROWS")
    return ast.BadInput(True, most_rows=rows, span=tokens.since(start))


def parse_hints(tokens: TokenStream) -> tuple[ast.Hint, ...]:
    """`(rate = 5000, distinct(k) = 100)`, after WITH."""
    hints = tokens.parse_enclosed_list(_parse_hint, "Write WITH (rate = 5000, distinct(k) = 100).")
    for number, hint in enumerate(hints):
        if any(hint.about == other.about for other in hints[:number]):
            raise tokens.error("duplicate hint", "duplicate-clause", hint.span)
    return hints


def _parse_hint(tokens: TokenStream) -> ast.Hint:
    start = tokens.token
    if tokens.accept("DISTINCT"):
        name = ast.Identifier("distinct", span=start.span)
        tokens.expect("(", hint="Write distinct(column) = 100.")
        column = tokens.expect_name("the column")
        tokens.expect(")")
    else:
        name, column = tokens.expect_name("rate or distinct(column)"), None
    tokens.expect("=", hint="Write WITH (rate = 5000, distinct(k) = 100).")
    number = tokens.expect_number("a number")
    if not float(number.value) > 0:
        raise tokens.error(f"{name.name} must be greater than 0", "out-of-range", number.span)
    return ast.Hint(name, column, float(number.value), span=tokens.since(start))


# ---- arguments -------------------------------------------------------------------------------------------------------


def parse_connector(tokens: TokenStream, kind: str, examples: str) -> ast.Connector:
    function = tokens.expect_name(f"a {kind} function")
    tokens.expect("(", hint=f"A {kind} is a function: {examples}")
    arguments: list[ast.SourceValue] = []
    options: list[tuple[ast.Identifier, ast.SourceValue]] = []
    if not tokens.sees(")"):
        _parse_argument(tokens, arguments, options)
        while tokens.accept(","):
            _parse_argument(tokens, arguments, options)
    tokens.expect(")")
    return ast.Connector(function, tuple(arguments), tuple(options), span=tokens.since(function))


def _parse_argument(
    tokens: TokenStream, arguments: list[ast.SourceValue], options: list[tuple[ast.Identifier, ast.SourceValue]]
) -> None:
    """Read one argument into `arguments` or, if it is named, into `options`."""
    name = None
    if tokens.peek().keyword in ("=>", "="):
        name = tokens.expect_name("an option name")
        tokens.advance()
        if any(name.name.lower() == other.name.lower() for other, _ in options):
            raise tokens.error(f'option "{name.name}" specified more than once', "duplicate-option", name.span)
    start = tokens.token
    value = ast.SourceValue(_parse_value(tokens), span=tokens.since(start))
    if name is not None:
        options.append((name, value))
    elif options:
        hint = "Positional arguments come first, then name => value."
        raise tokens.error("a positional argument follows a named one", "argument-order", value.span, hint)
    else:
        arguments.append(value)


def _parse_value(tokens: TokenStream) -> Argument:
    """A literal or a parenthesised row of them. A number with a point stays text, so that it stays exact."""
    token = tokens.advance()
    match token.kind, token.keyword or token.value:
        case Kind.TEXT, text:
            return text
        case Kind.NUMBER, digits:
            return convert_number(digits, token.span)
        case Kind.SYMBOL, "(":
            return _parse_row(tokens)
        case Kind.SYMBOL, "-" | "+" if tokens.token.kind is Kind.NUMBER:
            digits = tokens.advance().value
            return convert_number(digits if token.value == "+" else f"-{digits}", tokens.since(token))
        case Kind.WORD, "NULL":
            return None
        case Kind.WORD, ("TRUE" | "FALSE") as word:
            return word == "TRUE"
        case Kind.WORD, "TIMESTAMP" | "DATE" if tokens.token.kind is Kind.TEXT:
            return tokens.advance().value
        case Kind.WORD, "SECRET" if tokens.sees("("):
            return _parse_secret(tokens)
    hint = f"Put texts in single quotes: '{token.value}'." if token.kind in (Kind.WORD, Kind.QUOTED) else None
    raise tokens.error(f"expected a literal, found {token}", "syntax", token.span, hint)


def _parse_secret(tokens: TokenStream) -> Secret:
    """`secret('env:NAME')` or `secret('file:PATH')`, from its parenthesis on."""
    tokens.expect("(")
    token = tokens.token
    hint = "Write secret('env:HOOK_TOKEN') or secret('file:/run/secrets/hook')."
    if token.kind is not Kind.TEXT:
        raise tokens.error("a secret reference must be a text literal", "secret-reference", hint=hint)
    reference = parse_reference(tokens.advance().value)
    if reference is None:
        raise tokens.error(
            "invalid secret reference: expected env:NAME or file:PATH", "secret-reference", token.span, hint
        )
    tokens.expect(")")
    return reference


def _parse_row(tokens: TokenStream) -> list[Argument]:
    """The values of a row, after the opening parenthesis."""
    tokens.enter()
    values = [] if tokens.sees(")") else list(tokens.parse_list(_parse_value))
    tokens.expect(")")
    tokens.leave()
    return values
