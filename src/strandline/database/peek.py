"""A look at a stream: `SELECT … LIMIT n` without ORDER BY runs until n rows have come, and ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from strandline.connectors.sinks import Memory
from strandline.core.table import TextTable

if TYPE_CHECKING:
    from strandline.database.database import Database
    from strandline.database.statements import BoundQuery

_LOOK_SECONDS: Final = 0.02


def take_rows(database: Database, query: BoundQuery, limit: int) -> TextTable:
    """The first rows of a continuous result, in the order of their times; the query is stopped then."""
    name = next(name for number in count(1) if database.is_free(name := f"look{number}"))
    started = database.start([replace(query, name=name, sink=Memory(None))], None)[0]
    try:
        rows = 0
        while rows < limit and not started.await_end(_LOOK_SECONDS):
            if started.metrics()["rows_out"] >= limit:  # pieces of an element count there; joined they are one
                rows = started.results().num_rows
        elements = started.results()
    finally:
        started.stop()
        database.queries.remove(started)
    if elements.num_rows >= limit:
        note = f"the first {_rows(limit)}; the query has ended. Without LIMIT it goes on; ORDER BY … LIMIT n is a top-n"
    else:
        note = f"{_rows(elements.num_rows)}; the sources have ended"
    return TextTable(elements.slice(0, limit).select([column.name for column in started.columns]), note)


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
