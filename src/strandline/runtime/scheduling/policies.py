"""Policies of a shared window join: the order of tasks, each of which is a chunk of new rows that meets one band.

The bands of a chunk are done in order, smallest first, so a chunk has one waiting task. Of all waiting tasks the one
with the least key is next. LWO, SWF and Greedy are those of Hammad, Franklin, Aref and Elmagarmid, *Scheduling for
Shared Window Joins*; `rate` is our own.

Within a band every key rises with the chunk. So each band is done in the order of the chunks, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.runtime.scheduling.bands import Bands, Ints


class BandTasks(NamedTuple):
    """Columns of tasks: the number of the chunk, oldest first, the band, its width, and its width per query."""

    chunk: Ints
    band: Ints
    width: Ints
    width_per_query: npt.NDArray[np.float64]

    @classmethod
    def of(cls, chunk: Ints, band: Ints, bands: Bands) -> BandTasks:
        return cls(chunk, band, bands.widths[band], bands.widths_per_query[band])


PolicyName: TypeAlias = Literal["LWO", "SWF", "Greedy", "rate"]
TaskKey: TypeAlias = Callable[[BandTasks], tuple[npt.NDArray[Any], ...]]


def largest_window_only(tasks: BandTasks) -> tuple[npt.NDArray[Any], ...]:
    """LWO: a chunk meets the whole of the largest window before the next chunk begins."""
    return tasks.chunk, tasks.band


def smallest_window_first(tasks: BandTasks) -> tuple[npt.NDArray[Any], ...]:
    """SWF: no chunk goes on to a larger window while another waits for a smaller one."""
    return tasks.band, tasks.chunk


def greedy(tasks: BandTasks) -> tuple[npt.NDArray[Any], ...]:
    """Greedy: the narrowest band first, since it completes a window soonest; at a tie that of the smaller window."""
    return tasks.width, tasks.band, tasks.chunk


def rate(tasks: BandTasks) -> tuple[npt.NDArray[Any], ...]:
    """Our extension of Greedy: the least width per query that this band and those behind it complete."""
    return tasks.width_per_query, tasks.band, tasks.chunk


POLICIES: Final[dict[str, TaskKey]] = {
    "LWO": largest_window_only,
    "SWF": smallest_window_first,
    "Greedy": greedy,
    "rate": rate,
}


def order_tasks(key: TaskKey, tasks: BandTasks) -> Ints:
    """The places of the tasks in the order in which a policy runs them."""
    return np.lexsort(key(tasks)[::-1])


def next_task(key: TaskKey, tasks: BandTasks) -> int:
    """The place of the task that runs next."""
    return int(order_tasks(key, tasks)[0])


def rank_tasks(key: TaskKey, bands: Bands, chunks: int) -> Ints:
    """The rank of every task of so many chunks, as a matrix of chunks and bands; keys are static, so ranks are."""
    chunk, band = (grid.ravel() for grid in np.indices((chunks, len(bands)), dtype=np.int64))
    ranks = np.empty(chunks * len(bands), np.int64)
    ranks[order_tasks(key, BandTasks.of(chunk, band, bands))] = np.arange(len(ranks))
    return ranks.reshape(chunks, len(bands))
