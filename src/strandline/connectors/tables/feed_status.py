"""Status of the feed of a table: what its feeder does, and why it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from strandline.core.errors import StrandlineError

# running: it reads; waiting: the system is out of reach, and is tried again; ended: all is in the table.
FeedState: TypeAlias = Literal["running", "waiting", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """`error` is why a feed has failed, or waits."""

    state: FeedState = "running"
    error: StrandlineError | None = None

    @property
    def message(self) -> str | None:
        return None if self.error is None else f"{self.error.code}: {self.error.message}"
