"""A database of its own for each test of a sink."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from sink_databases import File, Place, Server

_numbers = count()


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
