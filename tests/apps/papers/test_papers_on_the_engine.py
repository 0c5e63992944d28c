"""The queries of the papers on the engine: every strategy has the same result, and it is the one of the models."""

from __future__ import annotations

from collections import Counter
from functools import cache

import polars as pl
import pytest

from strandline.apps.bench.form_strategies import STRATEGIES
from strandline.apps.bench.generated_streams import START
from strandline.apps.papers.engine_runs import RecordedStream, make_pipelines, run
from strandline.apps.papers.golab_ozsu import engine as update_patterns
from strandline.apps.papers.golab_ozsu.queries import LinkWindows
from strandline.apps.papers.golab_ozsu.results import Elements, distinct, join, negate
from strandline.apps.papers.golab_ozsu.trace import Trace, generate
from strandline.apps.papers.kraemer_pna import queries as signs
from strandline.apps.papers.kraemer_pna.auction_streams import generate_auctions
from strandline.core.temporal import OPEN, SECOND
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import numbered
from strandline.runtime.kernels.batch import FROM, UNTIL

WINDOW, UNITS = 60, 200


def elements(query: str, streams: list[RecordedStream], strategy: str, cuts: list[int]) -> pl.DataFrame:
    """All elements of a result with their ends, in microseconds after the start."""
    frames: list[pl.DataFrame] = []
    run(make_pipelines(query, streams, cuts, 0)[strategy], streams, cuts, 0, frames.append)
    rows = pl.concat([frame for frame in frames if frame.height])
    return rows.filter(pl.col(UNTIL) < OPEN).with_columns(pl.col(FROM) - START, pl.col(UNTIL) - START)


def snapshot(rows: pl.DataFrame, instant: int) -> Counter[tuple[object, ...]]:
    there = rows.filter((pl.col(FROM) <= instant) & (pl.col(UNTIL) > instant))
    return Counter(there.select(pl.exclude(FROM, UNTIL)).rows())


@cache
def small_trace() -> Trace:
    trace = generate(UNITS, seed=3)
    # A few sources, so that small windows join and subtract; more ftp than there is.
    links = []
    for link in trace.links:
        protocol = link.protocol.copy()
        protocol[::3], protocol[1::3] = "ftp", "telnet"
        links.append(type(link)(link.source % 7, link.destination, protocol))
    return Trace("small", tuple(links))


def run_small(name: str, strategy: str, batch: int) -> pl.DataFrame:
    streams = [update_patterns._stream(f"l{n}", link) for n, link in enumerate(small_trace().links, 1)]
    query = update_patterns.QUERIES[name].replace("{w}", f"WINDOW(RANGE {WINDOW} SECONDS)")
    read = [made for made in streams if f"{made.name} " in query]
    cuts = [cut * SECOND for cut in (*range(batch, UNITS, batch), UNITS)]
    return elements(query, read, strategy, cuts)


@pytest.mark.parametrize("name", update_patterns.QUERIES)
@pytest.mark.parametrize("batch", [7, 90])
def test_every_strategy_has_the_same_snapshots(name: str, batch: int) -> None:
    found = [run_small(name, strategy, batch) for strategy in STRATEGIES]
    for instant in range(0, (UNITS + WINDOW) * SECOND, 9 * SECOND + SECOND // 2):
        first, *others = [snapshot(rows, instant) for rows in found]
        assert all(other == first for other in others)
    assert found[0].height > 0


def test_the_model_holds_what_the_engine_returns() -> None:
    """At the end of every unit: joins, distinct values and the negation that counts."""
    setting = LinkWindows(small_trace(), WINDOW, links=2)
    setting.units = UNITS
    setting.links = small_trace().links[:2]
    left, right = setting.link(0), setting.link(1)
    model: dict[str, Elements] = {
        "Q1 ftp": join(setting.protocol(0, "ftp"), setting.protocol(1, "ftp")),
        "Q2 sources": distinct(left).output,
        "Q3": negate(left, right).result,
        "Q4": join(distinct(left).output, distinct(right).output),
    }
    for name, held in model.items():
        rows = run_small(name, "default", 13)
        for unit in range(0, UNITS, 3):
            time = 2 * unit + 1
            there = (held.start <= time) & (time < held.end)
            expected = Counter((key,) for key in held.key[there].tolist())
            assert snapshot(rows, unit * SECOND) == expected, (name, unit)


@pytest.mark.parametrize("name", signs.QUERIES)
def test_signs_and_intervals_have_the_same_result_on_auctions(name: str) -> None:
    auctions = generate_auctions(0.002)
    query = signs.QUERIES[name]
    streams = [made for made in auctions.streams if made.name in query]
    last = int(max(made.instants[-1] for made in auctions.streams))
    cuts = [*auctions.bid.instants[50::50].tolist(), last + 1]
    found = [elements(query, streams, strategy, cuts) for strategy in STRATEGIES]
    assert found[0].height > 0
    instants = found[0][FROM].sample(60, seed=1, with_replacement=True).to_list()
    for instant in (*instants, last // 2, last // 3):
        first, *others = [snapshot(rows, instant) for rows in found]
        assert all(other == first for other in others)


def test_the_nested_loops_join_has_no_keys() -> None:
    streams = generate_auctions(0.001).streams
    for name, keys in (("Q3 short auctions, hash", 1), ("Q3 short auctions, nested loops", 0)):
        pipeline = make_pipelines(signs.QUERIES[name], streams, [SECOND], 0)["intervals"]
        nodes = [node for fragment in pipeline.fragments for node in numbered(fragment.root)]
        assert [len(node.left_keys) for node in nodes if isinstance(node, physical.HashJoin)] == [keys]


def test_a_count_window_has_a_result_at_once() -> None:
    first = signs.count_window_latency(100)
    assert first.end_known == 2.0 and set(first.engine.values()) == {0.0}
