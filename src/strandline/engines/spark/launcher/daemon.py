"""Parent of Spark's Python workers: imports the heavy packages once, so that forked workers start warm.

Spark runs this module with `pyspark.worker` as its argument (`spark.python.daemon.module`) and requests workers from
it. PySpark's own daemon forks first and imports after, so every worker pays for its imports, and its collector walks
through all of them after every task. The processes that plan a Python data source are no workers: Spark starts them
itself, in local mode through `zygote.py`.

Law for what may happen before the fork: import, never compute. A thread pool that exists in the parent exists in name
only in a child, and the child waits for it without end. Polars makes its pool at the first computation; OpenMP and
OpenBLAS make theirs at import if they may have more than one thread. So the session puts `THREAD_LIMITS` into the
environment in which this process starts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Final

THREAD_LIMITS: Final = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Spark runs one worker per core; a worker with threads of its own would only compete with its neighbours."""

MEMORY_SETTINGS: Final = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "2147483648"}
"""Array code allocates and frees a few megabytes at a time. By default the C library returns each block to the system,
which then clears it again for the next one: a quarter of the CPU time of an aggregation."""

SAFE_PATH: Final = {"PYTHONSAFEPATH": "1"}
"""`python -m` puts the working directory before the standard library: a `json.py` that lies there would run in every
process of Spark's. With this Python does not."""

IMPORT_PATH: Final = "STRANDLINE_IMPORT_PATH"
"""Path of the user's modules on the driver. Workers append it: imports of a function are found, and nothing is
shadowed."""

OWN_WORKER: Final = "strandline.engines.spark.worker"
_HEAVY: Final = ("pyspark.worker", "numpy", "pyarrow", "pyarrow.compute", "pandas", "polars", "numba")


def preload() -> None:
    """Import the modules of tasks, and load compiled loops.

    That our own worker module is missing is no error; that it cannot be imported is one.
    """
    for name in _HEAVY:
        importlib.import_module(name)
    try:
        importlib.import_module(OWN_WORKER)
    except ModuleNotFoundError as missing:
        if missing.name != OWN_WORKER:
            raise
        return
    from strandline.runtime.kernels.compiled import load_all

    load_all()


def main() -> None:
    """Import, then serve forks until Spark closes our standard input."""
    sys.path += [path for path in os.environ.get(IMPORT_PATH, "").split(os.pathsep) if path and path not in sys.path]
    # Standard output carries the protocol with Spark; a package that greets the world must not speak there.
    with contextlib.redirect_stdout(sys.stderr):
        preload()
    # PySpark collects garbage after every task. Frozen objects are not traversed again: the collection takes well under
    # a millisecond instead of tens, and the pages that parent and workers share stay shared.
    gc.collect()
    gc.freeze()

    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
