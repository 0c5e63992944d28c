"""Windows that follow from GROUP BY: `FROM s GROUP BY k, date_trunc('hour', ts)` groups the rows of each hour.

Where a key is the start of an interval of fixed length that holds the time column of a stream without a window, the
stream has the window `RANGE length SLIDE length`: at each instant the rows of the interval that was finished last. All
groups of such an interval are complete then, so each group is in the result once, with the rows that plain SQL gives
to it. Without the window, a group would be rows of one microsecond.

The keys are `date_trunc` up to weeks, `date_bin` with a constant origin, and what is spelled by them as `time_bucket`,
and `CAST(ts AS DATE)`. Months have no fixed length. The rest of FROM are tables: another stream would be
read at the instants at which an interval ends, and not at those of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.temporal import DAY, UNITS, WEEK, show_duration
from strandline.core.types import DATE, TIMESTAMP
from strandline.logical import plan as logical
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.binder.interval_joins import Level, alias_of, bind_level, entries_of, has_subquery, replace_windows
from strandline.sql.binder.names import DerivedWindow, Names
from strandline.sql.binder.stored import read_instant
from strandline.sql.parser.literals import amounts_of, microseconds_of

_MONDAY = 4 * DAY  # weeks begin on Mondays, and the first one after the beginning of 1970 was its fifth day


def with_group_window(select: ast.Select, names: Names) -> ast.Select:
    """The SELECT with the window that follows from its GROUP BY; `names` remembers it."""
    if names.stored or not any(True for _ in _intervals(select, None)):
        return select
    if has_subquery((select.items, select.where, select.having, select.qualify)):
        return select
    level = bind_level(select.tables, names, None)
    found = min(_intervals(select, level), default=None)
    if found is None or not _is_over_tables(select, level, names):
        return select
    [time] = level.times.values()
    length, offset = found
    size = ast.Duration(length, span=time.entry.span)
    window = ast.RangeWindow(size, size, (), offset, span=time.entry.span)
    begins = f" OFFSET {show_duration(offset)}" if offset else ""
    derived = DerivedWindow(alias_of(time.entry), length, f" SLIDE {show_duration(length)}{begins}", "GROUP BY")
    if derived not in names.windows:
        names.windows.append(derived)
    changed: ast.Select = replace_windows(select, {id(time.entry): window})
    return changed


def _is_over_tables(select: ast.Select, level: Level, names: Names) -> bool:
    """Whether FROM reads one stream without a window, and besides it tables only."""
    if len(level.times) != 1:
        return False
    [time] = level.times.values()
    others = [entry for entry, _ in entries_of(select.tables) if entry is not time.entry]
    scans = (node for entry in others for node in walk(names.bound[id(entry)][1]) if isinstance(node, logical.Scan))
    return not any(isinstance(table, ast.QueryTable) and table.lateral for table in select.tables) and all(
        scan.table is not None for scan in scans
    )


def _intervals(select: ast.Select, level: Level | None) -> Iterator[tuple[int, int]]:
    """The intervals that keys of GROUP BY make of the time, as length and offset in microseconds; without a level, of
    any column."""
    if any(isinstance(key, ast.GroupingList | ast.GroupingSets) for key in select.group_by):
        return
    for key in select.group_by:
        value = _written_out(key, select.items, level)
        found = _interval(value)
        if found is None:
            continue
        column, length, offset = found
        if level is None or level.time(column) is not None:
            yield length, offset


def _written_out(key: ast.Grouping, items: tuple[ast.Item, ...], level: Level | None) -> ast.Node:
    """The expression that a key is, or names by the position or alias of an item. A column comes before an alias."""
    match key:
        case ast.Number(digits) if digits.isdecimal() and 0 < int(digits) <= len(items):
            return items[int(digits) - 1].value
        case ast.ColumnName(None, name) if level is None or not level.has_column(key):
            return next((item.value for item in items if item.alias and name.matches(item.alias.name)), key)
    return key


def _interval(value: ast.Node) -> tuple[ast.ColumnName, int, int] | None:
    """The column, length and offset of an expression that is the start of an interval; None if it is no such."""
    match value:
        case ast.Cast(ast.ColumnName() as column, ast.TypeName(kind)) if kind == DATE:
            return column, DAY, 0
        case ast.FunctionCall(name, (ast.Text(unit), ast.ColumnName() as column)) if _is(name, "date_trunc"):
            length = UNITS.get(unit.upper())
            return None if length is None else (column, length, _MONDAY if length == WEEK else 0)
        case ast.FunctionCall(name, (stride, ast.ColumnName() as column, origin)) if _is(name, "date_bin"):
            length, begin = _length(stride), _instant(origin)
            return None if length <= 0 or begin is None else (column, length, begin % length)
    return None


def _length(stride: ast.Expression) -> int:
    """The microseconds of a literal, or 0."""
    match stride:
        case ast.Interval(microseconds):
            return microseconds
        case ast.Text(text) if (amounts := amounts_of(text)) and all(unit for _, unit in amounts):
            return microseconds_of(amounts, stride.span)
    return 0


def _instant(origin: ast.Expression) -> int | None:
    """The instant of a literal, if it is one."""
    match origin:
        case ast.TypedText(kind) if kind == TIMESTAMP:
            return read_instant(origin)
        case ast.Text(text):
            return read_instant(ast.TypedText(TIMESTAMP, text, span=origin.span))
    return None


def _is(name: ast.Identifier, word: str) -> bool:
    return not name.quoted and name.name.lower() == word
