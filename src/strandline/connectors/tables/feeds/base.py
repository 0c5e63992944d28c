"""Feed contract: what a feed has read is a statement and a position, which the log of the table keeps together.

A feed lives in the driver's process. `poll` reads on from the position of the last step; when the step is committed,
its position is in the same block as its changes, so a restart resumes exactly there.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, TypeAlias

import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA
from strandline.connectors.tables import errors
from strandline.connectors.tables.change_batch import ChangeBatch
from strandline.connectors.tables.statements import TableStatement
from strandline.connectors.tables.store import TableStore
from strandline.core.durable import digest
from strandline.core.errors import Span
from strandline.core.security.allow import Reach
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.logical.catalog import ConnectorCall, SourceSchema, Table


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """How far a feed was read, as the log has it.

    `at` and `seal` are those of a source, `version` that of a database. The counts are totals: `late` changes took
    effect after their times. Of a feed with times of its own, `highs` has the latest time of each partition, `bound`
    its watermark, and `segments` the files of rows that wait for it.
    """

    at: int = 0
    seal: str = ""
    ended: bool = False
    read: int = 0
    rejected: int = 0
    late: int = 0
    highs: Mapping[str, Instant] = field(default_factory=dict)
    bound: Instant = BEFORE_ALL
    segments: tuple[int, ...] = ()
    version: str | int | float | None = None
    identity: str = ""  # digest of that of the source

    def to_text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_text(text: str | None) -> FeedPosition:
        if text is None:
            return FeedPosition()
        data = json.loads(text)
        return FeedPosition(**{**data, "segments": tuple(data["segments"])})


Change: TypeAlias = TableStatement | ChangeBatch


@dataclass(frozen=True, slots=True)
class FeedStep:
    """What a feed has read: the change, the position after it, and the rows that were rejected. `is_news` is false if
    nothing is lost when an unchanged table does not keep the position."""

    change: Change
    position: FeedPosition
    rejected: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=REJECT_SCHEMA))
    rows: int = 0
    is_news: bool = True


class TableFeed(ABC):
    """Feed of one table. `position` is that of the last step."""

    pause_seconds: ClassVar[float] = 0.05  # after a poll without news

    def __init__(self, table: Table, store: TableStore) -> None:
        self.table, self.store = table, store
        self.position = FeedPosition.from_text(store.feed_position)

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        """Columns that the origin has, so that a declaration may omit them."""
        return None

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        """Files and hosts that are read from, for the check of `allow`."""
        return []

    @classmethod
    @abstractmethod
    def check(cls, table: Table, span: Span | None) -> None:
        """Complain about arguments that cannot work, before the table is created."""

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """What a position belongs to. Without paths of the machine, addresses and secrets, so that data may move and
        passwords may change."""

    def claim_position(self) -> None:
        """Refuse the position of another source; from now on it is that of this one."""
        own = digest(json.dumps(self.identity(), sort_keys=True, default=str).encode())
        if self.position.identity not in ("", own):
            raise errors.source_changed(self.table)
        self.position = replace(self.position, identity=own)

    def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Called once, before the first poll."""

    @abstractmethod
    def poll(self, limit_rows: int) -> FeedStep | None:
        """The next step, of about so many rows at most; None if there is nothing new at present. `position` is that of
        the step afterwards."""

    def settle(self) -> None:  # noqa: B027
        """Called when the step is on disk."""

    def close(self) -> None:  # noqa: B027
        """Called when the feed is over."""
