"""The benchmark of both forms of a result: what it counts is what the forms promise."""

from __future__ import annotations

import pytest

from strandline.apps.bench.changes import SHAPES, measure


@pytest.mark.parametrize("name", SHAPES)
def test_a_batch_of_one_row_sends_and_stores_what_changes(name: str) -> None:
    elements = 3_000
    intervals, changes = (measure(SHAPES[name], elements, form) for form in ("intervals", "changes"))
    if "aggregate" not in name:  # there it is within the plan that much is sent
        assert intervals["sent"] > elements - 30
    assert 1 <= changes["sent"] <= (4 if name == "aggregate of aggregates" else 2)  # there two counts change
    # A window keeps its elements by their end; of the groups, those that change are stored.
    assert changes["written"] <= 10 or "RANGE 1 HOUR" in SHAPES[name].query
    assert changes["written"] < intervals["written"]
