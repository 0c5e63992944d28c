"""How another database writes a call: the part of a declaration that `verify` reads.

A spelling is a template. In it, {0}, {1}, … are the arguments, {all} is their list and {rest} the list without the
first; {t} is the type of the result, {p} and {s} its precision and scale, and {h} the prefix of the helpers that
`apps/verify` gives to the database. Where a literal decides what to write, a function writes the call.

Several spellings are chosen by the types of all arguments, as in {"DECIMAL, BIGINT": …, "DOUBLE, *": …}: `*` is
any type, INT and INTERVAL count as BIGINT, and the first that fits counts.

Of an aggregate, {0} is the argument, {1} the separator or the fraction, {d} DISTINCT, {f} the FILTER, {n} the same
without NULLs, {w} the order that is asked for, {o} that order and then the values themselves, and {s} the scale of the
argument. INT is INT there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from strandline.logical.expressions import Call, Literal


class Untranslatable(Exception):
    """The database has nothing that means the same; the message names what is missing."""


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A call to be written: its arguments as SQL, and what the database calls things."""

    expression: Call
    arguments: tuple[str, ...]
    result_type: str
    helper_prefix: str
    quote: Callable[[str], str]

    @property
    def null(self) -> str:
        return f"CAST(NULL AS {self.result_type})"

    def literals(self) -> list[str] | None:
        """The arguments after the first, which are literals; None if one is NULL, since then the result is."""
        values = [argument.value for argument in self.expression.arguments[1:] if isinstance(argument, Literal)]
        return None if None in values else [str(value) for value in values]

    def spelled(self, spelling: Spelling) -> str:
        if not isinstance(spelling, str):
            return spelling(self)
        return spelling.format(
            *self.arguments,
            all=", ".join(self.arguments),
            rest=", ".join(self.arguments[1:]),
            t=self.result_type,
            p=self.expression.type.precision,
            s=self.expression.type.scale,
            h=self.helper_prefix,
        )


Spelling: TypeAlias = str | Callable[[SqlCall], str]
Spellings: TypeAlias = Spelling | Mapping[str, Spelling]


def spelling_for(spellings: Spellings | None, types: Sequence[str]) -> Spelling | None:
    """The first spelling that fits arguments of types with these names."""
    if not isinstance(spellings, Mapping):
        return spellings
    return next((spelling for key, spelling in spellings.items() if _fits(key, types)), None)


def _fits(key: str, types: Sequence[str]) -> bool:
    patterns = key.split(", ")
    return len(patterns) == len(types) and all(p in ("*", name) for p, name in zip(patterns, types, strict=True))
