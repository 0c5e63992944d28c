"""What tests of tables share: tables as streams of intervals, drawn at random, and plans that read them as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import user_functions as users
from strandline.core.temporal import FOREVER, Instant
from strandline.core.types import INT, TIMESTAMP, VARCHAR, Type
from strandline.logical.catalog import Catalog, Table, TableKind
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan, Scan
from strandline.logical.reference.interpreter import Element
from strandline.logical.tree import transform_up
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse
from support import Arrivals, Cuts, assert_exact, moment, raw, run_plan


@dataclass(frozen=True)
class SomeTable:
    """A table with its history as elements."""

    declared: Table
    elements: tuple[Element, ...]

    @property
    def arrivals(self) -> Arrivals:
        """The table as a stream of rows that bring their intervals, in order of their starts."""
        columns = (*self.declared.columns, ("ts", TIMESTAMP), ("te", TIMESTAMP))
        return Arrivals(self.declared.name, columns, self.elements, intervals=True)


def element(values: Mapping[str, Value], start: Instant, until: Instant) -> Element:
    times = {"ts": moment(start), "te": None if until == FOREVER else moment(until)}
    return Element(start, {**values, **times}, until)


def table(
    name: str, rows: Sequence[tuple[Instant, Instant | None, Mapping[str, Value]]], columns: Mapping[str, Type],
    key: tuple[str, ...] = (), kind: TableKind = "changing", *, retroactive: bool = False,
) -> SomeTable:  # fmt: skip
    """A table of rows that are there from one instant until another."""
    declared = Table(name, tuple(columns.items()), key, kind, retroactive)
    elements = (element(values, start, FOREVER if until is None else until) for start, until, values in rows)
    return SomeTable(declared, tuple(sorted(elements, key=lambda e: e.time)))


COLUMNS = {"i": INT, "v": INT, "w": VARCHAR}


def random_table(dice: Random, name: str, *, keyed: bool, kind: TableKind = "changing") -> SomeTable:
    """Rows that are inserted, updated and deleted at a few instants, several of them at one; with a key, one for each
    value of it at an instant."""
    rows: list[tuple[Instant, Instant | None, dict[str, Value]]] = []
    current: dict[int, list[tuple[Instant, dict[str, Value]]]] = {}
    for t in sorted(dice.randint(-8, 16) for _ in range(dice.randint(0, 12))):
        i = dice.choice((0, 1, 1, 2, -1))
        held = current.setdefault(i, [])
        if held and (keyed or dice.random() < 0.5):
            start, values = held.pop(dice.randrange(len(held)))
            rows += [(start, t, values)] if start < t else []
            if dice.random() < 0.3:
                continue
        held.append((t, {"i": i, "v": dice.randint(0, 3), "w": dice.choice(("a", "b", "", None))}))
    rows += [(start, None, values) for held in current.values() for start, values in held]
    return table(name, rows, COLUMNS, ("i",) if keyed else (), kind)


def catalog_of(streams: Sequence[Arrivals], tables: Sequence[SomeTable]) -> Catalog:
    catalog = Catalog()
    users.bring(catalog)
    for stream in streams:
        catalog.add(stream.declared)
    for each in tables:
        catalog.add(each.declared)
    return catalog


def bind_with_tables(text: str, streams: Sequence[Arrivals], tables: Sequence[SomeTable]) -> Plan:
    (query,) = parse(text)
    assert isinstance(query, ast.Query)
    return bind_query(query, catalog_of(streams, tables))


def as_streams(plan: Plan) -> Plan:
    """The plan with tables read as streams of rows with intervals."""
    return transform_up(plan, lambda node: replace(node, table=None) if isinstance(node, Scan) else node)


def check(plan: Plan, streams: Sequence[Arrivals], tables: Sequence[SomeTable], *cuts: Cuts) -> tuple[int, int]:
    """Hold a plan against the reference, run as it is written and optimised; instants and elements."""
    inputs = [*streams, *(each.arrivals for each in tables)]
    written = as_streams(plan)
    answers = [run_plan(written, inputs, cut, optimised=number % 2 == 0) for number, cut in enumerate(cuts)]
    return assert_exact(written, raw(inputs), *answers), len(answers[0].elements)
