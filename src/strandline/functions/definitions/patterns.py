"""Patterns of texts: LIKE, SIMILAR TO and regular expressions. What they take and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from strandline.core.types import BOOLEAN, INT, VARCHAR
from strandline.functions.regex import RegexError, regex, similar_regex
from strandline.functions.signatures import Function, FunctionError, all_of, fixed
from strandline.logical.expressions import Expression, Literal

# ---- LIKE ------------------------------------------------------------------------------------------------------------


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    return _compiled(like_regex(pattern, escape), re.DOTALL).fullmatch(text) is not None


def like_regex(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern as a regular expression for the whole text; an escape at the very end stands for itself."""
    forms = {"%": ".*", "_": "."}
    tokens = re.findall(like_tokens(escape), pattern, re.DOTALL)
    return "".join(forms.get(token) or _escape(token[-1]) for token in tokens)


def like_tokens(escape: str) -> str:
    """What finds the tokens of a LIKE pattern, each a character or an escaped one; no escape if it is empty."""
    return f"{_escape(escape)}.|." if escape else "."


def _escape(character: str) -> str:
    return "\\" + character if character in r"\.+*?()|[]{}^$#&-~" else character


@lru_cache(maxsize=256)
def _compiled(text: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(text, flags)


# ---- regular expressions ---------------------------------------------------------------------------------------------


def _found(pattern: str, flags: str = "") -> re.Pattern[str]:
    return _compiled(regex(pattern, flags).python)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """All matches from left to right; an empty one does not touch the match before it."""
    at, last = 0, -1
    while at <= len(text) and (found := pattern.search(text, at)) is not None:
        if found.end() == found.start() == last:
            at += 1
            continue
        yield found
        at = last = found.end()


def _similar(text: str, pattern: str, escape: str = "\\") -> bool:
    return _compiled(similar_regex(pattern, escape).python).search(text) is not None


def _substring_match(text: str, pattern: str) -> str | None:
    """What the first group holds, or all of the match if there is no group."""
    found = _found(pattern).search(text)
    return None if found is None else found[1 if regex(pattern).groups else 0]


def _regexp_substr(text: str, pattern: str) -> str | None:
    found = _found(pattern).search(text)
    return None if found is None else found[0]


def _regexp_replace(text: str, pattern: str, new: str, flags: str = "") -> str:
    pieces: list[str] = []
    at = 0
    for found in _matches(_found(pattern, flags.replace("g", "")), text):
        pieces += [text[at : found.start()], _filled(replacement(new), found)]
        at = found.end()
        if "g" not in flags:
            break
    return "".join(pieces) + text[at:]


def _filled(parts: Sequence[str | int], found: re.Match[str]) -> str:
    groups = (found[0], *found.groups())
    return "".join(
        part if isinstance(part, str) else (groups[part] or "") if part < len(groups) else "" for part in parts
    )


def replacement(new: str) -> list[str | int]:
    r"""The parts of a replacement: texts, and the numbers of groups for `\1` to `\9`, with 0 for `\&`."""
    parts: list[str | int] = []
    for token in re.findall(r"\\.|[^\\]+|\\", new, re.DOTALL):
        match token:
            case r"\&":
                parts.append(0)
            case r"\\":
                parts.append("\\")
            case _ if token[0] == "\\" and token[1:] in tuple("123456789"):
                parts.append(int(token[1]))
            case _:
                parts.append(token)
    return parts


# ---- what must be known ----------------------------------------------------------------------------------------------


def _known(function: str, read: Callable[..., object], *places: int) -> Callable[[Sequence[Expression]], None]:
    """Refuse a pattern that is not a literal, or that `read` refuses; it gets the arguments at these places."""

    def check(arguments: Sequence[Expression]) -> None:
        texts: list[str] = []
        for place, argument in enumerate(arguments[1:], 1):
            if not isinstance(argument, Literal):
                what = "the pattern" if place == 1 else f"argument {place + 1}"
                raise FunctionError(f"{what} of {function} must be a text literal", "Write it in quotes.", place)
            texts.append("" if argument.value is None else str(argument.value))
        if any(isinstance(argument, Literal) and argument.value is None for argument in arguments[1:]):
            return
        try:
            read(*(texts[place - 1] for place in places if place <= len(texts)))
        except RegexError as error:
            where = "at its end" if error.at >= len(texts[0]) else f"at {texts[0][error.at : error.at + 10]}"
            raise FunctionError(f"invalid pattern {where}: {error.message}", argument=1) from None

    return check


def _read_flags(pattern: str, flags: str = "") -> None:
    regex(pattern, flags.replace("g", ""))


def _known_escape(arguments: Sequence[Expression]) -> None:
    match arguments[2:]:
        case () | (Literal(None, _),):
            return
        case (Literal(str(escape), _),) if len(escape) <= 1:
            return
    raise FunctionError("ESCAPE must be a text literal of at most one character", "Write LIKE '10#%' ESCAPE '#'.", 2)


def _known_similar(arguments: Sequence[Expression]) -> None:
    _known_escape(arguments)
    _known("SIMILAR TO", similar_regex, 1, 2)(arguments)


_TESTED = all_of(VARCHAR, BOOLEAN)
_CHANGED = all_of(VARCHAR, VARCHAR)

DECLARED: Final = (
    Function("like", "s LIKE pattern [ESCAPE 'c']",
             "Whether s fits the pattern: % any text, _ one character, \\ or c escapes. ILIKE: in either case.",
             2, 3, _TESTED, _like, check=_known_escape),
    Function("similar", "s SIMILAR TO 'pattern' [ESCAPE 'c']",
             "The same with | * + ? {n,m} ( ) [ ] in the pattern, as in a regular expression.",
             2, 3, _TESTED, _similar, check=_known_similar),
    Function("regexp_like", "regexp_like(s, 'pattern'[, 'flags'])",
             "Whether the regular expression matches somewhere; also s ~ 'pattern', and in either case s ~* 'pattern'.",
             2, 3, _TESTED, lambda s, pattern, flags="": _found(pattern, flags).search(s) is not None,
             check=_known("regexp_like", regex, 1, 2)),
    Function("match", "substring(s FROM 'pattern')",
             "What the first group of the regular expression holds, or all of the match; NULL if there is none.",
             2, 2, _CHANGED, _substring_match, check=_known("substring", regex, 1)),
    Function("regexp_substr", "regexp_substr(s, 'pattern')", "The first match; NULL if there is none.",
             2, 2, _CHANGED, _regexp_substr, check=_known("regexp_substr", regex, 1)),
    Function("regexp_count", "regexp_count(s, 'pattern')", "How many matches there are.",
             2, 2, fixed(INT, VARCHAR, VARCHAR), lambda s, pattern: sum(1 for _ in _matches(_found(pattern), s)),
             check=_known("regexp_count", regex, 1)),
    Function("regexp_replace", "regexp_replace(s, 'pattern', 'new'[, 'flags'])",
             "The first match, or with the flag g all of them, replaced; \\1 in new is a group and \\& the match.",
             3, 4, _CHANGED, _regexp_replace, check=_known("regexp_replace", _read_flags, 1, 3)),
)  # fmt: skip
