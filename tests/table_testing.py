"""What tests of tables share: tables with a history, drawn at random. They come as streams whose rows bring their
intervals, and are declared as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from strandline.core.temporal import FOREVER, Instant
from strandline.core.types import INT, TIMESTAMP, VARCHAR, Type
from strandline.logical.catalog import Table, TableKind
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element
from support import Arrivals, Cuts, assert_exact, moment, raw, run_plan

COLUMNS: Mapping[str, Type] = {"i": INT, "v": INT, "w": VARCHAR}


def table(
    name: str,
    rows: Sequence[tuple[Instant, Instant | None, Mapping[str, Value]]],
    columns: Mapping[str, Type] = COLUMNS,
    key: tuple[str, ...] = (),
    kind: TableKind = "changing",
    *,
    retroactive: bool = False,
) -> Arrivals:
    """A table of rows that are there from one instant until another, or from then on."""
    elements: list[Element] = []
    for start, end, values in sorted(rows, key=lambda row: row[0]):
        times = {"ts": moment(start), "te": None if end is None else moment(end)}
        elements.append(Element(start, {**values, **times}, FOREVER if end is None else end))
    declared = Table(name, tuple(columns.items()), key, kind, retroactive)
    as_rows = (*columns.items(), ("ts", TIMESTAMP), ("te", TIMESTAMP))
    return Arrivals(name, as_rows, tuple(elements), intervals=True, table=declared)


def random_table(dice: Random, name: str, *, keyed: bool) -> Arrivals:
    """Rows that are inserted, updated and deleted at a few instants, several of them at one; with a key, one for each
    value of it at an instant."""
    rows: list[tuple[Instant, Instant | None, Mapping[str, Value]]] = []
    current: dict[int, list[tuple[Instant, Mapping[str, Value]]]] = {}
    for t in sorted(dice.randint(-8, 16) for _ in range(dice.randint(0, 12))):
        i = dice.choice((0, 1, 1, 2, -1))
        held = current.setdefault(i, [])
        if held and (keyed or dice.random() < 0.5):
            start, values = held.pop(dice.randrange(len(held)))
            rows += [(start, t, values)] if start < t else []  # what is replaced at once was never there
            if dice.random() < 0.3:
                continue
        held.append((t, {"i": i, "v": dice.randint(0, 3), "w": dice.choice(("a", "b", "", None))}))
    rows += [(start, None, values) for held in current.values() for start, values in held]
    return table(name, rows, key=("i",) if keyed else ())


def constant_table(dice: Random, name: str) -> Arrivals:
    """Rows that are there before all others come, and stay."""
    values: list[Mapping[str, Value]] = [
        {"i": dice.randint(-1, 2), "v": dice.randint(0, 3), "w": dice.choice("ab")} for _ in range(4)
    ]
    return table(name, [(-50, None, row) for row in values], kind="constant", retroactive=True)


def some_tables(seed: int) -> list[Arrivals]:
    """The tables of the cases of rules: t0 has a key, t1 has none, c0 is constant, r0 is retroactive."""
    dice = Random(seed)
    tables = [random_table(dice, "t0", keyed=True), random_table(dice, "t1", keyed=False), constant_table(dice, "c0")]
    keyed = random_table(dice, "r0", keyed=True)
    assert keyed.table is not None
    return [*tables, replace(keyed, table=replace(keyed.table, retroactive=True))]


def check(plan: Plan, inputs: Sequence[Arrivals], *cuts: Cuts) -> tuple[int, int]:
    """Hold a plan against the reference, optimised and as it is written, in turn: the instants that were compared, and
    the elements of a result."""
    answers = [run_plan(plan, inputs, cut, optimised=number % 2 == 0) for number, cut in enumerate(cuts)]
    return assert_exact(plan, raw(inputs), *answers), len(answers[0].elements)
