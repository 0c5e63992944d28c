"""When a query first started, remembered beside its checkpoint: a replay must see the same times."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from strandline.errors import damaged
from strandline.temporal import SECOND, Instant


def first_start(directory: Path | None) -> Instant:
    """The clock at the first start: now, unless the directory remembers an earlier one."""
    path = directory / "began.json" if directory is not None else None
    if path is not None and path.exists():
        try:
            return int(json.loads(path.read_text())["microseconds"])
        except (ValueError, KeyError, TypeError):
            raise damaged(path) from None
    began = int(time.time() * SECOND)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"microseconds": began}))
        os.replace(temporary, path)
    return began
