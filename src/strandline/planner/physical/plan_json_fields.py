"""JSON forms of the fields of a plan, by their declared types.

    int, bool, str, None      themselves; a float is an int as written, or its bits in hexadecimal
    one of the tagged objects its number in the table of the plan
    tuple, frozenset, Mapping a list, a sorted list, an object
    types, functions, literals as in `plan_json_values`

Reading is the strict opposite: a value that writing would not have written is refused (`InvalidForm`). What is read
becomes an object of the declared type, and of no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from strandline.core.types import Type
from strandline.logical.udf import UserAggregate, UserFunction
from strandline.planner.physical.plan_json_values import (
    ArgumentForm,
    Form,
    FunctionForm,
    InvalidForm,
    Reading,
    TypeForm,
    ValueForm,
    read_float,
    read_list,
)
from strandline.planner.physical.tags import TAGS


class AnyValue:
    """Stands for the values of literals in declared types (`logical.expressions.Value`)."""


class AnyArgument:
    """Stands for the arguments of connectors in declared types (`logical.catalog.Argument`)."""


STANDINS: Final = {"Value": AnyValue, "Argument": AnyArgument}


def form_of(declared: Any) -> Form:
    """The form of the values of a declared type."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        some = tuple(kind for kind in arguments if kind is not NoneType)
        form = _Reference(frozenset(some)) if set(some) <= set(TAGS) else form_of(some[0])
        assert len(some) == 1 or isinstance(form, _Reference), f"a plan has no {declared}"
        return _Optional(form) if len(some) < len(arguments) else form
    if declared in TAGS:
        return _Reference(frozenset((declared,)))
    if origin is Literal:
        return _Choice(frozenset(arguments))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return _Tuple(form_of(arguments[0]))
        return _FixedTuple(tuple(form_of(argument) for argument in arguments))
    if declared == frozenset[str]:
        return _Names()
    if origin is not None and issubclass(origin, Mapping) and arguments[0] is str:
        return _Mapping(form_of(arguments[1]))
    return _FORMS[declared]


# ---- plain values and references -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plain(Form):
    kind: type

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) is self.kind, f"expected {self.kind.__name__}, found {value!r}"
        return value

    def read(self, form: Any, reading: Reading) -> Any:
        if type(form) is not self.kind:
            raise InvalidForm
        return form


class _Float(Form):
    """A float by its bits; whole numbers of statistics may be of type int."""

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) in (int, float), f"expected a number, found {value!r}"
        return value if type(value) is int else value.hex()

    def read(self, form: Any, reading: Reading) -> Any:
        return form if type(form) is int else read_float(form)


@dataclass(frozen=True, slots=True)
class _Choice(Form):
    choices: frozenset[str]

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert value in self.choices, f"expected one of {sorted(self.choices)}, found {value!r}"
        return value

    def read(self, form: Any, reading: Reading) -> Any:
        if type(form) is not str or form not in self.choices:
            raise InvalidForm
        return form


@dataclass(frozen=True, slots=True)
class _Reference(Form):
    """The number of an object, which must be read before: so there are no cycles."""

    kinds: frozenset[type]

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) in self.kinds, f"expected one of {self.kinds}, found {value!r}"
        return numbers[id(value)]

    def read(self, form: Any, reading: Reading) -> Any:
        if type(form) is not int or not 0 <= form < len(reading.objects):
            raise InvalidForm
        value = reading.objects[form]
        if type(value) not in self.kinds:
            raise InvalidForm
        reading.used[form] = 1
        return value


@dataclass(frozen=True, slots=True)
class _Optional(Form):
    form: Form

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        return None if value is None else self.form.write(value, numbers)

    def read(self, form: Any, reading: Reading) -> Any:
        return None if form is None else self.form.read(form, reading)


# ---- collections -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tuple(Form):
    item: Form

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) is tuple, f"expected a tuple, found {value!r}"
        return [self.item.write(item, numbers) for item in value]

    def read(self, form: Any, reading: Reading) -> Any:
        return tuple([self.item.read(item, reading) for item in read_list(form)])


@dataclass(frozen=True, slots=True)
class _FixedTuple(Form):
    items: tuple[Form, ...]

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) is tuple, f"expected a tuple, found {value!r}"
        return [form.write(item, numbers) for form, item in zip(self.items, value, strict=True)]

    def read(self, form: Any, reading: Reading) -> Any:
        forms = read_list(form, len(self.items))
        return tuple([item.read(each, reading) for item, each in zip(self.items, forms, strict=True)])


class _Names(Form):
    """A set of texts, in their order."""

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert type(value) is frozenset, f"expected a frozenset, found {value!r}"
        return sorted(value)

    def read(self, form: Any, reading: Reading) -> Any:
        names = read_list(form)
        if any(type(name) is not str for name in names) or sorted(set(names)) != names:
            raise InvalidForm
        return frozenset(names)


@dataclass(frozen=True, slots=True)
class _Mapping(Form):
    item: Form

    def write(self, value: Any, numbers: Mapping[int, int]) -> Any:
        assert all(type(name) is str for name in value), f"expected texts as names, found {value!r}"
        return {name: self.item.write(item, numbers) for name, item in value.items()}

    def read(self, form: Any, reading: Reading) -> Any:
        if type(form) is not dict or any(type(name) is not str for name in form):
            raise InvalidForm
        return {name: self.item.read(item, reading) for name, item in form.items()}


_FORMS: Final[dict[Any, Form]] = {
    int: _Plain(int),
    bool: _Plain(bool),
    str: _Plain(str),
    float: _Float(),
    Type: TypeForm(),
    UserFunction: FunctionForm(UserFunction),
    UserAggregate: FunctionForm(UserAggregate),
    AnyValue: ValueForm(),
    AnyArgument: ArgumentForm(),
}
