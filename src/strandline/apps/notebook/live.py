"""Widgets that follow a query while it runs: a table of its snapshot, and a chart of a value over time."""

from __future__ import annotations

import math
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from strandline.apps.notebook.html import status
from strandline.core.arguments import checked, require_range
from strandline.core.errors import QueryError, StrandlineError
from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant, instant, to_datetime
from strandline.core.types import is_numeric
from strandline.database.query import Query
from strandline.runtime.result import VALID_FROM, VALID_UNTIL

_STATIC = Path(__file__).parent / "static"
_LONGEST = 1e9  # seconds, about thirty years


class _Live(anywidget.AnyWidget):
    """Polls a query in a thread until the query ends or the widget is closed."""

    _css = _STATIC / "live.css"
    _closed: threading.Event | None = None  # one that is refused has none
    status = traitlets.Unicode("").tag(sync=True)

    def __init__(self, query: Query, every: float = 0.5) -> None:
        self._query, self._every = query, every
        self._closed = threading.Event()
        super().__init__()
        self.refresh()
        threading.Thread(target=self._follow, name=f"strandline-live-{query.name}", daemon=True).start()

    def refresh(self) -> None:
        """Show the present result."""
        with self.hold_sync():  # one message and one drawing per poll
            try:
                self._show(self._query)
                self.status = " · ".join([status(self._query), *map(str, self._query.notices())])
            except StrandlineError as error:
                self.status = error.render()

    def _show(self, query: Query) -> None:
        raise AssertionError("subclasses define the display")

    def _follow(self) -> None:
        running = True
        assert self._closed is not None, "it is followed once it is open"
        while running and not self._closed.wait(self._every):
            running = self._query.is_running  # read before the last poll, so that nothing is missed
            self.refresh()

    def close(self) -> None:
        if self._closed is not None:
            self._closed.set()
        super().close()


class LiveTable(_Live):
    """The rows of the current snapshot, at most `rows` of them."""

    _esm = _STATIC / "table.js"
    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    numbers = traitlets.List(traitlets.Bool()).tag(sync=True)  # which columns are
    rows = traitlets.List().tag(sync=True)
    more = traitlets.Int(0).tag(sync=True)

    @checked("LiveTable")
    def __init__(self, query: Query, rows: int = 20, every: float = 0.5) -> None:
        require_range("LiveTable", "rows", rows, 1, 1_000_000)
        require_range("LiveTable", "every", every, 0, _LONGEST, excluded=True)
        self._most = rows
        super().__init__(query, every)

    def _show(self, query: Query) -> None:
        self.columns = [column.name for column in query.columns]
        self.numbers = [is_numeric(column.type) for column in query.columns]
        if query.progress == BEFORE_ALL:
            return
        table = query.snapshot()
        self.rows = [[_plain(value) for value in row.values()] for row in table.slice(0, self._most).to_pylist()]
        self.more = max(0, table.num_rows - self._most)


class LiveChart(_Live):
    """A number of the result over time, as a step function; a line for each value of the column `line`.

    `last` is the number of seconds shown; without it, all.
    """

    _esm = _STATIC / "chart.js"
    lines = traitlets.Dict().tag(sync=True)  # name: [[from, until, value], …], times in milliseconds
    title = traitlets.Unicode("").tag(sync=True)

    @checked("LiveChart")
    def __init__(
        self, query: Query, y: str, line: str | None = None, last: float | None = None, every: float = 0.5
    ) -> None:
        require_range("LiveChart", "last", last, 0, _LONGEST, excluded=True)
        require_range("LiveChart", "every", every, 0, _LONGEST, excluded=True)
        self._closed = threading.Event()  # a widget that is refused is closed, too
        kinds = {column.name: column.type for column in query.columns}
        for name in (y, line):
            if name is not None and name not in kinds:
                raise QueryError(
                    f'column "{name}" does not exist in {query.name}',
                    code="unknown-column",
                    hint=f"Columns are {', '.join(kinds)}.",
                )
        if not is_numeric(kinds[y]):
            raise QueryError(
                f'column "{y}" must be a number, not {kinds[y]}', code="not-a-number", hint="Choose a numeric column."
            )
        self._y, self._line, self._last = y, line, last
        super().__init__(query, every)
        self.title = y

    def _show(self, query: Query) -> None:
        progress = query.progress
        if progress == BEFORE_ALL:
            return
        begin = None
        if self._last is not None and progress < FOREVER:
            begin = to_datetime(progress - int(self._last * 1e6))
        lines: dict[str, list[list[float]]] = {}
        rows = query.results().to_pylist()
        chart_end = progress if progress < FOREVER else _last_change(rows)
        for row in rows:
            end = min(FOREVER if row[VALID_UNTIL] is None else instant(row[VALID_UNTIL]), chart_end)
            value = math.nan if row[self._y] is None else float(row[self._y])
            if not math.isfinite(value) or (begin is not None and to_datetime(end) < begin):
                continue  # JSON has no infinities, and a drawing no place for them
            start = instant(row[VALID_FROM])
            name = "" if self._line is None else str(row[self._line])
            if start < end:
                lines.setdefault(name, []).append([start / 1000, end / 1000, value])
        self.lines = lines


def _last_change(rows: list[dict[str, Any]]) -> Instant:
    """End of a drawing when the sources have ended: unbounded values are drawn a little beyond the last change."""
    times = [instant(row[name]) for row in rows for name in (VALID_FROM, VALID_UNTIL) if row[name] is not None]
    if all(row[VALID_UNTIL] is not None for row in rows):
        return max(times, default=FOREVER)
    return max(times) + max(SECOND, (max(times) - min(times)) // 20)


def _plain(value: Any) -> Any:
    """A value as JSON has it, and JavaScript: its integers are exact up to 53 bits."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 2**53 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat(sep=" ").removesuffix("+00:00")
        case list():
            return [_plain(item) for item in value]
    return str(value)
