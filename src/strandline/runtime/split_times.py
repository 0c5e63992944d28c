"""The latest times of the splits of a batch, which their tasks report to each other.

Which rows of a split are late depends on the latest row before them, which may lie in another split. Where only parsing
that split shows its times, as in text, its task reports the latest one. The splits of a batch are read side by side and
are of about the same size, so hardly any time is spent waiting. A task that does not report in time, because it has
failed or waits for a core, is not needed: the split is read again for its latest time, which is the same.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.core.durable import write_file
from strandline.core.temporal import Instant

_POLL_SECONDS: Final = 0.002
_LEAST_PATIENCE: Final = 2.0  # seconds that others may take longer


@dataclass(frozen=True, slots=True)
class SplitTimes:
    """The latest time of each split of a batch, in a file under the number of its task. A restart does not need it."""

    directory: Path
    batch: int

    def report(self, number: int, latest: Instant) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_file(self._path(number), str(latest).encode(), sync=False)

    def wait_for(self, number: int, patience: float) -> Instant | None:
        """What the task of a split has reported, or reports within so many seconds; None if that is nothing."""
        deadline = time.monotonic() + max(patience, _LEAST_PATIENCE)
        while True:
            with contextlib.suppress(FileNotFoundError):
                return int(self._path(number).read_bytes())
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)

    def _path(self, number: int) -> Path:
        return self.directory / f"{self.batch}-{number}"
