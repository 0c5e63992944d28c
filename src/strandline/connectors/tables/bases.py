"""Bases: the content of a table at a position of its log, where the past before it is no longer kept.

A base is a file with one block. Its rows are those of the content, with the ids and instants of their insertions; its
header has the marks of all statements before it, and the digest of the chain at its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.tables import blocks
from strandline.connectors.tables.blocks import ID, Block, BlockFacts
from strandline.connectors.tables.content import TableContent, stack_rows
from strandline.connectors.tables.log import LogReader, segment_path, segment_starts
from strandline.connectors.tables.segment import LogSegment
from strandline.core.durable import sync_directory, write_file
from strandline.core.errors import damaged
from strandline.core.temporal import OPEN
from strandline.runtime.kernels.batch import UNTIL

_BASE: Final = re.compile(r"(\d{15})\.base")


@dataclass(frozen=True)
class TableBase:
    """The content at a position, and the block that has it."""

    block: Block
    mapped: pa.Table

    @cached_property
    def rows(self) -> pl.DataFrame:
        rows = pl.from_arrow(self.mapped)
        assert isinstance(rows, pl.DataFrame), "a table becomes a frame"
        return rows


def base_path(directory: Path, position: int) -> Path:
    return directory / f"{position:015d}.base"


def base_positions(directory: Path) -> list[int]:
    return sorted(int(match[1]) for path in directory.iterdir() if (match := _BASE.fullmatch(path.name)))


def read_base(directory: Path, position: int, schema: pa.Schema) -> TableBase:
    """The base at a position, whose rows are compared with their digest."""
    path = base_path(directory, position)
    file = LogSegment(path, position)
    block = next(file.all_blocks(), None)
    if block is None or block.start != position:
        raise damaged(path)
    batches = file.rows_between(position, position + block.rows, schema)
    return TableBase(block, pa.Table.from_batches(batches, schema))


def write_base(
    directory: Path, position: int, rows: pl.DataFrame, facts: BlockFacts, chain: str, schema: pa.Schema
) -> None:
    """Write the content at a position; it is on disk, with its name, when this returns."""
    body = blocks.encode_rows(rows, schema)
    parts, _ = blocks.encode_block(position, rows.height, body, facts, chain)
    write_file(base_path(directory, position), b"".join(parts))
    sync_directory(directory)


def remove_before(directory: Path, first: int) -> None:
    """Remove the files before the position where the retained log begins, and bases of other positions, which were
    replaced, or written when the process died."""
    for position in base_positions(directory):
        if position != first:
            base_path(directory, position).unlink(missing_ok=True)
    for start in segment_starts(directory):
        if start < first:
            segment_path(directory, start).unlink(missing_ok=True)


def load_content(content: TableContent, base: TableBase | None, reader: LogReader, first: int, reach: int) -> None:
    """Fill an empty content with a base and the log after it."""
    base_rows = [] if base is None else base.mapped.to_batches()
    base_ids = np.concatenate([np.zeros(0, np.int64), *(batch.column(ID).to_numpy() for batch in base_rows)])
    base_live, live = np.ones(len(base_ids), np.bool_), np.ones(reach - first, np.bool_)
    position = first
    for batch in reader.batches(first, reach):
        ends = batch.column(UNTIL).to_numpy() != OPEN
        ids = batch.column(ID).to_numpy()[ends]
        live[position - first : position - first + batch.num_rows] &= ~ends
        live[ids[ids >= first] - first] = False
        base_live[np.searchsorted(base_ids, ids[ids < first])] = False
        position += batch.num_rows
    content.reserve(int(np.count_nonzero(base_live)) + int(np.count_nonzero(live)))
    begin = 0
    for batch in base_rows:
        part = slice(begin, begin + batch.num_rows)
        content.load(batch, base_live[part], base_ids[part])
        begin = part.stop
    position = first
    for batch in reader.batches(first, reach):
        ids = np.arange(position, position + batch.num_rows)
        content.load(batch, live[ids - first], ids)
        position += batch.num_rows


def live_rows(base: TableBase | None, log: Iterable[pl.DataFrame], schema: pa.Schema) -> pl.DataFrame:
    """The rows of the log that insert what is there at its end, in the order of their ids."""
    rows = _together(base, log, schema)
    ended = rows.filter(pl.col(UNTIL) != OPEN).select(ID)
    return rows.filter(pl.col(UNTIL) == OPEN).join(ended, on=ID, how="anti", maintain_order="left")


def _together(base: TableBase | None, log: Iterable[pl.DataFrame], schema: pa.Schema) -> pl.DataFrame:
    frames = [*([base.rows] if base is not None else []), *log]
    return stack_rows(frames, {}) if frames else empty_rows(schema)


def empty_rows(schema: pa.Schema) -> pl.DataFrame:
    nothing = pl.from_arrow(schema.empty_table())
    assert isinstance(nothing, pl.DataFrame), "a table becomes a frame"
    return nothing
