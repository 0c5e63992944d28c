"""When open elements are announced again: to sinks that only append, and get an element when it ends.

Such a sink shows what is open as it was at the last announcement (docs/decisions/0022). One costs as much as is open.
So it comes soon where as much has changed since the one before, and otherwise within a minute; where nothing changes,
there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from strandline.runtime.batch_report import BatchReport

MAX_SECONDS: Final = 60.0  # from a change to the announcement that shows it
MIN_SECONDS: Final = 1.0  # between two announcements


@dataclass(slots=True)
class _OpenElements:
    """Of a query: how many were open at the last announcement, when that was, and how much has changed since."""

    announced_at: float
    open: int = 0
    changed: int = 0


class Announcements:
    """Decides, in the driver, in which batches the open elements of which queries are announced."""

    def __init__(
        self, queries: Iterable[str], *, resumed: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # What has changed before a restart is not known.
        self._queries = {query: _OpenElements(clock(), changed=int(resumed)) for query in queries}
        self._clock = clock

    def add_query(self, query: str) -> None:
        """Announce the open elements of a further query."""
        self._queries = {**self._queries, query: _OpenElements(self._clock())}

    def remove_query(self, query: str) -> None:
        self._queries = {name: elements for name, elements in self._queries.items() if name != query}

    def add(self, report: BatchReport) -> None:
        """Count what a batch has changed."""
        for name, query in self._queries.items():
            if name in report.announced:
                self._queries[name] = _OpenElements(self._clock(), open=report.opened.get(name, 0))
            else:
                query.changed += report.rows_out.get(name, 0) + report.opened.get(name, 0)

    def due(self) -> tuple[str, ...]:
        """The queries whose open elements the next batch announces; a reason for a batch without rows."""
        now = self._clock()
        return tuple(name for name, query in self._queries.items() if _is_due(query, now - query.announced_at))

    def is_current(self, query: str) -> bool:
        """True if nothing has changed since the last announcement."""
        return query not in self._queries or not self._queries[query].changed


def _is_due(query: _OpenElements, seconds: float) -> bool:
    pays = query.changed >= query.open
    return query.changed > 0 and seconds >= (MIN_SECONDS if pays else MAX_SECONDS)
