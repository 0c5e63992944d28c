"""Random queries of the shapes that rules are about: unions under windows, groupings over joins, tests for partners.

`strategies.py` writes any query, and so seldom one that a certain rule can change. Here every query is one of a few
forms, with windows, conditions and operators drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from random_streams import stream
from strategies import Question
from support import Arrivals

LETTERS = ("i", "b", "s", "m", "d")
OF_TIME = ("[RANGE {} MICROSECONDS]", "[RANGE {} MICROSECONDS SLIDE {} MICROSECONDS]", "[RANGE UNBOUNDED]", "")
OF_ROWS = ("[ROWS {}]", "[PARTITION BY i ROWS {}]", "[PARTITION BY i, s ROWS 1]", "[SESSION {} MICROSECONDS]",
           "[PARTITION BY i SESSION {} MICROSECONDS]", "[PARTITION BY i ROWS 1]")  # fmt: skip


class Shapes:
    """Writes one query over streams that all have the same columns."""

    def __init__(self, dice: Random, streams: int) -> None:
        self.dice = dice
        self.streams = streams

    def pick(self, *options: str) -> str:
        return self.dice.choice(options)

    def name(self) -> str:
        return f"s{self.dice.randrange(self.streams)}"

    def time_window(self) -> str:
        # Some are one instant long, and do nothing.
        return self.pick(*OF_TIME).format(self.dice.choice((1, 3, 6, 9)), self.dice.randint(1, 4))

    def window(self) -> str:
        text = self.time_window() if self.dice.random() < 0.6 else self.pick(*OF_ROWS).format(self.dice.randint(1, 4))
        return text + (" GRANULARITY(2 MICROSECONDS)" if self.dice.random() < 0.15 else "")

    def table(self, alias: str) -> str:
        return f"{self.name()} {self.window()} {alias}"

    def on(self, a: str, b: str) -> str:
        key = self.pick("i", "i", "s", "b")
        more = self.pick("", "", f" AND {a}.b < {b}.b", f" AND {a}.i > 0", f" AND {b}.i + {a}.i < 4",
                         f" AND {b}.s IS NOT NULL", f" AND {a}.m = {b}.m",
                         f" AND CAST({a}.d AS VARCHAR) <> {b}.s")  # fmt: skip
        return f"{a}.{key} = {b}.{key}{more}"

    def condition(self, a: str) -> str:
        part = (f"{a}i > 0", f"{a}i = 1", f"{a}s <> 'b'", f"{a}b + {a}i > 1", f"{a}s IS NULL", f"{a}d < 1.5e0",
                f"upper({a}s) = 'A'", f"{a}m <= 1.00", f"CAST({a}d AS VARCHAR) = '-0'")  # fmt: skip
        return f"{self.pick(*part)} AND {self.pick(*part)}" if self.dice.random() < 0.4 else self.pick(*part)

    def where(self, a: str) -> str:
        return f" WHERE {self.condition(a)}" if self.dice.random() < 0.5 else ""

    def aggregates(self, a: str) -> str:
        calls = ("COUNT(*)", f"COUNT({a}s)", f"SUM({a}i)", f"SUM({a}b)", f"SUM({a}m)", f"MIN({a}s)", f"MAX({a}d)",
                 f"MIN({a}b)", f"COUNT(DISTINCT {a}s)", f"SUM({a}d)", f"AVG({a}i)", f"MAX({a}m)")  # fmt: skip
        chosen = [self.pick(*calls[:8]) if self.dice.random() < 0.85 else self.pick(*calls) for _ in range(2)]
        return ", ".join(f"{call} AS a{n}" for n, call in enumerate(chosen))

    def columns(self) -> str:
        return self.pick("i", "i, s", "s, b", "i + 1 AS i, s", "i, upper(s) AS s", "i, b, s, m, d", "i, s, b AS c", "d")

    # ---- the forms ---------------------------------------------------------------------------------------------------

    def pairs(self) -> str:
        word = self.pick("", "DISTINCT ")
        items = self.pick(
            "x.i, y.s",
            "x.i, x.s",
            "CAST(x.d AS VARCHAR) AS t",
            "x.d, y.s",
            "x.s, y.b + 1 AS c, x.b * 2 AS e",
            "upper(x.s) AS u, y.i",
            "y.i",
        )
        return f"SELECT {word}{items} FROM {self.table('x')} JOIN {self.table('y')} ON {self.on('x', 'y')}" + (
            self.where(self.pick("x.", "y."))
        )

    def triples(self) -> str:
        tables = ", ".join(self.table(alias) for alias in "xyz")
        return (
            f"SELECT x.i, y.s, z.b + x.b AS c FROM {tables} WHERE {self.on('x', 'y')} AND {self.on('y', 'z')}"
            f"{self.pick('', ' AND ' + self.condition('z.'))}"
        )

    def groups_over_join(self) -> str:
        side = self.pick("x", "y")
        right = self.pick(
            self.table("y"), "(SELECT DISTINCT i, s, b, m, d FROM s0 [RANGE 5 MICROSECONDS]) AS y",
            f"(SELECT i, MAX(b) AS b, MIN(s) AS s, MIN(m) AS m, MAX(d) AS d FROM {self.table('q')} GROUP BY i) AS y",
        )  # fmt: skip
        by = self.pick("x.i", "y.i", "x.i, y.i", "x.s", "y.s, x.i", "")
        items = f"{', '.join(f'{key} AS k{n}' for n, key in enumerate(by.split(', ')))}, " if by else ""
        group = f" GROUP BY {by}" if by else ""
        both = f"{self.table('x')} JOIN {right} ON {self.on('x', 'y')}"
        return f"SELECT {items}{self.aggregates(side + '.')} FROM {both}{group}"

    def groups_over_union(self) -> str:
        inner = f"SELECT i, s, b, m, d FROM {self.table('x')} UNION ALL SELECT i, s, b, m, d FROM {self.table('y')}"
        return f"SELECT i, {self.aggregates('')} FROM ({inner}) AS u{self.where('')} GROUP BY i"

    def windows_over_union(self) -> str:
        columns = self.columns()
        sides = [f"SELECT {columns} FROM {self.name()} AS t{self.where('t.')}" for _ in range(self.dice.randint(2, 3))]
        window = self.time_window() if self.dice.random() < 0.7 else self.pick("[ROWS 3]", "[SESSION 3 MICROSECONDS]")
        return f"SELECT {self.pick('*', 'DISTINCT *')} FROM ({' UNION ALL '.join(sides)}) {window} AS u"

    def same_windows_in_union(self) -> str:
        window, columns = self.pick(self.time_window(), self.time_window(), self.window()), self.columns()
        sides = [f"SELECT {columns} FROM {self.name()} {window} AS t{self.where('t.')}" for _ in range(2)]
        return f"SELECT {self.pick('*', 'DISTINCT *')} FROM ({' UNION ALL '.join(sides)}) AS u"

    def computed_then_windowed(self) -> str:
        window = self.pick("[ROWS 2]", "[PARTITION BY i ROWS 2]", "[PARTITION BY s, i SESSION 4 MICROSECONDS]",
                           "[RANGE 4 MICROSECONDS]", "[ROWS 3 SLIDE 2]")  # fmt: skip
        inner = f"SELECT i, s, b + i AS c, upper(s) AS u, d, b, m FROM {self.name()} AS t{self.where('t.')}"
        return f"SELECT i AS k, c, upper(s) AS v, s FROM ({inner}) {window} AS w{self.where('w.')}"

    def sets(self) -> str:
        columns = self.pick("i", "i, s", "s")
        operators = ("UNION", "UNION ALL", "UNION MAX", "EXCEPT", "EXCEPT ALL", "EXCEPT STRICT", "INTERSECT",
                     "INTERSECT ALL")  # fmt: skip
        one = self.pick(*operators)
        two = one if self.dice.random() < 0.75 else self.pick(*operators)
        sides = [
            f"SELECT {self.pick('', 'DISTINCT ')}{columns} FROM {self.table('t')}{self.where('t.')}" for _ in range(3)
        ]
        if self.dice.random() < 0.3:
            sides[1] = sides[0]
        if self.dice.random() < 0.3:
            return f"SELECT {columns} FROM {self.table('t')} {one} (({sides[0]}) UNION ALL ({sides[1]}))"
        whole = f"({sides[0]}) {one} ({sides[1]})" + (f" {two} ({sides[2]})" if self.dice.random() < 0.7 else "")
        where = " WHERE i > 0" if columns != "s" and self.dice.random() < 0.5 else ""
        return f"SELECT {self.pick('*', 'DISTINCT *')} FROM ({whole}) AS u{where}"

    def partners(self) -> str:
        inner = self.table("y")
        test = self.pick(
            f"x.i IN (SELECT y.i FROM {inner})", f"x.s IN (SELECT y.s FROM {inner}{self.where('y.')})",
            f"EXISTS (SELECT 1 FROM {inner} WHERE {self.on('x', 'y')})",
            f"NOT EXISTS (SELECT 1 FROM {inner} WHERE {self.on('x', 'y')})",
            f"EXISTS (SELECT 1 FROM {inner} WHERE x.i < y.i)",
            f"x.i IN (SELECT DISTINCT y.i FROM {inner})",
        )  # fmt: skip
        word = self.pick("", "DISTINCT ")
        return (
            f"SELECT {word}x.i, x.s FROM {self.table('x')} WHERE {test}{self.pick('', ' AND ' + self.condition('x.'))}"
        )

    def marks(self) -> str:
        test = f"EXISTS (SELECT 1 FROM {self.table('y')} WHERE {self.on('x', 'y')})"
        inner = f"SELECT x.i, x.s, {test} AS known FROM {self.table('x')}"
        asked = self.pick("known", "NOT known", "known AND i > 0", "NOT known AND s <> 'b'", "known OR i = 1")
        return f"SELECT {self.pick('', 'DISTINCT ')}i, s FROM ({inner}) AS t WHERE {asked}"

    def outer(self) -> str:
        kind, side = self.pick("LEFT", "RIGHT", "FULL"), self.pick("x", "y")
        return (
            f"SELECT x.i, y.s, x.b + y.b AS c FROM {self.table('x')} {kind} JOIN {self.table('y')} ON "
            f"{self.on('x', 'y')} WHERE {self.condition(side + '.')}{self.pick('', ' AND x.i = y.i', ' AND y.i > 0')}"
        )

    def tests_of_pairs(self) -> str:
        """Semi and anti joins over a join, below it, one after the other, and over a join in the subquery."""
        word = self.pick("EXISTS", "NOT EXISTS")
        other = self.pick("x", "y", "y", "x, y")
        on = self.on(other[0], "z") + (" AND y.b = z.b" if other == "x, y" else "")
        inner = self.pick(self.table("z"), f"{self.table('z')} JOIN {self.table('w')} ON {self.on('z', 'w')}")
        test = f"{word} (SELECT 1 FROM {inner} WHERE {on})"
        pairs = f"{self.table('x')} {self.pick('JOIN', 'JOIN', 'LEFT JOIN')} {self.table('y')} ON {self.on('x', 'y')}"
        if self.dice.random() < 0.5:
            return f"SELECT {self.pick('', 'DISTINCT ')}x.i, y.s FROM {pairs} WHERE {test}"
        tested = f"SELECT x.i, x.s, x.b, x.m, x.d FROM {self.table('x')} WHERE {test.replace('y.', 'x.')}"
        again = f"x.s {self.pick('IN', 'NOT IN')} (SELECT v.s FROM {self.table('v')} WHERE v.s IS NOT NULL)"
        return self.pick(
            f"SELECT t.i, y.b + 1 AS c FROM ({tested}) AS t JOIN {self.table('y')} ON {self.on('t', 'y')}",
            f"SELECT i, {self.aggregates('')} FROM ({tested}) AS t GROUP BY i",
            f"SELECT DISTINCT i, s FROM ({tested} AND {again}) AS t",
        )

    def tests_of_sets(self) -> str:
        """Semi and anti joins, and joins, over set operations and groups."""
        operator = self.pick("UNION ALL", "UNION MAX", "EXCEPT", "EXCEPT ALL", "EXCEPT STRICT", "INTERSECT",
                             "INTERSECT ALL")  # fmt: skip
        columns = self.pick("i, s, b, m, d", "i, s, b, m", "i, s, b, m")
        sides = f"SELECT {columns} FROM {self.table('p')} {operator} SELECT {columns} FROM {self.table('q')}"
        grouped = f"SELECT i, MAX(b) AS b, MIN(s) AS s, MIN(m) AS m FROM {self.table('p')} GROUP BY i"
        both = self.pick(sides, sides, grouped)
        key = self.pick("i", "s", "b")
        if self.dice.random() < 0.5:
            test = self.pick("EXISTS", "NOT EXISTS")
            inner = f"SELECT 1 FROM {self.table('y')} WHERE u.{key} = y.{key}"
            return f"SELECT {self.pick('', 'DISTINCT ')}u.i, u.s FROM ({both}) AS u WHERE {test} ({inner})"
        other = f"SELECT {self.pick('', 'DISTINCT ')}{self.pick('i, s, b', 'i, s, b, d')} FROM {self.table('y')}"
        tables = [f"({both}) AS u", f"({other}) AS y"]
        self.dice.shuffle(tables)
        return f"SELECT u.i, y.b, u.s FROM {tables[0]} JOIN {tables[1]} ON u.{key} = y.{key}"

    def outer_chains(self) -> str:
        """Outer joins one after the other, with inner ones between, and tests of what has no match."""
        joins, before = [self.table("x")], "x"
        for alias in "yz":
            kind = self.pick("LEFT", "LEFT", "FULL", "FULL", "INNER")
            on = self.on(self.pick(before, "x"), alias)
            if self.dice.random() < 0.2:
                on = f"COALESCE({before}.i, 1) = {alias}.i"
            joins.append(f"{kind} JOIN {self.table(alias)} ON {on}")
            before = alias
        where = self.pick("", "", " WHERE z.i IS NULL", " WHERE y.s IS NULL", " WHERE x.i IS NULL", " WHERE y.i > 0")
        return f"SELECT {self.pick('', 'DISTINCT ')}x.i, y.s, z.b FROM {' '.join(joins)}{where}"

    def nested(self) -> str:
        inner = self.pick(
            f"SELECT DISTINCT i, s, b, d, m FROM {self.table('t')}",
            f"SELECT i, s, COUNT(*) AS b, MAX(d) AS d, MIN(m) AS m FROM {self.table('t')} GROUP BY i, s",
            f"SELECT i, s, b, d, m FROM {self.name()} [PARTITION BY i ROWS 1] AS t",
            self.pairs_of_all(),
        )
        outer = self.pick("SELECT DISTINCT i, s FROM", "SELECT DISTINCT * FROM", "SELECT i, s FROM")
        if self.dice.random() < 0.5:
            grouped = (
                f"SELECT i, {self.pick('MAX(b) AS a, MIN(s) AS c', 'COUNT(DISTINCT s) AS a', self.aggregates(''))}"
            )
            return f"{grouped} FROM ({inner}) AS q{self.where('')} GROUP BY i"
        return f"{outer} ({inner}) AS q{self.where('')}"

    def pairs_of_all(self) -> str:
        return f"SELECT x.i, y.s, x.b, y.d, y.m FROM {self.table('x')} JOIN {self.table('y')} ON {self.on('x', 'y')}"

    def granules(self) -> str:
        inner = self.pick(self.pairs_of_all(), f"SELECT DISTINCT i, s, b, d, m FROM {self.table('t')}",
                          f"SELECT i, s, COUNT(*) AS b, MAX(d) AS d, MIN(m) AS m FROM {self.table('t')} GROUP BY i, s",
                          "SELECT i, s, b, d, m FROM s0 [ROWS 4] EXCEPT SELECT i, s, b, d, m FROM s1")  # fmt: skip
        granule = self.dice.choice((2, 4))
        if self.dice.random() < 0.4:
            above = f"[RANGE {granule * self.dice.randint(1, 2)} MICROSECONDS]"
            inner = f"SELECT * FROM ({inner}) GRANULARITY({granule} MICROSECONDS) AS g"
            return f"SELECT i, s, b + 1 AS c FROM ({inner}) {above} AS q{self.where('q.')}"
        again = f" GRANULARITY({granule * 2} MICROSECONDS)" if self.dice.random() < 0.5 else ""
        inner = f"SELECT i, s, b, d, m FROM ({inner}) GRANULARITY({granule} MICROSECONDS) AS g{self.where('g.')}"
        return f"SELECT i, upper(s) AS u, b FROM ({inner}){again} AS q"

    def ranks(self) -> str:
        inner = f"SELECT i, s, b, RANK() OVER (PARTITION BY i ORDER BY b DESC) AS place FROM {self.table('t')}"
        asked = self.pick("place <= 2", "place = 1", "place < 3 AND i > 0", "i = 1", "place > 1 AND i = 1")
        return f"SELECT i, s FROM ({inner}) AS r WHERE {asked}"

    def finished_windows(self) -> str:
        size = self.dice.choice((2, 4, 6))
        window = self.pick(f"TUMBLE({self.name()}, ts, {size} us) w", f"HOP({self.name()}, ts, 2 us, {size} us) w")
        if self.dice.random() < 0.3:
            return f"SELECT i, s, w.window_end FROM {window}{self.where('w.')}"
        by = self.pick("w.window_end", "w.window_end, w.i", "w.i, w.window_start, w.window_end", "w.window_time, w.s")
        return f"SELECT {by}, {self.aggregates('w.')} FROM {window}{self.where('w.')} GROUP BY {by}"

    def chains(self) -> str:
        operator = self.pick("UNION ALL", "UNION ALL", "UNION", "UNION MAX", "EXCEPT", "EXCEPT ALL", "EXCEPT STRICT",
                             "INTERSECT", "INTERSECT ALL")  # fmt: skip
        sides = [f"SELECT i, s FROM {self.table('t')}{self.where('t.')}" for _ in range(3)]
        if operator == "UNION ALL":  # side by side the parser takes them as one
            return f"SELECT * FROM ({sides[0]} UNION ALL {sides[1]}) AS u UNION ALL {sides[2]}"
        return f" {operator} ".join(sides)

    def granules_of_granules(self) -> str:
        fine = self.dice.choice((1, 2))
        inner = f"SELECT i, s FROM {self.name()} {self.time_window()} GRANULARITY({fine} MICROSECONDS) AS t"
        return f"SELECT * FROM ({inner}) GRANULARITY({fine * self.dice.randint(1, 3)} MICROSECONDS) AS q"

    def text(self) -> str:
        forms: tuple[Callable[[], str], ...] = (
            self.pairs, self.triples, self.groups_over_join, self.groups_over_join, self.groups_over_union,
            self.windows_over_union, self.same_windows_in_union, self.computed_then_windowed, self.sets, self.chains,
            self.partners, self.marks, self.outer, self.nested, self.granules, self.granules_of_granules, self.ranks,
            self.tests_of_pairs, self.tests_of_sets, self.outer_chains, self.finished_windows,
        )  # fmt: skip
        return self.dice.choice(forms)()


def shaped_question(dice: Random) -> Question:
    """Two or three streams with the same columns, and a query over them."""
    streams: list[Arrivals] = []
    while len(streams) < dice.randint(2, 3):
        drawn = stream(dice, f"s{len(streams)}", LETTERS, dice.randint(3, 7))
        if not drawn.intervals:
            streams.append(drawn)
    return Question(tuple(streams), Shapes(dice, len(streams)).text())
