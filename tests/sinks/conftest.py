"""One PostgreSQL server for all tests of sinks, with a database of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from places import File, Place, Server

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
def postgresql(server: str) -> Server:
    name = f"test{next(_numbers)}"
    Server(server).run(f"CREATE DATABASE {name}")
    return Server(server.replace("dbname=postgres", f"dbname={name}"))


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return File(tmp_path / "answers.db")
    found: Server = request.getfixturevalue("postgresql")
    return found
