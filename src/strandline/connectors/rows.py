"""Rows that a program gives: tuples, dicts, and tables of Arrow, Polars and pandas, as one Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from strandline.core.errors import SourceError
from strandline.logical.expressions import Value


def to_table(
    rows: Any,
    names: Sequence[str],
    unfit: Callable[[str], SourceError],
    defaults: Mapping[str, Value] | None = None,
    *,
    is_partial: bool = False,
) -> pa.Table:
    """Convert rows to a table with the given columns, in their order; `unfit` makes the error for others.

    What a dict leaves out has its default, or is NULL. A frame has all columns, or all but some of those with
    `defaults` if it `is_partial`. Types are not checked here: values are converted to the declared ones where the rows
    are used.
    """
    defaults = defaults or {}
    optional = defaults if is_partial else {}
    match rows:
        case pa.Table():
            table = rows
        case pa.RecordBatch():
            table = pa.Table.from_batches([rows])
        case pl.DataFrame():
            table = rows.to_arrow()
        case Mapping():
            return to_table([rows], names, unfit, defaults)
        case [Mapping(), *_] if all(isinstance(row, Mapping) for row in rows):
            if others := {name for row in rows for name in row} - set(names):
                raise unfit(f"unknown columns: {', '.join(sorted(others))}")
            table = _of_columns({name: [row.get(name, defaults.get(name)) for row in rows] for name in names})
        case _ if hasattr(rows, "__dataframe__"):  # pandas and its relatives
            table = _of_dataframe(rows, unfit)
        case [*_]:
            for number, row in enumerate(rows, 1):
                if not isinstance(row, list | tuple) or len(row) != len(names):
                    raise unfit(f"row {number} is not a tuple of {len(names)} values")
            table = _of_columns({name: [row[index] for row in rows] for index, name in enumerate(names)})
        case _:
            raise unfit(f"a value of type {type(rows).__name__} is not a table")
    missing = [name for name in names if name not in table.column_names]
    columns = {
        "missing": [name for name in missing if name not in optional],
        "unknown": [name for name in table.column_names if name not in names],
    }
    if any(columns.values()):
        raise unfit("; ".join(f"{what} columns: {', '.join(some)}" for what, some in columns.items() if some))
    for name in missing:
        table = table.append_column(name, pa.repeat(optional[name], table.num_rows))
    return table.select(names)


def _of_columns(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Values of several kinds in one column: as texts, each is converted alone.
        return pa.table({n: pa.array([None if v is None else str(v) for v in vs]) for n, vs in columns.items()})


def _of_dataframe(rows: Any, unfit: Callable[[str], SourceError]) -> pa.Table:
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise unfit(f"a value of type {type(rows).__name__} is not a table ({error})") from None
