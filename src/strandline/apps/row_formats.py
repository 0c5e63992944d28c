"""Rows of results as text: tables for people, CSV and JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import polars as pl
import pyarrow as pa
from rich.text import Text

from strandline.apps.display import Clock, Head, Layout, Row, expanded_lines, lay_out, show_value, table_lines
from strandline.core.errors import StrandlineError, one_line
from strandline.core.temporal import FOREVER, Instant
from strandline.runtime.result import VALID_FROM, VALID_UNTIL

RowFormat: TypeAlias = Literal["table", "csv", "json", "parquet"]
FORMATS: Final[tuple[RowFormat, ...]] = get_args(RowFormat)
TIME, CHANGE = "time", "change"  # columns of the changes of a result
_ISO: Final = "%Y-%m-%dT%H:%M:%S%.6f"


def parse_format(word: str, allowed: Sequence[RowFormat] = FORMATS) -> RowFormat:
    for each in allowed:
        if word.lower() == each:
            return each
    listed = f"{', '.join(allowed[:-1])} and {allowed[-1]}"
    raise StrandlineError(f'unknown format "{word}"', code="usage", hint=f"Formats are {listed}.")


def to_csv(table: pa.Table, header: bool = True) -> str:
    """Lines of CSV: times in ISO 8601, arrays as JSON, nothing for NULL."""
    frame = _with_text_times(table)
    arrays = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(_array_texts(frame, name) for name in arrays).write_csv(include_header=header)


def to_json_lines(table: pa.Table, query: str | None = None) -> str:
    """An object for each row, on its own line: times in ISO 8601, DECIMALs as texts, so that none loses a digit."""
    frame = _with_text_times(table)
    if query is not None:
        frame = frame.select(pl.lit(query).alias("query"), pl.all())
    return frame.write_ndjson()


def _with_text_times(table: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    kinds = {name: kind for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)}
    return frame.with_columns(
        pl.col(name).dt.strftime(_ISO + ("Z" if kind.time_zone else "")) for name, kind in kinds.items()
    )


def _array_texts(frame: pl.DataFrame, name: str) -> pl.Series:
    lines = frame.select(pl.col(name).alias("array")).write_ndjson().splitlines()
    texts = [line.removeprefix('{"array":').removesuffix("}") for line in lines]
    return pl.Series(name, [None if text == "null" else text for text in texts], pl.String)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows as texts with their heads: an element has its validity as the last column, a change its sign and time as the
    first."""

    heads: list[Head]
    rows: list[Row]

    def lines(self, width: int | None, expand: bool) -> tuple[list[Text], Layout]:
        """The lines of a table, and its layout; expanded, a line for each value."""
        layout = lay_out(self.heads, self.rows, None if expand else width)
        shown = expanded_lines(self.heads, self.rows) if expand else table_lines(self.heads, self.rows, layout)
        return list(shown), layout


def show_elements(table: pa.Table, clock: Clock) -> TextRows:
    """Rows of a result with the intervals in which they are valid."""
    intervals = list(zip(_instants(table, VALID_FROM), _instants(table, VALID_UNTIL), strict=True))
    clock.include(intervals)
    heads = [*_heads(table.schema, table.num_columns - 2), Head(f"valid{clock.day}", fixed=True)]
    rows = [
        Row([*values, clock.interval(start, end)])
        for values, (start, end) in zip(_cells(table, table.num_columns - 2), intervals, strict=True)
    ]
    return TextRows(heads, rows)


def show_changes(table: pa.Table, clock: Clock) -> TextRows:
    """Changes of a result, each with its sign and time."""
    times, count = _instants(table, TIME), table.num_columns - 2
    clock.include((time, time + 1) for time in times)
    heads = [Head("", fixed=True), Head(f"time{clock.day}", fixed=True), *_heads(table.schema, count)]
    changes = table.column(table.num_columns - 1).to_pylist()
    rows = [
        Row([show_sign(change), clock.show(time), *values], "green" if change > 0 else "red")
        for values, time, change in zip(_cells(table, count), times, changes, strict=True)
    ]
    return TextRows(heads, rows)


def show_rows(table: pa.Table) -> TextRows:
    """Rows without a time: those of one instant."""
    return TextRows(
        _heads(table.schema, table.num_columns), [Row(values) for values in _cells(table, table.num_columns)]
    )


def show_sign(change: int) -> str:
    """`+`, `-`, or with a number where several equal rows come or go at an instant."""
    return ("+" if change > 0 else "-") + (f"{abs(change)}" if abs(change) > 1 else "")


def _heads(schema: pa.Schema, count: int) -> list[Head]:
    return [Head(one_line(field.name), _is_number(field.type)) for field in list(schema)[:count]]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cells(table: pa.Table, count: int) -> Iterator[list[str | None]]:
    if not count:
        return iter([[] for _ in range(table.num_rows)])
    columns = [[None if v is None else show_value(v) for v in c.to_pylist()] for c in table.columns[:count]]
    return map(list, zip(*columns, strict=True))


def _instants(table: pa.Table, column: str) -> list[Instant]:
    """The instants of a column; an element without an end never expires."""
    # The last columns are ours; a column of the query may have the same name.
    position = max(number for number, name in enumerate(table.column_names) if name == column)
    return table.column(position).cast(pa.int64()).fill_null(FOREVER).to_pylist()  # type: ignore[no-any-return]
