"""The content of a materialized view on disk: what is written is found again, whatever a crash has left."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from strandline.connectors.sinks.base import ResumePoint, SinkBatch
from strandline.connectors.sinks.stored_view import StoredView, StoredViewWriter
from strandline.core.errors import StrandlineError
from strandline.core.temporal import BEFORE_ALL, OPEN, Instant
from strandline.core.types import BIGINT, Column
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.result import to_result
from strandline.runtime.result_buffer import ResultBuffer

COLUMNS = (Column("k", "k", BIGINT),)


def chunk(*elements: tuple[int, Instant, Instant]) -> pl.DataFrame:
    return pl.DataFrame(list(elements), schema={"k": pl.Int64, FROM: pl.Int64, UNTIL: pl.Int64}, orient="row")


def opened(
    directory: Path, batch: int, last_result_batch: int | None = None, keep_us: int | None = None
) -> StoredViewWriter:
    """A writer that resumes after a batch; -1 is a new checkpoint."""
    writer = StoredView(None, keep_us, directory).open("v", COLUMNS)
    assert isinstance(writer, StoredViewWriter)
    last = batch if last_result_batch is None else last_result_batch
    resume_point = ResumePoint("owner", batch < 0, batch, last)
    writer.validate(resume_point)
    writer.prepare(resume_point)
    return writer


def write(writer: StoredViewWriter, batch: int, frame: pl.DataFrame) -> None:
    begin = batch * 10 if batch else BEFORE_ALL
    writer.write(SinkBatch(batch, to_result(frame, COLUMNS), batch * 10 + 10, begin))


def restored(writer: StoredViewWriter) -> ResultBuffer:
    buffer = ResultBuffer(COLUMNS, None)
    writer.restore(buffer)
    return buffer


def elements(buffer: ResultBuffer) -> list[tuple[int, ...]]:
    return sorted(buffer.chunks(0, 0).frame(COLUMNS).rows())


def random_chunk(draw: random.Random, batch: int, live: list[tuple[int, Instant]]) -> pl.DataFrame:
    """Some that end, some that are open, and the ends of some that were."""
    ended = [live.pop(draw.randrange(len(live))) for _ in range(min(len(live), draw.randint(0, 3)))]
    rows = [(k, start, batch * 10 + draw.randint(0, 9)) for k, start in ended]
    for _ in range(draw.randint(0, 4)):
        start = batch * 10 + draw.randint(0, 8)
        if draw.random() < 0.5:
            rows.append((draw.randint(0, 2), start, start + 1))
        else:
            live.append((draw.randint(0, 2), start))
            rows.append((*live[-1], OPEN))
    return chunk(*rows)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_written_is_restored(tmp_path: Path, seed: int) -> None:
    draw, everything = random.Random(seed), ResultBuffer(COLUMNS, None)
    live: list[tuple[int, Instant]] = []
    writer, last_result_batch = opened(tmp_path, -1), -1
    for batch in range(60):
        frame = random_chunk(draw, batch, live)
        if draw.random() < 0.3:  # a crash after the batch was written, and before it was recorded
            write(writer, batch, frame)
            writer = opened(tmp_path, batch - 1, last_result_batch)
        write(writer, batch, frame)
        if draw.random() < 0.2:  # Spark repeats a batch
            write(writer, batch, frame)
        everything.add([to_result(frame, COLUMNS)], batch * 10 if batch else BEFORE_ALL)
        last_result_batch = batch if frame.height else last_result_batch
        if draw.random() < 0.2:
            writer = opened(tmp_path, batch, last_result_batch)
            assert elements(restored(writer)) == elements(everything)
    assert len(list(tmp_path.iterdir())) < 14


def test_files_that_a_crash_left_beside_their_union_are_removed(tmp_path: Path) -> None:
    writer = opened(tmp_path, -1)
    write(writer, 0, chunk((1, 0, 5)))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for batch in (1, 2, 3):
        write(writer, batch, chunk((1, batch * 10, batch * 10 + 1)))
    expected = elements(restored(opened(tmp_path, 3)))
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    assert elements(restored(opened(tmp_path, 3))) == expected
    assert len(expected) == 4


def test_the_past_is_forgotten_on_disk(tmp_path: Path) -> None:
    writer = opened(tmp_path, -1, keep_us=100)
    for batch in range(200):
        write(writer, batch, chunk(*((i, batch * 10, batch * 10 + 1) for i in range(200))))
    buffer = restored(opened(tmp_path, 199, keep_us=100))
    assert 0 < buffer.since <= 2000 - 100
    assert 200 * 10 <= buffer.rows < 200 * 200
    assert {row[0] for row in elements(buffer) if row[1] == 1950} == set(range(200))


def test_damage_is_refused(tmp_path: Path) -> None:
    writer = opened(tmp_path, -1)
    for batch in range(9):
        write(writer, batch, chunk(*((1, batch * 10, batch * 10 + 1) for _ in range(200_000 >> 2 * batch))))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 2
    with pytest.raises(StrandlineError) as ahead:
        opened(tmp_path, 3)
    assert ahead.value.code == "results-ahead"
    kept = paths[1].read_bytes()
    paths[1].write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(StrandlineError) as changed:
        restored(opened(tmp_path, 8))
    paths[1].unlink()
    with pytest.raises(StrandlineError) as missing:
        opened(tmp_path, 8)
    assert {changed.value.code, missing.value.code} == {"checkpoint-damaged"}
    for path in paths:
        path.unlink(missing_ok=True)
    with pytest.raises(StrandlineError) as lost:
        opened(tmp_path, 8)
    assert lost.value.code == "results-missing"
