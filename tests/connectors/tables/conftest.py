"""One PostgreSQL server for all tests of sources of tables, with a database of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from strandline.apps.verify.server import installed, temporary_server

_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if installed() is None:
        reason = "no PostgreSQL server is installed here (Debian: apt install postgresql)"
        print(reason)
        pytest.skip(reason)
    with temporary_server() as dsn:
        yield dsn


@pytest.fixture
def dsn(server: str) -> str:
    """A database of its own."""
    name = f"feeds{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("dbname=postgres", f"dbname={name}")
