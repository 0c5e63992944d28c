"""Rows that are in a result because no other row comes, as in `FROM a WHERE NOT EXISTS (… b.ts <= a.ts + 10 s …)`.

Whether a row of `a` has no match is known when the last one that could match has come, at `ts + d` with d the largest
bound d(a, y). The row is read then, for one chronon, and each other stream y is kept from its own time to that instant,
for `d + d(y, a) + 1`. All rows that satisfy the conditions with a row of `a` are valid at its instant, so each row of
`a` has the matches, or none, that it has in the plain query over all rows, and is in the result once.

This is so for one stream, the first that a join preserves, to which the conditions bind all others; besides these FROM
has tables only. Other queries have the windows of `interval_joins.py`, as have those in which nothing is open: where
all that could match comes before the rows of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeAlias

from strandline.logical import plan as logical
from strandline.logical.plan import Plan
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.parser.literals import MAX_DURATION_US


class Role(Enum):
    """What an entry of FROM is to the result: its rows are in it, let others into it, or keep others out of it."""

    ROW = auto()
    SEMI = auto()
    ABSENT = auto()


Roles: TypeAlias = list[tuple[ast.TableReference, Role]]

_SIDES = {
    None: (Role.ROW, Role.ROW),
    "LEFT": (Role.ROW, Role.ABSENT),
    "RIGHT": (Role.ABSENT, Role.ROW),
    "FULL": (Role.ABSENT, Role.ABSENT),
    "SEMI": (Role.ROW, Role.SEMI),
    "ANTI": (Role.ROW, Role.ABSENT),
}


@dataclass(slots=True)
class Parts:
    """The entries of a statement by their identity, with their roles; `is_mixed` if other streams are read than those
    whose times conditions compare."""

    roles: dict[int, Role] = field(default_factory=dict)
    is_mixed: bool = False

    def add(self, found: Roles, bound: Mapping[int, tuple[ast.Node, Plan]]) -> None:
        for entry, role in found:
            if id(entry) not in bound or isinstance(entry, ast.WindowTable):
                self.is_mixed = self.is_mixed or not isinstance(entry, ast.UnnestTable)
            elif _reads_streams(bound[id(entry)][1]):
                self.roles[id(entry)] = role
                self.is_mixed = self.is_mixed or (isinstance(entry, ast.StreamTable) and entry.weighted)

    def having(self, role: Role) -> list[int]:
        return [entry for entry, other in self.roles.items() if other is role]


@dataclass(frozen=True, slots=True)
class Delay:
    """An entry whose rows are read later, by how much, and for how long each other entry is kept."""

    entry: int
    microseconds: int
    lengths: Mapping[int, int]


def find_roles(tables: tuple[ast.TableReference, ...], role: Role) -> Roles:
    """The entries of a FROM, in a SELECT of that role."""
    return [found for table in tables for found in _roles(table, role)]


def _roles(table: ast.TableReference, role: Role) -> Iterator[tuple[ast.TableReference, Role]]:
    if not isinstance(table, ast.Join):
        yield table, role
        return
    for side, own in zip((table.left, table.right), _SIDES[table.kind], strict=True):
        yield from _roles(side, own if role is Role.ROW else role)


def find_open(parts: Parts, upper: Mapping[tuple[int, int], float], lengths: Mapping[int, int]) -> list[int]:
    """The entries whose rows may come after those that they keep out."""
    rows = parts.having(Role.ROW)
    return [y for y in parts.having(Role.ABSENT) if y in lengths and all(upper.get((x, y), 1) > 0 for x in rows)]


def find_delay(parts: Parts, upper: Mapping[tuple[int, int], float]) -> Delay | None:
    """The stream that waits for all others, and for how long; None if there is no such stream."""
    rows = parts.having(Role.ROW)
    if not rows or parts.is_mixed:
        return None
    entry = rows[0]
    others = [y for y in parts.roles if y != entry]
    if not all((entry, y) in upper and (y, entry) in upper for y in others):
        return None
    delay = max(int(upper[entry, y]) for y in others)
    kept = {y: delay + int(upper[y, entry]) + 1 for y in others}
    return Delay(entry, delay, kept) if max(delay, *kept.values()) <= MAX_DURATION_US else None


def delayed(entry: ast.StreamTable | ast.QueryTable, name: str, window: ast.RangeWindow) -> ast.QueryTable:
    """The rows of an entry at the end of a window: `DSTREAM(SELECT * FROM a WINDOW(RANGE d)) a`."""
    place = entry.span
    star = ast.Item(ast.Star(span=place), None, span=place)
    query = ast.Select(False, (star,), (replace(entry, window=window),), None, (), None, span=place)
    return ast.QueryTable(ast.Changes("DSTREAM", query, span=place), None, ast.Identifier(name, span=place), span=place)


def _reads_streams(plan: Plan) -> bool:
    return any(isinstance(node, logical.Scan) and node.table is None for node in walk(plan))
