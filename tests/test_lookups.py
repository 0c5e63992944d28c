"""Tables that are not retroactive, against the definition: every row of a stream sees the table as it was when the row
came, whatever the window, the batches and the shards."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from lookup_queries import LookupQueries
from random_streams import cut, stream
from strandline.core.errors import BindError
from support import Arrivals, bind, examples
from table_testing import check, random_table

BLOCK = 25
REFUSED = ("lookup-not-unique", "lookup-window")  # what has a meaning that is not computed


def draw(dice: Random) -> list[Arrivals]:
    streams = [stream(dice, f"s{number}", ("i", "s", "b"), dice.randint(3, 8)) for number in range(2)]
    return [*streams, random_table(dice, "t", keyed=True), random_table(dice, "u", keyed=False)]


@pytest.mark.parametrize("first", range(0, examples(12) * BLOCK, BLOCK))
def test_every_lookup_means_its_definition(first: int) -> None:
    elements, refused = 0, Counter[str]()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        inputs, text = draw(dice), LookupQueries(dice).query()
        try:
            elements += check(bind(text, inputs), inputs, cut(dice, inputs), cut(dice, inputs))[1]
        except BindError as error:
            refused[error.code] += 1
            assert error.code in (*REFUSED, "window-over-intervals"), f"seed {seed}: {text}\n{error}"
        except BaseException as error:
            error.add_note(f"seed {seed}, {inputs}:\n{text}")
            raise
    assert elements > BLOCK // 2, "the queries have results to compare"
    assert sum(refused.values()) < BLOCK / 2, refused
