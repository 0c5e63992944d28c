"""Arguments of Python calls, checked against their annotations before anything else happens.

`checked` wraps a public function or method: a value that its annotation does not allow, or an argument that it does not
have, is an `ArgumentError` with a hint and not an error from the depths. Ranges are checked by `require_range`,
instants by `parse_instant`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, ParamSpec, TypeVar

from strandline.core.errors import ArgumentError
from strandline.core.temporal import Instant, instant

P = ParamSpec("P")
R = TypeVar("R")

_FIELDS: Final[dict[type, dict[str, object]]] = {}  # annotations of dataclasses
_WORDS: Final[dict[object, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    os.PathLike: "a path",
    datetime: "a datetime",
}


def checked(name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function by its annotations; `name` is what its users call it."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called, signature = name or function.__name__, inspect.signature(function)

        @functools.cache
        def allowed() -> dict[str, object]:
            return _resolve(function.__module__, signature)

        @functools.wraps(function)
        def check(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise _unfit_call(called, signature, kwargs, error) from None
            for argument, annotation in allowed().items():
                if argument in bound.arguments and not _fits(bound.arguments[argument], annotation):
                    raise bad_argument(called, argument, bound.arguments[argument], annotation)
            return function(*args, **kwargs)

        return check

    return decorate


def check_fields(value: Any) -> None:
    """The same for the fields of a dataclass, from its `__post_init__`."""
    kind = type(value)
    if kind not in _FIELDS:
        _FIELDS[kind] = _resolve(kind.__module__, inspect.signature(kind))
    for name, annotation in _FIELDS[kind].items():
        if not _fits(getattr(value, name), annotation):
            raise bad_argument(kind.__name__, name, getattr(value, name), annotation)


def bad_argument(called: str, argument: str, value: object, annotation: object) -> ArgumentError:
    """The error of a value that its annotation does not allow."""
    choices = _choices(annotation)
    shown = f'"{value}"' if isinstance(value, str) else _show(value)
    hint = None
    if choices and isinstance(value, str):
        near = difflib.get_close_matches(value.lower(), choices, n=1)
        hint = f'Did you mean "{near[0]}"?' if near else f"Write {argument}={choices[0]!r}."
    hint = hint or f"Pass {describe(annotation)}: {called}({argument}=…)."
    message = f"{argument} of {called}() must be {describe(annotation)}, not {shown}"
    return ArgumentError(message, code="bad-argument", hint=hint)


def refuse_text(called: str, value: object, instead: str) -> None:
    """Refuse a text where the call takes what was read from one; `instead` is the call for texts."""
    if isinstance(value, str):
        raise ArgumentError(f"{called}() takes no text", code="bad-argument", hint=f"Write {instead}.")


def require_range(
    called: str, argument: str, value: float | None, least: float, most: float | None = None, *, excluded: bool = False
) -> None:
    """Refuse a number outside of its range; with `excluded` the least value itself is outside, too."""
    if value is None or ((least < value if excluded else least <= value) and (most is None or value <= most)):
        return  # NaN is in no range
    bound = f"more than {least:g}" if excluded else f"at least {least:g}"
    upper = "" if most is None else f" and at most {most:g}"
    raise ArgumentError(
        f"{argument} of {called}() must be {bound}{upper}, not {value}",
        code="bad-argument",
        hint=f"Pass a number in that range: {called}({argument}={max(least, 1):g}).",
    )


def require_name(called: str, argument: str, value: str, names: Iterable[str], *, what: str) -> str:
    """One of some names, upper and lower case being one; else an error that shows the nearest."""
    by_lower = {name.lower(): name for name in names}
    if (found := by_lower.get(value.lower())) is not None:
        return found
    near = difflib.get_close_matches(value.lower(), by_lower, n=1)
    listed = f"There {'are' if len(by_lower) > 1 else 'is'} {', '.join(by_lower.values()) or 'none'}."
    hint = f'Did you mean "{by_lower[near[0]]}"?' if near else listed
    raise ArgumentError(f'{argument} of {called}(): {what} "{value}"', code="unknown-name", hint=hint)


def parse_instant(called: str, argument: str, value: datetime | str | int) -> Instant:
    """An instant as users write it."""
    try:
        at = instant(value)
        if -(2**63) <= at < 2**63:
            return at
    except (ValueError, OverflowError, TypeError):
        pass
    raise ArgumentError(
        f"{argument} of {called}() is no instant: {_show(value)}",
        code="bad-instant",
        hint="Pass a datetime, a text such as '2024-01-01 09:30:00', or microseconds since 1970.",
    )


# ---- annotations -----------------------------------------------------------------------------------------------------


def _resolve(module: str, signature: inspect.Signature) -> dict[str, object]:
    """The annotations of the parameters, as far as they are known when the program runs."""
    names = {**vars(typing), **sys.modules[module].__dict__}
    resolved: dict[str, object] = {}
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or annotation is parameter.empty:
            continue
        try:
            resolved[name] = eval(annotation, names) if isinstance(annotation, str) else annotation
        except (NameError, AttributeError, TypeError):  # what only the type checker imports
            continue
    return resolved


def _fits(value: object, annotation: object) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, TypeVar | ParamSpec):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in arguments)
    if origin is Literal:
        return isinstance(value, str | int) and value in arguments
    kind = origin or annotation
    if kind is None:
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    if not isinstance(kind, type):
        return callable(value) if kind is Callable else True
    if kind is typing.TextIO:  # no class of files inherits from it
        return callable(getattr(value, "write", None))
    if not isinstance(value, kind) or (isinstance(value, str | bytes) and kind in (Sequence, Collection, Iterable)):
        return False
    return _items_fit(value, kind, arguments)


def _items_fit(value: object, kind: type, arguments: tuple[object, ...]) -> bool:
    """Whether the items of a collection are of its item type; iterables are not read for that."""
    if isinstance(value, Mapping) and len(arguments) == 2:
        return all(_fits(key, arguments[0]) and _fits(item, arguments[1]) for key, item in value.items())
    if isinstance(value, Sequence | set | frozenset) and kind is not str and len(arguments) == 1:
        return all(_fits(item, arguments[0]) for item in value)
    if isinstance(value, tuple) and kind is tuple and arguments[1:] == (...,):
        return all(_fits(item, arguments[0]) for item in value)
    return True


def describe(annotation: object) -> str:
    """What an annotation allows, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = list(dict.fromkeys(map(describe, arguments)))
        return ", ".join(parts[:-1]) + f" or {parts[-1]}" if len(parts) > 1 else parts[0]
    if origin is Literal:
        shown = [f'"{choice}"' for choice in arguments]
        return ", ".join(shown[:-1]) + f" or {shown[-1]}" if len(shown) > 1 else shown[0]
    kind = origin or annotation
    if annotation is None or kind in _WORDS:
        return _WORDS[type(None) if annotation is None else kind]
    if kind is Callable:
        return "a function"
    if kind is typing.TextIO:
        return "a text file"
    if kind in (Sequence, Iterable, Collection, list, tuple, set):
        return f"a list of {_plural(arguments[0])}" if arguments and arguments[0] is not Any else "a list"
    if kind is Mapping:
        return f"a dict of {_plural(arguments[1])} by name" if arguments and arguments[1] is not Any else "a dict"
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _plural(annotation: object) -> str:
    return describe(annotation).removeprefix("a ") + "s" if annotation in _WORDS else "values"


def _choices(annotation: object) -> list[str]:
    if typing.get_origin(annotation) is Literal:
        return [choice for choice in typing.get_args(annotation) if isinstance(choice, str)]
    return [choice for part in typing.get_args(annotation) for choice in _choices(part)]


def _show(value: object) -> str:
    """A value as one short word or so: it may be a table of a million rows, or a secret."""
    if value is None or isinstance(value, bool | int | float | str):
        shown = repr(value)
        return shown if len(shown) <= 60 else f"{shown[:59]}…"
    name = type(value).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _unfit_call(
    called: str, signature: inspect.Signature, keywords: Mapping[str, object], error: TypeError
) -> ArgumentError:
    """An argument that is missing, that there is not, or one too many."""
    names = [name for name in signature.parameters if name != "self"]
    listed = f"Its arguments are {', '.join(names)}." if names else "It has no argument."
    for keyword in keywords:
        if keyword not in names:
            near = difflib.get_close_matches(keyword, names, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else listed
            return ArgumentError(f'{called}() has no argument "{keyword}"', code="bad-argument", hint=hint)
    return ArgumentError(f"{called}(): {error}", code="bad-argument", hint=listed)
