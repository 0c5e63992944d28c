"""Journal: rows pushed from outside, written to disk so that they can be replayed.

A journal is a directory of numbered entries: tables of rows, and promises that time has come so far. Positions count
rows; a promise counts as one. The name of an entry says where it begins and ends, and has the checksum of its content.
The file `head` has the end of the journal and whether it has ended; it is on disk before rows are acknowledged, so a
gap up to there is damage. There is one writer process.

Where rows come in numbered batches of which the last may be repeated, the name has the number of the batch. Where no
replay from the beginning is needed, old entries can be removed.
"""

from __future__ import annotations

import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar, Final, Literal

import polars as pl
import pyarrow as pa
import pyarrow.feather as feather

from strandline.connectors.sources.base import Chunk, Source
from strandline.connectors.sources.conversion import conform
from strandline.core.durable import HeadFile, checksum_file, sync_directory, sync_file
from strandline.core.errors import SourceError, damaged
from strandline.core.temporal import Instant
from strandline.logical.catalog import BaseStream

HEAD: Final = "head"
_NAME: Final = re.compile(r"(\d{15})-(\d{15})\.(rows|until|batch)\.(-?\d+)\.([0-9a-f]{8})")

# Entries whose content this process has compared with its checksum.
_checked: set[str] = set()
_MOST_CHECKED: Final = 100_000


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Entry from position `start` to `end`: rows, those of a batch with a number, or a promise."""

    start: int
    end: int
    kind: Literal["rows", "until", "batch"] = "rows"
    number: int = 0  # the instant of a promise, the number of a batch
    checksum: int = 0

    @property
    def name(self) -> str:
        return f"{self.label}.{self.checksum:08x}"

    @property
    def label(self) -> str:
        return f"{self.start:015d}-{self.end:015d}.{self.kind}.{self.number}"

    @staticmethod
    def of(name: str) -> JournalEntry | None:
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        start, end, kind, number, checksum = match.groups()
        return JournalEntry(int(start), int(end), kind, int(number), int(checksum, 16))  # type: ignore[arg-type]


class Journal:
    """Both ends of a journal: the process that writes it and those that read it have their own object.

    One that `may_be_truncated` may have lost its beginning; in others a missing entry is damage.
    """

    def __init__(self, directory: Path, may_be_truncated: bool = False) -> None:
        self.directory = directory
        self.may_be_truncated = may_be_truncated
        self._head = HeadFile(directory / HEAD)
        self._entries: list[JournalEntry] = []

    @property
    def reach(self) -> int:
        """The position after the last entry that this object has seen."""
        return self._entries[-1].end if self._entries else 0

    @property
    def last_batch(self) -> int:
        """The number of the last batch that is there; -1 if there is none."""
        return max((entry.number for entry in self._entries if entry.kind == "batch"), default=-1)

    @property
    def ended(self) -> bool:
        return self._read_head()[1]

    def _read_head(self) -> tuple[int, bool]:
        """The guaranteed end of the journal, and whether nothing follows."""
        value = self._head.read()
        return (0, False) if value is None else (int(value[0]), bool(value[1]))

    def refresh(self) -> None:
        """Load new entries, and check that nothing is missing."""
        acknowledged, _ = self._read_head()
        if self._entries and acknowledged == self.reach:
            return
        if not self.directory.is_dir():
            return
        names = os.listdir(self.directory)
        seen = self.reach
        entries = [entry for name in names if (entry := JournalEntry.of(name)) is not None and entry.start >= seen]
        if entries and HEAD not in names:
            raise damaged(self._head.path)
        for entry in sorted(entries, key=lambda entry: (entry.start, entry.end)):
            if entry.kind == "until" and entry.checksum != zlib.crc32(entry.label.encode()):
                raise damaged(self.directory / entry.name)
            if entry.start < self.reach:
                raise damaged(self.directory / entry.name)
            if entry.start > self.reach:
                if not self.may_be_truncated:
                    raise damaged(self.directory / f"{self.reach:015d}-*")
                self._entries.clear()  # entries before a gap are being removed concurrently
            self._entries.append(entry)
        if self.reach < acknowledged:
            raise damaged(self.directory / f"{self.reach:015d}-*")

    def verify(self, position: int) -> None:
        """Check that the journal reaches a position, and that its entries after it are intact."""
        self.refresh()
        if self.reach < position:
            raise damaged(self.directory)
        for entry in self._entries:
            if entry.end > position and entry.kind != "until":
                self._check(entry)

    def append(self, table: pa.Table) -> None:
        if table.num_rows:
            self._write(JournalEntry(self.reach, self.reach + table.num_rows), [table])

    def append_batch(self, number: int, rows: int, tables: Iterable[pa.Table]) -> None:
        """The rows of a batch, all or none; `rows` is how many there are in the tables together."""
        if rows:
            self._write(JournalEntry(self.reach, self.reach + rows, "batch", number), tables)
            del self._entries[:-1]  # a writer of batches reads none, and may write for years

    def forget(self, position: int) -> None:
        """Remove entries before a position. The last entry stays: it has the end of the journal."""
        while len(self._entries) > 1 and self._entries[0].end <= position:
            (self.directory / self._entries.pop(0).name).unlink(missing_ok=True)

    def promise(self, until: Instant) -> None:
        """No row will follow with a time before `until`."""
        self._write(JournalEntry(self.reach, self.reach + 1, "until", until), None)

    def close(self) -> None:
        """No row will follow."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._head.write([self.reach, True])

    def _write(self, entry: JournalEntry, tables: Iterable[pa.Table] | None) -> None:
        """Add an entry; it is on disk, and so is the head, when this returns."""
        if not self.directory.is_dir() or not self._head.path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            self._head.write([0, False])
        hidden = self.directory / f".{entry.label}"
        if tables is None:
            hidden.touch()
            entry = replace(entry, checksum=zlib.crc32(entry.label.encode()))
        else:
            write_tables(tables, hidden)
            sync_file(hidden)
            entry = replace(entry, checksum=checksum_file(hidden))
        os.replace(hidden, self.directory / entry.name)
        sync_directory(self.directory)
        self._head.write([entry.end, False])
        self._entries.append(entry)

    def between(self, start: int, end: int) -> Iterator[tuple[int, pa.Table | Instant]]:
        """The rows and promises between two positions, each with the position at which it begins."""
        if end > self.reach:
            self.refresh()
        if start < end and self._entries and start < self._entries[0].start:
            raise SourceError(
                f"rows before position {self._entries[0].start} are no longer retained",
                code="not-replayable",
                detail=f"Rows from {start} on were requested; {self.directory} has no file with them.",
                hint="Rows are removed once their batches are committed. Start over with a new checkpoint.",
            )
        first = max(0, bisect_right(self._entries, start, key=lambda entry: entry.start) - 1)
        for entry in self._entries[first:]:
            if entry.start >= end:
                return
            if entry.end <= start:
                continue
            if entry.kind == "until":
                yield entry.start, entry.number
                continue
            low = max(start, entry.start)
            yield low, self._read(entry).slice(low - entry.start, min(end, entry.end) - low)

    def _check(self, entry: JournalEntry) -> None:
        """Compare the content of an entry with its checksum, once in a process."""
        path = self.directory / entry.name
        if str(path) in _checked:
            return
        try:
            intact = checksum_file(path) == entry.checksum
        except OSError:
            intact = False
        if not intact:
            raise damaged(path)
        if len(_checked) >= _MOST_CHECKED:
            _checked.clear()
        _checked.add(str(path))

    def _read(self, entry: JournalEntry) -> pa.Table:
        self._check(entry)
        path = self.directory / entry.name
        try:
            return feather.read_table(path, memory_map=True)
        except (OSError, pa.ArrowInvalid):
            raise damaged(path) from None


class JournalSource(Source):
    """A source with its rows and promises in a journal."""

    rows_name: ClassVar[str]  # what its rows are called where one is rejected

    def __init__(self, stream: BaseStream, directory: Path | None, journal: Journal | None) -> None:
        super().__init__(stream, directory)
        self._journal = journal

    @property
    def journal(self) -> Journal:
        assert self._journal is not None, "a running query has a directory for its input"
        return self._journal

    def identity(self) -> dict[str, object]:
        return {"function": self.stream.source.function.lower()}

    def verify(self, position: int, seal: str) -> None:
        if self._journal is not None:
            self._journal.verify(position)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        ended = self.journal.ended  # checked first: rows appended before the end are not missed
        self.journal.refresh()
        reached = min(position + limit_rows, self.journal.reach)
        return reached, ended and reached == self.journal.reach

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        for position, entry in self.journal.between(start, end):
            if isinstance(entry, pa.Table):
                location = f"{self.rows_name} of {self.stream.name}"
                yield conform(pl.DataFrame(entry), self.stream, location, position + 1)
            else:
                yield Chunk(pl.DataFrame(), promise=entry)


def write_tables(tables: Iterable[pa.Table], path: Path) -> None:
    """One Arrow file of tables that come one after the other, all with the columns of the first."""
    remaining = iter(tables)
    first = next(remaining)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for table in chain([first], remaining):
            writer.write_table(table)
