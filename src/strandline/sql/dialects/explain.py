"""Where the parser has refused a text: whether a phrase of another dialect stands there, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, TypeVar

from strandline.core.errors import ParseError
from strandline.sql.dialects.clauses import CLAUSES, Hint
from strandline.sql.dialects.statements import STATEMENTS
from strandline.sql.lexer import RESERVED, Kind, Token

Value = TypeVar("Value")
Phrase = tuple[str, ...]

_LONGEST: Final = max(len(phrase.split()) for phrase in (*STATEMENTS, *CLAUSES))
# Errors that say that the grammar does not go on here; others know better what is wrong.
_CODES: Final = ("syntax", "not-supported", "unknown-type", "missing-from")


def _by_first_word(phrases: Mapping[str, Value]) -> dict[str, list[tuple[Phrase, Value]]]:
    """Phrases by their first word, longer ones first."""
    found: dict[str, list[tuple[Phrase, Value]]] = {}
    for text, value in phrases.items():
        words = tuple(word if word.startswith("<") and word.endswith(">") else word.upper() for word in text.split())
        found.setdefault(words[0], []).append((words, value))
    for entries in found.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return found


_STATEMENTS: Final = _by_first_word(STATEMENTS)
_CLAUSES: Final = _by_first_word(CLAUSES)


def explain_refusal(error: ParseError, tokens: Sequence[Token]) -> ParseError:
    """The error, or that of the phrase of another dialect which it is about: one that covers its place."""
    at = _position(error, tokens)
    if at is None or error.code not in _CODES:
        return error
    begin = max((place + 1 for place in range(at) if tokens[place].keyword == ";"), default=0)
    skipped = 2 if [token.keyword for token in tokens[begin : begin + 3]] == ["CREATE", "OR", "REPLACE"] else 0
    statement = [*tokens[begin : begin + 1], *tokens[begin + 1 + skipped :]]
    if (matched := _match(_STATEMENTS, statement, 0)) is not None and at < begin + skipped + len(matched[0]):
        return _refuse(statement, 0, matched)
    for start in range(at, max(begin, at - _LONGEST) - 1, -1):
        if start < at and tokens[start].keyword == "[":
            continue  # a bracket is a name of T-SQL only where no window is expected
        matched_clause = _match(_CLAUSES, tokens, start)
        if matched_clause is not None and at < start + len(matched_clause[0]):
            return _refuse(tokens, start, matched_clause)
    return error


def _position(error: ParseError, tokens: Sequence[Token]) -> int | None:
    """The token at which an error points."""
    if error.span is None:
        return None
    return next((place for place, token in enumerate(tokens) if token.span.start == error.span.start), None)


def _match(
    phrases: Mapping[str, list[tuple[Phrase, Value]]], tokens: Sequence[Token], start: int
) -> tuple[Phrase, Value] | None:
    """The longest phrase that begins at a token."""
    for words, value in phrases.get(tokens[start].keyword, ()):
        if len(words) <= len(tokens) - start and all(map(_fits, words, tokens[start:])):
            return words, value
    return None


def _fits(word: str, token: Token) -> bool:
    match word:
        case "<text>":
            return token.kind is Kind.TEXT
        case "<number>":
            return token.kind is Kind.NUMBER
        case "<name>":
            return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.keyword not in RESERVED)
    return token.keyword == word


def _refuse(tokens: Sequence[Token], start: int, matched: tuple[Phrase, Hint] | tuple[Phrase, str]) -> ParseError:
    words, hint = matched
    phrase = tokens[start : start + len(words)]
    if callable(hint):
        written = hint(tokens[start:])
    else:
        written = hint
        for place, token in enumerate(phrase):
            written = written.replace(f"{{{place}}}", str(token))
    keywords = sum(1 for _ in takewhile(str.isidentifier, words)) or len(words)
    span = phrase[0].span.to(phrase[keywords - 1].span)
    feature = " ".join(words[:keywords]) if words[0].isidentifier() else "".join(map(str, phrase))
    if "[" in words[1:]:  # what stands before the bracket is of the language
        feature, span = "a list in brackets", phrase[words.index("[")].span
    elif words[0].isidentifier() and (words[-1].isidentifier() or words[-1] == "*") and "(" not in words:
        feature, span = " ".join(map(str, phrase)), phrase[0].span.to(phrase[-1].span)
    return ParseError(f"{feature} is not supported", code="not-supported", hint=written, span=span)
