"""Tables in the language: text → tree, text → bound change, text → rendered error, and what a case cannot say."""

from __future__ import annotations

import time
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutations import damaged
from strandline.core.errors import StrandlineError
from strandline.core.temporal import DAY, MINUTE, SECOND, instant
from strandline.core.types import BIGINT, INT, TIMESTAMP, VARCHAR
from strandline.functions.evaluate import evaluate
from strandline.logical.catalog import Catalog, ConnectorCall, SourceSchema, Table
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.explain import show_expression, show_plan
from strandline.logical.expressions import Call, Cast, UserCall
from strandline.logical.plan import Changes, Lookup, Map, Plan, Scan
from strandline.logical.reference.interpreter import Element, snapshot
from strandline.logical.tree import walk
from strandline.logical.udf import UserFunction
from strandline.sql import ast
from strandline.sql.binder.assignments import Assignment
from strandline.sql.binder.binder import bind_materialized_view, bind_query, bind_reading, bind_view
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.binder.create_table import bind_create_table, statistics_of_table
from strandline.sql.binder.dml import (
    BoundChange,
    BoundDelete,
    BoundInsert,
    BoundMerge,
    BoundUpdate,
    bind_change,
    bind_create_table_as,
)
from strandline.sql.binder.stored import is_stored_query
from strandline.sql.parser.statements import parse, parse_one
from syntax_cases import cases, show

SCRIPT = """
CREATE TABLE stock (sym VARCHAR, company VARCHAR, price DECIMAL(10, 2), shares INT, PRIMARY KEY (sym));
CREATE TABLE bag (a INT);
CREATE TABLE strict (k INT PRIMARY KEY, a INT NOT NULL, b VARCHAR NOT NULL DEFAULT 'x');
CREATE TABLE fed (a INT, b VARCHAR) SOURCE file('fed.csv');
CREATE STREAM s (a INT, b VARCHAR, ts TIMESTAMP) SOURCE file('s') ORDERED BY ts;
CREATE VIEW v AS SELECT COUNT(*) AS n FROM stock;
CREATE VIEW over_s AS SELECT a, b FROM s;
CREATE MATERIALIZED VIEW counts (sym, n) AS SELECT b, COUNT(*) FROM s WINDOW(RANGE 1 MINUTE) GROUP BY b KEEP 7 DAYS;
CREATE VIEW many AS SELECT sym, n FROM counts WHERE n > 1;
"""


def take(statement: ast.Statement, catalog: Catalog) -> BoundChange | Plan | None:
    """What the binder makes of a statement; declarations go to the catalog."""
    match statement:
        case ast.CreateTable(name):
            catalog.add(bind_create_table(statement), name.span)
        case ast.CreateTableAs(name):
            bound = bind_create_table_as(statement, catalog)
            catalog.add(bound.table, name.span)
            return bound
        case ast.CreateMaterializedView(name):
            catalog.add(bind_materialized_view(statement, catalog), name.span)
        case ast.CreateStream():
            catalog.add(bind_create_stream(statement), statement.name.span)
        case ast.CreateView():
            catalog.add(bind_view(statement, catalog), statement.name.span)
        case ast.Insert() | ast.Update() | ast.Delete() | ast.Merge() | ast.Truncate():
            return bind_change(statement, catalog)
        case _ if isinstance(statement, ast.Query):
            return bind_reading(statement, catalog, stored=is_stored_query(statement, catalog))[0]
    return None


def declared() -> Catalog:
    catalog = Catalog()
    for statement in parse(SCRIPT):
        take(statement, catalog)
    return catalog


CATALOG = declared()


def changed(text: str, catalog: Catalog = CATALOG) -> BoundChange:
    bound = take(parse_one(text), catalog)
    assert isinstance(bound, BoundInsert | BoundUpdate | BoundDelete | BoundMerge)
    return bound


def inserted(text: str) -> pl.DataFrame:
    bound = changed(text)
    assert isinstance(bound, BoundInsert) and bound.rows is not None
    return bound.rows


def table(text: str, source_schema: SourceSchema | None = None) -> Table:
    statement = parse_one(text)
    assert isinstance(statement, ast.CreateTable)
    return bind_create_table(statement, source_schema)


def query(text: str) -> ast.Query:
    statement = parse_one(text)
    assert isinstance(statement, ast.Query)
    return statement


# ---- cases -----------------------------------------------------------------------------------------------------------


def show_change(bound: BoundChange) -> str:
    """A bound change, a part per line; the types of new values are those of their columns."""
    lines = [f"{type(bound).__name__} {bound.table.name}" + ("" if bound.at is None else f" at {bound.at}")]
    match bound:
        case BoundInsert(rows=rows, source=source, values=values, conflict=conflict):
            if rows is not None:
                lines += [f"  {row}" for row in rows.rows()]
            lines += show_assignments(values)
            if conflict is not None:
                lines.append(f"  conflict: {conflict.kind}{show_where(conflict.predicate)}")
                lines += show_assignments(conflict.assignments)
        case BoundUpdate(_, assignments, predicate):
            source = None
            lines[0] += show_where(predicate)
            lines += show_assignments(assignments)
        case BoundDelete(_, predicate):
            source = None
            lines[0] += show_where(predicate)
        case BoundMerge(_, source, condition, actions):
            lines.append(f"  on {show_expression(condition)}")
            for action in actions:
                lines.append(f"  {action.kind}{show_where(action.condition)}")
                lines += show_assignments(action.assignments)
    if source is not None:
        lines.append(f"  source ({', '.join(map(str, source.columns))}), reads {', '.join(sorted(source.reads))}")
        lines += [f"    {line}" for line in show_plan(source.plan).splitlines()]
    return "\n".join(lines)


def show_where(predicate: Any) -> str:
    return "" if predicate is None else f" where {show_expression(predicate)}"


def show_assignments(assignments: tuple[Assignment, ...]) -> list[str]:
    return [f"    {item.column} := {item.value.type} {show_expression(item.value)}" for item in assignments]


@pytest.mark.parametrize(("text", "expected"), cases("table_statements.case"))
def test_statement(text: str, expected: str) -> None:
    assert "\n".join(map(show, parse(text))) == expected


@pytest.mark.parametrize(("text", "expected"), cases("table_changes.case"))
def test_change(text: str, expected: str) -> None:
    assert "\n".join(show_change(changed(part)) for part in text.split(";\n")) == expected


@pytest.mark.parametrize(("text", "expected"), cases("table_errors.case"))
def test_error(text: str, expected: str) -> None:
    assert refused(text).render() == expected


def refused(text: str) -> StrandlineError:
    catalog = declared()
    with pytest.raises(StrandlineError) as caught:
        for statement in parse(text):
            take(statement, catalog)
    assert caught.value.span is not None and caught.value.span.text == text
    return caught.value


# ---- declarations ----------------------------------------------------------------------------------------------------


def test_a_table_by_the_clock() -> None:
    columns = (("Id", INT), ("name", VARCHAR))
    assert table("CREATE TABLE t (Id INT, name VARCHAR, PRIMARY KEY (id))") == Table("t", columns, key=("Id",))
    assert table("CREATE TABLE t (Id INT PRIMARY KEY, name VARCHAR) RETROACTIVE") == Table("t", columns, key=("Id",))
    not_retroactive = table("CREATE TABLE t (Id INT, name VARCHAR) NON RETROACTIVE KEEP 7 DAYS")
    assert not_retroactive == Table("t", columns, retroactive=False, keep_us=7 * DAY)


def test_a_constant_table() -> None:
    constant = table("CREATE TABLE t (a INT) SOURCE file('t.csv', header => TRUE) CONSTANT")
    source = ConnectorCall("file", ("t.csv",), {"header": True})
    assert constant == Table("t", (("a", INT),), kind="constant", source=source)


def test_a_temporal_table() -> None:
    temporal = table("CREATE TABLE t (a INT, f TIMESTAMP, u BIGINT) VALID FROM F UNTIL U NON RETROACTIVE")
    columns = (("a", INT), ("f", TIMESTAMP), ("u", BIGINT))
    assert temporal == Table("t", columns, kind="temporal", retroactive=False, time_column="f", end_column="u")


def test_a_change_feed_has_the_key_of_its_table() -> None:
    columns = "a INT, op VARCHAR, ts TIMESTAMP"
    feed = "SOURCE file('t.csv') ORDERED BY ts WITHIN 5 SECONDS CHANGES IN op"
    expected = table(f"CREATE TABLE t ({columns}, PRIMARY KEY (a)) {feed}")
    assert (expected.key, expected.changes) == (("a",), ChangeFeed("op", ("a",)))
    assert (expected.time_column, expected.disorder_us, expected.idle_after_us) == ("ts", 5 * SECOND, 5 * SECOND)
    assert table(f"CREATE TABLE t ({columns}) {feed} PRIMARY KEY (a)") == expected
    assert table(f"CREATE TABLE t ({columns}, PRIMARY KEY (a)) {feed} PRIMARY KEY (a)") == expected
    without = table(f"CREATE TABLE t ({columns}) {feed}")
    assert (without.key, without.changes) == ((), ChangeFeed("op"))


def test_a_silent_feed_is_idle_after_a_time() -> None:
    ordered = "CREATE TABLE t (ts TIMESTAMP) SOURCE file('t.csv') ORDERED BY ts"
    assert table(ordered).idle_after_us == 5 * SECOND
    assert table(f"{ordered} IDLE AFTER 1 MINUTE").idle_after_us == MINUTE
    assert table("CREATE TABLE t (ts TIMESTAMP) SOURCE file('t.csv')").idle_after_us is None


def test_the_columns_of_a_source() -> None:
    provided = SourceSchema((("id", BIGINT), ("ts", TIMESTAMP)), "ts", disorder_us=SECOND, rate=9.0)
    person = table("CREATE TABLE person SOURCE nexmark('person')", provided)
    # Its time is a column like any other: a table without ORDERED BY is changed by the clock.
    assert (person.columns, person.time_column, person.disorder_us) == (provided.columns, None, 0)
    statement = parse_one("CREATE TABLE person SOURCE nexmark('person') WITH (distinct(ID) = 7)")
    assert isinstance(statement, ast.CreateTable)
    statistics = statistics_of_table(statement, provided)
    assert (statistics.rate, statistics.values) == (9.0, {"id": 7.0})


def test_a_materialized_view() -> None:
    view = CATALOG.get("counts")
    assert (view.word, [name for name, _ in columns_of_plan("SELECT * FROM counts")]) == (
        "materialized view",
        ["sym", "n"],
    )
    assert getattr(view, "keep_us", None) == 7 * DAY


def columns_of_plan(text: str) -> list[tuple[str, str]]:
    plan = bind_query(query(text), CATALOG)
    assert isinstance(plan, Map)
    return [(column.name, str(column.type)) for column, _ in plan.outputs]


# ---- values ----------------------------------------------------------------------------------------------------------


def test_the_types_of_constant_rows() -> None:
    catalog = Catalog()
    columns = "i INT, l BIGINT, d DOUBLE, m DECIMAL(20, 3), b BOOLEAN, s VARCHAR, t DATE, ts TIMESTAMP"
    take(parse_one(f"CREATE TABLE all_types ({columns})"), catalog)
    bound = changed(
        """INSERT INTO all_types VALUES
            (2147483647, 9223372036854775807, 1, 12345678901234567.125, TRUE, 'it''s', '2024-02-29',
             '2024-01-02 03:04:05.000006'),
            (-2147483648, -9223372036854775808, 1e-3, -0.0005, 'off', 2.50, TIMESTAMP '2024-01-02 03:00:00',
             DATE '2024-01-02'),
            (2.5, '7', '1e3', '2.5', NOT TRUE, DATE '2024-01-02', NULL, NULL)""",
        catalog,
    )
    assert isinstance(bound, BoundInsert) and bound.rows is not None
    types = [pl.Int32, pl.Int64, pl.Float64, pl.Decimal(20, 3), pl.Boolean, pl.String, pl.Date, pl.Datetime("us")]
    assert bound.rows.dtypes == types
    moment = datetime(2024, 1, 2, 3, 4, 5, 6)
    assert bound.rows.rows() == [
        (2**31 - 1, 2**63 - 1, 1.0, Decimal("12345678901234567.125"), True, "it's", date(2024, 2, 29), moment),
        (-(2**31), -(2**63), 0.001, Decimal("-0.001"), False, "2.50", date(2024, 1, 2), datetime(2024, 1, 2)),
        (3, 7, 1000.0, Decimal("2.500"), False, "2024-01-02", None, None),
    ]


@given(st.lists(st.tuples(st.integers(-(2**33), 2**33), st.text("ab'\"; -", max_size=5) | st.none()), min_size=1))
def test_short_and_long_ways_agree(rows: list[tuple[int, str | None]]) -> None:
    """Literals are converted without expressions; in parentheses they are not."""

    def written(number: int, text: str | None, bracket: bool) -> str:
        shown = "NULL" if text is None else "'" + text.replace("'", "''") + "'"
        return f"(({number}), ({shown}))" if bracket else f"({number}, {shown})"

    outcomes: list[list[tuple[Any, ...]] | str] = []
    for bracket in (False, True):
        values = ", ".join(written(*row, bracket) for row in rows)
        try:
            outcomes.append(inserted(f"INSERT INTO stock (shares, sym) VALUES {values}").rows())
        except StrandlineError as error:
            outcomes.append(error.code)
    assert outcomes[0] == outcomes[1]
    if all(-(2**31) <= number < 2**31 and text is not None for number, text in rows):
        assert outcomes[0] == [(text, None, None, number) for number, text in rows]
    else:
        assert outcomes[0] in ("null-key", "out-of-range")


def test_a_value_that_does_not_fit_at_run_time() -> None:
    """An assignment keeps or refuses a value; a CAST would make NULL of it."""
    update = changed("UPDATE stock SET shares = shares * 1000, price = price + 1, company = price, sym = sym")
    assert isinstance(update, BoundUpdate)
    by_column = {assignment.column: assignment for assignment in update.assignments}
    assert by_column["company"].unfit is None and by_column["sym"].unfit is None
    shares, price = by_column["shares"].unfit, by_column["price"].unfit
    assert shares is not None and price is not None
    assert evaluate(shares, {"shares": 2_000_000}) is False
    assert evaluate(shares, {"shares": 3_000_000}) is True
    assert evaluate(shares, {"shares": None}) is False
    assert evaluate(price, {"price": Decimal("99999998.99")}) is False
    assert evaluate(price, {"price": Decimal("99999999.00")}) is True


@pytest.mark.parametrize(
    ("source", "target"),
    [("INT", "BIGINT"), ("BIGINT", "DOUBLE"), ("DECIMAL(5, 2)", "DECIMAL(8, 2)"), ("INT", "DECIMAL(10, 0)")],
)
def test_a_wider_type_takes_every_value(source: str, target: str) -> None:
    catalog = Catalog()
    take(parse_one(f"CREATE TABLE t (a {source}, b {target})"), catalog)
    wider, narrower = changed("UPDATE t SET b = a", catalog), changed("UPDATE t SET a = b", catalog)
    assert isinstance(wider, BoundUpdate) and wider.assignments[0].unfit is None
    assert isinstance(narrower, BoundUpdate) and narrower.assignments[0].unfit is not None


def test_rounding_may_need_a_further_digit() -> None:
    """99.96 is 100.0 with one digit after the point."""
    catalog = Catalog()
    take(parse_one("CREATE TABLE t (a DECIMAL(4, 2), b DECIMAL(3, 1))"), catalog)
    bound = changed("UPDATE t SET b = a", catalog)
    assert isinstance(bound, BoundUpdate)
    unfit = bound.assignments[0].unfit
    assert unfit is not None and evaluate(unfit, {"a": Decimal("99.96")}) is True
    assert evaluate(unfit, {"a": Decimal("99.94")}) is False


def test_the_instant_of_a_change() -> None:
    assert changed("TRUNCATE bag AT TIMESTAMP '2024-01-02 03:04:05.6'").at == instant("2024-01-02T03:04:05.600000")
    assert changed("TRUNCATE bag AT TIMESTAMP '2024-01-02 03:00:00+01:00'").at == instant("2024-01-02T02:00:00")


def test_functions_of_the_user() -> None:
    catalog = declared()
    catalog.add_function(UserFunction("twice", (BIGINT,), BIGINT, lambda column: [2 * each for each in column]))
    update = changed("UPDATE stock SET price = twice(shares) WHERE twice(shares) > 1", catalog)
    assert isinstance(update, BoundUpdate) and isinstance(update.predicate, Call)
    assert isinstance(update.predicate.arguments[0], UserCall)
    assert isinstance(update.assignments[0].value, Cast)


# ---- queries over tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("SELECT sym FROM stock", True),
        ("SELECT sym FROM stock AT TIMESTAMP '2024-01-02'", True),
        ("SELECT sym FROM counts UNION ALL SELECT sym FROM many", True),
        ("WITH s AS (SELECT a FROM bag) SELECT a FROM s", True),
        ("SELECT a FROM bag WHERE a IN (SELECT shares FROM stock)", True),
        ("SELECT a FROM RSTREAM(bag)", True),
        ("SELECT n FROM v", True),
        ("SELECT a FROM s", False),
        ("SELECT a FROM over_s", False),
        ("SELECT a FROM bag WHERE a IN (SELECT a FROM s)", False),
        ("SELECT s.a FROM s JOIN bag ON s.a = bag.a", False),
        ("SELECT a FROM ISTREAM(bag)", False),
        ("SELECT a FROM nowhere", False),
    ],
)
def test_what_is_executed_at_once(text: str, stored: bool) -> None:
    assert is_stored_query(query(text), CATALOG) is stored


def test_a_materialized_view_is_its_query_for_continuous_ones() -> None:
    continuous, _ = bind_reading(query("SELECT n FROM many"), CATALOG)
    at_once, reads = bind_reading(query("SELECT n FROM many"), CATALOG, stored=True)
    assert {node.stream for node in walk(continuous) if isinstance(node, Scan)} == {"s"}
    assert {node.stream for node in walk(at_once) if isinstance(node, Scan)} == {"counts"}
    assert reads == {"many"}


#   a  [=====)           1 .. 4
#   b     [========)     2 .. 6
HISTORY = {"bag": [Element(1, {"a": 10}, until=4), Element(2, {"a": 20}, until=6)]}


def content(text: str, at: int, stored: bool = False) -> list[int]:
    plan, _ = bind_reading(query(text), CATALOG, stored=stored)
    return sorted(value for row in snapshot(plan, HISTORY, at) for value in row.values() if isinstance(value, int))


def test_the_changes_of_a_table() -> None:
    inserts = [content("SELECT a FROM ISTREAM(bag)", t) for t in range(8)]
    assert inserts == [[], [10], [20], [], [], [], [], []]
    deletes = [content("SELECT a FROM DSTREAM(bag)", t) for t in range(8)]
    assert deletes == [[], [], [], [], [10], [], [20], []]
    whole = [content("SELECT a FROM RSTREAM(bag)", t) for t in range(8)]
    assert whole == [content("SELECT a FROM bag", t) for t in range(8)]
    assert whole == [[], [10], [10, 20], [10, 20], [20], [20], [], []]


def test_the_changes_of_a_table_in_a_window() -> None:
    held = [content("SELECT a FROM ISTREAM(bag) WINDOW(RANGE 3 MICROSECONDS)", t) for t in range(8)]
    assert held == [[], [10], [10, 20], [10, 20], [20], [], [], []]


def test_the_whole_of_a_table_in_a_window_needs_a_granularity() -> None:
    """RSTREAM has every row at every instant. How often it counts in a window depends on the granularity of time."""
    text = "SELECT a FROM (SELECT a FROM RSTREAM(bag) GRANULARITY(2 MICROSECONDS)) x WINDOW(RANGE 4 MICROSECONDS)"
    assert [content(text, t) for t in (2, 4)] == [[10, 20], [10, 20, 20]]
    assert refused("SELECT a FROM RSTREAM(bag) WINDOW(RANGE 4 MICROSECONDS)").code == "window-over-intervals"


def test_a_table_at_an_instant_is_the_same_always() -> None:
    text = "SELECT a FROM bag AT TIMESTAMP '1970-01-01 00:00:00.000003'"
    assert [content(text, t, stored=True) for t in (0, 3, 9)] == [[10, 20]] * 3
    plan, _ = bind_reading(query(text), CATALOG, stored=True)
    assert [node.at for node in walk(plan) if isinstance(node, Scan)] == [3]
    both = "SELECT x.a FROM bag FOR SYSTEM_TIME AS OF '1970-01-01 00:00:00.000001' x JOIN bag y ON x.a = y.a"
    assert content(both, 3, stored=True) == [10]
    assert content(both, 5, stored=True) == []


def test_a_table_as_of_the_time_of_a_stream_is_looked_up() -> None:
    for kind, expected in (("JOIN", "inner"), ("LEFT JOIN", "left"), ("SEMI JOIN", "semi")):
        text = f"SELECT s.a FROM s {kind} bag FOR SYSTEM_TIME AS OF s.ts AS x ON s.a = x.a"
        plan = bind_query(query(text), CATALOG)
        assert [node.kind for node in walk(plan) if isinstance(node, Lookup)] == [expected], kind


def test_istream_of_a_table_is_that_of_its_rows() -> None:
    plan = bind_query(query("SELECT a FROM ISTREAM(bag)"), CATALOG)
    assert any(isinstance(node, Changes) and node.kind == "insert" for node in walk(plan))


# ---- speed -----------------------------------------------------------------------------------------------------------


def test_long_lists_of_values_are_bound_fast() -> None:
    """10,000 rows take less than a second of a fast core. Work that grows with the square would take minutes."""
    values = ", ".join(f"('s{n}', 'company {n}', {n}.25, {n})" for n in range(10_000))
    begin = time.process_time()
    rows = inserted(f"INSERT INTO stock VALUES {values}")
    assert time.process_time() - begin < 10
    assert rows.height == 10_000 and rows.row(9_999) == ("s9999", "company 9999", Decimal("9999.25"), 9_999)


# ---- any text --------------------------------------------------------------------------------------------------------


SEEDS = [case.values[0] for name in ("table_statements.case", "table_changes.case") for case in cases(name)]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_statements_are_accepted_or_refused_with_a_place(seed: int) -> None:
    dice = Random(seed)
    codes = set()
    for _ in range(100):
        text = damaged(str(dice.choice(SEEDS)), dice)
        try:
            catalog = declared()
            for statement in parse(text):
                take(statement, catalog)
            codes.add("accepted")
        except StrandlineError as error:
            assert error.span is not None and error.span.text == text, error.render()
            assert error.render()
            codes.add(error.code)
    assert len(codes) > 5
