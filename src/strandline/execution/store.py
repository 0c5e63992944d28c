"""State on disk: a manifest per version, segments as memory-mapped Arrow files.

    <root>/<stage>/<bucket>/v000000012.json      which segments are live after batch 12, with their checksums
    <root>/<stage>/<bucket>/s000000012-3.arrow   the rows of one of them

Batch N starts from the newest version before N and writes version N: segments first, then the manifest by an atomic
rename. A batch that runs twice writes the same bytes twice. Any worker that sees the file system can take any bucket.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from strandline.errors import CheckpointError, damaged
from strandline.execution.runtime import States
from strandline.execution.state import Rows, Segment, State
from strandline.execution.wire import to_table

VERSIONS_KEPT = 10
CLEAN_EVERY = 8
_FORMAT = 1

# Rows that this process has opened: verified once, with the arrays derived from them. Keyed by path and checksum,
# so that a segment that was written again is not mistaken for its predecessor.
_opened: dict[tuple[str, int], Rows] = {}


class StateStore:
    """The versions of the state of one stage in one bucket."""

    def __init__(self, root: Path, stage: int, bucket: int) -> None:
        self.directory = root / str(stage) / str(bucket)

    def before(self, batch: int) -> States:
        """The state that batch `batch` starts from; nothing before the first."""
        versions = [v for v in self._versions() if v < batch]
        if not versions:
            if batch > 0:
                raise CheckpointError(
                    f"the state before batch {batch} is missing in {self.directory}",
                    code="state-missing",
                    hint="The checkpoint is not complete. Restore it from a copy, or begin again with another one.",
                )
            return {}
        manifest = self._read_manifest(max(versions))
        states: States = {}
        live: set[tuple[str, int]] = set()
        for fragment, operators in manifest["fragments"].items():
            states[fragment] = []
            for entry in operators:
                segments = {name: [self._segment(e) for e in group] for name, group in entry["segments"].items()}
                states[fragment].append(State(dict(entry["numbers"]), segments))
                live |= {self._key(e) for group in entry["segments"].values() for e in group}
        own = str(self.directory) + os.sep
        for key in [k for k in _opened if k[0].startswith(own) and k not in live]:
            del _opened[key]
        return states

    def write(self, batch: int, states: States) -> None:
        """Version `batch`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        number = 0
        fragments: dict[str, list[dict[str, Any]]] = {}
        for fragment, operators in states.items():
            fragments[fragment] = []
            for state in operators:
                groups: dict[str, list[dict[str, Any]]] = {}
                for name, segments in state.segments.items():
                    groups[name] = []
                    for segment in segments:
                        if segment.stored.name is None:
                            self._write_rows(segment.stored, f"s{batch:09d}-{number}.arrow")
                            number += 1
                        groups[name].append(_entry(segment))
                fragments[fragment].append({"numbers": state.numbers, "segments": groups})
        body = json.dumps({"format": _FORMAT, "batch": batch, "fragments": fragments})
        text = json.dumps({"checksum": zlib.crc32(body.encode()), "body": body})
        _replace(self.directory / f"v{batch:09d}.json", lambda path: path.write_text(text))
        if batch % CLEAN_EVERY == 0:
            self._clean(batch)

    def _versions(self) -> Iterator[int]:
        if self.directory.is_dir():
            for name in os.listdir(self.directory):
                if name.startswith("v") and name.endswith(".json"):
                    yield int(name[1:-5])

    def _read_manifest(self, version: int) -> dict[str, Any]:
        path = self.directory / f"v{version:09d}.json"
        try:
            outer = json.loads(path.read_text())
            intact = zlib.crc32(outer["body"].encode()) == outer["checksum"]
        except (ValueError, KeyError, TypeError, AttributeError):
            intact = False
        if not intact:
            raise damaged(path)
        manifest: dict[str, Any] = json.loads(outer["body"])
        if manifest["format"] != _FORMAT:
            raise CheckpointError(
                f"{path} has format {manifest['format']}, this version writes format {_FORMAT}",
                code="state-format",
                hint="Finish the query with the version of strandline that began it.",
            )
        return manifest

    def _key(self, entry: dict[str, Any]) -> tuple[str, int]:
        return str(self.directory / entry["file"]), entry["checksum"]

    def _segment(self, entry: dict[str, Any]) -> Segment:
        key = self._key(entry)
        opened = _opened.get(key)
        if opened is None:
            path, checksum = key
            opened = Rows(
                entry["rows"],
                load=lambda: _open(Path(path), checksum),
                name=entry["file"],
                size=entry["size"],
                checksum=checksum,
            )
            _opened[key] = opened
        return Segment(opened, entry["facts"])

    def _write_rows(self, rows: Rows, name: str) -> None:
        table = to_table(rows.frame)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=max(table.num_rows, 1))
        buffer = sink.getvalue()
        _replace(self.directory / name, lambda path: path.write_bytes(memoryview(buffer)))
        rows.name, rows.size, rows.checksum = name, buffer.size, zlib.crc32(buffer)
        # From now on the file is the rows: state may be larger than the memory of a worker.
        path, checksum = self.directory / name, rows.checksum
        rows.release(lambda: _open(path, checksum))
        _opened[str(path), checksum] = rows

    def _clean(self, batch: int) -> None:
        """Forget old versions and the segments that only they used."""
        oldest = batch - VERSIONS_KEPT
        versions = sorted(self._versions())
        if not versions or versions[0] >= oldest or oldest not in versions:
            return
        manifest = self._read_manifest(oldest)
        used = {
            entry["file"]
            for operators in manifest["fragments"].values()
            for state in operators
            for group in state["segments"].values()
            for entry in group
        }
        for name in os.listdir(self.directory):
            path = self.directory / name
            old_version = name[0] == "v" and name.endswith(".json") and int(name[1:-5]) < oldest
            old_segment = name[0] == "s" and int(name[1:10]) <= oldest and name not in used
            if old_version or old_segment:
                path.unlink(missing_ok=True)


def _entry(segment: Segment) -> dict[str, Any]:
    stored = segment.stored
    return {
        "file": stored.name,
        "rows": stored.count,
        "size": stored.size,
        "checksum": stored.checksum,
        "facts": dict(segment.facts),
    }


def _open(path: Path, checksum: int) -> pl.DataFrame:
    try:
        mapped = pa.memory_map(str(path))
        buffer = mapped.read_buffer()
        if zlib.crc32(buffer) != checksum:
            raise damaged(path)
        frame = pl.from_arrow(pa.ipc.open_file(buffer).read_all())
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(path) from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write(temporary)
    os.replace(temporary, path)
