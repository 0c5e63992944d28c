"""Syntax highlighting of input: the language's own tokens, and the rest of an unfinished text."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer

from strandline.apps.shell.inputs import KEYWORDS, command_of, functions, readable_tokens
from strandline.sql.lexer import Kind, Token

_UNFINISHED = {"'": "class:text", "/": "class:comment"}  # by how it begins
_BY_KIND = {Kind.TEXT: "class:text", Kind.NUMBER: "class:number", Kind.DURATION: "class:number"}


class Colours(Lexer):
    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = list(split_lines(coloured(document.text)))
        return lambda number: lines[number] if number < len(lines) else []


def coloured(text: str) -> StyleAndTextTuples:
    """The text in parts, each with its style; together they are the text."""
    if command_of(text) is not None:
        return [("class:command", text)]
    tokens, stop = readable_tokens(text)
    pieces: StyleAndTextTuples = []
    at = 0
    for number, token in enumerate(tokens):
        pieces.append(("class:comment", text[at : token.span.start]))  # blanks and comments
        follows = tokens[number + 1].value if number + 1 < len(tokens) else ""
        pieces.append((_style(token, follows), text[token.span.start : token.span.end]))
        at = token.span.end
    pieces.append(("class:comment", text[at:stop]))
    pieces.append((_UNFINISHED.get(text[stop : stop + 1], ""), text[stop:]))
    return [piece for piece in pieces if piece[1]]


def _style(token: Token, follows: str) -> str:
    if token.kind is Kind.WORD:
        if follows == "(" and token.value.lower() in functions():
            return "class:function"
        return "class:keyword" if token.keyword in KEYWORDS else ""
    return _BY_KIND.get(token.kind, "")
