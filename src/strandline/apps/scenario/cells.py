"""Cells of a scenario as values, and values as cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import polars as pl

from strandline.apps.scenario.text import ScenarioRow
from strandline.core.errors import ScenarioError
from strandline.core.types import Type
from strandline.functions.casts import cast_text
from strandline.logical.values import show

# In a form that can be compared: numbers with a point agree in twelve digits, arrays are their texts.
Values: TypeAlias = tuple[object, ...]


def values_of(row: Iterable[object], kinds: Sequence[Type]) -> Values:
    """A row of a result, for comparison."""
    return tuple(_comparable(value, kind) for value, kind in zip(row, kinds, strict=True))


def cells_of(row: ScenarioRow, kinds: Sequence[Type]) -> Values:
    """The row of a scenario, for comparison; cells that are not of their type are the user's mistake."""
    if len(row.cells) != len(kinds):
        raise ScenarioError(
            f"this row has {len(row.cells)} cells, the result has {len(kinds)} columns", code="scenario", span=row.span
        )
    return tuple(_value(row, cell, kind) for cell, kind in zip(row.cells, kinds, strict=True))


def _value(row: ScenarioRow, cell: str | None, kind: Type) -> object:
    if cell is None or kind.name == "ARRAY":
        return cell
    value = pl.DataFrame({"cell": [cell]}).select(cast_text(pl.col("cell"), kind)).to_series()[0]
    if value is None:
        raise ScenarioError(f"'{cell}' is not {kind}", code="scenario", span=row.span)
    return _comparable(value, kind)


def _comparable(value: object, kind: Type) -> object:
    if kind.name == "ARRAY" and value is not None:
        return _text(value)
    if isinstance(value, float):
        return float(f"{value:.12g}") if value == value else "NaN"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def show_values(values: Values, day: str | None) -> str:
    """Values as a line of a scenario that reads as the same values; times of its day without the day."""
    return " | ".join(_cell(value, day) for value in values)


def _cell(value: object, day: str | None) -> str:
    if isinstance(value, str):
        plain = value and value == value.strip() and value != "NULL" and not set(value) & set("'|\n#[")
        return value if plain and not value.startswith("--") else "'" + value.replace("'", "''") + "'"
    text = _text(value)
    return text.removeprefix(f"{day} ") if isinstance(value, datetime) else text


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return show(value)  # type: ignore[arg-type]  # what Arrow gives is what SQL has
