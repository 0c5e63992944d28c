"""Rows that come from outside and are given once, written down so that they can be read again.

A journal is a directory of numbered entries: tables of rows, and promises that time has come so far. Positions count
rows; a promise counts as one. The name of an entry says where it begins and ends, so a look into the directory is
enough to know how far the journal reaches. Whoever writes is one process; an entry is there when its name is.

Where somebody else gives rows in numbered batches and may repeat the last one, the name has the number of the batch.
Where nobody will read from the beginning again, what was read can be forgotten.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from strandline.errors import SourceError, damaged
from strandline.temporal import Instant

END = "end"


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at the positions from `start` to `end`: rows, perhaps those of a batch with a number, or a promise."""

    start: int
    end: int
    promise: Instant | None = None
    batch: int | None = None

    @property
    def name(self) -> str:
        where = f"{self.start:015d}-{self.end:015d}"
        if self.promise is not None:
            return f"{where}.until.{self.promise}"
        return f"{where}.arrow" if self.batch is None else f"{where}.batch.{self.batch}"

    @staticmethod
    def of(name: str) -> Entry:
        numbers, kind, *rest = name.split(".")
        start, end = numbers.split("-")
        number = int(rest[0]) if kind in ("until", "batch") else None
        return Entry(int(start), int(end), number if kind == "until" else None, number if kind == "batch" else None)


class Journal:
    """Both ends of a journal: the process that writes it and those that read it have their own object.

    One that is `forgetful` may have lost its beginning; in others a missing entry is damage.
    """

    def __init__(self, directory: Path, forgetful: bool = False) -> None:
        self.directory = directory
        self.forgetful = forgetful
        self._entries: list[Entry] = []

    @property
    def reach(self) -> int:
        """The position after the last entry that this object has seen."""
        return self._entries[-1].end if self._entries else 0

    @property
    def last_batch(self) -> int:
        """The number of the last batch that is there; -1 if there is none."""
        return max((entry.batch for entry in self._entries if entry.batch is not None), default=-1)

    @property
    def ended(self) -> bool:
        return (self.directory / END).exists()

    def look(self) -> None:
        """Find what has been written since the last look."""
        if not self.directory.is_dir():
            return
        seen = self.reach
        try:
            found = [Entry.of(name) for name in os.listdir(self.directory) if name[0] != "." and name != END]
        except (ValueError, IndexError):
            raise damaged(self.directory) from None
        for entry in sorted((e for e in found if e.start >= seen), key=lambda e: e.start):
            if entry.start != self.reach:
                if not self.forgetful:
                    raise damaged(self.directory / entry.name)
                self._entries.clear()  # what lies before a gap is being forgotten while we look
            self._entries.append(entry)

    def append(self, table: pa.Table) -> None:
        if table.num_rows:
            self._write(Entry(self.reach, self.reach + table.num_rows), [table])

    def append_batch(self, number: int, rows: int, tables: Iterable[pa.Table]) -> None:
        """The rows of a batch, all or none; `rows` is how many there are in the tables together."""
        if rows:
            self._write(Entry(self.reach, self.reach + rows, batch=number), tables)
            del self._entries[:-1]  # whoever writes batches reads none, and may write for years

    def forget(self, position: int) -> None:
        """Remove what lies before a position. The last entry stays, to tell where the journal stands."""
        while len(self._entries) > 1 and self._entries[0].end <= position:
            (self.directory / self._entries.pop(0).name).unlink(missing_ok=True)

    def promise(self, until: Instant) -> None:
        """No row will follow with a time before `until`."""
        self._write(Entry(self.reach, self.reach + 1, until), None)

    def close(self) -> None:
        """No row will follow."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / END).touch()

    def _write(self, entry: Entry, tables: Iterable[pa.Table] | None) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        hidden = self.directory / f".{entry.name}"
        if tables is None:
            hidden.touch()
        else:
            write_tables(tables, hidden)
        with open(hidden, "rb") as file:
            os.fsync(file.fileno())
        os.replace(hidden, self.directory / entry.name)
        self._entries.append(entry)

    def between(self, start: int, end: int) -> Iterator[tuple[int, pa.Table | Instant]]:
        """The rows and promises between two positions, each with the position at which it begins."""
        if end > self.reach:
            self.look()
        if start < end and self._entries and start < self._entries[0].start:
            raise SourceError(
                f"rows before position {self._entries[0].start} are not kept any more",
                code="not-replayable",
                detail=f"Those from {start} on were asked for; {self.directory} has no file with them.",
                hint="Rows are removed when the batches with them are over. Begin again with another checkpoint.",
            )
        first = max(0, bisect_right(self._entries, start, key=lambda entry: entry.start) - 1)
        for entry in self._entries[first:]:
            if entry.start >= end:
                return
            if entry.end <= start:
                continue
            if entry.promise is not None:
                yield entry.start, entry.promise
                continue
            low = max(start, entry.start)
            yield low, self._read(entry).slice(low - entry.start, min(end, entry.end) - low)

    def _read(self, entry: Entry) -> pa.Table:
        path = self.directory / entry.name
        try:
            return feather.read_table(path, memory_map=True)
        except (OSError, pa.ArrowInvalid):
            raise damaged(path) from None


def write_tables(tables: Iterable[pa.Table], path: Path) -> None:
    """One Arrow file of tables that come one after the other, all with the columns of the first."""
    rest = iter(tables)
    first = next(rest)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for table in chain([first], rest):
            writer.write_table(table)
