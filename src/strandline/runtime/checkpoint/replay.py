"""Offsets of batches that a repair has discarded, kept so that the next run plans the same batches again.

Sinks that have such a batch already pass over it, by its number: that is right only if it has the same rows.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from strandline.core.durable import DocumentKind, read_document, sync_directory, write_document
from strandline.runtime.offsets import PipelineOffset

DIRECTORY: Final = "replay"
KIND: Final = DocumentKind("replay", 1)


def keep_for_replay(checkpoint: Path, before: PipelineOffset, offset: PipelineOffset) -> None:
    """Keep the offset of a batch that is discarded, with the one before it."""
    directory = checkpoint / DIRECTORY
    directory.mkdir(exist_ok=True)
    write_document(directory / f"{offset.batch}.json", KIND, [before.to_json(), offset.to_json()])
    sync_directory(directory)


def planned_again(checkpoint: Path, before: PipelineOffset) -> PipelineOffset | None:
    """The offset of the batch after `before`, if it was planned before a repair."""
    path = checkpoint / DIRECTORY / f"{before.n}.json"
    if not path.exists():
        return None
    start, offset = (PipelineOffset.from_json(data, path) for data in read_document(path, KIND))
    return offset if start.positions == before.positions else None


def replayed_until(checkpoint: Path) -> int:
    """The last batch that is planned again as it was; -1 without one."""
    try:
        names = os.listdir(checkpoint / DIRECTORY)
    except FileNotFoundError:
        return -1
    return max((int(name[:-5]) for name in names if name[:-5].isdigit()), default=-1)


def last_replayed(checkpoint: Path) -> PipelineOffset | None:
    """The last offset that is planned again: logs of sources are needed up to there."""
    batch = replayed_until(checkpoint)
    if batch < 0:
        return None
    path = checkpoint / DIRECTORY / f"{batch}.json"
    return PipelineOffset.from_json(read_document(path, KIND)[1], path)


def forget_replayed(checkpoint: Path, batch: int) -> None:
    """Remove the saved offset of a replayed batch, and the directory with the last of them."""
    directory = checkpoint / DIRECTORY
    if directory.is_dir():
        (directory / f"{batch}.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            directory.rmdir()
