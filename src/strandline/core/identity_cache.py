"""Results of functions of large immutable objects, found again by the identity of these, not by comparing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

SIZE: Final = 256
PARTS: Final = 16_384

_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


def cached_by_identity(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The function with its last results kept. Arguments are kept with them, so that no other object takes the place of
    one; small numbers are the same object wherever they occur. The oldest results go first."""
    return _remember(function, SIZE)


def cached_by_identity_of_parts(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same for the parts of a plan: those of thousands of queries are kept."""
    return _remember(function, PARTS)


def _remember(function: Callable[_Parameters, _Result], size: int) -> Callable[_Parameters, _Result]:
    results: dict[tuple[int, ...], tuple[object, _Result]] = {}

    @wraps(function)
    def cached(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        assert not named, "arguments are given by position"
        key = tuple(map(id, arguments))
        if (known := results.get(key)) is None:
            while len(results) >= size:
                results.pop(next(iter(results)), None)
            known = results[key] = arguments, function(*arguments, **named)
        return known[1]

    return cached
