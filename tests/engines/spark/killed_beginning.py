"""A program that adds queries from the beginning of a stream that another one reads, and dies at a moment that is
named. See test_killed_beginnings.py.

python killed_beginning.py DIRECTORY [MOMENT]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from killed_graph import PAIRS, around

import strandline as sl
from strandline.database.introspection.running_graph import graph_operators
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.versions import GraphVersions
from strandline.runtime.pipeline import RunningPipeline

# Version 1 adds the second query, version 2 takes it over with its states. Version 3 adds an equal one, version 4 takes
# that over with the operators that run.
WRITTEN = {"version": 1, "taken over": 2, "merged": 4}  # it is stored, and no offset names it
RECORDED = {  # a version, and which of its batches
    "first batch": (1, 1),
    "catching up": (1, 3),
    "first batch after": (2, 1),
    "first batch of an equal one": (3, 1),
    "first batch merged": (4, 1),
    "a later batch": (4, 2),
}


def arrange(moment: str) -> None:
    if moment in WRITTEN:
        around(GraphVersions, "write", lambda _, version, __: version.number == WRITTEN[moment], before=False)
    elif moment:
        wanted, count = RECORDED[moment]
        records: list[int] = []  # batches with that version

        def is_record(pipeline: RunningPipeline, report: BatchReport, *_: Any) -> bool:
            if report.version == wanted and report.batch not in records:
                records.append(report.batch)
            return report.version == wanted and len(records) == count

        around(RunningPipeline, "_record", is_record, before=True)


def await_version(pipeline: RunningPipeline, number: int) -> None:
    while pipeline.graph.version.number < number:
        assert pipeline.driver is not None and not pipeline.driver.await_end(0.02)


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
            assert [stream.reader_of for stream in running["two"].pipeline.streams] == ["", "s"]
        assert running["two"]._pipeline is pipeline
        await_version(pipeline, 2)
        if "three" not in running:
            text = f"CREATE SINK three INTO parquet('{directory}/three') AS {PAIRS} STARTING EARLIEST"
            running["three"] = db.sql(text)
        await_version(pipeline, 4)
        (counting,) = [o for o in graph_operators(db.queries) if o.kind == "IncrementalAggregate"]
        assert counting.queries == ["two", "three"]
        for file in sorted((directory / "later").iterdir()):
            file.rename(directory / "in" / file.name)
        (directory / "in" / "_END").touch()
        assert all(query.await_end(120) for query in running.values())
        print("ended", running["two"].start, pipeline.graph.version.number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
