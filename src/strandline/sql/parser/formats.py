"""Formats of times in other dialects, written as those of to_char: `%Y-%m-%d` and `yyyy-MM-dd` are `YYYY-MM-DD`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from strandline.core.errors import ParseError
from strandline.sql import ast

FORMATTERS: Final = ("strftime", "date_format", "format_timestamp", "format_datetime")

# Of C, Python, DuckDB and SQLite.
_PERCENT: Final = {
    "Y": "YYYY", "y": "YY", "m": "MM", "d": "DD", "H": "HH24", "I": "HH12", "M": "MI", "S": "SS", "f": "US", "p": "AM",
    "j": "DDD", "a": "Dy", "A": "FMDay", "b": "Mon", "B": "FMMonth", "u": "ID", "V": "IW", "G": "IYYY",
    "F": "YYYY-MM-DD", "T": "HH24:MI:SS", "R": "HH24:MI", "-d": "FMDD", "-m": "FMMM", "-H": "FMHH24",
}  # fmt: skip
# Of MySQL and Trino.
_MYSQL: Final = {**_PERCENT, "i": "MI", "s": "SS", "h": "HH12", "M": "FMMonth", "W": "FMDay", "c": "FMMM", "e": "FMDD",
                 "k": "FMHH24", "l": "FMHH12", "r": "HH12:MI:SS AM", "T": "HH24:MI:SS"}  # fmt: skip
# Of Java, and so of Spark and Flink.
_JAVA: Final = {
    "yyyy": "YYYY", "uuuu": "YYYY", "y": "YYYY", "yy": "YY", "MM": "MM", "M": "FMMM", "MMM": "Mon", "MMMM": "FMMonth",
    "dd": "DD", "d": "FMDD", "HH": "HH24", "H": "FMHH24", "hh": "HH12", "h": "FMHH12", "mm": "MI", "m": "FMMI",
    "ss": "SS", "s": "FMSS", "SSS": "MS", "SSSSSS": "US", "a": "AM", "E": "Dy", "EEE": "Dy", "EEEE": "FMDay",
    "DDD": "DDD", "D": "FMDDD", "Q": "Q", "u": "ID",
}  # fmt: skip
_TO_CHAR: Final = "Write to_char(ts, 'YYYY-MM-DD HH24:MI:SS')."


def to_char(call: ast.FunctionCall) -> ast.FunctionCall:
    """The call with its format in the words of to_char."""
    name = call.name.name.lower()
    arguments = () if isinstance(call.arguments, ast.Star) else call.arguments
    if len(arguments) == 2 and isinstance(arguments[0], ast.Text) and not isinstance(arguments[1], ast.Text):
        arguments = (arguments[1], arguments[0])  # SQLite and BigQuery have the format first
    if len(arguments) != 2 or not isinstance(arguments[1], ast.Text):
        raise ParseError(f"{name} needs an instant and a format", code="type-mismatch", hint=_TO_CHAR, span=call.span)
    moment, form = arguments
    assert isinstance(form, ast.Text)
    if "%" in form.value:
        words = _MYSQL if name == "date_format" else _PERCENT
        translated = _translated(form, r"%(-?.)|([^%]+)", words)
    else:
        translated = _translated(form, r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z']+)", _JAVA)
    renamed = replace(call.name, name="to_char")
    return replace(call, name=renamed, arguments=(moment, replace(form, value=translated)), written=name)


def _translated(form: ast.Text, pattern: str, words: Mapping[str, str]) -> str:
    parts = []
    for piece in re.finditer(pattern, form.value, re.DOTALL):
        text, code = piece.group(), piece.group().removeprefix("%")
        is_code = piece.group(1) is not None
        if is_code and text == "%%":
            parts.append("%")
        elif is_code and code in words:
            parts.append(words[code])
        elif is_code:
            hint = f"{text} has no counterpart here. {_TO_CHAR}"
            raise ParseError(f"unknown part {text} of the format", code="type-mismatch", hint=hint, span=form.span)
        else:
            literal = next(group for group in piece.groups()[1:] if group is not None)
            parts.append(_plain(literal.replace("''", "'") if text.startswith("'") else literal))
    return "".join(parts)


def _plain(text: str) -> str:
    """Text that to_char is to write as it is: letters would be a part of an instant."""
    return re.sub(r"[A-Za-z]+", lambda word: f'"{word.group()}"', text)
