"""What the paper's queries hold at every arrival: results of joins, distinct values and negations, with their ends.

Time is the number of the arrival: links take turns. Only the end of a result is decided here, which is the same for
every strategy; `touches` counts what finding it costs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.apps.papers.golab_ozsu.trace import Integers


@dataclass(frozen=True, slots=True)
class Elements:
    """Tuples with a key that are there from `start` until `end`."""

    key: Integers
    start: Integers
    end: Integers

    def __len__(self) -> int:
        return len(self.key)

    def where(self, rows: npt.NDArray[np.bool_]) -> Elements:
        return Elements(self.key[rows], self.start[rows], self.end[rows])

    def count_at(self, times: Integers) -> Integers:
        """Number of elements at times: those that came before and have not ended."""
        return count_between(np.sort(self.start), np.sort(self.end), times, times)


@dataclass(frozen=True, slots=True)
class DistinctOutput:
    """The output of a duplicate elimination: where the tuple of a value ends, the youngest of that value replaces it.
    `auxiliary` are the youngest duplicates, as long as they are remembered."""

    output: Elements
    replaces: npt.NDArray[np.bool_]
    auxiliary: Elements


@dataclass(frozen=True, slots=True)
class Negation:
    """The result of a negation; `due` is when a tuple would end by its window. A probe looks for a tuple of the left
    input by its value, at that time."""

    result: Elements
    due: Integers
    probes: Integers

    @property
    def premature(self) -> npt.NDArray[np.bool_]:
        return self.result.end < self.due


def count_between(starts: Integers, ends: Integers, begun_before: Integers, ended_by: Integers) -> Integers:
    return np.searchsorted(starts, begun_before, "left") - np.searchsorted(ends, ended_by, "right")


def join(left: Elements, right: Elements) -> Elements:
    """Pairs of equal key that are there together."""
    frames = [
        pl.DataFrame({"key": side.key, f"from{n}": side.start, f"until{n}": side.end})
        for n, side in enumerate((left, right))
    ]
    pairs = (
        frames[0]
        .lazy()
        .join(frames[1].lazy(), on="key")
        .select(
            "key",
            start=pl.max_horizontal("from0", "from1"),
            end=pl.min_horizontal("until0", "until1"),
        )
        .filter(pl.col("start") < pl.col("end"))
        .sort("start", maintain_order=True)
        .collect()
    )
    return Elements(*(pairs[name].to_numpy() for name in ("key", "start", "end")))


def distinct(rows: Elements) -> DistinctOutput:
    """One tuple of every value that is there, `rows` being a window of one length."""
    order = np.lexsort((rows.start, rows.key))
    keys, starts = rows.key[order], rows.start[order]
    window = int(rows.end[0] - rows.start[0])
    bounds = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1, append=keys[-1] + 1))
    output: list[tuple[int, int, int, bool]] = []
    auxiliary: list[tuple[int, int, int]] = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        key, times = int(keys[first]), starts[first:last].tolist()
        place, begin, replaces = 0, times[0], False
        while place < len(times):
            end = times[place] + window
            output.append((key, begin, end, replaces))
            duplicate = bisect_right(times, begin)  # the first that comes while this one is the output
            youngest = bisect_left(times, end) - 1
            if duplicate <= youngest:
                auxiliary.append((key, times[duplicate], end))
            if youngest > place:
                place, begin, replaces = youngest, end, True
            else:
                place, replaces = place + 1, False
                begin = times[place] if place < len(times) else 0
    made = np.array(output, dtype=np.int64)
    remembered = np.array(auxiliary, dtype=np.int64).reshape(-1, 3)
    return DistinctOutput(Elements(*made[:, :3].T.copy()), made[:, 3] == 1, Elements(*remembered.T.copy()))


def negate(left: Elements, right: Elements) -> Negation:
    """Of every value, as many tuples of the left as it has more there than on the right: its youngest ones.

    The paper deletes the oldest result of a value when the right side gets one, and brings back the youngest tuple that
    is not in the result when the right side loses one; so the result is always the youngest. Where a tuple outside of
    the result ends, the paper forgets that the result has one tuple too many: here its oldest is deleted.
    """
    # At one instant, ends come before arrivals.
    kind = np.repeat([2, 0, 3, 1], [len(left), len(left), len(right), len(right)])
    time = np.concatenate((left.start, left.end, right.start, right.end))
    number = np.concatenate((*(np.arange(len(left)),) * 2, *(np.arange(len(right)),) * 2))
    key = np.concatenate((left.key, left.key, right.key, right.key))
    order = np.lexsort((number, kind, time))
    there: dict[int, list[int]] = defaultdict(list)
    on_right: dict[int, int] = defaultdict(int)
    since = np.zeros(len(left), np.int64).tolist()
    result: list[tuple[int, int, int]] = []  # tuple, from, until
    probes: list[int] = []
    events = zip(kind[order].tolist(), time[order].tolist(), number[order].tolist(), key[order].tolist(), strict=True)
    for what, now, row, value in events:
        live, others = there[value], on_right[value]
        if what == 2:
            live.append(row)
            since[row] = now
        elif what == 0:
            place = bisect_left(live, row)
            del live[place]
            shown = len(live) + 1 - others
            if shown > 0 and place >= others:
                result.append((row, since[row], now))
            elif shown > 0:
                oldest = live[others - 1]
                result.append((oldest, since[oldest], now))
                probes.append(now)
        elif what == 3:
            on_right[value] = others + 1
            if len(live) > others:
                oldest = live[others]
                result.append((oldest, since[oldest], now))
                probes.append(now)
        else:
            on_right[value] = others - 1
            if len(live) >= others:
                since[live[others - 1]] = now
                probes.append(now)
    ended = np.array(result, dtype=np.int64).reshape(-1, 3)
    rows = ended[:, 0]
    return Negation(Elements(left.key[rows], ended[:, 1], ended[:, 2]), left.end[rows], np.array(probes, np.int64))
