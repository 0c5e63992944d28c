"""strandline in notebooks: `%load_ext strandline.notebook`, then `%%sql`, live tables and live charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

from strandline.apps.notebook.live import LiveChart, LiveTable

__all__ = ["LiveChart", "LiveTable"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext`: registers the magic, and the display of queries, listings and changes."""
    from strandline.apps.notebook.html import listing_html, query_html
    from strandline.apps.notebook.magic import SqlMagic
    from strandline.connectors.tables.groups import CommittedChange
    from strandline.core.table import TextTable
    from strandline.database.query import Query

    shell.register_magics(SqlMagic)
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(Query, query_html)
    formatter.for_type(TextTable, listing_html)
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type(CommittedChange, lambda change, printer, cycle: printer.text(str(change)))
