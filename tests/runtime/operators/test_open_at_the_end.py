"""An element without an end is still valid when everything ends: it does not end at the instant that stands for that.

The source of a table sends such elements again, with the end `FOREVER`, only where a result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from strandline.core.temporal import FOREVER, OPEN
from strandline.core.types import BIGINT, Column
from strandline.logical.expressions import AggregateCall
from strandline.runtime.operators.aggregate import IncrementalAggregateOperator
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.change_stream import ChangeStreamOperator
from strandline.runtime.operators.counting_distinct import CountingDistinctOperator
from support import TEXT, Elements, batch, elements_of

COUNT = ((Column("n", "n", BIGINT), AggregateCall("count", None, BIGINT)),)


def emitted(operator: Operator) -> Elements:
    """What comes of two equal elements that are open at the end; the second begins in the last slice."""
    first, second = (batch(TEXT, [(("a",), start, OPEN)]) for start in (0, 5))
    found = elements_of(operator.step([first], Watermark(3, 0)).frame)
    return found + elements_of(operator.step([second], Watermark(FOREVER, 0)).frame)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ChangeStreamOperator("insert", TEXT, "changes"), [(("a",), 0, 1), (("a",), 5, 6)]),
        (lambda: ChangeStreamOperator("delete", TEXT, "changes"), []),
        (lambda: CountingDistinctOperator(TEXT), [(("a",), 0, OPEN), (("a",), 0, FOREVER)]),
    ],
    ids=["insert", "delete", "distinct"],
)
def test_it_does_not_end(make: Callable[[], Operator], expected: Elements) -> None:
    assert emitted(make()) == expected


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_it_is_counted_until_the_end(form: Literal["intervals", "changes"]) -> None:
    key = (TEXT[0].id,)
    found = emitted(IncrementalAggregateOperator(key, COUNT, TEXT, form, input_form="changes"))
    assert found[-1] == (("a", 2), 5, FOREVER)
    assert all(start < OPEN for _, start, _ in found)
