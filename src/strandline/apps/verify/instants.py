"""Instants at which a result can change, derived from the windows of the query and the times of its rows."""

from __future__ import annotations

from typing import Final, assert_never

import numpy as np

from strandline.apps.verify.dataset import Dataset, NameScope, QueryUnderTest, Times
from strandline.apps.verify.over_text import rows_after, window_calls
from strandline.apps.verify.window_table_text import window_changes
from strandline.core.temporal import AFTER_ALL, FOREVER
from strandline.logical import plan as logical
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import granule, is_chronon_stream
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.binder.derived_windows import with_derived_windows
from strandline.sql.binder.names import Names

NEVER: Final[Times] = np.zeros(0, dtype=np.int64)


def change_instants(tested_query: QueryUnderTest, dataset: Dataset, edges: Times) -> Times:
    """Every instant at which the result can change, or at which ours begins or ends, each with the ones just before and
    after. Instants before the first row of all are left out: there is no result yet. So is the instant of that row
    where the query compares it with the one before, at which an aggregate without keys over tables has no row yet,
    though a database has one."""
    if dataset.begins is None:
        return NEVER
    begins = dataset.begins + any(map(_looks_back_at_tables, walk(tested_query.plan)))
    instants = np.concatenate([changes(tested_query.query, tested_query.name_scope, dataset), edges[edges < FOREVER]])
    around = np.unique(np.concatenate([instants - 1, instants, instants + 1]))
    since_begin: Times = around[around >= begins]
    return since_begin


def _looks_back_at_tables(node: Plan) -> bool:
    """Whether a node emits the changes of a query that has an aggregate without keys over a table."""
    if not isinstance(node, logical.Changes):
        return False
    totals = (below for below in walk(node) if isinstance(below, logical.Aggregate) and not below.keys)
    return any(isinstance(leaf, logical.Scan) and leaf.table is not None for total in totals for leaf in walk(total))


def changes(node: ast.Node, scope: NameScope, dataset: Dataset) -> Times:
    """A superset of the instants at which the result of a node differs from the instant before."""
    if isinstance(node, ast.Select):
        node = with_derived_windows(node, Names(scope.catalog))
    match node:
        case ast.With():
            return changes(node.body, scope.inside(node), dataset)
        case ast.StreamTable(name, window, _, granularity):
            named = scope.named(name)
            if named is None:
                rows = dataset.rows[name.name.lower()]
                ends = rows.ends[rows.ends < FOREVER]
                return _seen(window, granularity, np.unique(np.concatenate([rows.starts, ends])))
            return _seen(window, granularity, element_instants(named.query, named.name_scope, dataset, window))
        case ast.QueryTable(query, window, _, granularity):
            return _seen(window, granularity, element_instants(query, scope, dataset, window))
        case ast.WindowTable():
            return window_changes(node, changes(node.source, scope, dataset))
        case ast.Changes(_, query):
            # The row of an aggregate without groups comes with the first row of all, even if that is of another stream.
            first = NEVER if dataset.begins is None else np.array([dataset.begins], dtype=np.int64)
            instants = np.concatenate([first, changes(query, scope, dataset)])
            return np.unique(np.concatenate([instants, instants + 1]))
        case _:
            parts = [changes(child, scope, dataset) for child in ast.children(node)]
            if isinstance(node, ast.Select) and any(map(rows_after, window_calls(node))):
                parts.append(np.array([AFTER_ALL, AFTER_ALL + 1], dtype=np.int64))
            return np.unique(np.concatenate([NEVER, *parts]))


def element_instants(query: ast.Query, scope: NameScope, dataset: Dataset, window: ast.Window | None = None) -> Times:
    """Instants at which a query has elements for a window: its changes, or once per granule."""
    instants = changes(query, scope, dataset)
    if window is None or isinstance(window, ast.NowWindow) or not len(instants):
        return instants
    plan = scope.plan(query)
    length = granule(plan)
    if is_chronon_stream(plan) or length is None:
        return instants
    # A long-lived element occurs in every granule, from the first result up to the last instant compared.
    last = dataset.latest if dataset.latest < FOREVER else int(instants.max()) + length
    first = int(instants.min()) if dataset.begins is None else max(int(instants.min()), dataset.begins)
    return np.arange(first // length * length, last + 1, length, dtype=np.int64)


def sample_instants(instants: Times, starts: Times, ends: Times, most: int | None) -> Times:
    """At most so many of the instants, evenly: three quarters of them such at which one of the elements
    `[start, end)` is valid, as far as there are so many. Between the rows of a stream without windows nothing is."""
    if most is None or len(instants) <= most:
        return instants
    begun, over = (np.searchsorted(np.sort(times), instants, side="right") for times in (starts, ends))
    has_rows = begun > over
    with_rows, without = instants[has_rows], instants[~has_rows]
    count = min(len(with_rows), max(most - len(without), -(-most * 3 // 4)))
    return np.sort(np.concatenate([_spread(with_rows, count), _spread(without, most - count)]))


def _spread(instants: Times, count: int) -> Times:
    """So many of the instants, at equal distances."""
    if count <= 0:
        return NEVER
    return instants[np.unique(np.linspace(0, len(instants) - 1, min(count, len(instants))).astype(np.int64))]


def _seen(window: ast.Window | None, granularity: ast.Duration | None, times: Times) -> Times:
    """The changes of something with a window and a granularity, given when elements come."""
    match window:
        case None | ast.NowWindow() | ast.RowsWindow():
            instants = np.concatenate([times, times + 1])
        case ast.RangeWindow(length, slide, _, offset):
            step = slide.microseconds if slide else 1
            first = (times - offset) // step * step + step + offset - 1
            instants = np.concatenate([times, times + 1, first])
            if length is not None:  # else it lets go of nothing
                last = (times + length.microseconds - offset) // step * step + step + offset - 1
                instants = np.concatenate([instants, last])
        case ast.SessionWindow(_, gap):
            instants = np.concatenate([times, times + 1, times + gap.microseconds])
        case _:
            assert_never(window)
    if granularity is not None:
        instants = -(-instants // granularity.microseconds) * granularity.microseconds
    unique: Times = np.unique(instants)
    return unique
