"""State on disk: a manifest per version, segments as memory-mapped Arrow files.

    <root>/<stage>/<shard>/v000000012-000003.json      which segments are live after batch 12, with their checksums
    <root>/<stage>/<shard>/s000000012-000003-4.arrow   the rows of one of them

Batch N starts from version N-1, the one that the batch record names, and writes version N: segments first, then the
manifest by an atomic rename. The second number is the epoch of the writer, so that no writer replaces a file of
another. A batch that runs twice writes the same bytes twice. Any worker that sees the file system can take any shard.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from strandline.core import durable
from strandline.core.errors import damaged
from strandline.core.mapped import write_table
from strandline.runtime.exchange import to_table
from strandline.runtime.state.segments import Segment, State, StateRows, States

VERSIONS_KEPT = 10
CLEAN_EVERY = 8
MANIFEST: Final = durable.DocumentKind("state", 3)
_MANIFEST_NAME: Final = re.compile(r"v(\d{9})-(\d{6})\.json")
_SEGMENT_NAME: Final = re.compile(r"s(\d{9})-(\d{6})-\d+\.arrow")

# Rows that this process has opened: verified once, with the arrays derived from them. Keyed by path and checksum,
# so that a segment that was written again is not mistaken for its predecessor.
_opened: dict[tuple[str, int], StateRows] = {}


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of the state of a shard as a batch record names it, and the files that were written for it."""

    manifest: str
    digest: str
    files: tuple[str, ...] = ()


class StateStore:
    """The versions of the state of one stage in one shard. `epoch` is that of the writer."""

    def __init__(self, root: Path, stage: int, shard: int, epoch: int = 1) -> None:
        self.directory = root / str(stage) / str(shard)
        self.epoch = epoch

    def read(self, manifest: str, digest: str) -> States:
        """A version of the state, which must be the one that the batch record means."""
        body = read_manifest(self.directory / manifest, digest)
        states = {operator: self._state(entry) for operator, entry in body["operators"].items()}
        live = {self._key(entry) for entry in manifest_segments(body)}
        own = str(self.directory) + os.sep
        for key in [k for k in _opened if k[0].startswith(own) and k not in live]:
            del _opened[key]
        return states

    def write(self, batch: int, states: States) -> StoredVersion:
        """Write version `batch`. Nothing is synced here: the driver syncs all shards together."""
        self.directory.mkdir(parents=True, exist_ok=True)
        written: list[str] = []

        def entry(segment: Segment) -> dict[str, Any]:
            rows = segment.stored
            if rows.name is None:
                written.append(f"s{batch:09d}-{self.epoch:06d}-{len(written)}.arrow")
                self._write_rows(rows, written[-1])
            stored = {"file": rows.name, "rows": rows.count, "size": rows.size, "checksum": rows.checksum}
            return {**stored, "facts": dict(segment.facts)}

        operators: dict[str, dict[str, Any]] = {}
        for operator, state in states.items():
            segments = {name: [entry(segment) for segment in group] for name, group in state.segments.items()}
            operators[operator] = {"numbers": state.numbers, "segments": segments}
        manifest = f"v{batch:09d}-{self.epoch:06d}.json"
        body = {"batch": batch, "operators": operators}
        digest = durable.write_document(self.directory / manifest, MANIFEST, body, sync=False)
        if batch % CLEAN_EVERY == 0:
            self._clean(batch)
        return StoredVersion(manifest, digest, (*written, manifest))

    def _key(self, entry: dict[str, Any]) -> tuple[str, int]:
        return str(self.directory / entry["file"]), entry["checksum"]

    def _state(self, entry: dict[str, Any]) -> State:
        segments = {name: [self._segment(e) for e in group] for name, group in entry["segments"].items()}
        return State(dict(entry["numbers"]), segments)

    def _segment(self, entry: dict[str, Any]) -> Segment:
        key = self._key(entry)
        opened = _opened.get(key)
        if opened is None:
            path, checksum = key
            load = partial(_open, Path(path), checksum)
            opened = StateRows(entry["rows"], entry["size"], None, load, entry["file"], checksum)
            _opened[key] = opened
        return Segment(opened, entry["facts"])

    def _write_rows(self, rows: StateRows, name: str) -> None:
        # From now on the file is the rows: state may be larger than the memory of a worker.
        path = self.directory / name
        with durable.replacing(path) as temporary:
            rows.size, checksum = write_table(to_table(rows.frame), temporary)
        rows.name, rows.checksum = name, checksum
        rows.release(lambda: _open(path, checksum))
        _opened[str(path), checksum] = rows

    def _clean(self, batch: int) -> None:
        """Remove old versions and the segments that only they used."""
        oldest = batch - VERSIONS_KEPT
        names = os.listdir(self.directory)
        versions = {name: int(match[1]) for name in names if (match := _MANIFEST_NAME.fullmatch(name))}
        kept = [name for name, version in versions.items() if version == oldest]
        if not kept or min(versions.values()) >= oldest:
            return
        used = {entry["file"] for name in kept for entry in manifest_segments(read_manifest(self.directory / name))}
        for name in names:
            segment = _SEGMENT_NAME.fullmatch(name)
            old_segment = segment is not None and int(segment[1]) <= oldest and name not in used
            if versions.get(name, oldest) < oldest or old_segment:
                (self.directory / name).unlink(missing_ok=True)
        durable.remove_temporary_files(self.directory, names)


def read_manifest(path: Path, digest: str | None = None) -> dict[str, Any]:
    manifest: dict[str, Any] = durable.read_document(path, MANIFEST, digest)
    return manifest


def manifest_segments(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The segments that a manifest names: file, rows, size and checksum of each."""
    for state in manifest["operators"].values():
        for group in state["segments"].values():
            yield from group


def verify_version(directory: Path, manifest: str, digest: str) -> int:
    """Read a version of the state whole and compare every segment with its checksum; returns how many bytes it has."""
    size = 0
    for entry in manifest_segments(read_manifest(directory / manifest, digest)):
        path = directory / entry["file"]
        try:
            intact = path.stat().st_size == entry["size"] and durable.checksum_file(path) == entry["checksum"]
        except OSError:
            intact = False
        if not intact:
            raise damaged(path)
        size += entry["size"]
    return size


def _open(path: Path, checksum: int) -> pl.DataFrame:
    try:
        buffer = pa.memory_map(str(path)).read_buffer()
        if zlib.crc32(buffer) != checksum:
            raise damaged(path)
        return pl.DataFrame(pa.ipc.open_file(buffer).read_all())
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(path) from error
