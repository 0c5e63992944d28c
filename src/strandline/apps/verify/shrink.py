"""The smallest input that still fails: rows are taken away as long as the failure remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")

PATIENCE_S: Final = 20.0


def smallest(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], patience_s: float = PATIENCE_S
) -> list[Item]:
    """As few items as possible for which `fails` is true; it is true for all of them.

    First large chunks are removed, then smaller ones, in the end single items, until none can go or time is up (delta
    debugging).
    """
    until = time.monotonic() + patience_s
    kept, size = list(items), max(1, len(items) // 2)
    while kept:
        start, removed = 0, False
        while start < len(kept):
            if time.monotonic() > until:
                return kept
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, removed = fewer, True
            else:
                start += size
        if size == 1 and not removed:
            return kept
        size = max(1, size // 2) if not removed or size > len(kept) else size
    return kept
