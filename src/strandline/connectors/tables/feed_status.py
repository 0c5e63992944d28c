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

    @property
    def remedy(self) -> str | None:
        """What helps against the error. A feed that waits goes on by itself once it is mended."""
        if self.error is None:
            return None
        hint = self.error.hint or "Fix the cause."
        if self.state != "failed":
            return hint
        return f"{hint} Then open the database again; the table resumes where it stopped."
