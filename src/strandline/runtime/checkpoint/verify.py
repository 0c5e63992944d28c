"""The whole chain of a checkpoint, checked before anything runs (docs/decisions/0012).

    Spark's logs → batch records → state, delivered files

One walk through the files finds what is wrong: `verify_chain` raises the first problem, `examine.py` lists all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from strandline.connectors.sources.base import Source, open_source
from strandline.core import durable
from strandline.core.errors import CheckpointError, SinkError, StrandlineError, damaged
from strandline.core.lease import Lease
from strandline.runtime.catch_up import log_of, with_log
from strandline.runtime.checkpoint import chain as chains
from strandline.runtime.checkpoint.chain import CheckpointChain, DeliveredFile
from strandline.runtime.checkpoint.records import RECORDS_KEPT, BatchRecord, BatchRecords, RecordReference
from strandline.runtime.checkpoint.replay import last_replayed, replayed_until
from strandline.runtime.checkpoint.spark_log import SparkLog, is_empty, remove_entry
from strandline.runtime.checkpoint.versions import GraphVersion
from strandline.runtime.offsets import PipelineOffset, SourceOffset
from strandline.runtime.outputs import OutputDirectories, version_of
from strandline.runtime.state.store import verify_version

FULL_CHECK_BYTES: Final = 4 * 2**30  # delivered files whose content is read at a start; of the others only the size
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and its batch, if it belongs to one."""

    error: StrandlineError
    batch: int | None = None


class Problems(list[Problem]):
    """The problems of a checkpoint in the order in which they were found, each once."""

    def add(self, error: StrandlineError, batch: int | None = None) -> None:
        if error.message not in {problem.error.message for problem in self}:
            self.append(Problem(error, batch))

    @contextmanager
    def collected(self, batch: int | None = None) -> Iterator[None]:
        """Keep what a check raises, and continue."""
        try:
            yield
        except StrandlineError as error:
            self.add(error, batch)


def verify_chain(path: Path, lease: Lease) -> CheckpointChain:
    """Check Spark's logs, the batch records and the state; raises the first thing that is wrong. Nothing is changed."""
    links = read_links(path, problems := Problems())
    for problem in problems:
        raise problem.error
    chain = CheckpointChain(path, lease)
    chain.is_committed, chain.unsynced = links.is_committed, links.unsynced
    if links.newest is not None:
        chain.record, chain.head = links.newest
    if links.offsets:
        last, needed = links.offsets[links.last_batch][0], chain.record
        if not links.is_committed:  # the batch runs again: it needs the state before it
            needed = links.records.read(last.after) if last.after.batch >= 0 else None
        if needed is not None:
            verify_state(path, needed)
        chain.last_offset = last
    return chain


@dataclass(slots=True)
class ChainLinks:
    """Spark's offsets and the batch records that they name, as far as they can be read."""

    log: SparkLog
    records: BatchRecords
    offsets: dict[int, tuple[PipelineOffset, str]] = field(default_factory=dict)  # by batch, with their digests
    last_batch: int = -1  # the last one that was planned
    is_committed: bool = True  # whether that batch is over for Spark
    newest: tuple[BatchRecord, RecordReference] | None = None  # the record that a run continues
    unsynced: tuple[Path, ...] = ()  # entries of Spark's logs that a power cut has left empty


def read_links(path: Path, problems: Problems) -> ChainLinks:
    """Read Spark's logs and the batch records, and add what is wrong with them to the problems. Nothing is changed."""
    log, records = SparkLog(path), BatchRecords(path)
    batches, commits, unsynced = _entries(log, records)
    links = ChainLinks(log, records, unsynced=unsynced)
    for entries, directory in ((batches, log.offsets), (commits, log.commits)):
        for before, after in pairwise(entries):
            for missing in range(before + 1, after):
                problems.add(damaged(directory / str(missing)), missing)
    if not batches:
        _read_without_offsets(links, problems)
        return links
    metadata = ""
    with problems.collected():
        metadata = log.check_metadata()
    for batch in batches:
        with problems.collected(batch):
            links.offsets[batch] = log.read_offset(batch)
    links.last_batch = batches[-1]
    links.is_committed = _check_commits(links, commits, batches, problems) == links.last_batch
    _check_links(links, problems)
    with problems.collected(links.last_batch):
        _check_settings(log, batches)
    if links.last_batch in links.offsets:
        with problems.collected(links.last_batch):
            _check_newest_record(links, metadata)
    for reference in records.listed():  # the checkpoint is older than its delivered results
        if reference.batch > links.last_batch:
            problems.add(damaged(log.offsets / str(reference.batch)), reference.batch)
    return links


def must_repeat(path: Path) -> bool:
    """Whether a run begins with batches that were planned before it: one that was interrupted, or some that a repair
    has discarded."""
    links = read_links(path, Problems())
    return not links.is_committed or replayed_until(path) > links.last_batch


def make_ready(chain: CheckpointChain) -> None:
    """Clear away what crashes and power cuts have left in Spark's logs, now that everything else is known to be whole.

    An empty commit of the last batch is removed: that batch runs again. One of an earlier batch is written again, since
    a later offset proves that the batch was over. An empty offset is removed: offsets are synced before anything of
    their batch can be seen. Without any offset Spark expects its directory to be empty.
    """
    log = SparkLog(chain.path)
    last_batch = -1 if chain.last_offset is None else chain.last_offset.batch
    for path in chain.unsynced:
        if path.parent == log.commits and int(path.name) < last_batch:
            durable.write_file(path, log.COMMIT)
        else:
            remove_entry(path)
    if chain.last_offset is None and chain.record is None:
        shutil.rmtree(log.metadata.parent, ignore_errors=True)
    log.remove_temporary_files()


def _entries(log: SparkLog, records: BatchRecords) -> tuple[list[int], list[int], tuple[Path, ...]]:
    """The batches in the offset log and in the commit log, without those that a power cut has left empty; and these."""
    offsets, commits, unsynced = log.offset_batches(), log.commit_batches(), list[Path]()
    if commits and is_empty(log.commits / str(commits[-1])):
        unsynced.append(log.commits / str(commits.pop()))
    if offsets and is_empty(log.offsets / str(offsets[-1])):
        last = offsets[-1]
        is_recorded = any(reference.batch == last for reference in records.listed())
        if not is_recorded and (not commits or commits[-1] < last):
            unsynced.append(log.offsets / str(offsets.pop()))
    return offsets, commits, tuple(unsynced)


def _read_without_offsets(links: ChainLinks, problems: Problems) -> None:
    """A checkpoint whose first batch was not planned yet, or one of the local engine, which has no Spark log."""
    log, records = links.log, links.records
    if commits := log.commit_batches():
        problems.add(damaged(log.offsets / str(commits[-1])), commits[-1])
    if listed := records.listed():
        with problems.collected(listed[-1].batch):
            links.newest = records.require(listed[-1].batch)
            if links.newest[0].offset:
                raise damaged(log.offsets / str(listed[-1].batch))


def _check_settings(log: SparkLog, batches: list[int]) -> None:
    """Spark carries its settings from offset to offset; no digest covers those of the newest, so they are compared with
    those before, which are known to be whole by now."""
    if len(batches) > 1 and log.read_settings(batches[-1]) != log.read_settings(batches[-2]):
        raise damaged(log.offsets / str(batches[-1]))


def _check_commits(links: ChainLinks, commits: list[int], batches: list[int], problems: Problems) -> int:
    """The last batch that is over; it is the last that was planned, or the one before."""
    log, last = links.log, batches[-1]
    for batch in commits:
        with problems.collected(batch):
            log.check_commit(batch)
    committed = commits[-1] if commits else -1
    if committed > last:
        problems.add(damaged(log.offsets / str(committed)), committed)
    if committed < last - 1 and log.commits / str(last - 1) not in links.unsynced:
        problems.add(damaged(log.commits / str(last - 1)), last - 1)
    if committed < last and last > 0 and last - 1 not in batches:
        problems.add(damaged(log.offsets / str(last - 1)), last - 1)  # a batch that runs again begins there
    return committed


def _check_links(links: ChainLinks, problems: Problems) -> None:
    """Every offset names the record of the batch before, and every record the offset of its batch."""
    oldest = max(min(links.offsets, default=0), links.last_batch - RECORDS_KEPT)  # older ones may have been removed
    for batch, (offset, _) in links.offsets.items():
        if offset.after.batch != batch - 1:
            problems.add(damaged(links.log.offsets / str(batch)), batch)
        elif batch > oldest:
            with problems.collected(batch - 1):
                record = links.records.read(offset.after)
                if batch - 1 in links.offsets and record.offset != links.offsets[batch - 1][1]:
                    raise damaged(links.log.offsets / str(batch - 1))


def _check_newest_record(links: ChainLinks, metadata: str) -> None:
    """Read the record of the last batch, or of the one before, if the last has none yet."""
    offset, checksum = links.offsets[links.last_batch]
    newest = links.records.newest(links.last_batch)
    if newest is not None:
        check_newest(newest, offset, checksum, links)
    elif links.is_committed:
        raise links.records.missing(links.last_batch)
    elif offset.after.batch >= 0:
        newest = links.records.read(offset.after), offset.after
    links.newest = newest
    if newest is not None and newest[0].metadata != metadata:
        raise damaged(links.log.metadata)


def check_newest(
    recorded: tuple[BatchRecord, RecordReference], offset: PipelineOffset, checksum: str, links: ChainLinks
) -> None:
    """Compare the newest record of a batch with its offset."""
    record, reference = recorded
    if record.before != offset.after:
        raise damaged(links.records.path(reference))
    if record.offset != checksum:
        raise damaged(links.log.offsets / str(offset.batch))


def verify_state(path: Path, record: BatchRecord) -> int:
    """Compare the state after a batch, every segment of it, with its record; returns how many bytes it has."""

    def check(shard: str) -> int:
        return verify_version(chains.state_directory(path, shard), *record.state[shard])

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="strandline-verify") as pool:
        return sum(pool.map(check, record.state))


# Sources


def verify_sources(version: GraphVersion, chain: CheckpointChain) -> None:
    """Compare the logs of the sources with the last offset. Nothing is changed."""
    last = chain.last_offset
    for _, source, position in _sources(version, chain.path, last):
        try:
            source.verify(position.at, position.seal)
        except CheckpointError as error:
            if last is not None and (
                chain.record is None or chain.record.batch < last.batch
            ):  # no digest covers it yet
                offset = SparkLog(chain.path).offsets / str(last.batch)
                error.detail = error.detail or f"Its position is in {offset}, which may be the damaged file instead."
            raise


def resume_sources(version: GraphVersion, path: Path, last: PipelineOffset | None) -> dict[str, Source]:
    """The sources, positioned after the last offset: input that no batch has read is dropped from their logs."""
    found = list(_sources(version, path, last))
    furthest: dict[str, tuple[Source, SourceOffset]] = {}  # by the stream of the log, which several may read
    for _, source, position in found:
        source.verify(position.at, position.seal)
        _, other = furthest.get(source.stream.name, (source, position))
        if position.at >= other.at:
            furthest[source.stream.name] = source, position
    for source, position in furthest.values():
        source.resume(position.at)
    return {name: furthest[source.stream.name][0] for name, source, _ in found}


def _sources(
    version: GraphVersion, path: Path, last: PipelineOffset | None
) -> Iterator[tuple[str, Source, SourceOffset]]:
    """The sources of streams, by their names, and where they go on."""
    # Batches that are to be repeated after a repair need the logs as far as they reached.
    reached = last_replayed(path) or last
    for stream in version.pipeline.streams:
        positions = {} if reached is None else version.positions_of(reached.positions, reached.version.number)
        position = positions.get(stream.name, SourceOffset())
        yield stream.name, open_source(with_log(stream), chains.source_directory(path, log_of(stream))), position


# Delivered files


FORGOTTEN: Final = "forgotten.json"
_FORGOTTEN_KIND: Final = durable.DocumentKind("forgotten", 1)


def read_forgotten(checkpoint: Path) -> set[tuple[str, str, str]]:
    """Delivered files that a repair has given up: kind, owner and name."""
    path = checkpoint / FORGOTTEN
    return {tuple(file) for file in durable.read_document(path, _FORGOTTEN_KIND)} if path.exists() else set()


def write_forgotten(checkpoint: Path, files: Sequence[DeliveredFile]) -> None:
    """Record more files as given up."""
    names = read_forgotten(checkpoint) | {(file.kind, file.owner, file.name) for file in files}
    durable.write_document(checkpoint / FORGOTTEN, _FORGOTTEN_KIND, sorted(names))
    durable.sync_directory(checkpoint)


def verify_delivered(chain: CheckpointChain, outputs: OutputDirectories) -> list[DeliveredFile]:
    """Compare every delivered file with its record, and position the log of them after the last batch; returns all
    entries of it."""
    if chain.record is None:
        return []
    lines = read_delivered(chain.path, chain.record)
    count_before = chain.delivered_before(chain.before(chain.record.batch))
    if 0 < count_before <= len(lines):
        chain.delivered.resume(count_before, lines[count_before - 1])
    for _, error in find_lost_files(chain.path, lines, outputs):
        raise error
    chain.delivered.verify(*chain.record.delivered)
    chain.delivered.drop(len(lines))  # further files belong to a batch that is replayed
    return [DeliveredFile(*line.entry) for line in lines]


def read_delivered(checkpoint: Path, record: BatchRecord) -> list[durable.LogLine]:
    """The lines of the files that were delivered up to a record."""
    count, expected = record.delivered
    path = checkpoint / chains.DELIVERED_LOG
    lines = list(islice(durable.scan_chain(path), count))
    if len(lines) != count or (lines[-1].digest if lines else durable.START) != expected:
        raise damaged(path)
    return lines


def find_lost_files(
    checkpoint: Path, lines: Sequence[durable.LogLine], outputs: OutputDirectories, full_bytes: int = FULL_CHECK_BYTES
) -> Iterator[tuple[DeliveredFile, SinkError]]:
    """The files that are not there as they were delivered: by size, and by content for the newest ones.

    The newest file of an owner may have the rows of further batches, which run again.
    """
    passed, newest = read_forgotten(checkpoint), set[tuple[str, str]]()
    to_checksum: list[tuple[DeliveredFile, Path]] = []
    for line in reversed(lines):
        file = DeliveredFile(*line.entry)
        path, key = outputs.path(file), (file.kind, file.owner, file.name)
        is_newest = key[:2] not in newest
        newest.add(key[:2])
        if path is None or key in passed:
            continue
        passed.add(key)  # what the file was after earlier batches does not matter
        try:
            size = path.stat().st_size
        except OSError:
            if file.kind != "result" or file.owner not in outputs.consumed:
                what = "results of" if file.kind == "result" else f"{file.kind} rows of stream"
                yield file, _lost(f"{path} is missing, with delivered {what} {file.owner}", "results-missing")
            continue
        if size != file.size:
            if not (is_newest and size > file.size and version_of(file, path) is not None):
                yield file, _altered(path)
            continue
        full_bytes -= size
        if full_bytes > 0:
            to_checksum.append((file, path))

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="strandline-verify") as pool:
        checksums = pool.map(durable.checksum_file, [path for _, path in to_checksum])
        for (file, path), checksum in zip(to_checksum, checksums, strict=True):
            if checksum != file.checksum:
                yield file, _altered(path)


def _altered(path: Path) -> SinkError:
    return _lost(f"{path} was truncated or altered after delivery", "results-damaged")


def _lost(message: str, code: str) -> SinkError:
    return SinkError(
        message,
        code=code,
        hint="Restore the file, or run `strandline repair --checkpoint` with the directory of the checkpoint. "
        "Nothing was changed.",
    )
