"""The token stream of the parser: the next token, looking ahead, moving on, and errors about what was expected."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, TypeVar

from strandline.core.errors import ParseError, Span
from strandline.sql import ast
from strandline.sql.lexer import RESERVED, Kind, Token, tokenize

T = TypeVar("T")

# Deeper trees than this would exhaust Python's stack somewhere between here and the last rewrite of the plan.
MAX_DEPTH: Final = 100


class TokenStream:
    """The tokens of a text, the position in them, and the depth of nesting there.

    Every `parse_x(tokens)` starts at the first token of an x and leaves the stream right after its last one. Keywords
    are words in upper case and symbols alike: `tokens.accept("OVER", "(")`.
    """

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._last = len(self._tokens) - 1
        self._position = 0
        self.token = self._tokens[0]  # the next one to be taken
        self.depth = 0

    @property
    def all_tokens(self) -> list[Token]:
        return self._tokens

    @property
    def previous(self) -> Token:
        """The token that was taken last; the first one where none was."""
        return self._tokens[max(self._position - 1, 0)]

    def peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._position + ahead, self._last)]

    def advance(self, count: int = 1) -> Token:
        """Take `count` tokens and return the first of them; the stream stays at the end of the text."""
        first = self.token
        self._position = min(self._position + count, self._last)
        self.token = self._tokens[self._position]
        return first

    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    def sees(self, keyword: str, *following: str) -> bool:
        """Whether the next tokens are these keywords."""
        if self.token.keyword != keyword:
            return False
        return all(self.peek(ahead).keyword == word for ahead, word in enumerate(following, 1))

    def sees_any(self, keywords: Container[str]) -> bool:
        return self.token.keyword in keywords

    def sees_name(self, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.keyword not in RESERVED)

    def accept(self, *keywords: str) -> bool:
        """Take these keywords if all of them are next."""
        if not self.sees(*keywords):
            return False
        self.advance(len(keywords))
        return True

    def expect(self, *keywords: str, hint: str | None = None) -> None:
        for keyword in keywords:
            if not self.accept(keyword):
                raise self.unexpected(keyword, hint)

    def expect_any(self, keywords: Container[str], description: str) -> str:
        """Take one of these keywords and return it."""
        if not self.sees_any(keywords):
            raise self.unexpected(description)
        return self.advance().keyword

    def expect_name(self, description: str) -> ast.Identifier:
        token = self.token
        if self.sees_name():
            self.advance()
            return ast.Identifier(token.value, token.kind is Kind.QUOTED, span=token.span)
        hint = f'A name that is also a keyword needs quotes: "{token.value}".' if token.keyword in RESERVED else None
        raise self.unexpected(description, hint)

    def expect_number(self, description: str, hint: str | None = None) -> Token:
        if self.token.kind is not Kind.NUMBER:
            raise self.unexpected(description, hint)
        return self.advance()

    def parse_list(self, parse_element: Callable[[TokenStream], T]) -> tuple[T, ...]:
        """One or more elements, separated by commas."""
        elements = [parse_element(self)]
        while self.accept(","):
            elements.append(parse_element(self))
        return tuple(elements)

    def parse_enclosed(self, parse_content: Callable[[TokenStream], T], hint: str | None = None) -> T:
        """What stands in parentheses."""
        self.expect("(", hint=hint)
        content = parse_content(self)
        self.expect(")")
        return content

    def parse_enclosed_list(self, parse_element: Callable[[TokenStream], T], hint: str | None = None) -> tuple[T, ...]:
        return self.parse_enclosed(lambda tokens: tokens.parse_list(parse_element), hint)

    def find_closing(self, ahead: int = 0) -> int:
        """How far ahead stands the parenthesis that closes the one at `ahead`, or else the end of the text."""
        depth = 0
        for position in range(self._position + ahead, self._last):
            keyword = self._tokens[position].keyword
            if keyword in ("(", ")"):
                depth += 1 if keyword == "(" else -1
                if depth == 0:
                    return position - self._position
        return self._last - self._position

    def enter(self, levels: int = 1) -> None:
        """Go down `levels` in the tree; the caller goes up again by `leave`."""
        self.depth += levels
        if self.depth > MAX_DEPTH:
            raise too_deep(self.token.span)

    def leave(self, levels: int = 1) -> None:
        self.depth -= levels

    def since(self, start: Token | ast.Node) -> Span:
        """From `start` to the last token that was taken."""
        return start.span.to(self.previous.span)

    def through(self, start: Token) -> Span:
        """From `start` to the next token, that included."""
        return start.span.to(self.token.span)

    def error(self, message: str, code: str, span: Span | None = None, hint: str | None = None) -> ParseError:
        """An error at `span`, or else at the next token; the caller raises it."""
        return ParseError(message, code=code, hint=hint, span=span or self.token.span)

    def unexpected(self, expected: str, hint: str | None = None) -> ParseError:
        return self.error(f"expected {expected}, found {self.token}", "syntax", hint=hint)

    def unsupported(self, feature: str, hint: str, span: Span | None = None) -> ParseError:
        """The refusal of what belongs to SQL, but not to the language."""
        return self.error(f"{feature} is not supported", "not-supported", span, hint)


def too_deep(span: Span) -> ParseError:
    """The refusal of a statement whose tree is higher than `MAX_DEPTH`; the caller raises it."""
    hint = "Split it: CREATE STREAM name AS SELECT … gives a part a name."
    return ParseError(f"the statement is nested deeper than {MAX_DEPTH} levels", code="too-deep", hint=hint, span=span)
