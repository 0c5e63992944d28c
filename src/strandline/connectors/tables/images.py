"""Images: which rows a table had at positions of its log, so that the past is not read from its beginning.

An image is a file with one block, whose rows are the ids of the content at its position, where a file of the log
begins. Nothing depends on it: one that is damaged, or belongs to another log, is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.tables import blocks
from strandline.connectors.tables.blocks import ID, BlockFacts
from strandline.connectors.tables.segment import LogSegment
from strandline.core.durable import write_file
from strandline.core.errors import CheckpointError
from strandline.core.temporal import BEFORE_ALL
from strandline.runtime.kernels.batch import Index

# An image comes after as many changes as it has rows, and at least so many: together images are a small part of a log,
# and a read at an instant has as many changes to look at as there are rows, or so many.
FEWEST_CHANGES: Final = 2**18
_SCHEMA: Final = pa.schema([pa.field(ID, pa.int64())])
_IMAGE: Final = re.compile(r"(\d{15})\.image")


@dataclass(frozen=True, slots=True)
class ContentImage:
    """The ids of the rows at a position, ascending, and the digest of the chain there."""

    position: int
    ids: Index
    chain: str


def image_path(directory: Path, position: int) -> Path:
    return directory / f"{position:015d}.image"


def image_positions(directory: Path) -> list[int]:
    return sorted(int(match[1]) for path in directory.iterdir() if (match := _IMAGE.fullmatch(path.name)))


def write_image(directory: Path, image: ContentImage) -> None:
    """Write an image; not synced, since it can be done without."""
    body = blocks.encode_rows(pl.DataFrame({ID: image.ids}), _SCHEMA)
    parts, _ = blocks.encode_block(image.position, len(image.ids), body, BlockFacts(BEFORE_ALL), image.chain)
    write_file(image_path(directory, image.position), b"".join(parts), sync=False)


def read_image(directory: Path, position: int, chain: str) -> ContentImage | None:
    """The image at a position; None if it is not intact, or not of the log that has this digest there."""
    file = LogSegment(image_path(directory, position), position)
    try:
        block = next(file.all_blocks(), None)
        if block is None or (block.start, block.before) != (position, chain):
            return None
        batches = file.rows_between(position, position + block.rows, _SCHEMA)
    except CheckpointError:
        return None
    ids: Index = batches[0].column(0).to_numpy() if batches else np.zeros(0, np.int64)
    return ContentImage(position, ids, chain)


def remove_images(directory: Path, first: int, end: int) -> None:
    """Remove images outside of the retained log."""
    for position in image_positions(directory):
        if not first < position <= end:
            image_path(directory, position).unlink(missing_ok=True)
