"""Second readers of streams: queries that are added from the beginning read again what the others have read.

A second reader is a stream of the graph with a name of its own. It reads the same log from position 0, a part in each
batch, up to where the reader before it is after that batch; from then on both are at the same position.

    batch              7      8      9      10
    s                  ── 700 ── 800 ── 900 ── 910
    s, second reader   ──   0 ── 400 ── 800 ── 910
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from strandline.connectors.sources.base import Source, shares_log
from strandline.core.errors import CheckpointError
from strandline.logical.catalog import BaseStream

if TYPE_CHECKING:
    from strandline.runtime.offsets import SourceOffset

FIRST_ROWS: Final = 20_000  # of second readers in a batch, before it is known how long batches take
LEAST_ROWS: Final = 1_000
_USUAL: Final = 15  # batches that tell how long one takes
_BELOW, _FORGETS = 0.7, 1.03  # of the rows that were too many; those are more with every batch that is short
_FACTOR, _SECONDS = 1.25, 0.1  # how long a batch may be, by the usual one: 2 and 0.3 s are not exceeded by chance then


def name_reader(stream: str, query: str) -> str:
    """The name of the reader that reads a stream from its beginning for a query."""
    return f"{stream} (from the beginning, for {query})"


def reader_of(stream: BaseStream, query: str) -> BaseStream:
    """The stream of such a reader."""
    return replace(stream, name=name_reader(stream.name, query), reader_of=stream.name)


def table_reader_of(stream: BaseStream, version: int, base: int) -> BaseStream:
    """The input of a table for the queries that a version adds, where the log of the table ends at `base`."""
    return replace(stream, name=f"{stream.name} (since version {version})", reader_of=stream.name, base=base)


def has_shared_log(stream: BaseStream) -> bool:
    """Whether a stream is a second reader of a log that others read, too. Others read a log of their own."""
    return stream.follows and shares_log(stream)


def log_of(stream: BaseStream) -> str:
    """The name of the stream in whose directory the log of a stream is."""
    return stream.reader_of if has_shared_log(stream) else stream.name


def with_log(stream: BaseStream) -> BaseStream:
    """A stream as its log has it."""
    return replace(stream, name=stream.reader_of, reader_of="") if has_shared_log(stream) else stream


def follow(
    source: Source, before: SourceOffset, first_before: SourceOffset, first_after: SourceOffset, rows: int
) -> SourceOffset:
    """The next offset of a second reader, which is not ahead of the first one: of about so many rows, if it is behind,
    else of the same as the first one."""
    if before.ended:
        return before
    if before.at == first_before.at:
        at = first_after.at
    else:
        at = max(before.at, min(source.advance(before.at, rows)[0], first_after.at))
    seal = source.seal(at) if at > before.at else before.seal
    is_level = at == first_after.at
    idle, ended = (first_after.idle, first_after.ended) if is_level else (False, False)
    return replace(before, at=at, idle=idle, ended=ended, seal=seal, log=source.stream.name)


def check_level(positions: Mapping[str, SourceOffset], queries: Iterable[str], streams: Collection[str]) -> None:
    """Refuse to go on from positions with a version that has taken queries over, where their readers were not level
    yet: after a repair that could not keep the batches in between. `streams` are those of the version, `queries` those
    that it has from before."""
    names = set(queries)
    for reader, offset in positions.items():
        of_query = next((query for query in names if reader == name_reader(offset.log, query)), None)
        if offset.log and of_query is not None and reader not in streams and offset.at != positions[offset.log].at:
            raise CheckpointError(
                f"the query {of_query} had not caught up after the batch that the checkpoint goes on from",
                code="repair-impossible",
                detail="A later batch, with which it had, cannot be planned again as it was.",
                hint="Restore a backup of the checkpoint, or start over with a new one.",
            )


class CatchUpPace:
    """How many rows second readers take in a batch that are behind: as many as let the batches stay short.

    More and more, until a batch takes too long; then fewer than it had, for some time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = min(FIRST_ROWS, most)
        self._usual: deque[float] = deque(maxlen=_USUAL)
        self._too_many = float(most)  # rows of a batch that took too long

    def observe(self, seconds: float, taken: int) -> None:
        """Note how long a batch took in which second readers took so many rows to catch up."""
        if not taken:
            self._usual.append(seconds)
            return
        allowed = _FACTOR * median(self._usual or [_SECONDS]) + _SECONDS
        factor = min(2.0, max(0.5, allowed / max(seconds, 1e-3)))
        if factor < 1:
            self._too_many = taken
            self.rows = max(min(LEAST_ROWS, self.most), int(min(taken, self.rows) * factor))
        elif 2 * taken >= self.rows:  # else it was not the limit that ended it
            self._too_many *= _FORGETS
            limit = self._too_many if self._too_many >= self.most else self._too_many * _BELOW
            self.rows = max(self.rows, min(self.most, int(limit), int(self.rows * factor)))

    def share(self, readers: int) -> int:
        """The rows of one of so many second readers that are behind."""
        return max(1, self.rows // max(1, readers))


def behind(sources: Mapping[str, Source], positions: Mapping[str, SourceOffset]) -> dict[str, int]:
    """About how many rows each second reader of a shared log has to read to be where the first one is."""
    rows = {}
    for name, source in sources.items():
        first = source.stream.name
        if name != first and name in positions and first in positions:
            start, end = positions[name].at, positions[first].at
            rows[name] = source.count_rows(start, end) if start < end else 0
    return rows
