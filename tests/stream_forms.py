"""Forms of FROM that are drawn as a whole: ASOF JOIN, joins whose windows follow from the condition, windows as table
functions, LATERAL. `Writer` of `strategies.py` begins a FROM with one of them now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from support import Arrivals
from vocabulary import FAMILY, Field


@dataclass(frozen=True)
class Form:
    """What begins FROM: its text, what it makes visible, whether its elements are valid for one instant, and what it
    leaves for WHERE."""

    text: str
    fields: tuple[Field, ...]
    chronon: bool
    conditions: tuple[str, ...] = ()


FORMS: Final = ("asof", "interval", "function", "function", "group", "lateral", "windows")


class StreamForms:
    """Draws forms over the streams of a writer."""

    dice: Random
    streams: Sequence[Arrivals]
    scans: int

    def pick(self, *options: str) -> str:
        raise NotImplementedError

    def chance(self, one_in: int) -> bool:
        raise NotImplementedError

    def name(self, prefix: str) -> str:
        raise NotImplementedError

    def form(self, kinds: Sequence[str] = FORMS) -> Form | None:
        """One of the forms of some kinds; none where no stream has rows of one instant."""
        streams = [stream for stream in self.streams if not stream.intervals]
        if not streams or self.scans < 2:
            return None
        left, right = self.dice.choice(streams), self.dice.choice(streams)
        match self.pick(*kinds):
            case "windows":
                return self.window_join(left, right)
            case "lateral":
                return self.lateral(left, right)
            case "function":
                return self.window_table(left)
            case "group":
                return self.group_window(left)
            case "interval":
                return self.interval_join(left, right)
            case _:
                return self.asof_join(left, right)

    def asof_join(self, left: Arrivals, right: Arrivals) -> Form:
        """Each row of the left with the last row of the right, of all or of those with an equal value."""
        self.scans -= 2
        one, two = self.name("t"), self.name("t")
        mine, theirs = fields_of(left, one), fields_of(right, two)
        window = f" [RANGE {self.dice.randint(1, 9)} MICROSECONDS]" if self.chance(4) else ""
        kind = self.pick("ASOF JOIN", "ASOF LEFT JOIN")
        same = [name for name, _ in left.columns if name in dict(right.columns) and name != "ts"]
        if self.chance(6):
            columns = ", ".join([*same[:2], "ts"])
            text = f"{left.name}{window} {one} {kind} {right.name} {two} USING ({columns})"
            return Form(text, (*mine, *theirs), not window)
        source = self.passed_on(right) if self.chance(4) else right.name
        first = self.passed_on(left) if self.chance(6) else left.name
        pairs = [(a, b) for a in mine for b in theirs if a.family == b.family and a.family not in ("time", "double")]
        some = self.dice.sample(pairs, min(len(pairs), self.dice.choice((0, 1, 1, 2))))
        keys = [f"{a.text} = {b.text}{' + 1' if a.family == 'int' and self.chance(6) else ''}" for a, b in some]
        time = self.pick(
            f"{one}.ts >= {two}.ts", f"{two}.ts <= {one}.ts", f"{one}.ts > {two}.ts", f"{two}.ts < {one}.ts"
        )
        condition = " AND ".join(self.dice.sample([*keys, time], len(keys) + 1))
        text = f"{first}{window} {one} {kind} {source} {two} ON {condition}"
        return Form(text, (*mine, *theirs), not window)

    def passed_on(self, stream: Arrivals) -> str:
        """A query in between: its rows keep their times, and perhaps their order."""
        word = self.pick("", "DISTINCT ")
        return f"(SELECT {word}{', '.join(c for c, _ in stream.columns)} FROM {stream.name} WHERE ts IS NOT NULL)"

    def interval_join(self, left: Arrivals, right: Arrivals) -> Form:
        """A join without windows whose condition bounds the times on both sides, now and then with a third stream that
        has no row in between."""
        self.scans -= 2
        one, two = self.name("t"), self.name("t")
        mine, theirs = fields_of(left, one), fields_of(right, two)
        low = self.dice.choice((-6, -3, 0, 0, 0, 1, 3))
        high = low + self.dice.choice((0, 2, 5, 9))
        bounds = self.bounds(f"{one}.ts", f"{two}.ts", low, high)
        pairs = [(a, b) for a in mine for b in theirs if a.family == b.family and a.family not in ("time", "double")]
        some = self.dice.sample(pairs, min(len(pairs), self.dice.choice((0, 1, 1))))
        keys = [f"{a.text} = {b.text}" for a, b in some]
        tests = self.dice.sample([*keys, *bounds], len(keys) + len(bounds))
        fields, after = (*mine, *theirs), list[str]()
        if self.scans > 0 and self.chance(3):
            self.scans -= 1
            third = self.name("t")
            order = (one, two) if high > 0 else (two, one)
            between = f"{third}.ts > {order[0]}.ts AND {third}.ts {self.pick('<', '<=')} {order[1]}.ts"
            word = self.pick("NOT EXISTS", "EXISTS")
            after = [f"{word} (SELECT 1 FROM {right.name} {third} WHERE {between})"]
        match self.pick("ON", "WHERE", "LEFT", "SEMI" if not after else "ON"):
            case "WHERE":
                return Form(f"{left.name} {one} CROSS JOIN {right.name} {two}", fields, False, (*tests, *after))
            case "LEFT":
                word = self.pick("LEFT", "RIGHT", "FULL")
                text = f"{left.name} {one} {word} JOIN {right.name} {two} ON {' AND '.join(tests)}"
                return Form(text, fields, False, tuple(after))
            case "SEMI":
                word = self.pick("SEMI", "ANTI")
                text = f"{left.name} {one} {word} JOIN {right.name} {two} ON {' AND '.join(tests)}"
                return Form(text, mine, False)
        return Form(f"{left.name} {one} JOIN {right.name} {two} ON {' AND '.join(tests)}", fields, False, tuple(after))

    def lateral(self, left: Arrivals, right: Arrivals) -> Form:
        """A subquery for each row of the left: an aggregate, rows, or the first of them."""
        self.scans -= 2
        one, two, alias = self.name("t"), self.name("t"), self.name("t")
        mine, theirs = fields_of(left, one), fields_of(right, two)
        windows = [f" [RANGE {self.dice.randint(1, 9)} MICROSECONDS]" for _ in range(2)]
        pairs = [(a, b) for a in mine for b in theirs if a.family == b.family and a.family not in ("time", "double")]
        tests = [f"{a.text} = {b.text}" for a, b in self.dice.sample(pairs, min(len(pairs), 1))]
        kind = self.pick("aggregate", "rows", "first")
        if kind != "first" and self.chance(3):
            tests.append(f"{two}.ts {self.pick('<', '>=', '<>')} {one}.ts")
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        source = f"FROM {right.name}{windows[1]} {two}{where}"
        picked = self.dice.choice(theirs)
        families: tuple[str, ...] = (picked.family, "time")
        match kind:
            case "aggregate":
                query = f"SELECT COUNT(*) AS c1, MAX({two}.ts) AS c2 {source}"
                families = ("int", "time")
            case "first":
                order = f"ORDER BY {two}.ts{self.pick('', ' DESC')}, {picked.text} LIMIT {self.dice.randint(1, 2)}"
                query = f"SELECT {picked.text} AS c1, {two}.ts AS c2 {source} {order}"
            case _:
                query = f"SELECT {picked.text} AS c1, {two}.ts AS c2 {source}"
        join = self.pick("CROSS JOIN LATERAL {}", "LEFT JOIN LATERAL {} ON TRUE", "JOIN LATERAL {} ON TRUE")
        text = f"{left.name}{windows[0]} {one} {join.format(f'({query}) AS {alias}')}"
        found = [Field(f"{alias}.c{i}", family) for i, family in enumerate(families, 1)]
        return Form(text, (*mine, *found), False)

    def lengths(self) -> tuple[int, int]:
        """A slide or step, and a multiple of it."""
        step = self.dice.choice((1, 2, 3, 5))
        return step, step * self.dice.choice((1, 2, 3, 4))

    def window_table(self, stream: Arrivals) -> Form:
        """A window as a table function, written in one of the ways."""
        self.scans -= 1
        alias, (step, size) = self.name("t"), self.lengths()
        names = [name for name, _ in stream.columns]
        source = stream.name
        if self.chance(5):
            source = f"(SELECT {', '.join(names)} FROM {stream.name} WHERE ts IS NOT NULL)"
        kind = self.pick("TUMBLE", "HOP", "HOP", "CUMULATE", "SESSION")
        lengths = {"TUMBLE": [size], "SESSION": [size]}.get(kind, [step, size])
        keys = self.dice.sample(names, self.dice.randint(0, min(2, len(names)))) if kind == "SESSION" else []
        by = f" PARTITION BY {', '.join(keys)}" if keys else ""
        if kind != "SESSION" and self.chance(3):
            lengths = [*lengths, self.dice.randint(-9, 9)]  # an offset
        match self.pick("Flink", "named", "short", "short"):
            case "Flink":
                written = [f"TABLE {source}{by}", "DESCRIPTOR(ts)", *(f"INTERVAL '{n}' MICROSECOND" for n in lengths)]
                text = f"TABLE({kind}({', '.join(written)})) AS {alias}"
            case "named":
                words = {"TUMBLE": ["SIZE"], "SESSION": ["GAP"], "HOP": ["SLIDE", "SIZE"], "CUMULATE": ["STEP", "SIZE"]}
                given = [
                    f"{word} => INTERVAL '{n} us'" for word, n in zip([*words[kind], "OFFSET"], lengths, strict=False)
                ]
                written = [f"DATA => TABLE {source}{by}", "TIMECOL => DESCRIPTOR(ts)", *reversed(given)]
                text = f"TABLE({kind}({', '.join(written)})) {alias}"
            case _:
                written = [f"{source}{by}", "ts", *(f"{n} MICROSECONDS" for n in lengths)]
                text = f"{kind}({', '.join(written)}) {alias}"
        bounds = [Field(f"{alias}.window_{part}", "time") for part in ("start", "end", "time")]
        return Form(text, (*fields_of(stream, alias), *bounds), False)

    def group_window(self, stream: Arrivals) -> Form:
        """A window in GROUP BY, in a query of its own."""
        self.scans -= 1
        alias, (step, size) = self.name("t"), self.lengths()
        key = self.dice.choice([name for name, _ in stream.columns])
        one, two = f"INTERVAL '{step}' MICROSECOND", f"INTERVAL '{size}' MICROSECOND"
        match self.pick("TUMBLE", "HOP", "CUMULATE", "SESSION", "window", "windows", "session_window"):
            case "window":
                call = f"window(ts, '{size} microseconds')"
                start, end = f"{call}.start", self.pick("window.end", f"{call}.end")
            case "windows":
                offset = f", '{self.dice.randint(-9, 9)} microseconds'" if self.chance(2) else ""
                call = f"window(ts, '{size} microseconds', '{step} microseconds'{offset})"
                start, end = "window.start", "window.end"
            case "session_window":
                call, start, end = f"session_window(ts, '{size} us')", "session_window.start", "session_window.end"
            case kind:
                arguments = f"(ts, {one}, {two})" if kind in ("HOP", "CUMULATE") else f"(ts, {two})"
                end = self.pick("END", "END", "ROWTIME")
                call, start, end = f"{kind}{arguments}", f"{kind}_START{arguments}", f"{kind}_{end}{arguments}"
        having = self.pick("", "", "", f" HAVING COUNT(*) > 1 AND {start} <= MIN(ts)")
        families = (FAMILY.get(key, "time"), "time", "time", "int", "time")
        if self.chance(3):  # the window as a column, which is its two bounds
            names = ["c1", "c2.start", "c2.end", "c4", "c5"]
            by = self.pick(call, "c2", "2")
            listed = f"{key} AS c1, {call} AS c2, COUNT(*) AS c4, MAX(ts) AS c5"
        else:
            names, by = [f"c{i}" for i in range(1, 6)], call
            listed = f"{key} AS c1, {start} AS c2, {end} AS c3, COUNT(*) AS c4, MAX(ts) AS c5"
        text = f"(SELECT {listed} FROM {stream.name} GROUP BY {key}, {by}{having}) AS {alias}"
        fields = tuple(Field(f"{alias}.{name}", family) for name, family in zip(names, families, strict=True))
        return Form(text, fields, False)

    def window_join(self, left: Arrivals, right: Arrivals) -> Form:
        """A stream with the finished windows, of itself or of another, in which its rows are."""
        self.scans -= 2
        one, two, (step, size) = self.name("t"), self.name("t"), self.lengths()
        offset = f", INTERVAL '{self.dice.randint(-9, 9)}' MICROSECOND" if self.chance(3) else ""
        lengths = f"INTERVAL '{step}' MICROSECOND, INTERVAL '{size}' MICROSECOND{offset}"
        window = f"{self.pick('HOP', 'CUMULATE')}({right.name}, ts, {lengths})"
        mine = fields_of(left, one)
        bounds = [Field(f"{two}.window_{part}", "time") for part in ("start", "end")]
        if self.chance(2):
            query = f"SELECT window_start, window_end, COUNT(*) AS n, MAX(ts) AS high FROM {window} GROUP BY ALL"
            source, theirs = f"({query}) {two}", [*bounds, Field(f"{two}.n", "int"), Field(f"{two}.high", "time")]
        else:
            source, theirs = f"{window} {two}", [*fields_of(right, two), *bounds]
        tests = [
            self.pick(f"{one}.ts >= {two}.window_start", f"{two}.window_start <= {one}.ts"),
            self.pick(f"{one}.ts < {two}.window_end", f"{two}.window_end > {one}.ts"),
        ]
        fields = (*mine, *theirs)
        match self.pick("ON", "WHERE", "LEFT", "RIGHT"):
            case "ON":
                return Form(f"{left.name} {one} JOIN {source} ON {' AND '.join(tests)}", fields, False)
            case "WHERE":
                return Form(f"{left.name} {one} CROSS JOIN {source}", fields, False, tuple(tests))
            case word:
                return Form(f"{left.name} {one} {word} JOIN {source} ON {' AND '.join(tests)}", fields, False)

    def bounds(self, earlier: str, later: str, low: int, high: int) -> list[str]:
        """That the difference of two times is within bounds, in one of many ways."""

        def moved(time: str, by: int) -> str:
            return time if by == 0 else f"{time} {'+' if by > 0 else '-'} INTERVAL '{abs(by)}' MICROSECOND"

        match self.pick("between", "compared", "difference", "mirrored"):
            case "between":
                return [f"{later} BETWEEN {moved(earlier, low)} AND {moved(earlier, high)}"]
            case "difference":
                most = f"INTERVAL '{high + 1}' MICROSECOND" if high >= 0 else f"- INTERVAL '{-high - 1}' MICROSECOND"
                return [f"{later} >= {moved(earlier, low)}", f"{later} - {earlier} < {most}"]
            case "mirrored":
                return [f"{moved(earlier, low)} <= {later}", f"{moved(later, -high)} <= {earlier}"]
        return [f"{later} > {moved(earlier, low - 1)}", f"{moved(earlier, high + 1)} > {later}"]


def fields_of(stream: Arrivals, alias: str) -> tuple[Field, ...]:
    return tuple(Field(f"{alias}.{c}", FAMILY.get(c, "time")) for c, _ in stream.columns)
