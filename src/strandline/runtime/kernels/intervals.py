"""Interval arithmetic over arrays."""

from __future__ import annotations

import numpy as np

from strandline.core.temporal import FOREVER
from strandline.runtime.kernels.batch import Index, Mask, Times


def window(time: Times, range_us: int | None, slide_us: int, offset_us: int = 0) -> tuple[Times, Times]:
    """Interval in which an element with timestamp `time` is in a time window.

    The window content changes at instants k*slide - 1: the entry is rounded up to the next of them, the leave is the
    first of them at which the element is older than the range. Where the slide exceeds the range an element may never
    be seen: its interval is empty. Without a range it never leaves. An offset moves these instants to
    k*slide + offset - 1.

        range=50 slide=10   s=4 -> [9, 59)      s=10 -> [19, 69)
    """
    if offset_us:
        enters, leaves = window(time - offset_us, range_us, slide_us)
        return enters + offset_us, leaves if range_us is None else leaves + offset_us
    enters = time if slide_us == 1 else -((-(time + 1)) // slide_us) * slide_us - 1
    if range_us is None:
        return enters, np.full(len(time), FOREVER)
    if slide_us == 1:
        return time, time + range_us
    leaves = (time + range_us + slide_us) // slide_us * slide_us - 1
    return enters, leaves


def intersect(l_start: Times, l_end: Times, r_start: Times, r_end: Times) -> tuple[Times, Times, Mask]:
    """Intersect intervals pairwise: start, end, and a mask that is false where they do not meet."""
    start, end = np.maximum(l_start, r_start), np.minimum(l_end, r_end)
    return start, end, start < end


def expand(first: Index, count: Index) -> tuple[Index, Index]:
    """Unroll ranges: for each i the pairs (i, first[i]), (i, first[i] + 1), … `count[i]` of them."""
    owner = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - begins[owner] + first[owner]
