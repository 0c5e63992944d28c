"""The operators, functions and aggregates of the language: which there are, and which one a call denotes.

`resolve` decides types only. The rooms of `scalars/` declare each function together with its meaning; `signatures.py`
has the rules of typing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from strandline.algebra.expressions import Expression
from strandline.algebra.scalars import choices, formats, mathematics, numbers, patterns, texts, times
from strandline.algebra.signatures import Function, FunctionError
from strandline.types import BIGINT, BOOLEAN, DOUBLE, MAX_PRECISION, NULL, VARCHAR, Type, decimal, is_numeric


@dataclass(frozen=True, slots=True)
class Resolved:
    """A function chosen for argument types: each argument is to be cast to its type in `argument_types`."""

    function: str
    argument_types: tuple[Type, ...]
    result: Type


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate over the values of a group that are not NULL."""

    name: str
    usage: str
    doc: str


def resolve(name: str, types: Sequence[Type]) -> Resolved:
    """The function that `name` (in any case) denotes for arguments of these types."""
    key = name.lower()
    function = FUNCTIONS.get(ALIASES.get(key, key))
    if function is None:
        raise FunctionError(f"function {key} does not exist", _suggestion(key))
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


def aggregate_type(name: str, argument: Type | None) -> Type:
    """The type of an aggregate; an `argument` of None is `*`."""
    key = name.lower()
    if key not in AGGREGATES:
        raise FunctionError(f"aggregate {key} does not exist", _suggestion(key))
    usage = f"Write {AGGREGATES[key].usage}."
    if argument is None and key != "count":
        raise FunctionError(f"{key} needs an argument", usage)
    match key, argument:
        case "count", _:
            return BIGINT
        case "min" | "max", Type() as kind:
            return VARCHAR if kind == NULL else kind
        case "sum", Type("INT"):
            return BIGINT
        case "sum", Type("BIGINT"):
            return decimal(MAX_PRECISION, 0)
        case "sum", Type("DECIMAL", _, scale):
            return decimal(MAX_PRECISION, scale)
        case "sum", Type("DOUBLE"):
            return DOUBLE
        case "avg", Type() as kind if is_numeric(kind):
            return DOUBLE
        case "bool_and" | "every" | "bool_or", Type("BOOLEAN" | "NULL"):
            return BOOLEAN
    raise FunctionError(f"{key} does not accept ({argument})", f"{usage} {AGGREGATES[key].doc}")


# The functions as the reference shows them.
ROOMS: Final[Mapping[str, tuple[Function, ...]]] = MappingProxyType(
    {
        "Comparison, logic and choice": choices.DECLARED,
        "Arithmetic": numbers.DECLARED,
        "Mathematics": mathematics.DECLARED,
        "Texts": texts.DECLARED,
        "Patterns": patterns.DECLARED,
        "Times": (*times.DECLARED, *formats.DECLARED),
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

AGGREGATES: Final[Mapping[str, AggregateFunction]] = MappingProxyType(
    {
        "count": AggregateFunction("count", "COUNT(*) or COUNT(x)", "The number of rows, or of values."),
        "sum": AggregateFunction("sum", "SUM(x)", "The exact sum of numbers; NULL if there are none."),
        "avg": AggregateFunction("avg", "AVG(x)", "The mean of numbers as a DOUBLE; NULL if there are none."),
        "min": AggregateFunction("min", "MIN(x)", "The least value; NULL if there is none."),
        "max": AggregateFunction("max", "MAX(x)", "The greatest value; NULL if there is none."),
        "bool_and": AggregateFunction("bool_and", "BOOL_AND(x)", "Whether all are true; NULL if there is none."),
        "every": AggregateFunction("every", "EVERY(x)", "The same as BOOL_AND."),
        "bool_or": AggregateFunction("bool_or", "BOOL_OR(x)", "Whether one is true; NULL if there is none."),
    }
)

# Truth values are ordered: all are true if the least is, and one is if the greatest is. The algebra has those two only.
BY_ORDER: Final[Mapping[str, str]] = MappingProxyType({"bool_and": "min", "every": "min", "bool_or": "max"})


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def _suggestion(name: str) -> str | None:
    words = [word for word in (*FUNCTIONS, *ALIASES, *AGGREGATES) if word.isidentifier()]
    near = difflib.get_close_matches(name, words, n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else None
