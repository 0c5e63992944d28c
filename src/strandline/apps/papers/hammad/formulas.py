"""Table 1 and the analysis: response times when tuples of one stream arrive at once, formulas (1) and (2)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.runtime.scheduling.release import Floats

# Table 1: seven windows, in seconds.
DISTRIBUTIONS: Final[dict[str, tuple[int, ...]]] = {
    "Uniform": (1, 100, 200, 300, 400, 500, 600),
    "Mostly-Small": (1, 5, 15, 30, 60, 300, 600),
    "Mostly-Large": (1, 60, 300, 420, 510, 570, 600),
    "Small-Large": (1, 5, 15, 300, 510, 570, 600),
}
LARGEST: Final = 600

# Figures 3 and 5: seconds per pair, tuples per second of a stream, and tuples that arrive at once.
PAIR_SECONDS: Final = 1e-8
RATE: Final = 100.0
ARRIVING: Final = 50


def _stored(windows: npt.ArrayLike) -> Floats:
    """S = λw: the tuples of a window."""
    return RATE * np.asarray(windows, dtype=np.float64)


def largest_window_only(windows: npt.ArrayLike, arriving: int = ARRIVING) -> Floats:
    """(1): mean seconds t/2 · ((S + 1) + (m - 1) · Smax) for each of the windows."""
    stored = _stored(windows)
    pairs: Floats = (stored + 1) + (arriving - 1) * stored.max()
    return PAIR_SECONDS / 2 * pairs


def alone(windows: npt.ArrayLike, arriving: int = ARRIVING) -> Floats:
    """(1) of each query by itself, t/2 · (mS + 1); the text prints a footnote mark as a square."""
    return PAIR_SECONDS / 2 * (arriving * _stored(windows) + 1)


def smallest_window_first(windows: npt.ArrayLike, arriving: int = ARRIVING) -> Floats:
    """(2): mean seconds m · S' · t + (m + 1)/2 · (S - S') · t, where S' belongs to the next smaller window."""
    stored = _stored(windows)
    smaller = np.concatenate(([0.0], stored[:-1]))
    return PAIR_SECONDS * (arriving * smaller + (arriving + 1) / 2 * (stored - smaller))
