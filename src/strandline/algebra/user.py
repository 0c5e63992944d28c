"""Functions that users bring along: Python over whole Arrow columns, with declared types."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import QueryError
from strandline.types import Type, arrow_type


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

    def __str__(self) -> str:
        return f"{self.usage} RETURNS {self.returns}"

    def over(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The values of the function over columns of its argument types, in the type that it returns."""
        try:
            result = self.body(*columns)
        except Exception as error:
            # The first frame is ours, the second is the user's function.
            frames = traceback.extract_tb(error.__traceback__)[1:2]
            raise QueryError(
                f"function {self.name} has failed: {type(error).__name__}: {error}",
                code="function-failed",
                detail="".join(f"It was at line {frame.lineno} of {frame.filename}." for frame in frames) or None,
                hint="It is called with an Arrow array per argument; values may be NULL.",
            ) from None
        return self._fitted(result, len(columns[0]))

    def _fitted(self, result: object, rows: int) -> pa.Array:
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise self._wrong(f"a {type(result).__name__} and not an Arrow array", "Return pa.array(values).")
        if len(result) != rows:
            raise self._wrong(f"{len(result)} values for {rows} rows", "There must be a value, or NULL, for each row.")
        wanted = arrow_type(self.returns)
        if not _close(result.type, wanted):
            raise self._wrong(f"{result.type} and not {self.returns}", f"Cast it: pc.cast(result, {wanted}).")
        try:
            return result.cast(wanted)
        except pa.ArrowInvalid as error:
            raise self._wrong(f"a value that is no {self.returns}: {error}", "Cast it before you return it.") from None

    def _wrong(self, what: str, hint: str) -> QueryError:
        return QueryError(f"function {self.name} has returned {what}", code="function-result", hint=hint)


def _close(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a type differs in size only: Arrow's own functions are free with integers, decimals and texts."""
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date, pa.types.is_floating)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return (
        have == want
        or pa.types.is_null(have)
        or any(kind(have) and kind(want) for kind in kinds)
        or (any(text(have) for text in texts) and any(text(want) for text in texts))
    )


def user_functions(tree: object) -> dict[str, UserFunction]:
    """The functions of the user's that a plan calls, by name; a plan is a tree of dataclasses and tuples."""
    match tree:
        case UserFunction():
            return {tree.name: tree}
        case tuple() | list():
            below: list[object] = list(tree)
        case _ if is_dataclass(tree):
            below = [getattr(tree, each.name) for each in fields(tree)]
        case _:
            return {}
    return {name: found for part in below for name, found in user_functions(part).items()}
