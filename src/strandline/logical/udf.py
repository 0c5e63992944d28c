"""Functions and aggregates that users bring along: Python over whole Arrow columns, with declared types."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.core.errors import QueryError
from strandline.core.identity_cache import cached_by_identity
from strandline.core.types import Type, arrow_type

_LONG: Final = 16  # parts of a list that is looked through once for all plans that have it
_FIELDS: Final[dict[type, tuple[str, ...]]] = {}  # by class


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's: `body` takes an Arrow array per argument and gives one that is as long.

    It is part of the plans that call it, and so goes wherever they go.
    """

    name: str
    arguments: tuple[Type, ...]
    returns: Type
    body: Callable[..., Any] = field(repr=False)

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def title(self) -> str:
        return f"function {self.name}"

    @property
    def bodies(self) -> tuple[Callable[..., Any], ...]:
        return (self.body,)

    def __str__(self) -> str:
        return f"{self.usage} RETURNS {self.returns}"

    def over(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The values of the function over columns of its argument types, in the type that it returns."""
        hint = "It is called with an Arrow array per argument; values may be NULL."
        result = _called(self.title, self.body, columns, hint)
        return _returned(self.title, result, len(columns[0]), self.returns)


# ---- aggregates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class States:
    """States of a user-defined aggregate: one entry per column for each group of values.

    The user function gets the columns as a tuple, or a single one by itself if that is what it returned.
    """

    columns: tuple[pa.Array, ...]
    is_single: bool

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def argument(self) -> Any:
        return self.columns[0] if self.is_single else self.columns

    def take(self, positions: npt.NDArray[np.int64] | pa.Array) -> States:
        """The entries at these positions; nothing known where a position is NULL."""
        chosen = positions if isinstance(positions, pa.Array) else pa.array(positions)
        return States(tuple(column.take(chosen) for column in self.columns), self.is_single)

    def followed_by(self, *others: States) -> States:
        """These entries and then those of others of the same types."""
        columns = zip(self.columns, *(other.columns for other in others), strict=True)
        return States(tuple(pa.concat_arrays(parts) for parts in columns), self.is_single)


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """User-defined aggregate: initialize, merge and evaluate over states.

    With `inverse` values can be removed; without, the remaining values are merged again.
    """

    name: str
    arguments: tuple[Type, ...]
    returns: Type
    initialize: Callable[[Any], Any] = field(repr=False)
    merge: Callable[[Any, Any], Any] = field(repr=False)
    evaluate: Callable[[Any], Any] = field(repr=False)
    inverse: Callable[[Any, Any], Any] | None = field(default=None, repr=False)

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def title(self) -> str:
        return f"aggregate {self.name}"

    @property
    def bodies(self) -> tuple[Callable[..., Any], ...]:
        functions = (self.initialize, self.merge, self.evaluate)
        return functions if self.inverse is None else (*functions, self.inverse)

    def __str__(self) -> str:
        # The content of a checkpoint depends on whether there is an inverse.
        return f"aggregate {self.usage} RETURNS {self.returns}{'' if self.inverse is None else ' WITH INVERSE'}"

    def initialized(self, values: pa.Array) -> States:
        """The states of single values, which are not NULL."""
        function_label = f"initialize of {self.title}"
        result = _called(function_label, self.initialize, (values,), "It is called with an Arrow array of values.")
        is_single = not isinstance(result, tuple)
        parts = (result,) if is_single else result
        if not parts:
            raise _wrong(function_label, "an empty tuple", "A state is an Arrow array or a tuple of them.")
        columns = (_array(function_label, part, len(values)) for part in parts)
        return States(tuple(_storable(function_label, column) for column in columns), is_single)

    def merged(self, one: States, two: States) -> States:
        """Each state with the one at the same position merged into it, from the right."""
        return self._combined("merge", self.merge, one, two)

    def without(self, one: States, two: States) -> States:
        """The opposite: each state with the other taken out of it."""
        assert self.inverse is not None, f"{self.title} has no inverse"
        return self._combined("inverse", self.inverse, one, two)

    def evaluated(self, states: States) -> pa.Array:
        """Evaluate states, in the return type of the aggregate."""
        function_label = f"evaluate of {self.title}"
        result = _called(function_label, self.evaluate, (states.argument,), _STATE_HINT)
        return _returned(function_label, result, len(states), self.returns)

    def fitted(self, states: States, like: States) -> States:
        """The states in the types of others, where these are known: types must not change from batch to batch."""
        return self._fitted(f"initialize of {self.title}", states, like)

    def kept(self, states: States) -> States:
        """States that come back from where they were stored, in the types that they had."""
        return States(
            tuple(_storable(f"initialize of {self.title}", column) for column in states.columns), states.is_single
        )

    def over_values(self, values: Sequence[Any]) -> Any:
        """The aggregate over one or more values, slow and obvious: merged one by one, in order."""
        singles = [self.initialized(pa.array([value], arrow_type(self.arguments[0]))) for value in values]
        total = singles[0]
        for single in singles[1:]:
            total = self.merged(total, single)
        return self.evaluated(total)[0].as_py()

    def _combined(self, part: str, body: Callable[[Any, Any], Any], one: States, two: States) -> States:
        function_label = f"{part} of {self.title}"
        result = _called(function_label, body, (one.argument, two.argument), _STATE_HINT)
        if isinstance(result, tuple) == one.is_single:
            form = "a tuple and not an Arrow array" if one.is_single else f"a {type(result).__name__} and not a tuple"
            raise _wrong(function_label, form, "Return a state of the form that initialize gives.")
        parts = (result,) if one.is_single else result
        columns = tuple(_array(function_label, item, len(one)) for item in parts)
        return self._fitted(function_label, States(columns, one.is_single), one)

    def _fitted(self, function_label: str, states: States, like: States) -> States:
        if (len(states.columns), states.is_single) != (len(like.columns), like.is_single):
            counts = f"{len(states.columns)} arrays where a state has {len(like.columns)}"
            raise _wrong(function_label, counts, "Return states of one form.")
        pairs = zip(states.columns, like.columns, strict=True)
        return States(
            tuple(
                _in_type(function_label, _storable(function_label, actual), expected.type) for actual, expected in pairs
            ),
            states.is_single,
        )


Definition: TypeAlias = UserFunction | UserAggregate

_STATE_HINT = "Return the state of initialize: an Arrow array, or a tuple of them."


# ---- calls and what they return --------------------------------------------------------------------------------------


def _called(function_label: str, body: Callable[..., Any], arguments: Sequence[Any], hint: str) -> Any:
    try:
        return body(*arguments)
    except Exception as error:
        # The first frame is ours, the second is the user's function.
        frames = traceback.extract_tb(error.__traceback__)[1:2]
        raise QueryError(
            f"{function_label} failed: {type(error).__name__}: {error}",
            code="function-failed",
            detail="".join(f"Raised at line {frame.lineno} of {frame.filename}." for frame in frames) or None,
            hint=hint,
        ) from None


def _array(function_label: str, result: object, rows: int) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise _wrong(function_label, f"a {type(result).__name__} and not an Arrow array", "Return pa.array(values).")
    if len(result) != rows:
        raise _wrong(function_label, f"{len(result)} values for {rows} rows", "Return a value or NULL for each row.")
    return result


def _returned(function_label: str, result: object, rows: int, declared: Type) -> pa.Array:
    return _in_type(function_label, _array(function_label, result, rows), arrow_type(declared), str(declared))


def _in_type(function_label: str, array: pa.Array, expected_type: pa.DataType, name: str | None = None) -> pa.Array:
    if pa.types.is_null(expected_type) and name is None:
        return array  # of a state of which nothing was known
    if not _close(array.type, expected_type):
        raise _wrong(
            function_label,
            f"{array.type} and not {name or expected_type}",
            f"Cast it: pc.cast(result, {expected_type}).",
        )
    try:
        return array.cast(expected_type)
    except pa.ArrowInvalid as error:
        what = f"a value that is not a {name or expected_type}: {error}"
        raise _wrong(function_label, what, "Cast it before returning it.") from None


def _storable(function_label: str, array: pa.Array) -> pa.Array:
    """A column of a state in a type that comes back from a checkpoint as it went."""
    kind = _stored(array.type)
    if kind is None:
        hint = "Use numbers, texts, booleans, dates, times, bytes and lists of these."
        raise _wrong(function_label, f"{array.type}, which cannot be stored", hint)
    return array.cast(kind)


def _stored(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _stored(kind.value_type)
        return None if inner is None else pa.large_list(inner)
    if types.is_timestamp(kind) or types.is_duration(kind):
        return kind if kind.unit != "s" else None
    plain = (types.is_null, types.is_boolean, types.is_integer, types.is_float32, types.is_float64)
    more = (types.is_decimal128, types.is_date32)
    return kind if any(check(kind) for check in (*plain, *more)) else None


def _wrong(function_label: str, what: str, hint: str) -> QueryError:
    return QueryError(f"{function_label} returned {what}", code="function-result", hint=hint)


def _close(actual: pa.DataType, expected: pa.DataType) -> bool:
    """True if a type differs in size only: Arrow's functions may widen integers, decimals and texts."""
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date, pa.types.is_floating)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return (
        actual == expected
        or pa.types.is_null(actual)
        or any(kind(actual) and kind(expected) for kind in kinds)
        or (any(text(actual) for text in texts) and any(text(expected) for text in texts))
    )


def user_functions(tree: object) -> dict[str, Definition]:
    """User-defined functions and aggregates of a plan, by name; a plan is a tree of dataclasses and tuples."""
    found: dict[str, Definition] = {}
    pending, seen = [tree], set[int]()  # plans share parts: each is looked through once
    while pending:
        part = pending.pop()
        if isinstance(part, UserFunction | UserAggregate):
            found[part.name] = part
        elif isinstance(part, tuple | list):
            if len(part) > _LONG:
                found |= _functions_in(part)
            else:
                pending += part
        elif (names := _fields_of(type(part))) and id(part) not in seen:
            seen.add(id(part))
            pending += [getattr(part, name) for name in names]
    return found


@cached_by_identity  # a list that the plans of many queries have in common
def _functions_in(parts: Sequence[object]) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for part in parts:
        found |= user_functions(part)
    return found


def _fields_of(kind: type) -> tuple[str, ...]:
    """The fields of a class of parts of plans; none of any other."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(item.name for item in fields(kind)) if is_dataclass(kind) else ()
    return _FIELDS[kind]
