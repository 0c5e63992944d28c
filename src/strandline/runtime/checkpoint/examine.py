"""Examination of a checkpoint: its problems, and the last intact batch: `strandline doctor --checkpoint`.

Needs nothing but the files: the directories of results are in `outputs.json`, relative to the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sources.journal import Journal
from strandline.connectors.sources.kafka_offsets import OffsetLog
from strandline.connectors.sources.received_log import ReceivedLog
from strandline.core.durable import (
    ChainedLog,
    DocumentKind,
    read_document,
    scan_chain,
    write_document,
)
from strandline.core.errors import CheckpointError, StrandlineError, damaged
from strandline.runtime.checkpoint import identity
from strandline.runtime.checkpoint.chain import DELIVERED_LOG, DeliveredFile, source_directory
from strandline.runtime.checkpoint.records import BatchRecord, BatchRecords
from strandline.runtime.checkpoint.spark_log import SparkLog
from strandline.runtime.checkpoint.verify import (
    OutputDirectories,
    check_newest,
    damaged_files,
    read_forgotten,
    verify_state,
)
from strandline.runtime.offsets import PipelineOffset

OUTPUTS: Final = "outputs.json"
KIND: Final = DocumentKind("outputs", 1)
_WITHOUT_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and its batch, if it belongs to one."""

    error: StrandlineError
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """Result of examining a checkpoint."""

    path: Path
    queries: list[str]
    last_batch: int  # the last one that was planned; -1 if none was
    problems: list[Problem]
    whole_until: int | None  # the newest batch to resume from; None if there is none
    bytes_of_state: int


def write_outputs(checkpoint: Path, outputs: OutputDirectories, sinks: Mapping[str, str]) -> None:
    """Record in a checkpoint the locations of its results and the kinds of its sinks, for a later examination."""
    results = {query: os.path.relpath(directory, checkpoint) for query, directory in outputs.results.items()}
    side = None if outputs.side_outputs is None else os.path.relpath(outputs.side_outputs, checkpoint)
    body = {"results": results, "side_outputs": side, "consumed": sorted(outputs.consumed), "sinks": dict(sinks)}
    write_document(checkpoint / OUTPUTS, KIND, body)


def read_outputs(checkpoint: Path) -> tuple[OutputDirectories, dict[str, str]]:
    """Locations of the results of a checkpoint, and the kinds of its sinks."""
    path = checkpoint / OUTPUTS
    if not path.exists():
        return OutputDirectories({}, None), {}
    body = read_document(path, KIND)
    results = {query: _resolve(checkpoint, where) for query, where in body["results"].items()}
    side = None if body["side_outputs"] is None else _resolve(checkpoint, body["side_outputs"])
    return OutputDirectories(results, side, frozenset(body["consumed"])), body["sinks"]


def _resolve(checkpoint: Path, where: str) -> Path:
    return Path(os.path.normpath(checkpoint.absolute() / where))


def find_checkpoints(directory: Path) -> list[Path]:
    """A checkpoint, or those below a directory: the --checkpoint or the --out of a run."""
    if (directory / identity.IDENTITY).exists():
        return [directory]
    checkpoints = sorted(path.parent for path in directory.rglob(identity.IDENTITY))
    if not checkpoints:
        raise CheckpointError(
            f"no checkpoint in {directory}",
            code="no-checkpoint",
            hint="Name the --checkpoint or the --out of a run.",
        )
    return checkpoints


def examine(path: Path) -> Examination:
    """Check every file of a checkpoint."""
    problems: list[Problem] = []
    queries: list[str] = []
    with _Collecting(problems):
        queries = list(identity.read_identity(path)["queries"])
    log, records = SparkLog(path), BatchRecords(path)
    offsets = _offsets(log, problems)
    _examine_commits(log, offsets, problems)
    recorded = _examine_records(log, records, offsets, problems)
    size = _examine_state(path, recorded, problems)
    if offsets:
        _examine_sources(path, offsets[max(offsets)][0], problems)
    _examine_delivered(path, recorded, problems)
    last = max(log.offset_batches(), default=-1)
    return Examination(path, queries, last, problems, next(whole_batches(path), None), size)


class _Collecting:
    """Keeps what a check raises."""

    def __init__(self, problems: list[Problem], batch: int | None = None) -> None:
        self.problems, self.batch = problems, batch

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, StrandlineError):
            self.problems.append(Problem(error, self.batch))
            return True
        return False


Offsets = dict[int, tuple[PipelineOffset, str]]


def _offsets(log: SparkLog, problems: list[Problem]) -> Offsets:
    offsets: Offsets = {}
    batches = log.offset_batches()
    if batches:
        with _Collecting(problems):
            log.check_metadata()
    for batch in batches:
        with _Collecting(problems, batch):
            offsets[batch] = log.read_offset(batch)
    _examine_gaps(batches, log.offsets, problems)
    return offsets


def _examine_gaps(batches: list[int], directory: Path, problems: list[Problem]) -> None:
    for before, after in pairwise(batches):
        problems += [Problem(damaged(directory / str(batch)), batch) for batch in range(before + 1, after)]


def _examine_commits(log: SparkLog, offsets: Offsets, problems: list[Problem]) -> None:
    commits = log.commit_batches()
    for batch in commits:
        with _Collecting(problems, batch):
            log.check_commit(batch)
    _examine_gaps(commits, log.commits, problems)
    last = max(offsets, default=-1)
    committed = commits[-1] if commits else -1
    if committed < last - 1:
        problems.append(Problem(damaged(log.commits / str(last - 1)), last - 1))
    if committed > last:
        problems.append(Problem(damaged(log.offsets / str(committed)), committed))


def _examine_records(
    log: SparkLog, records: BatchRecords, offsets: Offsets, problems: list[Problem]
) -> dict[int, BatchRecord]:
    recorded: dict[int, BatchRecord] = {}
    for batch in sorted({reference.batch for reference in records.listed()}):
        with _Collecting(problems, batch):
            newest = records.newest(batch)
            assert newest is not None
            recorded[batch] = newest[0]
            if batch in offsets:
                check_newest(newest, *offsets[batch], records)
    for batch, (offset, _) in offsets.items():
        if batch > min(offsets) and batch - 1 in recorded:
            with _Collecting(problems, batch):
                records.read(offset.after)
    for batch in log.commit_batches():
        if batch >= min(recorded, default=0) and batch not in recorded and batch in offsets:
            problems.append(Problem(damaged(records.directory / f"{batch:09d}-*.json"), batch))
    return recorded


def _examine_state(path: Path, recorded: Mapping[int, BatchRecord], problems: list[Problem]) -> int:
    """The state of the newest two batches: a run resumes from one of them."""
    size = 0
    for batch in sorted(recorded)[-2:]:
        with _Collecting(problems, batch):
            size = verify_state(path, recorded[batch])
    return size


def _examine_sources(path: Path, offset: PipelineOffset, problems: list[Problem]) -> None:
    for check in _source_checks(path, offset):
        with _Collecting(problems):
            check()


def check_sources(path: Path, offset: PipelineOffset) -> None:
    """Check that the logs of the sources up to an offset are intact."""
    for check in _source_checks(path, offset):
        check()


def _source_checks(path: Path, offset: PipelineOffset) -> Iterator[Callable[[], None]]:
    for name, position in offset.positions.items():
        yield from _log_checks(source_directory(path, name), position.at, position.seal)


def _log_checks(directory: Path, position: int, seal: str) -> Iterator[Callable[[], None]]:
    """Checks of the log of a source that need only its files, not its declaration."""
    if seal and not (directory / "offsets.json").exists():
        yield lambda: ChainedLog(directory / "units.log").verify(position, seal)
    if seal and (directory / "offsets.json").exists():
        yield lambda: OffsetLog(directory).verify(position, seal)
    if (directory / "received").is_dir():
        yield lambda: ReceivedLog(directory / "received").check(position)
    if (directory / "rows").is_dir():
        yield lambda: Journal(directory / "rows", forgetful=True).verify(position)


def _examine_delivered(path: Path, recorded: Mapping[int, BatchRecord], problems: list[Problem]) -> None:
    if not recorded:
        return
    with _Collecting(problems):
        outputs, _ = read_outputs(path)
        for file, error in list_damaged_files(path, recorded[max(recorded)], outputs):
            problems.append(Problem(error, batch_of(file)))


def list_damaged_files(
    path: Path, record: BatchRecord, outputs: OutputDirectories
) -> Iterator[tuple[DeliveredFile, StrandlineError]]:
    """The files delivered up to a record that are missing or altered, whatever their size."""
    count, expected = record.delivered
    lines = list(islice(scan_chain(path / DELIVERED_LOG), count))
    if len(lines) != count or (lines and lines[-1].digest != expected):
        raise damaged(path / DELIVERED_LOG)
    forgotten = read_forgotten(path)
    files = [DeliveredFile.from_json(line.entry) for line in lines]
    missed = [file for file in files if (file.kind, file.owner, file.name) not in forgotten]
    listed = [(file, where) for file in missed if (where := outputs.path(file)) is not None]
    yield from damaged_files(listed, outputs.consumed, _WITHOUT_LIMIT)


def batch_of(file: DeliveredFile) -> int:
    """The batch that has delivered a file, which is in its name."""
    return int(file.name.removesuffix(".parquet").rpartition("-")[2])


def whole_batches(path: Path) -> Iterator[int]:
    """Batches to resume from, newest first: their offset, record, state, source logs and delivered files are intact."""
    log, records = SparkLog(path), BatchRecords(path)
    try:
        outputs, _ = read_outputs(path)
    except CheckpointError:
        outputs = OutputDirectories({}, None)
    for batch in reversed(log.offset_batches()):
        problems: list[Problem] = []
        with _Collecting(problems):
            offset, checksum = log.read_offset(batch)
            newest = records.newest(batch)
            if newest is None:
                raise damaged(records.directory / f"{batch:09d}-*.json")
            check_newest(newest, offset, checksum, records)
            verify_state(path, newest[0])
            _examine_sources(path, offset, problems)
            problems += [Problem(error) for _, error in list_damaged_files(path, newest[0], outputs)]
        if not problems:
            yield batch


def render(examination: Examination) -> str:
    lines = [f"{examination.path}", f"  queries     {', '.join(examination.queries) or 'unknown'}"]
    planned = f"batch {examination.last_batch}" if examination.last_batch >= 0 else "no batch"
    lines.append(f"  planned     up to {planned}, {examination.bytes_of_state:,} bytes of state")
    if not examination.problems:
        return "\n".join([*lines, "  intact      every file matches its checksum"])
    for problem in examination.problems:
        where = f" (batch {problem.batch})" if problem.batch is not None else ""
        lines.append(f"  {problem.error.code}: {problem.error.message}{where}")
    if examination.whole_until is None:
        lines.append("  damaged     no intact batch to resume from: restore a backup, or start over")
    elif examination.whole_until == examination.last_batch:
        lines.append("  intact      up to the last batch")
    else:
        lines.append(f"  intact      up to batch {examination.whole_until}: `strandline repair` rolls back to it")
    return "\n".join(lines)


def to_json(examination: Examination) -> dict[str, Any]:
    problems = [{"batch": problem.batch, **problem.error.to_json()} for problem in examination.problems]
    return {
        "checkpoint": str(examination.path),
        "queries": examination.queries,
        "last_batch": examination.last_batch,
        "whole_until": examination.whole_until,
        "problems": problems,
    }
