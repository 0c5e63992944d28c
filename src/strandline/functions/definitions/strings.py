"""Functions of texts: what they take and what they mean. Positions count characters, the first is 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from strandline.core.types import BOOLEAN, INT, NULL, VARCHAR, Type
from strandline.functions.signatures import Function, FunctionError, Types, all_of, any_text, fixed
from strandline.logical.expressions import Expression, Literal

# What makes texts longer gives NULL beyond this: a slip must not fill the memory of a query that runs for months.
MOST_CHARACTERS: Final = 1_000_000


def _text_join(types: Types) -> tuple[Types, Type] | None:
    # One side must be text: 1 || 2 is more likely a mistake than a text.
    return any_text(types) if any(kind in (VARCHAR, NULL) for kind in types) else None


def _substring(text: str, start: int, count: int | None = None) -> str | None:
    """Positions before the first character count too, but are empty: substring('abc', 0, 2) is 'a'."""
    if count is None:
        return text[max(start, 1) - 1 :]
    return None if count < 0 else text[max(start, 1) - 1 : max(start + count, 1) - 1]


def _left(text: str, count: int) -> str:
    """All but the last -count characters if count is negative."""
    return text[:count] if count >= 0 else text[: max(len(text) + count, 0)]


def _right(text: str, count: int) -> str:
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def _padding(text: str, size: int, fill: str) -> str:
    missing = max(size - len(text), 0)
    return (fill * missing)[:missing]


def _lpad(text: str, size: int, fill: str = " ") -> str | None:
    return None if size > MOST_CHARACTERS else _padding(text, size, fill) + text[: max(size, 0)]


def _rpad(text: str, size: int, fill: str = " ") -> str | None:
    return None if size > MOST_CHARACTERS else text[: max(size, 0)] + _padding(text, size, fill)


def _repeat(text: str, count: int) -> str | None:
    return None if len(text) * count > MOST_CHARACTERS else text * count


def _overlay(text: str, new: str, start: int, count: int | None = None) -> str | None:
    if start <= 0:
        return None
    after = start + (len(new) if count is None else count)
    return text[: start - 1] + new + text[max(after, 1) - 1 :]


def _split_part(text: str, separator: str, number: int) -> str | None:
    """Part 1 is the first and part -1 the last; an empty separator separates nothing."""
    if number == 0:
        return None
    parts = text.split(separator) if separator else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def translation(old: str, new: str) -> dict[str, str]:
    """What becomes of each character of `old`: the one at its place in `new`, or nothing if there is none."""
    pairs = ((character, new[place : place + 1]) for place, character in enumerate(old))
    return dict(reversed(list(pairs)))  # of several, the first counts


def _translate(text: str, old: str, new: str) -> str:
    becomes = translation(old, new)
    return "".join(becomes.get(character, character) for character in text)


# Letters and digits, roughly: ASCII's, and the blocks beyond that are neither punctuation nor symbols nor accents of
# their own, which end a word in PostgreSQL, too. Written out, so
# that it means the same to Python and to Rust, whatever version of Unicode they know.
WORD: Final = (
    r"[0-9A-Za-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\ufdff\uff10-\uff19"
    r"\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\U00010000-\U0001efff\U00020000-\U0010ffff]+"
)


def _initcap(text: str) -> str:
    return re.sub(WORD, lambda word: _capital(word[0][0]) + word[0][1:].lower(), text)


def _capital(letter: str) -> str:
    """A letter whose upper case is several letters stays as it is."""
    upper = letter.upper()
    return upper if len(upper) == 1 else letter


def _chr(code: int) -> str | None:
    return chr(code) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000 else None


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _known_characters(arguments: Sequence[Expression]) -> None:
    if not all(isinstance(argument, Literal) for argument in arguments[1:]):
        raise FunctionError("the characters of translate must be text literals", "Write translate(s, 'abc', 'xy').")


_TEXT = fixed(VARCHAR, VARCHAR)
_TEXTS = all_of(VARCHAR, VARCHAR)
_TEST = fixed(BOOLEAN, VARCHAR, VARCHAR)
_NUMBER = fixed(INT, VARCHAR)
_COUNTED = fixed(VARCHAR, VARCHAR, INT, VARCHAR)

DECLARED: Final = (
    Function("||", "a || b", "Both texts together; NULL if one is NULL.", 2, 2, _text_join, lambda a, b: a + b),
    Function("concat", "concat(a, …)", "All arguments as one text; NULLs are skipped.", 1, None, any_text,
             lambda *values: "".join(value for value in values if value is not None), strict=False),
    Function("concat_ws", "concat_ws(separator, a, …)",
             "The other arguments as one text with the separator between them; NULLs are skipped.",
             2, None, any_text, _concat_ws, strict=False),
    Function("lower", "lower(s)", "The text in lower case.", 1, 1, _TEXT, str.lower),
    Function("upper", "upper(s)", "The text in upper case.", 1, 1, _TEXT, str.upper),
    Function("initcap", "initcap(s)", "Each word with its first letter in upper case and the others in lower case.",
             1, 1, _TEXT, _initcap),
    Function("length", "length(s)", "The number of characters.", 1, 1, _NUMBER, len),
    Function("octet_length", "octet_length(s)", "The number of bytes in UTF-8.",
             1, 1, _NUMBER, lambda s: len(s.encode())),
    Function("trim", "trim(s[, characters])", "The text without blanks, or these characters, at both ends.",
             1, 2, _TEXTS, lambda s, characters=" ": s.strip(characters) if characters else s),
    Function("ltrim", "ltrim(s[, characters])", "The same at the start only.",
             1, 2, _TEXTS, lambda s, characters=" ": s.lstrip(characters) if characters else s),
    Function("rtrim", "rtrim(s[, characters])", "The same at the end only.",
             1, 2, _TEXTS, lambda s, characters=" ": s.rstrip(characters) if characters else s),
    Function("substring", "substring(s, from[, count])",
             "The characters from a position on, the first is 1; NULL if count is negative.",
             2, 3, fixed(VARCHAR, VARCHAR, INT, INT), _substring),
    Function("left", "left(s, n)", "The first n characters; all but the last -n if n is negative.",
             2, 2, _COUNTED, _left),
    Function("right", "right(s, n)", "The last n characters; all but the first -n if n is negative.",
             2, 2, _COUNTED, _right),
    Function("lpad", "lpad(s, n[, fill])", "n characters: the text with blanks, or the fill, before it; or cut.",
             2, 3, _COUNTED, _lpad),
    Function("rpad", "rpad(s, n[, fill])", "n characters: the text with blanks, or the fill, after it; or cut.",
             2, 3, _COUNTED, _rpad),
    Function("repeat", "repeat(s, n)", "The text n times.", 2, 2, _COUNTED, _repeat),
    Function("reverse", "reverse(s)", "The characters from the last to the first.", 1, 1, _TEXT, lambda s: s[::-1]),
    Function("replace", "replace(s, old, new)", "The text with each occurrence of old replaced.",
             3, 3, _TEXTS, lambda s, old, new: s.replace(old, new) if old else s),
    Function("translate", "translate(s, 'old', 'new')",
             "Each character of old becomes the one at the same place of new, or nothing.",
             3, 3, _TEXTS, _translate, check=_known_characters),
    Function("overlay", "overlay(s, new, from[, count])",
             "The text with count characters from a position on replaced, as many as new has if there is no count.",
             3, 4, fixed(VARCHAR, VARCHAR, VARCHAR, INT, INT), _overlay),
    Function("split_part", "split_part(s, separator, n)", "The nth part between separators; from the end if negative.",
             3, 3, fixed(VARCHAR, VARCHAR, VARCHAR, INT), _split_part),
    Function("strpos", "strpos(s, part)",
             "The position of the first occurrence, also position(part IN s); 0 if there is none.",
             2, 2, fixed(INT, VARCHAR, VARCHAR), lambda s, part: s.find(part) + 1),
    Function("contains", "contains(s, part)", "Whether the text has the part in it.",
             2, 2, _TEST, lambda s, part: part in s),
    Function("starts_with", "starts_with(s, prefix)", "Whether the text begins with the prefix.",
             2, 2, _TEST, str.startswith),
    Function("ends_with", "ends_with(s, suffix)", "Whether the text ends with the suffix.", 2, 2, _TEST, str.endswith),
    Function("ascii", "ascii(s)", "The code point of the first character; 0 if there is none.",
             1, 1, _NUMBER, lambda s: ord(s[0]) if s else 0),
    Function("chr", "chr(n)", "The character with a code point; NULL if there is none.",
             1, 1, fixed(VARCHAR, INT), _chr),
    Function("md5", "md5(s)", "The MD5 hash of the UTF-8 form, in 32 hexadecimal digits.",
             1, 1, _TEXT, lambda s: hashlib.md5(s.encode(), usedforsecurity=False).hexdigest()),
)  # fmt: skip
