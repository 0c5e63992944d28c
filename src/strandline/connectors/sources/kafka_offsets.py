"""Offset log of a topic: the offsets that each batch reads, decided once, persisted, and read by all tasks.

A position is a number of readings, a reading being a range of offsets of one partition. A batch is a round of readings,
at most one per partition; a round without any still takes a position, since it records changes: a new partition, or an
idle one. Old rounds are removed, so the log does not grow. Every round has a digest over itself and all rounds before
it; the offset of the batch keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from strandline.core.durable import START, DocumentKind, digest, read_document, sync_directory, write_document
from strandline.core.errors import SourceError, damaged

KIND: Final = DocumentKind("kafka", 1)
ROUNDS_KEPT = 20  # Spark repeats at most the batch that is under way


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The messages of a partition from one offset to another."""

    partition: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadRound:
    """Offsets of a batch. `next` has the next offset of each known partition; `resting` are the idle ones. `digest` is
    that of the chain of rounds up to this one."""

    at: int
    reads: tuple[PartitionRead, ...]
    next: Mapping[int, int]
    resting: tuple[int, ...] = ()
    digest: str = START

    @property
    def end(self) -> int:
        return self.at + max(1, len(self.reads))

    def to_json(self) -> dict[str, Any]:
        reads = [[read.partition, read.begin, read.end] for read in self.reads]
        facts = {"at": self.at, "reads": reads, "next": list(self.next.items()), "resting": self.resting}
        return {**facts, "digest": self.digest}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ReadRound:
        reads = tuple(PartitionRead(*read) for read in data["reads"])
        return ReadRound(data["at"], reads, dict(map(tuple, data["next"])), tuple(data["resting"]), data["digest"])

    def after(self, previous: str, ends: object) -> ReadRound:
        """The round with its digest, behind the one that has the previous digest."""
        facts = json.dumps([{**self.to_json(), "digest": None}, ends])
        return replace(self, digest=digest(f"{previous}{facts}".encode()))


@dataclass(slots=True)
class OffsetLog:
    """The newest rounds. `ends` are the offsets at which a bounded reading stops."""

    directory: Path | None
    rounds: list[ReadRound] = field(default_factory=list)
    ends: Mapping[int, int] | None = None
    forgotten: str = START  # the digest of the last round that is no longer retained

    @property
    def path(self) -> Path | None:
        return self.directory / "offsets.json" if self.directory is not None else None

    @property
    def end(self) -> int:
        return self.rounds[-1].end if self.rounds else 0

    def seal(self, position: int) -> str:
        """The digest of the rounds up to a position, at which one ends."""
        return next((read_round.digest for read_round in self.rounds if read_round.end == position), "")

    def verify(self, position: int, seal: str) -> None:
        """Check that the rounds up to a position have the recorded digest."""
        if self.path is None or position == 0:
            return
        self.load()
        if self.seal(position) != seal:
            raise damaged(self.path)

    def cut(self, position: int) -> None:
        """Drop the rounds after a position."""
        self.rounds = [read_round for read_round in self.rounds if read_round.end <= position]
        if not self.rounds:
            self.ends, self.forgotten = None, START
            if self.path is not None:
                self.path.unlink(missing_ok=True)

    def load(self) -> None:
        """Read new rounds of the driver."""
        if self.path is None or not self.path.exists():
            return
        data = read_document(self.path, KIND)
        try:
            self.ends = None if data["ends"] is None else dict(map(tuple, data["ends"]))
            self.rounds = [ReadRound.from_json(read_round) for read_round in data["rounds"]]
            self.forgotten = previous = data["forgotten"]
            for read_round in self.rounds:
                if read_round.after(previous, data["ends"]).digest != read_round.digest:
                    raise damaged(self.path)
                previous = read_round.digest
        except (ValueError, TypeError, KeyError):
            raise damaged(self.path) from None

    def append(self, new_round: ReadRound) -> None:
        """Write a round down before it is used."""
        ends = None if self.ends is None else [list(pair) for pair in self.ends.items()]
        previous = self.rounds[-1].digest if self.rounds else self.forgotten
        self.rounds = [*self.rounds, new_round.after(previous, ends)]
        if len(self.rounds) > ROUNDS_KEPT:
            self.forgotten = self.rounds[-ROUNDS_KEPT - 1].digest
            self.rounds = self.rounds[-ROUNDS_KEPT:]
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rounds = [read_round.to_json() for read_round in self.rounds]
        write_document(self.path, KIND, {"ends": ends, "rounds": rounds, "forgotten": self.forgotten})
        sync_directory(self.path.parent)

    def round_at(self, position: int) -> ReadRound:
        if position >= self.end:
            self.load()
        for read_round in self.rounds:
            if read_round.at <= position < read_round.end:
                return read_round
        if self.rounds and position < self.rounds[0].at:
            raise SourceError(
                f"the offsets of position {position} are no longer retained; the log begins at {self.rounds[0].at}",
                code="not-replayable",
                hint="Offsets are removed once their batches are committed. Start over with a new checkpoint.",
            )
        raise damaged(self.path or Path("offsets.json"))

    def readings(self, start: int, end: int) -> list[PartitionRead]:
        """Readings between two positions."""
        reads: list[PartitionRead] = []
        while start < end:
            here = self.round_at(start)
            reads += here.reads[start - here.at : end - here.at]
            start = here.end
        return reads


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Rows to read of each partition: all that wait, but not more than a fair part of the limit. Unused shares go to
    other partitions. At least one row of each, so that none starves."""
    left, shares = limit, {}
    for number, partition in enumerate(sorted(waiting, key=waiting.__getitem__)):
        part = max(1, left // (len(waiting) - number))
        shares[partition] = min(waiting[partition], part)
        left = max(0, left - shares[partition])
    return shares
