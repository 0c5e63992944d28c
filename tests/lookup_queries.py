"""Random queries that look up tables: every kind of look-up over every source that has a row time."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

OF_TIME = ("[RANGE {} MICROSECONDS]", "[RANGE {} MICROSECONDS SLIDE {} MICROSECONDS]", "[RANGE UNBOUNDED]", "")
OF_ROWS = ("[ROWS {}]", "[ROWS {} SLIDE 2]", "[PARTITION BY i ROWS {}]", "[PARTITION BY s ROWS 1]")
OF_SESSIONS = ("[SESSION {} MICROSECONDS]", "[PARTITION BY i SESSION {} MICROSECONDS]")


class LookupQueries:
    """Writes one query over the streams s0 and s1, the keyed table t and the table u without a key. The rows of some
    streams bring their `intervals`: they take no window."""

    def __init__(self, dice: Random, intervals: Collection[str] = ()) -> None:
        self.dice, self.intervals = dice, intervals

    def pick(self, *options: str) -> str:
        return self.dice.choice(options)

    def window(self) -> str:
        forms = self.dice.choice((OF_TIME, OF_TIME, OF_ROWS, OF_SESSIONS))
        return self.pick(*forms).format(self.dice.choice((1, 2, 3, 6, 9)), self.dice.randint(1, 4))

    def stream(self, alias: str) -> str:
        """A stream in a window."""
        name = self.pick("s0", "s0", "s1")
        return f"{name} {'' if name in self.intervals else self.window()} {alias}"

    def source(self, alias: str) -> str:
        """A relation with the columns i, s and b."""
        [form] = self.dice.choices(("plain", "computed", "union", "windowed", "changes"), (8, 3, 3, 1, 1))
        if form == "plain":
            return self.stream(alias)
        where = self.pick("", " WHERE y.i > 0", " WHERE y.s <> 'b'", " WHERE y.i + y.b < 3")
        if form == "computed":
            items = self.pick("y.i, y.s, y.b", "y.i + 1 AS i, y.s, y.b", "y.i, upper(y.s) AS s, y.i + y.b AS b")
            return f"(SELECT {items} FROM {self.stream('y')}{where}) AS {alias}"
        if form == "union":
            one, two = (f"SELECT y.i, y.s, y.b FROM {self.stream('y')}" for _ in range(2))
            return f"({one}{where} UNION ALL {two}) AS {alias}"
        if form == "windowed" and not self.intervals:
            return f"(SELECT y.i, y.s, y.b FROM {self.pick('s0', 's1')} AS y{where}) {self.window()} AS {alias}"
        inner = f"SELECT y.i, MIN(y.s) AS s, COUNT(*) AS b FROM {self.stream('y')} GROUP BY y.i"
        return f"({self.pick('ISTREAM', 'DSTREAM')}({inner})) {self.window()} AS {alias}"

    def on(self, x: str, t: str) -> str:
        more = ("", "", "", f" AND {t}.v > 1", f" AND {x}.b <= {t}.v", f" AND {x}.i > 0", f" AND {x}.s = {t}.w")
        return self.pick(f"{x}.i = {t}.i", f"{x}.i = {t}.i", f"{x}.i = {t}.i", f"{x}.i < {t}.v") + self.pick(*more)

    def joined(self) -> tuple[str, str]:
        """FROM with a look-up, and the columns that it has beside x.i and x.s."""
        source, table = self.source("x"), self.pick("t", "t", "u")
        form = self.dice.choice(("inner", "left", "comma", "first", "pairs", "then", "both", "semi", "anti", "two"))
        on = self.on("x", table)
        window = "" if "s1" in self.intervals else self.pick(*OF_TIME, *OF_ROWS).format(self.dice.randint(1, 6), 1)
        match form:
            case "inner" | "left":
                return f"{source} {'LEFT ' if form == 'left' else ''}JOIN {table} ON {on}", f", {table}.v, {table}.w"
            case "comma":
                return f"{source}, {table} WHERE {on}", f", {table}.v"
            case "first":
                return f"{table} JOIN {source} ON {on}", f", {table}.w"
            case "semi" | "anti":
                return f"{source} {form.upper()} JOIN {table} ON {on}", ""
            case "pairs":  # the later row of a pair counts
                pairs = f"{source} JOIN s1 {window} z ON x.i = z.i"
                return f"{pairs} {self.pick('', 'LEFT ')}JOIN {table} ON {on}", f", z.s AS zs, {table}.v"
            case "then":  # the first row counts
                return f"{source} JOIN {table} ON {on} JOIN s1 {window} z ON x.i = z.i", f", z.s AS zs, {table}.v"
            case "both":
                pairs = f"{source}, s1 {window} z, {table}"
                return f"{pairs} WHERE {on} AND x.i = z.i{self.pick('', ' AND z.b > ' + table + '.v')}", f", {table}.v"
        return f"{source} JOIN t ON {self.on('x', 't')} LEFT JOIN u ON {self.on('x', 'u')}", ", t.v, u.v AS uv"

    def tested(self) -> tuple[str, str]:
        """FROM and WHERE with a subquery over a table, or a subquery in the SELECT list."""
        source, table = self.source("x"), self.pick("t", "u")
        on = self.on("x", table)
        exists = f"EXISTS (SELECT 1 FROM {table} WHERE {on})"
        value = f"(SELECT t.v FROM t WHERE x.i = t.i{self.pick('', ' AND t.v > 1')})"
        total = f"(SELECT SUM({table}.v) FROM {table} WHERE {table}.i = x.i)"
        return self.dice.choice(
            (
                (f"{source} WHERE {exists}", ""),
                (f"{source} WHERE NOT {exists}", ""),
                (f"{source} WHERE x.i IN (SELECT i FROM {table})", ""),
                (f"{source} WHERE {exists} OR x.i = 1", ""),
                (source, f", {exists} AS m"),
                (source, f", {value} AS v"),
                (source, f", {total} AS v"),
                (f"{source} WHERE {value} > 1", ""),
            )
        )

    def query(self) -> str:
        tables, columns = self.joined() if self.dice.random() < 0.75 else self.tested()
        form = self.pick("plain", "plain", "plain", "distinct", "groups")
        if form == "groups" and "(SELECT" not in columns:
            return f"SELECT x.i, COUNT(*) AS n FROM {tables} GROUP BY x.i"
        return f"SELECT {'DISTINCT ' if form == 'distinct' else ''}x.i, x.s{columns} FROM {tables}"
