"""Small tables that statements such as SHOW return: in the forms of a query's results, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import polars as pl
import pyarrow as pa

from strandline.core.arguments import bad_argument
from strandline.core.errors import printable
from strandline.core.foreign_methods import refuse_foreign_method

Form = Literal["arrow", "pandas", "polars"]


def in_form(table: pa.Table, form: Form) -> Any:
    """A table in the requested format."""
    match form:
        case "arrow":
            return table
        case "pandas":
            return table.to_pandas()
        case "polars":
            return pl.from_arrow(table)
    raise bad_argument("results", "form", form, Form)


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of texts and numbers; printed, a table with a line per row."""

    table: pa.Table
    note: str | None = None  # a line below the rows

    @staticmethod
    def of(columns: Mapping[str, pa.DataType], rows: Sequence[Sequence[object]]) -> TextTable:
        schema = pa.schema(list(columns.items()))
        by_column = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        return TextTable(pa.table([pa.array(c, f.type) for c, f in zip(by_column, schema, strict=True)], schema=schema))

    @staticmethod
    def text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
        return TextTable.of(dict.fromkeys(columns, pa.string()), rows)

    def results(self, form: Form = "arrow") -> Any:
        return in_form(self.table, form)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_foreign_method(self, name)

    def __str__(self) -> str:
        cells = [[_cell(name) for name in self.table.column_names]]
        cells += [[_cell(value) for value in row.values()] for row in self.table.to_pylist()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
        shown = [line.rstrip() for line in lines]
        return "\n".join(shown if self.note is None else [*shown, "", self.note])


def _cell(value: object) -> str:
    # A query may be written over many lines; in a table it has one.
    return "" if value is None else printable(" ".join(str(value).split()))
