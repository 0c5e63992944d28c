"""The paper's five queries on the engine. A unit of time is a second."""

from __future__ import annotations

from typing import Final

import numpy as np

from strandline.apps.papers.engine_runs import EngineFigures, RecordedStream, compare
from strandline.apps.papers.golab_ozsu.trace import Link, Trace
from strandline.core.temporal import SECOND
from strandline.core.types import BIGINT, VARCHAR

REPEAT: Final = 2  # the best counts; long runs are made once
LONG: Final = 200_000  # units
NAMES: Final = {"intervals": "DIRECT", "changes": "NT", "default": "UPA"}
BATCHES: Final = (
    (1_000, 20),
    (20_000, 2),
)  # units, and how many of them are measured; the second at the largest window
WINDOWS: Final = (2_000, 5_000, 20_000, 50_000, 200_000)

# Q3 is the paper's negation, which counts. Q5 has an anti join, with which both orders give the same result.
QUERIES: Final = {
    "Q1 ftp": "SELECT a.source FROM l1 {w} AS a JOIN l2 {w} AS b ON a.source = b.source "
    "WHERE a.protocol = 'ftp' AND b.protocol = 'ftp'",
    "Q1 telnet": "SELECT a.source FROM l1 {w} AS a JOIN l2 {w} AS b ON a.source = b.source "
    "WHERE a.protocol = 'telnet' AND b.protocol = 'telnet'",
    "Q2 sources": "SELECT DISTINCT source FROM l1 {w}",
    "Q2 pairs": "SELECT DISTINCT source, destination FROM l1 {w}",
    "Q3": "SELECT source FROM l1 {w} EXCEPT ALL SELECT source FROM l2 {w}",
    "Q4": "SELECT a.source FROM (SELECT DISTINCT source FROM l1 {w}) AS a "
    "JOIN (SELECT DISTINCT source FROM l2 {w}) AS b ON a.source = b.source",
    "Q5, negation up": "SELECT j.source FROM (SELECT a.source FROM l1 {w} AS a JOIN l3 {w} AS c "
    "ON a.source = c.source WHERE c.protocol = 'ftp') AS j ANTI JOIN l2 {w} AS b ON j.source = b.source",
    "Q5, join up": "SELECT n.source FROM (SELECT a.source FROM l1 {w} AS a ANTI JOIN l2 {w} AS b "
    "ON a.source = b.source) AS n JOIN l3 {w} AS c ON n.source = c.source WHERE c.protocol = 'ftp'",
}


def engine_units(window: int, batch: int, batches: int) -> int:
    """Windows are filled one and a half times, in ten batches each; then come the batches that are measured."""
    return window * 3 // 2 + batch * batches


def measure(
    trace: Trace, query: str, window: int, batch: int, batches: int, repeat: int = REPEAT
) -> dict[str, EngineFigures]:
    """Figures after the windows are full; the fastest of several runs of each strategy."""
    units, filled = engine_units(window, batch, batches), window * 3 // 2
    streams = [_stream(f"l{n}", link) for n, link in enumerate(trace.first(units).links, 1) if f"l{n} " in query]
    text = query.replace("{w}", f"WINDOW(RANGE {window} SECONDS)")
    step = max(1, window // 10)
    cuts = [*range(step, filled, step), filled, *range(filled + batch, units + 1, batch)]
    instants = [cut * SECOND for cut in cuts]
    return compare(text, streams, instants, filled * SECOND, repeat if units < LONG else 1)


def _stream(name: str, link: Link) -> RecordedStream:
    columns = {"source": BIGINT, "destination": BIGINT, "protocol": VARCHAR}
    rows = {"source": link.source, "destination": link.destination, "protocol": link.protocol.tolist()}
    return RecordedStream.make(name, columns, rows, np.arange(len(link)) * SECOND)
