"""One stream, many ways to feed it: the answer is the same.

However the input is cut into batches, however many buckets hold the state, and in whatever order rows arrive within the
declared bound: at every instant the snapshots are identical. Nothing is compared with a definition here; that is done
elsewhere. This is about two runs that must not differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import strandline as sl
from random_streams import cut
from strandline.connectors.sinks import Memory
from strandline.core.temporal import FOREVER
from strandline.core.types import BIGINT, DOUBLE, VARCHAR
from strandline.database.database import Database
from strandline.database.script import read_script
from strandline.database.script_changes import connected_groups
from strandline.logical.reference.interpreter import bag
from strategies import question
from support import Arrivals, Cuts, Elements, arrange, at, bind, edges, examples, run_plan

CUTS, BUCKETS = 20, (1, 2, 3)

QUERIES = {
    "filter": "SELECT s, b FROM s0 WHERE b > 2",
    "slide": "SELECT s, SUM(d) AS total, COUNT(*) AS n FROM s0 [RANGE 9 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY s",
    "rows": "SELECT s, b FROM s0 [PARTITION BY s ROWS 2 SLIDE 2]",
    "whole": "SELECT COUNT(*) AS n, AVG(d) AS mean, MEDIAN(b) AS mid, LAST(b) AS newest FROM s0 [ROWS 5]",
    "join": """SELECT x.s, y.b FROM s0 [RANGE 7 MICROSECONDS] x FULL JOIN s1 [RANGE 3 MICROSECONDS] y
               ON x.s = y.s AND x.b <> y.b""",
    "theta": "SELECT x.b, y.d FROM s0 [RANGE 3 MICROSECONDS] x JOIN s1 [ROWS 2] y ON x.b < y.b",
    "not in": "SELECT s, b FROM s0 [RANGE 6 MICROSECONDS] WHERE b NOT IN (SELECT b FROM s1 [RANGE 2 MICROSECONDS])",
    "sets": """SELECT s FROM s0 [RANGE 5 MICROSECONDS] EXCEPT ALL SELECT s FROM s1 [RANGE 8 MICROSECONDS]
               UNION SELECT s FROM s0""",
    "nested": """SELECT n, COUNT(*) AS groups FROM (SELECT s, COUNT(DISTINCT b) AS n FROM s0 [RANGE 12 MICROSECONDS]
                 GROUP BY s) g GROUP BY n""",
}  # fmt: skip
COLUMNS = {"s": VARCHAR, "b": BIGINT, "d": DOUBLE}
DISORDER = 5


def stream(dice: Random, name: str, rows: int) -> Arrivals:
    """Many rows at few instants."""
    drawn = []
    for _ in range(rows):
        payload = (dice.choice(("a", "b", None)), dice.randrange(5), dice.choice((0.1, 0.2, 1e16, -1e16, None)))
        drawn.append((dice.randrange(30), 0, payload))
    return arrange(name, COLUMNS, drawn, DISORDER)


def disordered(dice: Random, stream: Arrivals) -> Arrivals:
    """The same rows in another order that the bound admits; rows of one instant keep theirs, which is their meaning."""
    delays = {element.time: dice.randint(0, stream.disorder_us) for element in stream.elements}
    elements = sorted(stream.elements, key=lambda element: element.time + delays[element.time])
    return replace(stream, elements=tuple(elements))


def random_cuts(dice: Random, streams: Sequence[Arrivals], shards: int) -> Cuts:
    sizes = (tuple(dice.randint(0, 6) for _ in range(dice.randint(0, 12))) for _ in streams)
    return Cuts(tuple(sizes), shards)


def same(one: Elements, two: Elements) -> None:
    for t in edges(one, two):
        assert bag(at(one, t)) == bag(at(two, t)), f"at instant {t}"
    endless = [[payload for payload, _, end in answer if end == FOREVER] for answer in (one, two)]
    assert bag(endless[0]) == bag(endless[1])


@pytest.mark.parametrize("name", QUERIES)
def test_cuts_buckets_and_disorder_do_not_matter(name: str) -> None:
    dice = Random(name)
    streams = [stream(dice, "s0", 30), stream(dice, "s1", 20)]
    plan = bind(QUERIES[name], streams)
    expected = run_plan(plan, streams)
    assert expected.elements, "there is something to compare"
    for number in range(CUTS):
        shards = BUCKETS[number % len(BUCKETS)]
        shaken = [disordered(dice, each) for each in streams]
        answer = run_plan(plan, shaken, random_cuts(dice, streams, shards))
        assert answer.late_count == expected.late_count
        same(answer.elements, expected.elements)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_nor_do_they_for_any_query(seed: int) -> None:
    dice = Random(seed)
    asked = question(dice)
    plan = bind(asked.text, asked.streams)
    expected = run_plan(plan, asked.streams)
    for _ in range(6):
        shaken = [disordered(dice, each) for each in asked.streams]
        same(run_plan(plan, shaken, cut(dice, asked.streams)).elements, expected.elements)


# ---- on Spark --------------------------------------------------------------------------------------------------------


def script(streams: Sequence[Arrivals], directory: Path) -> str:
    """The streams as files of one row group each, and the queries by name."""
    parts = []
    for each in streams:
        rows = [tuple(element.values.values()) for element in each.elements]
        path = directory / f"{each.name}.parquet"
        kinds: dict[str, Any] = {"s": pl.String, "b": pl.Int64, "d": pl.Float64, "ts": pl.Datetime("us")}
        pl.DataFrame(rows, schema=kinds, orient="row").write_parquet(path, row_group_size=6)
        parts.append(
            f"CREATE STREAM {each.name} (s VARCHAR, b BIGINT, d DOUBLE, ts TIMESTAMP) SOURCE file('{path}') "
            f"ORDERED BY ts WITHIN {DISORDER} MICROSECONDS;"
        )
    return "\n".join(parts)


def answers(database: Database, text: str, names: Sequence[str]) -> dict[str, Elements]:
    """The answers of some queries, which run together in one pipeline."""
    named = "".join(f'CREATE STREAM "{name}" AS {QUERIES[name]};' for name in names)
    [group] = connected_groups(read_script(database, text + named).queries)
    found: dict[str, Elements] = {}
    for query in database.start([replace(query, sink=Memory()) for query in group], None):
        assert query.await_end(120)
        frame: pl.DataFrame = query.results("polars")
        times = [pl.col(c).dt.epoch("us").fill_null(FOREVER) for c in frame.columns[-2:]]
        found[query.name] = [(row[:-2], row[-2], row[-1]) for row in frame.with_columns(*times).rows()]
    return found


@pytest.mark.spark
def test_nor_do_they_on_spark(spark_database: Database, tmp_path: Path) -> None:
    dice = Random(11)
    names = ("slide", "join")
    streams = [stream(dice, "s0", 24), stream(dice, "s1", 16)]
    (tmp_path / "expected").mkdir()
    with sl.connect(engine="local") as database:
        expected = answers(database, script(streams, tmp_path / "expected"), names)
    for number, (batch_rows, shards) in enumerate(((12, 1), (1000, 3))):
        shaken = [disordered(dice, each) for each in streams]
        directory = tmp_path / f"run{number}"
        directory.mkdir()
        with sl.connect(spark=spark_database.spark, shards=shards, batch_rows=batch_rows) as database:
            found = answers(database, script(shaken, directory), names)
        for name in names:
            assert expected[name]
            same(found[name], expected[name])
