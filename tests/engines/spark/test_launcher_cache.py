"""What makes a start faster, and never fails one: kept launcher commands, the class archive, the early JVM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from strandline.core.errors import SetupError
from strandline.engines.spark.launcher import archive, early
from strandline.engines.spark.launcher.java import Java, find_java
from strandline.engines.spark.launcher.jvm import pyspark_directory
from strandline.engines.spark.launcher.launcher_commands import LauncherCommands
from strandline.engines.spark.launcher.settings import archive_file, archive_options


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(archive.VARIABLE)
    return tmp_path / "strandline"


@pytest.fixture
def java() -> Java:
    return find_java()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have been started."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: commands.append(command))
    return commands


def kept(java: Java, settings: dict[str, str], **environment: str) -> LauncherCommands:
    return LauncherCommands(java, pyspark_directory(), settings, environment)


def test_a_command_is_kept_by_everything_that_it_depends_on(java: Java, tmp_path: Path) -> None:
    kept(java, {"a": "1"}).write(["java", "x"])
    assert kept(java, {"a": "1"}).read() == ["java", "x"]
    assert kept(java, {"a": "1"}, PATH="/bin", PYSPARK_PYTHON="p").read() == [
        "java",
        "x",
    ]  # it does not depend on these
    assert kept(java, {"a": "2"}).read() is None
    assert kept(java, {"a": "1"}, SPARK_SUBMIT_OPTS="-Dx=y").read() is None
    configuration = tmp_path / "conf"
    configuration.mkdir()
    place = {"SPARK_CONF_DIR": str(configuration)}
    kept(java, {}, **place).write(["java", "y"])
    (configuration / "spark-defaults.conf").write_text("spark.driver.memory 2g\n")
    assert kept(java, {}, **place).read() is None


def test_a_damaged_command_is_made_again(java: Java, cache: Path) -> None:
    commands = kept(java, {})
    commands.write(["java"])
    for content in ("", "{", '{"a": 1}', "[1]", "[]"):
        next((cache / "commands").glob("*.json")).write_text(content)
        assert commands.read() is None


def test_a_cache_that_cannot_be_written_is_no_error(java: Java, cache: Path, started: list[list[str]]) -> None:
    cache.parent.joinpath("strandline").write_text("a file is in its place")
    commands = kept(java, {})
    commands.write(["java"])
    assert commands.read() is None
    assert not archive.build_in_background(java, pyspark_directory()) and not started
    assert archive_options(java, pyspark_directory(), None) == []


def test_the_archive_is_begun_once(java: Java, monkeypatch: pytest.MonkeyPatch, started: list[list[str]]) -> None:
    pyspark = pyspark_directory()
    target = archive_file(java, pyspark)
    assert archive.build_in_background(java, pyspark)
    assert started[0][-2:] == ["strandline", "warmup"]
    with archive.sole_builder(target) as is_sole:
        assert is_sole
        with archive.sole_builder(target) as second:
            assert not second
        assert not archive.build_in_background(java, pyspark)
    archive.note_failure(target)
    assert not archive.build_in_background(java, pyspark)
    os.utime(target.with_suffix(".failed"), (0, 0))
    assert archive.build_in_background(java, pyspark)
    monkeypatch.setenv(archive.VARIABLE, "off")
    assert not archive.build_in_background(java, pyspark)
    monkeypatch.delenv(archive.VARIABLE)
    target.touch()
    assert not archive.build_in_background(java, pyspark)
    assert str(target) in " ".join(archive_options(java, pyspark, None))
    assert len(started) == 2


def test_archives_that_are_not_used_are_removed(java: Java) -> None:
    target = archive_file(java, pyspark_directory())
    target.parent.mkdir(parents=True)
    old, recent = target.with_name("spark-1.archive"), target.with_name("spark-2.archive")
    for path in (target, old, recent):
        path.touch()
    for path in (target, old):
        os.utime(path, (0, 0))
    archive.remove_stale(target)
    assert target.exists() and recent.exists() and not old.exists()


class FakeJvm:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_an_early_jvm_is_taken_once_and_only_for_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    jvms: list[FakeJvm] = []

    def open_jvm(java: Any, pyspark: Any, master: str, config: Any, scratch: Any, archive: Any) -> early.StartedJvm:
        jvms.append(FakeJvm())
        return early.StartedJvm(java, jvms[-1], scratch)  # type: ignore[arg-type]

    monkeypatch.setattr(early, "open_jvm", open_jvm)
    early.begin_early("local[2]")
    early.begin_early("local[2]")
    taken = early.take_early("local[2]")
    assert taken is not None and taken.jvm is jvms[0]  # type: ignore[comparison-overlap]
    assert early.take_early("local[2]") is None and len(jvms) == 1
    early.begin_early("local[1]")
    assert early.take_early("local[2]") is None and jvms[1].closed


def test_why_an_early_jvm_did_not_start_is_said_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Java:
        raise SetupError("no Java", code="java-missing")

    monkeypatch.setattr(early, "find_java", fail)
    early.begin_early(None)
    with pytest.raises(SetupError, match="no Java"):
        early.take_early(None)
