"""Tables with feeds, drawn at random: their logs come from real feeders, and what they hold from the definition."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest.mock import patch

import polars as pl

from strandline.connectors.tables.feeds import feeder
from strandline.connectors.tables.rows import payload_schema
from strandline.core.temporal import ALWAYS, FOREVER, Instant
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR, Type
from strandline.database.tables import Tables
from strandline.logical.catalog import Catalog, Table, TableKind
from strandline.logical.change_feed import DELETIONS, UPSERTS
from strandline.logical.expressions import Value
from strandline.logical.reference.interpreter import Element, bag
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.sql import ast
from strandline.sql.binder.create_table import bind_create_table
from strandline.sql.parser.statements import parse_one
from support import DOMAIN, moment
from table_logs import DrawnTable

OPERATIONS = ("insert", "insert", "u", "c", "delete", "d")
OP = "op"


@dataclass(frozen=True)
class FedRow:
    """A row of a source: the columns of the table, the operation where there is one, and the time of the change, which
    is None where the source says nothing. One of a temporal table is valid until `end`."""

    values: Mapping[str, Value]
    op: str = "insert"
    at: Instant | None = None
    end: Instant = FOREVER

    @property
    def is_deletion(self) -> bool:
        return self.op in DELETIONS


def draw_fed_table(
    dice: Random,
    name: str,
    columns: Mapping[str, Type],
    *,
    key: tuple[str, ...] = (),
    kind: TableKind = "changing",
    retroactive: bool = True,
    period: tuple[str, str] | tuple[None, None] = (None, None),
    required: tuple[str, ...] = (),
) -> DrawnTable:
    """A table that a source feeds: changes with times of their own, out of order and now and then late; or rows that
    are read once, of a constant table or of a temporal one with two columns for the `period` of a row."""
    time = None
    if kind == "changing":
        time, of_time = dice.choice((("since", TIMESTAMP), ("since_us", BIGINT)))
        columns = {**columns, time: of_time}
    has_operations = time is not None and dice.random() < (0.6 if key else 0.3)
    disorder = dice.choice((0, 2, 4))
    rows = [
        _draw_row(dice, columns, at, period, time, key, required, has_operations)
        for at in _draw_times(dice, disorder, kind)
    ]
    clauses = {"constant": "CONSTANT", "temporal": f"VALID FROM {period[0]} UNTIL {period[1]}"}.get(kind, "")
    if kind == "changing":
        clauses = "CHANGES IN op " * has_operations + f"ORDERED BY {time} WITHIN {disorder} MICROSECONDS"
        clauses += "" if retroactive else " NON RETROACTIVE"
    text = _create_table(name, columns, key, required, rows, has_operations, clauses)
    log, table, late = _load(text, dice.choice((1, 3, 1000)))
    accepted = [row for row in rows if _is_accepted(row, table)]
    dated = _effective(accepted, disorder) if time is not None else [(ALWAYS, row) for row in accepted]
    counted = sum(at > row.at for at, row in dated if row.at is not None)
    assert counted == late, f"{late} late changes instead of {counted}: {text}"
    base = dice.randint(0, log.height) if time is not None else log.height
    reaches = sorted(dice.randint(base, log.height) for _ in range(4))
    fed = None if kind == "temporal" and key else _as_frame(table, _content(dated, table))
    return DrawnTable(table, log, base, (*reaches, log.height), (text,), fed, late)


# ---- rows ------------------------------------------------------------------------------------------------------------


def _draw_times(dice: Random, disorder: int, kind: TableKind) -> Iterator[Instant | None]:
    latest = dice.randint(-8, 2)
    for _ in range(dice.randint(0, 12)):
        latest += dice.choice((0, 0, 1, 1, 2, 5))
        late = dice.randint(1, 4) if dice.random() < 0.1 else 0
        at = latest - dice.randint(0, disorder) - late * (disorder + 1)
        yield None if kind == "changing" and dice.random() < 0.04 else at


def _draw_row(
    dice: Random,
    columns: Mapping[str, Type],
    at: Instant | None,
    period: tuple[str, str] | tuple[None, None],
    time: str | None,
    key: tuple[str, ...],
    required: tuple[str, ...],
    has_operations: bool,
) -> FedRow:
    """Values that meet those of streams; a few rows are without a key, without a time, or without what is NOT NULL."""

    def value(name: str, kind: Type) -> Value:
        domain = [one for one in DOMAIN[kind.name] if one != "a\0"]
        if dice.random() < (0.05 if name in (*key, *required) else 0.25):
            return None
        return dice.choice((*domain[:2], domain[1], dice.choice(domain)))

    values = {name: value(name, kind) for name, kind in columns.items() if name not in (*period, time)}
    if time is not None:
        values[time] = None if at is None else _time(at, columns[time])
    until = FOREVER
    if (begin := period[0]) is not None and (end := period[1]) is not None and at is not None:
        length = dice.choice((0, -2)) if dice.random() < 0.05 else dice.choice((1, 2, 3, 5, 9, 20, None))
        until = FOREVER if length is None else at + length
        values |= {begin: _time(at, columns[begin]), end: None if length is None else _time(until, columns[end])}
    return FedRow(values, dice.choice(OPERATIONS) if has_operations else "insert", at, until)


def _time(at: Instant, kind: Type) -> Value:
    return at if kind == BIGINT else moment(at)


def _create_table(
    name: str,
    columns: Mapping[str, Type],
    key: tuple[str, ...],
    required: tuple[str, ...],
    rows: Sequence[FedRow],
    has_operations: bool,
    clauses: str,
) -> str:
    kinds = {**columns, OP: VARCHAR} if has_operations else columns
    declared = [f"{column} {kind}{' NOT NULL' * (column in required)}" for column, kind in kinds.items()]
    declared += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
    written = ("(" + ", ".join(_literal({**row.values, OP: row.op}[column]) for column in kinds) + ")" for row in rows)
    return f"CREATE TABLE {name} ({', '.join(declared)}) SOURCE rows({', '.join(written)}) {clauses}"


def _literal(value: Value) -> str:
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def _load(text: str, step_rows: int) -> tuple[pl.DataFrame, Table, int]:
    """The log that the feeder of a table writes in steps of so many rows, and how many changes were late."""
    directory = Path(tempfile.mkdtemp(prefix="strandline-fed-"))
    statement = parse_one(text)
    assert isinstance(statement, ast.CreateTable)
    tables = Tables(Catalog(), directory)
    try:
        with patch.object(feeder, "LOAD_ROWS", step_rows):
            table = tables.create(bind_create_table(statement))
        store, position = tables.store(table), tables.feeders()[table.name].feed.position
        assert position.ended
        log = pl.concat([pl.DataFrame(store.log_schema.empty_table()), *store.read(0, store.reach)], rechunk=True)
        return log, table, position.late
    finally:
        tables.close()
        shutil.rmtree(directory)


# ---- the definition --------------------------------------------------------------------------------------------------


def _is_accepted(row: FedRow, table: Table) -> bool:
    """A row has its key and its time, what is inserted also what is NOT NULL, and a period is not empty. An update
    finds its row by the key only."""
    if row.op in UPSERTS and not table.key:
        return False
    needed = table.key if row.is_deletion else (*table.key, *table.required)
    if row.at is None or any(row.values[name] is None for name in needed):
        return False
    return row.end > row.at


def _effective(rows: Sequence[FedRow], disorder: int) -> list[tuple[Instant, FedRow]]:
    """Changes in the order of the instants at which they take effect: their own, or for late ones the watermark as it
    was when they came. At one instant they count in the order in which they came."""
    dated: list[tuple[Instant, FedRow]] = []
    latest: Instant | None = None
    for row in rows:
        assert row.at is not None
        dated.append((row.at if latest is None else max(row.at, latest - disorder), row))
        latest = row.at if latest is None else max(latest, row.at)
    return sorted(dated, key=lambda pair: pair[0])


def _content(dated: Sequence[tuple[Instant, FedRow]], table: Table) -> list[Element]:
    """The elements of a table after one change after the other. With a key an insertion replaces the row of its key and
    a deletion ends it; without, a deletion ends the oldest of the equal rows."""
    if table.kind == "temporal":
        return [Element(row.at, row.values, row.end) for _, row in dated if row.at is not None]
    names = [name for name, _ in table.columns]
    live: dict[str, list[tuple[Instant, Mapping[str, Value]]]] = {}
    elements: list[Element] = []
    for at, row in dated:
        identity = str(bag([tuple(row.values[name] for name in table.unique_key or names)]))
        same = live.setdefault(identity, [])
        if same and (table.unique_key or row.is_deletion):
            start, values = same.pop(0)
            elements += [Element(start, values, at)] if start < at else []
        if not row.is_deletion:
            same.append((at, row.values))
    elements += [Element(start, values, FOREVER) for rows in live.values() for start, values in rows]
    return elements


def _as_frame(table: Table, elements: Sequence[Element]) -> pl.DataFrame:
    shape = payload_schema(table) | {FROM: pl.Int64(), UNTIL: pl.Int64()}
    rows = [(*(e.values[name] for name, _ in table.columns), e.time, e.end) for e in elements]
    return pl.DataFrame(rows, schema=shape, orient="row")
