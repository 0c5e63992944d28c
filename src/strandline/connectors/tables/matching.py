"""Pairs of rows of a table and source rows, for MERGE."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from strandline.connectors.tables.content import TableContent, stack_rows
from strandline.logical.expressions import Call, ColumnRef, Expression, columns_of, conjuncts
from strandline.runtime.expressions.compile import evaluate_columns, filter_frame
from strandline.runtime.kernels.batch import Mask, gather

_PAIRS_AT_ONCE: Final = 2_000_000
_SOURCE: Final = "@source row"


def matching_pairs(content: TableContent, source: pl.DataFrame, condition: Expression) -> tuple[pl.DataFrame, Mask]:
    """The pairs for which a condition is true: rows of the table beside source rows; and which source rows have one."""
    numbered = source.with_row_index(_SOURCE)
    pairs = filter_frame(_candidates(content, numbered, condition), condition)
    is_matched = np.zeros(source.height, np.bool_)
    is_matched[pairs.get_column(_SOURCE).to_numpy()] = True
    return pairs.drop(_SOURCE), is_matched


def _candidates(content: TableContent, source: pl.DataFrame, condition: Expression) -> pl.DataFrame:
    """Pairs among which are all that satisfy a condition: by primary key, by equal values, or all pairs."""
    equal = _equalities(content, condition)
    if content.key and all(name in equal for name in content.key):
        keys = evaluate_columns(source, [(name, equal[name]) for name in content.key])
        present = keys.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
        numbers, rows = content.find(keys.filter(present))
        return rows.hstack(gather(source.filter(present), numbers))
    current = content.frame()
    if equal:
        values = [(f"@equal {name}", expression) for name, expression in equal.items()]
        beside = evaluate_columns(source, values, source.columns)
        names = [name for name, _ in values]
        left = current.with_columns(pl.col(name).alias(f"@equal {name}") for name in equal)
        return left.join(beside, on=names, how="inner").drop(names)
    return _all_pairs(current, source, condition)


def _all_pairs(current: pl.DataFrame, source: pl.DataFrame, condition: Expression) -> pl.DataFrame:
    """All pairs that satisfy a condition, a bounded number of them at a time."""
    step = max(1, _PAIRS_AT_ONCE // max(1, current.height))
    parts = [
        filter_frame(current.join(source.slice(begin, step), how="cross"), condition)
        for begin in range(0, source.height, step)
    ]
    return stack_rows(parts, dict(current.schema) | dict(source.schema))


def _equalities(content: TableContent, condition: Expression) -> dict[str, Expression]:
    """Columns of the table that a condition requires to equal an expression over the source alone, of the same type."""
    own = frozenset(content.columns)
    found: dict[str, Expression] = {}
    for conjunct in conjuncts(condition):
        if not isinstance(conjunct, Call) or conjunct.function != "=":
            continue
        for column, other in (conjunct.arguments, conjunct.arguments[::-1]):
            if not isinstance(column, ColumnRef) or column.id not in own or other.type != column.type:
                continue
            if not columns_of(other) & own:
                found.setdefault(column.id, other)
    return found
