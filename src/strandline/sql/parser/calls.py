"""Calls that are written with words between their arguments: EXTRACT(year FROM ts), TRIM(BOTH 'x' FROM s) and others.

A room of the parser, between `phrases` and `expressions`: each form becomes an ordinary call.
"""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser.phrases import Phrases

_TRIMS: Final = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


class Forms(Phrases):
    """A method per form. Each starts right after the opening parenthesis and ends before the closing one."""

    def expression(self, weakest: int = 0) -> ast.Expression:
        """The room above knows how to read one."""
        raise AssertionError("expressions are read by the room above")

    def operand_before_in(self) -> ast.Expression:
        """An expression that ends before IN."""
        raise AssertionError("expressions are read by the room above")

    def form(self, start: Token, name: ast.Identifier) -> ast.Function | None:
        """The call of a function that has a form of its own, up to the closing parenthesis; None for any other."""
        match start.keyword:
            case "EXTRACT":
                arguments = self.extract()
            case "POSITION":
                arguments = self.position()
            case "SUBSTRING" | "SUBSTR":
                arguments = self.substring()
            case "OVERLAY":
                arguments = self.overlay()
            case "TRIM":
                which, arguments = self.trim()
                name = ast.Identifier(which or name.name, False, span=name.span)
            case _:
                return None
        self.expect_symbol(")")
        return ast.Function(name, arguments, span=self.since(start))

    def extract(self) -> tuple[ast.Expression, ...]:
        unit = self.token
        if unit.kind not in (Kind.WORD, Kind.TEXT):
            raise self.unexpected("a unit of time", "Write EXTRACT(year FROM ts).")
        self.next()
        self.expect("FROM", hint="Write EXTRACT(year FROM ts).")
        return ast.Text(unit.value, span=unit.span), self.expression()

    def position(self) -> tuple[ast.Expression, ...]:
        part = self.operand_before_in()
        self.expect("IN", hint="Write POSITION('part' IN s).")
        return part, self.expression()

    def substring(self) -> tuple[ast.Expression, ...]:
        arguments = list(self.listed(self.expression))
        if self.accept("FROM"):
            arguments.append(self.expression())
        if self.sees("FOR"):
            if len(arguments) == 1:
                arguments.append(ast.Number("1", span=self.token.span))
            self.next()
            arguments.append(self.expression())
        return tuple(arguments)

    def overlay(self) -> tuple[ast.Expression, ...]:
        arguments = list(self.listed(self.expression))
        if self.accept("PLACING"):
            arguments.append(self.expression())
            self.expect("FROM", hint="Write OVERLAY(s PLACING new FROM 2 FOR 3).")
            arguments.append(self.expression())
            if self.accept("FOR"):
                arguments.append(self.expression())
        return tuple(arguments)

    def trim(self) -> tuple[str | None, tuple[ast.Expression, ...]]:
        """The function that trims the ends that are wanted, and its arguments."""
        which = _TRIMS[self.next().keyword] if self.sees_any(_TRIMS) else None
        characters = () if self.sees("FROM") else self.listed(self.expression)
        if self.accept("FROM"):
            return which, (self.expression(), *characters)
        return which, characters
