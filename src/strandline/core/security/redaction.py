"""Redaction: texts without the passwords, tokens and other credentials in them.

Everything that shows an argument of a connector goes through here: DESCRIBE, SHOW, EXPLAIN, `sys.*`, and errors, which
quote the user's own statement. The rule errs on the side of hiding.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

# All repetitions are bounded: a text may be long and hostile.
_WORD: Final = r"(?:password|passwd|passphrase|\bpwd\b|token|secret|credential|api[_.-]?key|key\.pem)"
_NAME: Final = _WORD + r"[\w.-]{0,40}"
_OPTION: Final = re.compile(_WORD, re.IGNORECASE)

# The group of a match is hidden. A quote in an SQL text is doubled.
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # user:password@ in a URL. Up to the last @: one in a password is not always escaped.
        r"://[^\s/?#@:'\"]{0,256}:((?:[^\s'\"]|''){1,512})@",
        # name => 'text' and name = 'text', as options of a connector are written
        rf"{_NAME}\"?\s{{0,20}}=>?[\s(]{{0,20}}'((?:[^']|'')*)'",
        # name=text and name='text' in a connection string, a URL's query or a setting
        rf"{_NAME}=(?:''|'|\")((?:[^'\"\\]|\\.)+)",
        rf"{_NAME}=([^\s'\"&,;)>=][^\s'\"&,;)]*)",
        r"\bpassword\s{0,20}=\s{0,20}([^\s'\"&,;)>=][^\s'\"&,;)]*)",
        # a header of HTTP
        r"\bauthorization\s{0,20}:\s{0,20}([^'\"\r\n]+)",
        r"\b(?:set-)?cookie\s{0,20}:\s{0,20}([^'\"\r\n]+)",
        rf"\bx-[\w-]{{0,40}}?{_NAME}\s{{0,20}}:\s{{0,20}}([^'\"\r\n]+)",
        r"(?:\bapi[_-]?key|-token|-secret)\s{0,20}:\s{0,20}([^'\"\r\n]+)",
        r"\b(?:bearer|basic)\s{1,20}([A-Za-z0-9._~+/=-]{4,})",
    )
)


def is_sensitive(option: str) -> bool:
    """True if the name of an option marks its value as a secret."""
    return _OPTION.search(option) is not None


def hidden_ranges(text: str) -> list[tuple[int, int]]:
    """Ranges of secrets in a text, in order and without overlaps."""
    ranges = sorted(match.span(1) for pattern in _PATTERNS for match in pattern.finditer(text))
    merged: list[tuple[int, int]] = []
    for start, end in ranges:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def redact(text: str) -> str:
    """A text with `***` in the place of each secret."""
    return redact_ranges(text, hidden_ranges(text))


def redact_ranges(text: str, ranges: list[tuple[int, int]]) -> str:
    parts, last = [], 0
    for start, end in ranges:
        parts += [text[last:start], HIDDEN]
        last = end
    return "".join([*parts, text[last:]])


def moved(position: int, ranges: list[tuple[int, int]]) -> int:
    """New position of a character after `redact_ranges`; one within a secret maps to its beginning."""
    shift = 0
    for start, end in ranges:
        if position <= start:
            break
        if position < end:
            return start + shift
        shift += len(HIDDEN) - (end - start)
    return position + shift
