"""Change feeds: whatever the batches and the form, the elements are those of the definition."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import DOUBLE, INT, TIMESTAMP, VARCHAR, Column, Schema
from strandline.logical.change_feed import DELETIONS, INSERTIONS, UPSERTS, ChangeFeed
from strandline.logical.reference.change_feed import ChangeRow, fold_changes
from strandline.logical.reference.interpreter import Element
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.fold_changes import FoldChangesOperator
from support import (
    Arrivals,
    Cuts,
    Elements,
    Slicing,
    assert_exact,
    at,
    batch,
    bind,
    cuts,
    drive,
    edges,
    elements_of,
    examples,
    moment,
    raw,
    run_plan,
    same_snapshots,
    show,
    slicings,
)

SCHEMA: Schema = (Column("s.k", "k", VARCHAR), Column("op", "op", VARCHAR))
CHANGES = st.tuples(
    st.integers(0, 12), st.sampled_from(("a", "b", None)), st.sampled_from((0.0, -0.0, 1.5, float("nan"), None))
)
SMALL = st.integers(0, 2)
WORDS = st.sampled_from((*INSERTIONS, *INSERTIONS, *DELETIONS, *DELETIONS))
KEYED_WORDS = st.sampled_from((*INSERTIONS, *UPSERTS, *DELETIONS))


def rows(text: str) -> Elements:
    """`+a@3` inserts a at 3."""
    words = [word.partition("@") for word in text.split()]
    return [((change[1:], change[0]), int(time), int(time) + 1) for change, _, time in words]


def folded(text: str, *watermarks: int, key: bool = False) -> str:
    make = partial(FoldChangesOperator, "s", "op", ("s.k",) if key else (), SCHEMA, "changes")
    return show(drive(make, [(SCHEMA, rows(text))], Slicing(watermarks, "store", form="changes")))


@pytest.mark.parametrize("watermarks", [(), (1, 2, 3, 4, 5, 6)])
def test_time_lines(watermarks: tuple[int, ...]) -> None:
    assert folded("+a@1 +b@2 -a@5 +a@8", *watermarks) == "a[1,5) b[2,∞) a[8,∞)"
    assert folded("+a@1 +a@3 -a@5 -a@6 -a@7", *watermarks) == "a[1,5) a[3,6)"
    assert folded("+a@1 -a@3 +a@3", *watermarks) == "a[1,∞)"
    assert folded("+a@1 +a@3 -a@4", *watermarks, key=True) == "a[1,4)"


def test_an_open_element_is_sent_once_and_ended_once() -> None:
    operator = FoldChangesOperator("s", "op", (), SCHEMA, "changes")
    sent = []
    for until, text in ((2, "+a@1"), (4, ""), (6, "-a@5"), (8, "")):
        step = operator.step([batch(SCHEMA, rows(text))], Watermark(until))
        sent.append([(start, end) for _, start, end in elements_of(step.frame)])
    assert [len(part) for part in sent] == [1, 0, 1, 0]
    assert sent[2] == [(1, 5)]
    assert operator.save().rows() == 0, "what has ended is not kept"


def test_an_open_element_is_cut_at_every_watermark_if_intervals_are_wanted() -> None:
    operator = FoldChangesOperator("s", "op", (), SCHEMA, "intervals")
    parts = [(2, "+a@1"), (4, ""), (6, "-a@5"), (8, "")]
    sent = [elements_of(operator.step([batch(SCHEMA, rows(text))], Watermark(until)).frame) for until, text in parts]
    assert [show(part) for part in sent] == ["a[1,2)", "a[2,4)", "a[4,5)", ""]


def test_deletions_without_a_match_are_handed_out() -> None:
    operator = FoldChangesOperator("s", "op", (), SCHEMA, "changes")
    operator.step([batch(SCHEMA, rows("+a@1 -b@1 -a@2 -a@2"))], Watermark(3))
    assert operator.unmatched.select("k", "op", "@from").rows() == [("b", "-", 1), ("a", "-", 2)]
    operator.step([batch(SCHEMA, [])], Watermark(4))
    assert operator.unmatched.height == 0


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(CHANGES, WORDS, KEYED_WORDS), max_size=14), slicings(0, 14), st.booleans())
def test_elements_are_those_of_the_definition(
    drawn: list[tuple[tuple[int, str | None, float | None], str, str]], slicing: Slicing, keyed: bool
) -> None:
    schema = (Column("s.k", "k", VARCHAR), Column("s.v", "v", DOUBLE), Column("op", "op", VARCHAR))
    drawn.sort(key=lambda change: change[0][0])
    words = [(with_key if keyed else without).upper() for _, without, with_key in drawn]
    source: Elements = [((k, v, op), t, t + 1) for ((t, k, v), _, _), op in zip(drawn, words, strict=True)]
    feed = ChangeFeed("op", ("k",) if keyed else ())
    meaning = fold_changes([ChangeRow(t, str(op), {"k": k, "v": v}) for (k, v, op), t, _ in source], feed)
    elements: Elements = [(tuple(e.values.values()), e.time, e.end) for e in meaning.elements]
    make = partial(FoldChangesOperator, "s", "op", ("s.k",) if keyed else (), schema, slicing.form)
    ordered = Slicing(slicing.cuts, slicing.carry, False, slicing.form)  # the reorder buffer keeps the order of arrival
    out = drive(make, [(schema, source)], ordered)
    same_snapshots(out, lambda t: at(elements, t), edges(elements))
    if slicing.form == "changes":
        assert len(out) == len([element for element in elements if element[1] < element[2]])


QUERIES = (
    "SELECT k, v FROM s",
    "SELECT v FROM s WHERE k < 2",
    "SELECT COUNT(*) AS n, SUM(v) AS t FROM s",
    "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM s GROUP BY k",
    "SELECT DISTINCT v FROM s",
    "SELECT a.k, b.v FROM s a JOIN s b ON a.v = b.v",
    "SELECT a.k, t.v FROM t [RANGE 4 MICROSECONDS] t LEFT JOIN s a ON a.k = t.k",
    "SELECT k, v FROM s EXCEPT ALL SELECT k, v FROM t [RANGE 6 MICROSECONDS]",
    "ISTREAM(SELECT k, v FROM s)",
    "DSTREAM(SELECT v FROM s)",
    "SELECT k, v FROM s ORDER BY v LIMIT 2",
    "SELECT v, COUNT(*) AS n FROM (SELECT v FROM s GRANULARITY(2 MICROSECONDS)) g [RANGE 4 MICROSECONDS] GROUP BY v",
    "SELECT v FROM s UNION ALL SELECT v FROM s",
)


def feed_of(drawn: list[tuple[int, int, int, int, str]], key: tuple[str, ...], disorder: int) -> Arrivals:
    arrived = sorted(drawn, key=lambda row: row[0] + min(row[1], disorder))
    elements = tuple(Element(t, {"k": k, "v": v, "op": op, "ts": moment(t)}) for t, _, k, v, op in arrived)
    columns = (("k", INT), ("v", INT), ("op", VARCHAR), ("ts", TIMESTAMP))
    return Arrivals("s", columns, elements, disorder, changes=ChangeFeed("op", key))


@settings(max_examples=examples(120))
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 4), st.integers(0, 2), st.integers(0, 2), WORDS), max_size=14
    ),
    st.lists(st.tuples(st.integers(0, 20), SMALL, SMALL), max_size=6),
    st.sampled_from(QUERIES),
    st.sampled_from(((), ("k",), ("v", "k"))),
    st.sampled_from((0, 4)),
    cuts(2),
)
def test_queries_over_a_change_feed_mean_their_snapshots(
    drawn: list[tuple[int, int, int, int, str]],
    others: list[tuple[int, int, int]],
    text: str,
    key: tuple[str, ...],
    disorder: int,
    cut: Cuts,
) -> None:
    feed = feed_of(drawn, key, disorder)
    plain = tuple(Element(t, {"k": k, "v": v, "ts": moment(t)}) for t, k, v in sorted(others))
    streams = [feed, Arrivals("t", (("k", INT), ("v", INT), ("ts", TIMESTAMP)), plain)]
    plan = bind(text, streams)
    answers = [run_plan(plan, streams, cut, optimised=optimised) for optimised in (True, False)]
    assert_exact(plan, raw(streams), *answers)
    for answer in answers:
        assert answer.rejected_count["s"] == len(feed.folded.unmatched) == len(answer.rejected.get("s", ()))


def test_deletions_without_a_match_are_rejected_once_by_name() -> None:
    """Also where two queries, or two tables of one, read the feed."""
    feed = feed_of([(1, 0, 1, 1, "insert"), (3, 0, 2, 5, "delete"), (4, 0, 1, 1, "-")], (), 0)
    answer = run_plan(bind("SELECT a.v FROM s a, s b WHERE a.k = b.k", [feed]), [feed], Cuts(((1, 1),), 2))
    assert [row["reason"] for row in answer.rejected["s"]] == [
        "the row that it deletes at 1970-01-01 00:00:00.000003 is not there"
    ]
    assert answer.rejected["s"][0]["content"] == '{"k":2,"v":5,"op":"delete"}'
    assert answer.rejected_count == {"s": 1}


def test_the_state_has_the_live_elements_only() -> None:
    operator = FoldChangesOperator("s", "op", (), SCHEMA, "changes")
    for number in range(50):
        text = f"+x{number}@{number} " + (f"-x{number - 1}@{number}" if number else "")
        operator.step([batch(SCHEMA, rows(text))], Watermark(number + 1))
    assert operator.live.rows == 1
    assert operator.save().rows() < 10, "obsolete rows leave when segments are merged"
