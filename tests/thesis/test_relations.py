"""Section 17.4 of the thesis: relations beside streams, over the relation Person of NEXMark."""

from __future__ import annotations

from typing import Any

import pytest

import strandline as sl
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
