"""What is measured of a running plan, who may ask for it, and that nobody pays for what nobody asks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import strandline as sl
from strandline.core.errors import QueryError, StrandlineError
from strandline.core.lease import Lease
from strandline.core.table import TextTable
from strandline.core.temporal import FOREVER, SECOND
from strandline.database.database import Database
from strandline.database.introspection.system_tables import TABLES
from strandline.database.query import Query
from strandline.database.script import read_script
from strandline.logical.catalog import StreamStatistics
from strandline.runtime import edge_metrics as measuring
from strandline.runtime.checkpoint.verify import verify_chain
from strandline.runtime.edge_metrics import PRIMITIVES, EdgeMetrics, Measurements, Starts
from strandline.runtime.exchange import DRIVER, Message
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.sketches import SIZE, Sketch
from strandline.runtime.pipeline import RunningPipeline

CREATE = "CREATE STREAM a (k INT, s VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
GROUPED = "SELECT s, COUNT(*) AS n FROM a WINDOW(RANGE 5 SECONDS) WHERE k % 2 = 0 GROUP BY s"


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        database.sql(CREATE)
        yield database


def at(second: float) -> str:
    return f"2024-01-01 00:{int(second) // 60:02d}:{second % 60:09.6f}"


def give(database: Database, query: Query, rows: list[tuple[int, str, float]]) -> None:
    """Append rows and wait until the batch with them is over."""
    before, batches = query.heartbeats()["a"].rows, query.metrics()["batches"]
    database.append("a", [(k, s, at(second)) for k, s, second in rows])
    until(query, lambda: query.heartbeats()["a"].rows >= before + len(rows) and query.metrics()["batches"] > batches)


def until(query: Query, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        query.check()
        time.sleep(0.005)


ROWS = [(n, "abc"[n % 3], n / 2) for n in range(40)]


# ---- what costs nothing is always there ------------------------------------------------------------------------------


def test_operators_are_counted_in_every_batch(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    operators = query.statistics().operators
    found = {each.kind: each for each in operators}
    assert (found["Filter"].rows_in, found["Filter"].rows_out, found["Filter"].selectivity) == (40, 20, 0.5)
    assert found["IncrementalAggregate"].cpu_seconds > 0
    assert found["IncrementalAggregate"].state_rows > 0
    assert query.metrics()["cpu_seconds"] == pytest.approx(sum(o.cpu_seconds for o in operators))
    assert found["Filter"].cost_us == pytest.approx(found["Filter"].cpu_seconds * SECOND / 40)


def test_rows_that_were_dropped_do_not_enter_the_plan(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    metrics = query.pipeline_metrics
    metrics.statuses = {"a": replace(metrics.statuses["a"], dropped={"q1": 10, "other": 5})}
    found = {each.kind: each for each in query.statistics().operators}
    assert (found["Read"].rows_in, found["Read"].rows_out, found["Filter"].rows_in) == (40, 30, 30)


def test_seconds_are_counted_once_also_if_a_batch_comes_again(database: Database, tmp_path: Path) -> None:
    pipeline = database.sql(GROUPED).pipeline

    def resumed() -> RunningPipeline:
        return RunningPipeline(pipeline, chain=verify_chain(tmp_path, Lease.acquire(tmp_path, take_over=True)))

    def message(seconds: float) -> list[Message]:
        counts = {"passed": [1], "rows": [0], "bytes": [0], "seconds": [seconds]}
        return [Message("operators", "", DRIVER, facts={"f1": counts})]

    running = resumed()
    running.commit(0, message(1.0))
    running.commit(1, message(2.0))
    again = resumed()
    again.commit(1, message(4.0))
    counts = again.metrics.operators["f1"]
    assert (counts.seconds, counts.passed) == ([5.0], [2])


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_nothing_is_measured_for_nobody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(measuring.EdgeProfiler, "record", lambda self, edge, frame: looks.append(edge))
    query = database.sql(GROUPED)
    give(database, query, ROWS[:10])
    assert looks == []
    assert all(each.length is None for each in query.statistics().edges)
    with query.subscribe():
        give(database, query, ROWS[10:20])
    assert looks
    looks.clear()
    give(database, query, ROWS[20:])
    assert looks == []


def test_edges_are_described_as_chapter_22_does(database: Database) -> None:
    query = database.sql(GROUPED)
    query.subscribe()
    give(database, query, ROWS)
    edges = {each.begin: each for each in query.statistics().edges}
    source = edges["source:a"]
    assert source.rate == pytest.approx(2.0)  # a row every half second
    assert source.distance == pytest.approx(0.5)
    assert source.length == pytest.approx(1e-6)
    assert source.distinct == {"k": 40, "s": 3, "ts": 40}
    windowed = next(e for e in query.statistics().edges if e.begin == edges["f1.1"].end)
    assert windowed.length == pytest.approx(5.0)
    assert windowed.granule == 1.0  # every second row passes the filter
    assert windowed.distinct == {"a.s": 3}


def test_what_is_asked_for_is_the_sum_of_all_wishes(database: Database) -> None:
    query = database.sql(GROUPED)
    subscriptions = query.subscriptions
    assert subscriptions.requested_metrics() == ()
    one, two = query.subscribe(items=("rate", "distance", "cost")), query.subscribe(items=("rate", "length"))
    assert subscriptions.requested_metrics() == ("starts", "lengths")
    two.close()
    two.close()
    assert subscriptions.requested_metrics() == ("starts",)
    give(database, query, ROWS)
    edge = query.statistics().edges[0]
    assert (edge.rate, edge.length, edge.distinct) == (pytest.approx(2.0), None, {})
    one.close()
    assert subscriptions.requested_metrics() == ()


def test_many_subscribers_cost_one_pass(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[str, ...]] = []
    plain = EdgeMetrics.of
    monkeypatch.setattr(
        EdgeMetrics,
        "of",
        staticmethod(
            lambda frame, requested_metrics: passes.append(requested_metrics) or plain(frame, requested_metrics)
        ),
    )
    query = database.sql(GROUPED)
    for _ in range(5):
        query.subscribe(items=("length",))
    give(database, query, ROWS)
    fragments = query.pipeline.fragments
    steps = len(query.statistics().operators)
    assert set(passes) == {("lengths",)}
    assert len(passes) <= 1 + steps * max(2, len(fragments))  # the source, and each operator once in each bucket


def test_an_unknown_item_is_refused(database: Database) -> None:
    with pytest.raises(QueryError, match='unknown metric "speed"') as refused:
        database.sql(GROUPED).subscribe(items=("speed",))
    assert refused.value.code == "unknown-item"


def test_callbacks_hear_of_batches_now_and_then_and_of_the_last(database: Database) -> None:
    query = database.sql(GROUPED)
    often: list[int] = []
    seldom: list[int] = []
    query.subscribe(lambda found: often.append(found.operators[0].rows_in), every=0)
    query.subscribe(lambda found: seldom.append(found.operators[0].rows_in), every=3600)
    for start in range(0, 40, 10):
        give(database, query, ROWS[start : start + 10])
    database.end("a")
    query.await_end(30)
    assert often[:4] == [10, 20, 30, 40]
    assert seldom == [10, 40]


def test_a_callback_that_fails_does_not_stop_the_query(database: Database) -> None:
    query = database.sql(GROUPED)
    with pytest.warns(UserWarning, match="failed and was removed: ZeroDivisionError"):
        query.subscribe(lambda found: 1 / 0, every=0)
        give(database, query, ROWS[:10])
        until(query, lambda: query.subscriptions.requested_metrics() == ())
    give(database, query, ROWS[10:])
    assert query.is_running


def test_what_was_not_watched_for_a_while_begins_anew() -> None:
    first = Measurements().after(("starts",), {"e": EdgeMetrics(starts=Starts(11, 0, 10 * SECOND))})
    assert first.edges["e"].starts == Starts(11, 0, 10 * SECOND)
    unwatched = first.after((), {})
    assert unwatched.edges == first.edges
    later = unwatched.after(("starts",), {"e": EdgeMetrics(starts=Starts(3, 100 * SECOND, 101 * SECOND))})
    assert later.edges["e"].starts is not None
    assert later.edges["e"].starts.rate == 2.0


# ---- summaries are merged in any order -------------------------------------------------------------------------------


def random_frame(rows: int, seed: int) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    start = draw.integers(0, 1000, rows) * 250_000
    end = np.where(draw.random(rows) < 0.1, FOREVER, start + draw.integers(1, 40, rows) * 250_000)
    text = pl.Series(draw.integers(0, 50, rows)).cast(pl.String)
    values = pl.Series(draw.integers(0, 10**6, rows), dtype=pl.Int64).replace(3, None)
    return pl.DataFrame({"v": values, "s": text, FROM: start, UNTIL: end})


@pytest.mark.parametrize("cuts", [(), (1,), (100, 101, 900), tuple(range(50, 1000, 50))])
def test_an_edge_is_the_same_however_it_is_cut(cuts: tuple[int, ...]) -> None:
    frame = random_frame(1000, seed=5)
    whole = EdgeMetrics.of(frame, PRIMITIVES)
    parts = [frame[a:b] for a, b in zip((0, *cuts), (*cuts, 1000), strict=True)]
    merged = EdgeMetrics()
    for part in reversed(parts):
        merged = merged.merged(
            EdgeMetrics.from_json(json.loads(json.dumps(EdgeMetrics.of(part, PRIMITIVES).to_json())))
        )
    assert replace(merged, granules=None).to_json() == replace(whole, granules=None).to_json()
    assert whole.granules is not None and merged.granules is not None
    assert whole.granules.span == merged.granules.span == 250_000
    ending = frame.filter(pl.col(UNTIL) < FOREVER)
    assert whole.lengths is not None
    assert whole.lengths.mean == pytest.approx((ending[UNTIL] - ending[FROM]).mean() / SECOND)  # type: ignore[operator]


def test_a_window_that_slides_has_granules(database: Database) -> None:
    query = database.sql("SELECT k FROM a WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS)")
    query.subscribe(items=["granule"])
    give(database, query, ROWS)
    assert query.statistics().edges[-1].granule == 2.0
    assert query.statistics().edges[0].granule == 1e-6


@pytest.mark.parametrize("count", [0, 1, SIZE - 1, SIZE, 5_000, 200_000])
def test_sketches_count_values(count: int) -> None:
    values = pl.Series(np.arange(count) * 7, dtype=pl.Int64)
    twice = pl.concat([values, values.shuffle(seed=1), pl.Series([None], dtype=pl.Int64)])
    found = Sketch.of(twice).count
    assert found == count if count < SIZE else abs(found / count - 1) < 0.15


# ---- what is learned is kept -----------------------------------------------------------------------------------------

THREE = "; ".join(
    f"CREATE STREAM {name} (x INT, y INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts" for name in ("a", "b", "c")
)
CHAIN = """SELECT a.x FROM a WINDOW(RANGE 9 SECONDS) JOIN b WINDOW(RANGE 9 SECONDS) ON a.x = b.x
  JOIN c WINDOW(RANGE 9 SECONDS) ON b.y = c.y"""
SLOW_C = {"a": StreamStatistics(5000.0), "b": StreamStatistics(5000.0), "c": StreamStatistics(0.1)}


def test_rates_and_values_get_into_the_catalog(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    assert database.catalog.measured == {}  # too few rows to tell
    query.subscribe(items=["distinct"])
    give(database, query, [(n % 7, "d", 20 + n / 4) for n in range(200)])
    found = database.catalog.statistics()["a"]
    assert found.rate == pytest.approx(4.0, rel=0.1), "the last 200 rows come four per second"
    assert found.selectivities == {"CAST(k AS BIGINT) % 2 = 0": pytest.approx(134 / 240, abs=0.05)}
    assert found.values == {"k": 7, "s": 1, "ts": 200}
    query.stop()
    database.sql("DROP STREAM a")
    assert database.catalog.measured == {}


def test_what_is_declared_counts_for_more(database: Database) -> None:
    database.sql(CREATE.replace("STREAM a", "STREAM d") + " WITH (rate = 7, distinct(k) = 3)")
    database.catalog.measured["d"] = StreamStatistics(100.0, {"k": 50.0, "s": 60.0})
    assert database.catalog.statistics()["d"] == StreamStatistics(7.0, {"k": 3.0, "s": 60.0})


def test_a_stream_that_gets_faster_is_followed(database: Database) -> None:
    """A mean over all rows would be 19.8 per second. A plan over it is estimated again, from the bottom to the top."""
    query = database.sql(GROUPED)
    give(database, query, [(n, "x", n / 10) for n in range(1000)])
    assert database.catalog.statistics()["a"].rate == pytest.approx(10.0)
    before = query._running.expected()
    give(database, query, [(n, "x", 100 + n / 1000) for n in range(1000)])
    assert database.catalog.statistics()["a"].rate == pytest.approx(1000, rel=0.2)
    after = query._running.expected()
    assert all(after[step].rate_out > 10 * before[step].rate_out for step in before if step.startswith("f1"))


def test_the_length_of_batches_is_measured(database: Database) -> None:
    """Batches of ten seconds, then of one: shorter ones count at once."""
    query = database.sql(GROUPED)
    for number in range(4):
        give(database, query, [(n, "a", 10 * number + n / 10) for n in range(100)])
    assert database.catalog.measured["a"].batch_seconds == pytest.approx(10.0)
    for number in range(6):
        give(database, query, [(n, "a", 40 + number + n / 100) for n in range(100)])
    learned = database.catalog.measured["a"].batch_seconds
    assert learned is not None and 0.9 < learned < 1.5
    for number in range(3):  # a pause is one long batch, and no more
        give(database, query, [(n, "a", 50 + 4 * number + n / 100) for n in range(100)])
    assert database.catalog.measured["a"].batch_seconds == pytest.approx(learned, rel=0.6)


def test_a_figure_is_replaced_when_another_is_far_from_it(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, [(n, "x", n / 10) for n in range(200)])
    give(database, query, [(n, "x", 20 + n / 11) for n in range(500)])
    assert database.catalog.statistics()["a"].rate == pytest.approx(10.0)


def test_measured_selectivities_are_planned_with(database: Database) -> None:
    query = database.sql("SELECT k FROM a WHERE k > 100")
    give(database, query, [(n % 104, "x", n / 10) for n in range(1040)])
    other = database.sql("SELECT x.k FROM (SELECT b.k, b.s FROM a AS b) x WHERE x.k > 100")
    assert other._running.expected()["f1.0"].rate_out == pytest.approx(10 * 3 / 104, rel=0.01)


def test_the_length_of_intervals_is_declared_measured_or_assumed(database: Database) -> None:
    create = "CREATE STREAM i (k INT, f TIMESTAMP, u TIMESTAMP) SOURCE events() VALID FROM f UNTIL u"
    assumed = "assumed: i has 1,000 rows/s and rows that are valid for 60 s; declare it WITH (rate = …, length = …)"
    database.sql(create)
    assert assumed in str(database.sql("EXPLAIN SELECT COUNT(*) AS n FROM i"))
    query = database.sql("SELECT COUNT(*) AS n FROM i")
    with query.subscribe(items=["length"]):
        database.append("i", [(n, at(n / 10), at(n / 10 + 4)) for n in range(200)])
        until(query, lambda: query.heartbeats()["i"].rows == 200 and "i" in database.catalog.measured)
    assert database.catalog.statistics()["i"].length == pytest.approx(4.0)
    database.sql(create.replace("STREAM i", "STREAM j") + " WITH (rate = 10, length = 7.5)")
    assert database.catalog.statistics()["j"] == StreamStatistics(10.0, {}, 7.5)
    assert "assumed" not in str(database.sql("EXPLAIN SELECT COUNT(*) AS n FROM j"))
    with pytest.raises(StrandlineError, match="unknown hint"):
        database.sql(CREATE.replace("STREAM a", "STREAM l") + " WITH (length = 5)")


def test_what_was_learned_is_known_to_the_next_run(tmp_path: Path) -> None:
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(CREATE)
        query = database.sql(GROUPED)
        give(database, query, [(n, "x", n / 10) for n in range(200)])
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(CREATE)
        assert database.catalog.statistics()["a"].rate == pytest.approx(10.0)
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(CREATE.replace("k INT", "k BIGINT"))  # another stream of the same name
        assert database.catalog.statistics()["a"].rate is None


@pytest.mark.parametrize("content", ["", "[]", '{"a": 3}', '{"a": {"rate": 5}}', "\x00"])
def test_a_file_that_says_nothing_is_no_obstacle(tmp_path: Path, content: str) -> None:
    (tmp_path / "statistics.json").write_text(content)
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(CREATE)
        assert database.catalog.statistics()["a"] == StreamStatistics()


def test_a_restart_keeps_its_plan_whatever_was_learned_since(tmp_path: Path) -> None:
    def plan(measured: dict[str, StreamStatistics], name: str) -> str:
        with sl.connect(engine="local", checkpoint=tmp_path) as database:
            database.sql(THREE)
            database.catalog.measured.update(measured)
            query = database.sql(CHAIN, name=name)
            text = query.explain()
            assert isinstance(text, str)
            return text.replace(name, "query")

    first = plan({}, "one")
    assert plan(SLOW_C, "two") != first  # it makes a difference
    assert plan(SLOW_C, "one") == first
    assert plan({}, "two") != first


# ---- system tables -------------------------------------------------------------------------------------------------


def listed(database: Database, text: str) -> list[tuple[object, ...]]:
    listing = database.sql(text)
    assert isinstance(listing, TextTable)
    return [tuple(row.values()) for row in listing.table.to_pylist()]


def test_tables_without_rows_are_tables_all_the_same() -> None:
    with sl.connect(engine="local") as database:
        for name in TABLES:
            assert listed(database, f"SELECT * FROM {name}") == []
            assert listed(database, f"SELECT COUNT(*) AS n FROM {name}") == [(0,)]


def test_operators_are_a_table(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    text = "SELECT kind, rows_in, rows_out, selectivity FROM sys.operators WHERE query = 'q1' AND kind = 'Filter'"
    assert listed(database, text) == [("Filter", 40, 20, 0.5)]
    [(cost,)] = listed(database, "SELECT MIN(cpu_seconds * 1e6 / rows_in - us_per_row) AS x FROM sys.operators")
    assert cost == pytest.approx(0, abs=1e-9)
    held = listed(database, "SELECT SUM(state_rows) AS r, SUM(state_bytes) AS b FROM sys.operators")
    assert held == listed(database, "SELECT state_rows, state_bytes FROM sys.queries")
    assert held == [(query.metrics()["state_rows"], query.metrics()["state_bytes"])]


def test_streams_queries_edges_and_metrics_are_tables(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k FROM a")
    query = database.sql(GROUPED, name="counts")
    query.subscribe()
    give(database, query, ROWS)
    assert listed(
        database, "SELECT name, kind, rate_measured, rows_in, late, ended FROM sys.streams ORDER BY name"
    ) == [
        ("a", "source", 2.0, 40, 0, False),
        ("v", "view", None, None, None, None),
    ]
    assert listed(database, "SELECT name, state, reads, batches FROM sys.queries") == [("counts", "running", "a", 1)]
    edges = "SELECT rate, length, distinct_values FROM sys.edges WHERE source = 'source:a'"
    assert listed(database, edges) == [(2.0, pytest.approx(1e-6), "k 40, s 3, ts 40")]
    assert listed(database, "SELECT stream, value FROM sys.metrics WHERE name = 'rows_in'") == [("a", 40.0)]


def test_edges_say_how_their_elements_leave(database: Database) -> None:
    """A window is first in first out, its groups are not; the sink of this query takes changes."""
    query = database.sql("SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 1 SECOND) GROUP BY k", name="counts")
    give(database, query, ROWS)
    edges = """SELECT o.kind, e.form, e.pattern, e.state FROM sys.edges e JOIN sys.operators o ON o.step = e.source
      WHERE e.query = 'counts' ORDER BY o.step"""
    assert listed(database, edges) == [
        ("Project", "intervals", "MON", None),
        ("TimeWindow", "intervals", "WKS", "queue"),
        ("Reorder", "intervals", "WKS", "keyed + queue"),
        ("IncrementalAggregate", "changes", "STR", None),
        ("Project", "changes", "STR", None),
        ("Read", "intervals", "MON", None),
    ]


def test_the_whole_language_works_over_them(database: Database) -> None:
    first, second = database.sql(GROUPED), database.sql("SELECT k FROM a WINDOW(RANGE 1 SECOND) WHERE k > 3")
    give(database, first, ROWS)
    until(second, lambda: second.heartbeats()["a"].rows == 40)
    join = """SELECT q.name, COUNT(*) AS n FROM sys.queries AS q JOIN sys.operators o ON o.query = q.name
      GROUP BY q.name HAVING COUNT(*) > 1 ORDER BY n DESC"""
    assert [name for name, _ in listed(database, join)] == ["q1", "q2"]
    nested = (
        "SELECT name FROM sys.queries"
        " WHERE name IN (SELECT query FROM sys.operators WHERE kind = 'IncrementalAggregate')"
    )
    assert listed(database, nested) == [("q1",)]
    named = "WITH s AS (SELECT DISTINCT query FROM sys.edges) SELECT upper(query) AS name FROM s ORDER BY query DESC"
    assert listed(database, named) == [("Q2",), ("Q1",)]
    union = "SELECT name FROM sys.queries UNION SELECT name FROM sys.streams ORDER BY name LIMIT 2"
    assert listed(database, union) == [("a",), ("q1",)]


def test_rows_come_in_the_order_that_was_asked_for(database: Database) -> None:
    give(database, database.sql(GROUPED), ROWS)
    numbers = [n for (n,) in listed(database, "SELECT cpu_seconds FROM sys.operators ORDER BY cpu_seconds DESC")]
    assert numbers == sorted(numbers, reverse=True)  # type: ignore[type-var]
    by_hidden = [s for (s,) in listed(database, "SELECT step FROM sys.operators ORDER BY cpu_seconds DESC LIMIT 2")]
    both_shown = [s for s, _ in listed(database, "SELECT step, cpu_seconds FROM sys.operators ORDER BY 2 DESC LIMIT 2")]
    assert by_hidden == both_shown
    assert len(listed(database, "SELECT * FROM sys.metrics LIMIT 3")) == 3


@pytest.mark.parametrize(
    ("text", "code", "marked"),
    [
        ("SELECT * FROM sys.queries, a", "system-and-streams", "a"),
        ("SELECT k FROM a WHERE k IN (SELECT rows_in FROM sys.operators)", "system-and-streams", "a"),
        ("SELECT * FROM sys.nothing", "unknown-stream", "sys.nothing"),
        ("DESCRIBE sys.nothing", "unknown-stream", "sys.nothing"),
        ("SELECT * FROM other.queries", "not-supported", "other.queries"),
        ("SELECT * FROM sys.queries WINDOW(RANGE 1 SECOND)", "system-table", "WINDOW"),
        ("CREATE STREAM sys.mine (k INT) SOURCE rows((1))", "system-table", "sys.mine"),
        ('CREATE STREAM "sys.mine" (k INT) SOURCE rows((1))', "system-table", '"sys.mine"'),
        ("CREATE VIEW v AS SELECT * FROM sys.queries", "system-table", "sys.queries"),
        ("CREATE SINK v INTO console() AS SELECT * FROM sys.queries", "system-table", "sys.queries"),
        ("EXPLAIN SELECT * FROM sys.queries", "system-table", "sys.queries"),
    ],
)
def test_what_has_no_sense_is_refused_at_its_place(database: Database, text: str, code: str, marked: str) -> None:
    with pytest.raises(StrandlineError) as refused:
        database.sql(text)
    span = refused.value.span
    assert (refused.value.code, span and span.text[span.start : span.end]) == (code, marked)
    assert database.queries == []


def test_a_stream_may_be_called_sys(database: Database) -> None:
    database.sql("CREATE STREAM sys (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01')) ORDERED BY ts")
    query = database.sql("SELECT sys.k FROM sys")
    query.await_end()
    assert query.results().num_rows == 1
    assert listed(database, "SELECT name FROM sys.queries") == [("q1",)]


def test_scripts_print_the_tables_that_they_ask_for(database: Database) -> None:
    script = read_script(database, "SELECT k FROM a; SELECT name, kind FROM sys.streams")
    assert [query.name for query in script.queries] == ["q1"]
    assert script.outputs == ["name  kind\na     source"]


def test_tables_are_described(database: Database) -> None:
    facts = listed(database, "DESCRIBE sys.edges")
    assert facts[0] == ("kind", None, "system table")
    assert [name for _, name, _ in facts[1:]] == [name for name, _ in TABLES["sys.edges"].columns]


# ---- EXPLAIN ANALYZE -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    rate_out: float
    cost: float
    rows: float


def table_of(text: str) -> dict[str, list[str]]:
    """The lines of the plan by their operators, each with its figures."""
    lines = text.split("\n\n")[1].splitlines()
    return {cells[0].strip(): cells[1:] for line in lines if (cells := re.split(r"  +", line.strip()))}


def test_a_running_plan_is_shown_with_what_was_measured(database: Database) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    text = database.sql("EXPLAIN ANALYZE Q1")
    assert text == query.explain(analyze=True)
    assert text.startswith("q1, complete up to 2024-01-01 00:00:19.5: 40 rows in 19.5 s of stream time, ")
    table = table_of(text)
    assert table["operator"][:4] == ["rows in", "rows out", "share", "out/s"]
    assert table["Filter CAST(a.k AS BIGINT) % 2 = 0"][:4] == ["40", "20", "0.5", "1.03"]
    assert table["Read a"][:4] == ["40", "40", "1", "2.05"]
    aggregate = next(o for o in query.statistics().operators if o.kind == "IncrementalAggregate")
    *_, rows, _, size = table[aggregate.text]  # between them what was expected
    assert [rows, size] == [f"{aggregate.state_rows:,}", f"{aggregate.state_bytes:,}"]


def test_what_was_expected_stands_beside(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    query = database.sql(GROUPED)
    give(database, query, ROWS)
    step = next(o.step for o in query.statistics().operators if o.kind == "IncrementalAggregate")
    monkeypatch.setattr(RunningPipeline, "expected", lambda _: {step: Expected(12_345.6, 0.0789, 42.0)})
    head, *rows = query.explain(analyze=True).split("\n\n")[1].splitlines()
    line = next(row for row in rows if "IncrementalAggregate" in row)
    for name, figure in (("out/s", "12,346"), ("CPU ms/s", "78.9"), ("state rows", "42")):
        after = head.index("est.", head.index(name)) + len("est.")
        assert line[:after].split()[-1] == figure


def test_a_plan_before_its_first_row_is_shown_without_rates(database: Database) -> None:
    text = database.sql(GROUPED).explain(analyze=True)
    assert text.startswith("q1, complete up to no instant yet: 0 rows, 0 ms of CPU\n")
    assert table_of(text)["Read a"] == ["0", "0"]


def test_a_stream_that_is_read_twice_is_measured_once(database: Database) -> None:
    query = database.sql("SELECT x.k FROM a WINDOW(RANGE 1 SECOND) x JOIN a WINDOW(RANGE 1 SECOND) y ON x.k = y.k")
    give(database, query, ROWS)
    table = table_of(query.explain(analyze=True))
    assert table["Read a"][:2] == ["40", "40"]
    assert table["Read a, as above"] == []


def test_a_query_that_is_not_there_is_named(database: Database) -> None:
    with pytest.raises(QueryError) as refused:
        database.sql("EXPLAIN ANALYZE q1")
    assert (refused.value.code, refused.value.hint) == ("unknown-query", "No query was started.")
    database.sql(GROUPED, name="counts")
    with pytest.raises(QueryError) as refused:
        database.sql("EXPLAIN ANALYZE count")
    assert refused.value.hint == 'Did you mean "counts"?'
