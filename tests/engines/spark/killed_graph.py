"""A program that adds a query to a pipeline and drops another, and dies at a moment that is named. See
test_graph_changes.py.

python killed_graph.py DIRECTORY QUERIES [MOMENT]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import strandline as sl
from strandline.engines.spark.pipeline import SparkRun
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.versions import GraphVersions
from strandline.runtime.pipeline import RunningPipeline

PAIRS = "SELECT k, count(*) AS n, sum(v) AS t FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k"
JOIN = "SELECT s.k, s.v, t.v AS w FROM s WINDOW(RANGE {0}) JOIN t WINDOW(RANGE {0}) ON s.k = t.k"
# What runs, and what is added.
QUERIES = {
    "apart": ("SELECT k, v FROM s", PAIRS),
    "join": (JOIN.format("500 MILLISECONDS"), f"{JOIN.format('2 SECONDS')} WHERE s.v > 30"),
}


last_batch: list[int] = []  # of the query that is dropped


def die(*_: Any) -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def around(owner: type, name: str, condition: Callable[..., bool], *, before: bool) -> None:
    """Die before or after a call for which the condition holds."""
    method = getattr(owner, name)

    def patched(self: Any, *arguments: Any) -> Any:
        if before and condition(self, *arguments):
            die()
        result = method(self, *arguments)
        if condition(self, *arguments):
            die()
        return result

    setattr(owner, name, patched)


def arrange(moment: str) -> None:
    match moment:
        case "version":  # it is stored, and no offset names it
            around(GraphVersions, "write", lambda _, version, __: version.number == 1, before=False)
        case "first batch":
            around(RunningPipeline, "_record", lambda _, report, __: report.version == 1, before=True)
        case "rewiring":
            start, runs = SparkRun._start, []

            def again(self: SparkRun) -> Any:
                runs.append(self)
                return die() if len(runs) > 1 else start(self)

            SparkRun._start = again  # type: ignore[method-assign]
        case "last batch":  # of the query that is dropped: it is held until that was asked for

            def is_stopping(pipeline: RunningPipeline, report: BatchReport, *_: Any) -> bool:
                if not last_batch or report.batch < last_batch[0]:
                    return False
                while not pipeline.graph._changing:
                    time.sleep(0.01)
                return True

            around(RunningPipeline, "_record", is_stopping, before=True)
        case "drop":
            around(GraphVersions, "write", lambda _, version, __: version.number == 2, before=False)


def main(directory: Path, queries: str, moment: str) -> None:
    arrange(moment)
    with sl.connect(checkpoint=directory / "checkpoint", shards=2, batch_rows=40) as db:
        for stream in ("s", "t"):
            db.sql(
                f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts TIMESTAMP) "
                f"SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts"
            )
        one, two = QUERIES[queries]
        running = {query.name: query for query in db.recover()}
        if not running:
            running["one"] = db.sql(f"CREATE SINK one INTO parquet('{directory}/one') AS {one}")
        pipeline = next(iter(running.values()))._pipeline
        if pipeline.graph.version.number == 0:
            while pipeline.last_batch < 3:
                time.sleep(0.02)
            running["two"] = db.sql(f"CREATE SINK two INTO parquet('{directory}/two') AS {two} STARTING NOW")
        if "one" in running and pipeline.graph.version.number == 1:
            reached = pipeline.last_batch + 3
            last_batch.append(reached)
            while pipeline.last_batch < reached and not pipeline.ended:
                time.sleep(0.02)
            stopping = threading.Thread(target=running.pop("one").stop)
            stopping.start()
            stopping.join()
        (directory / "in" / "_END").touch()
        assert running["two"].await_end(120)
        print("ended", running["two"]._pipeline.metrics.plan_of("two").since)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
