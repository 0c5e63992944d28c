"""Windows that follow from a condition: `a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10 seconds'`.

Where streams in FROM have no windows and the condition bounds the difference of their time columns on both sides, each
of them is kept for as long as the condition lets another one be later, and one microsecond more, since the bound itself
counts. Then all rows that satisfy the condition together are valid together, from the time of the latest of them on.
It is as if these windows were written.

A condition `y - x <= c` is an edge of a graph over the time columns; the shortest paths are the bounds that follow from
all conditions together. Two streams belong together if paths in both directions are finite. The conditions are those
of ON and WHERE that are combined by AND, and those within EXISTS and NOT EXISTS in WHERE: semi and anti joins.

Rows are kept longer where what they are in lasts: an aggregate, DISTINCT or EXISTS. Where a row is in the result
because no other one comes, as in an anti or outer join, it is read when that is known: `delayed_rows.py`.

A stream between the bounds of finished windows has the window of these: `finished_windows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

from strandline.logical.properties.instant_columns import instant_columns
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.asof_joins import conjuncts_of, time_column_of
from strandline.sql.binder.delayed_rows import Delay, Parts, Role, delayed, find_delay, find_open, find_roles
from strandline.sql.binder.finished_windows import FinishedWindow, WindowJoins, bound_of, find_finished_window
from strandline.sql.binder.grouping import is_grouping
from strandline.sql.binder.names import DerivedWindow, Names
from strandline.sql.parser.literals import MAX_DURATION_US

Entry: TypeAlias = ast.StreamTable | ast.QueryTable | ast.WindowTable

_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Time:
    """An entry of FROM without a window, and its time columns."""

    entry: ast.StreamTable | ast.QueryTable
    columns: frozenset[str]  # lower-case names of the columns that hold the instant


@dataclass(frozen=True, slots=True)
class Level:
    """One FROM: its entries by alias with the names of their columns, the time columns among them, the finished windows
    whose bounds they have, and the level of the query around it."""

    names: Mapping[str, frozenset[str]]
    times: Mapping[str, _Time]
    finished: Mapping[str, tuple[Entry, FinishedWindow]]
    outer: Level | None

    def time(self, name: ast.ColumnName) -> _Time | None:
        """The entry whose time column a name means, if it means one."""
        level, alias = self.resolve(name)
        time = level.times.get(alias)
        return time if time is not None and name.column.name.lower() in time.columns else None

    def has_column(self, name: ast.ColumnName) -> bool:
        """Whether an entry has a column of this name."""
        return any(name.column.name.lower() in columns for columns in self.names.values())

    def window(self, name: ast.ColumnName) -> tuple[Entry, FinishedWindow] | None:
        """The entry that a name belongs to, with the windows whose bounds it has."""
        level, alias = self.resolve(name)
        return level.finished.get(alias)

    def resolve(self, name: ast.ColumnName) -> tuple[Level, str]:
        """The level and the alias of the entry that a name belongs to; an empty alias if it is none or not one."""
        column = name.column.name.lower()
        if name.qualifier is not None:
            alias = name.qualifier.name.lower()
            found = [alias] if alias in self.names else []
        else:
            found = [alias for alias, columns in self.names.items() if column in columns]
        if not found and self.outer is not None:
            return self.outer.resolve(name)
        return self, found[0] if len(found) == 1 else ""


class _Bounds:
    """The bounds `y - x <= c` of a statement, by the identity of the entries."""

    def __init__(self) -> None:
        self.times: dict[int, _Time] = {}
        self.upper: dict[tuple[int, int], float] = {}
        self.joins = WindowJoins()
        self.parts = Parts()

    def add(self, x: _Time, y: _Time, most: int) -> None:
        key = (id(x.entry), id(y.entry))
        self.upper[key] = min(self.upper.get(key, math.inf), most)

    def close(self) -> None:
        """All bounds that follow: the shortest paths."""
        for via in self.times:
            for x in self.times:
                for y in self.times:
                    path = self.upper.get((x, via), math.inf) + self.upper.get((via, y), math.inf)
                    if path < self.upper.get((x, y), math.inf):
                        self.upper[x, y] = path

    def windows(self) -> dict[int, int]:
        """For how long each entry is kept that others are bound to, in microseconds."""
        self.close()
        if any(self.upper.get((x, x), 0) < 0 for x in self.times):
            return {}  # the conditions exclude each other
        found: dict[int, int] = {}
        for x in self.times:
            near = [y for y in self.times if y != x and (x, y) in self.upper and (y, x) in self.upper]
            reach = max((self.upper[x, y] for y in near), default=-1)
            if near:
                found[x] = min(max(int(reach), 0) + 1, MAX_DURATION_US)
        return found

    def hold(self, lengths: Mapping[int, int], entries: Collection[int]) -> dict[int, int]:
        """The same, with some entries kept until the rows that they match have left."""
        held = dict(lengths)
        for y in held.keys() & entries:
            ends = (self.upper[y, x] + lengths[x] for x in lengths if x != y and (y, x) in self.upper)
            held[y] = min(max(held[y], *map(int, ends)), MAX_DURATION_US)
        return held


def with_join_windows(select: ast.Select, names: Names) -> ast.Select:
    """The SELECT with the windows that follow from its conditions; `names` remembers them."""
    bounds = _bounds(select, names)
    if bounds is None:
        return select
    lengths = bounds.windows()
    opened = [] if _lasts(select) else find_open(bounds.parts, bounds.upper, lengths)
    delay = find_delay(bounds.parts, bounds.upper) if opened else None
    if delay is not None:
        return _delay(select, delay, bounds, names)
    lengths = bounds.hold(lengths, lengths if _lasts(select) else bounds.parts.having(Role.SEMI))
    finished = {x: window for x, window in bounds.joins.found() if x not in lengths}
    windows = {x: _sliding(bounds.times[x].entry, length) for x, length in lengths.items() if length > 1}
    windows |= {x: window.over(bounds.times[x].entry) for x, window in finished.items()}
    if not windows:
        return select
    found = [DerivedWindow(alias_of(bounds.times[x].entry), n, is_open=x in opened) for x, n in lengths.items()]
    for x, window in finished.items():
        found.append(DerivedWindow(alias_of(bounds.times[x].entry), window.range_us, window.slide))
    _remember(found, names)
    changed: ast.Select = replace_windows(select, windows)
    return changed


def _lasts(select: ast.Select) -> bool:
    """Whether rows are in groups that last, where those of one instant would be alone."""
    return select.distinct or is_grouping(select)


def _delay(select: ast.Select, delay: Delay, bounds: _Bounds, names: Names) -> ast.Select:
    """The SELECT with the rows of an entry delayed, and with windows over the others."""
    late = bounds.times[delay.entry].entry
    found = [DerivedWindow(alias_of(late), delay.microseconds, is_delay=True)]
    found += [DerivedWindow(alias_of(bounds.times[y].entry), length) for y, length in delay.lengths.items()]
    _remember(found, names)
    windows = {y: _sliding(bounds.times[y].entry, length) for y, length in delay.lengths.items() if length > 1}
    source = delayed(late, alias_of(late), _sliding(late, delay.microseconds))
    changed: ast.Select = replace_windows(select, {**windows, delay.entry: source})
    return changed


def _remember(found: list[DerivedWindow], names: Names) -> None:
    names.windows.extend(window for window in found if window not in names.windows)


def _sliding(entry: Entry, microseconds: int) -> ast.RangeWindow:
    return ast.RangeWindow(ast.Duration(microseconds, span=entry.span), None, span=entry.span)


# ---- conditions ------------------------------------------------------------------------------------------------------


def _bounds(select: ast.Select, names: Names) -> _Bounds | None:
    """The bounds of a SELECT; None where there is nothing to derive."""
    if names.stored or not _may_bound(select):
        return None
    bounds = _Bounds()
    _collect(select, names, None, bounds)
    return bounds if (len(bounds.times) > 1 and bounds.upper) or bounds.joins.bounds else None


def _may_bound(select: ast.Select) -> bool:
    """A quick test: a condition, and two entries without windows, one of them perhaps in EXISTS."""
    conditions = list(_conditions(select.tables))
    conditions += () if select.where is None else conjuncts_of(select.where)
    entries = [entry for entry, _ in entries_of(select.tables) if _is_bare(entry)]
    has_inner = any(isinstance(part, ast.Exists | ast.Unary) for part in conditions)
    return bool(conditions) and len(entries) + has_inner > 1


def _is_bare(entry: Entry) -> bool:
    if isinstance(entry, ast.WindowTable):
        return True
    no_window = entry.window is None and entry.granularity is None
    return no_window and (isinstance(entry, ast.QueryTable) or entry.as_of is None)


def _collect(select: ast.Select, names: Names, outer: Level | None, bounds: _Bounds, role: Role = Role.ROW) -> None:
    """Add the bounds of one SELECT, and of those in its EXISTS."""
    level, conditions = bind_level(select.tables, names, outer), list(_conditions(select.tables))
    conditions += () if select.where is None else conjuncts_of(select.where)
    bounds.parts.add(find_roles(select.tables, role), names.bound)
    bounds.times.update({id(time.entry): time for time in level.times.values()})
    others = [part for part in conditions if not isinstance(part, ast.Exists) and not _is_not_exists(part)]
    bounds.parts.is_mixed |= has_subquery((select.items, select.having, select.qualify, tuple(others)))
    for condition in conditions:
        match condition:
            case ast.Exists(ast.Select() as inner):
                _collect(inner, names, level, bounds, Role.SEMI if role is Role.ROW else role)
            case ast.Unary("NOT", ast.Exists(ast.Select() as inner)):
                _collect(inner, names, level, bounds, Role.ABSENT)
            case ast.Between(operand, low, high, False, symmetric=False):
                _compare(">=", operand, low, level, bounds)
                _compare("<=", operand, high, level, bounds)
            case ast.Binary(operator, left, right) if operator in _MIRRORED:
                _compare(operator, left, right, level, bounds)


def _is_not_exists(condition: ast.Expression) -> bool:
    return isinstance(condition, ast.Unary) and isinstance(condition.operand, ast.Exists)


def has_subquery(parts: tuple[object, ...]) -> bool:
    """Whether an expression in some parts of a SELECT reads a query."""
    return any(isinstance(below, ast.Query) for node in ast.own_nodes(parts) for below in ast.children(node))


def _compare(operator: str, left: ast.Expression, right: ast.Expression, level: Level, bounds: _Bounds) -> None:
    """Add the bound of a comparison of two times, if it is one: later - earlier + shift against 0."""
    _compare_with_window(operator, left, right, level, bounds)
    _compare_with_window(_MIRRORED[operator], right, left, level, bounds)
    one, two = _linear(left, level), _linear(right, level)
    if one is None or two is None:
        return
    times = {**one[0]}
    for entry, (time, factor) in two[0].items():
        times[entry] = (time, times.get(entry, (time, 0))[1] - factor)
    shift = one[1] - two[1]
    plus = [time for time, factor in times.values() if factor == 1]
    minus = [time for time, factor in times.values() if factor == -1]
    if len(plus) != 1 or len(minus) != 1 or any(abs(factor) > 1 for _, factor in times.values()):
        return
    later, earlier = plus[0], minus[0]
    strict = 1 if operator in ("<", ">") else 0
    if operator in ("<", "<=", "="):
        bounds.add(earlier, later, -shift - strict)
    if operator in (">", ">=", "="):
        bounds.add(later, earlier, shift - strict)


def _compare_with_window(
    operator: str, left: ast.Expression, right: ast.Expression, level: Level, bounds: _Bounds
) -> None:
    """Add the bound of a time by the start or the end of a finished window, if it is one."""
    if not isinstance(left, ast.ColumnName) or not isinstance(right, ast.ColumnName):
        return
    time, found = level.time(left), level.window(right)
    if time is None or found is None or time.entry is found[0]:
        return
    entry, window = found
    if (bound := bound_of(operator, right.column.name.lower(), window)) is not None:
        bounds.joins.add(id(time.entry), id(entry), window, bound)


_Linear: TypeAlias = tuple[dict[int, tuple[_Time, int]], int]


def _linear(node: ast.Expression, level: Level) -> _Linear | None:
    """A sum of time columns and lengths of time: the factor of each column, and the lengths in microseconds."""
    match node:
        case ast.ColumnName():
            time = level.time(node)
            return None if time is None else ({id(time.entry): (time, 1)}, 0)
        case ast.Interval(microseconds):
            return {}, microseconds
        case ast.Number(digits) if digits.isdecimal() and len(digits) < 19:
            return {}, int(digits)  # of BIGINTs; the types of all else do not fit, and are refused when it is bound
        case ast.Binary("+" | "-" as operator, left, right):
            one, two = _linear(left, level), _linear(right, level)
            if one is None or two is None:
                return None
            sign = 1 if operator == "+" else -1
            times = {**one[0]}
            for entry, (time, factor) in two[0].items():
                times[entry] = (time, times.get(entry, (time, 0))[1] + sign * factor)
            return times, one[1] + sign * two[1]
    return None


# ---- FROM ------------------------------------------------------------------------------------------------------------


def bind_level(tables: tuple[ast.TableReference, ...], names: Names, outer: Level | None) -> Level:
    from strandline.sql.binder.binder import Binder
    from strandline.sql.binder.from_clause import bind_table

    columns: dict[str, frozenset[str]] = {}
    times: dict[str, _Time] = {}
    finished: dict[str, tuple[Entry, FinishedWindow]] = {}
    for entry, is_asof in entries_of(tables):
        if id(entry) not in names.bound:  # each entry once, however deep queries are nested
            now = replace(entry, as_of=None) if isinstance(entry, ast.StreamTable) else entry
            names.bound[id(entry)] = (entry, bind_table(Binder(names), now)[0])
        plan = names.bound[id(entry)][1]
        alias = alias_of(entry).lower()
        columns[alias] = frozenset(column.name.lower() for column in schema(plan))
        ids = instant_columns(plan, time_column_of(names.catalog)) if _is_bare(entry) and not is_asof else frozenset()
        instants = [c for c in schema(plan) if c.id in ids and c.type.name in ("TIMESTAMP", "BIGINT")]
        if instants and not isinstance(entry, ast.WindowTable):
            times[alias] = _Time(entry, frozenset(column.name.lower() for column in instants))
        if _is_bare(entry) and not is_asof and (window := find_finished_window(plan)) is not None:
            finished[alias] = entry, window
    return Level(columns, times, finished, outer)


def entries_of(tables: tuple[ast.TableReference, ...], is_asof: bool = False) -> Iterator[tuple[Entry, bool]]:
    """The streams and subqueries of FROM, and whether ASOF JOIN determines what is kept of them."""
    for table in tables:
        if isinstance(table, ast.Join):
            yield from entries_of((table.left, table.right), is_asof or table.asof)
        elif isinstance(table, Entry) and not (isinstance(table, ast.QueryTable) and table.lateral):
            yield table, is_asof


def _conditions(tables: tuple[ast.TableReference, ...]) -> Iterator[ast.Expression]:
    """The parts of all conditions of ON."""
    for table in tables:
        if isinstance(table, ast.Join):
            yield from _conditions((table.left, table.right))
            if table.condition is not None and not table.asof:
                yield from conjuncts_of(table.condition)


def alias_of(entry: Entry) -> str:
    match entry:
        case ast.StreamTable():
            return (entry.alias or entry.name).name
        case ast.WindowTable():
            return entry.alias.name if entry.alias is not None else alias_of(entry.source)
        case _:
            return entry.alias.name


def replace_windows(tree: Any, windows: Mapping[int, ast.RangeWindow | ast.QueryTable]) -> Any:
    """The tree with windows over some entries, or with others in their places; what does not change stays the same
    object."""
    if isinstance(tree, tuple):
        parts = tuple(replace_windows(part, windows) for part in tree)
        return parts if any(one is not two for one, two in zip(parts, tree, strict=True)) else tree
    if not isinstance(tree, ast.Node):
        return tree
    if id(tree) in windows and isinstance(tree, ast.StreamTable | ast.QueryTable):
        change = windows[id(tree)]
        return change if isinstance(change, ast.QueryTable) else replace(tree, window=change)
    below = {field.name: getattr(tree, field.name) for field in fields(tree) if field.name != "span"}
    changed = {name: replace_windows(part, windows) for name, part in below.items()}
    different = {name: part for name, part in changed.items() if part is not below[name]}
    return replace(tree, **different) if different else tree
