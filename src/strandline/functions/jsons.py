"""JSON in texts: what stands at a path.

A path is `$`, then `.key`, `."any key"`, `['any key']` or `[n]`, counted from 0, or from the end if negative. It is
a literal. A text that is no JSON has nothing at any path. Of a key that occurs twice in an object the last counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from strandline.core.lazy import pl
from strandline.core.types import INT, VARCHAR, array_of
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import Function, FunctionError, fixed
from strandline.logical.expressions import Call, Expression, Literal
from strandline.runtime.kernels.columns import mapped

Steps: TypeAlias = tuple[str | int, ...]

_STEP: Final = re.compile(
    r"""\.([^\W\d][\w$-]*)|\."((?:[^"\\]|\\.)*)"|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\[(-?[0-9]{1,9})\]"""
)
_PATH_HINT: Final = "Write a path like '$.user.tags[0]'."


def steps_of(path: str) -> Steps | None:
    """The keys and positions of a path; None if it is none."""
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        *keys, position = match.groups()
        key = next((key for key in keys if key is not None), None)
        steps.append(int(position) if key is None else re.sub(r"\\(.)", r"\1", key))
        at = match.end()
    return tuple(steps)


def path_of(steps: Steps) -> str:
    """The path with these keys and positions, as text."""
    shown = (f"[{s}]" if isinstance(s, int) else '."' + re.sub(r'(["\\])', r"\\\1", s) + '"' for s in steps)
    return "$" + "".join(shown)


def _check_path(name: str) -> Callable[[Sequence[Expression]], None]:
    def check(arguments: Sequence[Expression]) -> None:
        if len(arguments) == 1:
            return
        match arguments[1]:
            case Literal(str(path), _):
                if steps_of(path) is None:
                    raise FunctionError(f"'{path}' is not a path of {name}", _PATH_HINT, 1)
            case _:
                raise FunctionError(f"the path of {name} must be a text literal", _PATH_HINT, 1)

    return check


def _steps(call: Call) -> Steps | None:
    """The steps of a call; None for a path that is NULL."""
    if len(call.arguments) == 1:
        return ()
    path = call.arguments[1]
    assert isinstance(path, Literal), "the path is checked when the query is bound"
    return None if path.value is None else steps_of(str(path.value))


# ---- meaning ---------------------------------------------------------------------------------------------------------


class _Number(str):
    """A number as it is written: no digit is lost."""

    __slots__ = ()


_MISSING: Final = object()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_refuse)


def _at(text: str, steps: Steps) -> Any:
    try:
        value = _DECODER.decode(text.strip(" \t\n\r"))
    except (ValueError, RecursionError):
        return _MISSING
    for step in steps:
        is_key = isinstance(step, str) and isinstance(value, dict) and step in value
        if not is_key and not (isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value)):
            return _MISSING
        value = value[step]
    return value


def _as_json(value: Any) -> str:
    """Compact, and numbers as they are written."""
    match value:
        case _Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{_as_json(key)}:{_as_json(part)}" for key, part in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _as_text(value: Any) -> str | None:
    if value is None or value is _MISSING:
        return None
    text = str(value) if isinstance(value, str) else _as_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which stands for no character
        return None
    return text


def _extract(text: str, steps: Steps) -> str | None:
    value = _at(text, steps)
    return None if value is _MISSING else _as_text(_Number(_as_json(value)))


def _extract_text(text: str, steps: Steps) -> str | None:
    return _as_text(_at(text, steps))


def _value(text: str, steps: Steps) -> str | None:
    value = _at(text, steps)
    return None if isinstance(value, dict | list) else _as_text(value)


def _elements(text: str, steps: Steps) -> tuple[str | None, ...] | None:
    value = _at(text, steps)
    return tuple(map(_as_text, value)) if isinstance(value, list) else None


def _length(text: str, steps: Steps) -> int | None:
    value = _at(text, steps)
    return len(value) if isinstance(value, list) else None


def _keys(text: str, steps: Steps) -> tuple[str | None, ...] | None:
    value = _at(text, steps)
    return tuple(map(_as_text, value)) if isinstance(value, dict) else None


# ---- over columns ----------------------------------------------------------------------------------------------------


def _by_distinct_texts(meaning: Callable[[str, Steps], Any], kind: Any) -> Callable[..., pl.Expr]:
    """Each different text is read once: no library reads JSON over columns and keeps the digits of numbers."""

    def columns(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
        steps = _steps(call)
        return pl.lit(None) if steps is None else mapped(text, lambda texts: _read(texts, meaning, steps), kind)

    def _read(texts: pl.Series, meaning: Callable[[str, Steps], Any], steps: Steps) -> pl.Series:
        from strandline.runtime.kernels.columns import polars_type

        different = texts.unique(maintain_order=True)
        values = [None if text is None else meaning(text, steps) for text in different]
        read = pl.Series(values, dtype=polars_type(kind))
        places = texts.to_frame("text").join(
            different.to_frame("text").with_row_index("place"), on="text", nulls_equal=True, maintain_order="left"
        )
        return read.gather(places.get_column("place"))

    return columns


# Of what Polars finds, this may be a number with other digits or an object with other blanks: it is read again.
_DOUBTFUL: Final = r"^[\[{]|^-?[0-9].*[.eE]|^-?[0-9]{16}"


def _text_columns(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    """Texts, truth values and small numbers are found by Polars, over columns; the rest is read value by value."""
    steps = _steps(call)
    meaning = _value if call.function == "json_value" else _extract_text
    slow = _by_distinct_texts(meaning, VARCHAR)(call, text)
    if not steps or any(isinstance(step, str) and not step.replace("_", "").isalnum() for step in steps):
        return slow
    path = "$" + "".join(f"[{s}]" if isinstance(s, int) else f"['{s}']" for s in steps)
    if any(isinstance(step, int) and step < 0 for step in steps):
        return slow

    def read(texts: pl.Series) -> pl.Series:
        found = texts.str.json_path_match(path)
        is_doubtful = found.str.contains(_DOUBTFUL).fill_null(False)
        missing = found.is_null() & texts.is_not_null()
        if missing.any():  # nothing is there, or the text is one that only the other reader accepts
            is_doubtful = is_doubtful | (missing & texts.str.json_path_match("$").is_null())
        if not is_doubtful.any():
            return found
        again = texts.filter(is_doubtful)
        values = pl.Series([meaning(text, steps) for text in again], dtype=pl.String)
        return found.scatter(is_doubtful.arg_true(), values)

    return mapped(text, read, VARCHAR)


# ---- how databases write it ------------------------------------------------------------------------------------------


@lru_cache(256)
def _duckdb_path(steps: Steps) -> str:
    shown = (f"[{'#' if s < 0 else ''}{s}]" if isinstance(s, int) else f'."{s}"' for s in steps)
    return "$" + "".join(shown)


def _duckdb(template: str) -> Callable[[SqlCall], str]:
    def spelled(call: SqlCall) -> str:
        steps = _steps(call.expression)
        if steps is None:
            return call.null
        document = f"CASE WHEN json_valid({call.arguments[0]}) THEN {call.arguments[0]} END"
        return template.format(document, call.quote(_duckdb_path(steps)), t=call.result_type)

    return spelled


def _postgresql(helper: str) -> Callable[[SqlCall], str]:
    def spelled(call: SqlCall) -> str:
        steps = _steps(call.expression)
        if steps is None:
            return call.null
        listed = ", ".join(call.quote(str(step)) for step in steps)
        return f"{call.helper_prefix}{helper}({call.arguments[0]}, CAST(ARRAY[{listed}] AS text[]))"

    return spelled


# ---- declarations ----------------------------------------------------------------------------------------------------


def _function(
    name: str, doc: str, meaning: Callable[[str, Steps], Any], duckdb: str, helper: str, *aliases: str,
    columns: Callable[..., pl.Expr] | None = None, kind: Any = VARCHAR, least: int = 1,
) -> Function:  # fmt: skip
    usage = f"{name}(j, '$.path')" if least == 2 else f"{name}(j[, '$.path'])"
    return Function(
        name, usage, doc, least, 2, fixed(kind, VARCHAR, VARCHAR),
        lambda text, path="$": meaning(text, steps_of(path) or ()), columns or _by_distinct_texts(meaning, kind),
        check=_check_path(name), duckdb=_duckdb(duckdb), postgresql=_postgresql(helper), cost=2_000,
        aliases=aliases)  # fmt: skip


FAMILY: Final = (
    _function("json_extract", "What stands at a path, as JSON; also j -> 'key', j -> 0 and j #> '{a,b}'.", _extract,
              "CAST(json_extract({0}, {1}) AS VARCHAR)", "json_at", "json_query", least=2),
    _function("json_extract_string",
              "The same as text: of a text its characters, of null NULL; also j ->> 'key' and j #>> '{a,b}'.",
              _extract_text, "json_extract_string({0}, {1})", "json_text_at", "get_json_object",
              columns=_text_columns, least=2),
    _function("json_value", "The same of texts, numbers and truth values only; of an object or an array NULL.", _value,
              "CASE WHEN json_type({0}, {1}) NOT IN ('OBJECT', 'ARRAY') THEN json_extract_string({0}, {1}) END",
              "json_value_at", "json_extract_scalar", columns=_text_columns, least=2),
    _function("json_array_length", "How many elements the JSON array at a path has.", _length,
              "CASE WHEN json_type({0}, {1}) = 'ARRAY' THEN CAST(json_array_length({0}, {1}) AS {t}) END",
              "json_length_at", kind=INT),
    _function("json_elements", "The elements of the JSON array at a path, as an array of texts.", _elements,
              "CASE WHEN json_type({0}, {1}) = 'ARRAY' THEN list_transform(CAST(json_extract({0}, {1}) AS JSON[]), "
              "lambda e: json_extract_string(e, '$')) END", "json_elements_at", kind=array_of(VARCHAR)),
    _function("json_keys", "The keys of the JSON object at a path, as an array.", _keys,
              "CASE WHEN json_type({0}, {1}) = 'OBJECT' THEN CAST(json_keys({0}, {1}) AS VARCHAR[]) END",
              "json_keys_at", "json_object_keys", kind=array_of(VARCHAR)),
)  # fmt: skip
