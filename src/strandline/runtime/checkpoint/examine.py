"""Examination of a checkpoint: its problems, and the last intact batch: `strandline doctor --checkpoint`.

Needs nothing but the files: the directories of results are in `outputs.json`, relative to the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sources.journal import Journal
from strandline.connectors.sources.kafka_offsets import OffsetLog
from strandline.connectors.sources.received_log import ReceivedLog
from strandline.core.durable import ChainedLog, DocumentKind, read_document, write_document
from strandline.core.errors import CheckpointError, damaged
from strandline.runtime.checkpoint import identity, verify
from strandline.runtime.checkpoint.chain import source_directory
from strandline.runtime.checkpoint.records import BatchRecord, BatchRecords
from strandline.runtime.checkpoint.spark_log import SparkLog
from strandline.runtime.checkpoint.verify import ChainLinks, Problem, Problems
from strandline.runtime.checkpoint.versions import GraphVersions, VersionReference
from strandline.runtime.offsets import PipelineOffset
from strandline.runtime.outputs import OutputDirectories, batch_of

OUTPUTS: Final = "outputs.json"
KIND: Final = DocumentKind("outputs", 1)
WITHOUT_LIMIT: Final = 2**62  # bytes of delivered files whose content is read


@dataclass(frozen=True, slots=True)
class Examination:
    """Result of examining a checkpoint."""

    path: Path
    queries: list[str]
    last_batch: int  # the last one that was planned; -1 if none was
    problems: list[Problem]
    last_intact_batch: int | None  # the newest batch to resume from; None if there is none
    state_bytes: int


def write_outputs(checkpoint: Path, outputs: OutputDirectories, sinks: Mapping[str, str]) -> None:
    """Record in a checkpoint the locations of its results and the kinds of its sinks, for a later examination."""
    results = {query: os.path.relpath(directory, checkpoint) for query, directory in outputs.results.items()}
    side = None if outputs.side_outputs is None else os.path.relpath(outputs.side_outputs, checkpoint)
    body = {
        "results": results,
        "side_outputs": side,
        "consumed": sorted(outputs.consumed),
        "first_batches": dict(outputs.first_batches),
        "sinks": dict(sinks),
    }
    write_document(checkpoint / OUTPUTS, KIND, body)


def read_outputs(checkpoint: Path) -> tuple[OutputDirectories, dict[str, str]]:
    """Locations of the results of a checkpoint, and the kinds of its sinks."""
    path = checkpoint / OUTPUTS
    if not path.exists():
        return OutputDirectories({}, None), {}
    body = read_document(path, KIND)
    results = {query: _resolve(checkpoint, location) for query, location in body["results"].items()}
    side = None if body["side_outputs"] is None else _resolve(checkpoint, body["side_outputs"])
    first_batches = {str(query): int(batch) for query, batch in body.get("first_batches", {}).items()}
    return OutputDirectories(results, side, frozenset(body["consumed"]), first_batches), body["sinks"]


def _resolve(checkpoint: Path, location: str) -> Path:
    return Path(os.path.normpath(checkpoint.absolute() / location))


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
    problems = Problems()
    queries: list[str] = []
    with problems.collected():
        queries = list(identity.read_identity(path)["queries"])
        if (stored := identity.read_stored_graph(path)) is not None:
            queries = [query.name for query in stored.queries]
    links = verify.read_links(path, problems)
    for entry in links.unsynced:
        problems.add(damaged(entry), int(entry.name))
    recorded = _read_records(links, problems)
    with problems.collected():
        named = links.offsets[max(links.offsets)][0].version if links.offsets else VersionReference()
        GraphVersions(path).newest(named)
    size = 0
    for batch in sorted(recorded)[-2:]:  # a run resumes from one of them
        with problems.collected(batch):
            size = verify.verify_state(path, recorded[batch])
    if links.offsets:
        check_sources(path, links.offsets[max(links.offsets)][0], problems)
    if recorded:
        with problems.collected():
            _check_delivered(path, recorded[max(recorded)], read_outputs(path)[0], problems)
    last = max(links.log.offset_batches(), default=-1)
    return Examination(path, queries, last, problems, next(intact_batches(path), None), size)


def _read_records(links: ChainLinks, problems: Problems) -> dict[int, BatchRecord]:
    """All records, also those that no offset names any more."""
    recorded: dict[int, BatchRecord] = {}
    for batch in sorted({reference.batch for reference in links.records.listed()}):
        with problems.collected(batch):
            newest = links.records.require(batch)
            recorded[batch] = newest[0]
            if batch in links.offsets:
                verify.check_newest(newest, *links.offsets[batch], links)
    return recorded


def check_sources(path: Path, offset: PipelineOffset, problems: Problems) -> None:
    """Check that the logs of the sources up to an offset are intact; needs only files, not the declarations."""
    for name, position in offset.positions.items():
        directory = source_directory(path, position.log or name)
        with problems.collected():
            if position.seal and position.base < 0:  # else of a table, whose log lies elsewhere
                of_topic = (directory / "offsets.json").exists()
                log = OffsetLog(directory) if of_topic else ChainedLog(directory / "units.log")
                log.verify(position.at, position.seal)
        with problems.collected():
            if (directory / "received").is_dir():
                ReceivedLog(directory / "received").check(position.at)
        with problems.collected():
            if (directory / "rows").is_dir():
                Journal(directory / "rows", may_be_truncated=True).verify(position.at)


def _check_delivered(path: Path, record: BatchRecord, outputs: OutputDirectories, problems: Problems) -> None:
    """Check the files delivered up to a record, whatever their size."""
    lines = verify.read_delivered(path, record)
    for file, error in verify.find_lost_files(path, lines, outputs, WITHOUT_LIMIT):
        problems.add(error, batch_of(file.name))


def intact_batches(path: Path) -> Iterator[int]:
    """Batches to resume from, newest first: their offset, record, state, source logs and delivered files are intact."""
    links = ChainLinks(SparkLog(path), BatchRecords(path))
    try:
        outputs, _ = read_outputs(path)
    except CheckpointError:
        outputs = OutputDirectories({}, None)
    for batch in reversed(links.log.offset_batches()):
        problems = Problems()
        with problems.collected():
            offset, checksum = links.log.read_offset(batch)
            newest = links.records.require(batch)
            verify.check_newest(newest, offset, checksum, links)
            verify.verify_state(path, newest[0])
            check_sources(path, offset, problems)
            _check_delivered(path, newest[0], outputs, problems)
        if not problems:
            yield batch


def render(examination: Examination) -> str:
    lines = [f"{examination.path}", f"  queries     {', '.join(examination.queries) or 'unknown'}"]
    planned = f"batch {examination.last_batch}" if examination.last_batch >= 0 else "no batch"
    lines.append(f"  planned     up to {planned}, {examination.state_bytes:,} bytes of state")
    if not examination.problems:
        return "\n".join([*lines, "  intact      every file matches its checksum"])
    for problem in examination.problems:
        where = f" (batch {problem.batch})" if problem.batch is not None else ""
        lines.append(f"  {problem.error.code}: {problem.error.message}{where}")
    if examination.last_intact_batch is None:
        lines.append("  damaged     no intact batch to resume from: restore a backup, or start over")
    elif examination.last_intact_batch == examination.last_batch:
        lines.append("  intact      up to the last batch")
    else:
        lines.append(f"  intact      up to batch {examination.last_intact_batch}: `strandline repair` rolls back to it")
    return "\n".join(lines)


def to_json(examination: Examination) -> dict[str, Any]:
    problems = [{"batch": problem.batch, **problem.error.to_json()} for problem in examination.problems]
    return {
        "checkpoint": str(examination.path),
        "queries": examination.queries,
        "last_batch": examination.last_batch,
        "whole_until": examination.last_intact_batch,
        "problems": problems,
    }
