"""strandline: continuous SQL over data streams, exact at every instant, on Apache Spark."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.core.arguments import checked
from strandline.core.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.connectors.sinks import (
        Callback,
        Console,
        Delta,
        Kafka,
        Memory,
        Parquet,
        PostgreSQL,
        SQLite,
        Webhook,
    )
    from strandline.core.security.allow import Allow
    from strandline.core.security.secret import secret
    from strandline.database.database import Database, EngineName
    from strandline.runtime.scheduling.policies import PolicyName
    from strandline.runtime.scheduling.strategies import StrategyName
    from strandline.runtime.stored_results import read

__version__ = "0.1.0"
__all__ = [
    "Allow",
    "Callback",
    "Console",
    "Delta",
    "Kafka",
    "Memory",
    "Parquet",
    "PostgreSQL",
    "SQLite",
    "StrandlineError",
    "Webhook",
    "connect",
    "read",
    "secret",
]

# The package prints nothing in a program that does not ask for it.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import sinks on first use: Spark's source process imports this package, too (engines/spark/source.py)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = {
        "Allow": "strandline.core.security.allow",
        "read": "strandline.runtime.stored_results",
        "secret": "strandline.core.security.secret",
    }
    return getattr(importlib.import_module(modules.get(name, "strandline.connectors.sinks")), name)


@checked()
def connect(
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    engine: EngineName = "spark",
    checkpoint: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    buckets: int | None = None,
    batch_rows: int = 1_000_000,
    batch_seconds: float | None = None,
    policy: PolicyName = "Greedy",
    strategy: StrategyName | None = None,
    keep: int | None = 1_000_000,
    shedding: float | None = None,
    capacity: float | None = None,
    config: Mapping[str, str] | None = None,
    take_over: bool = False,
    allow: Allow | None = None,
    tables: str | os.PathLike[str] | None = None,
) -> Database:
    """Open a database of streams and continuous queries.

    Without arguments it starts an embedded Spark on this machine. `spark` is a session of yours (a cluster, say),
    `master` a URL for a session that we start, `engine="local"` the engine without Spark. `checkpoint` is a directory
    that all executors see; queries on Spark then survive a restart. `shards` (or `buckets`) is the parallelism of
    state, `batch_rows` about how many rows a stream contributes to one micro-batch. With `batch_seconds` a batch takes
    about so long at most: what the joins that queries share cannot do meanwhile waits, so that large windows are late
    in a burst and small ones are not; `policy` is its order ("Greedy", "SWF", "LWO" or "rate"). With a `strategy`
    ("fifo", "round-robin" or "chain") other operators put off input, too, in that order. `keep` is how many
    elements of each result stay in memory where no sink is given; None keeps all of them. `shedding` is the fraction of
    a stream's rows that queries may drop when overloaded (1.0 for as many as it takes) unless they declare it with
    ALLOW SHEDDING, `capacity` the fraction of the machine that they may use. `take_over` resumes checkpoints that
    another run seems to write: that run then stops. `allow` confines what SQL may reach to given directories, hosts,
    connectors, functions and secrets; without it, everything that the process can reach (docs/security.md). `tables` is
    the directory of the tables, if it is not to be in the checkpoint; without either they are gone with the program.

    The environment variable STRANDLINE_LOG, a level or `level:file`, enables a log (docs/howto.md).
    """
    from strandline.core.log import start_log_once
    from strandline.database.database import Database

    start_log_once()
    return Database(
        spark=spark,
        master=master,
        engine=engine,
        checkpoint=checkpoint,
        shards=buckets if shards is None else shards,
        batch_rows=batch_rows,
        batch_seconds=batch_seconds,
        policy=policy,
        strategy=strategy,
        keep=keep,
        shedding=shedding,
        capacity=capacity,
        config=config,
        take_over=take_over,
        allow=allow,
        tables=tables,
    )
