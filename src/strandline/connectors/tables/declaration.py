"""Declaration of a table on disk: a directory belongs to one table, whose columns, key and kind do not change."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from strandline.connectors.tables import errors
from strandline.connectors.tables.log import HEAD, read_head, segment_path, segment_starts
from strandline.core.durable import DocumentKind, read_document, sync_directory, write_document
from strandline.core.errors import damaged
from strandline.logical.catalog import Table

DECLARATION: Final = "table.json"
KIND: Final = DocumentKind("table", 1)


def describe(table: Table) -> dict[str, object]:
    """What must stay the same as long as there are rows."""
    required = {"required": list(table.required)} if table.required else {}  # which tables did not always have
    return {
        "columns": [[name, str(kind)] for name, kind in table.columns],
        "key": list(table.key),
        "kind": table.kind,
        "times": [table.time_column, table.end_column],
        **required,
    }


def is_declared(directory: Path) -> bool:
    """True if a directory has a table."""
    return (directory / DECLARATION).exists()


def check_declaration(table: Table, directory: Path) -> str | None:
    """Compare a declaration with that of the directory. Returns the identity of the table, a name of its own; None if
    the directory has no table."""
    path = directory / DECLARATION
    if not path.exists():
        _discard_unfinished(directory)
        return None
    identity, stored = read_document(path, KIND)
    if stored != describe(table):
        raise errors.table_changed(table, directory / DECLARATION, _show(describe(table)), _show(stored))
    if not (directory / HEAD).exists():
        raise damaged(directory / HEAD)
    return str(identity)


def new_identity() -> str:
    return uuid.uuid4().hex


def write_declaration(table: Table, directory: Path, identity: str) -> None:
    """The last step of a creation: a directory with a declaration has a log."""
    write_document(directory / DECLARATION, KIND, [identity, describe(table)])
    sync_directory(directory)


def _discard_unfinished(directory: Path) -> None:
    """Remove the empty log of a creation that was interrupted. One with rows has lost its declaration."""
    head, starts = read_head(directory), segment_starts(directory)
    if (head is not None and head.reach) or any(segment_path(directory, start).stat().st_size for start in starts):
        raise damaged(directory / DECLARATION)
    for start in starts:
        segment_path(directory, start).unlink()
    (directory / HEAD).unlink(missing_ok=True)


def _show(described: dict[str, object]) -> str:
    columns = described.get("columns")
    key, required = described.get("key"), described.get("required")
    not_null = dict.fromkeys(required if isinstance(required, list) else (), " NOT NULL")
    listed = (
        ", ".join(f"{name} {kind}{not_null.get(name, '')}" for name, kind in columns)
        if isinstance(columns, list)
        else "no columns"
    )
    keyed = f", PRIMARY KEY ({', '.join(key)})" if isinstance(key, list) and key else ""
    return f"({listed}{keyed}) {str(described.get('kind')).upper()}"
