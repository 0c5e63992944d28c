"""Results kept by the identity of arguments."""

from __future__ import annotations

from strandline.core import identity_cache
from strandline.core.identity_cache import cached_by_identity


def test_the_same_objects_have_the_same_result() -> None:
    calls: list[list[int]] = []

    @cached_by_identity
    def total(numbers: list[int]) -> int:
        calls.append(numbers)
        return sum(numbers)

    one, equal = [1, 2], [1, 2]
    assert [total(one), total(one), total(equal), total(one)] == [3] * 4
    assert len(calls) == 2, "an equal object is another one"


def test_an_object_stays_as_long_as_its_result() -> None:
    """An object that takes the place of another one in memory has its id."""

    @cached_by_identity
    def first(numbers: list[int]) -> int:
        return numbers[0]

    assert [first([number]) for number in range(1_000)] == list(range(1_000))


def test_the_oldest_results_go() -> None:
    calls = 0

    @cached_by_identity
    def count(key: object) -> int:
        nonlocal calls
        calls += 1
        return calls

    keys = [object() for _ in range(identity_cache.SIZE + 1)]
    for key in keys:
        count(key)
    assert count(keys[-1]) == len(keys)
    assert count(keys[0]) == len(keys) + 1
