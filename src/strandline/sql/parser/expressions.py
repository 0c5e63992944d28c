"""Expressions: precedence climbing from tokens to the syntax tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.core.errors import Span
from strandline.sql import ast
from strandline.sql.lexer import LIKELY_NAMES, RESERVED, Kind, Token
from strandline.sql.parser import calls, json_paths, queries
from strandline.sql.parser.literals import (
    begins_interval,
    begins_months,
    parse_interval,
    parse_months,
    parse_short_duration,
)
from strandline.sql.parser.token_stream import TokenStream
from strandline.sql.parser.types import SIMPLE_TYPES, parse_cast_type

# PostgreSQL's precedence, weakest first. Comparisons and the level above do not chain: a < b < c is an error.
OR, AND, NOT, IS, COMPARE, MATCH, OTHER, ADD, MULTIPLY, POWER, SIGN, CAST, SUBSCRIPT = range(1, 14)
MATCHES: Final = ("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR", "RLIKE", "REGEXP")
LEVELS: Final = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(("IS", "ISNULL", "NOTNULL"), IS),
    **dict.fromkeys(("=", "<>", "!=", "==", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(MATCHES, MATCH),
    **dict.fromkeys(("||", "~", "~*", "!~", "!~*", "&", "|", "#", "<<", ">>"), OTHER),
    **dict.fromkeys(("->", "->>", "#>", "#>>"), OTHER),
    **dict.fromkeys("+-", ADD),
    **dict.fromkeys(("*", "/", "%", "//"), MULTIPLY),
    "^": POWER,
    "::": CAST,
    "[": SUBSCRIPT,
}
MONTHS: Final = "interval of months"
_INSTANT: Final = "at_time_zone"  # how the result of AT TIME ZONE is marked, of which the zone is known no more
# A bracket with one of these begins a window and not a subscript.
WINDOWS: Final = ("RANGE", "ROWS", "SESSION", "PARTITION", "NOW")


def parse_expression(tokens: TokenStream, weakest: int = OR) -> ast.Expression:
    """An expression of operators that bind at least as strongly as `weakest`."""
    tokens.enter()
    start = tokens.token
    left = _parse_operand(tokens)
    chained = 0  # the level of the comparison just read: another one of that level must not follow
    while (level := operator_level(tokens)) >= weakest:
        if level == chained:
            hint = "Use parentheses, or join two conditions by AND."
            raise tokens.error(f"{tokens.token} cannot follow another comparison", "chained-comparison", hint=hint)
        left = _parse_operation(tokens, start, left, level)
        chained = level if level in (COMPARE, MATCH) else 0
    tokens.leave()
    return left


def operator_level(tokens: TokenStream, ahead: int = 0) -> int:
    """How strongly the infix operator here binds; 0 if there is none."""
    keyword = tokens.peek(ahead).keyword
    if keyword == "AT":
        return CAST if [tokens.peek(ahead + n).keyword for n in (1, 2)] == ["TIME", "ZONE"] else 0
    if (
        keyword in ("RLIKE", "REGEXP")
        and tokens.peek(ahead + 1).keyword in ("", ",", ")", "FROM")
        and (tokens.peek(ahead + 1).kind is not Kind.TEXT)
    ):
        return 0  # an alias
    if keyword == "NOT":
        return MATCH if tokens.peek(ahead + 1).keyword in MATCHES else 0
    if keyword == "[" and tokens.peek(ahead + 1).keyword in WINDOWS:
        return 0  # a window in the wrong place, which is explained elsewhere
    return LEVELS.get(keyword, 0)


def parse_order_by(tokens: TokenStream) -> tuple[ast.SortItem, ...]:
    tokens.expect("ORDER", "BY")
    return tokens.parse_list(_parse_sort_item)


def _parse_sort_item(tokens: TokenStream) -> ast.SortItem:
    start = tokens.token
    value = parse_expression(tokens)
    descending = tokens.accept("DESC")
    if not descending:
        tokens.accept("ASC")
    nulls = tokens.expect_any(("FIRST", "LAST"), "FIRST or LAST after NULLS") if tokens.accept("NULLS") else None
    return ast.SortItem(value, descending, nulls, span=tokens.since(start))


# ---- operators -------------------------------------------------------------------------------------------------------


def _parse_operation(tokens: TokenStream, start: Token, left: ast.Expression, level: int) -> ast.Expression:
    """The operator here, which binds at `level`, and what is right of it."""
    if level == IS:
        return _parse_is_test(tokens, start, left)
    if level == MATCH:
        return _parse_match_test(tokens, start, left)
    operator = tokens.advance()
    if level in (OR, AND):
        operands = [left, parse_expression(tokens, level + 1)]
        while tokens.accept(operator.keyword):
            operands.append(parse_expression(tokens, level + 1))
        return ast.Logical(operator.keyword, tuple(operands), span=tokens.since(start))
    if operator.keyword == "AT":
        return _parse_time_zone(tokens, start, left)
    if level == CAST:
        return ast.Cast(left, parse_cast_type(tokens), span=tokens.since(start))
    if level == SUBSCRIPT:
        index = parse_expression(tokens)
        tokens.expect("]", hint="Write a[1] for the first element of an array.")
        return ast.Binary("[]", left, index, span=tokens.since(start))
    if operator.value in json_paths.OPERATORS:
        return json_paths.parse_path_operand(tokens, start, left, operator)
    symbol = {"!=": "<>", "==": "="}.get(operator.value, operator.value)
    if level == COMPARE and tokens.sees_any(("ANY", "ALL", "SOME")):
        quantifier = "ALL" if tokens.advance().keyword == "ALL" else "ANY"
        if tokens.sees("(") and not queries.opens_query(tokens):
            return _parse_array_test(tokens, start, left, symbol, quantifier)
        query = queries.parse_enclosed_query(tokens, hint="Write x > ALL (SELECT …).")
        return ast.Quantified(symbol, quantifier, left, query, span=tokens.since(start))
    right = parse_expression(tokens, level + 1)
    if symbol == "//":
        return _call("div", left, right, span=tokens.since(start))
    return with_months(ast.Binary(symbol, left, right, span=tokens.since(start)))


def with_months(sum_: ast.Binary) -> ast.Expression:
    """`ts + INTERVAL 1 MONTH` and `ts - INTERVAL 1 MONTH` as date_add; any other operation as it is."""
    operands = (sum_.left, sum_.right)
    months, others = ([part for part in operands if is_months(part) == which] for which in (True, False))
    if sum_.operator not in ("+", "-") or len(months) != 1 or (sum_.operator == "-" and is_months(sum_.left)):
        return sum_
    (count,) = months
    assert isinstance(count, ast.FunctionCall) and not isinstance(count.arguments, ast.Star)
    number = count.arguments[0]
    signed = ast.Unary("-", number, span=number.span) if sum_.operator == "-" else number
    return _call("date_add", ast.Text("month", span=count.span), signed, others[0], span=sum_.span)


def is_months(node: ast.Expression) -> bool:
    """Whether a node is an INTERVAL of months, which has no length."""
    return isinstance(node, ast.FunctionCall) and node.written == MONTHS


def _call(name: str, *arguments: ast.Expression, span: Span) -> ast.FunctionCall:
    return ast.FunctionCall(ast.Identifier(name, False, span=span), arguments, span=span)


def _parse_time_zone(tokens: TokenStream, start: Token, left: ast.Expression) -> ast.Expression:
    """`TIME ZONE 'zone'`, after AT: of a local time, the instant; of such an instant, the local time of the zone."""
    tokens.expect("TIME", "ZONE")
    zone = parse_expression(tokens, CAST + 1)
    is_instant = isinstance(left, ast.FunctionCall) and left.written == _INSTANT
    name, written = ("from_utc_timestamp", "timezone") if is_instant else ("to_utc_timestamp", _INSTANT)
    return replace(_call(name, left, zone, span=tokens.since(start)), written=written)


def _parse_array_test(
    tokens: TokenStream, start: Token, left: ast.Expression, operator: str, quantifier: str
) -> ast.Expression:
    """`= ANY (array)` and `<> ALL (array)`."""
    array = tokens.parse_enclosed(parse_expression)
    span = tokens.since(start)
    if (operator, quantifier) not in (("=", "ANY"), ("<>", "ALL")):
        hint = "Only x = ANY(array) and x <> ALL(array) compare with the elements of an array; else use a subquery."
        raise tokens.unsupported(f"{operator} {quantifier} of an array", hint, span)
    test = _call("array_contains", array, left, span=span)
    return test if operator == "=" else ast.Unary("NOT", test, span=span)


def _parse_is_test(tokens: TokenStream, start: Token, left: ast.Expression) -> ast.Expression:
    word = tokens.advance().keyword
    if word != "IS":
        return ast.IsTest(left, "NULL", word == "NOTNULL", span=tokens.since(start))
    negated = tokens.accept("NOT")
    if tokens.accept("DISTINCT"):
        tokens.expect("FROM")
        return ast.DistinctTest(left, parse_expression(tokens, IS + 1), negated, span=tokens.since(start))
    state = tokens.expect_any(("NULL", "TRUE", "FALSE", "UNKNOWN"), "NULL, TRUE, FALSE or UNKNOWN after IS")
    return ast.IsTest(left, state, negated, span=tokens.since(start))


def _parse_match_test(tokens: TokenStream, start: Token, left: ast.Expression) -> ast.Expression:
    """`[NOT] BETWEEN`, `IN`, `LIKE`, `ILIKE`, `SIMILAR TO`, `RLIKE` or `REGEXP`."""
    negated = tokens.accept("NOT")
    operator = tokens.advance().keyword
    if operator == "BETWEEN":
        symmetric = not tokens.accept("ASYMMETRIC") and tokens.accept("SYMMETRIC")
        low = parse_expression(tokens, MATCH + 1)
        tokens.expect("AND", hint="Write x BETWEEN low AND high.")
        high = parse_expression(tokens, MATCH + 1)
        return ast.Between(left, low, high, negated, symmetric, span=tokens.since(start))
    if operator == "IN":
        if tokens.sees("(") and queries.opens_query(tokens):
            query = queries.parse_enclosed_query(tokens)
            return ast.Quantified(*(("<>", "ALL") if negated else ("=", "ANY")), left, query, span=tokens.since(start))
        items = tokens.parse_enclosed_list(parse_expression, "Write x IN (value, …) or x IN (SELECT …).")
        return ast.InList(left, items, negated, span=tokens.since(start))
    if operator == "SIMILAR":
        tokens.expect("TO", hint="Write s SIMILAR TO 'pattern'.")
    pattern = parse_expression(tokens, MATCH + 1)
    if operator in ("RLIKE", "REGEXP"):
        return ast.Binary("!~" if negated else "~", left, pattern, span=tokens.since(start))
    escape = parse_expression(tokens, MATCH + 1) if tokens.accept("ESCAPE") else None
    if operator == "ILIKE":
        if isinstance(escape, ast.Text) and escape.value.lower() != escape.value.upper():
            hint = "Choose a character that is no letter."
            raise tokens.unsupported("a letter as the ESCAPE of ILIKE", hint, escape.span)
        left, pattern = _call_lower(left), _call_lower(pattern)
    return ast.Like(left, pattern, negated, escape, operator == "SIMILAR", span=tokens.since(start))


def _call_lower(value: ast.Expression) -> ast.FunctionCall:
    return ast.FunctionCall(ast.Identifier("lower", False, span=value.span), (value,), span=value.span)


# ---- operands --------------------------------------------------------------------------------------------------------


def _parse_operand(tokens: TokenStream) -> ast.Expression:
    """A literal, a name, a call, a parenthesis, or a prefix operator and its operand."""
    token = tokens.token
    match token.kind:
        case Kind.DURATION:
            return ast.Interval(parse_short_duration(tokens), span=tokens.previous.span)
        case Kind.NUMBER:
            tokens.advance()
            return ast.Number(token.value, span=token.span)
        case Kind.TEXT:
            tokens.advance()
            return ast.Text(token.value, span=token.span)
        case Kind.SYMBOL:
            return _parse_symbol_operand(tokens)
        case Kind.WORD:
            return _parse_word_operand(tokens)
        case Kind.QUOTED:
            return _parse_named(tokens)
    raise tokens.unexpected("an expression")


def _parse_symbol_operand(tokens: TokenStream) -> ast.Expression:
    start = tokens.token
    match start.value:
        case "(" if tokens.peek().keyword in ("SELECT", "WITH", "VALUES"):
            return ast.ScalarQuery(queries.parse_enclosed_query(tokens), span=tokens.since(start))
        case "(":
            tokens.advance()
            inner = parse_expression(tokens)
            if tokens.sees(","):
                feature = "a row of values in an expression"
                raise tokens.unsupported(feature, "Compare column by column.", tokens.through(start))
            tokens.expect(")")
            return inner
        case "-" | "+" | "~":
            tokens.advance()
            operand = parse_expression(tokens, OTHER + 1 if start.value == "~" else SIGN)
            return ast.Unary(start.value, operand, span=tokens.since(start))
    hint = "COUNT(*) and SELECT * are the only places for *." if start.value == "*" else None
    raise tokens.unexpected("an expression", hint)


def _parse_word_operand(tokens: TokenStream) -> ast.Expression:
    start = tokens.token
    match start.keyword:
        case "TRUE" | "FALSE":
            tokens.advance()
            return ast.Truth(start.keyword == "TRUE", span=start.span)
        case "NULL":
            tokens.advance()
            return ast.Null(span=start.span)
        case "NOT":
            tokens.advance()
            operand = parse_expression(tokens, NOT)
            return ast.Unary("NOT", operand, span=tokens.since(start))
        case "CASE":
            return _parse_case(tokens)
        case "CAST":
            return _parse_cast(tokens)
        case "TRY_CAST" | "SAFE_CAST" if tokens.peek().keyword == "(":
            return _parse_cast(tokens)
        case "ARRAY" if tokens.peek().keyword == "[":
            tokens.advance(2)
            elements = tokens.parse_list(parse_expression)
            tokens.expect("]", hint="Write ARRAY[1, 2].")
            return _call("array", *elements, span=tokens.since(start))
        case "EXISTS":
            tokens.advance()
            query = queries.parse_enclosed_query(tokens, hint="Write EXISTS (SELECT …).")
            return ast.Exists(query, span=tokens.since(start))
        case "TIMESTAMP" | "DATE" if tokens.peek().kind is Kind.TEXT:
            tokens.advance()
            text = tokens.advance().value
            return ast.TypedText(SIMPLE_TYPES[start.keyword], text, span=tokens.since(start))
        case "INTERVAL" if begins_months(tokens):
            months = ast.Number(str(parse_months(tokens)), span=tokens.since(start))
            return replace(_call(MONTHS, months, span=months.span), written=MONTHS)
        case "INTERVAL" if begins_interval(tokens):
            return ast.Interval(parse_interval(tokens), span=tokens.since(start))
        case "LEFT" | "RIGHT" if tokens.peek().keyword == "(":
            tokens.advance()  # reserved for joins, but nothing else can be meant here
            return calls.parse_call(tokens, ast.Identifier(start.value, False, span=start.span))
        case "WINDOW" if tokens.peek().keyword in ("(", "."):  # Spark's window(ts, '1 hour') and window.start
            name = ast.Identifier(tokens.advance().value, False, span=start.span)
            return _parse_call_or_field(tokens, name) if tokens.sees("(") else _parse_path(tokens, name)
    if start.keyword in LIKELY_NAMES:
        raise tokens.unexpected("an expression", f'A name that is also a keyword needs quotes: "{start.value}".')
    if start.keyword in RESERVED:
        after_comma = tokens.previous.keyword == ","
        raise tokens.unexpected("an expression", "Remove the extra comma." if after_comma else None)
    return _parse_named(tokens)


def _parse_named(tokens: TokenStream) -> ast.Expression:
    """A column or a call."""
    start = tokens.token
    name = tokens.expect_name("an expression")
    if tokens.sees("("):
        return _parse_call_or_field(tokens, name)
    return _parse_path(tokens, name) if tokens.sees(".") else ast.ColumnName(None, name, span=start.span)


def _parse_call_or_field(tokens: TokenStream, name: ast.Identifier) -> ast.Expression:
    """A call; `window(ts, '1 hour').start` is a call of window_start."""
    call = calls.parse_call(tokens, name)
    if not isinstance(call, ast.FunctionCall) or name.name.upper() not in ("WINDOW", "SESSION_WINDOW"):
        return call
    if not tokens.accept("."):
        return call
    part = _parse_field(tokens, "start or end")
    return replace(call, name=replace(name, name=f"{name.name}_{part.name}"), span=tokens.since(call))


def _parse_path(tokens: TokenStream, name: ast.Identifier) -> ast.ColumnName:
    """`.column` after a name, or `.column.field`, a field of a struct."""
    tokens.expect(".")
    if tokens.sees("*"):
        raise tokens.error(f"{name.name}.* stands only in the SELECT list", "syntax", name.span.to(tokens.token.span))
    column = _parse_field(tokens, "a column name")
    while tokens.accept("."):
        field = _parse_field(tokens, "a name of a field")
        quoted = column.quoted or field.quoted
        column = ast.Identifier(f"{column.name}.{field.name}", quoted, span=column.span.to(field.span))
    return ast.ColumnName(name, column, span=tokens.since(name))


def _parse_field(tokens: TokenStream, expected: str) -> ast.Identifier:
    """A name after a dot, where END closes no CASE."""
    token = tokens.token
    return ast.Identifier(token.value, span=token.span) if tokens.accept("END") else tokens.expect_name(expected)


def _parse_case(tokens: TokenStream) -> ast.Case:
    start = tokens.advance()
    operand = None if tokens.sees("WHEN") else parse_expression(tokens)
    branches: list[tuple[ast.Expression, ast.Expression]] = []
    while tokens.accept("WHEN"):
        condition = parse_expression(tokens)
        tokens.expect("THEN")
        branches.append((condition, parse_expression(tokens)))
    if not branches:
        raise tokens.unexpected("WHEN")
    otherwise = parse_expression(tokens) if tokens.accept("ELSE") else None
    if not tokens.accept("END"):
        raise tokens.unexpected("END" if otherwise else "WHEN, ELSE or END", "CASE is closed by END.")
    return ast.Case(operand, tuple(branches), otherwise, span=tokens.since(start))


def _parse_cast(tokens: TokenStream) -> ast.Cast:
    start = tokens.advance()
    tokens.expect("(", hint="Write CAST(x AS type).")
    operand = parse_expression(tokens)
    tokens.expect("AS", hint="Write CAST(x AS type).")
    kind = parse_cast_type(tokens)
    tokens.expect(")")
    return ast.Cast(operand, kind, span=tokens.since(start))
