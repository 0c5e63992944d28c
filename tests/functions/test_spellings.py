"""What other dialects call things means what is written here."""

from __future__ import annotations

import re
from random import Random

import duckdb
import pytest

import strandline as sl
from strandline.functions.aggregates import AGGREGATES, find_aggregate
from strandline.functions.registry import ALIASES, FUNCTIONS
from strandline.functions.spellings import AGGREGATE_SPELLINGS, SCALAR_SPELLINGS, SPELLINGS, Spelling
from strandline.sql import ast
from strandline.sql.parser.formats import FORMATTERS
from strandline.sql.parser.statements import parse

ALL = (*AGGREGATE_SPELLINGS, *SCALAR_SPELLINGS)
DECLARED = (
    "CREATE STREAM s (k INT, x INT, y DOUBLE, t VARCHAR, ts TIMESTAMP) SOURCE rows({}) ORDERED BY ts WITHIN 1 DAY;"
)


def expression(text: str) -> ast.Node:
    """The syntax tree, without what the call was called."""
    (query,) = parse(f"SELECT {text} FROM s")
    assert isinstance(query, ast.Select)
    (item,) = query.items

    def plain(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.FunctionCall):
            return node
        return ast.FunctionCall(
            ast.Identifier(node.name.name.lower(), span=node.span), node.arguments, node.filter, node.distinct,
            node.order, node.within, span=node.span)  # fmt: skip

    return ast.rewrite(item.value, plain)


@pytest.mark.parametrize("spelling", ALL, ids=lambda spelling: spelling.written)
def test_a_spelling_is_what_it_means(spelling: Spelling) -> None:
    units = {"unit": "'hour'"}
    given = {name: units.get(name, name) for name in spelling.parameters}
    means = re.sub(r"\bunit\b", "'hour'", spelling.means)
    for name in (spelling.name, *spelling.aliases):
        assert expression(f"{name}({', '.join(given.values())})") == expression(means)


def test_a_spelling_is_no_function_with_as_many_arguments() -> None:
    for name, spellings in SPELLINGS.items():
        function = FUNCTIONS.get(ALIASES.get(name, name))
        for spelling in spellings:
            count = len(spelling.parameters)
            assert function is None or not function.min_arguments <= count <= (function.max_arguments or count)
    assert not {*FORMATTERS} & {*FUNCTIONS, *ALIASES, *AGGREGATES, *SPELLINGS}


def test_clauses_of_the_call_stay() -> None:
    assert expression("max_by(x, y) FILTER (WHERE x > 1)") == expression(
        "FIRST(x ORDER BY y DESC) FILTER (WHERE y IS NOT NULL AND x > 1)"
    )
    assert expression("group_concat(DISTINCT t ORDER BY t DESC)") == expression(
        "STRING_AGG(DISTINCT t, ',' ORDER BY t DESC)"
    )
    assert expression("listagg(t, '-') WITHIN GROUP (ORDER BY x)") == expression("LISTAGG(t, '-' ORDER BY x)")
    assert find_aggregate("listagg") is AGGREGATES["string_agg"]


def test_units_without_quotes() -> None:
    assert expression("datediff(DAY, ts, ts)") == expression("date_diff('day', ts, ts)")
    assert expression("date_trunc(hour, ts)") == expression("date_trunc('hour', ts)")
    assert expression("timestampadd(SQL_TSI_DAY, 3, ts)") == expression("date_add('day', 3, ts)")


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("strftime(ts, '%Y-%m-%dT%H:%M:%S.%f%%')", 'YYYY-MM-DD"T"HH24:MI:SS.US%'),
        ("strftime('%d.%m.%y', ts)", "DD.MM.YY"),
        ("date_format(ts, 'yyyy-MM-dd''T''HH:mm:ss.SSS')", 'YYYY-MM-DD"T"HH24:MI:SS.MS'),
        ("date_format(ts, '%Y %M %i')", "YYYY FMMonth MI"),
    ],
)
def test_formats(written: str, form: str) -> None:
    quoted = form.replace("'", "''")
    assert expression(written) == expression(f"to_char(ts, '{quoted}')")


@pytest.mark.parametrize("written", ["strftime(ts, '%Q')", "date_format(ts, 'XXX')", "strftime(ts, t)"])
def test_formats_that_have_no_counterpart(written: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        expression(written)
    assert caught.value.hint is not None and "to_char" in caught.value.hint


# ---- judged by DuckDB's own aggregates -------------------------------------------------------------------------------

NATIVE = (
    "max_by(t, y)", "arg_min(t, y)", "arg_max(x, y)", "count_if(x > 3)", "approx_count_distinct(k)", "mean(x)",
    "quantile_cont(x, 0.3)", "quantile_disc(x, 0.3)", "any_value(k)", "list(x ORDER BY x)", "string_agg(t ORDER BY t)",
    "corr(y, x)", "covar_pop(y, x)", "covar_samp(y, x)", "regr_slope(y, x)", "regr_intercept(y, x)", "regr_r2(y, x)",
    "regr_sxx(y, x)", "regr_syy(y, x)", "regr_sxy(y, x)", "regr_count(y, x)", "regr_avgx(y, x)", "regr_avgy(y, x)",
)  # fmt: skip


@pytest.mark.parametrize("written", NATIVE)
def test_an_aggregate_is_that_of_duckdb(written: str) -> None:
    dice = Random(written)
    # No two rows of a group have the same y: there DuckDB takes whichever it meets first.
    rows = [
        (
            k,
            dice.choice((None, *range(-5, 9))),
            k + n + dice.random() / 2,
            f"t{dice.randint(0, 9)}",
            f"2024-01-01 {n:02}:00",
        )
        for k in range(4)
        for n in range(10)
    ]
    listed = ", ".join(f"({k}, {'NULL' if x is None else x}, {y!r}, '{t}', '{ts}')" for k, x, y, t, ts in rows)
    with sl.connect(engine="local") as db:
        db.sql(DECLARED.format(listed))
        query = db.sql(f"SELECT k, {written} AS a FROM s [RANGE UNBOUNDED] GROUP BY k")
        query.await_end()
        ours = sorted(tuple(row.values()) for row in query.snapshot().to_pylist())
    connection = duckdb.connect()
    connection.execute("CREATE TABLE s (k INT, x INT, y DOUBLE, t VARCHAR, ts TIMESTAMP)")
    connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?)", rows)
    theirs = sorted(connection.sql(f"SELECT k, {written} AS a FROM s GROUP BY k").fetchall())
    for (key, mine), (other, its) in zip(ours, theirs, strict=True):
        assert key == other
        assert mine == (pytest.approx(float(its)) if isinstance(mine, float) else its)
