"""A program that runs a script, perhaps with an update, and dies at a moment that is named. See test_updates.py.

python killed_update.py DIRECTORY SCRIPT [--update] [MOMENT]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from killed_graph import around, die

import strandline as sl
from strandline.database.script import read_script, start_script
from strandline.runtime.checkpoint.versions import GraphVersions
from strandline.runtime.pipeline import RunningPipeline


def arrange(moment: str) -> None:
    match moment:
        case "third batch":  # the script as it was: its batch was planned, and runs again
            around(RunningPipeline, "_record", lambda _, report, __: report.batch == 3, before=True)
        case "repeated batch":
            around(RunningPipeline, "_record", lambda *_: True, before=True)
        case "before":
            around(GraphVersions, "write", lambda _, version, __: version.number == 1, before=True)
        case "version":
            around(GraphVersions, "write", lambda _, version, __: version.number == 1, before=False)
        case "aside":  # between the open elements and the others
            rename = os.rename

            def dying(*arguments: Any) -> None:
                die()
                rename(*arguments)

            os.rename = dying  # type: ignore[assignment]
        case "first batch":
            around(RunningPipeline, "_record", lambda _, report, __: report.version == 1, before=True)


def main(directory: Path, script: str, *words: str) -> None:
    for moment in words:
        arrange(moment)

    def picky(values: pa.Array) -> pa.Array:
        if "PICKY" in os.environ and len(values):
            raise ValueError("never")
        return values

    with sl.connect(shards=2, batch_rows=40, tables=directory / "tables") as db:
        db.function("picky", picky, arguments=["BIGINT"], returns="BIGINT")
        statements = read_script(db, (directory / script).read_text())
        queries = start_script(db, statements, directory / "out", None, update="--update" in words)
        for query in queries:
            assert query.await_end(120)
        begins = {query.name: query._pipeline.metrics.plan_of(query.name).since for query in queries}
        print("ended", begins)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
