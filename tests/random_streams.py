"""Random streams, and random ways to cut streams into batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import get_args

from strandline.planner.physical.plan import StreamForm
from support import DOMAIN, Arrivals, Cuts, arrange, arrange_intervals
from vocabulary import LETTERS


def stream(dice: Random, name: str, letters: Sequence[str], rows: int, last: int = 15) -> Arrivals:
    """Rows at random times, out of order within a bound; most values are common ones, so that rows meet. Now and then
    a row says itself how long it is valid."""
    disorder = dice.choice((0, 0, 1, 6))
    drawn = []
    for _ in range(rows):
        payload = []
        for letter in letters:
            domain = DOMAIN[LETTERS[letter].name]
            payload.append(dice.choice((*domain[:2], domain[1], domain[1], dice.choice(domain), None)))
        drawn.append((dice.randint(-5, last), dice.randint(0, 6), tuple(payload)))
    columns = {letter: LETTERS[letter] for letter in letters}
    if dice.randint(1, 5) < 5:
        return arrange(name, columns, drawn, disorder)
    lengths = [dice.choice((1, 2, 5, 9, 20, None)) for _ in drawn]
    return arrange_intervals(name, columns, [(*row, n) for row, n in zip(drawn, lengths, strict=True)], disorder)


def cut(dice: Random, streams: Sequence[Arrivals]) -> Cuts:
    """Batches of a few rows or none, of one row, of all rows, or with a cut between rows of one instant; in up to three
    buckets, with the result in either form, the edges within the plan in forms of any choice, coalesced or not."""
    kind = dice.choice(("few", "few", "one", "all", "tie"))
    sizes = (tuple(dice.randint(0, 4) for _ in range(dice.randint(0, 5))) for _ in streams)
    if kind == "one":
        sizes = ((1,) * len(stream.elements) for stream in streams)
    elif kind == "all":
        sizes = (() for _ in streams)
    elif kind == "tie":
        sizes = (_up_to_ties(stream) for stream in streams)
    form = dice.choice(get_args(StreamForm))
    return Cuts(tuple(sizes), dice.randint(1, 3), form, dice.random() < 0.5, dice.randint(0, 50))


def _up_to_ties(stream: Arrivals) -> tuple[int, ...]:
    """Batches that end where the next row has the time of the last."""
    times = [element.time for element in stream.elements]
    places = [n for n in range(1, len(times)) if times[n - 1] == times[n]]
    return tuple(end - start for start, end in pairwise((0, *places)))
