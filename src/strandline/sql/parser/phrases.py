"""The small phrases of the grammar: names, types and durations, and the limit on how deep phrases may nest.

A room of the parser, the one above the tokens. `Phrases` is extended by `forms`, that by `expressions`, that by
`queries`, and that by the statements of `parser`; a method may only use the phrases of its own room and of those below.
"""

from __future__ import annotations

import difflib
from typing import Final

from strandline.core import types
from strandline.core.errors import ParseError, Span
from strandline.core.types import MAX_PRECISION, Type, decimal
from strandline.sql import ast
from strandline.sql.lexer import Cursor, Kind, Token, amounts_of, microseconds_of, unit_hint, unit_size


def words(text: str) -> frozenset[str]:
    """A set of keywords, written as one text."""
    return frozenset(text.split())


# Deeper trees than this would exhaust Python's stack somewhere between here and the last rewrite of the plan.
MAX_DEPTH: Final = 100

# Words that cannot be names unless quoted: each of them could follow a name with a meaning of its own.
RESERVED: Final = words(
    """ALL AND AS BETWEEN CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FROM FULL GROUP HAVING
        IN INNER INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER QUALIFY RIGHT SELECT THEN TRUE
        UNION USING WHEN WHERE WINDOW WITH"""
)

# Those of them that people call columns, and that do not end a list.
LIKELY_NAMES: Final = words("ALL CREATE CROSS END FETCH FULL GROUP INNER LEFT LIMIT OFFSET ORDER RIGHT WINDOW")

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


class Phrases(Cursor):
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
            raise too_deep(self.token.span)

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
        if self.sees_symbol("["):
            hint = "Arrays come from ARRAY_AGG(x) and array(a, …)."
            raise self.refusal("an array as a declared type", self.since(start).to(self.token.span), hint)
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
            raise self.error(f"{start.keyword} needs a precision", "missing-precision", start.span, hint)
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
            raise self.error(f"{what} must be a whole number from {least} to {most}", "out-of-range", token.span)
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
            wanted = "a number or a text after INTERVAL" if explicit else "a duration"
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
                f"invalid duration {token}",
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
                f"unknown unit of time {self.token}", "unknown-unit", self.token.span, unit_hint(self.token.value)
            )
        return self.next().value


def too_deep(span: Span) -> ParseError:
    """The refusal of a statement whose tree is higher than `MAX_DEPTH`; the caller raises it."""
    hint = "Split it: CREATE STREAM name AS SELECT … gives a part a name."
    return ParseError(f"the statement is nested deeper than {MAX_DEPTH} levels", code="too-deep", hint=hint, span=span)
