"""The whole chain of a checkpoint, checked before anything runs (docs/decisions/0012).

    Spark's logs → batch records → state, delivered files

`verify_chain` and `verify_delivered` raise the first thing that is wrong; `examine.py` lists all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from strandline.connectors.sources.base import Source, open_source
from strandline.core.durable import (
    START,
    DocumentKind,
    checksum_file,
    read_document,
    scan_chain,
    sync_directory,
    write_document,
    write_file,
)
from strandline.core.errors import SinkError, damaged
from strandline.core.lease import Lease
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.chain import (
    DELIVERED_LOG,
    CheckpointChain,
    DeliveredFile,
    source_directory,
    state_directory,
)
from strandline.runtime.checkpoint.records import RECORDS_KEPT, BatchRecord, BatchRecords, RecordReference
from strandline.runtime.checkpoint.replay import last_replayed
from strandline.runtime.checkpoint.spark_log import SparkLog, is_empty, remove_entry
from strandline.runtime.offsets import PipelineOffset, SourceOffset
from strandline.runtime.outputs import side_output
from strandline.runtime.state.store import verify_version

FULL_CHECK_BYTES: Final = 4 * 2**30  # delivered files whose content is read at a start; of the others only the size
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class VerifiedChain:
    """Verified checkpoint: the chain to append to, and the last offset, if there is one."""

    chain: CheckpointChain
    last_offset: PipelineOffset | None
    is_committed: bool  # whether the batch of the last offset is over for Spark
    unsynced: tuple[Path, ...] = ()  # entries of Spark's logs that a power cut has left empty


def verify_chain(path: Path, lease: Lease) -> VerifiedChain:
    """Check Spark's logs, the batch records and the state; raises the first thing that is wrong. Nothing is changed."""
    log, records = SparkLog(path), BatchRecords(path)
    chain = CheckpointChain(path, lease)
    batches, commits, unsynced = _entries(log, records)
    _refuse_gaps(batches, log.offsets)
    _refuse_gaps(commits, log.commits)
    if not batches:
        return _without_offsets(chain, log, records, unsynced)
    metadata = log.check_metadata()
    offsets = {batch: log.read_offset(batch) for batch in batches}
    committed = _check_commits(log, commits, batches, unsynced)
    last, _ = offsets[batches[-1]]
    _check_links(records, offsets)
    _check_settings(log, batches)
    recorded = records.newest(last.batch)
    if committed == last.batch and recorded is None:
        raise damaged(records.directory / f"{last.batch:09d}-*.json")
    if recorded is not None:
        check_newest(recorded, last, offsets[last.batch][1], records)
    elif last.after.batch >= 0:
        recorded = records.read(last.after), last.after
    if recorded is not None:
        chain.record, chain.head = recorded
        if chain.record.metadata != metadata:
            raise damaged(log.metadata)
    # A batch that is not over for Spark runs again: it needs the state before it.
    needed = recorded if committed == last.batch else _before(records, last)
    if needed is not None:
        verify_state(path, needed[0])
    _refuse_later_records(records, last.batch)
    return VerifiedChain(chain, last, committed == last.batch, unsynced)


def make_ready(verified: VerifiedChain) -> None:
    """Clear away what crashes and power cuts have left in Spark's logs, now that everything else is known to be whole.

    An empty commit of the last batch is removed: that batch runs again. One of an earlier batch is written again, since
    a later offset proves that the batch was over. An empty offset is removed: offsets are synced before anything of
    their batch can be seen. Without any offset Spark expects its directory to be empty.
    """
    log = SparkLog(verified.chain.path)
    for path in verified.unsynced:
        if (
            path.parent == log.commits
            and verified.last_offset is not None
            and int(path.name) < verified.last_offset.batch
        ):
            write_file(path, log.COMMIT)
        else:
            remove_entry(path)
    if verified.last_offset is None and verified.chain.record is None:
        shutil.rmtree(log.metadata.parent, ignore_errors=True)
    log.remove_temporary_files()


def _entries(log: SparkLog, records: BatchRecords) -> tuple[list[int], list[int], tuple[Path, ...]]:
    """The batches in the offset log and in the commit log, without those that a power cut has left empty; and these."""
    offsets, commits, unsynced = log.offset_batches(), log.commit_batches(), list[Path]()
    if commits and is_empty(log.commits / str(commits[-1])):
        unsynced.append(log.commits / str(commits.pop()))
    if offsets and is_empty(log.offsets / str(offsets[-1])):
        last = offsets[-1]
        if records.newest(last) is None and (not commits or commits[-1] < last):
            unsynced.append(log.offsets / str(offsets.pop()))
    return offsets, commits, tuple(unsynced)


def _without_offsets(
    chain: CheckpointChain, log: SparkLog, records: BatchRecords, unsynced: tuple[Path, ...]
) -> VerifiedChain:
    """A checkpoint whose first batch was not planned yet, or one of the local engine, which has no Spark log."""
    if log.commit_batches():
        raise damaged(log.offsets / str(log.commit_batches()[-1]))
    listed = records.listed()
    if listed:
        newest = records.newest(listed[-1].batch)
        assert newest is not None
        if newest[0].offset:
            raise damaged(log.offsets / str(newest[0].batch))
        chain.record, chain.head = newest
    return VerifiedChain(chain, None, True, unsynced)


def _refuse_gaps(batches: list[int], directory: Path) -> None:
    for batch in range(batches[0], batches[-1]) if batches else ():
        if batch not in batches:
            raise damaged(directory / str(batch))


def _check_settings(log: SparkLog, batches: list[int]) -> None:
    """Spark carries its settings from offset to offset; no digest covers those of the newest, so they are compared with
    those before, which are known to be whole by now."""
    if len(batches) > 1 and _settings(log, batches[-1]) != _settings(log, batches[-2]):
        raise damaged(log.offsets / str(batches[-1]))


def _settings(log: SparkLog, batch: int) -> object:
    try:
        return log.read_settings(batch)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise damaged(log.offsets / str(batch)) from None


def _check_commits(log: SparkLog, commits: list[int], batches: list[int], unsynced: tuple[Path, ...]) -> int:
    """The last batch that is over; it is the last that was planned, or the one before."""
    last = batches[-1]
    for batch in commits:
        log.check_commit(batch)
    committed = commits[-1] if commits else -1
    if committed > last:
        raise damaged(log.offsets / str(committed))
    if committed < last - 1 and log.commits / str(last - 1) not in unsynced:
        raise damaged(log.commits / str(last - 1))
    if committed < last and last > 0 and last - 1 not in batches:
        raise damaged(log.offsets / str(last - 1))  # a batch that runs again begins there
    return committed


def _check_links(records: BatchRecords, offsets: Mapping[int, tuple[PipelineOffset, str]]) -> None:
    """Every offset names the record of the batch before, and every record the offset of its batch."""
    oldest = max(min(offsets), max(offsets) - RECORDS_KEPT)  # older ones may have been removed
    for batch, (offset, _) in offsets.items():
        if offset.after.batch != batch - 1:
            raise damaged(_offset_path(records, batch))
        if batch <= oldest:
            continue
        if records.read(offset.after).offset != offsets[batch - 1][1]:
            raise damaged(_offset_path(records, batch - 1))


def check_newest(
    recorded: tuple[BatchRecord, RecordReference], last: PipelineOffset, checksum: str, records: BatchRecords
) -> None:
    record, reference = recorded
    if record.before != last.after:
        raise damaged(records.path(reference))
    if record.offset != checksum:
        raise damaged(_offset_path(records, last.batch))


def _offset_path(records: BatchRecords, batch: int) -> Path:
    return SparkLog(records.directory.parent).offsets / str(batch)


def _before(records: BatchRecords, last: PipelineOffset) -> tuple[BatchRecord, RecordReference] | None:
    return (records.read(last.after), last.after) if last.after.batch >= 0 else None


def _refuse_later_records(records: BatchRecords, last: int) -> None:
    """Reject a record without an offset: the checkpoint is older than its delivered results."""
    for reference in records.listed():
        if reference.batch > last:
            raise damaged(_offset_path(records, reference.batch))


def verify_state(path: Path, record: BatchRecord) -> int:
    """Compare the state after a batch, every segment of it, with its record; returns how many bytes it has."""

    def check(shard: str) -> int:
        return verify_version(state_directory(path, shard), *record.state[shard])

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="strandline-verify") as pool:
        return sum(pool.map(check, record.state))


# Sources


def verify_sources(pipeline: Pipeline, path: Path, last: PipelineOffset | None) -> None:
    """Compare the logs of the sources with the last offset. Nothing is changed."""
    for source, position in _sources(pipeline, path, last):
        source.verify(position.at, position.seal)


def resume_sources(pipeline: Pipeline, path: Path, last: PipelineOffset | None) -> dict[str, Source]:
    """The sources, positioned after the last offset: input that no batch has read is dropped from their logs."""
    sources = {}
    for source, position in _sources(pipeline, path, last):
        source.verify(position.at, position.seal)
        source.resume(position.at)
        sources[source.stream.name] = source
    return sources


def _sources(pipeline: Pipeline, path: Path, last: PipelineOffset | None) -> Iterator[tuple[Source, SourceOffset]]:
    # Batches that are to be repeated after a repair need the logs as far as they reached.
    reached = last_replayed(path) or last
    for stream in pipeline.streams:
        position = SourceOffset() if reached is None else reached.positions[stream.name]
        yield open_source(stream, source_directory(path, stream.name)), position


# Delivered files


FORGOTTEN: Final = "forgotten.json"
_FORGOTTEN_KIND: Final = DocumentKind("forgotten", 1)


def read_forgotten(checkpoint: Path) -> set[tuple[str, str, str]]:
    """Delivered files that a repair has given up: kind, owner and name."""
    path = checkpoint / FORGOTTEN
    return {tuple(file) for file in read_document(path, _FORGOTTEN_KIND)} if path.exists() else set()


def write_forgotten(checkpoint: Path, files: Sequence[DeliveredFile]) -> None:
    """Record more files as given up."""
    names = read_forgotten(checkpoint) | {(file.kind, file.owner, file.name) for file in files}
    write_document(checkpoint / FORGOTTEN, _FORGOTTEN_KIND, sorted(names))
    sync_directory(checkpoint)


@dataclass(frozen=True, slots=True)
class OutputDirectories:
    """Locations of delivered files: results by query, and side outputs. Readers may remove those of `consumed`
    queries."""

    results: Mapping[str, Path]
    side_outputs: Path | None
    consumed: frozenset[str] = frozenset()

    def path(self, file: DeliveredFile) -> Path | None:
        """Location of a file; None if it is unknown."""
        if file.kind == "result":
            directory = self.results.get(file.owner)
        else:
            directory = self.side_outputs and side_output(self.side_outputs, file.kind, file.owner)
        return directory / file.name if directory is not None else None


def verify_delivered(chain: CheckpointChain, outputs: OutputDirectories) -> None:
    """Compare every delivered file with its record, and return the log of them."""
    if chain.record is None:
        return
    count, expected = chain.record.delivered
    before = chain.before(chain.record.batch)
    kept = chain.records.read(before).delivered[0] if before.batch >= 0 else 0
    path = chain.path / DELIVERED_LOG
    forgotten = read_forgotten(chain.path)
    listed: list[tuple[DeliveredFile, Path]] = []
    position, digest = 0, START
    for position, line in enumerate(islice(scan_chain(path), count), 1):
        digest = line.digest
        if position == kept:
            chain.delivered.resume(kept, line)
        file = DeliveredFile.from_json(line.entry)
        if (where := outputs.path(file)) is not None and (file.kind, file.owner, file.name) not in forgotten:
            listed.append((file, where))
    if position != count or digest != expected:
        raise damaged(path)
    for _, error in damaged_files(listed, outputs.consumed):
        raise error
    chain.delivered.verify(count, expected)
    chain.delivered.drop(count)  # further files belong to a batch that is replayed


def damaged_files(
    listed: Sequence[tuple[DeliveredFile, Path]], consumed: frozenset[str], full_bytes: int = FULL_CHECK_BYTES
) -> Iterator[tuple[DeliveredFile, SinkError]]:
    """The files that are not there as they were delivered: by size, and by content for the newest ones."""
    whole: list[tuple[DeliveredFile, Path]] = []
    for file, path in reversed(listed):
        try:
            size = path.stat().st_size
        except OSError:
            if file.kind != "result" or file.owner not in consumed:
                yield file, missing_output(file, path)
            continue
        if size != file.size:
            yield file, damaged_output(path)
            continue
        full_bytes -= size
        if full_bytes > 0:
            whole.append((file, path))

    def is_whole(item: tuple[DeliveredFile, Path]) -> bool:
        file, path = item
        return checksum_file(path) == file.checksum

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="strandline-verify") as pool:
        for (file, path), intact in zip(whole, pool.map(is_whole, whole), strict=True):
            if not intact:
                yield file, damaged_output(path)


def missing_output(file: DeliveredFile, path: Path) -> SinkError:
    what = f"results of {file.owner}" if file.kind == "result" else f"{file.kind} rows of stream {file.owner}"
    return SinkError(
        f"{path} is missing, with delivered {what}",
        code="results-missing",
        hint="Restore the file, or run `strandline repair --checkpoint` with the directory of the checkpoint. "
        "Nothing was changed.",
    )


def damaged_output(path: Path) -> SinkError:
    return SinkError(
        f"{path} was truncated or altered after delivery",
        code="results-damaged",
        hint="Restore the file, or run `strandline repair --checkpoint` with the directory of the checkpoint. "
        "Nothing was changed.",
    )
