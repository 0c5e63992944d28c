"""Chapters 11 and 17 of the thesis: the operators over streams with intervals, and the windows that make the intervals.

Each table twice. Through the front door, a query over the streams of the table: it means what the table says, and the
engine answers so. And the operator alone, which must emit the very elements of the table where the thesis and we cut
intervals alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tables import S1, S2, S3, WORTH, WORTH_SQL, arriving, check_query, logical, total, with_intervals

from strandline.core.types import BIGINT, BOOLEAN, INT, VARCHAR, Column, Schema
from strandline.logical.expressions import AggregateCall, Call, Case, ColumnRef, Expression, Literal
from strandline.runtime.kernels.changes import coalesce
from strandline.runtime.operators.aggregate import IncrementalAggregateOperator
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.change_stream import ChangeStreamOperator
from strandline.runtime.operators.count_window import CountWindowOperator
from strandline.runtime.operators.distinct import DistinctOperator
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.operators.split import SplitOperator
from strandline.runtime.operators.stateless import (
    AlignTimeOperator,
    FilterOperator,
    ProjectOperator,
    TimeWindowOperator,
    UnionAllOperator,
)
from support import TEXT, Arrivals, Elements, Interval, as_changes, batch, columns, drive, elements_of, line, show

X = ColumnRef("x", VARCHAR)


# Table 20.2. Both ends are rounded up to a multiple of 2; a[9,10) becomes empty.
GRANULES_OF_S1 = "c[2,8) a[6,12) d[6,14) b[12,18)"


def is_letter(letter: str) -> Expression:
    return Call("=", (X, Literal(letter, VARCHAR)), BOOLEAN)


def alone(operator: Operator, *inputs: Elements, schemas: Sequence[Schema] = (TEXT, TEXT), origin: int = 1) -> str:
    """What the operator emits, as a time line."""
    return show(drive(lambda: operator, list(zip(schemas, inputs, strict=False)), origin=origin, sliced=False))


def ordered(table: str) -> str:
    """A table as `show` writes it: of elements that start together the order does not count."""
    return show(line(table))


# ---- through the front door ------------------------------------------------------------------------------------------

TABLES: dict[str, tuple[str, str]] = {
    "11.1(a)": ("SELECT x FROM S1", S1),
    "11.1(b)": ("SELECT x FROM S2", S2),
    "11.2 filter": ("SELECT x FROM S1 WHERE x = 'a'", "a[5,11) a[9,10)"),
    "11.3 map": (
        "SELECT CASE x WHEN 'a' THEN 'x' WHEN 'b' THEN 'y' ELSE x END AS x FROM S1",
        "c[1,8) x[5,11) d[6,14) x[9,10) y[12,17)",
    ),
    "11.4 union": (
        "SELECT x FROM S1 UNION ALL SELECT x FROM S2",
        "c[1,8) b[1,7) d[3,9) a[4,5) a[5,11) d[6,14) b[7,15) a[9,10) e[10,18) b[12,17)",
    ),
    "11.6 join": ("SELECT S1.x FROM S1 JOIN S2 ON S1.x = S2.x", "d[6,9) b[12,15)"),
    "11.7 distinct": ("SELECT DISTINCT x FROM S1", "c[1,8) a[5,11) d[6,14) b[12,17)"),
    "11.8 difference": (
        "SELECT x FROM S1 EXCEPT ALL SELECT x FROM S2",
        "c[1,8) a[5,11) d[9,14) a[9,10) b[15,17)",
    ),
    # The last element is not in the thesis: in SQL a sum over nothing is NULL, and it is there for ever.
    "11.9 aggregate": (
        f"SELECT SUM({WORTH_SQL}) AS total FROM S1",
        f"{total('c')}[1,5) {total('c+a')}[5,6) {total('c+a+d')}[6,8) {total('a+d')}[8,9) {total('a+d+a')}[9,10) "
        f"{total('a+d')}[10,11) {total('d')}[11,12) {total('d+b')}[12,14) {total('b')}[14,17) NULL[17,∞)",
    ),
    "11.10 grouping": (
        "SELECT x, COUNT(*) AS n FROM S1 GROUP BY x",
        "c,1[1,8) a,1[5,9) d,1[6,14) a,2[9,10) a,1[10,11) b,1[12,17)",
    ),
    "11.11(a)": ("SELECT x FROM S3", S3),
    "11.11(b) time window": (
        "SELECT x FROM S3 WINDOW(RANGE 50 MICROSECONDS)",
        "b[1,51) a[3,53) c[4,54) a[7,57) b[10,60)",
    ),
    "property 11.4 now-window": ("SELECT x FROM S3 WINDOW(NOW)", S3),
    "11.12 count window": ("SELECT x FROM S3 WINDOW(ROWS 1)", "b[1,3) a[3,4) c[4,7) a[7,10) b[10,∞)"),
    # Its head says S1 in the thesis; the elements, and the text below, are those of S3.
    "11.13 partitioned window": (
        "SELECT x FROM S3 WINDOW(PARTITION BY x ROWS 1)",
        "b[1,10) a[3,7) c[4,∞) a[7,∞) b[10,∞)",
    ),
    # Jumps are at 9, 19, …: the window looks back from the last instant of a period, as in formula 17.1.
    "17.1 advance by time": (
        "SELECT x FROM S3 WINDOW(RANGE 50 MICROSECONDS SLIDE 10 MICROSECONDS)",
        "b[9,59) a[9,59) c[9,59) a[9,59) b[19,69)",
    ),
    "17.3 istream": ("ISTREAM(S2)", "b[1,2) d[3,4) a[4,5) e[10,11)"),
    # In the table a row of Dstream stands at the last instant at which its element is valid. Formula 17.4 and CQL have
    # it at the first instant at which it is not, and so do we: one instant later.
    "17.4 dstream": ("DSTREAM(S2)", "a[5,6) d[9,10) b[15,16) e[18,19)"),
    "section 17.2 rstream": ("RSTREAM(S2)", S2),
    "20.2 granularity": ("SELECT x FROM (SELECT x FROM S1) AS s GRANULARITY(2 MICROSECONDS)", GRANULES_OF_S1),
    # The fifth element waits for a sixth and is never seen.
    "17.2 advance by rows": ("SELECT x FROM S3 WINDOW(ROWS 2 SLIDE 2)", "b[3,7) a[3,7) c[7,∞) a[7,∞)"),
}


def declared(name: str) -> tuple[list[Arrivals], str]:
    """The streams of the chapter: two with intervals, one of chronons."""
    if name == "S3":
        return [arriving("S3", [(str(x), start) for (x,), start, _ in line(S3)])], ""
    return with_intervals(name, {"S1": S1, "S2": S2}[name])


@pytest.mark.parametrize("table", TABLES)
def test_table(table: str) -> None:
    query, expected = TABLES[table]
    streams: list[Arrivals] = []
    script = ""
    for name in ("S1", "S2", "S3"):
        if name in query:
            more, statement = declared(name)
            streams += more
            script += statement
    check_query(f"{script}\n{query}", streams, logical(line(expected)))


# ---- the operators alone ---------------------------------------------------------------------------------------------


def test_filter_11_2() -> None:
    assert alone(FilterOperator(is_letter("a")), line(S1)) == ordered(TABLES["11.2 filter"][1])


def test_map_11_3() -> None:
    renamed = Case(((is_letter("a"), Literal("x", VARCHAR)), (is_letter("b"), Literal("y", VARCHAR))), X, VARCHAR)
    assert alone(ProjectOperator(((Column("z", "z", VARCHAR), renamed),)), line(S1)) == ordered(TABLES["11.3 map"][1])


def test_union_11_4() -> None:
    assert alone(UnionAllOperator(TEXT), line(S1), line(S2)) == ordered(TABLES["11.4 union"][1])


def test_join_11_6() -> None:
    left, right = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r")
    left_key, right_key = ([ColumnRef(side[0].id, VARCHAR)] for side in (left, right))
    out = alone(HashJoinOperator(left_key, right_key, None, left, right), line(S1), line(S2), schemas=(left, right))
    assert out == "d,d[6,9) b,b[12,15)"


def test_distinct_11_7() -> None:
    assert alone(DistinctOperator(TEXT), line(S1)) == ordered(TABLES["11.7 distinct"][1])


def test_aggregate_11_9() -> None:
    """The pieces are cut as the table cuts them."""
    worth = columns(INT)
    source: Elements = [((WORTH[str(x)],), start, end) for (x,), start, end in line(S1)]
    call = AggregateCall("sum", ColumnRef("c0", INT), BIGINT)
    out = alone(IncrementalAggregateOperator((), ((Column("n", "n", BIGINT), call),), worth), source, schemas=(worth,))
    assert out == ordered(TABLES["11.9 aggregate"][1])


def test_grouping_11_10() -> None:
    call = (Column("n", "n", BIGINT), AggregateCall("count", None, BIGINT))
    assert alone(IncrementalAggregateOperator(("x",), (call,), TEXT), line(S1)) == ordered(TABLES["11.10 grouping"][1])


def test_time_windows_11_11_and_17_1() -> None:
    assert alone(TimeWindowOperator(50, 1), line(S3)) == ordered(TABLES["11.11(b) time window"][1])
    assert alone(TimeWindowOperator(1, 1), line(S3)) == ordered(S3)
    assert alone(TimeWindowOperator(50, 10), line(S3)) == ordered(TABLES["17.1 advance by time"][1])


def count_window(partition: tuple[str, ...], rows: int, slide: int = 1) -> Operator:
    return CountWindowOperator(partition, rows, slide, False, TEXT)


def test_count_windows_11_12_and_17_2() -> None:
    assert alone(count_window((), 1), line(S3)) == ordered(TABLES["11.12 count window"][1])
    assert alone(count_window((), 2, 2), line(S3)) == ordered(TABLES["17.2 advance by rows"][1])


def test_partitioned_window_11_13() -> None:
    assert alone(count_window(("x",), 1), line(S3)) == ordered(TABLES["11.13 partitioned window"][1])


def test_split_11_14() -> None:
    """The thesis shows the beginning and the last element; between them are the other chronons of S1."""
    out = alone(SplitOperator(1), line(S1))
    assert out.startswith("c[1,2) c[2,3) c[3,4) c[4,5) a[5,6) c[5,6) a[6,7) c[6,7) d[6,7) ")
    assert out == show([(x, t, t + 1) for x, start, end in line(S1) for t in range(start, end)])
    assert out.endswith(" b[16,17)")


def test_coalesce_11_15() -> None:
    """Results are coalesced when they are read, and there is no maximal length: what is adjacent is joined, however
    long it gets. In the table the maximum of 20 has no effect either."""
    coalesced = coalesce(batch(TEXT, line(S2)).frame, [column.id for column in TEXT])
    assert show(elements_of(coalesced)) == "b[1,15) d[3,9) a[4,5) e[10,18)"


def test_changes_17_3_and_17_4() -> None:
    assert alone(ChangeStreamOperator("insert", TEXT), line(S2)) == ordered(TABLES["17.3 istream"][1])
    assert alone(ChangeStreamOperator("delete", TEXT), line(S2)) == ordered(TABLES["17.4 dstream"][1])


def test_granularity_20_2() -> None:
    assert alone(AlignTimeOperator(2), line(S1)) == ordered(GRANULES_OF_S1)


# ---- section 17.1: the window advance, beyond its tables -------------------------------------------------------------


def test_a_window_of_ten_minutes_every_ten_minutes() -> None:
    """Example 17.1 with 100 chronons for ten minutes: what comes in [0, 100) is seen from the last of them on, until
    the window has moved to [100, 200)."""
    assert alone(TimeWindowOperator(100, 100), line("a[0,1) b[98,99) c[99,100) d[100,101)")) == (
        "a[99,199) b[99,199) c[99,199) d[199,299)"
    )


@pytest.mark.parametrize(("size", "advance"), [(1, 1), (5, 1), (50, 10), (3, 10), (10, 3), (7, 7), (12, 5)])
def test_algorithm_18_is_formula_17_1(size: int, advance: int) -> None:
    """The rounding of algorithm 18 gives the intervals that the formula gives instant by instant."""
    for start in range(40):
        first = -(-(start + 1) // advance) * advance - 1
        last = (start + size + advance) // advance * advance - 1
        rounded = f"a[{first},{last})" if first != last else ""
        assert alone(TimeWindowOperator(size, advance), line(f"a[{start},{start + 1})")) == rounded
        held = [t for t in range(120) if (t + 1) // advance * advance - size <= start < (t + 1) // advance * advance]
        assert held == list(range(first, last))


def test_no_false_alarm_14_1() -> None:
    """At an instant at which one element leaves and another one comes, the sum never has both: 2 + 5 > 6 is not sent,
    not even for a moment, whatever the order in which they come and wherever the input is cut."""
    worth = columns(INT)
    call = ((Column("n", "n", BIGINT), AggregateCall("sum", ColumnRef("c0", INT), BIGINT)),)
    two: Interval = ((2,), 0, 10)
    for cuts in ((4, 10, 12), (4, 11), (4,), (10, 11)):
        for source in ([two, ((5,), 10, 20)], [two, ((7,), 10, 20), ((-2,), 10, 20)]):
            for backwards in (False, True):
                operator = IncrementalAggregateOperator((), call, worth, "changes", input_form="changes")
                sums, before = [], -1
                for until in (*cuts, 15):
                    part = as_changes(source, before, until)
                    arrived = batch(worth, part[::-1] if backwards else part)
                    sums += elements_of(operator.step([arrived], Watermark(until, 0)).frame)
                    before = until
                assert {payload for payload, _, _ in sums} == {(2,), (5,)}
