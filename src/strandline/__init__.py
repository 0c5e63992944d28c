"""strandline: continuous SQL over data streams, exact at every instant, on Apache Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.errors import StrandlineError
from strandline.sinks import Callback, Console, Memory, Parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.engine import Database, EngineName

__version__ = "0.1.0"
__all__ = ["Callback", "Console", "Memory", "Parquet", "StrandlineError", "connect"]


def connect(
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    engine: EngineName = "spark",
    checkpoint: str | os.PathLike[str] | None = None,
    buckets: int | None = None,
    batch_rows: int = 1_000_000,
    config: Mapping[str, str] | None = None,
) -> Database:
    """Open a database of streams and continuous queries.

    Without arguments it starts an embedded Spark on this machine. `spark` is a session of yours (a cluster, say),
    `master` a URL for a session that we start, `engine="local"` the engine without Spark. `checkpoint` is a directory
    that all executors see; queries then survive a restart. `buckets` is the parallelism of state, `batch_rows` about
    how many rows a stream contributes to one micro-batch.
    """
    from strandline.engine import Database

    return Database(
        spark=spark,
        master=master,
        engine=engine,
        checkpoint=checkpoint,
        buckets=buckets,
        batch_rows=batch_rows,
        config=config,
    )
