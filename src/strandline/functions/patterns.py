"""Patterns of texts: LIKE, SIMILAR TO and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from strandline.core.lazy import pl
from strandline.core.types import BOOLEAN, INT, VARCHAR
from strandline.functions import pattern_oracles as oracles
from strandline.functions.pattern_oracles import postgresql_pattern
from strandline.functions.regex import Regex, RegexError, regex, replacement, similar_regex
from strandline.functions.signatures import Function, FunctionError, all_of, fixed
from strandline.logical.expressions import Call, Expression, Literal, Value

# ---- LIKE ------------------------------------------------------------------------------------------------------------

_WILDCARDS: Final = {"%": ".*", "_": "."}


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    return re.fullmatch(_like_regex(pattern, escape), text, re.DOTALL) is not None


def _like_regex(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern as a regular expression for the whole text; an escape at the very end stands for itself."""
    tokens = re.findall(_like_tokens(escape), pattern, re.DOTALL)
    return "".join(_WILDCARDS.get(token) or re.escape(token[-1]) for token in tokens)


def _like_tokens(escape: str) -> str:
    """What finds the tokens of a LIKE pattern, each a character or an escaped one; no escape if it is empty."""
    return f"{re.escape(escape)}.|." if escape else "."


def _like_columns(call: Call, text: pl.Expr, pattern: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    escape = _literals(call)[1] if len(call.arguments) == 3 else "\\"
    match call.arguments[1]:
        case Literal(str(literal), _):
            return text.str.contains(f"(?s)^{_like_regex(literal, escape)}$")
    token = pl.element()
    form = token.replace_strict(_WILDCARDS, default=token.str.slice(-1).str.escape_regex())
    regex = pattern.str.extract_all(f"(?s){_like_tokens(escape)}").list.eval(form).list.join("")
    return text.str.contains(pl.concat_str(pl.lit("(?s)^"), regex, pl.lit("$")))


# ---- regular expressions: meaning ------------------------------------------------------------------------------------


def _pattern(pattern: str, flags: str = "") -> re.Pattern[str]:
    return re.compile(regex(pattern, flags).python)


def _replaced_regex(pattern: str, _new: str, flags: str = "") -> Regex:
    """The flag g is not of the pattern."""
    return regex(pattern, flags.replace("g", ""))


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """All matches from left to right; an empty one does not touch the match before it."""
    at, last = 0, -1
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        if match.end() == match.start() == last:
            at += 1
            continue
        yield match
        at = last = match.end()


def _regexp_substr(text: str, pattern: str, group: int = 0) -> str | None:
    match = _pattern(pattern).search(text)
    return None if match is None else match[group]


def _substring_match(text: str, pattern: str) -> str | None:
    """What the first group holds, or all of the match if there is no group."""
    return _regexp_substr(text, pattern, min(regex(pattern).groups, 1))


def _regexp_replace(text: str, pattern: str, new: str, flags: str = "") -> str:
    texts: list[str] = []
    at = 0
    for match in _matches(re.compile(_replaced_regex(pattern, new, flags).python), text):
        texts += [text[at : match.start()], _filled(replacement(new), match)]
        at = match.end()
        if "g" not in flags:
            break
    return "".join(texts) + text[at:]


def _filled(parts: Sequence[str | int], match: re.Match[str]) -> str:
    groups = (match[0], *match.groups())
    return "".join(
        part if isinstance(part, str) else (groups[part] or "") if part < len(groups) else "" for part in parts
    )


# ---- regular expressions: over columns -------------------------------------------------------------------------------


def _literals(call: Call) -> list[str]:
    """The arguments after the first; empty where one is not a literal."""
    return [str(argument.value) if isinstance(argument, Literal) else "" for argument in call.arguments[1:]]


def _substring_match_columns(call: Call, text: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = regex(*_literals(call))
    return text.str.extract(pattern.rust, min(pattern.groups, 1))


def _regexp_replace_columns(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    pattern, new, flags = (*_literals(call), "")[:3]
    parts = (part.replace("$", "$$") if isinstance(part, str) else f"${{{part}}}" for part in replacement(new))
    replace = text.str.replace_all if "g" in flags else text.str.replace
    return replace(_replaced_regex(pattern, new, flags).rust, "".join(parts))


# ---- literals that must be known -------------------------------------------------------------------------------------


def _pattern_check(function: str, read: Callable[..., Regex]) -> Callable[[Sequence[Expression]], None]:
    """Refuse a pattern that is not a literal, or that `read` refuses; it gets all arguments after the text."""

    def check(arguments: Sequence[Expression]) -> None:
        values: list[Value] = []
        for position, argument in enumerate(arguments[1:], 1):
            if not isinstance(argument, Literal):
                what = "the pattern" if position == 1 else f"argument {position + 1}"
                raise FunctionError(f"{what} of {function} must be a text literal", "Write it in quotes.", position)
            values.append(argument.value)
        if None in values:
            return
        try:
            read(*values)
        except RegexError as error:
            pattern = str(values[0])
            where = "at its end" if error.at >= len(pattern) else f"at {pattern[error.at : error.at + 10]}"
            raise FunctionError(f"invalid pattern {where}: {error.message}", argument=1) from None

    return check


def _check_escape(arguments: Sequence[Expression]) -> None:
    match arguments[2:]:
        case () | (Literal(None, _),):
            return
        case (Literal(str(escape), _),) if len(escape) <= 1:
            return
    raise FunctionError("ESCAPE must be a text literal of at most one character", "Write LIKE '10#%' ESCAPE '#'.", 2)


def _check_similar(arguments: Sequence[Expression]) -> None:
    _check_escape(arguments)
    _pattern_check("SIMILAR TO", similar_regex)(arguments)


# ---- declarations ----------------------------------------------------------------------------------------------------

_TESTED = all_of(VARCHAR, BOOLEAN)
_CHANGED = all_of(VARCHAR, VARCHAR)

FAMILY: Final = (
    Function("like", "s LIKE pattern [ESCAPE 'c']",
             "Whether s fits the pattern: % any text, _ one character, \\ or c escapes. ILIKE: in either case.",
             2, 3, _TESTED, _like, _like_columns, check=_check_escape, cost=150,
             sql={"*, *, *": "({0} LIKE {h}whole_pattern({1}, {2}) ESCAPE {2})"},
             duckdb={"*, *": r"({0} LIKE {h}whole_pattern({1}, '\') ESCAPE '\')"},
             postgresql={"*, *": r"({0} LIKE {h}whole_pattern({1}, '\'))"}),
    Function("similar", "s SIMILAR TO 'pattern' [ESCAPE 'c']",
             "The same with | * + ? {n,m} ( ) [ ] in the pattern, as in a regular expression.",
             2, 3, _TESTED,
             lambda s, *pattern: re.search(similar_regex(*pattern).python, s) is not None,
             lambda call, s, *_: s.str.contains(similar_regex(*_literals(call)).rust),
             check=_check_similar, cost=150,
             duckdb=oracles.duckdb_similar,
             postgresql={"*, *": "({0} SIMILAR TO {1})", "*, *, *": "({0} SIMILAR TO {1} ESCAPE {2})"}),
    Function("regexp_like", "regexp_like(s, 'pattern'[, 'flags'])",
             "Whether the regular expression matches somewhere; also s ~ 'pattern', and in either case s ~* 'pattern'.",
             2, 3, _TESTED, lambda s, pattern, flags="": _pattern(pattern, flags).search(s) is not None,
             lambda call, s, *_: s.str.contains(regex(*_literals(call)).rust),
             check=_pattern_check("regexp_like", regex), cost=150,
             duckdb=oracles.duckdb_regexp_like, postgresql=postgresql_pattern("matches", one_match=False),
             aliases=("regexp_matches", "regexp_contains", "rlike", "regexp")),
    Function("match", "substring(s FROM 'pattern')",
             "What the first group of the regular expression holds, or all of the match; NULL if there is none.",
             2, 2, _CHANGED, _substring_match, _substring_match_columns,
             check=_pattern_check("substring", regex), cost=150,
             duckdb=oracles.duckdb_match, postgresql=postgresql_pattern("group_of")),
    Function("regexp_substr", "regexp_substr(s, 'pattern')", "The first match; NULL if there is none.",
             2, 2, _CHANGED, _regexp_substr, lambda call, s, _: s.str.extract(regex(*_literals(call)).rust, 0),
             check=_pattern_check("regexp_substr", regex), cost=150,
             duckdb=oracles.duckdb_regexp_substr, postgresql=postgresql_pattern("match_of")),
    Function("regexp_count", "regexp_count(s, 'pattern')", "How many matches there are.",
             2, 2, fixed(INT, VARCHAR, VARCHAR), lambda s, pattern: sum(1 for _ in _matches(_pattern(pattern), s)),
             lambda call, s, _: s.str.count_matches(regex(*_literals(call)).rust).cast(pl.Int32),
             check=_pattern_check("regexp_count", regex), cost=500,
             duckdb=oracles.duckdb_regexp_count, postgresql=postgresql_pattern("matches_of", repeated=True)),
    Function("regexp_replace", "regexp_replace(s, 'pattern', 'new'[, 'flags'])",
             "The first match, or with the flag g all of them, replaced; \\1 in new is a group and \\& the match.",
             3, 4, _CHANGED, _regexp_replace, _regexp_replace_columns,
             check=_pattern_check("regexp_replace", _replaced_regex), cost=150,
             duckdb=oracles.duckdb_regexp_replace,
             postgresql=postgresql_pattern("replaced", flags_at=2, repeated=True)),
)  # fmt: skip
