"""Tables in plans: whatever the changes, the batches and the forms, the result is that of the definition."""

from __future__ import annotations

import sys
from itertools import accumulate
from random import Random

import polars as pl
import pytest

from strandline.apps.verify.record import record_table
from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.core.temporal import ALWAYS, OPEN, Instant
from strandline.core.types import BIGINT, INT, VARCHAR, Column, Type
from strandline.logical.catalog import Catalog, Table, TableKind
from strandline.runtime.kernels.batch import FROM, UNTIL, frame_schema
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import Cuts, arrange, assert_exact
from table_feeds import draw_fed_table
from table_logs import DrawnTable, run_with_tables

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


def draw_table(dice: Random, name: str, *, retroactive: bool = True) -> DrawnTable:
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
            rows.append((*payload, number, start, time, since, given))
        else:
            payload = (dice.randrange(4) if dice.random() < 0.9 else None, dice.choice("xyz"))
            live.append((len(rows), payload, time, given))
            rows.append((*payload, len(rows), time, OPEN, given, OPEN))
    shape = frame_schema(tuple(Column(n, n, kind) for n, kind in COLUMNS.items()))
    times = dict.fromkeys((ID, FROM, UNTIL, SINCE, CEASED), pl.Int64())
    frame = pl.DataFrame(rows, schema={"k": shape["k"], "v": shape["v"], **times}, orient="row")
    base = dice.randrange(frame.height + 1)
    reaches = sorted(dice.randrange(base, frame.height + 1) for _ in range(4))
    table = Table(name, tuple(COLUMNS.items()), retroactive=retroactive, directory=name)
    return DrawnTable(table, frame, base, (*reaches, frame.height), ())


def draw_temporal(dice: Random, name: str) -> DrawnTable:
    """Rows with periods in any order, which overlap, are equal, or never end; some are deleted before the query."""
    columns: dict[str, Type] = COLUMNS | {"since": BIGINT, "till": BIGINT}
    rows: list[tuple[object, ...]] = []
    live: list[tuple[object, ...]] = []
    for number in range(dice.randrange(14)):
        if live and dice.random() < 0.2:
            rows.append((*live.pop(dice.randrange(len(live))), number, ALWAYS, number))
        else:
            start, length = dice.randrange(-6, 20), dice.choice((1, 1, 2, 5, 9, 30, None))
            payload = (dice.randrange(4) if dice.random() < 0.9 else None, dice.choice("xyz"))
            row = (*payload, start, None if length is None else start + length)
            live.append((*row, number, number))
            rows.append((*row, number, number, OPEN, ALWAYS, OPEN))
    shape = frame_schema(tuple(Column(n, n, kind) for n, kind in columns.items()))
    times = dict.fromkeys((ID, FROM, UNTIL, SINCE, CEASED), pl.Int64())
    frame = pl.DataFrame(rows, schema={**{n: shape[n] for n in columns}, **times}, orient="row")
    base = frame.height if dice.random() < 0.7 else dice.randrange(frame.height + 1)
    table = Table(
        name,
        tuple(columns.items()),
        (),
        "temporal",
        time_column="since",
        end_column="till",
        directory=name,
    )
    return DrawnTable(table, frame, base, (frame.height,), ())


def check(seed: int) -> int:
    """One random query over random streams and tables; the number of instants compared."""
    dice = Random(seed)
    rows = [(dice.randrange(-5, 25), dice.randrange(3), (dice.randrange(4), dice.choice("xyz"))) for _ in range(8)]
    stream = arrange("a", COLUMNS, rows[: dice.randrange(9)], dice.choice((0, 2)))
    tables = [draw_temporal(dice, name) if dice.random() < 0.4 else draw_table(dice, name) for name in ("t", "u")]
    text = dice.choice(QUERIES).replace("{w}", dice.choice(WINDOWS))
    if "a" not in text.split("FROM")[1] and " a " not in text:
        text = f"SELECT q.* FROM ({text}) q JOIN (SELECT DISTINCT 1 AS one FROM a [RANGE UNBOUNDED]) o ON TRUE"
    catalog = Catalog()
    catalog.add(stream.declared)
    for drawn in tables:
        catalog.add(drawn.table)
    plan = bind_query(parse_one(text), catalog)  # type: ignore[arg-type]
    cut = Cuts(
        (tuple(dice.randrange(4) for _ in range(dice.randrange(5))),),
        dice.randrange(1, 4),
        dice.choice(("intervals", "changes")),
        dice.random() < 0.5,
        dice.randrange(12),
    )
    answer, ends = run_with_tables(plan, [stream], tables, cut, dice.choice((2, 1000)))
    # What is changed after everything has ended does not count.
    raw = {"a": stream.elements} | {drawn.name: drawn.elements(ends[drawn.name]) for drawn in tables}
    try:
        return assert_exact(plan, raw, answer)
    except AssertionError:
        print(f"seed {seed}: {text}", file=sys.stderr)
        raise


def test_plans_with_tables_are_exact() -> None:
    assert sum(check(seed) for seed in range(160)) > 3000


@pytest.mark.parametrize("kind", ["changing", "constant", "temporal"])
def test_a_feed_writes_what_its_rows_say(kind: TableKind) -> None:
    drawn = [draw_fed(Random(seed), kind) for seed in range(12 if kind == "changing" else 5)]
    for table in drawn:
        assert table.fed is not None
        logged = record_table(table.table, table.log, table.base).rows.select(table.fed.columns)
        assert sorted(map(repr, logged.rows())) == sorted(map(repr, table.fed.rows())), table.statements
    assert sum(table.fed.height for table in drawn if table.fed is not None) > 2 * len(drawn)
    assert kind != "changing" or any(table.late for table in drawn)


def draw_fed(dice: Random, kind: TableKind) -> DrawnTable:
    key = ("k",) if kind != "temporal" and dice.random() < 0.5 else ()
    period = ("since", "till") if kind == "temporal" else (None, None)
    columns: dict[str, Type] = COLUMNS | {name: BIGINT for name in period if name is not None}
    return draw_fed_table(dice, "t", columns, key=key, kind=kind, period=period)


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    total = 0
    for number in range(first, first + count):
        total += check(number)
    print(f"{count} questions, {total} instants, 0 wrong")
