"""Databases for tests of sinks, and a look into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import strandline as sl
from strandline.connectors.sinks import Sink


class Place:
    """A database with a name for tests: how to say it to a sink, and what is in it."""

    kind: str

    def sink(self, table: str, shows: str = "elements") -> Sink:
        raise NotImplementedError

    def call(self, table: str, shows: str = "elements") -> str:
        """The same in SQL."""
        raise NotImplementedError

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def run(self, statement: str) -> None:
        raise NotImplementedError


class File(Place):
    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path

    def sink(self, table: str, shows: Any = "elements") -> Sink:
        return sl.SQLite(self.path, table, shows)

    def call(self, table: str, shows: str = "elements") -> str:
        return f"sqlite('{self.path}', table => '{table}', shows => '{shows}')"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.path) as connection:
            return connection.execute(query).fetchall()

    def run(self, statement: str) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute(statement)


class Server(Place):
    kind = "postgresql"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def sink(self, table: str, shows: Any = "elements") -> Sink:
        return sl.PostgreSQL(self.dsn, table, shows)

    def call(self, table: str, shows: str = "elements") -> str:
        return f"postgresql('{self.dsn}', table => '{table}', shows => '{shows}')"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            yield connection

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(query).fetchall()

    def run(self, statement: str) -> None:
        with self._connected() as connection:
            connection.execute(statement)
