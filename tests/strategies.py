"""Random continuous queries as SQL text, over random streams.

The writer keeps to what the language has, and otherwise to nothing: any select over any sources, nested, grouped, with
any window. Its words are in `vocabulary.py`.

It throws dice of the type `Random`. True dice cover much ground in little time; those of Hypothesis know how to make a
failing example small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypedDict

import user_functions as users
from random_streams import stream
from strandline.apps.verify.dataset import NameScope, QueryUnderTest
from strandline.core.errors import BindError
from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.logical.catalog import Catalog, TableKind
from strandline.logical.tree import streams_read
from strandline.planner.stages import optimize
from strandline.sql import ast
from strandline.sql.binder.create_function import with_definitions
from strandline.sql.parser.statements import parse
from stream_forms import FORMS, StreamForms
from support import DOMAIN, Arrivals
from table_feeds import draw_fed_table
from table_logs import DrawnTable, draw_table
from vocabulary import CALLS, FAMILY, LETTERS, LITERALS, NUMBERS, PATTERNS, PERIODS, SET_OPERATORS, Field, Fields


@dataclass(frozen=True)
class Table:
    """What stands in FROM: its text, what it makes visible, whether its elements are valid for one instant only, and
    the join conditions that were left for WHERE."""

    text: str
    fields: tuple[Field, ...]
    chronon: bool
    conditions: tuple[str, ...] = ()
    times: tuple[str, ...] = ()  # the time columns of streams that are joined here, one with all others
    plain: tuple[str, str] | None = None  # name and alias of a table, if it is nothing else


@dataclass(frozen=True)
class Select:
    """A query: its text, the families of its columns c1, c2, …, whether its elements are valid for one instant,
    whether they come in the order of one stream, and in microseconds how often anybody looks at them, if not always."""

    text: str
    families: tuple[str, ...]
    chronon: bool
    ordered: bool = False
    granule: int | None = None


@dataclass(frozen=True)
class Question:
    """Streams, tables, and a script over them that ends in a query."""

    streams: tuple[Arrivals, ...]
    text: str
    tables: tuple[DrawnTable, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """A GROUP BY: its text, its keys, calls of GROUPING, and whether everything is a group too, which never goes."""

    text: str
    keys: Fields
    flags: Fields = ()
    overall: bool = False

    @property
    def columns(self) -> Fields:
        """The keys that a subquery may name; not every database finds an expression again in there."""
        return [key for key in self.keys if not key.text.startswith("(")]


def listed(fields: Fields, named: bool = False) -> str:
    """The fields with commas between them, `named` as c1, c2, …"""
    return ", ".join(f"{field.text} AS c{i}" if named else field.text for i, field in enumerate(fields, 1))


def is_instant(window: str) -> bool:
    """Whether what has this window is valid for one instant only."""
    return not any(word in window for word in ("RANGE", "ROWS", "SESSION", "GRANULARITY"))


def qualified(fields: Fields) -> list[Field]:
    """Those that mean the same inside of a subquery, whatever columns that has."""
    return [field for field in fields if "." in field.text]


def shared_names(left: Table, right: Table) -> list[str]:
    """The names of columns that both have, each once and of one type: names of streams, since c1 may be anything."""

    def names(table: Table) -> list[str]:
        return [field.text.partition(".")[2] for field in table.fields if "." in field.text]

    mine, theirs = names(left), names(right)
    both = sorted(set(mine) & set(theirs))
    unclear = any(mine.count(name) > 1 or theirs.count(name) > 1 or name.startswith("c") for name in both)
    return [] if unclear else both


class Writer(StreamForms):
    """Writes one script. `scans` is how many streams it may still read: products grow quickly."""

    def __init__(
        self,
        dice: Random,
        streams: Sequence[Arrivals],
        tables: Sequence[DrawnTable] = (),
        forms: Sequence[str] = (),
        scans: int = 3,
    ) -> None:
        self.dice = dice
        self.streams = streams
        self.drawn = tables
        self.scans = scans
        self.forms = forms  # each FROM begins with one of these, if it can
        self.names = 0
        self.declared: list[tuple[str, Select]] = []
        self.statements: list[str] = []

    def pick(self, *options: str) -> str:
        return self.dice.choice(options)

    def chance(self, one_in: int) -> bool:
        """Whether to write something special; the simplest query has nothing of the kind."""
        return self.dice.randint(1, one_in) == one_in

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # ---- expressions ---------------------------------------------------------------------------------------------

    def value(self, fields: Fields, family: str, depth: int = 2) -> str:
        """An expression of a family over some fields."""
        own = [field.text for field in fields if field.family == family]
        if own and (depth == 0 or not self.chance(3)):
            return self.pick(*own)
        if depth == 0 or not self.chance(2):
            literal = self.pick(*LITERALS[family])
            return f"NULLIF({literal}, {literal})" if self.chance(12) else literal

        def some(other: str = family) -> str:
            return self.value(fields, other, depth - 1)

        if self.chance(5):
            otherwise = f" ELSE {some()}" if self.chance(2) else ""
            return f"CASE WHEN {self.condition(fields, depth - 1)} THEN {some()}{otherwise} END"
        if self.chance(6):
            return f"COALESCE({some()}, {self.pick(*LITERALS[family])})"
        if self.chance(3):
            template, families = self.dice.choice(CALLS[family])
            return template.format(*(some(other) for other in families))
        match family:
            case "int" | "decimal":
                operator = self.pick("+", "-", "*", "%") if family == "int" else self.pick("+", "-")
                return f"({some()} {operator} {some()})"
            case "double" if self.chance(4):
                return f"halved({some()})"
            case "double":
                return f"({some()} {self.pick('+', '-', '*', '/')} {some(self.pick(*NUMBERS))})"
            case "text":
                return self.pick(f"({some()} || {some()})", f"upper({some()})", f"initial({some()})")
            case "bool":
                return f"({self.condition(fields, depth - 1)})"
            case "date":
                return f"({some()} + 1)"
            case _:
                return f"({some()} + INTERVAL '3' MICROSECOND)"

    def condition(self, fields: Fields, depth: int = 2) -> str:
        if depth > 0 and self.chance(3):
            word = self.pick("AND", "OR")
            return f"({self.condition(fields, depth - 1)} {word} {self.condition(fields, depth - 1)})"
        if depth > 0 and self.chance(8):
            return f"NOT ({self.condition(fields, depth - 1)})"
        families = sorted({field.family for field in fields}) or ["int"]
        family = self.pick(*families)
        left = self.value(fields, family, min(depth, 1))
        match self.pick("compare", "compare", "compare", "null", "in", "between", "special"):
            case "special" if family == "text":
                return f"{left} {self.pick('', 'NOT ')}{self.pick('LIKE', 'ILIKE')} {self.pick(*PATTERNS)}"
            case "special":
                return f"{left} IS {self.pick('', 'NOT ')}DISTINCT FROM {self.value(fields, family, 0)}"
            case "null":
                return f"{left} IS {self.pick('NULL', 'NOT NULL')}"
            case "in":
                return f"{left} {self.pick('IN', 'NOT IN')} ({', '.join(LITERALS[family][:2])})"
            case "between":
                return f"{left} BETWEEN {LITERALS[family][0]} AND {self.value(fields, family, 0)}"
        other = self.pick(*NUMBERS) if family in NUMBERS else family
        return f"{left} {self.pick('=', '<>', '<', '<=', '>', '>=')} {self.value(fields, other, min(depth, 1))}"

    # ---- sources -------------------------------------------------------------------------------------------------

    def window(self) -> str:
        """A window clause; empty for every fourth or so."""
        if self.chance(5):
            return self.pick("", " WINDOW(NOW)", " [NOW]")
        if self.chance(9):
            return f" [SESSION {self.dice.choice((1, 2, 4, 7))} MICROSECONDS]"
        # Some are shorter than the slide.
        length = "UNBOUNDED" if self.chance(7) else f"{self.dice.choice((8, 14, 5, 3, 1))} MICROSECONDS"
        slide = f" SLIDE {self.dice.randint(1, 9)} MICROSECONDS" if self.chance(3) else ""
        text = f"RANGE {length}{slide}"
        return f" WINDOW({text})" if self.chance(2) else f" [{text}]"

    def table(self, depth: int) -> Table:
        alias = self.name("t")
        if depth > 0 and self.chance(3):
            inner = self.passing() if self.chance(4) else self.query(depth - 1)
            window = self.window_over(inner)
            fields = tuple(Field(f"{alias}.c{i}", family) for i, family in enumerate(inner.families, 1))
            return Table(f"({inner.text}){window} AS {alias}", fields, inner.chronon and is_instant(window))
        if self.declared and self.chance(2):
            name, inner = self.dice.choice(self.declared)
            window = self.window_over(inner)
            fields = tuple(Field(f"{alias}.c{i}", family) for i, family in enumerate(inner.families, 1))
            return Table(f"{name}{window} {alias}", fields, inner.chronon and is_instant(window))
        self.scans -= 1
        if self.drawn and self.chance(2):
            return self.stored_table(alias)
        stream = self.dice.choice(self.streams)
        names = [name for name, _ in stream.columns]
        window = "" if stream.intervals else self.rows_window(names) if self.chance(6) else self.window()
        if self.chance(12):
            window += f" GRANULARITY({self.dice.choice((2, 3, 5))} MICROSECONDS)"
        fields = tuple(Field(f"{alias}.{c}", FAMILY.get(c, "time")) for c, _ in stream.columns)
        chronon, times = not stream.intervals and is_instant(window), (f"{alias}.ts",)
        return Table(f"{stream.name}{window} {alias}", fields, chronon, times=() if "GRAN" in window else times)

    def stored_table(self, alias: str) -> Table:
        """A table; now and then as it was at a border of granules."""
        drawn = self.dice.choice(self.drawn)
        fields = tuple(Field(f"{alias}.{c}", FAMILY[c]) for c, _ in drawn.table.queried_columns)
        if self.chance(10):
            granules = f" GRANULARITY({self.dice.choice((2, 3, 5))} MICROSECONDS)"
            return Table(f"{drawn.name}{granules} {alias}", fields, False)
        return Table(f"{drawn.name} {alias}", fields, False, plain=(drawn.name, alias))

    def as_of(self, left: Table, right: Table) -> Table:
        """The right side, now and then looked up by the time of a stream of the left."""
        if right.plain is None or not left.times or self.chance(3):
            return right
        name, alias = right.plain
        return replace(right, text=f"{name} FOR SYSTEM_TIME AS OF {self.pick(*left.times)} {alias}")

    def window_over(self, inner: Select) -> str:
        """A window over a query that can have one."""
        if inner.ordered and self.chance(3):
            return self.rows_window([f"c{i}" for i in range(1, len(inner.families) + 1)])
        if inner.granule is not None:
            slide = f" SLIDE {inner.granule * self.dice.randint(1, 2)} MICROSECONDS" if self.chance(3) else ""
            return f" [RANGE {inner.granule * self.dice.randint(1, 3)} MICROSECONDS{slide}]"
        return self.window() if inner.chronon else ""

    def passing(self) -> Select:
        """A query that looks at the rows of a stream as they pass, or once per granule: it can have a window."""
        self.scans -= 1
        stream, alias = self.dice.choice(self.streams), self.name("t")
        fields = tuple(Field(f"{alias}.{c}", FAMILY.get(c, "time")) for c, _ in stream.columns)
        items, families = self.items(fields, None)
        where = f" WHERE {self.condition(fields, 1)}" if self.chance(3) else ""
        if self.chance(3):
            window, granule = "" if stream.intervals else self.window(), self.dice.choice((2, 3, 5))
            seen = f"{stream.name}{window} GRANULARITY({granule} MICROSECONDS) {alias}"
            return Select(f"SELECT {items} FROM {seen}{where}", families, chronon=False, granule=granule)
        chronon = not stream.intervals
        return Select(f"SELECT {items} FROM {stream.name} {alias}{where}", families, chronon, chronon)

    def rows_window(self, columns: Sequence[str]) -> str:
        most = min(2, len(columns))
        by = (
            f"PARTITION BY {', '.join(self.dice.sample(columns, self.dice.randint(1, most)))} "
            if self.chance(2)
            else ""
        )
        slide = f" SLIDE {self.dice.randint(1, 4)}" if self.chance(3) else ""
        if by and self.chance(4):
            return f" [{by}SESSION {self.dice.choice((2, 4, 7))} MICROSECONDS]"
        return f" [{by}ROWS {self.dice.randint(1, 4)}{slide}]"

    def tables(self, depth: int) -> Table:
        """A list of tables: joined on equal values, on any condition, or not at all."""
        form = self.form(self.forms or FORMS) if self.forms or self.chance(12) else None
        found = self.table(depth) if form is None else Table(form.text, form.fields, form.chronon, form.conditions)
        while self.scans > 0 and self.chance(2):
            right = self.table(depth)
            chronon = found.chronon and right.chronon
            condition = self.join_condition(found, right)
            times: tuple[str, ...] = ()
            match self.pick("on", "on", "outer", "where", "cross", "partner", "shared", "shared"):
                case "outer":
                    kind = self.pick("LEFT", "LEFT", "RIGHT", "FULL")
                    right = self.as_of(found, right) if kind == "LEFT" and found.plain is None else right
                    text, conditions = f"{found.text} {kind} JOIN {right.text} ON {condition}", found.conditions
                    chronon = found.chronon and (right.chronon or (kind == "LEFT" and right.plain is not None))
                case "on" if right.plain is not None and found.times and self.chance(4):
                    asof = self.pick("ASOF JOIN", "ASOF LEFT JOIN")
                    time = f"{self.pick(*found.times)} >= {right.plain[1]}.valid_from"
                    text, conditions = f"{found.text} {asof} {right.text} ON {condition} AND {time}", found.conditions
                    chronon = found.chronon
                case "on":
                    right = self.as_of(found, right)
                    text, conditions = f"{found.text} JOIN {right.text} ON {condition}", found.conditions
                    times = (*found.times, *right.times)
                    # What is joined with rows of an instant is valid for that instant.
                    chronon |= (found.chronon or right.chronon) and (found.plain is not None or right.plain is not None)
                case "where":
                    text, conditions = f"{found.text} CROSS JOIN {right.text}", (*found.conditions, condition)
                case "partner":
                    # A condition left for WHERE may name the right side of an earlier join, but not of this one.
                    text = f"{found.text} {self.pick('SEMI', 'ANTI')} JOIN {right.text} ON {condition}"
                    found = Table(text, found.fields, found.chronon, found.conditions)
                    continue
                case "shared" if names := shared_names(found, right):
                    return self.shared_join(found, right, names)
                case _:
                    text, conditions = f"{found.text} CROSS JOIN {right.text}", found.conditions
            found = Table(text, (*found.fields, *right.fields), chronon, conditions, times)
        return self.unnested(found) if self.chance(12) else found

    def unnested(self, table: Table) -> Table:
        """The elements of an array of the rows of a table."""
        alias, outer, family = self.name("t"), self.chance(2), self.pick("int", "text", "double")
        array = f"array({self.value(table.fields, family, 1)}, {self.value(table.fields, family, 1)})"
        if family == "text" and self.chance(2):
            array = f"string_to_array({self.value(table.fields, 'text', 1)}, 'a')"
        ordinality, names = (" WITH ORDINALITY", "(e, n)") if self.chance(2) else ("", "(e)")
        word, condition = ("LEFT JOIN", " ON TRUE") if outer else ("CROSS JOIN", "")
        text = f"{table.text} {word} UNNEST({array}){ordinality} AS {alias}{names}{condition}"
        added = (Field(f"{alias}.e", family), *((Field(f"{alias}.n", "int"),) if ordinality else ()))
        return Table(text, (*table.fields, *added), table.chronon, table.conditions, table.times)

    def shared_join(self, left: Table, right: Table, names: Sequence[str]) -> Table:
        """A join by the names of columns. Nothing joins it: the names that it merges would have two meanings then."""
        kind = self.pick("", "LEFT ", "RIGHT ", "FULL ")
        some = tuple(names[: self.dice.randint(1, len(names))])
        natural = self.chance(2)
        text = f"{left.text} {'NATURAL ' if natural else ''}{kind}JOIN {right.text}"
        merged = names if natural else some
        fields = [*left.fields, *right.fields, *(Field(name, FAMILY.get(name, "time")) for name in merged)]
        chronon = left.chronon and right.chronon
        return Table(text if natural else f"{text} USING ({', '.join(some)})", tuple(fields), chronon, left.conditions)

    def join_condition(self, left: Table, right: Table) -> str:
        both = (*left.fields, *right.fields)
        pairs = [(l, r) for l in left.fields for r in right.fields if l.family == r.family != "time"]  # noqa: E741
        if not pairs or self.chance(4):
            return self.condition(both, 1)
        left_key, right_key = self.dice.choice(pairs)
        more = f" AND {self.condition(both, 1)}" if self.chance(4) else ""
        return f"{left_key.text} = {right_key.text}{more}"

    def partner_test(self, fields: Fields, depth: int = 1) -> str:
        """A subquery that asks for a row with a property, tied to the query around it or not."""
        inner = self.table(0)
        conditions = [self.condition((*fields, *inner.fields), 1)] if self.chance(2) else []
        if depth > 0 and self.scans > 0 and self.chance(3):
            # The one inside reads the one around it, or both.
            seen = (*inner.fields, *fields) if self.chance(2) else inner.fields
            conditions.append(self.partner_test(seen, depth - 1) if self.chance(2) else self.scalar_test(seen))
        tied = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        pairs = [(l, r) for l in fields for r in inner.fields if l.family == r.family]  # noqa: E741
        if not pairs or self.chance(3):
            return f"{self.pick('', 'NOT ')}EXISTS (SELECT 1 FROM {inner.text}{tied})"
        outer, other = self.dice.choice(pairs)
        comparison = self.pick("IN", "NOT IN", "= SOME", "> ANY", "<> ALL", "<= ALL")
        if self.chance(4):
            tied += f" GROUP BY {other.text} HAVING {self.condition((Field('COUNT(*)', 'int'), *qualified(fields)), 0)}"
        return f"{outer.text} {comparison} (SELECT {other.text} FROM {inner.text}{tied})"

    def scalar(self, fields: Fields) -> Field:
        """A subquery that is a value, tied to the query around it or not."""
        inner = self.table(0)
        found = self.aggregate(inner.fields)
        ties = [f"{l.text} = {r.text}" for l in fields for r in inner.fields if l.family == r.family]  # noqa: E741
        tied = self.pick("", "", self.pick(*ties) if ties else "", self.condition((*fields, *inner.fields), 1))
        having = f" HAVING {self.condition((found,), 0)}" if self.chance(6) else ""
        if self.scans > 0 and self.chance(6):
            having = f" HAVING {self.partner_test(qualified(fields), 0)}"
        if self.scans > 0 and self.chance(4):
            test = self.partner_test((*inner.fields, *fields), 0)
            tied = f"{tied} AND {test}" if tied else test
        where = f" WHERE {tied}" if tied else ""
        return Field(f"(SELECT {found.text} FROM {inner.text}{where}{having})", found.family)

    def scalar_test(self, fields: Fields, outer: Fields | None = None) -> str:
        """A comparison with a subquery, which may be tied to the fields of `outer`: all of them if that is not said."""
        found = self.scalar(fields if outer is None else outer)
        return f"{self.value(fields, found.family, 0)} {self.pick('=', '<>', '<=', '>')} {found.text}"

    # ---- queries -------------------------------------------------------------------------------------------------

    def query(self, depth: int) -> Select:
        """A query, now and then only its first rows or its changes."""
        whole = self.combined(depth)
        if self.chance(10):
            return Select(f"{whole.text} {self.first_rows(whole)}", whole.families, whole.chronon)
        if self.chance(14):
            return self.ranked(whole)
        if self.chance(8):
            kind = self.pick("ISTREAM", "DSTREAM", "RSTREAM")
            return Select(f"{kind}({whole.text})", whole.families, kind != "RSTREAM" or whole.chronon)
        return whole

    def first_rows(self, whole: Select) -> str:
        places = self.dice.sample(range(1, len(whole.families) + 1), self.dice.randint(1, min(2, len(whole.families))))
        keys = [f"c{place}{self.pick('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST')}" for place in places]
        most = self.dice.randint(1, 3)
        return f"ORDER BY {', '.join(keys)} {self.pick(f'LIMIT {most}', f'FETCH FIRST {most} ROWS WITH TIES')}"

    def ranked(self, whole: Select) -> Select:
        """The rows of a query with certain places, and perhaps the places themselves."""
        inner, outer = self.name("q"), self.name("q")
        fields = [Field(f"{inner}.c{i}", family) for i, family in enumerate(whole.families, 1)]
        ranked = f"SELECT {inner}.*, {self.rank(fields)} AS place FROM ({whole.text}) AS {inner}"
        asked = [self.place_test(f"{outer}.place")] if not self.chance(4) else []
        if self.chance(3):
            asked.append(self.condition([Field(f"{outer}.c{i}", f) for i, f in enumerate(whole.families, 1)], 1))
        listed, families = [f"{outer}.c{i}" for i in range(1, len(whole.families) + 1)], whole.families
        if self.chance(3):
            listed, families = [*listed, f"{outer}.place AS c{len(families) + 1}"], (*families, "int")
        where = f" WHERE {' AND '.join(asked)}" if asked else ""
        return Select(f"SELECT {', '.join(listed)} FROM ({ranked}) AS {outer}{where}", families, whole.chronon)

    def rank(self, fields: Fields) -> str:
        """The place of a row among all, or among those of its partition."""
        by = [self.dice.choice(fields).text for _ in range(self.dice.randint(1, 2))]
        keys = [f"{key}{self.pick('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST')}" for key in by]
        each = f"PARTITION BY {self.key(fields).text} " if not self.chance(3) else ""
        return f"RANK() OVER ({each}ORDER BY {', '.join(keys)})"

    def ranked_or_counted(self, fields: Fields) -> Field:
        """The place of a row, or an aggregate over the rows of its partition."""
        if self.chance(2):
            return Field(self.rank(fields), "int")
        each = f"PARTITION BY {self.key(fields).text}" if not self.chance(3) else ""
        numbers = [field.text for field in fields if field.family in NUMBERS]
        counts = [f"COUNT({self.dice.choice(fields).text})", *(f"COUNT_IF({text} > 0)" for text in numbers[:1])]
        return Field(f"{self.pick('COUNT(*)', *counts)} OVER ({each})", "int")

    def place_test(self, place: str) -> str:
        most = self.dice.randint(1, 3)
        return self.pick(f"{place} <= {most}", f"{place} < {most + 1}", f"{most} >= {place}", f"{place} = {most}",
                         f"{place} BETWEEN 1 AND {most}", f"{place} > {most}")  # fmt: skip

    def qualify(self, fields: Fields) -> str:
        """A condition on the places of rows, now and then."""
        return f" QUALIFY {self.place_test(self.rank(fields))}" if fields and self.chance(14) else ""

    def combined(self, depth: int) -> Select:
        """A select, or two with the same columns and a set operator between them."""
        first = self.select(depth)
        if self.scans <= 0 or not self.chance(2):
            return first
        second = self.select(depth, first.families)
        operator = self.pick("UNION ALL", *SET_OPERATORS)
        return Select(f"{first.text} {operator} {second.text}", first.families, first.chronon and second.chronon)

    def select(self, depth: int, wanted: tuple[str, ...] | None = None) -> Select:
        tables = self.tables(depth)
        conditions = (*tables.conditions, *((self.condition(tables.fields),) if self.chance(4) else ()))
        if self.scans > 0 and self.chance(3):
            test = self.partner_test(tables.fields)
            conditions += (test if self.chance(2) else f"({test} OR {self.condition(tables.fields, 1)})",)
        if self.scans > 0 and self.chance(5):
            conditions += (self.scalar_test(tables.fields),)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        match self.pick("plain", "plain", "distinct", "grouped", "grouped", "whole", "sets"):
            case "grouped":
                by = [self.key(tables.fields) for _ in range(self.dice.randint(1, 2))]
                return self.grouped(tables, where, wanted, Grouping(listed(by), by))
            case "whole":
                return self.grouped(tables, where, wanted, Grouping("", (), overall=True))
            case "sets":
                return self.grouped(tables, where, wanted, self.grouping_sets(tables.fields))
            case shape:
                scalars = (self.scalar(tables.fields),) if self.scans > 0 and self.chance(6) else ()
                items, families = self.items((*tables.fields, *scalars), wanted)
                if wanted is None and self.scans > 0 and self.chance(6):
                    asked = self.partner_test(tables.fields)
                    items, families = f"{items}, ({asked}) AS c{len(families) + 1}", (*families, "bool")
                distinct = "DISTINCT " if shape == "distinct" else ""
                if wanted is None and self.chance(16):
                    found = self.ranked_or_counted(tables.fields)
                    items, families = f"{items}, {found.text} AS c{len(families) + 1}", (*families, found.family)
                text = f"SELECT {distinct}{items} FROM {tables.text}{where}{self.qualify(tables.fields)}"
                return Select(text, families, tables.chronon)

    def grouped(self, tables: Table, where: str, wanted: tuple[str, ...] | None, by: Grouping) -> Select:
        keys = (*by.keys, *by.flags)
        visible = [*keys, *(self.aggregate(tables.fields) for _ in range(self.dice.randint(0 if keys else 1, 3)))]
        if self.scans > 0 and self.chance(6):
            visible.append(self.scalar(by.columns))
        if wanted is None and self.chance(2):
            items, families = listed(visible, named=True), tuple(field.family for field in visible)
        else:
            items, families = self.items(visible, wanted, must_aggregate=not by.text)
        distinct = "DISTINCT " if self.chance(8) else ""
        group = f" GROUP BY {by.text}" if by.text else ""
        having = self.having(by, visible)
        qualify = self.qualify([field for field in visible if "SELECT" not in field.text])
        text = f"SELECT {distinct}{items} FROM {tables.text}{where}{group}{having}{qualify}"
        return Select(text, families, not by.overall and tables.chronon)

    def having(self, by: Grouping, visible: Fields) -> str:
        tests = [self.condition(visible, 1)] if self.chance(6) else []
        if by.flags and self.chance(3):
            tests.append(f"{self.dice.choice(by.flags).text} {self.pick('= 0', '= 1', '<> 0', '<= 1')}")
        if self.scans > 0 and self.chance(8):
            tests.append(self.partner_test(by.columns) if self.chance(2) else self.scalar_test(visible, by.columns))
        word = self.pick(" AND ", " OR ")
        return f" HAVING {word.join(tests)}" if tests else ""

    def grouping_sets(self, fields: Fields) -> Grouping:
        """Several ways to group at once, alone or beside ordinary keys."""
        by = [self.key(fields) for _ in range(self.dice.randint(1, 3))]
        plain = self.dice.randint(0, len(by) - 1) if self.chance(3) else 0
        alone, several = by[:plain], by[plain:]
        text, has_empty = self.several_ways(several)
        if len(several) > 1 and self.chance(6):
            # Side by side, each way of the one is combined with each of the other.
            (one, first), (two, second) = self.several_ways(several[:1]), self.several_ways(several[1:])
            text, has_empty = f"{one}, {two}", first and second
        flags = [self.flag(by) for _ in range(self.dice.randint(0, 2))]
        return Grouping(f"{listed(alone)}, {text}" if alone else text, by, flags, has_empty and not alone)

    def several_ways(self, keys: Fields) -> tuple[str, bool]:
        """An element of GROUP BY with all of the keys, and whether one of its ways is by nothing at all."""
        kind = self.pick("GROUPING SETS", "GROUPING SETS", "ROLLUP", "CUBE")
        if kind != "GROUPING SETS":
            together = len(keys) > 2 and self.chance(3)
            parts = f"({listed(keys[:2])}), {listed(keys[2:])}" if together else listed(keys)
            return f"{kind} ({parts})", True
        sets = [list(self.dice.sample(keys, self.dice.randint(0, len(keys)))) for _ in range(self.dice.randint(1, 3))]
        missing = [key for key in keys if not any(key in each for each in sets)]
        sets[-1] += missing
        if self.chance(4):
            sets.append(self.dice.choice(sets))
        parts = ", ".join(listed(each) if len(each) == 1 and self.chance(2) else f"({listed(each)})" for each in sets)
        if self.chance(6):
            return f"GROUPING SETS ({parts}, {self.pick('ROLLUP', 'CUBE')} ({listed(keys)}))", True
        return f"GROUPING SETS ({parts})", not all(sets)

    def flag(self, keys: Fields) -> Field:
        """Whether keys are left out of the way at hand."""
        return Field(f"GROUPING({listed(self.dice.sample(keys, self.dice.randint(1, min(2, len(keys)))))})", "int")

    def key(self, fields: Fields) -> Field:
        field = self.dice.choice(fields)
        return Field(f"({field.text} % 2)", "int") if field.family == "int" and self.chance(4) else field

    def aggregate(self, fields: Fields) -> Field:
        if self.chance(3):
            return Field(f"COUNT(*){self.filter(fields)}", "int")
        if self.chance(6):
            return Field(f"{self.pick('BOOL_AND', 'BOOL_OR', 'EVERY')}({self.condition(fields, 1)})", "bool")
        if self.chance(16):
            return self.user_aggregate(fields)
        if self.chance(4):
            return self.aggregate_of_two(fields)
        families = sorted({field.family for field in fields})
        family = self.pick(
            *families, *(known for known in families if known in NUMBERS)
        )  # most aggregates are of numbers
        argument = self.value(fields, family, 1)
        spread = ("STDDEV", "STDDEV_POP", "VAR_POP", "VAR_SAMP")
        numeric = (*("SUM", "AVG") * 4, *("MEDIAN", "PERCENTILE_CONT") * 2, *spread * 3)
        others = ("COUNT", "MIN", "MAX", "FIRST", "LAST", "MODE", "PERCENTILE_DISC", "ARRAY_AGG")
        texts = ("STRING_AGG",) * 6 if family == "text" else ()
        function = self.pick(*others, *texts, *(numeric if family in NUMBERS else ()))
        doubles = ("AVG", *spread, "MEDIAN", "PERCENTILE_CONT")
        result = "int" if function == "COUNT" else "double" if function in doubles else family
        if function == "SUM" and family == "int":
            result = "decimal"  # that of BIGINTs has more room
        direction = self.pick("", " DESC", " NULLS FIRST")
        match function:
            case "PERCENTILE_CONT" | "PERCENTILE_DISC":
                fraction = self.pick("0", "0.25", "0.5", "1")
                return Field(f"{function}({fraction}) WITHIN GROUP (ORDER BY {argument}{direction})", result)
            case "MODE":
                return Field(f"MODE() WITHIN GROUP (ORDER BY {argument}{direction})", result)
            case "FIRST" | "LAST":
                return Field(f"{function}({argument} ORDER BY {self.dice.choice(fields).text}{direction})", result)
            case "STRING_AGG":
                order = f" ORDER BY {self.dice.choice(fields).text}{direction}" if self.chance(2) else ""
                return Field(f"STRING_AGG({argument}, '|'{order})", result)
            case "ARRAY_AGG":
                by, distinct = self.dice.choice(((self.dice.choice(fields).text, ""), (argument, "DISTINCT ")))
                order = f" ORDER BY {by}{direction}" if self.chance(2) else ""
                array = f"ARRAY_AGG({distinct}{argument}{order}){self.filter(fields)}"
                return Field(f"cardinality({array})", "int") if self.chance(4) else Field(f"{array}[2]", result)
        distinct = "DISTINCT " if self.chance(2 if function in ("SUM", "AVG") else 3) else ""
        return Field(f"{function}({distinct}{argument}){self.filter(fields)}", result)

    def aggregate_of_two(self, fields: Fields) -> Field:
        """An aggregate of pairs of numbers, or the value of the row with the greatest or least other one."""
        if self.chance(3):
            family = self.dice.choice(fields).family
            value, by = self.value(fields, family, 1), self.dice.choice(fields).text
            return Field(f"{self.pick('MAX_BY', 'ARG_MIN')}({value}, {by}){self.filter(fields)}", family)
        if self.chance(8):
            return Field(f"COUNT_IF({self.condition(fields, 1)}){self.filter(fields)}", "int")
        y, x = (self.value(fields, self.pick("int", "double"), 1) for _ in range(2))
        name = self.pick(*PAIR_AGGREGATES)
        call = f"{name.upper()}({y}, {x}){self.filter(fields)}"
        # Often 1, but for the last digit, in which databases differ: that less 1 could be compared with nothing.
        return Field(f"round({call}, 6)" if name in ("corr", "regr_r2") else call, "double")

    def user_aggregate(self, fields: Fields) -> Field:
        """One of those in `user_functions.py`."""
        if self.chance(2):
            order = f" ORDER BY {self.dice.choice(fields).text}{self.pick('', ' DESC')}" if self.chance(2) else ""
            return Field(f"in_line({self.value(fields, 'text', 1)}{order}){self.filter(fields)}", "text")
        return Field(f"tally({self.pick('', 'DISTINCT ')}{self.value(fields, 'int', 1)}){self.filter(fields)}", "int")

    def filter(self, fields: Fields) -> str:
        return f" FILTER (WHERE {self.condition(fields, 1)})" if self.chance(6) else ""

    def items(
        self, fields: Fields, wanted: tuple[str, ...] | None, must_aggregate: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        """The SELECT list; the families of its columns are drawn unless they are `wanted`."""
        known = sorted({field.family for field in fields})
        families = wanted or tuple(self.pick(*known) for _ in range(self.dice.randint(1, 3)))
        values = [self.value(fields, family) for family in families]
        if must_aggregate and not any(field.text in value for field in fields for value in values):
            # Constants alone do not make an aggregation.
            aggregated = next((f for f in fields if f.family == families[0]), None)
            count = {"int": "COUNT(*)", "double": "AVG(1e0)", "decimal": "SUM(1.00)"}
            values[0] = aggregated.text if aggregated else count.get(families[0]) or f"MIN({LITERALS[families[0]][0]})"
        return ", ".join(f"{value} AS c{i}" for i, value in enumerate(values, 1)), families

    def script(self) -> str:
        if self.chance(3):
            view = self.passing() if self.chance(2) else self.query(1)
            name = self.name("v")
            self.declared.append((name, view))
            self.scans = max(self.scans, 1)
            if self.chance(3):
                return f"WITH {name} AS ({view.text}) {self.query(2).text}"
            self.statements.append(f"CREATE {self.pick('STREAM', 'VIEW')} {name} AS {view.text};")
        self.statements.append(self.query(2).text)
        return "\n".join(self.statements)


def question(dice: Random, with_tables: bool | None = False, forms: Sequence[str] = (), long: bool = False) -> Question:
    """Up to three streams with up to four columns each, and a query over them; with tables, or for None in two of five
    questions; with `forms`, each FROM begins with one of them, if it can. `long` streams have some dozens of rows, and
    fewer of them are combined."""
    tables = some_tables(dice) if with_tables or (with_tables is None and dice.randint(1, 5) <= 2) else ()
    streams = []
    for number in range(dice.randint(1, 1 if tables else 3)):
        letters = dice.sample(sorted(LETTERS), dice.randint(1, 4))
        if tables:  # they have a column in common
            letters = sorted({*letters, tables[0].columns[0][0]})
        least, most = dice.choice(((4, 8), (4, 8), (4, 8), (4, 8), (4, 8), (4, 8), (1, 4), (0, 0)))
        rows = dice.randint(25, 60) if long else dice.randint(least, most)
        streams.append(stream(dice, f"s{number}", letters, rows, 3 * rows if long else 15))
    while True:
        text = Writer(dice, streams, tables, forms, 2 if long else 3).script()
        if is_allowed(text, streams, tables):
            return Question(tuple(streams), text, tables)


class _Declared(TypedDict):
    """What tables of both kinds are declared with."""

    key: tuple[str, ...]
    kind: TableKind
    retroactive: bool
    required: tuple[str, ...]


def some_tables(dice: Random) -> tuple[DrawnTable, ...]:
    """One table or two: bags and keyed ones, retroactive or not, now and then constant or temporal; changed by
    statements or by a source."""
    tables = []
    for number in range(dice.randint(1, 2)):
        letters = dice.sample("ibmsoyd", dice.randint(1, 3))
        key = tuple(letters[: dice.randint(1, 2)]) if dice.random() < 0.5 else ()
        kinds: tuple[TableKind, ...] = ("constant", "temporal", "changing")
        kind = dice.choices(kinds, (1, 2, 4))[0]
        columns, retroactive = {letter: LETTERS[letter] for letter in letters}, dice.random() < 0.5
        period: tuple[str, str] | tuple[None, None] = (None, None)
        required = tuple(letter for letter in letters if letter not in key and dice.random() < 0.2)
        some = [letter for letter in letters if dice.random() < 0.25]
        defaults = {letter: dice.choice(DOMAIN[LETTERS[letter].name][:2]) for letter in some}
        if kind == "temporal":
            period, of_time = dice.choice(PERIODS)
            columns |= dict.fromkeys(period, of_time)
        name, declared = f"r{number}", _Declared(key=key, kind=kind, retroactive=retroactive, required=required)
        if dice.random() < 0.3:
            tables.append(draw_fed_table(dice, name, columns, **declared, period=period))
        else:
            tables.append(draw_table(dice, name, columns, **declared, period=period, defaults=defaults))
    return tuple(tables)


def tested_query(text: str, catalog: Catalog) -> QueryUnderTest:
    """The query at the end of a script; those with names are bound, too, whether it reads them or not."""
    name_scope = NameScope(catalog)
    for statement in with_definitions(tuple(parse(text)), catalog.functions):
        match statement:
            case ast.CreateStreamAs(name, query) | ast.CreateView(name, _, query):
                name_scope = name_scope.with_query(name.name, query)
            case _ if isinstance(statement, ast.Query):
                if isinstance(statement, ast.With):
                    name_scope.inside(statement)
                return QueryUnderTest("query", statement, name_scope.plan(statement), name_scope)
            case _:
                raise AssertionError(f"no question has {statement}")
    raise AssertionError(f"no query in {text}")


# What has no meaning with tables that are looked up, or none yet; and windows over what has them by its conditions.
REFUSED = (
    "window-over-intervals",
    "lookup-over-changing",
    "lookup-preserved",
    "lookup-set-operation",
    "lookup-window",
    "lookup-as-of",
)


def is_allowed(text: str, streams: Sequence[Arrivals], tables: Sequence[DrawnTable]) -> bool:
    """Whether a script reads a stream and a table, and the binder knows what it means."""
    catalog = Catalog()
    catalog.notices.show = None
    users.bring(catalog)
    for stream_ in streams:
        catalog.add(stream_.declared)
    for drawn in tables:
        catalog.add(drawn.table)
    try:
        read = streams_read(optimize(tested_query(text, catalog).plan))  # what is left: tables alone do not end
    except BindError as error:
        if error.code in REFUSED:
            return False
        raise
    return not tables or all(any(one.name in read for one in some) for some in (streams, tables))
