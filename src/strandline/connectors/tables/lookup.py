"""Access paths of a predicate: by the primary key where it names keys, else by looking at all rows."""

from __future__ import annotations

from itertools import product
from typing import Final

import polars as pl

from strandline.connectors.tables.content import TableContent
from strandline.core.types import is_integer
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    UserCall,
    Value,
    children,
    columns_of,
    conjuncts,
)
from strandline.runtime.expressions.compile import filter_frame

MOST_KEYS: Final = 10_000  # combinations of listed values that are looked up
_RANGES: Final = {"INT": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1)}


def matching_rows(content: TableContent, predicate: Expression | None) -> pl.DataFrame:
    """The rows for which a predicate is true; none means all."""
    if predicate is None:
        return content.frame()
    keys = listed_keys(content, predicate)
    if keys is None:
        return content.scan(predicate)
    return filter_frame(content.find(keys)[1], predicate)


def listed_keys(content: TableContent, predicate: Expression) -> pl.DataFrame | None:
    """The primary keys outside of which a predicate is never true; None if it does not name them.

    A conjunct `column = constant` or `column IN (constants)` for each column of the key names them. Constants must have
    the type of the column, or be integers like it: other values might be equal and have another hash.
    """
    values: dict[str, list[Value]] = {}
    for conjunct in conjuncts(predicate):
        if (listed := _listed_values(conjunct)) is not None:
            values.setdefault(*listed)
    if not content.key or any(name not in values for name in content.key):
        return None
    count = 1
    for name in content.key:
        count *= len(values[name])
    if count > MOST_KEYS:
        return None
    rows = list(product(*(values[name] for name in content.key)))
    schema = {name: content.schema[name] for name in content.key}
    return pl.DataFrame(rows, schema=schema, orient="row").unique(maintain_order=True)


def _listed_values(conjunct: Expression) -> tuple[str, list[Value]] | None:
    """The column of `column = constant` or `column IN (constants)`, and the values other than NULL."""
    if not isinstance(conjunct, Call) or conjunct.function not in ("=", "in"):
        return None
    column, *others = conjunct.arguments
    if conjunct.function == "=" and not columns_of(column):
        column, others = others[0], [column]
    if isinstance(column, Cast) and is_integer(column.type) and is_integer(column.operand.type):
        column = column.operand  # an INT that is compared with a BIGINT
    if not isinstance(column, ColumnRef):
        return None
    kind = column.type
    same = (other.type == kind or (is_integer(other.type) and is_integer(kind)) for other in others)
    if not all(same) or any(columns_of(other) or not _is_stable(other) for other in others):
        return None
    values = (evaluate(other, {}) for other in others)
    low, high = _RANGES.get(kind.name, (None, None))
    return column.id, [v for v in values if v is not None and (low is None or low <= v <= high)]  # type: ignore[operator]


def _is_stable(expression: Expression) -> bool:
    """True if an expression is no call of a user's function, which may have any value each time."""
    return not isinstance(expression, UserCall) and all(map(_is_stable, children(expression)))
