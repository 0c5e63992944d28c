"""The operators and functions of the language: which there are, and which one a call denotes.

`resolve` decides types only. The rooms of `scalars/` declare each function together with its meaning; `signatures.py`
has the rules of typing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from strandline.core.types import NULL, Type
from strandline.functions.definitions import arithmetic as numbers
from strandline.functions.definitions import arrays, mathematics, patterns
from strandline.functions.definitions import conditional as choices
from strandline.functions.definitions import datetimes as times
from strandline.functions.definitions import formatting as formats
from strandline.functions.definitions import strings as texts
from strandline.functions.signatures import Function, FunctionError
from strandline.logical.expressions import Expression


@dataclass(frozen=True, slots=True)
class Resolved:
    """A function chosen for argument types: each argument is to be cast to its type in `argument_types`."""

    function: str
    argument_types: tuple[Type, ...]
    result: Type


def resolve(name: str, types: Sequence[Type]) -> Resolved:
    """The function that `name` (in any case) denotes for arguments of these types."""
    key = name.lower()
    function = FUNCTIONS.get(ALIASES.get(key, key))
    if function is None:
        raise FunctionError(f"function {key} does not exist", suggestion(key, (*FUNCTIONS, *ALIASES)))
    if len(types) < function.least or (function.most is not None and len(types) > function.most):
        raise FunctionError(f"{key} does not take {_count(len(types))}", f"Write {function.usage}.")
    found = function.rule(tuple(types))
    if found is None:
        given = ", ".join("NULL" if kind == NULL else str(kind) for kind in types)
        raise FunctionError(f"{key} does not accept ({given})", f"Write {function.usage}. {function.doc}")
    return Resolved(function.name, *found)


def check(function: str, arguments: Sequence[Expression]) -> None:
    """Refuse arguments that must be known before the query runs and are not: units, patterns, numbers of digits."""
    refuse = FUNCTIONS[function].check
    if refuse is not None:
        refuse(arguments)


# The functions as the reference shows them.
ROOMS: Final[Mapping[str, tuple[Function, ...]]] = MappingProxyType(
    {
        "Comparison, logic and choice": choices.DECLARED,
        "Arithmetic": numbers.DECLARED,
        "Mathematics": mathematics.DECLARED,
        "Texts": texts.DECLARED,
        "Patterns": patterns.DECLARED,
        "Times": (*times.DECLARED, *formats.DECLARED),
        "Arrays": arrays.DECLARED,
    }
)
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {function.name: function for room in ROOMS.values() for function in room}
)

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "!=": "<>",
        "ifnull": "coalesce",
        "mod": "%",
        "ceiling": "ceil",
        "truncate": "trunc",
        "pow": "power",
        "char_length": "length",
        "character_length": "length",
        "btrim": "trim",
        "substr": "substring",
    }
)


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def suggestion(name: str, words: Iterable[str]) -> str | None:
    """A hint for a name that does not exist: the one that is nearest to it."""
    near = difflib.get_close_matches(name, [word for word in words if word.isidentifier()], n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else None
