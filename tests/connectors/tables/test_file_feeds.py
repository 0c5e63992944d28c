"""Files as sources of tables: constant, temporal, keyed, and change feeds with times of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from source_testing import wait_for

import strandline as sl
from strandline.connectors.tables.feeds import feeder
from strandline.core.errors import StrandlineError
from strandline.core.security.allow import Allow
from strandline.database.database import Database

AIRPORTS = """faa,name,lat,lon,tzone
EWR,Newark Liberty Intl,40.6925,-74.168667,America/New_York
JFK,John F Kennedy Intl,40.639751,-73.778925,America/New_York
LGA,La Guardia,40.777245,-73.872608,America/New_York
ORD,Chicago Ohare Intl,41.978603,-87.904842,America/Chicago
"""
FLIGHTS = """flight,origin,ts
1,EWR,2013-01-01 05:00:00
2,JFK,2013-01-01 05:30:00
3,XXX,2013-01-01 05:40:00
4,LGA,2013-01-01 06:00:00
"""


def connect(directory: Path | None = None, **more: Any) -> Database:
    return sl.connect(engine="local", checkpoint=directory, **more)


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(query).to_arrow().to_pylist()]


def results(db: Database, query: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """What a query over streams that end gives."""
    running = db.sql(query)
    running.wait()
    return sorted(tuple(row[name] for name in columns) for row in running.results().to_pylist())


def write_flights(tmp_path: Path) -> str:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    return (
        f"CREATE STREAM flights (flight INT, origin VARCHAR, ts TIMESTAMP) SOURCE file('{tmp_path}/flights.csv')"
        " ORDERED BY ts"
    )


@pytest.mark.parametrize("clause", ["CONSTANT", "", "RETROACTIVE", "NON RETROACTIVE"])
def test_a_stream_is_joined_with_a_csv(tmp_path: Path, clause: str) -> None:
    (tmp_path / "airports.csv").write_text(AIRPORTS)
    with connect() as db:
        db.sql(write_flights(tmp_path))
        db.sql(
            "CREATE TABLE airports (faa VARCHAR PRIMARY KEY, name VARCHAR, lat DOUBLE)"
            f" SOURCE file('{tmp_path}/airports.csv') {clause}"
        )
        assert rows(db, "SELECT COUNT(*) AS n FROM airports") == [(4,)]
        query = "SELECT f.flight, a.name FROM flights f JOIN airports a ON f.origin = a.faa"
        assert results(db, query, ["flight", "name"]) == [
            (1, "Newark Liberty Intl"),
            (2, "John F Kennedy Intl"),
            (4, "La Guardia"),
        ]
