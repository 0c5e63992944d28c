"""What a filter without output has seen: samples of tasks are one sample, and a sentence says it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

import polars as pl
import pytest

from strandline.runtime.kernels.refused_values import SAMPLE_ROWS, merge_samples, sample_values, show_sample


def shown(*frames: pl.DataFrame) -> str:
    """The sentence for the samples of several tasks, as it comes out of a record."""
    samples = [sample_values(frame, {"k"}) for frame in frames]
    return show_sample(merge_samples(json.loads(json.dumps(sample)) for sample in samples))


@pytest.mark.parametrize(
    ("one", "two", "sentence"),
    [
        (["a", "b", "a"], ["b", "c", "b"], "the most frequent values of k were 'b' (3), 'a' (2), 'c' (1)"),
        ([9, 3], [10, None], "k was from 3 to 10"),
        ([Decimal("9.5")], [Decimal("10.5")], "k was from 9.5 to 10.5"),
        ([4], [4], "k was 4"),
        ([None], [2.5], "k was 2.5"),
        ([True], [False], "the most frequent values of k were 'false' (1), 'true' (1)"),
        (
            [datetime(2024, 1, 2, 9)],
            [datetime(2024, 1, 2, 8, 0, 0, 500_000)],
            "k was from 2024-01-02 08:00:00.500000 to 2024-01-02 09:00:00",
        ),
    ],
)
def test_the_samples_of_two_tasks_are_one(one: list[object], two: list[object], sentence: str) -> None:
    kind = pl.Series(one + two).dtype
    frames = [pl.DataFrame({"k": pl.Series(values, dtype=kind)}) for values in (one, two)]
    assert shown(*frames) == f"In the first {len(one) + len(two)} rows, {sentence}."


def test_a_sample_is_small() -> None:
    frame = pl.DataFrame({name: [f"{i % 50}" * 100 for i in range(5 * SAMPLE_ROWS)] for name in "klmno"})
    sample = sample_values(frame, set("klmno"))
    assert sample["rows"] == SAMPLE_ROWS
    assert len(json.dumps(sample)) < 2_000
    assert len(sample["columns"]) == 3


def test_nulls_and_values_without_an_order_are_named_without_values() -> None:
    assert shown(pl.DataFrame({"k": pl.Series([None], dtype=pl.String)})) == "In the only row, k was NULL."
    assert sample_values(pl.DataFrame({"k": [[1], [2]]}), {"k"})["columns"] == {}
