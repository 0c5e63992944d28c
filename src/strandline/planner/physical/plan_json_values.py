"""JSON forms of single values in a plan: types, functions, literals, arguments of connectors.

Type                      its text: "DECIMAL(10,2)", "INT[]"
a user-defined function   name, argument types, return type, and of an aggregate whether it has an inverse
literals, arguments       plain values as themselves, others with a word in front: ["decimal", "1.50"]
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, DecimalException
from functools import lru_cache
from typing import Any, Final

from strandline.core.errors import CheckpointError
from strandline.core.security.secret import Secret
from strandline.core.types import Type
from strandline.logical.udf import Definition, UserAggregate, UserFunction
from strandline.planner.physical.stored_sources import CONCEALED


class InvalidForm(Exception):
    """A JSON value that is not the form of anything in a plan."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What has been read so far: the objects of the table, which of them are used, and the registered functions."""

    functions: Mapping[str, Definition]
    objects: list[Any]
    used: bytearray


class Form(ABC):
    """The JSON form of values of a declared type. Law: read(write(x)) = x, and read accepts nothing else."""

    @abstractmethod
    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        """The form of a value; `numbers` has the numbers of objects by identity."""

    @abstractmethod
    def read(self, form: Any, reading: Reading) -> Any: ...


def read_list(form: Any, length: int | None = None) -> list[Any]:
    if type(form) is not list or (length is not None and len(form) != length):
        raise InvalidForm
    return form


# ---- types and functions ---------------------------------------------------------------------------------------------

# As deep as the parser nests at most.
_TYPE: Final = re.compile(
    r"(BOOLEAN|INT|BIGINT|DOUBLE|VARCHAR|DATE|TIMESTAMP|INTERVAL|NULL|DECIMAL\((\d{1,4}),(-?\d{1,4})\))((?:\[\]){0,100})",
    re.ASCII,
)


class TypeForm(Form):
    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        return _write_type(value)

    def read(self, form: Any, reading: Reading) -> Any:
        if type(form) is not str:
            raise InvalidForm
        return _read_type(form)


@lru_cache(maxsize=1024)
def _write_type(kind: Type) -> str:
    assert _read_type(str(kind)) == kind, f"the type {kind!r} is not what its text says"
    return str(kind)


@lru_cache(maxsize=1024)
def _read_type(text: str) -> Type:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise InvalidForm
    name, precision, scale, brackets = match.groups()
    kind = Type(name) if precision is None else Type("DECIMAL", int(precision), int(scale))
    for _ in range(len(brackets) // 2):
        kind = Type("ARRAY", element=kind)
    if str(kind) != text:  # zeros in front
        raise InvalidForm
    return kind


@dataclass(frozen=True, slots=True)
class FunctionForm(Form):
    """A user-defined function by name and types: what it does comes from those that are registered."""

    kind: type

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert isinstance(value, UserFunction | UserAggregate) and type(value) is self.kind, f"no function: {value!r}"
        types = [_write_type(kind) for kind in value.arguments], _write_type(value.returns)
        return [value.name, *types, *([value.inverse is not None] if isinstance(value, UserAggregate) else [])]

    def read(self, form: Any, reading: Reading) -> Any:
        name, arguments, returns, *inverse = read_list(form, 4 if self.kind is UserAggregate else 3)
        if type(name) is not str or any(type(each) is not bool for each in inverse):
            raise InvalidForm
        types = [TypeForm().read(kind, reading) for kind in (*read_list(arguments), returns)]
        # What was stored, as a definition that is only shown.
        stored = UserFunction(name, tuple(types[:-1]), types[-1], _never_called)
        shown = str(stored) if self.kind is UserFunction else f"aggregate {stored}{' WITH INVERSE' * any(inverse)}"
        actual = reading.functions.get(name)
        if actual is None:
            raise CheckpointError(
                f"function {name} is not registered",
                code="function-missing",
                detail=f"The checkpoint was made with {shown}.",
                hint="Register it before the queries are resumed, with db.function or db.aggregate.",
            )
        if type(actual) is not self.kind or str(actual) != shown:
            raise CheckpointError(
                f"function {name} has changed its types",
                code="function-changed",
                detail=f"The checkpoint was made with {shown}; registered is {actual}.",
                hint="Register it with the types of the checkpoint, and the new one by another name.",
            )
        return actual


def _never_called() -> None:
    raise AssertionError("a stored function has no body")


# ---- literals and arguments ------------------------------------------------------------------------------------------


class ValueForm(Form):
    """The value of a literal. NaN comes back as NaN, which does not equal itself."""

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return ["float", value.hex()]
            case Decimal():
                return ["decimal", str(value)]
            case datetime():
                return ["timestamp", value.isoformat()]
            case date():
                return ["date", value.isoformat()]
            case tuple():
                return ["array", *(self.write(item, numbers) for item in value)]
        raise AssertionError(f"a literal has no {type(value)}")

    def read(self, form: Any, reading: Reading) -> Any:
        if form is None or type(form) in (bool, int, str):
            return form
        match read_list(form):
            case ["float", text]:
                return read_float(text)
            case ["decimal", str(text)]:
                return _read_exactly(text, Decimal, str)
            case ["timestamp", str(text)]:
                moment = _read_exactly(text, datetime.fromisoformat, datetime.isoformat)
                if moment.tzinfo is None:
                    return moment
            case ["date", str(text)]:
                return _read_exactly(text, date.fromisoformat, date.isoformat)
            case ["array", *items]:
                return tuple([self.read(item, reading) for item in items])
        raise InvalidForm


class ArgumentForm(Form):
    """An argument of a connector. A secret is a reference: literal ones are not stored (`stored_sources`)."""

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return ["float", value.hex()]
            case Secret():
                assert value.origin != "text" or value == CONCEALED, "a literal secret is not stored"
                return ["secret", value.origin, value.name]
            case list():
                return ["list", *(self.write(item, numbers) for item in value)]
        raise AssertionError(f"a connector has no argument of {type(value)}")

    def read(self, form: Any, reading: Reading) -> Any:
        if form is None or type(form) in (bool, int, str):
            return form
        match read_list(form):
            case ["float", text]:
                return read_float(text)
            case ["secret", "env" | "file" | "text" as origin, str(name)] if (origin == "text") == (name == ""):
                return Secret(origin, name)
            case ["list", *items]:
                values = [self.read(item, reading) for item in items]
                if CONCEALED not in values:  # a whole argument is concealed, never a part of it
                    return values
        raise InvalidForm


def read_float(form: Any) -> float:
    if type(form) is not str:
        raise InvalidForm
    return float(_read_exactly(form, float.fromhex, float.hex))


def _read_exactly(text: str, parse: Any, show: Any) -> Any:
    """A value by its text, if that is the one text that it is written as."""
    try:
        value = parse(text)
    except (ValueError, OverflowError, DecimalException):
        raise InvalidForm from None
    if show(value) != text:
        raise InvalidForm
    return value
