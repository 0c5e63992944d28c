"""Versions of a graph in a checkpoint: written once, chained, and read strictly."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.core.errors import CheckpointError
from strandline.core.types import BIGINT, VARCHAR
from strandline.logical.catalog import BaseStream, Catalog, ConnectorCall
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.versions import (
    Declared,
    GraphQuery,
    GraphVersion,
    GraphVersions,
    VersionReference,
)
from strandline.runtime.graph import KEPT_BATCHES, LivingGraph
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one

COLUMNS = (("k", VARCHAR), ("v", BIGINT))
STREAMS = [BaseStream(name, COLUMNS, ConnectorCall("events"), None) for name in ("a", "b")]


def pipeline(text: str = "SELECT k, count(*) AS n FROM a WINDOW(RANGE 9 SECONDS) GROUP BY k") -> Pipeline:
    catalog = Catalog()
    for stream in STREAMS:
        catalog.add(stream)
    query = parse_one(text)
    assert isinstance(query, ast.Select), "the text is a query"
    return lower("q", bind_query(query, catalog), STREAMS, 2)


def stored(tmp_path: Path, count: int = 3) -> tuple[GraphVersions, list[VersionReference]]:
    versions = GraphVersions(tmp_path)
    version, reference = GraphVersion.first(pipeline()), VersionReference()
    references = []
    for number in range(count):
        reference = versions.write(version, reference)
        references.append(reference)
        version = version.following(version.pipeline, version.queries, 10 * number)
    return versions, references


def test_a_version_is_read_as_it_was_written(tmp_path: Path) -> None:
    versions = GraphVersions(tmp_path)
    version = GraphVersion.first(pipeline(), [GraphQuery("q", identity="x", text="SELECT 1", sink="parquet")])
    version = replace(version, batch=7)
    reference = versions.write(version, VersionReference())
    assert versions.read(reference, Declared()) == version


def test_the_newest_version_follows_the_one_that_an_offset_names(tmp_path: Path) -> None:
    versions, references = stored(tmp_path)
    assert versions.newest(VersionReference()) == references[2]
    assert versions.newest(references[0]) == references[2]
    assert versions.newest(references[2]) == references[2]
    assert GraphVersions(tmp_path / "none").newest(VersionReference()) is None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_version_is_refused_by_name(tmp_path: Path, number: int) -> None:
    versions, references = stored(tmp_path)
    path = versions.path(number)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=path.name):
        versions.newest(references[0])
    with pytest.raises(CheckpointError, match=path.name):
        versions.read(references[number], Declared())


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_version_is_refused_by_name(tmp_path: Path, number: int) -> None:
    versions, references = stored(tmp_path)
    versions.path(number).unlink()
    with pytest.raises(CheckpointError, match=versions.path(number).name):
        versions.newest(references[0])


def test_a_version_of_another_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    versions, references = stored(tmp_path)
    foreign = GraphVersions(tmp_path / "foreign")
    other = GraphVersion.first(pipeline("SELECT k FROM b"))
    before = foreign.write(other, VersionReference())
    foreign.write(other.following(other.pipeline, other.queries, 0), before)
    shutil.copy(foreign.path(1), versions.path(1))
    with pytest.raises(CheckpointError, match=versions.path(1).name):
        versions.newest(references[0])


def test_operators_keep_the_version_in_which_they_began() -> None:
    one = GraphVersion.first(pipeline())
    two = one.following(pipeline("SELECT k FROM b"), [GraphQuery("q", began=1)], 5)
    three = two.following(pipeline(), [GraphQuery("q", began=2)], 9)
    assert set(one.since.values()) == {0}
    assert two.since["source:b"] == 1
    assert three.since["source:a"] == 2  # it was gone in between
    assert three.states_of(dict.fromkeys(one.since, "state"), one.number) == {}
    assert one.states_of(dict.fromkeys(one.since, "state"), 0) == dict.fromkeys(one.since, "state")


def taken_over() -> tuple[GraphVersion, str, str]:
    """A version that has taken a query over, with the id of an operator from then on, and the one before."""
    one = GraphVersion.first(pipeline())
    two = one.following(pipeline("SELECT k FROM b"), [GraphQuery("q", began=1)], 5)
    (operator,) = [part for part in two.since if not part.startswith("source:")]
    new = next(part for part in one.since if not part.startswith("source:"))
    moved = two.following(one.pipeline, [GraphQuery("q", began=1)], 9, {new: operator})
    return moved.following(moved.pipeline, moved.queries, 12), new, operator


def test_states_are_found_by_the_ids_that_they_were_stored_under() -> None:
    version, new, old = taken_over()
    assert version.since[new] == 1  # it has gone on since then
    assert version.states_of({old: "of the query", new: "of another one"}, 1) == {new: "of the query"}
    assert version.states_of({old: "gone", new: "since it was taken over"}, 2) == {new: "since it was taken over"}
    assert version.states_of({old: "before it began"}, 0) == {}


def test_states_are_found_of_an_operator_that_was_moved_twice() -> None:
    """Also where no batch ran between the two changes."""
    version, new, old = taken_over()
    (fragment,) = (fragment for fragment in version.pipeline.fragments if new in fragment.operators)
    ids = tuple("newest" if each == new else each for each in fragment.operators)
    others = (each for each in version.pipeline.fragments if each is not fragment)
    pipeline = replace(version.pipeline, fragments=(*others, replace(fragment, operators=ids)))
    again = version.following(pipeline, version.queries, 12, {"newest": new})
    assert again.states_of({old: "of the query"}, 1) == {"newest": "of the query"}
    assert again.states_of({new: "since it was taken over"}, version.number) == {"newest": "since it was taken over"}
    assert again.states_of({"newest": "at last"}, again.number) == {"newest": "at last"}


def test_where_states_were_is_read_as_it_was_written(tmp_path: Path) -> None:
    versions = GraphVersions(tmp_path)
    version, new, _ = taken_over()
    reference = versions.write(version, VersionReference())
    assert versions.read(reference, Declared()) == version
    gone = replace(version, moved={**version.moved, "another": (2, "one")})
    reference = versions.write(gone, VersionReference())
    with pytest.raises(CheckpointError, match=versions.path(version.number).name):
        versions.read(reference, Declared())
    assert new in version.moved


def test_versions_that_no_batch_needs_are_removed(tmp_path: Path) -> None:
    graph = LivingGraph(GraphVersion.first(pipeline()), GraphVersions(tmp_path), VersionReference())
    graph.publish(graph.version)
    graph.publish(graph.version.following(graph.version.pipeline, graph.version.queries, 10))
    graph.end_batch(10 + KEPT_BATCHES)
    assert graph.versions is not None and graph.versions.numbers() == [0, 1]
    graph.end_batch(11 + KEPT_BATCHES)
    assert graph.versions.numbers() == [1]
    assert graph.versions.newest(graph.reference) == graph.reference


def test_versions_are_removed_after_a_restart_too(tmp_path: Path) -> None:
    versions, references = stored(tmp_path)
    newest = versions.read(references[-1], Declared())
    LivingGraph(newest, versions, references[-1]).end_batch(50 + KEPT_BATCHES)
    assert versions.numbers() == [2]
