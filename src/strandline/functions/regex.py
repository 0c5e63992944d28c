r"""Regular expressions: parsed, and rewritten to a form with the same meaning in every engine.

The dialect is that of PostgreSQL as far as it needs no memory: no references back to a group and no looking ahead or
behind, so that every pattern is matched in linear time. Of several ways to match, the leftmost and then the first one
written counts. `\d`, `\w`, `\s` and classes such as `[:alpha:]` are those of ASCII.

What comes out uses nothing on which Python and Rust differ: sets are written as ranges of code points, and letters that
may be of either case as sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]

MAX_REPEATS: Final = 255
# Repeats are written out when a pattern is compiled: (a{255}){255} would take megabytes.
MAX_STATES: Final = 5_000

_DEEPEST: Final = 50

_LAST: Final = 0x10FFFF
_ALL: Final[Ranges] = ((0, _LAST),)

# The end of the text and the boundary of a word as Rust writes them; Python writes them otherwise. Nothing else looks
# so: a backslash that means itself is written \x5c.
_END: Final = r"\z"
_BOUNDARY: Final = r"(?-u:\b)"


class RegexError(ValueError):
    """A text is not a regular expression; `at` is the place in it."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression as Rust writes it, and its groups."""

    rust: str
    groups: int
    first_group_may_be_empty: bool

    @property
    def python(self) -> str:
        return self.rust.replace(_END, r"\Z").replace(_BOUNDARY, r"(?a:\b)")


@lru_cache(maxsize=512)
def regex(pattern: str, flags: str = "") -> Regex:
    """The meaning of a pattern. Flags: `i` either case, `c` exact case, `n` lines, `s` no lines."""
    reader = _Reader(pattern, flags)
    reader.options()
    return Regex(reader.whole(), reader.groups, reader.first_group_may_be_empty)


@lru_cache(maxsize=512)
def similar_regex(pattern: str, escape: str = "\\") -> Regex:
    """The meaning of a SIMILAR TO pattern, for whole texts."""
    reader = _SimilarReader(pattern, escape)
    return Regex(f"\\A(?:{reader.whole()}){_END}", reader.groups, reader.first_group_may_be_empty)


# ---- sets of characters ----------------------------------------------------------------------------------------------


def _set_of(text: str) -> Ranges:
    """The characters of a text such as `A-Za-z_`."""
    ranges = re.findall("(.)(?:-(.))?", text, re.DOTALL)
    return _union((ord(low), ord(high or low)) for low, high in ranges)


def _union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    gaps: list[tuple[int, int]] = []
    at = 0
    for low, high in _union(ranges):
        if at < low:
            gaps.append((at, low - 1))
        at = high + 1
    return (*gaps, (at, _LAST)) if at <= _LAST else tuple(gaps)


def _either_case(ranges: Ranges) -> Ranges:
    """Also the upper and the lower case of each character, where that is one character."""
    characters = (chr(code) for low, high in ranges for code in range(low, high + 1))
    cases = (case for character in characters for case in (character.lower(), character.upper()))
    return _union((*ranges, *((ord(case), ord(case)) for case in cases if len(case) == 1)))


def _write(ranges: Ranges) -> str:
    if ranges == _ALL:
        return "(?s:.)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    parts = (_character(low) + (f"-{_character(high)}" if high > low else "") for low, high in ranges)
    return f"[{''.join(parts)}]"


def _character(code: int) -> str:
    text = chr(code)
    return text if code > 127 or text.isalnum() else f"\\x{code:02x}"


_CLASSES: Final[dict[str, Ranges]] = {
    "alpha": _set_of("A-Za-z"),
    "digit": _set_of("0-9"),
    "alnum": _set_of("0-9A-Za-z"),
    "upper": _set_of("A-Z"),
    "lower": _set_of("a-z"),
    "space": _set_of(" \t\n\r\f\v"),
    "blank": _set_of(" \t"),
    "punct": _set_of("!-/:-@[-`{-~"),
    "graph": _set_of("!-~"),
    "print": _set_of(" -~"),
    "cntrl": _set_of("\x00-\x1f\x7f"),
    "xdigit": _set_of("0-9A-Fa-f"),
    "word": _set_of("0-9A-Za-z_"),
}
_SHORT: Final = {"d": _CLASSES["digit"], "w": _CLASSES["word"], "s": _CLASSES["space"]}
_SHORT_SETS: Final = {**_SHORT, **{letter.upper(): _complement(ranges) for letter, ranges in _SHORT.items()}}
_CONTROLS: Final = {"a": 7, "b": 8, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_BRACE: Final = re.compile(r"\{[0-9]")  # any other one means itself
_BOUNDS: Final = re.compile(r"\{([0-9]{1,5})(?:(,)([0-9]{0,5}))?\}")
_ASSERTIONS: Final = {"A": r"\A", "Z": _END, "y": _BOUNDARY}


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of what is written: how large it is once compiled, and what matters for repeating it."""

    text: str
    states: int
    repeatable: bool = True
    may_be_empty: bool = False
    has_groups: bool = False


def _assertion(text: str) -> _Piece:
    """What looks at a place and takes no characters."""
    return _Piece(text, 1, repeatable=False, may_be_empty=True)


def _joined(by: str, pieces: Sequence[_Piece], may_be_empty: bool) -> _Piece:
    text, states = by.join(piece.text for piece in pieces), sum(piece.states for piece in pieces)
    return _Piece(text, states, True, may_be_empty, any(piece.has_groups for piece in pieces))


class _Reader:
    """Recursive descent over a pattern: alternatives of branches of repeated atoms."""

    escape = "\\"
    short_sets: Mapping[str, Ranges] = _SHORT_SETS
    assertions: Mapping[str, str] = _ASSERTIONS

    def __init__(self, pattern: str, flags: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.groups = 0
        self.first_group_may_be_empty = False
        self.any_case = False
        self.lines = False
        self.set_flags(flags, 0)

    def set_flags(self, flags: str, at: int) -> None:
        for flag in flags:
            match flag:
                case "i" | "c":
                    self.any_case = flag == "i"
                case "n" | "m" | "s":
                    self.lines = flag != "s"
                case _:
                    raise RegexError(f"unknown option {flag}", at)

    def whole(self) -> str:
        piece = self.alternatives()
        if self.at < len(self.pattern):
            raise RegexError("parentheses () not balanced", self.at)
        return piece.text

    def options(self) -> None:
        """`(?i)` and the like, right at the start."""
        end = self.pattern.find(")")
        if self.pattern.startswith("(?") and end > 2 and self.pattern[2:end].isalpha():
            self.set_flags(self.pattern[2:end], 2)
            self.at = end + 1

    def sees(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def accept(self, text: str) -> bool:
        if not self.sees(text):
            return False
        self.at += len(text)
        return True

    def next(self) -> str:
        if self.at >= len(self.pattern):
            raise RegexError("unexpected end", self.at)
        self.at += 1
        return self.pattern[self.at - 1]

    def alternatives(self) -> _Piece:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RegexError("nested too deeply", self.at)
        branches = [self.branch()]
        while self.accept("|"):
            branches.append(self.branch())
        self.depth -= 1
        piece = _joined("|", branches, any(branch.may_be_empty for branch in branches))
        return replace(piece, states=piece.states + 1)

    def branch(self) -> _Piece:
        parts: list[_Piece] = []
        while self.at < len(self.pattern) and not self.sees("|") and not self.sees(")"):
            parts.append(self.repeated())
        return _joined("", parts, all(part.may_be_empty for part in parts))

    def repeated(self) -> _Piece:
        start = self.at
        piece = self.atom()
        while (quantifier := self.quantifier()) is not None:
            text, min_repeats, max_repeats = quantifier
            if not piece.repeatable:
                raise RegexError("quantifier without an operand", start)
            if piece.may_be_empty and piece.has_groups and max_repeats != 1:
                # What the group holds after a last, empty turn is not the same everywhere.
                raise RegexError("a repeated part that may be empty cannot have a capturing group; use (?:…)", start)
            states = piece.states * max(min_repeats + 1, max_repeats or 0)
            piece = _Piece(piece.text + text, states, False, piece.may_be_empty or min_repeats == 0, piece.has_groups)
            if piece.states > MAX_STATES:
                raise RegexError("too large after its repetitions are expanded", start)
        return piece

    def quantifier(self) -> tuple[str, int, int | None] | None:
        """How often, as it is written, and as numbers: at least, and at most if there is a bound."""
        for symbol, min_repeats, bound in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.accept(symbol):
                return symbol + self.lazy(), min_repeats, bound
        start = self.at
        if _BRACE.match(self.pattern, start) is None:
            return None
        if "}" not in self.pattern[start:]:
            raise RegexError("braces {} not balanced", start)
        written = _BOUNDS.match(self.pattern, start)
        if written is None:
            raise RegexError("invalid repetition count: expected {min,max}", start)
        min_repeats = int(written[1])
        max_repeats = int(written[3]) if written[3] else None if written[2] else min_repeats
        if max(min_repeats, max_repeats or 0) > MAX_REPEATS or (max_repeats is not None and max_repeats < min_repeats):
            raise RegexError(f"invalid repetition count: expected {{min,max}}, at most {MAX_REPEATS}", start)
        self.at = written.end()
        return written[0] + self.lazy(), min_repeats, max_repeats

    def lazy(self) -> str:
        return "?" if self.accept("?") else ""

    def atom(self) -> _Piece:
        start = self.at
        character = self.next()
        if character == self.escape:
            return self.escaped(start)
        match character:
            case "(":
                return self.group(start)
            case "[":
                return self.exactly(self.bracket(start))
            case "*" | "+" | "?":
                raise RegexError("quantifier without an operand", start)
        return self.special(character) or self.set_of(((ord(character), ord(character)),))

    def special(self, character: str) -> _Piece | None:
        """What the character stands for if not for itself."""
        match character:
            case ".":
                return self.set_of(_complement(((10, 10),)) if self.lines else _ALL)
            case "^":
                return _assertion("(?m:^)" if self.lines else r"\A")
            case "$":
                return _assertion("(?m:$)" if self.lines else _END)
        return None

    def set_of(self, ranges: Ranges) -> _Piece:
        return self.exactly(self.cased(ranges))

    def cased(self, ranges: Ranges) -> Ranges:
        return _either_case(ranges) if self.any_case and ranges != _ALL else ranges

    def exactly(self, ranges: Ranges) -> _Piece:
        return _Piece(_write(ranges), 1 + len(ranges))

    def group(self, start: int) -> _Piece:
        captures = not self.accept("?:")
        if captures and self.sees("?"):
            raise RegexError("(? is not supported here: lookahead, lookbehind or an option", start)
        if captures:
            self.groups += 1
        number = self.groups
        inner = self.alternatives()
        if not self.accept(")"):
            raise RegexError("parentheses () not balanced", start)
        if captures and number == 1:
            self.first_group_may_be_empty = inner.may_be_empty
        return replace(inner, text=f"({'' if captures else '?:'}{inner.text})", has_groups=inner.has_groups or captures)

    def escaped(self, start: int) -> _Piece:
        character = self.next()
        if character in self.short_sets:
            return _Piece(_write(self.short_sets[character]), 8)
        if character in self.assertions:
            return _assertion(self.assertions[character])
        code = self.escaped_code(character, start)
        return self.set_of(((code, code),))

    def escaped_code(self, character: str, start: int) -> int:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in _HEX_DIGITS:
            digits = self.pattern[self.at : self.at + _HEX_DIGITS[character]]
            if len(digits) == _HEX_DIGITS[character] and all(d in "0123456789abcdefABCDEF" for d in digits):
                self.at += len(digits)
                code = int(digits, 16)
                if code <= _LAST and not 0xD800 <= code <= 0xDFFF:  # surrogates are no characters
                    return code
            raise RegexError(f"\\{character} needs {_HEX_DIGITS[character]} hexadecimal digits", start)
        if character.isascii() and character.isdecimal():
            raise RegexError("backreferences are not supported", start)
        if character.isascii() and character.isalpha():
            raise RegexError(f"invalid escape sequence \\{character}", start)
        return ord(character)

    def bracket(self, start: int) -> Ranges:
        """`[…]` after its opening: characters, ranges and classes."""
        negated = self.accept("^")
        ranges: list[tuple[int, int]] = []
        while not (ranges and self.accept("]")):
            if self.at >= len(self.pattern):
                raise RegexError("brackets [] not balanced", start)
            ranges += self.bracket_item()
        # Of either case before it is negated: [^s] is neither s nor S. Nothing is added afterwards: it holds the long
        # s, whose upper case is S.
        if not negated:
            return _union(ranges)
        return _complement((*ranges, (10, 10)) if self.lines else _union(ranges))

    def bracket_item(self) -> Ranges:
        start = self.at
        if self.accept("[:"):
            end = self.pattern.find(":]", self.at)
            name = self.pattern[self.at : end] if end >= 0 else ""
            if name not in _CLASSES:
                raise RegexError(f"invalid character class [:{name}:]", start)
            self.at = end + 2
            return self.cased(_CLASSES[name])
        if self.sees("[.") or self.sees("[="):
            raise RegexError("collating elements are not supported", start)
        low = self.bracket_character(start)
        if isinstance(low, tuple):
            return low
        if not self.sees("-") or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return self.cased(((low, low),))
        self.next()
        high = self.bracket_character(start)
        if isinstance(high, tuple) or high < low:
            raise RegexError("invalid character range", start)
        return self.cased(((low, high),))

    def bracket_character(self, start: int) -> int | Ranges:
        character = self.next()
        if character != self.escape:
            return ord(character)
        short = self.next()
        return self.short_sets[short] if short in self.short_sets else self.escaped_code(short, start)


class _SimilarReader(_Reader):
    """SIMILAR TO: % is any text and _ any character, and of the other signs only | * + ? {} () [] mean something."""

    short_sets: Mapping[str, Ranges] = {}
    assertions: Mapping[str, str] = {}

    def __init__(self, pattern: str, escape: str) -> None:
        super().__init__(pattern, "")
        self.escape = escape

    def special(self, character: str) -> _Piece | None:
        match character:
            case "%":
                return _Piece("(?s:.)*", 2, repeatable=False, may_be_empty=True)
            case "_":
                return _Piece(_write(_ALL), 1)
        return None

    def lazy(self) -> str:
        return ""

    def escaped_code(self, character: str, start: int) -> int:
        return ord(character)


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
