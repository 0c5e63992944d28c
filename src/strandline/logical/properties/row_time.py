"""Row time: the instant at which an element came, where its plan has one.

A look-up sees a table as it was at the row time of an element. That instant must be part of the meaning of the plan:
how the intervals of an aggregate, of DISTINCT or of an anti join are cut is not, so their elements have none.

    ts(x)   of a chronon stream the instant of x; of a Scan the start of x; of a window that of the row, though SLIDE
            makes its interval begin later; of Filter, Map, Union and Lookup that of the source; of a pair the later one
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.logical import plan as logical
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.tree import sources


def without_row_time(plan: Plan) -> Plan | None:
    """The operator because of which the elements of a plan have no row time, if there is one."""
    if is_chronon_stream(plan):
        return None
    match plan:
        case logical.Scan():
            return None
        case logical.TimeWindow() | logical.CountWindow() | logical.SessionWindow():
            # A window over granules counts an element in each of them.
            return None if is_chronon_stream(plan.source) else without_row_time(plan.source) or plan
        case logical.Filter() | logical.Map() | logical.Unnest() | logical.Lookup():
            return without_row_time(plan.source)
        case logical.Union() | logical.Join():
            return next((node for node in map(without_row_time, sources(plan)) if node is not None), None)
        case _:
            return plan


def window_in_the_way(lookup: logical.Lookup) -> Plan | None:
    """The window because of which a look-up cannot be computed, if there is one, given that elements have a row time.

    Elements are looked up when they begin, so they must begin at their row time and not be cut. Where a window makes
    them begin later, or cuts them, the look-up moves below it. It cannot move below a join of streams, since the later
    row decides, nor below a window that counts rows.
    """
    return next(_windows_in_the_way(lookup.source), None)


def _windows_in_the_way(source: Plan) -> Iterator[Plan]:
    if is_chronon_stream(source):
        return
    match source:
        case logical.TimeWindow() | logical.SessionWindow():
            return
        case logical.Filter() | logical.Map() | logical.Unnest() | logical.Lookup():
            yield from _windows_in_the_way(source.source)
        case logical.Union(_, inputs):
            for branch in inputs:
                yield from _windows_in_the_way(branch)
        case _:
            yield from _begin_late(source)


def _begin_late(plan: Plan) -> Iterator[Plan]:
    """The windows of a plan whose elements begin after their row time, or are sent in parts."""
    if is_chronon_stream(plan):
        return
    match plan:
        case logical.TimeWindow(_, slide) | logical.CountWindow(_, _, slide):
            if slide > 1:
                yield plan
        case logical.SessionWindow():
            yield plan
        case logical.Lookup():
            yield from _begin_late(plan.source)
        case _:
            for source in sources(plan):
                yield from _begin_late(source)
