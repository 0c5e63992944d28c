"""A program that adds a query over a table to a pipeline, drops another, changes the table, and dies at a moment. See
test_killed_tables.py.

python killed_table.py DIRECTORY [MOMENT]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from killed_graph import arrange

import strandline as sl

NAMES = "CREATE TABLE names (k BIGINT PRIMARY KEY, name VARCHAR)"
ROWS = "INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two')"
NAMED = (
    "SELECT name, count(*) AS n, sum(v) AS t FROM s WINDOW(RANGE 3 SECONDS) JOIN names ON s.k = names.k GROUP BY name"
)


def main(directory: Path, moment: str) -> None:
    arrange(moment)
    with sl.connect(checkpoint=directory / "checkpoint", shards=2, batch_rows=40) as db:
        db.sql(
            f"CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) "
            f"SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts"
        )
        db.sql(NAMES)
        # By the clock: for rows of long ago a change counts only where it was made before their query began.
        db.sql("UPDATE names SET name = 'changed'" if len(db.table("names")) else ROWS)
        running = {query.name: query for query in db.recover()}
        if not running:
            text = (
                f"CREATE SINK one INTO parquet('{directory}/one') AS SELECT name, v FROM s JOIN names ON s.k = names.k"
            )
            running["one"] = db.sql(text)
        pipeline = next(iter(running.values()))._pipeline
        if pipeline.graph.version.number == 0:
            while pipeline.last_batch < 3:
                time.sleep(0.02)
            running["two"] = db.sql(f"CREATE SINK two INTO parquet('{directory}/two') AS {NAMED} STARTING NOW")
            db.sql("INSERT INTO names VALUES (3, 'three')")
        if "one" in running and pipeline.graph.version.number == 1:
            while pipeline.last_batch < pipeline.graph.version.batch:
                time.sleep(0.02)
            running.pop("one").stop()
        assert [stream.reader_of for stream in running["two"].pipeline.streams] == ["", "names"]
        (directory / "in" / "_END").touch()
        assert running["two"].await_end(120)
        print("ended", running["two"]._pipeline.metrics.plan_of("two").since)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
