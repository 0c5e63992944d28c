"""The queries of examples/nexmark, on a small scale, each held against DuckDB at every instant at which it can change.

`verify` translates them. What it cannot translate is written for DuckDB by hand: a query without a window, whose rows
are valid at the instant of their bid, and one over the clock on the wall, whose windows together hold every bid once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest

import strandline as sl
from strandline.apps.verify.on_duckdb import DuckDBOracle
from strandline.apps.verify.script import verify
from strandline.connectors.sinks import Memory
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script

EXAMPLES = Path(__file__).parents[1] / "examples" / "nexmark"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.sql"))

# Events and how many of them a second has. Windows of seconds want few, auctions that close in time want many.
USUAL = (400, 20)
SCALES = {
    "q2": (2000, 500),
    "q3": (2000, 1000),
    "q4": (600, 1000),
    "q6": (700, 1000),
    "q9": (400, 1000),
    "q20": (250, 20),
    "average_selling_price": (700, 1000),
    "closing_price": (500, 1000),
    "short_auctions": (1500, 1000),
    "new_users": (2000, 100),
    "selection": (600, 20),
    "hot_item": (250, 20),
}

# Without a window: the rows of the answer, as DuckDB would have them, and the time of each.
BY_HAND = {
    "q21": """SELECT * FROM (SELECT auction, bidder, price, channel,
                CASE WHEN channel = 'Apple' THEN '0' WHEN channel = 'Google' THEN '1' WHEN channel = 'Facebook' THEN '2'
                     WHEN channel = 'Baidu' THEN '3' ELSE nullif(regexp_extract(url, 'channel_id=([0-9]+)', 1), '') END
                AS channel_id, date_time AS at FROM bid) WHERE channel_id IS NOT NULL""",
}
BY_ARRIVAL = "q12"


def small(name: str) -> str:
    """The example with fewer events."""
    events, rate = SCALES.get(name, USUAL)
    text = (EXAMPLES / f"{name}.sql").read_text()
    fewer = re.sub(r"events => \d+, rate => \d+", f"events => {events}, rate => {rate}", text)
    assert fewer != text, "an example says how many events it reads"
    return fewer


def run(database: Database, text: str) -> Query:
    (bound,) = read_script(database, text).queries
    (query,) = database.start([replace(bound, sink=Memory())], None)
    query.await_end()
    return query


def bids(database: Database, name: str) -> pl.DataFrame:
    """The bids that an example reads, through the engine."""
    events, rate = SCALES.get(name, USUAL)
    database.sql(f"CREATE STREAM all_bids SOURCE nexmark('bid', events => {events}, rate => {rate})")
    query = database.sql("SELECT * FROM all_bids", name="all_of_them")
    query.await_end()
    found: pl.DataFrame = query.results("polars")
    return found


def check_by_hand(database: Database, name: str) -> None:
    ours: pl.DataFrame = run(database, small(name)).results("polars")
    bid = bids(database, name)
    expected = pl.DataFrame(duckdb.execute(BY_HAND[name]).to_arrow_table())
    assert bid.height and expected.height
    assert (ours["valid_until"] - ours["valid_from"]).dt.total_microseconds().unique().to_list() == [1]
    ours = ours.with_columns(at=pl.col("valid_from").dt.replace_time_zone(None)).drop("valid_from", "valid_until")
    columns = expected.columns
    expected = expected.with_columns(pl.col(pl.Datetime).cast(pl.Datetime("us")))
    ours = ours.select(columns).with_columns(pl.col(pl.Datetime("us", "UTC")).dt.replace_time_zone(None))
    assert ours.sort(columns).equals(expected.sort(columns))


def check_by_arrival(database: Database) -> None:
    """Each bid is in one window of ten seconds, whenever it came."""
    ours: pl.DataFrame = run(database, small(BY_ARRIVAL)).results("polars")
    windows = (ours["valid_until"] - ours["valid_from"]).dt.total_microseconds() / 10_000_000
    counted = ours.with_columns(n=pl.col("bids") * windows).group_by("bidder").agg(pl.col("n").sum().cast(pl.Int64))
    bid = bids(database, BY_ARRIVAL)
    expected = pl.DataFrame(duckdb.execute("SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder").to_arrow_table())
    assert bid.height and counted.sort("bidder").equals(expected.sort("bidder"))
    assert (ours["valid_from"].dt.epoch("us") % 10_000_000).unique().to_list() == [9_999_999]


def check(database: Database, judge: DuckDBOracle, name: str) -> None:
    if name == BY_ARRIVAL:
        check_by_arrival(database)
    elif name in BY_HAND:
        check_by_hand(database, name)
    else:
        (verdict,) = verify(database, small(name), judge)
        assert verdict.unchecked is None and verdict.complete
        assert verdict.instants_with_rows > 0, "an empty answer shows nothing"
        assert verdict.equal, verdict.differences[:3]


@pytest.fixture
def judge() -> Iterator[DuckDBOracle]:
    database = DuckDBOracle()
    yield database
    database.close()


def test_all_queries_are_there() -> None:
    assert {f"q{n}" for n in range(23)} <= set(NAMES)
    assert len(NAMES) == 23 + 9, "the thesis has nine more"


def test_the_readme_lists_every_query() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.sql\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_what_it_asks(name: str) -> None:
    first = (EXAMPLES / f"{name}.sql").read_text().splitlines()[0]
    assert re.fullmatch(r"-- .+[.?]", first)


@pytest.mark.parametrize("name", NAMES)
def test_query_is_exact(name: str, judge: DuckDBOracle) -> None:
    with sl.connect(engine="local", batch_rows=150, shards=2) as database:
        check(database, judge, name)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["q3", "q5", "q6", "q12"])
def test_query_is_exact_on_spark(name: str, judge: DuckDBOracle, spark_database: Database) -> None:
    with sl.connect(spark=spark_database.spark, batch_rows=400) as database:
        check(database, judge, name)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_query_is_exact_on_spark(name: str, judge: DuckDBOracle, spark_database: Database) -> None:
    with sl.connect(spark=spark_database.spark, batch_rows=200) as database:
        check(database, judge, name)


SIDE_INPUTS = {
    "a table that statements fill": "CREATE TABLE {name} (value BIGINT PRIMARY KEY); INSERT INTO {name} VALUES {rows};",
    "a table that is looked up": "CREATE TABLE {name} (value BIGINT) NON RETROACTIVE;"
    " INSERT INTO {name} VALUES {rows};",
    "a file": "CREATE TABLE {name} (value BIGINT) SOURCE file('{path}') CONSTANT;",
    "rows with periods": "CREATE TABLE {name} (value BIGINT, a BIGINT, b BIGINT) SOURCE rows({periods})"
    " VALID FROM a UNTIL b;",
    "a stream": "CREATE STREAM side (value BIGINT, ts BIGINT) SOURCE rows({dated}) ORDERED BY ts;"
    " CREATE VIEW side_input AS SELECT value FROM side WINDOW(RANGE UNBOUNDED);",
}


@pytest.mark.parametrize("form", SIDE_INPUTS)
def test_the_side_input_of_q13_has_any_form(tmp_path: Path, judge: DuckDBOracle, form: str) -> None:
    numbers = range(0, 1200, 3)
    (tmp_path / "side.csv").write_text("value\n" + "".join(f"{n}\n" for n in numbers))
    side = SIDE_INPUTS[form].format(
        name="side_input",
        path=tmp_path / "side.csv",
        rows=", ".join(f"({n})" for n in numbers),
        periods=", ".join(f"({n}, 0, NULL)" for n in numbers),
        dated=", ".join(f"({n}, 0)" for n in numbers),
    )
    text = small("q13")
    begin, end = text.index("-- The numbers"), text.rindex("SELECT")
    with sl.connect(engine="local") as database:
        (verdict,) = verify(database, text[:begin] + side + text[end:], judge, only="q1")
    assert verdict.unchecked is None and verdict.complete and verdict.equal, verdict.differences[:3]
    with sl.connect(engine="local") as database:
        bid = bids(database, "q13")
    assert verdict.instants_with_rows == bid.filter(pl.col("auction").is_in(numbers))["date_time"].n_unique() > 20
