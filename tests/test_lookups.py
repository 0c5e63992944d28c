"""Tables that are not retroactive, against the definition: every row of a stream sees the table as it was when the row
came, whatever the window, the batches and the shards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

import test_random_tables as logs
from lookup_queries import LookupQueries
from random_streams import cut, stream
from rule_testing import differ, made_by, some_streams
from strandline.core.errors import BindError
from strandline.core.temporal import Instant
from strandline.core.types import INT, VARCHAR
from strandline.logical.catalog import Catalog, StreamStatistics, TableKind
from strandline.logical.expressions import Value
from strandline.logical.plan import CountWindow, Join, Lookup, Map, Plan, SessionWindow
from strandline.logical.schema import pass_on, schema
from strandline.logical.tree import transform_up, walk
from strandline.planner.alternatives import neighbours
from strandline.planner.stages import optimize
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse
from support import Arrivals, Cuts, arrange, assert_exact, bind, examples, raw, run_plan, show
from table_logs import run_with_tables
from table_testing import check, random_table, some_tables, table

SEMANTICS: Final = Path(__file__).parents[1] / "docs" / "semantics.md"
BLOCK = 25
REFUSED = ("lookup-window",)  # what has a meaning that is not computed


def draw(dice: Random) -> list[Arrivals]:
    streams = [stream(dice, f"s{number}", ("i", "s", "b"), dice.randint(3, 8)) for number in range(2)]
    return [*streams, random_table(dice, "t", keyed=True), random_table(dice, "u", keyed=False)]


@pytest.mark.parametrize("first", range(0, examples(12) * BLOCK, BLOCK))
def test_every_lookup_means_its_definition(first: int) -> None:
    elements, refused = 0, Counter[str]()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        inputs = draw(dice)
        text = LookupQueries(dice, [each.name for each in inputs if each.intervals]).query()
        try:
            elements += check(bind(text, inputs), inputs, cut(dice, inputs), cut(dice, inputs))[1]
        except BindError as error:
            refused[error.code] += 1
            assert error.code in REFUSED, f"seed {seed}: {text}\n{error}"
        except BaseException as error:
            error.add_note(f"seed {seed}, {inputs}:\n{text}")
            raise
    assert elements > BLOCK // 2, "the queries have results to compare"
    assert sum(refused.values()) < BLOCK / 2, refused


# ---- over the logs of tables -----------------------------------------------------------------------------------------

OVER_LOGS = (
    "SELECT a.k, a.v, t.v AS w FROM a {w} JOIN t ON a.k = t.k",
    "SELECT a.k, a.v, t.v AS w FROM a {w} LEFT JOIN t ON a.k = t.k AND t.v <> 'x'",
    "SELECT a.k FROM a {w} SEMI JOIN t ON a.k = t.k",
    "SELECT a.k FROM a {w} ANTI JOIN t ON a.k < t.k",
    "SELECT a.k, EXISTS (SELECT 1 FROM t WHERE t.k = a.k) AS e FROM a {w}",
    "SELECT a.k, t.v, u.v AS w FROM a {w} JOIN t ON a.k = t.k LEFT JOIN u ON a.v = u.v",
    "SELECT a.k, b.v, t.v AS w FROM a {w} JOIN a [RANGE 4 MICROSECONDS] b ON a.v = b.v JOIN t ON a.k = t.k",
    "SELECT a.k, b.v, t.v AS w FROM a {w} JOIN t ON a.k = t.k JOIN a [ROWS 3] b ON a.v = b.v",
    "SELECT t.v, COUNT(*) AS n FROM a {w}, t WHERE a.k = t.k GROUP BY t.v",
    "SELECT a.k, m.n FROM a {w} JOIN (SELECT k, COUNT(*) AS n FROM t GROUP BY k) m ON a.k = m.k",
    "SELECT a.k, t.v FROM a {w} JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k",
)


def check_over_logs(seed: int) -> int:
    """One query over tables that are read from their logs; the instants that were compared."""
    dice = Random(seed)
    drawn = [(dice.randrange(-5, 25), dice.randrange(3), (dice.randrange(4), dice.choice("xyz"))) for _ in range(8)]
    rows = arrange("a", logs.COLUMNS, drawn[: dice.randrange(9)], dice.choice((0, 2)))
    tables = [logs.draw_table(dice, name, retroactive=False) for name in "tu"]
    text = dice.choice(OVER_LOGS).replace("{w}", dice.choice(logs.WINDOWS))
    catalog = Catalog()
    catalog.add(rows.declared)
    for each in tables:
        catalog.add(each.table)
    (query,) = parse(text)
    assert isinstance(query, ast.Query)
    try:
        plan = bind_query(query, catalog)
    except BindError as error:
        assert error.code in REFUSED, f"seed {seed}: {text}\n{error}"
        return 0
    sizes = (tuple(dice.randrange(4) for _ in range(dice.randrange(5))),)
    how = Cuts(sizes, dice.randrange(1, 4), dice.choice(("intervals", "changes")), False, dice.randrange(12))
    answer, ends = run_with_tables(plan, [rows], tables, how, dice.choice((2, 1000)))
    contents = {each.name: each.elements(ends[each.name]) for each in tables}
    try:
        return assert_exact(plan, {"a": rows.elements, **contents}, answer)
    except AssertionError as error:
        error.add_note(f"seed {seed}: {text}")
        raise


def test_lookups_read_the_logs_of_tables() -> None:
    assert sum(check_over_logs(seed) for seed in range(examples(300))) > 750


# ---- worked time lines -----------------------------------------------------------------------------------------------

ROWS = arrange("s", {"k": INT}, [(0, 0, (1,))], 0)
HISTORY: list[tuple[Instant, Instant | None, Mapping[str, Value]]] = [
    (-5, 4, {"k": 1, "p": "p"}),
    (4, 7, {"k": 1, "p": "q"}),
]
PRICES = {"k": INT, "p": VARCHAR}


def result(text: str, *inputs: Arrivals) -> str:
    plan = bind(text, inputs)
    answer = run_plan(plan, inputs, Cuts(((1,) * 9,) * len(inputs), 2))
    assert_exact(plan, raw(inputs), answer)
    return show(answer.elements)


def test_a_row_sees_the_table_as_it_was_when_it_came() -> None:
    #   t        0    4    7   10
    #   s  k=1   [==========)          RANGE 10
    #   t  k=1  p====)q===)
    changing = table("t", HISTORY, PRICES, ("k",), retroactive=True)
    looked_up = table("n", HISTORY, PRICES, ("k",))
    text = "SELECT s.k, t.p FROM s [RANGE 10 MICROSECONDS] JOIN {} t ON s.k = t.k"
    assert result(text.format("n"), ROWS, looked_up) == "1,p[0,10)"
    assert result(text.format("t"), ROWS, changing) == "1,p[0,4) 1,q[4,7)"
    later = arrange("s", {"k": INT}, [(4, 0, (1,))], 0)
    assert result(text.format("n"), later, looked_up) == "1,q[4,14)", "a row at 4 sees the change at 4"
    instants = "SELECT s.k, t.p FROM s JOIN {} t ON s.k = t.k"
    assert result(instants.format("n"), later, looked_up) == result(instants.format("t"), later, changing) == "1,q[4,5)"


def test_the_order_in_from_decides_which_row_of_a_pair_looks_up() -> None:
    #   t        0    4  5 7   10
    #   s  k=1   [===========)         RANGE 10
    #   z  k=1           [==========)  RANGE 10
    #   n  k=1  p====)q====)
    second, looked_up = arrange("z", {"k": INT}, [(5, 0, (1,))], 0), table("n", HISTORY, PRICES, ("k",))
    s, z = "s [RANGE 10 MICROSECONDS]", "z [RANGE 10 MICROSECONDS]"
    inputs = ROWS, second, looked_up
    assert result(f"SELECT n.p FROM {s} JOIN n ON s.k = n.k JOIN {z} ON s.k = z.k", *inputs) == "p[5,10)"
    assert result(f"SELECT n.p FROM {s} JOIN {z} ON s.k = z.k JOIN n ON s.k = n.k", *inputs) == "q[5,10)"
    as_of = f"SELECT n.p FROM {s} JOIN {z} ON s.k = z.k JOIN n FOR SYSTEM_TIME AS OF {{}}.ts ON s.k = n.k"
    assert result(as_of.format("s"), *inputs) == "p[5,10)"
    assert result(as_of.format("z"), *inputs) == "q[5,10)"


def test_one_join_as_of_the_time_of_a_stream_is_not_retroactive() -> None:
    changing = table("t", HISTORY, PRICES, ("k",), retroactive=True)
    join = "SELECT s.k, t.p FROM s [RANGE 10 MICROSECONDS] {} t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k"
    assert result(join.format("JOIN"), ROWS, changing) == "1,p[0,10)"
    assert result(join.format("LEFT JOIN"), ROWS, changing) == "1,p[0,10)"
    listed = "SELECT s.k, t.p FROM s [RANGE 10 MICROSECONDS], t FOR SYSTEM_TIME AS OF s.ts WHERE s.k = t.k"
    assert result(listed, ROWS, changing) == "1,p[0,10)"


# ---- which joins are possible ----------------------------------------------------------------------------------------

MATRIX = re.findall(r"^\| `([st] [A-Z ]+ [st])` \| (\S+) \| (\S+) \| (\S+) \|$", SEMANTICS.read_text(), re.MULTILINE)
SIDES: Final = {"s": "s [RANGE 5 MICROSECONDS]", "t": "t"}
SUBQUERIES: Final = {
    "WHERE EXISTS": "SELECT {0}.k FROM {a} WHERE EXISTS (SELECT 1 FROM {b} WHERE {0}.k = {1}.k)",
    "WHERE IN": "SELECT {0}.k FROM {a} WHERE {0}.k IN (SELECT k FROM {b})",
    "WHERE NOT IN": "SELECT {0}.k FROM {a} WHERE {0}.k NOT IN (SELECT k FROM {b})",
    "SELECT EXISTS": "SELECT {0}.k, EXISTS (SELECT 1 FROM {b} WHERE {0}.k = {1}.k) AS e FROM {a}",
    "SELECT MAX": "SELECT {0}.k, (SELECT MAX(k) FROM {b} WHERE {0}.k = {1}.k) AS e FROM {a}",
}


def query_of(form: str) -> str:
    """The query of a line of the matrix."""
    left, operator, right = re.fullmatch(r"(\w) (.+) (\w)", form).groups()  # type: ignore[union-attr]
    if operator in SUBQUERIES:
        return SUBQUERIES[operator].format(left, right, a=SIDES[left], b=SIDES[right])
    if operator.endswith("JOIN"):
        on = "" if operator == "CROSS JOIN" else " ON s.k = t.k"
        return f"SELECT {left}.k FROM {SIDES[left]} {operator} {SIDES[right]}{on}"
    return f"SELECT k FROM {SIDES[left]} {operator} SELECT k FROM {SIDES[right]}"


def outcome(form: str, kind: TableKind, key: tuple[str, ...], *, retroactive: bool) -> str:
    """Whether a query of a form is possible, and right; else the code of the error."""
    always: list[tuple[int, int | None, Mapping[str, Value]]] = [(-50, None, {"k": 1, "p": "p"})]
    history = HISTORY if kind == "changing" else always
    try:
        result(query_of(form), ROWS, table("t", history, PRICES, key, kind, retroactive=retroactive))
    except BindError as error:
        return f"`{error.code}`"
    return "yes"


@pytest.mark.parametrize("key", [("k",), ()], ids=["keyed", "bag"])
@pytest.mark.parametrize(("form", "joined", "looked_up", "constant"), MATRIX, ids=[form for form, *_ in MATRIX])
def test_the_page_says_which_joins_are_possible(
    form: str, joined: str, looked_up: str, constant: str, key: tuple[str, ...]
) -> None:
    assert joined == outcome(form, "changing", key, retroactive=True)
    assert looked_up == outcome(form, "changing", key, retroactive=False)
    assert constant == outcome(form, "constant", key, retroactive=True)
    assert constant == outcome(form, "constant", key, retroactive=False), "a constant table is never looked up"


def test_the_page_has_all_joins() -> None:
    joins = {f"{kind} JOIN".strip() for kind in ("", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")}
    sets = {"UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT"}
    forms = {form for form, *_ in MATRIX}
    assert forms == {f"{a} {kind} {b}" for kind in joins | sets | SUBQUERIES.keys() for a, b in ("st", "ts")}


# ---- what no rule does would be wrong --------------------------------------------------------------------------------


def lookup_below_rows(plan: Plan) -> Plan:
    match plan:
        case Lookup(_, _, _, CountWindow() | SessionWindow() as window):
            return replace(window, source=replace(plan, source=window.source))
    return plan


def lookup_below_join(plan: Plan) -> Plan:
    match plan:
        case Lookup(_, _, _, Join(condition, left, right), _):
            pairs = Join(condition, replace(plan, source=left), right)
            return Map(pass_on(schema(plan)), pairs)
    return plan


def join_instead_of_lookup(plan: Plan) -> Plan:
    match plan:
        case Lookup("inner", _, predicate, source, content):
            return Join(predicate, source, content)
    return plan


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lookup_below_rows, "SELECT a.i, t.v FROM s0 [ROWS 2] a JOIN t0 t ON a.i = t.i"),
        (lookup_below_rows, "SELECT a.i, t.v FROM s0 [SESSION 4 MICROSECONDS] a JOIN t0 t ON a.i = t.i"),
        (lookup_below_join, "SELECT a.i, t.v FROM s0 [RANGE 9 MICROSECONDS] a JOIN s1 [RANGE 9 MICROSECONDS] b "
                            "ON a.i = b.i JOIN t0 t ON a.i = t.i"),
        (join_instead_of_lookup, "SELECT a.i, t.v FROM s0 [RANGE 9 MICROSECONDS] a JOIN t0 t ON a.i = t.i"),
    ],
)  # fmt: skip
def test_what_is_forbidden_would_be_wrong(wrong: Callable[[Plan], Plan], text: str) -> None:
    found = 0
    for seed in range(40):
        inputs = [*some_streams(seed), *some_tables(seed)]
        plan = bind(text, inputs)
        other = transform_up(plan, wrong)
        assert other != plan
        found += differ(plan, other, inputs)
    assert found > 0


def test_no_rule_takes_the_row_time_from_below_a_lookup() -> None:
    """Of an element of a semi join it is not known when its match came."""
    inner = "SELECT a.i FROM s0 [RANGE 9 MICROSECONDS] a JOIN s1 [PARTITION BY i ROWS 1] b ON a.i = b.i"
    inputs = [*some_streams(0), *some_tables(0)]
    assert made_by(["join_as_semi_join"], bind(f"SELECT x.i FROM ({inner}) AS x", inputs))
    assert not made_by(["join_as_semi_join"], bind(f"SELECT x.i FROM ({inner}) AS x JOIN t0 t ON x.i = t.i", inputs))


def test_a_lookup_is_a_barrier_for_the_order_of_joins() -> None:
    """However cheap it were to look up first, or to join first: the order of the text stays."""
    pairs = "s0 [RANGE 9 MICROSECONDS] a JOIN s1 [RANGE 9 MICROSECONDS] b ON a.i = b.i"
    inputs = [*some_streams(0), *some_tables(0)]
    late = optimize(bind(f"SELECT a.i, t.v FROM {pairs} JOIN t0 t ON a.i = t.i", inputs))
    assert [type(node.source) for node in walk(late) if isinstance(node, Lookup)] == [Join]
    known = {"s0": StreamStatistics(1000.0), "s1": StreamStatistics(1.0), "t0": StreamStatistics(1e-3)}
    for start in (late, optimize(late, known)):
        for name, other in neighbours(start):
            assert not differ(start, other, inputs), name
