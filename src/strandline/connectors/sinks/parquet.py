"""Parquet sink: files written by the tasks."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar, Final, Self

from strandline.connectors.sinks.base import KeptResults, ResumePoint, Sink, SinkArguments, SinkWriter
from strandline.connectors.sinks.parquet_parts import ParquetTarget
from strandline.connectors.sinks.parquet_results import open_file, read_stored, result_files
from strandline.connectors.traits import Traits
from strandline.core.durable import DocumentKind, read_document, sync_directory, write_document
from strandline.core.errors import CheckpointError, SinkError
from strandline.core.security.allow import FilePath, Reach
from strandline.core.types import Schema

OWNER_FILE: Final = ".strandline.json"
OWNER: Final = DocumentKind("results", 1)
FORMER_DIRECTORY: Final = "_former"  # beside the directories of results: those of queries that were replaced


@dataclass(frozen=True, slots=True)
class Parquet(Sink):
    """Write the result to a directory of Parquet files, exactly once, also after a crash.

    A plain Parquet reader that opens the directory sees every element once, when its end is known. Elements that are
    open are in a file beside the directory, and `strandline.read` reads both. A restart checks that all files are as
    they were written, unless they are `consumed`: then readers may remove them.
    """

    kind: ClassVar[str] = "parquet"
    traits: ClassVar[Traits] = Traits(True, True, True, "batches share a file; a longer version replaces it")
    moves_former: ClassVar[bool] = True

    directory: str | os.PathLike[str]
    consumed: bool = False

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        directory = arguments.required(0, "directory")
        consumed = arguments.option("consumed", bool, False)
        arguments.done(most=1)
        return cls(directory, consumed)

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _ParquetWriter(Path(self.location), query, self.consumed)

    @property
    def location(self) -> str:
        return str(Path(self.directory).absolute())

    @property
    def identity(self) -> str:
        return self.kind

    @property
    def display_location(self) -> str:
        return str(self.directory)

    def reaches(self) -> list[Reach]:
        # Staged files and side outputs are beside the directory.
        return [FilePath(self.location), FilePath(str(self.side_output_directory))]

    @property
    def side_output_directory(self) -> Path:
        return Path(self.location).parent

    def files(self) -> list[Path]:
        return result_files(Path(self.directory))


class _ParquetWriter(SinkWriter):
    def __init__(self, directory: Path, query: str, consumed: bool) -> None:
        self.directory = self._path = directory
        self._query = query
        self.consumed = consumed
        self._owner_file = directory / OWNER_FILE
        self._staging = directory.parent / ".strandline" / "staging"

    def validate(self, resume_point: ResumePoint) -> None:
        if self._has_former(resume_point):
            return
        files = result_files(self._path)
        if resume_point.fresh and files:
            raise SinkError(
                f"{self._path} already has results, but no checkpoint for them",
                code="results-exist",
                hint="Choose another directory, or remove the old results.",
            )
        if not resume_point.fresh and files:
            self._refuse_others(resume_point)
        last_batch = max(map(_batch, files), default=-1)
        resume_point.check(str(self._path), last_batch, expected=-1)

    def _refuse_others(self, resume_point: ResumePoint) -> None:
        """Files carry the id of their checkpoint: paths may change."""
        try:
            owner = read_document(self._owner_file, OWNER)["owner"]
        except CheckpointError:
            owner = None
        if owner != resume_point.owner:
            raise SinkError(
                f"the results in {self._path} belong to another checkpoint",
                code="results-exist" if owner is not None else "results-damaged",
                detail=None
                if owner is not None
                else f"{self._owner_file}, which names the checkpoint, is missing or damaged.",
                hint="Use the directory that belongs to this checkpoint, or choose another one for both.",
            )

    def _has_former(self, resume_point: ResumePoint) -> bool:
        """Whether the directory has results of an earlier query of the same name, which are to be moved away."""
        if not resume_point.replaces or not self._owner_file.exists():
            return False
        recorded = read_document(self._owner_file, OWNER)
        is_own = (recorded["owner"], recorded["query"]) == (resume_point.owner, self._query)
        return is_own and recorded.get("first", 0) < resume_point.first

    def _move_former(self) -> None:
        """Move former results away: the open elements first, since the directory shows whether it was done."""
        former = self._path.parent / FORMER_DIRECTORY / self._path.name
        free = next(former / str(number) for number in count(1) if not (former / str(number)).exists())
        former.mkdir(parents=True, exist_ok=True)
        if open_file(self._path).exists():
            open_file(free).parent.mkdir(exist_ok=True)
            os.replace(open_file(self._path), open_file(free))
        os.rename(self._path, free)
        sync_directory(former)

    def prepare(self, resume_point: ResumePoint) -> None:
        try:
            if self._has_former(resume_point):
                self._move_former()
            self._path.mkdir(parents=True, exist_ok=True)
            for name in [] if not self._staging.is_dir() else os.listdir(self._staging):
                if name.startswith(f"{resume_point.owner}-"):  # of runs before this one
                    shutil.rmtree(self._staging / name, ignore_errors=True)
            staging = self._staging / f"{resume_point.owner}-{resume_point.epoch}"
            staging.mkdir(parents=True)
            if resume_point.fresh:  # it may be that of a query before
                open_file(self._path).unlink(missing_ok=True)
            facts = {"in_fragments": self.in_fragments, "has_open_elements": self.has_open_elements}
            begin = {"first": resume_point.first} if resume_point.first else {}
            named = {"owner": resume_point.owner, "query": self._query}
            write_document(self._owner_file, OWNER, {**named, **facts, **begin})
            sync_directory(self._path)
        except OSError as error:
            raise SinkError(
                f"cannot write the directory {self._path} of query {self._query}",
                code="sink-unwritable",
                detail=str(error),
                hint="Choose another directory or correct its permissions.",
            ) from None
        self.target = ParquetTarget(str(self._path), str(staging))

    def kept(self) -> KeptResults:
        return read_stored(self._path).kept()

    def close(self) -> None:
        if self.target is not None:
            shutil.rmtree(self.target.staging, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._staging.rmdir()


def _batch(file: Path) -> int:
    """Batch of a file, by its name; -1 for a foreign file."""
    parts = file.stem.split("-")
    return int(parts[1]) if parts[0] == "part" and len(parts) > 1 and parts[1].isdigit() else -1
