"""Drop boxes lose the rows that they say and no others; the controller keeps up with as few losses as it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.core.temporal import BEFORE_ALL
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.engines.local import LocalRun
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.offsets import SourceOffset
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import from_result
from strandline.runtime.watermark import SourceStatus
from strandline.shedding.controller import SheddableQuery, SheddingController
from strandline.shedding.load_model import SheddingModel
from strandline.shedding.sampler import RateHistory, drop, kept_share, rate_history_from, with_setting
from support import (
    Answer,
    Arrivals,
    Cuts,
    MemorySource,
    arrivals,
    assert_exact,
    bind,
    cuts,
    elements_of,
    examples,
)

COLUMNS = {"k": VARCHAR, "x": BIGINT}


# ---- drop boxes ------------------------------------------------------------------------------------------------------


def numbers(count: int) -> pl.DataFrame:
    return pl.DataFrame({"x": np.arange(count), "k": [f"k{n % 7}" for n in range(count)]})


def test_a_box_keeps_about_its_share_and_who_keeps_less_keeps_a_part_of_it() -> None:
    rows = numbers(20_000)
    kept, dropped = drop(rows, "s", {"little": 0.1, "most": 0.75, "all": 1.0})
    assert set(kept) == {"little", "most"}
    assert abs(kept["little"].height / 20_000 - 0.1) < 0.01 and abs(kept["most"].height / 20_000 - 0.75) < 0.015
    assert dropped == {name: 20_000 - frame.height for name, frame in kept.items()}
    assert set(kept["little"]["x"]) <= set(kept["most"]["x"])


def test_the_same_rows_are_dropped_however_they_come() -> None:
    rows = numbers(3_000)
    whole = drop(rows, "s", {"q": 0.4})[0]["q"]
    parts = [drop(rows.slice(at, 700), "s", {"q": 0.4})[0]["q"] for at in range(0, 3_000, 700)]
    assert pl.concat(parts).equals(whole)
    backwards = drop(rows.reverse().select("k", "x"), "s", {"q": 0.4})[0]["q"]
    assert backwards.reverse().select("x", "k").equals(whole)


def test_streams_lose_rows_independently_of_each_other() -> None:
    rows = numbers(20_000)
    one, two = (set(drop(rows, name, {"q": 0.5})[0]["q"]["x"]) for name in ("one", "two"))
    assert abs(len(one & two) / 20_000 - 0.25) < 0.015


@dataclass
class Script:
    """Drop boxes that stand as it is written, batch after batch."""

    settings: list[dict[str, float]]
    decided: list[dict[str, float]] = field(default_factory=list)

    def observe(self, now: float, rows: Mapping[str, int], left: Mapping[str, int | None]) -> None:
        return

    def is_too_early(self, now: float) -> bool:
        return False

    def max_rows(self, stream: str) -> float:
        return 10**9

    def decide(self, now: float) -> dict[str, tuple[tuple[str, float], ...]]:
        sampling_rates = self.settings.pop(0) if self.settings else {}
        self.decided.append(sampling_rates)
        return {
            stream: (("q", sampling_rate),) for stream, sampling_rate in sampling_rates.items() if sampling_rate < 1.0
        }


def frame_of(source: MemorySource, number: int) -> pl.DataFrame:
    return pl.concat([chunk.rows for chunk in source.read(number, number + 1, frozenset())])


QUERIES = (
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM a [RANGE 5 MICROSECONDS] GROUP BY k",
    "SELECT a.x, b.x AS y FROM a [RANGE 4 MICROSECONDS], b [RANGE 6 MICROSECONDS] WHERE a.k = b.k",
    "SELECT k FROM a WHERE x > 0",
    "SELECT DISTINCT k FROM a [ROWS 3] UNION ALL SELECT k FROM b [RANGE 3 MICROSECONDS]",
)
sampling_rates = st.fixed_dictionaries({"a": st.sampled_from((1.0, 0.6, 0.2)), "b": st.sampled_from((1.0, 0.5, 0.0))})


@settings(max_examples=examples(80))
@given(
    st.sampled_from(QUERIES),
    arrivals("a", COLUMNS),
    arrivals("b", COLUMNS),
    cuts(2),
    st.lists(sampling_rates, max_size=5),
)
def test_the_answer_is_that_of_the_rows_that_are_kept(
    text: str, one: Arrivals, two: Arrivals, cut: Cuts, script: list[dict[str, float]]
) -> None:
    streams = [one, two]
    plan = bind(text, streams)
    pipeline = lower("q", optimize(plan), [s.declared for s in streams], cut.shards, sheds=True)
    answer = Answer()
    told: list[float] = []
    columns = (*schema(plan), pipeline.queries[0].columns[-1])
    sizes = dict(zip(("a", "b"), cut.sizes, strict=False))
    sources = {
        s.name: MemorySource(s, sizes.get(s.name, ())) for s in streams if s.name in {p.name for p in pipeline.streams}
    }
    shedding_controller: Any = Script(list(script))
    running = RunningPipeline(pipeline, shedding_controller=shedding_controller)
    run = LocalRun(running, sources=sources, tasks=cut.shards * len(sources))
    kept: dict[str, list[int]] = {name: [] for name in sources}
    while not running.ended:
        before = run.positions
        if (report := run.step()) is None:
            continue
        for table in report.results.get("q", ()):
            frame = from_result(table, columns)
            told.extend(frame["kept_share"].to_list())
            answer.elements += elements_of(frame.drop("kept_share"))
        for name, source in sources.items():
            sampling_rate = {"q": shedding_controller.decided[-1].get(name, 1.0)}
            for number in range(before[name].at, run.positions[name].at):
                if drop(frame_of(source, number), name, sampling_rate)[0].get("q", pl.DataFrame({"": [1]})).height:
                    kept[name].append(number)
    streams_kept = {
        s.name: [s.elements[number] for number in kept[s.name]] if s.name in kept else list(s.elements) for s in streams
    }
    assert_exact(plan, streams_kept, answer)
    assert all(0.0 <= sampling_rate <= 1.0 for sampling_rate in told)
    for name, left in kept.items():
        assert running.metrics.statuses[name].dropped.get("q", 0) == len(sources[name].elements) - len(left)


# ---- what results tell -----------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from((0.1, 0.5, 1.0))), max_size=5),
    st.sampled_from((0, 1, 7, 30, None)),
)
def test_the_share_of_a_window_is_the_mean_over_its_instants(
    changes: list[tuple[int, float]], length: int | None
) -> None:
    kept: RateHistory = ()
    for since, sampling_rate in sorted(changes):
        kept = with_setting(kept, since, (("q", sampling_rate),))
    at = np.arange(0, 60)
    found = kept_share(kept, "q", length, at, origin=0)

    def share_at(instant: int) -> float:
        resume_point = [dict(sampling_rates)["q"] for since, sampling_rates in kept if since < instant]
        return resume_point[-1] if resume_point else 1.0

    for t in at.tolist():
        first = t if length == 0 else 0 if length is None else max(0, t + 1 - length)
        assert found[t] == pytest.approx(np.mean([share_at(i) for i in range(first, t + 1)]))


def test_a_query_that_has_no_box_keeps_all() -> None:
    kept: RateHistory = ((BEFORE_ALL, (("other", 0.5),)),)
    assert kept_share(kept, "q", 10, np.arange(5), 0).tolist() == [1.0] * 5


def test_settings_survive_the_log() -> None:
    kept = ((5, (("q", 0.25),)), (9, ()))
    status = SourceStatus("s", rate_history=kept, dropped={"q": 7})
    assert (
        SourceStatus.from_json(status.to_json()) == status and rate_history_from([list(each) for each in kept]) == kept
    )
    position = SourceOffset(4, sampling_rates=(("q", 0.5),))
    assert SourceOffset.from_json(position.to_json()) == position


# ---- scaled aggregates -----------------------------------------------------------------------------------------------


def test_what_was_dropped_is_counted_for() -> None:
    rows = 40_000
    with sl.connect(engine="local", batch_rows=5_000) as db:
        db.sql(
            f"""CREATE STREAM s (key BIGINT, value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 1000,
            total => {rows}, pace => false, keys => 4, start => '2026-01-01') ORDERED BY ts"""
        )
        text = """SELECT COUNT(*) AS left_over, SCALED_COUNT(*), COUNT_ERROR(*), SCALED_SUM(value), SUM_ERROR(value),
            SCALED_COUNT(*) FILTER (WHERE key = 1) AS ones FROM s [RANGE UNBOUNDED] ALLOW SHEDDING"""
        query = _with_script(db, text, {"s": 0.3})
        assert query.await_end(30)
        row = query.snapshot(form="polars").row(0, named=True)
    assert row["left_over"] < 0.35 * rows
    assert abs(row["scaled_count"] - rows) <= 2 * row["count_error"] < 0.05 * rows
    total = rows * (rows - 1) / 2
    assert abs(row["scaled_sum"] - total) <= 2 * row["sum_error"] < 0.05 * total
    assert abs(row["ones"] - rows / 4) < 0.1 * rows / 4
    assert row["kept_share"] == pytest.approx(0.3, abs=0.01)


def _with_script(db: Database, text: str, sampling_rate: dict[str, float]) -> Query:
    """A query whose drop boxes stand at these shares from the first row on."""
    with mock.patch("strandline.database.database.make_shedding_controller", lambda *_, **__: Always(sampling_rate)):
        query = db.sql(text)
    assert isinstance(query, Query)
    return query


class Always(Script):
    def __init__(self, sampling_rate: dict[str, float]) -> None:
        super().__init__([])
        self.sampling_rate = sampling_rate

    def decide(self, now: float) -> dict[str, tuple[tuple[str, float], ...]]:
        return {stream: (("q1", sampling_rate),) for stream, sampling_rate in self.sampling_rate.items()}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT COUNT_ERROR(*) FROM s a [ROWS 2], s b [ROWS 2]", "error-over-join"),
        ("SELECT SCALED_SUM(*) FROM s", "function-arguments"),
        ("SELECT SCALED_COUNT(DISTINCT x) FROM s", "scaled-distinct"),
        ("SELECT SCALED_COUNT(*) FROM (SELECT * FROM s) t", "scaled-over-query"),
        ("SELECT SCALED_COUNT(*) FROM v", "scaled-over-query"),
        ("SELECT x AS kept_share FROM s ALLOW SHEDDING", "duplicate-column"),
        ("SELECT x FROM s ALLOW SHEDDING UP TO 0 PERCENT", "out-of-range"),
        ("SELECT x FROM s ALLOW SHEDDING UP TO 40", "syntax"),
        ("SET CAPACITY 120 PERCENT", "out-of-range"),
        ("SET SPEED 3 PERCENT", "syntax"),
    ],
)
def test_what_cannot_be_is_refused(text: str, code: str) -> None:
    with sl.connect(engine="local") as db:
        db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE rows((1, '2026-01-01')) ORDERED BY ts")
        db.sql("CREATE VIEW v AS SELECT x FROM s")
        with pytest.raises(StrandlineError) as refused:
            db.sql(text)
        assert refused.value.code == code


# ---- the controller, in a world that one can count -------------------------------------------------------------------


class World:
    """Streams that arrive, and a machine that takes so long for their rows, in simulated time."""

    def __init__(self, text: str, rates: dict[str, float], speed: float, allowed: float, capacity: float | None = None):
        streams = [Arrivals(name, (*COLUMNS.items(), ("ts", TIMESTAMP)), ()) for name in rates]
        self.model = SheddingModel(optimize(bind(text, streams)), {})
        self.rates, self.speed = rates, speed
        self.now = 0.0
        self.arrived = dict.fromkeys(rates, 0.0)
        self.taken = dict.fromkeys(rates, 0)
        self.shedding_controller = SheddingController(
            {"q": SheddableQuery(self.model, 1.0 - allowed)}, capacity, False, 0.05
        )
        self.lags: list[float] = []
        self.kept: list[dict[str, float]] = []
        self.busy = 0.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for name, rate in self.rates.items():
            self.arrived[name] += seconds * rate

    def run(self, until: float) -> None:
        while self.now < until:
            if self.shedding_controller.is_too_early(self.now):
                self.pass_time(0.05)
                continue
            waiting = {name: int(self.arrived[name]) - self.taken[name] for name in self.rates}
            self.shedding_controller.observe(self.now, self.taken, waiting)
            rows = {name: int(min(count, self.shedding_controller.max_rows(name))) for name, count in waiting.items()}
            if not any(rows.values()):
                self.pass_time(0.05)
                continue
            decided = self.shedding_controller.decide(self.now)
            sampling_rates = {name: dict(decided.get(name, ())).get("q", 1.0) for name in self.rates}
            for name, count in rows.items():
                self.taken[name] += count
            part = sum(rows.values()) / sum(self.rates.values())  # seconds of arrivals
            took = 0.05 + part * self.model.load(self.rates, sampling_rates, sampling_rates) / self.speed
            self.busy += took - 0.05
            self.pass_time(took)
            self.lags.append(sum(waiting.values()) / sum(self.rates.values()))
            self.kept.append(sampling_rates)


JOIN = "SELECT a.x FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


def test_a_lag_stays_bounded_and_nothing_is_dropped_once_it_is_over() -> None:
    world = World(JOIN, {"a": 1000.0, "b": 4000.0}, 1.0, allowed=1.0)
    whole = dict.fromkeys(("a", "b"), 1.0)
    world.speed = 2 * world.model.load(world.rates, whole, whole)
    world.run(30)
    assert all(sampling_rates == whole for sampling_rates in world.kept) and max(world.lags) < 1.0, (
        "half of the machine is enough"
    )
    world.speed /= 4
    world.run(200)
    assert max(world.lags) < 20 and world.lags[-1] < 5, "twice of the machine is too much"
    assert min(min(sampling_rates.values()) for sampling_rates in world.kept) < 0.9
    late = world.kept[-1]
    best = world.model.optimal_rates(world.rates, 0.5, 0.0)
    assert world.model.completeness(world.rates, late) > 0.75 * world.model.completeness(world.rates, best)
    world.speed *= 4
    world.run(260)
    assert world.kept[-1] == whole and world.lags[-1] < 1.0


def test_no_more_is_dropped_than_allowed() -> None:
    world = World(JOIN, {"a": 1000.0, "b": 4000.0}, 1.0, allowed=0.25)
    whole = dict.fromkeys(("a", "b"), 1.0)
    world.speed = world.model.load(world.rates, whole, whole) / 5
    world.run(100)
    assert min(min(sampling_rates.values()) for sampling_rates in world.kept) == pytest.approx(0.75)


def test_a_given_capacity_is_kept() -> None:
    world = World(JOIN, {"a": 1000.0, "b": 4000.0}, 1.0, allowed=1.0, capacity=0.25)
    whole = dict.fromkeys(("a", "b"), 1.0)
    world.speed = 2 * world.model.load(world.rates, whole, whole)  # half of the machine would be enough
    world.run(100)
    assert 0.15 < world.busy / world.now < 0.3


# ---- statements ------------------------------------------------------------------------------------------------------


def test_shedding_is_told_and_settings_hold_for_what_follows() -> None:
    with sl.connect(engine="local") as db:
        db.sql(
            """CREATE STREAM s (key BIGINT, value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 1000,
            total => 500, pace => false, start => '2026-01-01') ORDERED BY ts"""
        )
        db.sql("SET CAPACITY 60 PERCENT; SET SHEDDING UP TO 40 PERCENT")
        assert (db.capacity, db.shedding) == (0.6, 0.4)
        query = db.sql("SELECT key, value FROM s")
        assert query.await_end(20)
        told = db.sql("SHOW SHEDDING").results("polars")
        assert told.row(0)[:5] == ("q1", "s", 1.0, 500, 0)
        assert query.snapshot("2026-01-01 00:00:00.1", form="polars")["kept_share"].to_list() == [1.0]
        db.sql("SET CAPACITY MEASURED; SET SHEDDING OFF")
        assert (db.capacity, db.shedding) == (None, None)
        plain = db.sql("SELECT key, value FROM s")
        assert plain.await_end(20) and [c.name for c in plain.columns] == ["key", "value"]
        assert db.sql("SHOW SHEDDING").results("polars").height == 1
