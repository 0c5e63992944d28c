"""Windows as table functions in the SQL of an oracle: the rows that a finished window holds, and its bounds, by the
instant at hand; the rows of a session at the instant at which it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from strandline.apps.verify import sql_text
from strandline.apps.verify.dataset import Times
from strandline.apps.verify.sql_text import FromText
from strandline.core.types import BIGINT, TIMESTAMP, Column
from strandline.logical.expressions import ColumnRef
from strandline.sql import ast
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.binder.windows import as_timestamp

if TYPE_CHECKING:
    from strandline.apps.verify.translate import Translation


def window_table(translation: Translation, table: ast.WindowTable) -> FromText:
    """The rows with their bounds."""
    size, step = table.size.microseconds, table.step.microseconds
    if table.kind == "SESSION":
        held = ast.SessionWindow(table.partition, table.size, span=table.span)
        before = replace(translation, now=f"({translation.now} - 1)")
        rows = before.table(replace(table.source, window=held))
    else:
        window = ast.RangeWindow(table.size, table.step, (), table.offset % step, span=table.span)
        rows = translation.table(replace(table.source, window=window))
    relation = rows.scope.relations[0]
    inner, alias = rows.sql.rpartition(" AS ")[2], translation.name("w")
    columns = [column.id.partition(".")[2] for column in relation.columns]
    end = sql_text.last_multiple(f"({translation.now} + 1)", step, table.offset % step)
    start = f"({end} - {size})"
    condition = "TRUE"
    if table.kind == "CUMULATE":
        start = sql_text.last_multiple(f"({end} - 1)", size, table.offset)
        condition = f"{inner}.at_us >= {start}"
    if table.kind == "SESSION":
        keys = [rows.scope.column(replace(name, qualifier=None)).id for name in table.partition]
        over = f"OVER (PARTITION BY {', '.join(keys)})" if keys else "OVER ()"
        start, end = f"min({inner}.at_us) {over}", f"max({inner}.at_us) {over} + {size}"
    listed = ", ".join([*(f"{inner}.{c}" for c in columns), f"{start} AS ws", f"{end} AS we"])
    bounded = f"SELECT {listed} FROM {rows.sql} WHERE {condition}"
    time = next(c for c in relation.columns if table.time.column.matches(c.name))
    kind = BIGINT if time.type == BIGINT else TIMESTAMP

    def value(microseconds: str) -> str:
        known = ColumnRef(microseconds, BIGINT)
        return translation.dialect.sql(known if kind == BIGINT else as_timestamp(known, table.span))

    bounds = [f"{value(text)} AS {name}" for text, name in (("b.ws", "ws"), ("b.we", "we"), ("(b.we - 1)", "wt"))]
    ended = f" WHERE b.we = {translation.now}" if table.kind == "SESSION" else ""
    sql = f"SELECT {', '.join([*(f'b.{c}' for c in columns), *bounds])} FROM ({bounded}) AS b{ended}"
    names = zip(("ws", "we", "wt"), ("window_start", "window_end", "window_time"), strict=True)
    visible = [replace(c, id=f"{alias}.{name}") for c, name in zip(relation.columns, columns, strict=True)]
    visible += [Column(f"{alias}.{short}", name, kind) for short, name in names]
    shown = relation.alias if table.alias is None else table.alias.name
    by = next((c.id for c in visible if c.name == time.name), None)
    scope = Scope((Relation(shown, tuple(visible), relation.stream, table.span, time_column=by),))
    # The rows of a session come when it ends; those of other windows are visible for a slide.
    return FromText(f"({sql}) AS {alias}", scope, translation.now if table.kind == "SESSION" else None)


def window_changes(table: ast.WindowTable, times: Times) -> Times:
    """Instants at which the rows of finished windows may change, given when rows come."""
    size, step = table.size.microseconds, table.step.microseconds
    if table.kind == "SESSION":
        return np.unique(np.concatenate([times, times + size, times + size + 1]))
    offset = table.offset % step
    first = (times - offset) // step * step + step + offset - 1
    return np.unique(np.concatenate([first + number * step for number in range(size // step + 1)]))
