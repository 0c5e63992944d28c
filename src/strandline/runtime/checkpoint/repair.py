"""Back to the last intact batch: `strandline repair --checkpoint`.

Nothing is destroyed: what is discarded is moved to `discarded-<number>/` in the checkpoint. Offsets of discarded
batches that are intact are kept for the next run, which plans the same batches again (`replay.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from strandline.core.durable import ChainedLog, sync_directory, write_file
from strandline.core.errors import CheckpointError, StrandlineError
from strandline.core.lease import Lease
from strandline.runtime.checkpoint import verify
from strandline.runtime.checkpoint.chain import DELIVERED_LOG, DeliveredFile
from strandline.runtime.checkpoint.examine import WITHOUT_LIMIT, check_sources, intact_batches, read_outputs
from strandline.runtime.checkpoint.identity import read_identity
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.checkpoint.replay import keep_for_replay
from strandline.runtime.checkpoint.spark_log import SparkLog
from strandline.runtime.checkpoint.verify import Problems
from strandline.runtime.offsets import PipelineOffset
from strandline.runtime.outputs import OutputDirectories, batch_of, restore_version, side_output, version_of

DISCARDED: Final = "discarded"


@dataclass(slots=True)
class Repair:
    """Outcome of a repair: the batch that it rolled back to, and the files that it moved away."""

    path: Path
    batch: int
    discarded_batches: list[int] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    replanned: list[int] = field(default_factory=list)  # discarded batches that will not be planned as they were
    forgotten: list[str] = field(default_factory=list)  # missing results that are given up
    directory: Path | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self.discarded_batches or self.moved or self.forgotten)


def repair(path: Path, *, forget_results: bool = False) -> Repair:
    """Roll back to the newest batch that a run can resume from. With `forget_results`, missing or altered results are
    accepted: their rows are lost, everything else continues."""
    read_identity(path)
    lease = Lease.acquire(path)
    try:
        outputs, sinks = read_outputs(path)
        if _is_intact(path, lease, outputs):
            return Repair(path, max(SparkLog(path).offset_batches(), default=-1))
        if forget_results:
            return _forget_results(path, lease, outputs)
        target = next(intact_batches(path), None)
        if target is None:
            raise CheckpointError(
                f"no intact batch to resume from in {path}",
                code="repair-impossible",
                hint="Restore a backup, or start over with a new checkpoint. If only results are gone or altered, "
                "--forget-results continues without them. Nothing was changed.",
            )
        return _go_back(path, target, outputs, sinks)
    finally:
        lease.release()


def _is_intact(path: Path, lease: Lease, outputs: OutputDirectories) -> bool:
    try:
        verify.verify_delivered(verify.verify_chain(path, lease), outputs)
    except StrandlineError:
        return False
    return True


def _go_back(path: Path, target: int, outputs: OutputDirectories, sinks: dict[str, str]) -> Repair:
    log, records = SparkLog(path), BatchRecords(path)
    outcome = Repair(path, target, directory=_new_directory(path))
    later = [batch for batch in log.offset_batches() if batch > target]
    intact = _intact_offsets(path, log, target)
    outcome.discarded_batches = later
    outcome.replanned = [batch for batch in later if batch not in intact]
    _refuse_changed_batches(path, outcome, sinks)
    record, _ = records.require(target)
    # First the files that decide where a run resumes: a crash in between leaves a checkpoint that can be repaired.
    for before, after in zip([target, *later], later, strict=False):
        if after in intact:
            keep_for_replay(path, intact[before] if before in intact else log.read_offset(before)[0], intact[after])
    for batch in reversed(log.commit_batches()):
        if batch > target:
            _move(log.commits / str(batch), outcome)
    for batch in reversed(later):
        _move(log.offsets / str(batch), outcome)
    for reference in reversed(records.listed()):
        if reference.batch > target:
            _move(records.path(reference), outcome)
    _restore_commit(log, target, outcome)
    delivered = ChainedLog(path / DELIVERED_LOG)
    delivered.verify(*record.delivered)
    delivered.cut(record.delivered[0])
    for directory in _output_directories(outputs, log.read_offset(target)[0]):
        for name in sorted(os.listdir(directory)) if directory.is_dir() else ():
            if name.startswith("part-") and name.endswith(".parquet") and batch_of(name) > target:
                _move(directory / name, outcome)
    _shorten_files([DeliveredFile(*line.entry) for line in delivered.lines], outputs, outcome)
    sync_directory(path)
    return outcome


def _shorten_files(files: Sequence[DeliveredFile], outputs: OutputDirectories, outcome: Repair) -> None:
    """Take the rows of discarded batches out of the files that they share with earlier ones."""
    assert outcome.directory is not None
    newest = {(file.kind, file.owner): file for file in files}
    for file in newest.values():
        path = outputs.path(file)
        if path is None or not path.exists() or path.stat().st_size == file.size:
            continue
        if (version := version_of(file, path)) is not None:
            shutil.copyfile(path, _target(path, outcome))
            restore_version(path, version)
            outcome.moved.append(str(path))


def _intact_offsets(path: Path, log: SparkLog, target: int) -> dict[int, PipelineOffset]:
    """The offsets from a batch on, as long as each of them, and the logs of the sources for it, are intact."""
    intact: dict[int, PipelineOffset] = {}
    problems = Problems()
    for batch in log.offset_batches():
        if batch >= target:
            with problems.collected():
                offset, _ = log.read_offset(batch)
                check_sources(path, offset, problems)
            if problems:
                break
            intact[batch] = offset
    return intact


def _refuse_changed_batches(path: Path, outcome: Repair, sinks: dict[str, str]) -> None:
    """Sinks that pass over a batch by its number must get the same batch again."""
    others = sorted(query for query, kind in sinks.items() if kind != "parquet")
    if outcome.replanned and others:
        raise CheckpointError(
            f"batch {outcome.replanned[0]} of {path} cannot be replayed as it was",
            code="repair-impossible",
            detail=f"Its offset is damaged, and the sinks of {', '.join(others)} may have it already.",
            hint="Restore a backup of the checkpoint, or start over with a new one and empty sinks. "
            "Nothing was changed.",
        )


def _restore_commit(log: SparkLog, target: int, outcome: Repair) -> None:
    """A batch without its commit is replayed, which is as good; a damaged commit is removed."""
    path = log.commits / str(target)
    with contextlib.suppress(CheckpointError):
        log.check_commit(target)
        return
    if path.exists():
        _move(path, outcome)
    if target > 0 and target - 1 not in log.commit_batches():
        # Spark reads the commit of the preceding batch; its content is always the same.
        log.commits.mkdir(parents=True, exist_ok=True)
        write_file(log.commits / str(target - 1), log.COMMIT)


def _output_directories(outputs: OutputDirectories, offset: PipelineOffset) -> list[Path]:
    side = outputs.side_outputs
    results = list(outputs.results.values())
    if side is None:
        return results
    return results + [side_output(side, kind, name) for kind in ("late", "rejected") for name in offset.positions]


def _new_directory(path: Path) -> Path:
    number = 1 + sum(1 for name in os.listdir(path) if name.startswith(f"{DISCARDED}-"))
    directory = path / f"{DISCARDED}-{number}"
    directory.mkdir()
    return directory


def _move(path: Path, outcome: Repair) -> None:
    shutil.move(path, _target(path, outcome))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path.with_name(f".{path.name}.crc"))
    outcome.moved.append(str(path))


def _target(path: Path, outcome: Repair) -> Path:
    assert outcome.directory is not None
    return outcome.directory / f"{len(outcome.moved):05d}-{path.parent.name}-{path.name}"


def _forget_results(path: Path, lease: Lease, outputs: OutputDirectories) -> Repair:
    """Record which delivered files are missing or altered, so that later checks skip them."""
    chain = verify.verify_chain(path, lease)
    outcome = Repair(path, chain.head.batch)
    if chain.record is not None:
        lines = verify.read_delivered(path, chain.record)
        lost = [file for file, _ in verify.find_lost_files(path, lines, outputs, WITHOUT_LIMIT)]
        verify.write_forgotten(path, lost)
        outcome.forgotten = [str(outputs.path(file)) for file in lost]
    return outcome


def render(outcome: Repair) -> str:
    if not outcome.is_needed:
        return f"{outcome.path}\n  intact      nothing to repair"
    lines = [f"{outcome.path}"]
    if outcome.forgotten:
        lines += ["  forgotten   missing or altered results; their rows are lost"]
        lines += [f"              {name}" for name in outcome.forgotten]
        return "\n".join(lines)
    lines.append(f"  resumes     after batch {outcome.batch}")
    lines.append(
        f"  discarded   {len(outcome.discarded_batches)} batches, {len(outcome.moved)} files, "
        f"now in {outcome.directory}"
    )
    lines += [f"              {name}" for name in outcome.moved]
    if outcome.discarded_batches:
        same = [batch for batch in outcome.discarded_batches if batch not in outcome.replanned]
        lines.append(f"  replays     {len(same)} batches as they were, {len(outcome.replanned)} replanned")
    return "\n".join(lines)
