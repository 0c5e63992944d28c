"""Recovery of a table: its log is resumed, or begun, and its content is what the log says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from strandline.connectors.tables import declaration, images
from strandline.connectors.tables.bases import TableBase, load_content, read_base, remove_before
from strandline.connectors.tables.blocks import CEASED, SINCE
from strandline.connectors.tables.content import TableContent
from strandline.connectors.tables.log import LogReader, TableLog, join_facts, read_head
from strandline.core.temporal import ALWAYS, OPEN, Instant
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import UNTIL


@dataclass(frozen=True, slots=True)
class RecoveredTable:
    """The log, its reader, and what the log says beside its rows: marks of statements, how far a feed was read, and the
    last given time of a change."""

    log: TableLog
    reader: LogReader
    marks: dict[str, None]
    feed: str | None
    since: Instant


def recover_table(table: Table, directory: Path, schema: pa.Schema, content: TableContent) -> RecoveredTable:
    """Resume, or begin, the log of a table, and fill its empty content."""
    identity = declaration.check_declaration(table, directory)
    log = TableLog(directory, schema, identity or declaration.new_identity())
    head = read_head(directory)
    base = read_base(directory, head.first, schema) if head is not None and head.first else None
    retained = log.open(None if base is None else base.block)
    past = [block.facts for block in ([base.block] if base is not None else []) + retained]
    facts = join_facts(past) if past else None
    # What this reader compares with its digests now need not be compared when the past is read.
    reader = LogReader(directory, schema)
    load_content(content, base, reader, log.first, log.reach)
    since = _last_given(base, reader, log)
    remove_before(directory, log.first)
    images.remove_images(directory, log.first, log.reach)
    if identity is None:
        declaration.write_declaration(table, directory, log.identity)
    marks: dict[str, None] = dict.fromkeys(() if facts is None else facts.marks)
    return RecoveredTable(log, reader, marks, None if facts is None else facts.feed, since)


def _last_given(base: TableBase | None, reader: LogReader, log: TableLog) -> Instant:
    """The last given time of a change, or `ALWAYS`: what the last row of the log has, or the latest of the base."""
    if log.reach > log.first:
        row = next(reader.read(log.reach - 1, log.reach)).row(-1, named=True)
        return int(row[SINCE] if row[UNTIL] == OPEN else row[CEASED])
    latest = None if base is None else base.rows.get_column(SINCE).max()
    return ALWAYS if latest is None else int(latest)  # type: ignore[arg-type]
