"""`strandline results`: the results of a run, read by any process while it runs or afterwards."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.text import Text

from strandline.apps.console import err_console, out_console, say
from strandline.apps.display import Clock, say_hidden
from strandline.apps.row_formats import (
    FORMATS,
    RowFormat,
    TextRows,
    parse_format,
    show_changes,
    show_elements,
    show_rows,
    to_csv,
    to_json_lines,
)
from strandline.apps.row_printer import TABLE_ROWS
from strandline.core.errors import QueryError, SinkError, StrandlineError
from strandline.core.table import TextTable
from strandline.core.temporal import instant, show_instant
from strandline.database.introspection.text import count_of, show_watermark
from strandline.runtime.stored_results import StoredResult, find_result, list_results, read_result

_ENDINGS: Final[dict[str, RowFormat]] = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


@dataclass(frozen=True, slots=True)
class ResultsRequest:
    """What `strandline results` was called with."""

    directory: Path
    query: str | None = None
    at: str | None = None
    changes: bool = False
    form: str | None = None
    out: Path | None = None
    limit: int | None = None
    expand: bool = False


def print_results(request: ResultsRequest) -> None:
    """Print results, or write them to a file."""
    form = _choose_format(request)
    if request.at is not None and request.changes:
        raise StrandlineError("--at and --changes exclude each other", code="usage", hint="Leave one of them out.")
    listed = list_results(request.directory) if request.query is None and request.directory.is_dir() else {}
    if len(listed) > 1:
        _refuse_options_of_one(request, listed)
        _list_queries(listed)
        return
    stored = read_result(find_result(request.directory, request.query))
    table, text, what = _select(stored, request)
    limit = TABLE_ROWS if request.limit is None and form == "table" else request.limit or None
    shown = table if limit is None else table.slice(0, limit)
    if form == "table":
        _print_table(request, stored, text, shown, table.num_rows, what)
    else:
        _write(request, form, shown)


def _choose_format(request: ResultsRequest) -> RowFormat:
    if request.form is not None:
        form = parse_format(request.form, FORMATS)
    elif request.out is None:
        form = "table"
    else:
        form = _ENDINGS.get(request.out.suffix.lower(), "parquet" if request.out.suffix == ".parquet" else "table")
    if form == "parquet" and request.out is None and sys.stdout.isatty():
        raise StrandlineError("Parquet is no text", code="usage", hint="Write it to a file: --out FILE.parquet.")
    return form


def _refuse_options_of_one(request: ResultsRequest, listed: dict[str, Path]) -> None:
    """A list of queries has no rows: options that choose, format or write rows are for one query."""
    given = {
        "--at": request.at is not None,
        "--changes": request.changes,
        "--format": request.form is not None,
        "--out": request.out is not None,
        "--limit": request.limit is not None,
        "--expand": request.expand,
    }
    for option, is_given in given.items():
        if is_given:
            raise StrandlineError(
                f"{option} is for one query, and {request.directory} has the results of {len(listed)}",
                code="usage",
                hint=f"Name one: {', '.join(map(str, listed.values()))}.",
            )


def _list_queries(listed: dict[str, Path]) -> None:
    """Several queries: their names, how many elements they have, and how far they are complete."""
    rows = []
    for name, path in listed.items():
        stored = read_result(path)
        until = "" if stored.complete_until is None else show_watermark(stored.complete_until)
        rows.append((name, f"{stored.elements.num_rows:,}", until, str(path)))
    say(str(TextTable.text(("query", "elements", "complete up to", "directory"), rows)))


def _select(stored: StoredResult, request: ResultsRequest) -> tuple[pa.Table, str, str]:
    """The rows that are requested, of which kind they are, and what to say of them."""
    if request.changes:
        changes = stored.changes()
        return changes, "changes", f"{count_of(changes.num_rows, 'change')}"
    if request.at is None:
        return stored.elements, "elements", f"{count_of(stored.elements.num_rows, 'element')}"
    try:
        moment = stored.last_instant() if request.at.lower() == "last" else instant(request.at)
    except ValueError:
        raise QueryError(
            f"invalid instant {request.at!r}",
            code="bad-instant",
            hint="Write --at '2024-01-31 23:59:59', or --at last for the last complete instant.",
        ) from None
    rows = stored.snapshot(moment)
    return rows, "rows", f"{count_of(rows.num_rows, 'row')} at {show_instant(moment)}"


def _print_table(
    request: ResultsRequest, stored: StoredResult, kind: str, shown: pa.Table, rows: int, what: str
) -> None:
    lines, hidden = _table_lines(request, kind, shown)
    more = [f"… and {rows - shown.num_rows:,} more; --limit 0 shows all"] if shown.num_rows < rows else []
    if request.out is not None:
        content = [line.plain for line in lines] + more
        _save(request.out, "".join(f"{line}\n" for line in content).encode())
    else:
        for line in lines:
            out_console.print(line, soft_wrap=True)
        for notice in more:
            say(notice)
        if hidden:
            say(say_hidden(hidden, "--expand"))
    until = stored.complete_until
    complete = "" if until is None else f", complete up to {show_watermark(until)}"
    err_console.print(f"{stored.query}: {what}{complete}", markup=False, soft_wrap=True, style="bright_black")


def _table_lines(request: ResultsRequest, kind: str, shown: pa.Table) -> tuple[list[Text], tuple[str, ...]]:
    if not shown.num_columns or not shown.num_rows:
        return [], ()
    text: TextRows
    match kind:
        case "changes":
            text = show_changes(shown, Clock())
        case "elements":
            text = show_elements(shown, Clock())
        case _:
            text = show_rows(shown)
    width = out_console.width - 1 if out_console.is_terminal and request.out is None else None
    lines, layout = text.lines(width, request.expand)
    return lines, layout.hidden


def _write(request: ResultsRequest, form: RowFormat, table: pa.Table) -> None:
    if form == "parquet":
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        content = buffer.getvalue()
    else:
        content = (to_csv(table) if form == "csv" else to_json_lines(table)).encode()
    if request.out is not None:
        _save(request.out, content)
        err_console.print(f"{count_of(table.num_rows, 'row')} written to {request.out}", markup=False, soft_wrap=True)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _save(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SinkError(
            f"cannot write {path}", code="sink-unwritable", detail=str(error), hint="Choose another file."
        ) from None
