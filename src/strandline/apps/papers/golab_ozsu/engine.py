"""The paper's five queries on the engine. A unit of time is a second."""

from __future__ import annotations

from typing import Final

import numpy as np

from strandline.apps.papers.engine_runs import EngineFigures, Recorded, run
from strandline.apps.papers.golab_ozsu.trace import Link, Trace
from strandline.core.temporal import SECOND
from strandline.core.types import BIGINT, VARCHAR

BATCH: Final = 1_000  # units
BATCHES: Final = 20  # that are measured, at least

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


def engine_units(window: int) -> int:
    return window + max(window, BATCHES * BATCH)


def measure(trace: Trace, query: str, window: int, strategy: str, batch: int = BATCH) -> EngineFigures:
    """Figures after the windows are full."""
    units = min(trace.units, window + max(window, BATCHES * batch))
    streams = [_stream(f"l{n}", link) for n, link in enumerate(trace.first(units).links, 1) if f"l{n} " in query]
    text = query.replace("{w}", f"WINDOW(RANGE {window} SECONDS)")
    cuts = [min(cut, units) * SECOND for cut in range(batch, units + batch, batch)]
    return run(text, streams, strategy, cuts, window * SECOND)


def _stream(name: str, link: Link) -> Recorded:
    columns = {"source": BIGINT, "destination": BIGINT, "protocol": VARCHAR}
    rows = {"source": link.source, "destination": link.destination, "protocol": link.protocol.tolist()}
    return Recorded.make(name, columns, rows, np.arange(len(link)) * SECOND)
