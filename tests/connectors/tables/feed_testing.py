"""What the tests of sources of tables share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import strandline as sl
from strandline.database.database import Database
from strandline.logical.catalog import Table


def connect(directory: Path | None = None, **more: Any) -> Database:
    return sl.connect(engine="local", checkpoint=directory, **more)


def at(second: float) -> int:
    """Microseconds of a second of 2024-01-01."""
    return 1_704_067_200_000_000 + int(second * 1_000_000)


def content(db: Database, table: str) -> list[tuple[Any, ...]]:
    """The present rows of a table, in their order."""
    store = db.tables.store(declared(db, table))
    rows = store.content().select([name for name, _ in store.table.columns]).rows()
    return sorted(rows, key=lambda row: tuple((value is None, value) for value in row))


def declared(db: Database, name: str) -> Table:
    table = db.catalog.get(name)
    assert isinstance(table, Table)
    return table


def history(db: Database, table: str) -> list[tuple[Any, ...]]:
    """The elements of a table by its log: payload, start and end, None where they go on."""
    columns = declared(db, table).columns
    store = db.tables.store(declared(db, table))
    live: dict[int, tuple[Any, ...]] = {}
    ended: list[tuple[Any, ...]] = []
    for frame in store.read(0, store.reach):
        for row in frame.iter_rows(named=True):
            payload = tuple(row[name] for name, _ in columns)
            if row["@until"] == 2**63 - 2:
                live[row["@id"]] = (*payload, row["@from"])
            else:
                ended.append((*live.pop(row["@id"]), row["@until"]))
    elements = [*ended, *((*row, None) for row in live.values())]
    return sorted(elements, key=lambda row: tuple((value is None, value) for value in row))


def results(db: Database, query: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """What a query gives whose streams end."""
    running = db.sql(query, name=next(db.free_names()))
    assert running.await_end(30)
    found = [tuple(row[name] for name in columns) for row in running.results().to_pylist()]
    return sorted(found, key=lambda row: tuple((value is None, value) for value in row))
