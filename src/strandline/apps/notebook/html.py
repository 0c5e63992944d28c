"""HTML display of queries and listings."""

from __future__ import annotations

from html import escape
from typing import Any

import pyarrow as pa

from strandline.core.errors import StrandlineError
from strandline.core.table import TextTable
from strandline.core.temporal import BEFORE_ALL, FOREVER, show_instant
from strandline.database.query import Query

SHOWN = 20


def query_html(query: Query) -> str:
    """The snapshot at the last complete instant, and how far that is."""
    try:
        table = query.snapshot() if query.progress > BEFORE_ALL else None
    except StrandlineError as error:
        return f"<pre>{escape(error.render())}</pre>"
    body = "" if table is None else table_html(table)
    notices = "".join(f"<p>{escape(str(notice))}</p>" for notice in query.notices())
    return f"{body}<p>{escape(status(query))}</p>{notices}"


def status(query: Query) -> str:
    """A query in a line: its state, its watermark and its row counts."""
    metrics = query.metrics()
    rows = f"{sum(metrics['rows_in'].values()):,} rows in, {metrics['rows_out']:,} results"
    if query.progress == BEFORE_ALL:
        at = "nothing complete yet"
    else:
        at = "complete" if query.progress == FOREVER else f"complete up to {show_instant(query.progress)}"
    return f"{query.name} · {query.state} · {at} · {rows}"


def listing_html(listing: TextTable) -> str:
    return table_html(listing.table)


def table_html(table: pa.Table) -> str:
    """The first rows of a table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in table.slice(0, SHOWN).to_pylist())
    more = f"<p>… {table.num_rows - SHOWN:,} more</p>" if table.num_rows > SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return f"<td>{'<i>NULL</i>' if value is None else escape(str(value))}</td>"
