"""The operators and functions of the language: which there are, and which one a call denotes.

`resolve` decides types only. The file of a family declares each of its functions completely (`signatures.Function`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from strandline.core.types import NULL, Type
from strandline.functions import (
    arithmetic,
    arrays,
    calendars,
    conditional,
    datetimes,
    formatting,
    jsons,
    mathematics,
    patterns,
    rounding,
    strings,
)
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
    max_arguments = len(types) if function.max_arguments is None else function.max_arguments
    if not function.min_arguments <= len(types) <= max_arguments:
        given = "1 argument" if len(types) == 1 else f"{len(types)} arguments"
        raise FunctionError(f"{key} does not take {given}", f"Write {function.usage}.")
    signature = function.rule(tuple(types))
    if signature is None:
        given = ", ".join("NULL" if kind == NULL else str(kind) for kind in types)
        raise FunctionError(f"{key} does not accept ({given})", f"Write {function.usage}. {function.doc}")
    return Resolved(function.name, *signature)


def check(function: str, arguments: Sequence[Expression]) -> None:
    """Refuse arguments that must be known before the query runs and are not: units, patterns, numbers of digits."""
    refuse = FUNCTIONS[function].check
    if refuse is not None:
        refuse(arguments)


# The functions as the reference shows them.
FAMILIES: Final[Mapping[str, tuple[Function, ...]]] = MappingProxyType(
    {
        "Comparison, logic and choice": conditional.FAMILY,
        "Arithmetic": (*arithmetic.FAMILY, *rounding.FAMILY),
        "Mathematics": mathematics.FAMILY,
        "Texts": strings.FAMILY,
        "Patterns": patterns.FAMILY,
        "Times": (*datetimes.FAMILY, *calendars.FAMILY, *formatting.FAMILY),
        "Arrays": arrays.FAMILY,
        "JSON": jsons.FAMILY,
    }
)
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {function.name: function for family in FAMILIES.values() for function in family}
)
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {alias: function.name for function in FUNCTIONS.values() for alias in function.aliases}
)

_STEPS: Final = {function.name: function for function in strings.STEPS}


def declaration(name: str) -> Function:
    """The function that a call names; it may be a step that only the expression optimizer writes."""
    return FUNCTIONS.get(name) or _STEPS[name]


def suggestion(name: str, words: Iterable[str]) -> str | None:
    """A hint for a name that does not exist: the one that is nearest to it."""
    near = difflib.get_close_matches(name, [word for word in words if word.isidentifier()], n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else None
