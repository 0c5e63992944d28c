"""Profiles of the property tests, the one Spark that all Spark tests share, and the databases that judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import strandline as sl
from strandline.engine import Database
from strandline.verify.judge import Database as Judge
from strandline.verify.script import judge
from strandline.verify.server import installed
from support import LONG

# By default the same examples every time: a failure is news about the change at hand. The long run looks for new ones.
quiet = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
settings.register_profile("fast", deadline=None, derandomize=True, suppress_health_check=quiet, database=None)
settings.register_profile("long", deadline=None, suppress_health_check=quiet, print_blob=True)
settings.load_profile("long" if LONG else "fast")

# Tests that start processes of their own and mostly wait for them. First, so that the rest fills the time beside them.
LONG_WAITS = ("test_recovery.py", "test_killed_sinks.py")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What runs in one worker, where there are several (`-n 2 --dist loadgroup`): a file, for what its tests
    share; everything on the one Spark, which takes long to start; and each of the long waits on its own."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


def _group(item: pytest.Item) -> str:
    if item.path.name in LONG_WAITS:
        return item.nodeid
    return "spark" if _on_spark(item) else str(item.path)


def _turn(item: pytest.Item) -> int:
    return 0 if item.path.name in LONG_WAITS else 1 if _on_spark(item) else 2


def _on_spark(item: pytest.Item) -> bool:
    return "spark_database" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def spark_database() -> Iterator[Database]:
    """A database on an embedded Spark, started by the first test that asks; its `spark` serves further databases."""
    with sl.connect() as database:
        yield database


@pytest.fixture(scope="session")
def duckdb() -> Iterator[Judge]:
    with judge("duckdb", None) as database:
        yield database


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Judge]:
    if installed() is None:
        pytest.skip("no PostgreSQL server is installed here (Debian: apt install postgresql)")
    with judge("postgresql", None) as database:
        yield database
