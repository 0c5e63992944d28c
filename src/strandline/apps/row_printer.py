"""Rows of queries on standard output, as they become final: what `strandline run` prints without --out."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

import polars as pl

from strandline.apps.console import SafeConsole
from strandline.apps.display import Clock, Layout, lay_out, say_hidden, table_lines
from strandline.apps.row_formats import RowFormat, show_elements, to_csv, to_json_lines
from strandline.connectors.sinks.base import Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.traits import Traits
from strandline.core.temporal import FOREVER, OPEN
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.result import to_result
from strandline.runtime.result_buffer import ResultChunks
from strandline.runtime.result_tracker import ResultTracker

TABLE_ROWS: Final = 1_000  # of each query in a table; CSV and JSON are for programs, and have all


@dataclass(slots=True)
class _PrintedQuery:
    """What is printed of a query: how many rows, how instants look, and the widths of its columns."""

    rows: int = 0
    clock: Clock = field(default_factory=Clock)
    layout: Layout | None = None
    hidden: tuple[str, ...] = ()


class RowPrinter:
    """Prints rows of several queries; `limit` is the number of rows of each, None for all of them."""

    def __init__(self, form: RowFormat, limit: int | None, several: bool) -> None:
        # While a spinner is shown, Rich takes the place of standard output. A pipe must not pass through it.
        on_terminal = sys.stdout.isatty()
        self._console = SafeConsole(file=None if on_terminal else sys.stdout, highlight=False)
        self._width = self._console.width - 1 if on_terminal else None
        self.form, self.limit = form, limit
        self._several = several
        self._queries: dict[str, _PrintedQuery] = {}
        self._last = ""  # the query of the last line
        self._lock = threading.Lock()

    def print_rows(self, query: str, frame: pl.DataFrame, columns: Schema) -> None:
        """Print elements that are final."""
        with self._lock:
            printed = self._queries.setdefault(query, _PrintedQuery())
            left = frame.height if self.limit is None else max(self.limit - printed.rows, 0)
            rows = min(left, frame.height)
            if rows:
                self._print(query, printed, _ordered(frame, columns).head(rows), columns)
            is_cut = rows < frame.height and printed.rows + rows == self.limit and rows > 0
            printed.rows += rows
            if is_cut and self.form == "table":
                self._say("… more rows follow; --limit 0 prints all of them, --out DIR writes them to files")

    def _print(self, query: str, printed: _PrintedQuery, frame: pl.DataFrame, columns: Schema) -> None:
        # What never ends and what has not ended look the same.
        ends = pl.when(pl.col(UNTIL) >= OPEN).then(FOREVER).otherwise(pl.col(UNTIL))
        table = to_result(frame.with_columns(ends.alias(UNTIL)), columns)
        match self.form:
            case "csv":
                self._write(to_csv(table, header=not printed.rows))
            case "json":
                self._write(to_json_lines(table, query if self._several else None))
            case _:
                before = printed.clock.day
                text = show_elements(table, printed.clock)
                widths = printed.layout.widths if printed.layout is not None else ()
                layout = lay_out(text.heads, text.rows, self._width, widths)
                changed = layout != printed.layout or before != printed.clock.day or self._last != query
                if self._several and self._last != query:
                    self._say(f"\n{query}:" if self._last else f"{query}:")
                for line in table_lines(text.heads, text.rows, layout, with_head=changed):
                    self._console.print(line, soft_wrap=True)
                printed.layout, printed.hidden = layout, layout.hidden
        self._last = query

    def close(self) -> None:
        """Say which columns did not fit."""
        for query, printed in self._queries.items():
            if printed.hidden:
                name = f"{query}: " if self._several else ""
                self._say(name + say_hidden(printed.hidden, "--format json"))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _write(self, text: str) -> None:
        # As it is: Rich would break lines and replace characters.
        self._console.file.write(text)
        self._console.file.flush()


def _ordered(frame: pl.DataFrame, columns: Schema) -> pl.DataFrame:
    """Sorted by time, then by all columns: the same whatever the shards."""
    plain = [column.id for column in columns if column.type.element is None]
    return frame.sort([FROM, *plain, UNTIL], nulls_last=True, maintain_order=True)


@dataclass(frozen=True, slots=True)
class PrintedRows(Sink):
    """Prints each element once, when its end is known, and at the end of all sources those that never end."""

    kind: ClassVar[str] = "printed"
    traits: ClassVar[Traits] = Traits(False, True, False, "at least once; printed to standard output")

    printer: RowPrinter

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        raise arguments.error("rows are printed by `strandline run` without --out")

    @property
    def takes_changes(self) -> bool:
        return True

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _PrintingWriter(query, columns, self.printer)


class _PrintingWriter(SinkWriter):
    def __init__(self, query: str, columns: Schema, printer: RowPrinter) -> None:
        self._query, self._columns, self._printer = query, columns, printer
        self._tracker: ResultTracker | None = None
        self._last_batch = -1

    def write(self, sink_batch: SinkBatch) -> None:
        if sink_batch.batch <= self._last_batch:
            return  # it runs again, with the same rows
        self._last_batch = sink_batch.batch
        if self._tracker is None:
            self._tracker = ResultTracker(self._columns, self.in_fragments)
        chunks = ResultChunks([sink_batch.table], [sink_batch.begin], sink_batch.complete_until, 0, FOREVER, False)
        new = self._tracker.step(chunks)
        self._printer.print_rows(self._query, new.ended, self._columns)
