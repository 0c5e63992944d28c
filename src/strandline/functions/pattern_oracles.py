"""Patterns in other databases, and what is asked of a pattern before a database may judge it.

DuckDB is given the form that we have read out of a pattern, and matches it as we do: of several ways the first one
written. PostgreSQL is given the pattern as the user wrote it, and takes the longest way. Together they judge both how
we read and how we match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from strandline.functions.oracles import SqlCall, Untranslatable
from strandline.functions.regex import Regex, regex, replacement, similar_regex

# ---- DuckDB ----------------------------------------------------------------------------------------------------------


def _with_literals(write: Callable[..., str]) -> Callable[[SqlCall], str]:
    """A call written from the literals after its first argument; if one of them is NULL, so is the result."""

    def written(call: SqlCall) -> str:
        literals = call.literals()
        return call.null if literals is None else write(call, *literals)

    return written


def _re2(call: SqlCall, pattern: Regex) -> str:
    return call.quote(pattern.rust.replace(r"(?-u:\b)", r"\b"))


def _matches(call: SqlCall, pattern: Regex) -> str:
    return f"regexp_matches({call.arguments[0]}, {_re2(call, pattern)})"


duckdb_similar = _with_literals(lambda call, *literals: _matches(call, similar_regex(*literals)))
duckdb_regexp_like = _with_literals(lambda call, *literals: _matches(call, regex(*literals)))


@_with_literals
def duckdb_match(call: SqlCall, *literals: str) -> str:
    pattern = regex(*literals)
    if not pattern.groups:
        return duckdb_regexp_substr(call)
    empty = _empty_group_is_match(pattern)
    if empty is None:
        raise Untranslatable("a group that may be empty or missing, which are the same to DuckDB")
    group = f"regexp_extract({call.arguments[0]}, {_re2(call, pattern)}, 1)"
    held = group if empty else f"nullif({group}, '')"
    return f"CASE WHEN {_matches(call, pattern)} THEN {held} END"


@_with_literals
def duckdb_regexp_substr(call: SqlCall, *literals: str) -> str:
    pattern = regex(*literals)
    match = f"regexp_extract({call.arguments[0]}, {_re2(call, pattern)}, 0)"
    return f"CASE WHEN {_matches(call, pattern)} THEN {match} END"


@_with_literals
def duckdb_regexp_count(call: SqlCall, *literals: str) -> str:
    """One character more for each match: DuckDB's list of all matches has more empty ones."""
    text = call.arguments[0]
    longer = rf"regexp_replace({text}, {_re2(call, regex(*literals))}, '\0.', 'g')"
    return f"CAST(length({longer}) - length({text}) AS INTEGER)"


@_with_literals
def duckdb_regexp_replace(call: SqlCall, written: str, new: str, flags: str = "") -> str:
    pattern = regex(written, flags.replace("g", ""))
    groups = (f"\\{part}" if part <= pattern.groups else "" for part in replacement(new) if isinstance(part, int))
    parts = (p.replace("\\", r"\\") if isinstance(p, str) else next(groups) for p in replacement(new))
    mode = "'g'" if "g" in flags else "''"
    return f"regexp_replace({call.arguments[0]}, {_re2(call, pattern)}, {call.quote(''.join(parts))}, {mode})"


def _empty_group_is_match(pattern: Regex) -> bool | None:
    """Whether an empty text for the first group means an empty match (True) or that the group took no part (False).

    None means that it may be either.
    """
    body = re.sub(r"\\x..|\[[^\]]*\]|\(\?s:\.\)", "x", pattern.python)
    if re.search(r"\||\)(?:[*?]|\{0)", body) is None:
        return True
    return None if pattern.first_group_may_be_empty else False


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------

# What has no meaning of its own: escaped characters, and sets.
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CHOICE: Final = re.compile(r"\||\)[*+?{]|[*+?}]\?")


def _has_choice(pattern: str) -> bool:
    """Whether the longest match might be another than the first one written.

    Both are the same for a row of sets of characters, each of them once or greedily repeated: taking a character
    with an earlier part has all later parts left. Alternatives, repeated groups and lazy repeats are choices.
    """
    return _CHOICE.search(_ATOM.sub("x", pattern)) is not None


def postgresql_pattern(
    helper: str, flags_at: int = 1, one_match: bool = True, repeated: bool = False
) -> Callable[[SqlCall], str]:
    """A call of a helper with a text, a pattern and perhaps flags, which stand at a place among the literals.

    Where it shows `one_match`, which match counts must be clear; where matches are `repeated`, none may be empty.
    """

    @_with_literals
    def written(call: SqlCall, *literals: str) -> str:
        pattern = literals[0]
        if repeated and re.search(regex(pattern).python, "") is not None:
            raise Untranslatable("a pattern that may be empty, which PostgreSQL also finds right after a match")
        if one_match and _has_choice(pattern):
            raise Untranslatable("a pattern with a choice, of which PostgreSQL takes the longest way")
        flags = literals[flags_at] if len(literals) > flags_at else ""
        any_case = _ignores_case(pattern, flags)
        texts = (_either_case(pattern) if any_case else pattern, *literals[1:flags_at], flags)
        arguments = ", ".join((call.arguments[0], *map(call.quote, texts)))
        return f"{call.helper_prefix}{'any_case_' if any_case else ''}{helper}({arguments})"

    return written


def _ignores_case(pattern: str, flags: str) -> bool:
    given = re.match(r"\(\?([a-z]+)\)", pattern)
    return re.sub("[^ic]", "", flags + (given[1] if given else "")).endswith("i")


def _either_case(pattern: str) -> str:
    """Letters beyond ASCII have cases only under a rule for which classes have such letters, too: those are written
    out."""
    if re.search(r"\\y|\[[^\]]*\\[WDS]", pattern):
        raise Untranslatable("case-insensitive word classes, which PostgreSQL defines differently")
    classes = {"alpha": "A-Za-z", "alnum": "0-9A-Za-z", "digit": "0-9", "upper": "A-Z", "lower": "a-z",
               "punct": "!-/:-@[-`{-~", "graph": "!-~", "print": " -~",
               "space": r" \t\n\r\f\v", "blank": r" \t", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f"}  # fmt: skip
    short = {"d": "digit", "w": "word", "s": "space"}
    inside = re.sub(r"\[:(\w+):\]", lambda name: classes.get(name[1], name[0]), pattern)
    pieces = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", inside, re.DOTALL)
    sets = {f"\\{letter}": f"[{classes[name]}]" for letter, name in short.items()}
    others = {f"\\{letter.upper()}": f"[^{classes[name]}]" for letter, name in short.items()}

    def written_out(piece: str) -> str:
        if not piece.startswith("["):
            return {**sets, **others}.get(piece, piece)
        return re.sub(r"\\([dws])", lambda name: classes[short[name[1]]], piece)

    return "".join(map(written_out, pieces))
