"""Planning processes are forked from one that has imported everything."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from strandline.database.database import Database
from strandline.engines.spark.launcher import zygote


def test_the_script_is_python_for_everything_else(tmp_path: Path) -> None:
    directory = tmp_path / "it's a directory"
    directory.mkdir()
    script = zygote.interpreter(str(directory), sys.executable)
    done = subprocess.run([script, "-c", "import sys; print(sys.argv[1:])", "a b", "c"], capture_output=True, text=True)
    assert done.stdout.strip() == "['a b', 'c']", done.stderr


def test_without_a_zygote_the_script_starts_the_planning_process_itself(tmp_path: Path) -> None:
    script = zygote.interpreter(str(tmp_path), sys.executable)
    done = subprocess.run([script, "-m", zygote.PLANNING], capture_output=True, text=True)
    # It finds no JVM to talk to; that it looks for one is what we want to see.
    assert "local_connect_and_auth" in done.stderr


def children_of_zygotes() -> Iterator[psutil.Process]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if zygote.__name__ in process.cmdline():
                yield from process.children()


@pytest.mark.spark
def test_a_running_query_is_planned_by_a_child_of_the_zygote(spark_database: Database) -> None:
    spark_database.sql("DROP STREAM IF EXISTS planned")
    spark_database.sql("CREATE STREAM planned (value BIGINT, ts TIMESTAMP) SOURCE rate() ORDERED BY ts")
    query = spark_database.sql("SELECT value FROM planned")
    deadline = time.monotonic() + 60
    while not list(children_of_zygotes()):
        assert time.monotonic() < deadline, "the zygote has no child"
        time.sleep(0.05)
    query.stop()
    while list(children_of_zygotes()):
        assert time.monotonic() < deadline, "the planning process outlives its query"
        time.sleep(0.05)
