"""The logs that operators keep: many small appends, merged on the way, against a plain list."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.errors import CheckpointError
from strandline.planner import compaction as segments
from strandline.runtime.kernels.batch import UNTIL, times
from strandline.runtime.kernels.hashing import mix
from strandline.runtime.state import store
from strandline.runtime.state.segments import HashedLog, Segment, SortedLog, State, States
from strandline.runtime.state.store import StateStore, StoredVersion, verify_version
from support import examples


@pytest.fixture(params=[1, 3, 4096], ids=lambda rows: f"tiers of {rows}")
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiers, so that segments are merged into larger ones of several sizes."""
    monkeypatch.setattr(segments, "SMALLEST_TIER_ROWS", request.param)


Steps = list[tuple[list[int], int]]
STEPS = st.lists(st.tuples(st.lists(st.integers(0, 20), max_size=5), st.integers(0, 6)), max_size=30)


@pytest.mark.usefixtures("tier")
@settings(max_examples=examples(30))
@given(STEPS)
def test_a_sorted_log_gives_back_what_is_due(steps: Steps) -> None:
    """Each step adds rows due some time from now, then moves the time on and takes what is due."""
    log, now, waiting, count = SortedLog("due"), 0, [], 0
    for offsets, move in [*steps, ([], 1000)]:
        rows = [(now + offset, count + i) for i, offset in enumerate(offsets)]
        count += len(rows)
        log.append(pl.DataFrame(rows, schema={"due": pl.Int64, "number": pl.Int64}, orient="row"))
        waiting += rows
        now += move
        taken = [row for frame in log.take_before(now) for row in frame.rows()]
        assert sorted(taken) == sorted(row for row in waiting if row[0] < now)
        # Rows that are due together come in the order in which they were added.
        for due in {due for due, _ in taken}:
            numbers = [number for each, number in taken if each == due]
            assert numbers == sorted(numbers)
        waiting = [row for row in waiting if row[0] >= now]
        assert State(segments={"log": log.segments}).rows() == len(waiting)
    assert not waiting and len(log.segments) <= 1


@pytest.mark.usefixtures("tier")
@settings(max_examples=examples(30))
@given(STEPS, st.sampled_from([1, 2, 1000]), st.sampled_from(get_args(segments.StateStructure)))
def test_a_hashed_log_finds_what_is_alive(steps: Steps, limit: int, structure: segments.StateStructure) -> None:
    """Each step adds keys that live some time, then looks for every key there may be."""
    log, now = HashedLog(structure), 0
    alive: list[tuple[int, int]] = []
    wanted = np.sort(mix(np.arange(7).astype(np.uint64)))
    key_of = {int(h): k for k, h in enumerate(mix(np.arange(7).astype(np.uint64)))}
    for offsets, move in steps:
        rows = sorted((int(mix(np.array([n % 7], np.uint64))[0]), now + n // 2 + 1) for n in offsets)
        hashes = np.array([h for h, _ in rows], dtype=np.uint64)
        log.expire(now)
        log.append(pl.DataFrame({UNTIL: [until for _, until in rows]}, schema={UNTIL: pl.Int64}), hashes, now)
        alive = [(h, until) for h, until in alive + rows if until > now]
        found = []
        for segment, mine, theirs in log.probe(wanted, limit):
            ends = segment.frame.get_column(UNTIL).to_numpy()
            found += [(int(wanted[i]), int(ends[j])) for i, j in zip(mine, theirs, strict=True) if ends[j] > now]
        assert sorted(found) == sorted(alive)
        assert all(h in key_of for h, _ in found)
        if structure == "calendar":
            stored = sum(segment.rows for segment in log.segments)
            assert stored - len(alive) <= segments.EXPIRED_SHARE * stored
        now += move


@pytest.mark.parametrize(("per_batch", "longest"), [(5_000, 5), (3_000, 40), (20_000, 9)])
def test_a_calendar_holds_little_that_has_expired_and_seldom_writes_a_row_again(per_batch: int, longest: int) -> None:
    """Rows that are valid between not at all and `longest` batches: as the results of a join."""
    draw = np.random.default_rng(3)
    log, written, stored, valid = HashedLog("calendar"), 0, [], []
    for now in range(4 * longest):
        ends = now + draw.random(per_batch) * longest
        frame = pl.DataFrame({UNTIL: (1000 * ends).astype(np.int64)})
        before = {id(segment.stored) for segment in log.segments}
        log.expire(1000 * now)
        log.append(frame, np.sort(draw.integers(0, 2**63, per_batch).astype(np.uint64)), 1000 * now)
        written += sum(segment.rows for segment in log.segments if id(segment.stored) not in before)
        stored.append(sum(segment.rows for segment in log.segments))
        valid.append(sum(int((times(s.frame, UNTIL) > 1000 * now).sum()) for s in log.segments))
        assert stored[-1] <= 1.2 * valid[-1]
    merges = 2 + np.log(max(1, longest)) / np.log(segments.FAN_IN)
    assert written / (4 * longest * per_batch) <= 2.5 + merges


def test_what_is_mostly_expired_is_written_again_first() -> None:
    assert segments.segments_to_clean([100, 100, 100], [5, 10, 20]) == []
    assert segments.segments_to_clean([100, 100, 100], [5, 30, 20]) == [1]
    assert segments.segments_to_clean([100, 10, 100], [60, 9, 50]) == [1, 0, 2]
    assert segments.segments_to_clean([], []) == []


def test_segments_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SMALLEST_TIER_ROWS", 1)
    log = SortedLog("due")
    for n in range(500):
        log.append(pl.DataFrame({"due": [n]}))
    assert len(log.segments) < 40


# ---- on disk ---------------------------------------------------------------------------------------------------------


def numbered(*numbers: int) -> State:
    return State({"n": len(numbers)}, {"log": [Segment.of(pl.DataFrame({"x": list(numbers)}), consumed=1, next=2)]})


def read(keeper: StateStore, version: StoredVersion) -> States:
    return keeper.read(version.manifest, version.digest)


def test_a_version_is_read_as_it_was_written(tmp_path: Path) -> None:
    keeper = StateStore(tmp_path, 1, 0)
    versions = [keeper.write(0, {"a": numbered(1)}), keeper.write(1, {"a": numbered(1, 2)})]
    store._opened.clear()
    for version, numbers in zip(versions, ([1], [1, 2]), strict=True):
        found = read(keeper, version)["a"]
        assert found.numbers == {"n": len(numbers)}
        assert found.segments["log"][0].frame.get_column("x").to_list() == numbers
        assert found.segments["log"][0].facts == {"consumed": 1, "next": 2}


def test_a_batch_that_runs_again_replaces_its_version(tmp_path: Path) -> None:
    keeper = StateStore(tmp_path, 1, 0)
    keeper.write(0, {"a": numbered(1)})
    found = read(keeper, keeper.write(0, {"a": numbered(5, 6)}))["a"]
    assert found.segments["log"][0].frame.get_column("x").to_list() == [5, 6]


def test_writers_do_not_replace_each_others_files(tmp_path: Path) -> None:
    first, second = StateStore(tmp_path, 1, 0, epoch=1), StateStore(tmp_path, 1, 0, epoch=2)
    version = second.write(4, {"a": numbered(1)})
    first.write(4, {"a": numbered(2)})  # paused, and taken over in the meantime
    store._opened.clear()
    found = read(second, version)["a"]
    assert found.segments["log"][0].frame.get_column("x").to_list() == [1]


def test_an_older_version_is_not_taken_for_the_one_that_is_meant(tmp_path: Path) -> None:
    keeper = StateStore(tmp_path, 1, 0)
    older = keeper.write(2, {"a": numbered(1)})
    newer = keeper.write(3, {"a": numbered(1, 2)})
    path = tmp_path / "1" / "0"
    (path / newer.manifest).write_bytes((path / older.manifest).read_bytes())
    with pytest.raises(CheckpointError) as raised:
        read(keeper, newer)
    assert raised.value.code == "checkpoint-damaged"


@pytest.mark.parametrize("pattern", ["v*.json", "s*.arrow"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_damaged_state_is_refused(tmp_path: Path, pattern: str, damage: str) -> None:
    keeper = StateStore(tmp_path, 1, 0)
    version = keeper.write(0, {"a": numbered(1, 2, 3)})
    store._opened.clear()
    (path,) = (tmp_path / "1" / "0").glob(pattern)
    content = path.read_bytes()
    middle = len(content) // 2
    match damage:
        case "cut":
            path.write_bytes(content[:middle])
        case "flip":
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        case "gone":
            path.unlink()
    for check in (
        lambda: read(keeper, version)["a"].segments["log"][0].frame,
        lambda: verify_version(tmp_path / "1" / "0", version.manifest, version.digest),
    ):
        with pytest.raises(CheckpointError) as raised:
            check()
        assert raised.value.code == "checkpoint-damaged" and path.name in raised.value.message


def test_old_versions_and_their_segments_are_forgotten(tmp_path: Path) -> None:
    keeper = StateStore(tmp_path, 1, 0)
    kept = numbered(0)
    for batch in range(60):
        version = keeper.write(batch, {"a": kept, "b": numbered(batch)})
    files = {path.name for path in (tmp_path / "1" / "0").iterdir()}
    assert len(files) < 60 and version.manifest in files
    store._opened.clear()
    first, last = read(keeper, version).values()
    assert first.segments["log"][0].frame.get_column("x").to_list() == [0]
    assert last.segments["log"][0].frame.get_column("x").to_list() == [59]
