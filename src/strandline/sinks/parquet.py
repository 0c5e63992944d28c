"""Answers as Parquet files, written by the tasks that have them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import SinkError
from strandline.execution.sinks import ParquetTarget
from strandline.plugins import Traits
from strandline.security.allow import FilePath, Reach
from strandline.sinks.base import Arguments, Outlet, Sink, Standing, refuse_unfit
from strandline.types import Schema


@dataclass(frozen=True, slots=True)
class Parquet(Sink):
    """Write the answer to a directory of Parquet files, each result exactly once, also after a crash.

    A plain Parquet reader that opens the directory sees what has been committed and nothing else.
    """

    kind: ClassVar[str] = "parquet"
    traits: ClassVar[Traits] = Traits(True, True, True, "files are named by batch, and moved to their place at its end")

    directory: str | os.PathLike[str]

    @classmethod
    def from_arguments(cls, arguments: Arguments) -> Self:
        directory = arguments.required(0, "directory")
        arguments.done(most=1)
        return cls(directory)

    def open(self, query: str, columns: Schema) -> Outlet:
        return _Files(Path(self.place), query)

    @property
    def place(self) -> str:
        return str(Path(self.directory).absolute())

    @property
    def shown(self) -> str:
        return str(self.directory)

    def reaches(self) -> list[Reach]:
        # Files wait for their batch, and rows are set aside, beside the directory.
        return [FilePath(self.place), FilePath(str(self.beside))]

    @property
    def beside(self) -> Path:
        return Path(self.place).parent

    def files(self) -> list[Path]:
        return sorted(Path(self.directory).glob("*.parquet"))


class _Files(Outlet):
    def __init__(self, directory: Path, query: str) -> None:
        self._directory, self._query = directory, query
        self.target = ParquetTarget(str(directory), str(directory.parent / ".strandline" / "staging"))

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob("*.parquet"))

    def fit(self, standing: Standing) -> None:
        files = self._files()
        if standing.fresh and files:
            raise SinkError(
                f"{self._directory} has results already, but no checkpoint says where they end",
                code="results-exist",
                hint="Choose another directory, or remove the old results.",
            )
        if standing.answered >= 0 and not files:
            raise SinkError(
                f"the results of {self._query} that the checkpoint knows of are gone from {self._directory}",
                code="results-missing",
                hint="Put them back, or begin again with another directory.",
            )
        # Old files may have been taken away by their reader: only that none is too new is asked.
        found = max(map(_batch, files), default=-1)
        refuse_unfit(str(self._directory), found, standing, expected=-1)

    def begin(self, standing: Standing) -> None:
        assert self.target is not None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            Path(self.target.staging).mkdir(parents=True, exist_ok=True)
            probe = self._directory / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SinkError(
                f"the directory {self._directory} of query {self._query} cannot be written",
                code="sink-unwritable",
                detail=str(error),
                hint="Choose another directory or mend its permissions.",
            ) from None

    def kept(self) -> list[pa.Table]:
        return [pq.ParquetFile(path).read() for path in self._files()]


def _batch(file: Path) -> int:
    """The batch that a file belongs to, by its name; -1 for a file of somebody else's."""
    parts = file.stem.split("-")
    return int(parts[1]) if parts[0] == "part" and len(parts) > 2 and parts[1].isdigit() else -1
