"""Random streams and random queries, judged by databases that are not ours: `make fuzz N=1500`, `make fuzz-forms`.

Every seed is a question: streams, a query over them, and a way to cut the streams into batches. The local engine
answers it, and DuckDB and PostgreSQL are asked for the plain query over the window contents at every instant at which
the answer can change, and one microsecond before and after. A question on which they differ is made small and kept as a
script in `tests/regressions/`, which the fast suite runs again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

import polars as pl

import user_functions as users
from fuzz_coverage import GROUPS, cells, meant
from over_queries import OverQueries, over_stream
from random_streams import cut
from strandline.apps.verify import check as judged
from strandline.apps.verify.dataset import QueryUnderTest
from strandline.apps.verify.on_duckdb import DuckDBOracle
from strandline.apps.verify.on_postgresql import PostgreSQLOracle
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.record import Recorded
from strandline.apps.verify.report import render
from strandline.apps.verify.server import temporary_server
from strandline.apps.verify.shrink import smallest_failing
from strandline.core.errors import SetupError
from strandline.core.temporal import EARLIEST, FOREVER, to_datetime
from strandline.core.types import Column
from strandline.logical.catalog import Catalog, Table
from strandline.logical.explain import show_plan
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.runtime.kernels.batch import UNTIL, frame_schema
from strategies import Question, question, tested_query
from stream_forms import FORMS
from support import Answer, Arrivals, Cuts, assert_exact, batch, run_plan
from table_logs import run_with_tables

KEPT = Path(__file__).parent / "regressions"
LEAST_SHARE = 0.01
# What questions are about, by the seed: of eight one each, mostly with long streams; the others are about anything.
SEEDS, LONG = 8, 0.75
ABOUT: Final[dict[int, tuple[str, ...]]] = {0: ("over",), 3: ("function", "function", "group"), 6: ("asof",)}
FORM_OF_SEED: Final = {0: "window functions", 3: "table functions", 6: "ASOF JOIN"}
GOAL_INSTANTS, GOAL_PLANS = 20_000, 1_000  # of a whole run
# Forms that a whole run compares at as many instants each, by the beginnings of their cells.
FORMS_JUDGED: Final = {
    "window functions": ("window functions: ",),
    "table functions": ("windows: tumble", "windows: hop", "windows: cumulate", "windows: finished session"),
    "ASOF JOIN": ("joins: asof",),
}


@dataclass
class Tally:
    """What a run has done."""

    questions: int = 0
    reference_instants: int = 0
    instants: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)  # instants by form or cell, and database
    plans: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def thin(self) -> list[str]:
        """The cells that fewer than one in a hundred questions are in."""
        wanted = [f"{group}: {cell}" for group, names in GROUPS.items() for cell in names]
        return [cell for cell in wanted if self.cells[cell] < LEAST_SHARE * self.questions]

    def few(self, databases: Iterable[str]) -> set[str]:
        """The forms that one of the databases has compared at too few instants."""
        pairs = product(FORMS_JUDGED, databases)
        return {form for form, database in pairs if self.judged[form, database] < GOAL_INSTANTS}


def ask(
    seed: int,
    databases: Sequence[OracleDatabase],
    tally: Tally,
    keep: bool = True,
    tables: bool | None = None,
    about: Sequence[str] | None = None,
) -> None:
    """One question; with or without `tables`, or as the dice say; `about` some forms, or what the seed says."""
    dice = Random(seed)
    asked = drawn_question(dice, tables, ABOUT.get(seed % SEEDS, ()) if about is None and not tables else about or ())
    cuts = cut(dice, asked.streams)
    tally.questions += 1
    bound = bound_question(asked)
    found = cells(asked, cuts) | set(meant(bound))
    forms = [form for form, begins in FORMS_JUDGED.items() if any(cell.startswith(begins) for cell in found)]
    tally.cells.update(found)
    tally.forms.update(forms)
    tally.plans.add(normalised(show_plan(bound.plan)))
    answer, streams = answered(asked, bound, cuts)
    elements = batch(schema(bound.plan), answer.elements).frame
    if asked.tables:  # the definition judges, too
        contents = {each.stream.name: elements_in(each) for each in streams}
        tally.reference_instants += assert_exact(bound.plan, contents, answer)
    for database in databases:
        name = database.dialect.name
        verdict = judged.check(database, bound, streams, elements)
        if verdict.unchecked is not None:
            tally.unchecked[f"{name}: {verdict.unchecked[:120]}"] += 1
            continue
        tally.instants[name] += verdict.instants
        tally.answered[name] += verdict.instants_with_rows
        tally.judged.update({(each, name): verdict.instants for each in (*forms, *found)})
        if not verdict.equal:
            small = smallest_failing(database, bound, streams)
            verdict = replace(verdict, smallest=small)
            text = script(asked, small or streams)
            tally.wrong.append(f"seed {seed}: {render([verdict], name)}\n{text}\n{cuts}")
            if keep:
                KEPT.mkdir(exist_ok=True)
                note = f"-- seed {seed}, judged by {name}, {cuts}\n"
                (KEPT / f"seed_{seed}_{name.lower()}.sql").write_text(note + text)


def drawn_question(dice: Random, tables: bool | None, about: Sequence[str]) -> Question:
    """A question about some forms, or about anything."""
    if not about:
        return question(dice, tables)
    long = dice.random() < LONG
    if about == ("over",):
        return Question((over_stream(dice, 70 if long else 14),), OverQueries(dice).query())
    return question(dice, False, about, long)


def answered(asked: Question, bound: QueryUnderTest, cuts: Cuts) -> tuple[Answer, list[Recorded]]:
    """The answer of the local engine, and the rows that it has seen."""
    streams = [recorded(stream) for stream in asked.streams]
    if not asked.tables:
        return run_plan(bound.plan, asked.streams, cuts), streams
    answer, ends = run_with_tables(bound.plan, asked.streams, asked.tables, cuts, 2 if cuts.shards == 1 else 1000)
    return answer, [*streams, *(drawn.recorded(ends[drawn.name]) for drawn in asked.tables)]


def elements_in(rows: Recorded) -> list[Element]:
    names = [name for name, _ in rows.stream.columns]
    found = zip(rows.rows.iter_rows(named=True), rows.times.tolist(), rows.ends.tolist(), strict=True)
    return [Element(start, {name: row[name] for name in names}, end) for row, start, end in found]


def bound_question(asked: Question) -> QueryUnderTest:
    catalog = Catalog()
    catalog.notices.show = None
    users.bring(catalog)
    for stream in asked.streams:
        catalog.add(stream.declared)
    for drawn in asked.tables:
        catalog.add(drawn.table)
    return tested_query(asked.text, catalog)


def recorded(stream: Arrivals) -> Recorded:
    shape = frame_schema(tuple(Column(name, name, kind) for name, kind in stream.columns))
    rows = [(*element.values.values(), element.time, element.end) for element in stream.elements]
    frame = pl.DataFrame(rows, schema=shape, orient="row")
    return Recorded(stream.declared, frame if stream.intervals else frame.drop(UNTIL))


def normalised(plan: str) -> str:
    """A plan without what makes no other plan of it: names, numbers and texts."""
    return re.sub(r"'[^']*'|#\d+|\d+", "?", plan)


# ---- scripts ---------------------------------------------------------------------------------------------------------


def script(asked: Question, streams: Iterable[Recorded]) -> str:
    """The question as a script of its own, which `strandline verify` takes, once it has `user_functions.py`."""
    declared: list[str] = []
    tables = {drawn.name: drawn for drawn in asked.tables}
    for each in streams:
        if (drawn := tables.get(each.stream.name)) is not None:
            declared += [f"{drawn.statements[0]};"] if drawn.table.source else table_script(drawn.table, each)
            continue
        columns = ", ".join(f"{name} {kind}" for name, kind in each.stream.columns)
        shown = each.rows.select([name for name, _ in each.stream.columns]).rows()
        rows = ", ".join(f"({', '.join(map(_value, row))})" for row in shown)
        when = "VALID FROM ts UNTIL te" if each.stream.has_intervals else "ORDERED BY ts"
        order = f"{when} WITHIN {each.stream.disorder_us} MICROSECONDS"
        declared.append(f"CREATE STREAM {each.stream.name} ({columns}) SOURCE rows({rows}) {order};")
    return "\n".join([*declared, f"{asked.text};", ""])


def table_script(table: Table, rows: Recorded) -> Iterator[str]:
    """Statements after which a table has these elements. Equal rows of a table without a key are inserted again when
    one of them ends."""
    required = dict.fromkeys(table.required, " NOT NULL")
    columns = ", ".join(f"{name} {kind}{required.get(name, '')}" for name, kind in table.columns)
    names = [name for name, _ in table.columns]
    key = f", PRIMARY KEY ({', '.join(table.key)})" if table.key else ""
    kind = " CONSTANT" if table.kind == "constant" else "" if table.retroactive else " NON RETROACTIVE"
    if table.kind == "temporal":
        kind += f" VALID FROM {table.time_column} UNTIL {table.end_column}"
    yield f"CREATE TABLE {table.name} ({columns}{key}){kind};"
    if table.kind == "temporal":
        for row in rows.rows.select(names).rows():
            yield f"INSERT INTO {table.name} VALUES ({', '.join(map(_value, row))});"
        return
    live: Counter[tuple[object, ...]] = Counter()
    elements = list(zip(rows.rows.select(names).rows(), rows.times.tolist(), rows.ends.tolist(), strict=True))
    for at in sorted({t for _, start, end in elements for t in (start, end) if t < FOREVER}):
        when = f"AT TIMESTAMP '{to_datetime(max(at, EARLIEST)).replace(tzinfo=None)}';"
        gone = Counter(row for row, _, end in elements if end == at)
        live -= gone
        for row in gone:
            same = [
                f"{n} IS NOT DISTINCT FROM CAST({_value(v)} AS {table.column_type(n)})"
                for n, v in zip(names, row, strict=True)
            ]
            yield f"DELETE FROM {table.name} WHERE {' AND '.join(same)} {when}"
        come = Counter(row for row, start, _ in elements if start == at)
        live += come
        again = Counter({one: live[one] - come[one] for one in gone})
        for row in (*come.elements(), *again.elements()):
            yield f"INSERT INTO {table.name} VALUES ({', '.join(map(_value, row))}) {when}"


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
    return "'" + text.replace("'", "''") + "'"


# ---- a run -----------------------------------------------------------------------------------------------------------


@contextmanager
def judges(wanted: Sequence[str]) -> Iterator[list[OracleDatabase]]:
    """The databases that can be had; why one cannot is printed."""
    with ExitStack() as stack:
        found: list[OracleDatabase] = []
        if "duckdb" in wanted:
            found.append(DuckDBOracle(threads=1))
            stack.callback(found[-1].close)
        if "postgresql" in wanted:
            try:
                found.append(PostgreSQLOracle(stack.enter_context(temporary_server())))
                stack.callback(found[-1].close)
            except SetupError as error:
                print(f"PostgreSQL does not judge this run. {error.render()}")
        yield found


def show(tally: Tally, seconds: float) -> None:
    for group, names in GROUPS.items():
        print(f"\n{group:<40}{''.join(f'{database:>12}' for database in tally.instants)}")
        for name in names:
            share = tally.cells[cell := f"{group}: {name}"] / max(tally.questions, 1)
            judged_by = "".join(f"{tally.judged[cell, database]:>12,}" for database in tally.instants)
            print(f"  {name:<30} {share:7.1%}{judged_by}{'   TOO FEW' if share < LEAST_SHARE else ''}")
    print(f"\n{tally.questions:,} questions, {len(tally.plans):,} different plans, {seconds:.0f} s")
    for name, count in tally.instants.items():
        print(f"{name}: {count:,} instants compared, {tally.answered[name] / max(count, 1):.0%} of them with rows")
    for form in FORMS_JUDGED:
        counts = ", ".join(f"{tally.judged[form, database]:,} by {database}" for database in tally.instants)
        print(f"{form}: {tally.forms[form]:,} questions; instants compared: {counts}")
    print(f"the definition: {tally.reference_instants:,} instants of questions with tables compared")
    for reason, count in tally.unchecked.most_common():
        print(f"not compared: {count} x {reason}")
    print(f"{len(tally.wrong)} wrong")


def choose_seeds(
    first: int, count: int, whole: bool, only_forms: bool, find_few: Callable[[], set[str]]
) -> Iterator[int]:
    """The seeds of a run. A whole one goes on with forms that were compared at too few instants."""
    for seed in range(first, first + 10 * count if whole else first + count):
        is_extra = seed >= first + count
        if not (only_forms or is_extra) or FORM_OF_SEED.get(seed % SEEDS) in find_few():
            yield seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("count", type=int, nargs="?", default=1500, help="how many seeds, each of which is a question")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--tables", action="store_true", help="only questions with tables")
    only.add_argument("--about", action="append", choices=("over", *dict.fromkeys(FORMS)), help="only these forms")
    forms = f"only seeds about {', '.join(FORMS_JUDGED)}, until each database has compared {GOAL_INSTANTS:,} instants"
    only.add_argument("--forms", action="store_true", help=f"{forms} of each")
    parser.add_argument("--database", action="append", choices=("duckdb", "postgresql"), help="who judges; both")
    options = parser.parse_args()
    about = None if options.about is None else tuple(options.about)
    again = "".join([" --tables" if options.tables else "", *(f" --about {form}" for form in about or ())])
    whole = options.count >= GOAL_PLANS and not (options.tables or options.about or options.forms)
    tally, began = Tally(), time.monotonic()
    print(f"seeds {options.seed} to {options.seed + options.count - 1}")
    with judges(options.database or ("duckdb", "postgresql")) as databases:
        names = [database.dialect.name for database in databases]
        for seed in choose_seeds(options.seed, options.count, whole, options.forms, lambda: tally.few(names)):
            before = len(tally.wrong)
            try:
                ask(seed, databases, tally, tables=options.tables or None, about=about)
            except Exception as error:
                tally.wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
            for text in tally.wrong[before:]:
                print(f"\n{text}\nagain: python tests/fuzz.py 1 --seed {seed}{again}", flush=True)
            if sys.stdout.isatty() and tally.questions % 10 == 0:
                print(f"\r{tally.questions:,} questions, {sum(tally.instants.values()):,} instants", end="", flush=True)
    show(tally, time.monotonic() - began)
    thin = whole and (tally.thin() or len(tally.plans) < GOAL_PLANS)
    few = (whole or options.forms) and tally.few(names)
    return 1 if tally.wrong or thin or few else 0


if __name__ == "__main__":
    sys.exit(main())
