"""Expressions as they are written: precedence climbing from tokens to the syntax tree.

A room of the parser, above `forms` and below `queries`: a query holds expressions, but an expression holds no query.
"""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind, Token, unit_size
from strandline.sql.parser.calls import Forms
from strandline.sql.parser.phrases import LIKELY_NAMES, RESERVED, SIMPLE_TYPES

# PostgreSQL's precedence, weakest first. Comparisons and the level above do not chain: a < b < c is an error.
OR, AND, NOT, IS, COMPARE, MATCH, OTHER, ADD, MULTIPLY, POWER, SIGN, CAST, SUBSCRIPT = range(1, 14)
BINARY: Final = {
    **dict.fromkeys(("=", "<>", "!=", "==", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("||", "~", "~*", "!~", "!~*", "&", "|", "#", "<<", ">>"), OTHER),
    **dict.fromkeys("+-", ADD),
    **dict.fromkeys("*/%", MULTIPLY),
    "^": POWER,
    "::": CAST,
    "[": SUBSCRIPT,
}
# A bracket with one of these begins a window and not a subscript.
WINDOWS: Final = ("RANGE", "ROWS", "SESSION", "PARTITION", "NOW")
MATCHES: Final = ("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR")

_SUBQUERY_HINT: Final = "Put a subquery argument in its own parentheses: abs((SELECT …))."


_RANK_HINT: Final = "Write RANK() OVER (PARTITION BY x ORDER BY y DESC)."
_OTHER_PLACES: Final = {
    "ROW_NUMBER": "Use RANK(): ties have equal rank.",
    "DENSE_RANK": "Use RANK().",
    "PERCENT_RANK": "Use RANK().",
}


class Expressions(Forms):
    """Operators, literals, columns and calls; `expression` is the way in."""

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
            if token.value == "[" and self.peek().keyword in WINDOWS:
                return 0  # a window in the wrong place, which is explained elsewhere
            return BINARY.get(token.value, 0)
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
        if level == SUBSCRIPT:
            place = self.expression()
            self.expect_symbol("]", hint="Write a[1] for the first element of an array.")
            return ast.Binary("[]", left, place, span=self.since(start))
        if operator.value == "==":
            raise self.error("== is not an operator", "syntax", operator.span, "Write = to compare.")
        symbol = "<>" if operator.value == "!=" else operator.value
        if level == COMPARE and self.sees_any(("ANY", "ALL", "SOME")):
            quantifier = "ALL" if self.next().keyword == "ALL" else "ANY"
            self.expect_symbol("(", hint="Write x > ALL (SELECT …).")
            if not self.sees_query():
                raise self.unexpected("SELECT")
            return ast.Quantified(symbol, quantifier, left, self.closed_query(), span=self.since(start))
        right = self.expression(level + 1)
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
        if self.accept("DISTINCT"):
            self.expect("FROM")
            return ast.DistinctTest(left, self.expression(IS + 1), negated, span=self.since(start))
        if not self.sees_any(("NULL", "TRUE", "FALSE", "UNKNOWN")):
            raise self.unexpected("NULL, TRUE, FALSE or UNKNOWN after IS")
        what = self.next().keyword
        return ast.IsTest(left, what, negated, span=self.since(start))

    def match_test(self, start: Token, left: ast.Expression) -> ast.Expression:
        negated = self.accept("NOT")
        operator = self.next()
        match operator.keyword:
            case "BETWEEN":
                symmetric = not self.accept("ASYMMETRIC") and self.accept("SYMMETRIC")
                low = self.expression(MATCH + 1)
                self.expect("AND", hint="Write x BETWEEN low AND high.")
                high = self.expression(MATCH + 1)
                return ast.Between(left, low, high, negated, symmetric, span=self.since(start))
            case "IN":
                self.expect_symbol("(", hint="Write x IN (value, …) or x IN (SELECT …).")
                if self.holds_query():
                    query = self.closed_query()
                    comparison = ("<>", "ALL") if negated else ("=", "ANY")
                    return ast.Quantified(*comparison, left, query, span=self.since(start))
                items = self.listed(self.expression)
                self.expect_symbol(")")
                return ast.InList(left, items, negated, span=self.since(start))
            case "LIKE" | "ILIKE":
                pattern = self.expression(MATCH + 1)
                escape = self.escape()
                if operator.keyword == "ILIKE":
                    if isinstance(escape, ast.Text) and escape.value.lower() != escape.value.upper():
                        hint = "Choose a character that is no letter."
                        raise self.refusal("a letter as the ESCAPE of ILIKE", escape.span, hint)
                    left, pattern = _lowered(left), _lowered(pattern)
                return ast.Like(left, pattern, negated, escape, span=self.since(start))
        self.expect("TO", hint="Write s SIMILAR TO 'pattern'.")
        pattern = self.expression(MATCH + 1)
        return ast.Like(left, pattern, negated, self.escape(), similar=True, span=self.since(start))

    def escape(self) -> ast.Expression | None:
        return self.expression(MATCH + 1) if self.accept("ESCAPE") else None

    def operand_before_in(self) -> ast.Expression:
        return self.expression(MATCH + 1)

    def sees_query(self) -> bool:
        """Whether a query may begin here, itself in parentheses perhaps."""
        raise AssertionError("queries are read by the room above")

    def holds_query(self) -> bool:
        """Whether the parenthesis that was just opened holds a query rather than a list of values."""
        raise AssertionError("queries are read by the room above")

    def closed_query(self) -> ast.Query:
        query = self.query()
        self.expect_symbol(")")
        return query

    def query(self) -> ast.Query:
        """A query inside of an expression; the room above knows how to read one."""
        raise AssertionError("queries are read by the room above")

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
            if self.sees_any(("SELECT", "WITH", "VALUES")):
                return ast.ScalarQuery(self.closed_query(), span=self.since(start))
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
        if self.accept_symbol("~"):
            operand = self.expression(OTHER + 1)
            return ast.Unary("~", operand, span=self.since(start))
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
                self.expect_symbol("(", hint="Write EXISTS (SELECT …).")
                if not self.sees_query():
                    raise self.unexpected("SELECT")
                return ast.Exists(self.closed_query(), span=self.since(start))
            case ("TIMESTAMP" | "DATE") as word if self.peek().kind is Kind.TEXT:
                self.next()
                text = self.next().value
                return ast.TypedText(SIMPLE_TYPES[word], text, span=self.since(start))
            case "INTERVAL" if self.at_interval():
                self.next()
                amount = self.interval_text() if self.token.kind is Kind.TEXT else self.interval_number(explicit=True)
                return ast.Interval(amount, span=self.since(start))
        if start.keyword in ("LEFT", "RIGHT") and self.sees_symbol("(", 1):
            self.next()  # reserved for joins, but nothing else can be meant here
            return self.call(start, ast.Identifier(start.value, False, span=start.span))
        if start.keyword in LIKELY_NAMES:
            raise self.unexpected("an expression", f'A name that is also a keyword needs quotes: "{start.value}".')
        if start.keyword in RESERVED:
            comma = self.at > 0 and self.tokens[self.at - 1].value == ","
            raise self.unexpected("an expression", "Remove the extra comma." if comma else None)
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

    def call(self, start: Token, name: ast.Identifier) -> ast.Function | ast.Ranking:
        self.expect_symbol("(")
        if (form := self.form(start, name)) is not None:
            return form
        arguments: tuple[ast.Expression, ...] | ast.Star = ()
        distinct = False
        order: tuple[ast.SortItem, ...] = ()
        within: tuple[ast.SortItem, ...] = ()
        star = self.token
        if self.accept_symbol("*"):
            arguments = ast.Star(span=star.span)
        elif not self.sees_symbol(")"):
            distinct = self.accept("DISTINCT")
            self.refuse_argument_syntax(start)
            arguments = self.listed(self.expression)
            order = self.order_by() if self.sees("ORDER") else ()
            if self.sees_any(("FROM", "FOR")):
                hint = "Separate the arguments by commas."
                raise self.refusal(f"{self.token.keyword} in {start.value}(…)", self.token.span, hint)
        self.expect_symbol(")")
        if self.sees("WITHIN", "GROUP"):
            self.next()
            self.next()
            self.expect_symbol("(")
            within = self.order_by()
            self.expect_symbol(")")
        condition = self.filter() if self.sees("FILTER") and self.sees_symbol("(", 1) else None
        called = ast.Function(name, arguments, condition, distinct, order, within, span=self.since(start))
        return self.over(start, called) if self.sees("OVER") and self.sees_symbol("(", 1) else called

    def over(self, start: Token, called: ast.Function) -> ast.Ranking:
        """What follows `RANK()`: `OVER ([PARTITION BY …] ORDER BY …)`."""
        word = called.name.name.upper()
        if word in _OTHER_PLACES:
            raise self.refusal(f"{word}() OVER", called.span.to(self.token.span), _OTHER_PLACES[word])
        if word != "RANK":
            hint = "Group a windowed stream instead; RANK() OVER (… ORDER BY …) is the only window function."
            raise self.refusal("OVER", self.token.span, hint)
        if called != ast.Function(called.name, (), span=called.span):
            raise self.error("RANK() takes no arguments", "syntax", called.span, _RANK_HINT)
        self.next()
        self.expect_symbol("(")
        partition: tuple[ast.Expression, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            partition = self.listed(self.expression)
        if not self.sees("ORDER"):
            raise self.unexpected("ORDER BY", _RANK_HINT)
        order = self.order_by()
        if self.sees_any(("ROWS", "RANGE", "GROUPS")):
            hint = "Remove it: RANK() covers the whole partition."
            raise self.refusal(f"{self.token.keyword} in OVER", self.token.span, hint)
        self.expect_symbol(")")
        return ast.Ranking(partition, order, span=self.since(start))

    def order_by(self) -> tuple[ast.SortItem, ...]:
        self.expect("ORDER")
        self.expect("BY")
        return self.listed(self.sort_item)

    def sort_item(self) -> ast.SortItem:
        start = self.token
        value = self.expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        nulls = None
        if self.accept("NULLS"):
            if not self.sees_any(("FIRST", "LAST")):
                raise self.unexpected("FIRST or LAST after NULLS")
            nulls = self.next().keyword
        return ast.SortItem(value, descending, nulls, span=self.since(start))

    def filter(self) -> ast.Expression:
        """`FILTER (WHERE condition)`."""
        self.expect("FILTER")
        self.expect_symbol("(")
        self.expect("WHERE", hint="Write FILTER (WHERE condition).")
        condition = self.expression()
        self.expect_symbol(")")
        return condition

    def refuse_argument_syntax(self, start: Token) -> None:
        if self.sees("ALL"):
            self.next()
        if self.sees_any(("SELECT", "WITH", "VALUES")):
            opening, closing = self.tokens[self.at - 1], self.tokens[self.closing(self.at - 1)]
            raise self.refusal("a subquery without parentheses", opening.span.to(closing.span), _SUBQUERY_HINT)

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


def _lowered(value: ast.Expression) -> ast.Function:
    return ast.Function(ast.Identifier("lower", False, span=value.span), (value,), span=value.span)
