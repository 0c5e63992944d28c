"""Answers in memory: what is forgotten of them, what never is, and how that is told."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.apps.shell.feed import ResultFollower
from strandline.core.errors import QueryError, SinkError
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant, instant
from strandline.core.types import BIGINT, DOUBLE, VARCHAR, Column, Type, array_of
from strandline.database.query import Query
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, net_changes
from strandline.runtime.result import to_result
from strandline.runtime.result_buffer import ResultBuffer, ResultChunks
from support import examples

Element = tuple[object, Instant, Instant]
Batch = tuple[Instant, Instant, list[Element]]  # and the watermarks before and after it

# ---- the laws, over random deliveries --------------------------------------------------------------------------------


def column(kind: Type) -> tuple[Column, ...]:
    return (Column("#1", "v", kind),)


VALUES: dict[Type, tuple[object, ...]] = {
    BIGINT: (1, 2, None),
    DOUBLE: (0.0, -0.0, float("nan"), None),  # the first two are one value, NaN equals itself
    VARCHAR: ("a", "", None),
    array_of(BIGINT): ([1], [], None),
}


@st.composite
def deliveries(draw: st.DrawFn, kinds: Sequence[Type] = tuple(VALUES)) -> tuple[Type, list[Batch]]:
    """Batches, each with the watermarks before and after it. An element whose end is not known is cut at the watermark
    and goes on in the next batch, or is delivered without an end, and again with it; another is delivered up to its end
    at once."""
    kind = draw(st.sampled_from(kinds))
    ways = st.sampled_from(("whole", "cut", "open"))
    elements = draw(
        st.lists(
            st.tuples(st.sampled_from(VALUES[kind]), st.integers(0, 30), st.integers(1, 15) | st.none(), ways),
            max_size=40,
        )
    )
    steps = draw(st.lists(st.integers(1, 8), min_size=1, max_size=12))
    until = [int(p) for p in np.cumsum(steps)]
    if draw(st.booleans()):
        until.append(FOREVER)
    batches: list[Batch] = []
    before = 0
    for watermark in until:
        batch: list[Element] = []
        for value, start, length, way in elements:
            end = FOREVER if length is None else start + length
            if way == "open":
                if start >= watermark or end < before:
                    continue
                is_known = end < watermark or watermark == FOREVER
                if start >= before or is_known:
                    batch.append((value, start, end if is_known else OPEN))
                continue
            first = start if start >= before else before if way == "cut" and end > before else None
            if first is not None and first < watermark:
                batch.append((value, first, min(end, watermark) if way == "cut" else end))
        batches.append((before, watermark, batch))
        before = watermark
    return kind, batches


def table(elements: list[Element], kind: Type) -> pa.Table:
    dtypes = {DOUBLE: pl.Float64(), BIGINT: pl.Int64(), VARCHAR: pl.String(), array_of(BIGINT): pl.List(pl.Int64())}
    schema = {"#1": dtypes[kind], FROM: pl.Int64(), UNTIL: pl.Int64()}
    return to_result(pl.DataFrame(elements, schema=schema, orient="row"), column(kind))


def elements_of(kept: ResultBuffer, kind: Type, *, join: bool = False) -> list[Element]:
    """Values as texts: 0 and -0 are one value, and NaN and lists do not go into sets."""
    frame = kept.chunks(0, FOREVER).frame(column(kind))
    whole = coalesce(frame, ["#1"]) if join else frame
    rows = whole.select("#1", FROM, UNTIL).iter_rows()
    return [(repr(0.0 if value == 0 and kind is DOUBLE else value), start, end) for value, start, end in rows]


def snapshot(elements: list[Element], t: Instant) -> Counter[object]:
    return Counter(value for value, start, end in elements if start <= t < end)


def alone(elements: list[Element]) -> set[Element]:
    """Those whose value never has two copies at once: of equal copies it does not matter which one went first."""
    found = set()
    for value in {each[0] for each in elements}:
        mine = sorted(each for each in elements if each[0] == value)
        if all(one[2] < two[1] for one, two in pairwise(mine)):
            found |= set(mine)
    return found


@settings(max_examples=examples(90))
@given(deliveries(), st.integers(1, 12))
def test_from_since_on_every_snapshot_is_whole(case: tuple[Type, list[Batch]], most: int) -> None:
    kind, batches = case
    kept, everything = ResultBuffer(column(kind), most), ResultBuffer(column(kind), None)
    last = max((start for *_, batch in batches for _, start, _ in batch), default=0)
    for begin, watermark, batch in batches:
        kept.add([table(batch, kind)], begin)
        everything.add([table(batch, kind)], begin)
        now = watermark - 1 if watermark < FOREVER else max(last, begin)
        if kept.exceeds_limit:
            before, kept = kept, kept.trim(now)
            assert before.since <= kept.since <= now and not kept.exceeds_limit
        whole, ours = elements_of(everything, kind), elements_of(kept, kind)
        assert snapshot(ours, now) == snapshot(whole, now), "the current snapshot is always complete"
        for t in range(max(kept.since, -1), min(watermark, 50)):
            assert snapshot(ours, t) == snapshot(whole, t), f"at {t}"
        remembered = {each for each in alone(elements_of(everything, kind, join=True)) if each[2] > kept.since}
        assert remembered <= set(elements_of(kept, kind, join=True)), "what is kept begins where it began"


def test_whole_elements_keep_their_intervals() -> None:
    """Neither one that touches what is forgotten, nor one inside of another becomes longer or shorter."""
    elements: list[Element] = [(1, 0, 4), (1, 2, 20), (1, 3, 15), (1, 4, 12), (1, 5, 11)]
    kept = ResultBuffer(column(BIGINT), 4, in_fragments=False)
    kept.add([table(elements, BIGINT)])
    shorter = kept.trim(10)
    assert shorter.since == 4
    assert elements_of(shorter, BIGINT) == [(repr(1), start, end) for _, start, end in elements[1:]]


@settings(max_examples=examples(90))
@given(deliveries(), st.integers(1, 12))
def test_only_what_is_too_much_is_forgotten(case: tuple[Type, list[Batch]], most: int) -> None:
    """What is left beyond the limit is valid; and of what fits, nothing goes but what ends with the last that must."""
    kind, batches = case
    kept = ResultBuffer(column(kind), most)
    for begin, watermark, batch in batches:
        kept.add([table(batch, kind)], begin)
        now = min(watermark - 1, 40)
        if kept.exceeds_limit:
            before, evicted, kept = elements_of(kept, kind), kept.evicted, kept.trim(now)
            ours = elements_of(kept, kind)
            assert len(ours) <= most or all(end > now for _, _, end in ours)
            if kept.evicted > evicted:
                assert sum(end >= kept.since for _, _, end in before) > int(0.75 * most), "less would have done"


@dataclass
class Replayed:
    """As much of a query as a feed asks for."""

    columns: tuple[Column, ...]
    kept: ResultBuffer
    watermark: Instant = BEFORE_ALL
    has_whole_elements: bool = False

    def pieces(self, after: int) -> ResultChunks:
        return self.kept.chunks(after, self.watermark)


@settings(max_examples=examples(60))
@given(deliveries([BIGINT]), st.integers(1, 12), st.lists(st.booleans(), min_size=13, max_size=13))
def test_who_follows_an_answer_sees_what_is_kept(case: tuple[Type, list[Batch]], most: int, looks: list[bool]) -> None:
    """A feed that was overtaken begins again: its snapshot is that of the answer, its changes are the latest of it."""
    kind, batches = case
    query, everything = Replayed(column(kind), ResultBuffer(column(kind), most)), ResultBuffer(column(kind), None)
    feed = ResultFollower(cast(Query, query))
    for (begin, watermark, batch), look in zip(batches, looks, strict=False):
        query.kept.add([table(batch, kind)], begin)
        everything.add([table(batch, kind)], begin)
        query.watermark = watermark
        if query.kept.exceeds_limit:
            query.kept = query.kept.trim(min(watermark - 1, 40))
        if look:
            feed.look()
            whole = everything.chunks(0, watermark).frame(column(kind))
            valid = whole.filter((pl.col(FROM) < watermark) & (pl.col(UNTIL) >= watermark))
            assert sorted(map(repr, feed.snapshot().rows())) == sorted(map(repr, valid.select("#1").rows()))
            net = net_changes(whole, ["#1"]).filter(pl.col(TIME) < watermark).select("#1", TIME, CHANGE)
            ours, _ = feed.changes(1_000)
            theirs = net.tail(ours.height)
            assert sorted(map(repr, ours.rows())) == sorted(map(repr, theirs.rows())), "the latest, none of them twice"
            assert feed.passed_over or ours.height == net.height


# ---- queries ---------------------------------------------------------------------------------------------------------

ROWS = ", ".join(f"('{'abc'[n * 7 % 3]}', {n * 5 % 4}, {n * 3 + n % 2})" for n in range(60))
QUERIES = (
    "SELECT k, COUNT(*) AS n FROM s [RANGE 7 MICROSECONDS] GROUP BY k",
    "SELECT k, v FROM s [RANGE 20 MICROSECONDS]",  # pieces that end long after the progress
    "SELECT k, v FROM s",
    "SELECT COUNT(*) AS n FROM s [RANGE 7 MICROSECONDS]",  # an answer without an end
    "SELECT DISTINCT v FROM s [ROWS 3]",
)


def database(keep: int | None) -> sl.engine.Database:
    found = sl.connect(engine="local", batch_rows=2, keep=keep)
    found.sql(f"CREATE STREAM s (k VARCHAR, v INT, ts BIGINT) SOURCE rows({ROWS}) ORDERED BY ts")
    return found


@pytest.fixture
def short() -> Iterator[sl.engine.Database]:
    with database(keep=8) as found:
        yield found


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_forgets_its_past_and_says_so(sql: str, short: sl.engine.Database) -> None:
    with database(keep=None) as long:
        brief, full = short.sql(sql), long.sql(sql)
        assert brief.await_end(30) and full.await_end(30)
        since = brief.kept_since
        assert full.kept_since == BEFORE_ALL < since
        assert Counter(brief.snapshot(form="polars").rows()) == Counter(full.snapshot(form="polars").rows())
        for t in range(since, 200, 7):
            assert Counter(brief.snapshot(t, "polars").rows()) == Counter(full.snapshot(t, "polars").rows()), f"at {t}"
        with pytest.raises(QueryError) as caught:
            brief.snapshot(since - 1)
        assert caught.value.code == "no-longer-kept" and "keeps 8 elements" in str(caught.value.hint)
        assert brief.metrics()["forgotten"] > 0 and full.metrics()["forgotten"] == 0
        assert instant(brief.metrics()["kept_since"]) == since and full.metrics()["kept_since"] is None


def test_who_expects_everything_is_warned_once(short: sl.engine.Database) -> None:
    query = short.sql("SELECT k, v FROM s")
    query.await_end(30)
    with pytest.warns(UserWarning, match="no longer retained.*Memory keeps 8 elements"):
        assert 1 <= query.results().num_rows <= 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query.results()
        query.changes()


def test_keep_is_an_option_of_the_sink(short: sl.engine.Database) -> None:
    small = short.sql("CREATE SINK small INTO memory(keep => 5) AS SELECT k, v FROM s")
    whole = short.sql("CREATE SINK whole INTO memory(keep => NULL) AS SELECT k, v FROM s")
    assert small.await_end(30) and whole.await_end(30)
    assert small.kept_since > BEFORE_ALL == whole.kept_since
    assert whole.results().num_rows == 60
    for wrong in ("0", "'all'"):
        with pytest.raises(SinkError) as caught:
            short.sql(f"CREATE SINK wrong INTO memory(keep => {wrong}) AS SELECT k, v FROM s")
        assert caught.value.code == "sink-argument"
    with pytest.raises(SinkError, match="must be at least 1"):
        sl.Memory(keep=0)
