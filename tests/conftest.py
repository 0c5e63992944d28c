"""Profiles of the property tests, the one Spark that all Spark tests share, and the databases that judge."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import strandline as sl
from strandline.apps.verify.oracle import OracleDatabase as Judge
from strandline.apps.verify.script import open_oracle
from strandline.apps.verify.server import installed
from strandline.database.database import Database
from support import LONG

# A shell without job control starts what is in its background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Plans and their figures are those of the constants that come along, however this machine was calibrated.
os.environ["STRANDLINE_ARCHIVE"] = "off"  # no test leaves a process behind
os.environ["STRANDLINE_COSTS"] = "built-in"

# By default the same examples every time: a failure is news about the change at hand. The long run looks for new ones.
quiet = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
settings.register_profile("fast", deadline=None, derandomize=True, suppress_health_check=quiet, database=None)
settings.register_profile("long", deadline=None, suppress_health_check=quiet, print_blob=True)
settings.load_profile("long" if LONG else "fast")

# Files whose tests start processes of their own and mostly wait for them, and those that need our Spark. Where several
# workers take file by file (`-n 3 --dist loadfile`) these go first, so that the rest fills the time beside them.
LONG_WAITS = ("test_recovery.py", "test_killed_sinks.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        on_spark = {item.path for item in items if "spark_database" in getattr(item, "fixturenames", ())}
        items.sort(key=lambda item: (item.path.name not in LONG_WAITS, item.path not in on_spark))


@pytest.fixture(scope="session")
def spark_database() -> Iterator[Database]:
    """A database on an embedded Spark, started by the first test that asks; its `spark` serves further databases."""
    with sl.connect() as database:
        yield database


@pytest.fixture(scope="session")
def duckdb() -> Iterator[Judge]:
    with open_oracle("duckdb", None) as database:
        yield database


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Judge]:
    if installed() is None:
        pytest.skip("no PostgreSQL server is installed here (Debian: apt install postgresql)")
    with open_oracle("postgresql", None) as database:
        yield database
