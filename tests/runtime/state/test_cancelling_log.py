"""Elements that are taken out again: by rows that cancel them, which leave together when segments are merged."""

from __future__ import annotations

from collections import Counter
from random import Random

import polars as pl
import pytest

from strandline.core.temporal import OPEN
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.hashing import hash_rows
from strandline.runtime.operators.hash_join import by_hash
from strandline.runtime.state import cancelling_log
from strandline.runtime.state.cancelling_log import CancellingLog, signed
from strandline.runtime.state.segments import HASH


def rows(elements: list[tuple[int, int]], sign: int) -> pl.DataFrame:
    """Elements of a key and a start."""
    frame = pl.DataFrame(elements, schema={"k": pl.Int64, FROM: pl.Int64}, orient="row")
    return signed(frame.with_columns(pl.lit(OPEN, pl.Int64).alias(UNTIL)), sign)


def append(log: CancellingLog, begun: list[tuple[int, int]], ended: list[tuple[int, int]]) -> None:
    frame = pl.concat([rows(begun, 1), rows(ended, -1)])
    frame = by_hash(frame.with_columns(pl.Series(HASH, hash_rows(frame, ["k"]))))
    log.append(frame.drop(HASH), frame.get_column(HASH).to_numpy(), 0)


def contents(frame: pl.DataFrame) -> Counter[tuple[int, int]]:
    return Counter(frame.select("k", FROM).iter_rows())


@pytest.mark.parametrize("seed", range(8))
def test_what_counts_is_what_was_not_taken_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(seed)
    if seed % 2:  # segments that are never merged
        monkeypatch.setattr(cancelling_log, "merge_window_of_versions", lambda *_: None)
        monkeypatch.setattr(cancelling_log, "largest_windows", lambda _: ())
    log, alive = CancellingLog(["k"]), list[tuple[int, int]]()
    for step in range(60):
        ended = [alive.pop(dice.randrange(len(alive))) for _ in range(min(len(alive), dice.randint(0, 4)))]
        begun = [(dice.randint(0, 5), step) for _ in range(dice.randint(0, 4))]
        alive += begun
        append(log, begun, ended)
        frame = log.all()
        assert (Counter() if frame is None else contents(frame)) == Counter(alive)
        keys = pl.DataFrame({"k": [1, 4]})
        found = sum((contents(part) for part in log.of_keys(keys)), Counter[tuple[int, int]]())
        assert found == Counter(element for element in alive if element[0] in (1, 4))
        dead = sum(len(part) for part in log.cancelled(hash_rows(keys, ["k"])))
        assert dead % 2 == 0, "a row that cancels has one that it cancels"


def test_what_is_cancelled_leaves_in_time() -> None:
    """One key whose element is replaced in every batch, beside many others: the log stays as large as what counts."""
    log = CancellingLog(["k"])
    append(log, [(key, 0) for key in range(1_000)], [])
    for step in range(1, 1_000):
        append(log, [(7, step)], [(7, step - 1)] if step > 1 else [(7, 0)])
    assert sum(segment.rows for segment in log.segments) < 1_100
    assert len(log.segments) < 30
