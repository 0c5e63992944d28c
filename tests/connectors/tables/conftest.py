"""A database of its own for each test of a source of tables."""

from __future__ import annotations

from itertools import count

import psycopg
import pytest

_numbers = count()


@pytest.fixture
def dsn(server: str) -> str:
    """A database of its own."""
    name = f"feeds{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("dbname=postgres", f"dbname={name}")
