"""Query → plan and query → rendered error, from `cases/*.case`, and what a case cannot say."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from strandline.core.errors import BindError, StrandlineError
from strandline.core.temporal import instant
from strandline.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR, decimal
from strandline.logical.catalog import Argument, BaseStream, Catalog, ConnectorCall
from strandline.logical.explain import show_expression, show_plan
from strandline.logical.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    children,
    columns_of,
    substitute,
)
from strandline.logical.plan import (
    Aggregate,
    Filter,
    Join,
    Map,
    Plan,
    Rank,
    Scan,
    SemiJoin,
    Union,
)
from strandline.logical.reference.interpreter import Element, snapshot
from strandline.logical.schema import schema
from strandline.logical.tree import transform_up, walk
from strandline.sql import ast
from strandline.sql.binder.binder import MAX_PLAN_HEIGHT, bind_derived_stream, bind_query
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.binder.create_table import bind_create_table
from strandline.sql.binder.names import freshened
from strandline.sql.parser.statements import parse, parse_one
from strandline.sql.parser.token_stream import MAX_DEPTH
from syntax_cases import cases

SCRIPT = """
CREATE STREAM bid (auction BIGINT, Price DOUBLE, ts TIMESTAMP) SOURCE file('bids') ORDERED BY ts;
CREATE STREAM s (a INT, b VARCHAR, ok BOOLEAN, amount DECIMAL(10, 2), d DATE, ts TIMESTAMP)
  SOURCE file('s') ORDERED BY ts;
CREATE STREAM cheap AS SELECT auction, price FROM bid WHERE price < 10;
CREATE STREAM top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 1 MINUTE] GROUP BY auction;
CREATE TABLE item (auction BIGINT, name VARCHAR, PRIMARY KEY (auction)) NON RETROACTIVE;
CREATE TABLE fee (auction BIGINT, cents INT) NON RETROACTIVE;
CREATE TABLE rate (auction BIGINT, rate INT);
"""


def declared() -> Catalog:
    catalog = Catalog()
    for statement in parse(SCRIPT):
        match statement:
            case ast.CreateStream():
                catalog.add(bind_create_stream(statement))
            case ast.CreateStreamAs():
                catalog.add(bind_derived_stream(statement, catalog))
            case ast.CreateTable():
                catalog.add(bind_create_table(statement))
    return catalog


CATALOG = declared()


def bound(text: str, catalog: Catalog = CATALOG) -> Plan:
    query = parse_one(text)
    assert isinstance(query, ast.Query)
    return bind_query(query, catalog)


def value_of(text: str) -> Expression:
    plan = bound(f"SELECT {text} AS x FROM s")
    assert isinstance(plan, Map)
    return plan.outputs[0][1]


def refused(text: str) -> BindError:
    with pytest.raises(BindError) as caught:
        bound(text)
    return caught.value


def show_bound_plan(plan: Plan) -> str:
    """The columns of the result with their types, which EXPLAIN does not show, and the plan."""
    return f"results: {', '.join(map(str, schema(plan)))}\n{show_plan(plan)}"


def show_bound_value(value: Expression) -> str:
    """The type of an expression, the expression, and the types of its literals from left to right."""
    literals = [str(literal.type) for literal in literals_of(value)]
    return f"{value.type} {show_expression(value)}" + (f"\nliterals: {', '.join(literals)}" if literals else "")


def literals_of(value: Expression) -> list[Literal]:
    if isinstance(value, Literal):
        return [value]
    return [literal for child in children(value) for literal in literals_of(child)]


@pytest.mark.parametrize(("text", "expected"), cases("plans.case"))
def test_plan(text: str, expected: str) -> None:
    assert show_bound_plan(bound(text)) == expected


@pytest.mark.parametrize(("text", "expected"), cases("scalars.case"))
def test_scalar(text: str, expected: str) -> None:
    assert show_bound_value(value_of(text)) == expected


@pytest.mark.parametrize(("text", "expected"), cases("bind_errors.case"))
def test_error(text: str, expected: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        for statement in parse(text):
            if isinstance(statement, ast.CreateStream):
                bind_create_stream(statement)
            elif isinstance(statement, ast.Query):
                bind_query(statement, CATALOG)
    assert caught.value.render() == expected


@pytest.mark.parametrize(
    ("item", "code", "place"),
    [
        ("frobnicate(a)", "unknown-function", "frobnicate"),
        ("a + date_trunc('fortnight', ts)", "type-mismatch", "'fortnight'"),
        ("1 + round(amount, a)", "type-mismatch", "round(amount, a)"),
        ("ok + length(a)", "type-mismatch", "length(a)"),
        ("b ~ '(a'", "type-mismatch", "'(a'"),
        ("b !~* ts", "type-mismatch", "b !~* ts"),
        ("regexp_replace(b, 'y' || b, 'x')", "type-mismatch", "'y' || b"),
        ("b LIKE 'x' ESCAPE 'yz'", "type-mismatch", "'yz'"),
        ("extract(fortnight FROM ts)", "unknown-unit", "fortnight"),
        ("to_char(ts, 'YYYY-foo')", "type-mismatch", "'YYYY-foo'"),
        ("1.5 & 2", "type-mismatch", "1.5 & 2"),
        ("trunc(1e0, 2)", "type-mismatch", "trunc(1e0, 2)"),
        ("MAX(a) || SUM(ok)", "type-mismatch", "SUM(ok)"),
        ("(ts - ts)::VARCHAR", "cannot-cast", "(ts - ts)::VARCHAR"),
        ("ts + '1 month'", "invalid-literal", "'1 month'"),
        ("amount = '1e-99999999999999999999'", "invalid-literal", "'1e-99999999999999999999'"),
    ],
)
def test_errors_of_functions_have_their_place(item: str, code: str, place: str) -> None:
    error = refused(f"SELECT {item} FROM s")
    assert error.code == code
    assert error.span is not None
    assert error.span.text[error.span.start : error.span.end] == place


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_create_stream() -> None:
    statement = parse_one(
        """CREATE STREAM Bid (Auction BIGINT, "Price" DECIMAL(8, 2), ts TIMESTAMP)
        SOURCE Rows((1, 1.50, TIMESTAMP '2024-01-01'), (2, NULL, '2024-01-02'), Loop => TRUE, "Key" = 'x')
        ORDERED BY TS WITHIN 2 SECONDS IDLE AFTER 1 MINUTE"""
    )
    assert isinstance(statement, ast.CreateStream)
    rows: tuple[Argument, ...] = ([1, "1.50", "2024-01-01"], [2, None, "2024-01-02"])
    assert bind_create_stream(statement) == BaseStream(
        name="Bid",
        columns=(("Auction", BIGINT), ("Price", decimal(8, 2)), ("ts", TIMESTAMP)),
        source=ConnectorCall("rows", rows, {"loop": True, "Key": "x"}),
        time_column="ts",
        disorder_us=2_000_000,
        idle_after_us=60_000_000,
    )


def test_a_derived_stream_keeps_the_text_of_its_query() -> None:
    statement = parse_one("CREATE STREAM x AS\n  SELECT a FROM s;")
    assert isinstance(statement, ast.CreateStreamAs)
    assert bind_derived_stream(statement, CATALOG).text == "SELECT a FROM s"


# ---- ids -------------------------------------------------------------------------------------------------------------

MANY_IDS = [
    "SELECT * FROM bid b, bid c WHERE b.ts = c.ts",
    "SELECT x.price, y.price FROM top x JOIN top y ON x.auction = y.auction",
    "SELECT price, price + 1 AS price, price FROM (SELECT price FROM cheap) t GROUP BY price",
    "SELECT x.n FROM (SELECT COUNT(*) AS n FROM top) x, (SELECT COUNT(*) AS n FROM top) y, top",
    "SELECT auction FROM top UNION ALL SELECT auction FROM top UNION ALL SELECT a FROM s",
    'SELECT "b.Price", x.y FROM (SELECT 1 AS "b.Price" FROM bid b) AS b, (SELECT 2 AS y FROM bid) "x"',
]


@pytest.mark.parametrize("text", MANY_IDS)
def test_an_id_is_defined_once(text: str) -> None:
    """Except where a Map below an Aggregate passes a column on under its own id."""
    defined: Counter[str] = Counter()
    for node in walk(bound(text)):
        match node:
            case Scan(_, _, columns) | Union(columns, _):
                defined.update(column.id for column in columns)
            case Map(outputs, _):
                defined.update(c.id for c, value in outputs if value != ColumnRef(c.id, c.type))
            case Aggregate(_, aggregates, _):
                defined.update(column.id for column, _ in aggregates)
    assert [column_id for column_id, count in defined.items() if count > 1] == []


@pytest.mark.parametrize("text", [*MANY_IDS, *(case.values[0] for case in cases("plans.case"))])
def test_every_expression_reads_columns_of_its_input(text: str) -> None:
    for node in walk(bound(text)):
        match node:
            case Filter(predicate, source):
                assert visible(source, predicate)
                assert predicate.type == BOOLEAN
            case Map(outputs, source):
                assert visible(source, *(value for _, value in outputs))
                assert all(column.type == value.type for column, value in outputs)
            case Join(predicate, left, right) | SemiJoin(_, predicate, left, right) if predicate is not None:
                assert columns_of(predicate) <= {column.id for column in schema(left) + schema(right)}
            case Aggregate(keys, aggregates, source):
                assert visible(source, *(call.argument for _, call in aggregates if call.argument))
                assert set(keys) <= {column.id for column in schema(source)}
            case Rank(_, partition, order, _, source):
                assert visible(source, *(key.column for key in order))
                assert set(partition) <= {column.id for column in schema(source)}
            case Union(columns, inputs):
                for each in inputs:
                    assert [column.type for column in schema(each)] == [column.type for column in columns]


def visible(source: Plan, *values: Expression) -> bool:
    types = {column.id: column.type for column in schema(source)}

    def known(value: Expression) -> bool:
        return all(column_id in types for column_id in columns_of(value))

    return all(known(value) and (not isinstance(value, ColumnRef) or types[value.id] == value.type) for value in values)


@pytest.mark.parametrize("text", [*MANY_IDS, *(case.values[0] for case in cases("plans.case"))])
def test_a_freshened_plan_is_the_same_under_other_ids(text: str) -> None:
    plan = bound(text)
    fresh = freshened(plan, lambda column_id: f"{column_id}'")
    assert {column.id for node in walk(fresh) for column in schema(node)}.isdisjoint(
        column.id for node in walk(plan) for column in schema(node)
    )
    assert freshened(fresh, lambda column_id: column_id.removesuffix("'")) == plan


def test_strange_names_make_plain_ids() -> None:
    plan = bound('SELECT "^x$"."*" AS "^y$", 1 AS "#" FROM (SELECT a AS "*" FROM s) AS "^x$"')
    assert [column.id for column in schema(plan)] == ["_y_", "column"]
    assert [column.name for column in schema(plan)] == ["^y$", "#"]


def test_a_derived_stream_is_inlined_as_it_was_declared() -> None:
    catalog = declared()
    plan = bound("SELECT price FROM cheap", catalog)
    catalog.drop("cheap")
    assert show_plan(plan).endswith("Scan bid (auction, Price, ts)")


# ---- literals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("7", Literal(7, INT)),
        ("007", Literal(7, INT)),
        ("2147483647", Literal(2147483647, INT)),
        ("2147483648", Literal(2147483648, BIGINT)),
        ("-2147483648", Literal(-2147483648, INT)),
        ("-9223372036854775808", Literal(-(2**63), BIGINT)),
        ("9223372036854775808", Literal(Decimal(2**63), decimal(19, 0))),
        ("1.50", Literal(Decimal("1.50"), decimal(3, 2))),
        ("0.05", Literal(Decimal("0.05"), decimal(2, 2))),
        (".5", Literal(Decimal("0.5"), decimal(1, 1))),
        ("1.", Literal(Decimal(1), decimal(1, 0))),
        ("-1.5", Literal(Decimal("-1.5"), decimal(2, 1))),
        ("1e3", Literal(1000.0, DOUBLE)),
        ("'it''s'", Literal("it's", VARCHAR)),
        ("TRUE", Literal(True, BOOLEAN)),
        ("NULL", Literal(None, VARCHAR)),
        ("TIMESTAMP '2024-01-31 12:00:00.5'", Literal(datetime(2024, 1, 31, 12, 0, 0, 500_000), TIMESTAMP)),
        ("TIMESTAMP '2024-01-31T12:00:00+02:00'", Literal(datetime(2024, 1, 31, 10), TIMESTAMP)),
        ("DATE '2024-01-31'", Literal(date(2024, 1, 31), DATE)),
        ("CAST(5 AS BIGINT)", Literal(5, BIGINT)),
        ("5::DOUBLE", Literal(5.0, DOUBLE)),
        ("0.1::DOUBLE", Literal(0.1, DOUBLE)),
        ("5::DECIMAL(4, 2)", Literal(Decimal("5.00"), decimal(4, 2))),
        ("'12'::INT", Literal(12, INT)),
        ("NULL::INT", Literal(None, INT)),
        ("'2024-01-31'::DATE::TIMESTAMP", Literal(datetime(2024, 1, 31), TIMESTAMP)),
        ("5::VARCHAR", Literal("5", VARCHAR)),
    ],
)
def test_literal(text: str, literal: Literal) -> None:
    value = value_of(text)
    assert value == literal
    assert isinstance(value, Literal)
    assert type(value.value) is type(literal.value)


def test_a_cast_without_a_value_is_left_to_run_time() -> None:
    assert value_of("'abc'::INT") == Cast(Literal("abc", VARCHAR), INT)
    assert value_of("3000000000::INT") == Cast(Literal(3_000_000_000, BIGINT), INT)


def test_a_bare_null_is_a_text_unless_a_union_says_otherwise() -> None:
    assert [c.type for c in schema(bound("SELECT NULL AS x FROM s"))] == [VARCHAR]
    assert [c.type for c in schema(bound("SELECT NULL AS x FROM s UNION ALL SELECT a FROM s"))] == [INT]
    assert [c.type for c in schema(bound("SELECT NULL AS x FROM s UNION ALL SELECT NULL FROM s"))] == [VARCHAR]
    for text in (
        "SELECT DISTINCT NULL AS x FROM s UNION ALL SELECT ts FROM s",
        "SELECT x FROM (SELECT NULL x FROM s) t",
    ):
        assert all(column.type != NULL for node in walk(bound(text)) for column in schema(node))


# ---- meaning ---------------------------------------------------------------------------------------------------------

NOON = datetime(2024, 1, 1, 12)
S_ROWS = [
    (1, "x", True, Decimal("1.50"), date(2024, 1, 1), NOON),
    (1, "y", False, Decimal("-2.25"), date(2024, 1, 2), NOON),
    (2, None, None, None, None, NOON),
    (None, "x", True, Decimal("0.00"), date(2023, 12, 31), NOON),
    (3, "zz", False, Decimal("7.00"), date(2024, 1, 1), NOON),
    (3, "zz", False, Decimal("7.00"), date(2024, 1, 1), NOON),
]
BID_ROWS = [(1, 1.5, NOON), (1, 20.0, NOON), (2, None, NOON), (3, 5.0, NOON), (4, -1.0, NOON), (None, 9.0, NOON)]

SAME_AS_SQL = [
    "SELECT * FROM s",
    "SELECT a, b FROM s WHERE NOT ok OR a = 1 AND amount > 0",
    "SELECT a + 2 * 3 - 1 AS x, -a AS y, a % 2 AS z FROM s",
    "SELECT b || 'x' || a AS t, ok IS TRUE AS p, ok IS NOT FALSE AS q, (a = 1) IS NULL AS r FROM s",
    "SELECT a FROM s WHERE a NOT IN (1, NULL)",
    "SELECT a FROM s WHERE a IN (1, NULL) OR b LIKE 'z%' OR amount BETWEEN -3 AND -1",
    "SELECT a FROM s WHERE NOT a BETWEEN 2 AND 3 AND b NOT LIKE '%y'",
    "SELECT CASE a WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS x, CASE WHEN ok THEN a ELSE amount END AS y FROM s",
    "SELECT a FROM s WHERE d > '2023-12-31' AND ts = '2024-01-01 12:00:00'",
    "SELECT s.a, bid.price FROM s, bid WHERE s.a = bid.auction AND price > 1",
    "SELECT x.auction, y.price FROM bid x JOIN bid y ON x.auction = y.auction AND x.price <= y.price",
    "SELECT COUNT(*) AS n FROM s CROSS JOIN (SELECT DISTINCT auction FROM bid) t",
    "SELECT a, COUNT(*) AS n, COUNT(b) AS m, SUM(amount) AS t, MIN(b) AS least, MAX(d) AS latest FROM s GROUP BY a",
    "SELECT a % 2 AS k, COUNT(*) + 1 AS n FROM s GROUP BY k HAVING COUNT(*) > 1",
    "SELECT (a % 2) * 10 AS k, AVG(a) AS m FROM s GROUP BY a % 2",
    "SELECT b, ok, SUM(a) AS t FROM s GROUP BY 1, 2 HAVING MAX(a) IS NOT NULL",
    "SELECT COUNT(*) AS n, SUM(price) AS t, MAX(price) AS p FROM bid WHERE price > 1000",
    "SELECT 1 AS one FROM bid HAVING MAX(price) > 1",
    "SELECT 1 AS one FROM bid HAVING MAX(price) > 1000",
    "SELECT DISTINCT a, b FROM s",
    "SELECT DISTINCT COUNT(*) AS n FROM s GROUP BY a",
    "SELECT a AS x FROM s UNION ALL SELECT price FROM bid UNION ALL SELECT NULL FROM bid",
    "SELECT t.m FROM (SELECT auction, MAX(price) AS m FROM bid GROUP BY auction) t JOIN s ON a = auction WHERE m > 2",
    "SELECT p.price, q.price FROM cheap p JOIN cheap q ON p.auction = q.auction",
    "SELECT COUNT(*) AS n FROM cheap, cheap other WHERE cheap.price < other.price",
    """SELECT a, b FROM s WHERE EXISTS (SELECT 1 FROM bid x WHERE x.auction > s.a AND EXISTS (
       SELECT 1 FROM bid y WHERE y.auction = s.a AND y.price > x.price))""",
    """SELECT a, b FROM s WHERE NOT EXISTS (SELECT 1 FROM bid x WHERE x.auction IS NOT DISTINCT FROM (
       SELECT MAX(y.auction) FROM bid y WHERE y.auction <> s.a))""",
    """SELECT a, a NOT IN (SELECT x.auction FROM bid x WHERE x.price > ALL (
       SELECT y.price FROM bid y WHERE y.auction = s.a)) AS x FROM s""",
    """SELECT a, (SELECT COUNT(*) FROM bid x WHERE s.a IN (SELECT y.auction FROM bid y WHERE y.price < x.price)) AS n
       FROM s""",
    "SELECT a FROM s WHERE a IN (SELECT COUNT(*) FROM bid WHERE auction = a)",
    "SELECT a FROM s WHERE a IN (SELECT COUNT(*) FROM bid WHERE auction >= a GROUP BY price > 5 HAVING MAX(price) > a)",
    "SELECT a, b FROM s WHERE a - 1 IN (SELECT COUNT(*) FROM bid WHERE auction > a + 1 GROUP BY ROLLUP (price))",
    """SELECT b, SUM(a) AS t FROM s GROUP BY b HAVING EXISTS (SELECT 1 FROM bid x WHERE NOT EXISTS (
       SELECT 1 FROM s y WHERE y.b = s.b AND y.a = x.auction))""",
    """SELECT a FROM s WHERE EXISTS (SELECT 1 FROM bid x WHERE EXISTS (SELECT 1 FROM bid y WHERE y.auction = 3
       AND EXISTS (SELECT 1 FROM s z WHERE z.a = s.a AND z.a < x.auction AND z.a < y.auction)))""",
]


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE bid (auction BIGINT, price DOUBLE, ts TIMESTAMP)")
    connection.execute(
        "CREATE TABLE s (a INT, b VARCHAR, ok BOOLEAN, amount DECIMAL(10, 2), d DATE, ts TIMESTAMP)",
    )
    connection.execute("CREATE VIEW cheap AS SELECT auction, price FROM bid WHERE price < 10")
    connection.executemany("INSERT INTO bid VALUES (?, ?, ?)", BID_ROWS)
    connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", S_ROWS)
    return connection


@pytest.mark.parametrize("text", SAME_AS_SQL)
def test_the_plan_means_what_the_query_says(text: str, database: duckdb.DuckDBPyConnection) -> None:
    """At an instant at which all rows are valid the answer is that of a database over these rows."""
    at = instant(NOON)
    streams = {
        "s": [Element(at, dict(zip(("a", "b", "ok", "amount", "d", "ts"), row, strict=True))) for row in S_ROWS],
        "bid": [Element(at, dict(zip(("auction", "Price", "ts"), row, strict=True))) for row in BID_ROWS],
    }
    plan = bound(text)
    rows = [tuple(row[column.id] for column in schema(plan)) for row in snapshot(plan, streams, at)]
    expected = database.execute(text).fetchall()
    assert Counter(map(comparable, rows)) == Counter(map(comparable, expected))
    assert schema(plan)[0].name.lower() == database.description[0][0].lower()


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(float(value) if isinstance(value, int | Decimal) else value for value in row)


# ---- names of results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("PRICE, auction AS Auction, b.ts", ["Price", "Auction", "ts"]),
        ("price, price, Price AS PRICE", ["Price", "Price_2", "PRICE_3"]),
        ("price AS x_2, auction AS x, ts AS x", ["x_2", "x", "x_3"]),
        ("price + 1, -price, 5", ["col1", "col2", "col3"]),
        ("ABS(price), CAST(price AS INT), price::INT, CASE WHEN TRUE THEN 1 END", ["abs", "Price", "Price_2", "case"]),
        ("COUNT(*), SUM(price), MAX(price) + 1", ["count", "sum", "col3"]),
        ("*, b.*", ["auction", "Price", "ts", "auction_2", "Price_2", "ts_2"]),
        ('price AS "two words"', ["two words"]),
    ],
)
def test_output_names(items: str, names: list[str]) -> None:
    assert [column.name for column in schema(bound(f"SELECT {items} FROM bid b"))] == names


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_long_conditions_are_flat() -> None:
    plan = bound(f"SELECT a FROM s WHERE {' OR '.join(['a = 1'] * 2_000)}")
    assert isinstance(plan, Map)
    assert isinstance(plan.source, Filter)
    assert isinstance(plan.source.predicate, Call)
    assert len(plan.source.predicate.arguments) == 2_000


DEEPEST = [
    "SELECT " + "1.5 + (" * (MAX_DEPTH // 2 - 4) + "a" + ")" * (MAX_DEPTH // 2 - 4) + " AS x FROM s",
    "SELECT " + " + ".join(["a", "1.5"] * (MAX_DEPTH // 2 - 4)) + " AS x FROM s",
    "SELECT " + "abs(" * (MAX_DEPTH - 8) + "a" + ")" * (MAX_DEPTH - 8) + " AS x FROM s",
    "SELECT " + "CASE WHEN ok THEN " * (MAX_DEPTH - 8) + "a" + " END" * (MAX_DEPTH - 8) + " AS x FROM s",
    "SELECT a FROM " + "(SELECT a FROM " * 45 + "s" + ") AS t" * 45,
    "SELECT s.a AS x FROM s" + "".join(f" CROSS JOIN s AS s{i}" for i in range(MAX_DEPTH - 8)),
    "SELECT s.a AS x FROM s" + "".join(f", s AS s{i}" for i in range(MAX_PLAN_HEIGHT - 4)),
]


@pytest.mark.parametrize("text", DEEPEST, ids=lambda text: text[:24])
def test_the_deepest_plans_can_be_walked(text: str) -> None:
    """With some of the stack taken already, as below a command line, a server or a test runner."""

    def below(frames: int) -> None:
        if frames:
            return below(frames - 1)
        plan = bound(text)
        again = bound(text)
        assert plan == again
        assert hash(plan) == hash(again)
        assert transform_up(plan, lambda node: node) == plan
        for node in walk(plan):
            if isinstance(node, Map):
                values = {
                    column_id: ColumnRef(column_id, INT) for _, value in node.outputs for column_id in columns_of(value)
                }
                assert [substitute(value, dict(values)) for _, value in node.outputs]
        return None

    depth = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    below(max(120 - depth, 0))


def test_questions_that_double_with_every_level_end_in_a_refusal() -> None:
    def nested(depth: int) -> str:
        inner = "".join(f"t{i - 1}.a IN (SELECT t{i}.a FROM s t{i} WHERE t{i}.ok OR " for i in range(1, depth + 1))
        return f"SELECT 1 FROM s t0 WHERE t0.ok OR {inner} t0.a > 1{')' * depth}"

    bound(nested(5))
    assert refused(nested(16)).code == "too-large"


def test_too_many_operators_are_refused() -> None:
    streams = ", ".join(f"s AS s{i}" for i in range(1_500))
    error = refused(f"SELECT s0.a FROM {streams}")
    assert error.code == "too-deep"
    assert error.span is not None


def test_queries_built_upon_queries_end_in_a_refusal_too() -> None:
    catalog = declared()
    with pytest.raises(BindError) as caught:
        for level in range(100):
            below = f"q{level - 1}" if level else "s"
            statement = parse_one(f"CREATE STREAM q{level} AS SELECT a FROM {below}")
            assert isinstance(statement, ast.CreateStreamAs)
            catalog.add(bind_derived_stream(statement, catalog))
    assert caught.value.code == "too-deep"
    assert "q30" in catalog


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 40 + "ok" + " BETWEEN FALSE AND TRUE)" * 40 + " AS x FROM s",
        "SELECT " + "CASE " * 40 + "a" + " WHEN 1 THEN 2 WHEN 3 THEN 4 END" * 40 + " AS x FROM s",
    ],
    ids=["between", "case"],
)
def test_repeated_operands_do_not_explode(text: str) -> None:
    error = refused(text)
    assert error.code == "too-large"
    assert error.span is not None


def test_tests_of_tests_are_bound_once() -> None:
    assert bound("SELECT ok" + " IS UNKNOWN IS TRUE IS NOT FALSE" * 25 + " AS x FROM s")
