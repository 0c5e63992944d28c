"""Lexer: the words, numbers, texts and symbols of a script, each with its span.

Keywords are ordinary words here; the parser decides where a word has a meaning of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from strandline.core.errors import ParseError, Span
from strandline.core.temporal import unit_size
from strandline.sql.dialects.names import CHARACTERS


class Kind(Enum):
    WORD = auto()  # an unquoted name or keyword
    QUOTED = auto()  # a name in double quotes, or in backticks
    NUMBER = auto()
    DURATION = auto()  # a number and a unit of time in one word, such as 10s or 1h30m
    TEXT = auto()  # a text in single quotes
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A part of the text. `value` is what it denotes: quotes removed, doubled quotes made single.

    `keyword` is what the grammar compares: a word in upper case, or a symbol; empty for all that is no part of it.
    """

    kind: Kind
    value: str
    span: Span
    keyword: str = ""

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return "the end of the text"
        shown = " ".join(self.span.text[self.span.start : self.span.end].split())
        return shown if len(shown) <= 40 else f"{shown[:40]}…"


_BLANK: Final = re.compile(r"(?:\s+|--[^\n]*)+")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_WORD: Final = re.compile(r"[^\W\d][\w$]*")
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[A-Za-zµ]+)+(?![\w$])")
_UNIT: Final = re.compile(r"[A-Za-zµ]+")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_QUOTED: Final = {quote: re.compile(f"{quote}([^{quote}]*(?:{quote * 2}[^{quote}]*)*){quote}") for quote in "'\"`"}
# A word, a number or a symbol. Longer symbols first: the expression takes the first alternative that fits.
_PLAIN: Final = re.compile(
    r"([^\W\d][\w$]*)"
    r"|((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(<>|<<|>>|!=|!~\*|!~|~\*|<=|>=|=>|==|\|\||::|//|#>>|#>|->>|->|[-+*/%=<>(),.;:\[\]~&|#^@?$])"
)

_IS_NUMBER, _IS_SYMBOL = 2, 3
_NO_BLANKS: Final = ("", ",", "(", ")", ";", ".")  # what often follows a token at once, and begins no comment


def words(text: str) -> frozenset[str]:
    """A set of keywords, written as one text."""
    return frozenset(text.split())


# Words that cannot be names unless quoted: each of them could follow a name with a meaning of its own.
RESERVED: Final = words(
    """ALL AND AS BETWEEN CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FROM FULL GROUP HAVING
        IN INNER INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER QUALIFY RIGHT SELECT THEN TRUE
        UNION USING WHEN WHERE WINDOW WITH"""
)

# Those of them that people call columns, and that do not end a list.
LIKELY_NAMES: Final = words("ALL CREATE CROSS END FETCH FULL GROUP INNER LEFT LIMIT OFFSET ORDER RIGHT WINDOW")


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, comments and blanks left out, with one END token right after the last of them."""
    tokens: list[Token] = []
    at = _skip_blanks(text, 0)
    while at < len(text):
        token = _token(text, at)
        tokens.append(token)
        at = token.span.end
        if text[at : at + 1] not in _NO_BLANKS:
            at = _skip_blanks(text, at)
    end = tokens[-1].span.end if tokens else 0
    tokens.append(Token(Kind.END, "", Span(text, end, end)))
    return tokens


def _token(text: str, at: int) -> Token:
    first = text[at]
    if first in _QUOTED:
        return _quoted(text, at)
    match = _PLAIN.match(text, at)
    if match is not None:
        value = match.group()
        if match.lastindex == _IS_NUMBER:
            return _number(text, at, match.end())
        if match.lastindex == _IS_SYMBOL:
            return Token(Kind.SYMBOL, value, Span(text, at, match.end()), value)
        return Token(Kind.WORD, value, Span(text, at, match.end()), value.upper())
    raise _error(f"unexpected character {first!r}", "bad-character", Span(text, at, at + 1), CHARACTERS.get(first))


def _number(text: str, at: int, end: int) -> Token:
    if (duration := _DURATION.match(text, at)) and _is_duration(duration.group()):
        return Token(Kind.DURATION, duration.group(), Span(text, at, duration.end()))
    # `10apples` and `1e` are more likely typos than a number beside a name, so they are not split silently.
    if suffix := _WORD.match(text, end):
        hint = f"Put a blank after the number: {text[at:end]} {suffix.group()}."
        raise _error(
            f"trailing characters after a number: {suffix.group()}", "bad-number", Span(text, at, suffix.end()), hint
        )
    return Token(Kind.NUMBER, text[at:end], Span(text, at, end))


def _is_duration(word: str) -> bool:
    return all(unit_size(unit) is not None for unit in _UNIT.findall(word))


def _quoted(text: str, at: int) -> Token:
    quote = text[at]
    match = _QUOTED[quote].match(text, at)
    what = "text" if quote == "'" else "name"
    if match is None:
        line_end = text.find("\n", at)
        span = Span(text, at, len(text) if line_end < 0 else line_end)
        raise _error(f"unterminated quoted {what}", "unclosed-quote", span, f"Close it with {quote}.")
    span = Span(text, at, match.end())
    value = match.group(1).replace(quote * 2, quote)
    if _SURROGATE.search(value):
        hint = "It holds half of a surrogate pair."
        raise _error(f"quoted {what} is not valid Unicode", "bad-character", span, hint)
    if what == "name" and not value:
        raise _error("empty quoted name", "empty-name", span, None)
    return Token(Kind.TEXT if quote == "'" else Kind.QUOTED, value, span)


def _skip_blanks(text: str, at: int) -> int:
    """The place of the next token: after blanks, `--` comments and nested `/* */` comments."""
    while True:
        if match := _BLANK.match(text, at):
            at = match.end()
        if not text.startswith("/*", at):
            return at
        at = _comment_end(text, at)


def _comment_end(text: str, at: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _error("unterminated comment", "unclosed-comment", Span(text, at, at + 2), "Close it with */.")


def _error(message: str, code: str, span: Span, hint: str | None) -> ParseError:
    return ParseError(message, code=code, hint=hint, span=span)
