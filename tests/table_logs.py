"""What tests of tables share: tables whose logs were written by their stores, changed by random statements, and runs of
plans that read the logs batch by batch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from random import Random

import polars as pl

from strandline.apps.verify.record import Recorded, record_table
from strandline.connectors.tables.source import TableSource
from strandline.connectors.tables.store import open_table
from strandline.core.durable import encode_name
from strandline.core.errors import StrandlineError
from strandline.core.temporal import ALWAYS, FOREVER, LATEST, OPEN, Instant
from strandline.core.types import BIGINT, Type
from strandline.database.tables import Tables
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, Catalog, StreamStatistics, Table, TableKind
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.coalescing import coalesce_everywhere
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result_buffer import ResultBuffer
from strandline.sql import ast
from strandline.sql.binder.dml import bind_change
from strandline.sql.parser.statements import parse_one
from support import DOMAIN, Answer, Arrivals, Cuts, MemorySource, elements_of, form_strategy, moment


@dataclass(frozen=True)
class DrawnTable:
    """A table and its log. `base` is where it ends when a query begins, `reaches` how much of it each batch finds, and
    `statements` are those that were executed. Of a table with a feed `fed` has the elements by the definition, all that
    its rows say, and `late` is the number of changes that came after their watermark."""

    table: Table
    log: pl.DataFrame
    base: int
    reaches: tuple[int, ...]
    statements: tuple[str, ...]
    fed: pl.DataFrame | None = field(default=None, compare=False)
    late: int = 0

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def columns(self) -> tuple[tuple[str, Type], ...]:
        return self.table.columns

    @property
    def times(self) -> list[Instant]:
        """The instant of each change."""
        at = pl.when(pl.col(UNTIL) == OPEN).then(FROM).otherwise(UNTIL)
        return self.log.select(at).to_series().to_list()

    def recorded(self, end: int) -> Recorded:
        """What the table means for a query that has read its log up to a position: of a feed that it has read whole,
        what the definition says; else what the log says."""
        if self.fed is not None and end == self.log.height:
            return Recorded(self.table.input, self.fed)
        return record_table(self.table, self.log.head(end), self.base)

    def elements(self, end: int) -> tuple[Element, ...]:
        rows = self.recorded(end).rows.iter_rows(named=True)
        return tuple(Element(row[FROM], {name: row[name] for name, _ in self.columns}, row[UNTIL]) for row in rows)


# ---- changes ---------------------------------------------------------------------------------------------------------


def literal(value: Value, kind: Type) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    text = (
        value.isoformat(" ") if isinstance(value, datetime) else value.isoformat() if isinstance(value, date) else value
    )
    return f"CAST('{str(text).replace(chr(39), chr(39) * 2)}' AS {kind})"


class Statements:
    """Writes statements that change one table: rows that meet those of streams, now and then NULL."""

    def __init__(self, dice: Random, table: Table) -> None:
        self.dice, self.table = dice, table

    def value(self, name: str, kind: Type) -> str:
        if name in self.table.input.time_columns:
            return self.time(self.dice.choice((*range(-6, 15), None)), kind)
        domain = [value for value in DOMAIN[kind.name] if value != "a\0"]
        some: tuple[Value, ...] = (*domain[:2], domain[1], domain[1], self.dice.choice(domain))
        return literal(self.dice.choice(some if name in self.table.key else (*some, None)), kind)

    def time(self, at: Instant | None, kind: Type) -> str:
        return literal(at if at is None or kind == BIGINT else moment(at), kind)

    def row(self) -> str:
        """A row; that of a temporal table has a period, open or not, and now and then none."""
        values = {name: self.value(name, kind) for name, kind in self.table.columns}
        if times := self.table.input.time_columns:
            start, length = self.dice.randint(-6, 14), self.dice.choice((1, 2, 3, 5, 9, 20, None))
            length = self.dice.choice((0, -2)) if self.dice.random() < 0.05 else length
            period = (start, None if length is None else start + length)
            kinds = [self.table.column_type(name) for name in times]
            values |= dict(zip(times, map(self.time, period, kinds), strict=True))
        return f"({', '.join(values.values())})"

    def short_rows(self) -> str:
        """Columns and rows without some columns that have a DEFAULT, or with that word in their place."""
        left_out = {name for name in self.table.defaults if self.dice.random() < 0.7}
        kept = [(name, kind) for name, kind in self.table.columns if name not in left_out]
        if not kept or self.dice.random() < 0.3:
            kept = list(self.table.columns)
        values = ("DEFAULT" if name in left_out else self.value(name, kind) for name, kind in kept)
        return f"({', '.join(name for name, _ in kept)}) VALUES ({', '.join(values)})"

    def where(self) -> str:
        name, kind = self.dice.choice(self.table.columns)
        tests = (
            f" WHERE {name} = {self.value(name, kind)}",
            f" WHERE {name} IS NOT NULL",
            f" WHERE {name} IS NULL",
            "",
        )
        return self.dice.choices(tests, (6, 1, 1, 1))[0]

    def statement(self) -> str:
        table = self.table
        form = self.dice.choices(("insert", "update", "delete", "all"), (6, 3, 3, 0.3))[0]
        if form == "insert":
            rows = ", ".join(self.row() for _ in range(self.dice.choice((1, 1, 2, 3))))
            replaced = ", ".join(f"{name} = excluded.{name}" for name, _ in table.columns if name not in table.key)
            update = f" ON CONFLICT DO UPDATE SET {replaced}" if replaced else " ON CONFLICT DO NOTHING"
            conflict = self.dice.choice((update, update, " ON CONFLICT DO NOTHING")) if table.unique_key else ""
            if table.defaults and not table.input.time_columns and self.dice.random() < 0.5:
                return f"INSERT INTO {table.name} {self.short_rows()}{conflict}"
            return f"INSERT INTO {table.name} VALUES {rows}{conflict}"
        if form == "update":
            name, kind = self.dice.choice(table.columns)
            value = "DEFAULT" if name in table.defaults and self.dice.random() < 0.3 else self.value(name, kind)
            return f"UPDATE {table.name} SET {name} = {value}{self.where()}"
        return f"DELETE FROM {table.name}{self.where()}" if form == "delete" else f"TRUNCATE {table.name}"


def _reads_nothing(*_: object) -> pl.DataFrame:
    raise AssertionError("the statements have no query")


def draw_table(
    dice: Random,
    name: str,
    columns: Mapping[str, Type],
    *,
    key: tuple[str, ...] = (),
    kind: TableKind = "changing",
    retroactive: bool = True,
    period: tuple[str, str] | tuple[None, None] = (None, None),
    required: tuple[str, ...] = (),
    defaults: Mapping[str, Value] | None = None,
) -> DrawnTable:
    """A table that random statements have changed: by the clock and at given times, several of them at one instant. A
    temporal one has two columns with the `period` of a row."""
    directory = Path(tempfile.mkdtemp(prefix="strandline-drawn-"))
    now = dice.randint(-8, 2)
    start, end = period
    declared = Table(
        name,
        tuple(columns.items()),
        key,
        kind,
        retroactive,
        time_column=start,
        end_column=end,
        directory=str(directory / encode_name(name)),
        required=required,
        defaults=defaults or {},
    )
    store = open_table(declared, lambda: now)
    catalog = Catalog()
    tables = Tables(catalog, directory)
    try:
        table = tables.create(declared)
        catalog.add(table)
        executed: list[str] = []
        writer, share_given = Statements(dice, table), dice.choice((0.0, 0.3, 1.0))
        for _ in range(dice.randint(0, 9)):
            now = max(now, store.last_change) + dice.choice((0, 0, 1, 1, 2, 5))
            text = writer.statement()
            if dice.random() < share_given:
                text += f" AT TIMESTAMP '{moment(now)}'"
            with suppress(StrandlineError):  # a key twice, say: nothing has changed
                statement = parse_one(text)
                assert isinstance(statement, ast.TableChange)
                tables.change(bind_change(statement, catalog), _reads_nothing)
                executed.append(text)
        log = pl.concat([pl.DataFrame(store.log_schema.empty_table()), *store.read(0, store.reach)], rechunk=True)
    finally:
        tables.close()
        store.close()
        shutil.rmtree(directory)
    base = log.height if kind == "temporal" and dice.random() < 0.7 else dice.randint(0, log.height)
    reaches = sorted(dice.randint(base, log.height) for _ in range(4))
    return DrawnTable(table, log, base, (*reaches, log.height), tuple(executed))


# ---- runs ------------------------------------------------------------------------------------------------------------


class MemoryStore:
    """The log of a table, of which more is there from time to time, and what was promised of the rest."""

    def __init__(self, drawn: DrawnTable) -> None:
        self.log, self.times = drawn.log, drawn.times
        self.visible = [drawn.base, *drawn.reaches]
        self.reach = drawn.base
        self.promised: Instant = ALWAYS

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        """The next part of the log, as far as its changes are not before what was promised."""
        assert at_least < LATEST, "as the store says"
        if self.visible:
            self.reach = max(self.reach, self.visible.pop(0))
        last = self.times[self.reach - 1] if self.reach else ALWAYS
        following = self.times[self.reach] if self.reach < len(self.times) else FOREVER
        # A clock between this change and the next one; a stream that is ahead makes the next changes come first.
        while at_least > following:
            self.reach += 1
            following = self.times[self.reach] if self.reach < len(self.times) else FOREVER
        self.promised = max(self.promised, at_least, min(last + 1, following))
        return self.reach, self.promised


class MemoryTable(TableSource):
    """A reader of a table whose changes become visible batch by batch."""

    def __init__(self, stream: BaseStream, store: MemoryStore) -> None:
        super().__init__(stream, None)
        self.store = store

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        return self.store.promise(at_least)

    def seal(self, position: int) -> str:
        return ""

    def log_end(self) -> int:
        return self.store.reach

    def statistics(self) -> StreamStatistics:
        return StreamStatistics()

    def rows_left(self, position: int) -> int | None:
        return None

    def last_change(self) -> Instant:
        return ALWAYS

    def bytes_per_row(self) -> float:
        return 1.0

    def _parts(self, start: int, end: int, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        yield self.store.log.slice(start, end - start).select(names)


def run_with_tables(
    plan: Plan, streams: Sequence[Arrivals], tables: Sequence[DrawnTable], cut: Cuts, batch_rows: int = 1000
) -> tuple[Answer, dict[str, int]]:
    """The result, and how far the log of each table was read."""
    inputs = [*(stream.declared for stream in streams), *(drawn.table.input for drawn in tables)]
    pipeline = lower("q", optimize(plan), inputs, cut.shards, form=cut.form, strategy=form_strategy(cut.forms))
    pipeline = coalesce_everywhere(pipeline) if cut.coalesces else pipeline
    read = {stream.name for stream in pipeline.streams}
    assert any(stream.name in read for stream in streams), "a query over tables only does not end"
    sizes = dict(zip((stream.name for stream in streams), cut.sizes, strict=False))
    sources: dict[str, MemorySource | MemoryTable] = {
        stream.name: MemorySource(stream, sizes.get(stream.name, ())) for stream in streams if stream.name in read
    }
    sources |= {
        drawn.name: MemoryTable(drawn.table.input, MemoryStore(drawn)) for drawn in tables if drawn.name in read
    }
    running = RunningPipeline(pipeline, batch_rows=batch_rows)
    sent, begin, answer = ResultBuffer(schema(plan), None), running.metrics.watermark("q"), Answer()
    run = LocalRun(running, sources=sources, tasks=cut.shards * len(sources))
    for report in run.batches():
        sent.add(report.results.get("q", ()), begin)
        begin = running.metrics.watermark("q")
    answer.elements = elements_of(sent.chunks(0, FOREVER).frame(schema(plan)))
    return answer, {drawn.name: run.positions[drawn.name].at if drawn.name in read else 0 for drawn in tables}
