"""A program with a table that kills itself in the midst of a commit of its feed.

    python self_killing_feed.py MOMENT COUNT CHECKPOINT DECLARATION

MOMENT is one of `MOMENTS`, or `never`; the process dies the COUNT-th time that it comes there. Otherwise it ends when
the feed has brought nothing for a while.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import strandline as sl
from strandline.connectors.tables.feeds import feeder
from strandline.connectors.tables.feeds.disorder import DisorderBuffer
from strandline.connectors.tables.log import TableLog
from strandline.connectors.tables.store import TableStore

STEP_ROWS = 10
QUIET_SECONDS = 0.4

# Where to die: what is called, and before or after it.
MOMENTS: dict[str, tuple[Any, str, bool]] = {
    "before a block": (TableLog, "append", True),
    "before the head": (TableLog, "_write_head", True),
    "after a block": (TableLog, "append", False),
    "after a commit": (TableStore, "commit", False),
    "after rows that wait": (DisorderBuffer, "save", False),
}


def arm(moment: str, count: int) -> None:
    owner, name, before = MOMENTS[moment]
    original: Callable[..., Any] = getattr(owner, name)
    left = [count]

    def come() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapper(*arguments: Any, **named: Any) -> Any:
        if before:
            come()
        result = original(*arguments, **named)
        if not before:
            come()
        return result

    setattr(owner, name, wrapper)


def main(moment: str, count: str, checkpoint: str, declaration: str) -> None:
    feeder.LOAD_ROWS = feeder.STEP_ROWS = STEP_ROWS  # type: ignore[misc]
    if moment != "never":
        arm(moment, int(count))
    with sl.connect(engine="local", checkpoint=Path(checkpoint)) as db:
        db.sql(declaration)
        (running,) = db.tables.feeders().values()
        position, since = running.feed.position, time.monotonic()
        while running.status.state != "ended" and time.monotonic() - since < QUIET_SECONDS:
            if running.feed.position.at != position.at or running.status.state == "waiting":
                position, since = running.feed.position, time.monotonic()
            running.store.check_feed()
            time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
