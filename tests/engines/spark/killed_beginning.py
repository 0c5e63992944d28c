"""A program that adds a query from the beginning of a stream that another one reads, and dies at a moment that is
named. See test_beginnings.py.

python killed_beginning.py DIRECTORY [MOMENT]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from killed_graph import PAIRS, around

import strandline as sl
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.versions import GraphVersions
from strandline.runtime.pipeline import RunningPipeline


def arrange(moment: str) -> None:
    records: list[int] = []  # batches of the second version that were recorded

    def is_record(pipeline: RunningPipeline, report: BatchReport, *_: Any) -> bool:
        if report.version == 1 and report.batch not in records:
            records.append(report.batch)
        return report.version == 1 and len(records) == {"first batch": 1, "catching up": 3}[moment]

    match moment:
        case "version":  # it is stored, and no offset names it
            around(GraphVersions, "write", lambda _, version, __: version.number == 1, before=False)
        case "first batch" | "catching up":
            around(RunningPipeline, "_record", is_record, before=True)


def main(directory: Path, moment: str) -> None:
    arrange(moment)
    with sl.connect(checkpoint=directory / "checkpoint", shards=2, batch_rows=40) as db:
        db.sql(
            f"CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) "
            f"SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts"
        )
        running = {query.name: query for query in db.recover()}
        if not running:
            text = f"CREATE SINK one INTO parquet('{directory}/one') AS SELECT k, v FROM s"
            running["one"] = db.sql(text)
        pipeline = running["one"]._pipeline
        if pipeline.graph.version.number == 0:
            while pipeline.last_batch < 3:
                time.sleep(0.02)
            text = f"CREATE SINK two INTO parquet('{directory}/two') AS {PAIRS} STARTING EARLIEST"
            running["two"] = db.sql(text)
        assert running["two"]._pipeline is pipeline
        (directory / "in" / "_END").touch()
        assert running["two"].await_end(120) and running["one"].await_end(120)
        print("ended", running["two"].start, pipeline.graph.version.number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
