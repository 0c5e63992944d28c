"""Rows that come from outside and are given once, written down so that they can be read again.

A journal is a directory of numbered entries: tables of rows, and promises that time has come so far. Positions count
rows; a promise counts as one. The name of an entry says where it begins and ends, so a look into the directory is
enough to know how far the journal reaches. Whoever writes is one process; an entry is there when its name is.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from strandline.errors import damaged
from strandline.temporal import Instant

END = "end"


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at the positions from `start` to `end`: rows, or a promise."""

    start: int
    end: int
    promise: Instant | None = None

    @property
    def name(self) -> str:
        words = [f"{self.start:015d}", f"{self.end:015d}"]
        return "-".join(words) + (".arrow" if self.promise is None else f".until.{self.promise}")

    @staticmethod
    def of(name: str) -> Entry:
        numbers, kind, *rest = name.split(".")
        start, end = numbers.split("-")
        return Entry(int(start), int(end), int(rest[0]) if kind == "until" else None)


class Journal:
    """Both ends of a journal: the process that writes it and those that read it have their own object."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: list[Entry] = []

    @property
    def reach(self) -> int:
        """The position after the last entry that this object has seen."""
        return self._entries[-1].end if self._entries else 0

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
                raise damaged(self.directory / entry.name)
            self._entries.append(entry)

    def append(self, table: pa.Table) -> None:
        if table.num_rows:
            entry = Entry(self.reach, self.reach + table.num_rows)
            self._write(entry, table)

    def promise(self, until: Instant) -> None:
        """No row will follow with a time before `until`."""
        self._write(Entry(self.reach, self.reach + 1, until), None)

    def close(self) -> None:
        """No row will follow."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / END).touch()

    def _write(self, entry: Entry, table: pa.Table | None) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        hidden = self.directory / f".{entry.name}"
        if table is None:
            hidden.touch()
        else:
            feather.write_feather(table, hidden, compression="uncompressed")
        with open(hidden, "rb") as file:
            os.fsync(file.fileno())
        os.replace(hidden, self.directory / entry.name)
        self._entries.append(entry)

    def between(self, start: int, end: int) -> Iterator[tuple[int, pa.Table | Instant]]:
        """The rows and promises between two positions, each with the position at which it begins."""
        if end > self.reach:
            self.look()
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
