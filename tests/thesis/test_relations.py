"""Section 17.4 of the thesis: relations beside streams, over the relation Person of NEXMark, and stored results."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest

import strandline as sl
from strandline.apps.verify.script import open_oracle, verify
from strandline.database.database import Database

GENERATED = "events => 4000, rate => 200"
NEW_USERS = "SELECT DISTINCT p.id, p.name FROM {} WINDOW(RANGE 12 SECONDS) AS p, auction AS o WHERE p.id = o.seller"
COLUMNS = (
    "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR,"
    " date_time TIMESTAMP, extra VARCHAR"
)


def elements(database: Database, text: str) -> list[tuple[Any, ...]]:
    query = database.sql(text)
    assert query.await_end(60)
    return sorted(tuple(row.values()) for row in query.results().to_pylist())


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id)"])
def test_example_17_7_over_the_people_of_nexmark(key: str) -> None:
    # Who puts something up for sale within 12 seconds of registering? The people are a relation, and ISTREAM makes a
    # stream of those that come; the result is that over the stream of the people.
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE TABLE person ({COLUMNS}{key}) SOURCE nexmark('person', {GENERATED}) ORDERED BY date_time")
        database.sql(f"CREATE STREAM person_stream SOURCE nexmark('person', {GENERATED})")
        database.sql(f"CREATE STREAM auction SOURCE nexmark('auction', {GENERATED})")
        database.sql("CREATE STREAM new_people AS SELECT p.id, p.name FROM ISTREAM(person) AS p")
        from_table = elements(database, NEW_USERS.format("new_people"))
        assert from_table == elements(database, NEW_USERS.format("person_stream"))
        assert len(from_table) > 20


PERSON = f"CREATE TABLE person ({COLUMNS}{{key}}) SOURCE nexmark('person', {{events}}) ORDERED BY date_time {{kind}};"
OVER_PERSON = {
    "17.7": "SELECT DISTINCT p.id, p.name FROM ISTREAM(person) WINDOW(RANGE 12 SECONDS) AS p, auction AS o"
    " WHERE p.id = o.seller;",
    "people and what they sell": "SELECT o.id, p.name, p.city FROM auction WINDOW(RANGE 5 SECONDS) o"
    " LEFT JOIN person p ON p.id = o.seller;",
    "as they were": "SELECT o.id, p.name FROM auction WINDOW(RANGE 5 SECONDS) o"
    " JOIN person FOR SYSTEM_TIME AS OF o.date_time AS p ON p.id = o.seller;",
    "by state": "SELECT p.state, COUNT(*) AS n FROM auction WINDOW(RANGE 10 SECONDS) o JOIN person p ON p.id = o.seller"
    " GROUP BY p.state;",
}


@pytest.mark.parametrize(("name", "kind"), [*((name, "") for name in OVER_PERSON), ("as they were", "NON RETROACTIVE")])
def test_duckdb_agrees_about_the_relation_of_the_people(name: str, kind: str) -> None:
    events = "events => 800, rate => 40"
    text = PERSON.format(key=", PRIMARY KEY (id)", events=events, kind=kind)
    text += f"CREATE STREAM auction SOURCE nexmark('auction', {events}); {OVER_PERSON[name]}"
    with sl.connect(engine="local") as database, open_oracle("duckdb", None) as judge:
        (verdict,) = verify(database, text, judge, most=1000)
    assert verdict.unchecked is None and verdict.equal, verdict.differences[:3]
    assert verdict.instants_with_rows > 15


def test_results_of_four_weeks_are_a_temporal_table() -> None:
    # Ten weeks of sales. What is the largest sale of the last seven days in each shop? The results of the last four
    # weeks are kept in a table, and asked for as they were, by statements and by another query.
    dice, start = Random(174), datetime(2024, 1, 1)
    sales = [
        (dice.choice("nsew"), dice.randrange(1000), start + timedelta(hours=hour)) for hour in range(0, 24 * 70, 5)
    ]
    largest = "SELECT shop, MAX(amount) AS amount FROM sales WINDOW(RANGE 7 DAYS) GROUP BY shop"
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM sales (shop VARCHAR, amount INT, at TIMESTAMP) SOURCE events() ORDERED BY at")
        database.sql("""CREATE TABLE history (shop VARCHAR, amount INT, since TIMESTAMP, until TIMESTAMP)
                        VALID FROM since UNTIL until KEEP 4 WEEKS""")
        keeper = database.sql(f"CREATE SINK keeper INTO table('history') AS {largest}")
        for first in range(0, len(sales), 20):
            database.append("sales", sales[first : first + 20])
        database.end("sales")
        assert keeper.await_end(60)
        over = database.sql("SELECT shop, amount FROM history WHERE amount >= 0", name="over")
        assert over.await_end(60)
        judge = duckdb.connect()
        judge.register("sales", pl.DataFrame(sales, schema=["shop", "amount", "sold"], orient="row"))
        last = sales[-1][2]
        for day in range(28):
            at = last - timedelta(days=day, hours=dice.randrange(24), minutes=1)
            window = "SELECT shop, MAX(amount) FROM sales WHERE sold <= ? AND sold > ? - INTERVAL 7 DAYS GROUP BY ALL"
            expected = sorted(judge.execute(window, [at, at]).fetchall())
            asked: Any = database.sql(f"SELECT shop, amount FROM history AT TIMESTAMP '{at}'")
            assert len(expected) == 4 and sorted(map(tuple, asked.results("polars").rows())) == expected
            assert sorted(tuple(row.values()) for row in over.snapshot(at).to_pylist()) == expected
            assert sorted(database.table("history").snapshot(at, "polars").select("shop", "amount").rows()) == expected
