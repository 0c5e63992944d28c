"""A script that puts off work in every batch, of a shared join or of fragments in the order of a strategy, and which
dies in the middle of that. See test_carried_work.py.

python killed_budget.py DIRECTORY STRATEGY|- [BATCH before|after]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from strandline.apps.cli import app
from strandline.runtime import fragment_turns
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.pipeline import RunningPipeline


def arrange(batch: int, moment: str) -> None:
    """Die before or after the record of a batch, or the first one from there on that carries work over."""
    record = RunningPipeline._record

    def dying(self: RunningPipeline, report: BatchReport, files: Any) -> None:
        carries = report.batch >= batch and report.work.left > 0
        if carries and moment == "before":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        record(self, report, files)
        if carries:
            os.killpg(os.getpgid(0), signal.SIGKILL)

    RunningPipeline._record = dying  # type: ignore[method-assign]


def main(directory: Path, strategy: str, *moment: str) -> None:
    fragment_turns.PART_ROWS = 5  # type: ignore[misc]
    if moment:
        arrange(int(moment[0]), moment[1])
    options = ["--shards", "2", "--batch-rows", "60", "--batch-seconds", "0.001"]
    options += [] if strategy == "-" else ["--strategy", strategy]
    app(["run", str(directory / "script.sql"), "--out", str(directory / "out"), *options])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
