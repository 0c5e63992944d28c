"""Mean distance between rows, by exponential smoothing: section 22.2.3 of Krämer's thesis.

A mean over the whole life of a query would follow a change of the rate only after as many rows as there were before.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from strandline.core.temporal import BEFORE_ALL, SECOND, Instant
from strandline.runtime.kernels.batch import Times, is_sorted

HALF_LIFE: Final = 100  # rows after which a distance counts half
_TAIL: Final = 10 * HALF_LIFE  # rows before that count less than a thousandth


def smooth_distance(distance: float | None, rows: int, high: Instant, time: Times) -> float | None:
    """Mean seconds between two rows after some more with these times; `distance` is that of the `rows` before them, the
    last of which had the time `high`."""
    ordered = time if is_sorted(time) else np.sort(time)
    previous = ordered[0] if high == BEFORE_ALL else min(high, int(ordered[0]))
    gaps = np.diff(ordered[-_TAIL:], prepend=previous if len(time) <= _TAIL else ordered[-_TAIL - 1]) / SECOND
    if high == BEFORE_ALL and len(time) <= _TAIL:
        gaps = gaps[1:]  # nothing came before the first row
    weights = 0.5 ** (np.arange(len(gaps))[::-1] / HALF_LIFE)
    total, weight = float(gaps @ weights), float(weights.sum())
    if distance is not None and rows > 1:
        earlier = (1 - 0.5 ** ((rows - 1) / HALF_LIFE)) / (1 - 0.5 ** (1 / HALF_LIFE)) * 0.5 ** (len(time) / HALF_LIFE)
        total, weight = total + distance * earlier, weight + earlier
    return total / weight if weight else None
