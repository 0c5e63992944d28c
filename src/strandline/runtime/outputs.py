"""The files that the driver delivers with a batch: results of queries, and late and rejected rows of streams.

The rows of many batches share a file, named by its first batch. It grows by row groups: a longer version of it is
written beside it, made durable, and takes its name. So a reader sees all of a batch or nothing of it, each row always
in the same file, and a footer that was read before still fits. What is before the footer never changes: the version
after any earlier batch can be read from a later one (docs/decisions/0022).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from strandline.connectors.sinks.parquet_join import (
    JoinedFile,
    append_parquet,
    join_parquet,
    read_version,
    write_version,
)
from strandline.connectors.sinks.parquet_parts import StagedFile, stage_file
from strandline.connectors.sinks.parquet_results import OpenFileFacts, open_file
from strandline.core.durable import encode_name, sync_directory
from strandline.core.temporal import Instant
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.chain import DeliveredFile, OutputKind
from strandline.runtime.result import result_schema

# A file takes further batches until it has one of these. Each batch copies it once, within the kernel.
MAX_SECONDS: Final = 60.0
MAX_BYTES: Final = 8 * 2**20
MAX_ROW_GROUPS: Final = 1_500

Owner: TypeAlias = tuple[OutputKind, str]  # the kind of a file, and its query or stream


def side_output(directory: Path, kind: str, stream: str) -> Path:
    """Where the late or rejected rows of a stream are kept."""
    return directory / f"_{kind}" / encode_name(stream)


def batch_of(name: str) -> int:
    """The batch that has delivered a file, which is in its name; -1 if it is not."""
    number = name.removesuffix(".parquet").rpartition("-")[2]
    return int(number) if number.isdigit() else -1


@dataclass(frozen=True, slots=True)
class OutputDirectories:
    """Locations of delivered files: results by query, and side outputs. Readers may remove those of `consumed`
    queries. Results from before its first batch are not those of a query, but of an earlier one of its name."""

    results: Mapping[str, Path]
    side_outputs: Path | None
    consumed: frozenset[str] = frozenset()
    first_batches: Mapping[str, int] = field(default_factory=dict)

    def directory(self, owner: Owner) -> Path | None:
        """Directory of the files of an owner; None if it is unknown."""
        kind, name = owner
        if kind == "result":
            return self.results.get(name)
        return self.side_outputs and side_output(self.side_outputs, kind, name)

    def path(self, file: DeliveredFile) -> Path | None:
        """Where a file is; None if it is not known, or of a query that is gone."""
        if file.kind == "result" and batch_of(file.name) < self.first_batches.get(file.owner, 0):
            return None
        directory = self.directory((file.kind, file.owner))
        return directory / file.name if directory is not None else None


@dataclass(frozen=True, slots=True)
class NewestFile:
    """The newest file of an owner: its version after `batch`, and the one before it; None if the batch began it.

    `began` is when it was begun or found, by `time.monotonic`. `is_ahead` if a batch that was not recorded is in it on
    disk: it runs again, and its rows must go to the same file.
    """

    path: Path
    batch: int
    before: JoinedFile | None
    now: JoinedFile
    began: float
    is_ahead: bool = False

    def takes(self, size: int, seconds: float) -> bool:
        """True if the file may grow by further rows."""
        if self.is_ahead:
            return True
        is_small = self.now.sums.size + size <= MAX_BYTES and len(self.now.groups) < MAX_ROW_GROUPS
        return is_small and seconds - self.began < MAX_SECONDS and self.path.exists()


class OutputFiles:
    """The files of a pipeline, as its one writer continues them."""

    def __init__(
        self,
        pipeline: Pipeline,
        directories: OutputDirectories,
        clock: Callable[[], float] = time.monotonic,
        name: str | None = None,
    ) -> None:
        self.directories = directories
        self._streams = _declared_streams(pipeline)
        # Other pipelines may read the same stream: the name of the graph tells them apart, that of its first query.
        names = [query.name for query in pipeline.queries[:1]] if name is None else [name]
        self._prefix = "-".join(["part", *map(encode_name, names)])
        self._schemas = {query.name: result_schema(query.columns) for query in pipeline.queries}
        self._clock = clock
        self._newest: dict[Owner, NewestFile] = {}

    def adopt(self, pipeline: Pipeline, directories: OutputDirectories) -> None:
        """Go on with the queries and streams of another version of the graph."""
        before, self.directories = self.directories.first_batches, directories
        self._streams = _declared_streams(pipeline)
        self._schemas = {query.name: result_schema(query.columns) for query in pipeline.queries}
        for kind, name in list(self._newest):
            is_same = name in directories.results and directories.first_batches.get(name) == before.get(name)
            if kind == "result" and not is_same:
                del self._newest[kind, name]

    def resume(self, files: Sequence[DeliveredFile], count_before: int, batch: int) -> None:
        """Continue after a batch. `files` is everything that was delivered; the entries from `count_before` on are of
        that batch, which may run again."""
        by_owner: dict[Owner, list[int]] = {}
        for number, file in enumerate(files):
            by_owner.setdefault((file.kind, file.owner), []).append(number)
        for owner, numbers in by_owner.items():
            last = files[numbers[-1]]
            path = self.directories.path(last)
            now = None if path is None else version_of(last, path)
            if path is None or now is None:
                continue
            of_batch = numbers[-1] >= count_before
            preceding = files[numbers[-2]] if of_batch and len(numbers) > 1 else None
            before = None if preceding is None or preceding.name != last.name else version_of(preceding, path)
            self._newest[owner] = NewestFile(
                path,
                batch if of_batch else -1,
                before,
                now,
                self._clock(),
                is_ahead=path.stat().st_size != last.size,
            )

    def publish(self, report: BatchReport) -> list[DeliveredFile]:
        """Deliver the rows of a batch. One that runs again replaces what it has delivered before."""
        files: list[DeliveredFile | None] = []
        if self.directories.side_outputs is not None:
            name = f"{self._prefix}-{report.batch:09d}.parquet"
            for stream in self._streams:
                files.append(self._publish(("late", stream), report.batch, name, self._staged("late", stream, report)))
                rejected = self._staged("rejected", stream, report)
                files.append(self._publish(("rejected", stream), report.batch, name, rejected))
        for query in self.directories.results:
            parts = sorted(report.staged.get(query, []), key=lambda part: part.path)
            files.append(self._publish(("result", query), report.batch, f"part-{report.batch:09d}.parquet", parts))
        return [file for file in files if file is not None]

    def _staged(self, kind: OutputKind, stream: str, report: BatchReport) -> list[StagedFile]:
        """The late or rejected rows of a stream, as a file that has not got its name yet."""
        late = [rows.table for rows in report.late.get(stream, ())]
        tables = late if kind == "late" else report.rejected.get(stream)
        if not tables:
            return []
        directory = self.directories.directory((kind, stream))
        assert directory is not None, "there is one for side outputs"
        staged = directory / f".{self._prefix}.staged"
        return [stage_file(pa.concat_tables(tables), staged)]

    def _publish(self, owner: Owner, batch: int, name: str, parts: Sequence[StagedFile]) -> DeliveredFile | None:
        directory = self.directories.directory(owner)
        assert directory is not None, "only owners with a directory deliver files"
        newest, target = self._newest.get(owner), directory / name
        runs_again = newest is not None and newest.batch == batch
        if not parts:
            if newest is not None and (runs_again or newest.is_ahead):
                self._take_back(owner, newest, newest.before if runs_again else newest.now)
            target.unlink(missing_ok=True)
            return None
        path, before = target, None
        size, seconds = sum(part.sums.size for part in parts), self._clock()
        if newest is not None and runs_again:
            path, before = newest.path, newest.before
        elif newest is not None and self._is_shared(owner) and newest.takes(size, seconds) and not target.exists():
            path, before = newest.path, newest.now  # where the target exists, the batch has begun it before a crash
        whole, pieces = Path(parts[0].path), [(Path(part.path), part.sums) for part in parts]
        if before is None:
            joined = join_parquet(pieces)
        else:
            whole = whole.with_name(f"{whole.name}.grown")
            joined = append_parquet(path, before, pieces, whole)
        os.replace(whole, path)
        sync_directory(directory)
        for part, _ in pieces:
            part.unlink(missing_ok=True)
        began = newest.began if newest is not None and newest.path == path else seconds
        self._newest[owner] = NewestFile(path, batch, before, joined, began)
        rows, sums = sum(part.rows for part in parts), joined.sums
        return DeliveredFile(*owner, path.name, sums.size, sums.checksum, rows, len(joined.groups))

    def _is_shared(self, owner: Owner) -> bool:
        """True if a file may have several batches: not where readers remove files, to which it would bring the rows
        again that they have read."""
        return owner[0] != "result" or owner[1] not in self.directories.consumed

    def publish_open(self, report: BatchReport, watermarks: Mapping[str, Instant], ended: frozenset[str]) -> None:
        """Replace the files of open elements that a batch has announced. Of queries whose sources have `ended` with it,
        nothing is open.

        They are no part of the checkpoint: a later announcement writes them again.
        """
        for query, directory in self.directories.results.items():
            path = open_file(directory)
            parts = sorted(report.staged_open.get(query, []), key=lambda part: part.path)
            if query not in report.announced and not (query in ended and path.exists()):
                continue
            path.parent.mkdir(exist_ok=True)
            newest = self._newest.get(("result", query))
            last = ("", 0) if newest is None else (newest.path.name, newest.now.rows)
            facts = OpenFileFacts(watermarks[query], *last)
            if not parts:
                parts = [stage_file(self._schemas[query].empty_table(), path.with_name(f".{path.name}.staged"))]
            join_parquet([(Path(part.path), part.sums) for part in parts], facts.to_metadata())
            os.replace(parts[0].path, path)
            sync_directory(path.parent)
            for part in parts[1:]:
                Path(part.path).unlink(missing_ok=True)

    def _take_back(self, owner: Owner, newest: NewestFile, version: JoinedFile | None) -> None:
        """Remove the rows of a batch that has none now."""
        del self._newest[owner]
        if version is None:
            newest.path.unlink(missing_ok=True)
        else:
            restore_version(newest.path, version)


def _declared_streams(pipeline: Pipeline) -> list[str]:
    """The streams with late and rejected rows; those of second readers are there already."""
    return [stream.name for stream in pipeline.streams if not stream.reader_of]


def version_of(file: DeliveredFile, path: Path) -> JoinedFile | None:
    """A file as a batch has left it, of which later ones may have made more; None if it is not there any more."""
    version = read_version(path, file.row_groups)
    if version is None or (version.sums.size, version.sums.checksum) != (file.size, file.checksum):
        return None
    return version


def restore_version(path: Path, version: JoinedFile) -> None:
    """Replace a file by an earlier version of it."""
    temporary = path.with_name(f".{path.name}.restored")
    write_version(path, version, temporary)
    os.replace(temporary, path)
    sync_directory(path.parent)
