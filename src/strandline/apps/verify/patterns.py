"""What is asked of a regular expression before a database may judge it.

DuckDB is given the form that we have read out of a pattern, and matches it as we do: of several ways the first one
written. PostgreSQL is given the pattern as the user wrote it, and takes the longest way. Together they judge both how
we read and how we match.
"""

from __future__ import annotations

import re
from typing import Final

from strandline.functions.regex import Regex, regex
from strandline.logical.expressions import Call, Literal

# What has no meaning of its own: escaped characters, and sets.
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CHOICE: Final = re.compile(r"\||\)[*+?{]|[*+?}]\?")


def known_texts(call: Call) -> list[str] | None:
    """The arguments after the first, which are literals; None if one is NULL, since then the result is."""
    found = [argument.value for argument in call.arguments[1:] if isinstance(argument, Literal)]
    return None if None in found else [str(value) for value in found]


def has_choice(pattern: str) -> bool:
    """Whether the longest match might be another than the first one written.

    Both are the same for a row of sets of characters, each of them once or greedily repeated: whoever takes a character
    with an earlier part has all later parts left. Alternatives, repeated groups and lazy repeats are choices.
    """
    return _CHOICE.search(_ATOM.sub("x", pattern)) is not None


def may_be_empty(pattern: str) -> bool:
    return re.compile(regex(pattern).python).search("") is not None


def first_group_says_all(pattern: Regex) -> bool | None:
    """Whether an empty text for the first group means an empty match (True) or that the group took no part (False).

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
    raise AssertionError("a pattern that was read has all its parentheses")
