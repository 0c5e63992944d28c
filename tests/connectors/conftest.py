"""One PostgreSQL server for all tests of connectors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.apps.verify.server import installed, temporary_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if installed() is None:
        reason = "no PostgreSQL server is installed here (Debian: apt install postgresql)"
        print(reason)
        pytest.skip(reason)
    with temporary_server() as dsn:
        yield dsn
