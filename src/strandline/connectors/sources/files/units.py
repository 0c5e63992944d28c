"""Input units of files, and the log that lists them in the order in which they are read.

A position is a number of entries of the log. An entry is a unit, or the list of the files that a reading without
`follow` began with. A unit has everything that determines its rows, with a checksum of the bytes that it covers, so a
replayed batch reads the same or fails.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sources.files.content import FileFormat
from strandline.core.durable import START, ChainedLog
from strandline.core.errors import damaged

LISTING: Final = "listing"


@dataclass(frozen=True, slots=True)
class FileUnit:
    """Part of a file: row groups or bytes of content `begin` to `end`; `row` is the number of its first row, from 1.

    One with a `problem` represents unreadable input: a single rejected entry with `raw` as its content, without another
    read of the file.
    """

    path: str  # from the directory before the first wildcard on
    begin: int = 0
    end: int = 0
    row: int = 0
    rows: int = 0
    kind: str = ""  # parquet, csv or json
    checksum: int = 0  # of the content between begin and end; of the footer, for Parquet
    inode: int = 0
    size: int = 0  # of the file when the unit was planned
    changed: int = 0  # when it had been changed last, in nanoseconds
    mark: int = 0  # the fingerprint of everything before `end`
    header: tuple[str, ...] = ()
    compression: str | None = None
    encoding: str = "utf-8"
    skips: int = 0
    overlong: int = 0  # how many lines are too long
    fits: bool = False  # whether every column converts for sure, so that only its time can reject a row
    last: bool = False  # whether nothing of the file is left
    whole: bool = False  # whether the problem is one of the whole file, which is read when it is corrected
    problem: str | None = None
    raw: str = ""

    def to_json(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> FileUnit:
        return FileUnit(**{**data, "header": tuple(data.get("header", ()))})

    @property
    def is_seekable_text(self) -> bool:
        """True if it can be read without the units before it, and is to be parsed."""
        return self.kind != "parquet" and FileFormat(self.compression, self.encoding).seekable

    @property
    def text_bytes(self) -> int:
        """How many bytes are to be parsed."""
        return self.end - self.begin if self.kind in ("csv", "json") and self.problem is None else 0

    @property
    def is_divisible(self) -> bool:
        """True if units after it can be read by another task: the latest time in it can be found out."""
        return self.fits or self.problem is not None or self.is_seekable_text


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed: its path and identity."""

    path: str
    inode: int
    size: int
    changed: int


class FileUnitLog:
    """Entries of one stream: on disk, or in memory where there is no checkpoint. Maps positions to units."""

    def __init__(self, path: Path | None) -> None:
        self._log = ChainedLog(path) if path is not None else None
        self.units: list[FileUnit | None] = []  # by position; None is an entry that is no unit
        self.listing: list[ListedFile] | None = None

    def __len__(self) -> int:
        return len(self.units)

    def load(self) -> None:
        """Read the entries appended since."""
        if self._log is None:
            return
        if not self._is_continued():
            self._clear()
        self._log.read()
        self._take(line.entry for line in self._log.lines[len(self.units) :])

    def _load_up_to(self, position: int) -> None:
        if position > len(self.units):
            self.load()
        if position > len(self.units):
            raise self._damaged()

    def _clear(self) -> None:
        self.units.clear()
        self.listing = None
        if self._log is not None:
            self._log.lines.clear()

    def _is_continued(self) -> bool:
        """True if the file still has the last known line. Another run may have truncated it."""
        assert self._log is not None
        if not self._log.lines:
            return True
        last = self._log.lines[-1]
        start = self._log.lines[-2].end if len(self._log.lines) > 1 else 0
        try:
            with open(self._log.path, "rb") as file:
                file.seek(start)
                return file.read(len(last.digest)) == last.digest.encode()
        except OSError:
            return False

    def _take(self, entries: Iterable[Any]) -> None:
        for entry in entries:
            try:
                if LISTING in entry:
                    self.listing = [ListedFile(*file) for file in entry[LISTING]]
                    self.units.append(None)
                else:
                    self.units.append(FileUnit.from_json(entry))
            except (TypeError, ValueError, AttributeError):
                raise self._damaged() from None

    def append_listing(self, files: Sequence[ListedFile]) -> None:
        self._append([{LISTING: [[file.path, file.inode, file.size, file.changed] for file in files]}])

    def append(self, units: Sequence[FileUnit]) -> None:
        self._append([unit.to_json() for unit in units])

    def _append(self, entries: list[dict[str, Any]]) -> None:
        if self._log is not None:
            self._log.append(entries)
        self._take(entries)

    def between(self, start: int, end: int) -> list[FileUnit]:
        self._load_up_to(end)
        return [unit for unit in self.units[start:end] if unit is not None]

    def digest(self, position: int) -> str:
        if self._log is None:
            return START
        self._load_up_to(position)
        return self._log.digest_at(position)

    def verify(self, position: int, expected: str) -> None:
        if self._log is None or position == 0:
            return
        if position > len(self.units) or self._log.digest_at(position) != expected:
            self._clear()
            self.load()
            self._log.verify(position, expected)

    def cut(self, position: int) -> None:
        del self.units[position:]
        if position == 0:
            self.listing = None
        if self._log is not None:
            self._log.cut(position)

    def _damaged(self) -> Exception:
        return damaged(self._log.path if self._log is not None else "units.log")


# Tasks of one process share a log; each reads only what was appended since.
_logs: dict[str, FileUnitLog] = {}
_LOCK: Final = threading.Lock()


def shared_log(path: Path) -> FileUnitLog:
    """The log of a file, as far as this process has read it, with the new entries."""
    with _LOCK:
        log = _logs.setdefault(os.path.abspath(path), FileUnitLog(path))
        log.load()
        return log
