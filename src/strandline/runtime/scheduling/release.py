"""Release of results in order, although large windows are done later than small ones.

For query k let F(k) be the oldest chunk that has not done its window. Results of a chunk within the window may go to k
as scanned, iff the chunk is not younger than F(k); or at completion, iff it is older than F(k). Both give the same
results in the same order: that of the later row of each pair.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.runtime.scheduling.bands import Ints

Floats: TypeAlias = npt.NDArray[np.float64]


class ReleaseMode(StrEnum):
    AT_COMPLETION = "at completion"
    AS_SCANNED = "as scanned"


def oldest_unfinished(done: Ints, needed: Ints) -> Ints:
    """F(k) of each query, as the place of a chunk; the number of chunks if all have done the window.

    `done` has the number of bands that each chunk has done, chunks from the oldest on. `needed` has the number of bands
    of each query, or of chunks and queries, where the sides of the join have windows of their own.
    """
    unfinished = done[:, None] < np.atleast_2d(needed)
    if len(done) == 0:
        return np.zeros(unfinished.shape[1], np.int64)
    return np.where(unfinished.any(axis=0), unfinished.argmax(axis=0), len(done))


def may_release(mode: ReleaseMode, done: Ints, needed: Ints) -> npt.NDArray[np.bool_]:
    """For chunks and queries: whether the results that a chunk has within the window of a query may go there now."""
    chunk, frontier = np.arange(len(done))[:, None], oldest_unfinished(done, needed)[None, :]
    match mode:
        case ReleaseMode.AT_COMPLETION:
            return chunk < frontier
        case ReleaseMode.AS_SCANNED:
            return chunk <= frontier


def release_bounds(mode: ReleaseMode, completed: Floats) -> Floats:
    """The instant from which on results of a chunk may go to a query, for chunks and queries.

    `completed` has the instants at which chunks have done the windows. A result is released when it has been made and
    this instant has come.
    """
    finished = np.maximum.accumulate(completed, axis=0)
    match mode:
        case ReleaseMode.AT_COMPLETION:
            return finished
        case ReleaseMode.AS_SCANNED:
            return np.concatenate((np.full_like(finished[:1], -np.inf), finished[:-1]))
