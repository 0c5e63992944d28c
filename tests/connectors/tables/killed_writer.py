"""A process that changes a table from several threads until it is killed; says on its output what has returned.

The table has two rows for each counter, `(2n, value)` and `(2n + 1, value)`, which one statement changes together: a
torn statement would leave them different.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from table_model import frame, table_in

from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.statements import InsertRows
from strandline.connectors.tables.store import TableStore, open_table

THREADS = 4
_writing = threading.Lock()


def say(line: str) -> None:
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def change(store: TableStore, counter: int, value: int) -> None:
    while True:
        value += 1
        say(f"try {counter} {value}")
        rows = frame((2 * counter, value, "x" * (value % 50)), (2 * counter + 1, value, None))
        committed = store.commit(InsertRows(rows, "update"), mark=f"{counter} {value}" if value % 5 == 0 else None)
        assert not committed.repeated
        say(f"done {counter} {value} {committed.at}")


def promise(store: TableStore) -> None:
    while True:
        reach, promised = store.promise(0)
        say(f"promise {reach} {promised}")
        time.sleep(0.002)


def main(directory: str, *values: str) -> None:
    table_log.SEGMENT_BYTES = 40_000  # type: ignore[misc]
    store = open_table(table_in(Path(directory)))
    threads = [threading.Thread(target=change, args=(store, n, int(v)), daemon=True) for n, v in enumerate(values)]
    threads.append(threading.Thread(target=promise, args=(store,), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
