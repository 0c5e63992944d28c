"""Checks of a regular expression before an oracle may match it.

DuckDB is given the form that we have read out of a pattern, and matches it as we do: leftmost-first. PostgreSQL is
given the pattern as the user wrote it, and matches leftmost-longest. Together they verify both parsing and matching.
"""

from __future__ import annotations

import re
from typing import Final

from strandline.functions.regex import Regex, regex
from strandline.logical.expressions import Call, Literal

# Literal parts: escaped characters, and sets.
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CHOICE: Final = re.compile(r"\||\)[*+?{]|[*+?}]\?")


def known_texts(call: Call) -> list[str] | None:
    """The arguments after the first, which are literals; None if one is NULL, since then the result is."""
    found = [argument.value for argument in call.arguments[1:] if isinstance(argument, Literal)]
    return None if None in found else [str(value) for value in found]


def has_choice(pattern: str) -> bool:
    """True if the longest match might differ from the first alternative.

    Both are the same for a sequence of character sets, each once or greedily repeated: a character taken by an earlier
    part leaves all later parts. Alternatives, repeated groups and lazy repeats are choices.
    """
    return _CHOICE.search(_ATOM.sub("x", pattern)) is not None


def may_be_empty(pattern: str) -> bool:
    return re.compile(regex(pattern).python).search("") is not None


def first_group_says_all(pattern: Regex) -> bool | None:
    """True if an empty text for the first group means an empty match, False if the group did not participate.

    None means that it may be either.
    """
    body = re.sub(r"\\x..|\[[^\]]*\]|\(\?s:\.\)", "x", pattern.python)
    if re.search(r"\||\)(?:[*?]|\{0)", body) is None:
        return True
    start = next(found.start() for found in re.finditer(r"\((?!\?)", pattern.python))
    return None if re.compile(_group_at(pattern.python, start)).fullmatch("") else False


def _group_at(text: str, start: int) -> str:
    """The group that begins at a place. Parentheses that mean themselves are written as escapes."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start : at + 1]
    raise AssertionError("a parsed pattern has balanced parentheses")
