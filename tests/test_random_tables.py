"""Tables in plans: whatever the changes, the batches and the forms, the result is that of the definition."""

from __future__ import annotations

import sys
from itertools import accumulate
from random import Random

import polars as pl

from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.source import TableSource
from strandline.core.temporal import ALWAYS, FOREVER, OPEN, Instant
from strandline.core.types import INT, VARCHAR, Column, Type
from strandline.engines.local import LocalRun
from strandline.logical.catalog import Catalog, Table
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.coalescing import coalesce_everywhere
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM, UNTIL, frame_schema
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result_buffer import ResultBuffer
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import Answer, Arrivals, Cuts, MemorySource, arrange, assert_exact, elements_of, form_strategy

COLUMNS: dict[str, Type] = {"k": INT, "v": VARCHAR}

QUERIES = (
    "SELECT a.k, a.v, t.v AS w FROM a {w} JOIN t ON a.k = t.k",
    "SELECT a.k, a.v, t.v AS w FROM a {w} LEFT JOIN t ON a.k = t.k",
    "SELECT a.k, a.v, t.v AS w FROM a {w} RIGHT JOIN t ON a.k = t.k",
    "SELECT a.k, a.v, t.v AS w FROM a {w} FULL JOIN t ON a.k = t.k",
    "SELECT a.k FROM a {w} SEMI JOIN t ON a.k = t.k",
    "SELECT a.k FROM a {w} ANTI JOIN t ON a.k = t.k",
    "SELECT a.k, EXISTS (SELECT 1 FROM t WHERE t.k = a.k) AS e FROM a {w}",
    "SELECT a.k, a.v, t.v AS w FROM a {w} JOIN t ON a.k < t.k",
    "SELECT t.v, COUNT(*) AS n FROM a {w} JOIN t ON a.k = t.k GROUP BY t.v",
    "SELECT COUNT(*) AS n FROM a {w} JOIN t ON a.k = t.k",
    "SELECT t.k, t.v FROM t WHERE t.k IN (SELECT k FROM a {w})",
    "SELECT k, v FROM a {w} UNION ALL SELECT k, v FROM t",
    "SELECT k FROM a {w} INTERSECT SELECT k FROM t",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM a {w}",
    "SELECT k FROM a {w} EXCEPT SELECT k FROM t",
    "SELECT DISTINCT t.v FROM a {w} JOIN t ON a.k = t.k",
    "SELECT v, MAX(k) AS m FROM t GROUP BY v",
    "SELECT k, v FROM t WHERE k > 0",
    "SELECT k FROM t ORDER BY k LIMIT 1",
    "SELECT a.k, t.v, u.v AS w FROM a {w} JOIN t ON a.k = t.k JOIN u ON a.v = u.v",
    "SELECT a.k, m.n FROM a {w} JOIN (SELECT k, COUNT(*) AS n FROM t GROUP BY k) m ON a.k = m.k",
    "SELECT t.k FROM t GRANULARITY(3 MICROSECONDS) JOIN a {w} ON a.k = t.k",
)
WINDOWS = ("", "[RANGE 6 MICROSECONDS]", "[RANGE UNBOUNDED]", "[ROWS 2]", "[RANGE 6 MICROSECONDS SLIDE 3 MICROSECONDS]")


class MemoryTable(TableSource):
    """A table whose changes are made visible batch by batch; `promises` has what each batch is told."""

    def __init__(self, table: Table, log: pl.DataFrame, reaches: list[int], times: list[Instant]) -> None:
        super().__init__(table.input, None)
        self.log = log
        self.visible, self.times = reaches, times
        self.reach = reaches.pop(0)
        self.promised: Instant = ALWAYS

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        """The next part of the log, as far as its changes are not before what was promised."""
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

    def rows_left(self, position: int) -> int | None:
        return None

    def last_change(self) -> Instant:
        return ALWAYS

    def _read(self, start: int, end: int, columns: frozenset[str]) -> pl.DataFrame:
        return self.log.slice(start, end - start).select([*sorted(columns), ID, FROM, UNTIL, SINCE, CEASED])


def draw_table(dice: Random, name: str) -> tuple[Table, pl.DataFrame]:
    """A bag of rows, changed at random instants: several changes at one, equal rows, rows that go and come back. Some
    changes have given times, the others those of the clock."""
    rows: list[tuple[object, ...]] = []
    live: list[tuple[int, tuple[object, ...], Instant, Instant]] = []
    gaps = [dice.choice((0, 0, 1, 1, 2, 5)) for _ in range(dice.randrange(14))]
    share_given, given = dice.choice((0.0, 0.3, 1.0)), ALWAYS
    for time in accumulate(gaps, initial=dice.randrange(-4, 4)):
        given = time if dice.random() < share_given else given
        if live and dice.random() < 0.45:
            number, payload, start, since = live.pop(dice.randrange(len(live)))
            if start == time:  # it would never be valid: a store does not write it
                live.append((number, payload, start, since))
                continue
            rows.append((*payload, number, start, time, since, given))
        else:
            payload = (dice.randrange(4) if dice.random() < 0.9 else None, dice.choice("xyz"))
            live.append((len(rows), payload, time, given))
            rows.append((*payload, len(rows), time, OPEN, given, OPEN))
    shape = frame_schema(tuple(Column(n, n, kind) for n, kind in COLUMNS.items()))
    times = dict.fromkeys((ID, FROM, UNTIL, SINCE, CEASED), pl.Int64())
    frame = pl.DataFrame(rows, schema={"k": shape["k"], "v": shape["v"], **times}, orient="row")
    return Table(name, tuple(COLUMNS.items()), directory=name), frame


def elements(frame: pl.DataFrame, base: int) -> tuple[Element, ...]:
    """What a table means for a query that begins at a position of its log, one change after the other."""
    live: dict[int, tuple[dict[str, Value], Instant]] = {}
    ended: list[Element] = []
    for position, row in enumerate(frame.iter_rows(named=True)):
        before = position < base
        if row[UNTIL] == OPEN:
            live[row[ID]] = ({name: row[name] for name in COLUMNS}, row[SINCE] if before else row[FROM])
        else:
            values, since = live.pop(row[ID])
            ended.append(Element(since, values, row[CEASED] if before else row[UNTIL]))
    return (*ended, *(Element(since, values, FOREVER) for values, since in live.values()))


def check(seed: int) -> int:
    """One random query over random streams and tables; the number of instants compared."""
    dice = Random(seed)
    drawn = [(dice.randrange(-5, 25), dice.randrange(3), (dice.randrange(4), dice.choice("xyz"))) for _ in range(8)]
    stream = arrange("a", COLUMNS, drawn[: dice.randrange(9)], dice.choice((0, 2)))
    tables = [draw_table(dice, name) for name in ("t", "u")]
    text = dice.choice(QUERIES).replace("{w}", dice.choice(WINDOWS))
    if "a" not in text.split("FROM")[1] and " a " not in text:
        text = f"SELECT q.* FROM ({text}) q JOIN (SELECT DISTINCT 1 AS one FROM a [RANGE UNBOUNDED]) o ON TRUE"
    catalog = Catalog()
    catalog.add(stream.declared)
    for table, _ in tables:
        catalog.add(table)
    plan = bind_query(parse_one(text), catalog)  # type: ignore[arg-type]
    cut = Cuts(
        (tuple(dice.randrange(4) for _ in range(dice.randrange(5))),),
        dice.randrange(1, 4),
        dice.choice(("intervals", "changes")),
        dice.random() < 0.5,
        dice.randrange(12),
    )
    bases = {table.name: dice.randrange(frame.height + 1) for table, frame in tables}
    answer, ends = run_with_tables(plan, stream, tables, bases, cut, dice)
    raw = {"a": stream.elements} | {
        # What is changed after everything has ended does not count.
        table.name: elements(frame.head(ends.get(table.name, 0)), bases[table.name])
        for table, frame in tables
    }
    try:
        return assert_exact(plan, raw, answer)
    except AssertionError:
        print(f"seed {seed}: {text}", file=sys.stderr)
        raise


def run_with_tables(
    plan: Plan,
    stream: Arrivals,
    tables: list[tuple[Table, pl.DataFrame]],
    bases: dict[str, int],
    cut: Cuts,
    dice: Random,
) -> tuple[Answer, dict[str, int]]:
    """The result, and how far the log of each table was read."""
    inputs = [stream.declared, *(table.input for table, _ in tables)]
    pipeline = lower("q", optimize(plan), inputs, cut.shards, form=cut.form, strategy=form_strategy(cut.forms))
    pipeline = coalesce_everywhere(pipeline) if cut.coalesces else pipeline
    read = {s.name for s in pipeline.streams}
    sources: dict[str, MemorySource | MemoryTable] = {}
    if "a" in read:
        sources["a"] = MemorySource(stream, cut.sizes[0])
    for table, frame in tables:
        if table.name in read:
            base = bases[table.name]
            reaches = [base, base, *sorted(dice.randrange(base, frame.height + 1) for _ in range(4))]
            changed = frame.select(pl.when(pl.col(UNTIL) == OPEN).then(FROM).otherwise(UNTIL)).to_series().to_list()
            reaches.append(frame.height)
            sources[table.name] = MemoryTable(table, frame, reaches, changed)
    running = RunningPipeline(pipeline, batch_rows=dice.choice((2, 1000)))
    sent, begin, answer = ResultBuffer(schema(plan), None), running.metrics.watermark("q"), Answer()
    run = LocalRun(running, sources=sources, tasks=cut.shards * len(sources))
    for report in run.batches():
        sent.add(report.results.get("q", ()), begin)
        begin = running.metrics.watermark("q")
    answer.elements = elements_of(sent.chunks(0, FOREVER).frame(schema(plan)))
    return answer, {name: offset.at for name, offset in run.positions.items()}


def test_plans_with_tables_are_exact() -> None:
    assert sum(check(seed) for seed in range(150)) > 3000


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    total = 0
    for number in range(first, first + count):
        total += check(number)
    print(f"{count} questions, {total} instants, 0 wrong")
