"""Text → tree and text → rendered error, from `cases/*.case`, and what a case cannot say."""

from __future__ import annotations

import pytest

from strandline.core.errors import ParseError
from strandline.sql import ast
from strandline.sql.lexer import Kind, tokenize
from strandline.sql.parser.statements import parse, parse_one
from strandline.sql.parser.token_stream import MAX_DEPTH
from syntax_cases import cases, show


def rendered(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text)
    return caught.value.render()


def expression(text: str) -> ast.Expression:
    query = parse_one(f"SELECT {text} FROM s")
    assert isinstance(query, ast.Select)
    value = query.items[0].value
    assert not isinstance(value, ast.Star)
    return value


@pytest.mark.parametrize(("text", "expected"), cases("expressions.case"))
def test_expression(text: str, expected: str) -> None:
    assert show(expression(text)) == expected


@pytest.mark.parametrize(("text", "expected"), cases("statements.case"))
def test_statement(text: str, expected: str) -> None:
    assert "\n".join(map(show, parse(text))) == expected


@pytest.mark.parametrize(("text", "expected"), cases("syntax_errors.case") + cases("refusals.case"))
def test_error(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(("text", "_"), cases("refusals.case"))
def test_refusals_have_the_code_and_a_hint(text: str, _: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.code == "not-supported"
    assert caught.value.hint


# ---- places ----------------------------------------------------------------------------------------------------------


def test_every_node_knows_its_own_text() -> None:
    value = expression("a + f(b , 2)*-c")
    assert isinstance(value, ast.Binary)
    assert value.text == "a + f(b , 2)*-c"
    assert value.left.text == "a"
    assert value.right.text == "f(b , 2)*-c"
    assert isinstance(value.right, ast.Binary)
    assert value.right.left.text == "f(b , 2)"
    assert value.right.right.text == "-c"


@pytest.mark.parametrize(("text", "_"), cases("statements.case"))
def test_places_nest_like_the_tree(text: str, _: str) -> None:
    def check(node: ast.Node) -> None:
        assert 0 <= node.span.start < node.span.end <= len(text)
        for child in ast.children(node):
            assert node.span.start <= child.span.start
            assert child.span.end <= node.span.end
            check(child)

    for statement in parse(text):
        check(statement)


def test_places_are_not_part_of_what_is_said() -> None:
    assert parse("SELECT a FROM s") == parse("select /* all */ a\nfrom s;")
    assert parse("SELECT a FROM s") != parse("SELECT b FROM s")


def test_the_end_of_the_text_is_right_after_the_last_token() -> None:
    *_, end = tokenize("SELECT 1  -- nothing more\n\n")
    assert end.kind is Kind.END
    assert end.span.start == end.span.end == len("SELECT 1")


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ParseError) as caught:
        parse("SELECT '\ud800' FROM s")
    assert caught.value.code == "bad-character"


# ---- whole scripts ---------------------------------------------------------------------------------------------------


def test_a_script_is_its_statements() -> None:
    script = """
        -- a comment; with a semicolon
        SELECT a FROM s; ; /* another /* nested */ one; */
        DROP STREAM IF EXISTS s;
    """
    assert [type(statement) for statement in parse(script)] == [ast.Select, ast.Drop]
    assert parse("") == []
    assert parse(" ; -- nothing\n;") == []


def test_parse_one_wants_one() -> None:
    with pytest.raises(ParseError) as caught:
        parse_one("SELECT a FROM s; DROP STREAM s")
    assert caught.value.code == "one-statement"
    assert caught.value.span is not None
    assert caught.value.span.text[caught.value.span.start : caught.value.span.end] == "DROP STREAM s"
    with pytest.raises(ParseError):
        parse_one(" -- nothing")


# ---- depth -----------------------------------------------------------------------------------------------------------

DEEP = {
    "parentheses": lambda n: f"SELECT {'(' * n}a{')' * n} FROM s",
    "signs": lambda n: f"SELECT {'- ' * n}a FROM s",
    "not": lambda n: f"SELECT {'NOT ' * n}a FROM s",
    "calls": lambda n: f"SELECT {'abs(' * n}a{')' * n} FROM s",
    "case": lambda n: f"SELECT {'CASE WHEN a THEN ' * n}a{' END' * n} FROM s",
    "cast": lambda n: f"SELECT {'CAST(' * n}a{' AS INT)' * n} FROM s",
    "in": lambda n: f"SELECT {'a IN (' * n}a{')' * n} FROM s",
    "between": lambda n: f"SELECT a {'BETWEEN 1 AND (a ' * n}{')' * n} FROM s",
    "sums": lambda n: f"SELECT {' + '.join('a' * n)} FROM s",
    "casts after": lambda n: f"SELECT a{'::INT' * n} FROM s",
    "tests": lambda n: f"SELECT a{' IS NULL' * n} FROM s",
    "subqueries": lambda n: f"SELECT a FROM {'(SELECT a FROM ' * n}s{') AS t' * n}",
    "joins": lambda n: f"SELECT a FROM s{' CROSS JOIN s' * n}",
    "nested joins": lambda n: f"SELECT a FROM {'(' * n}s{')' * n}",
    "nested queries": lambda n: f"SELECT a FROM {'(' * n}SELECT a FROM s{')' * n} AS t",
    "query parentheses": lambda n: f"{'(' * n}SELECT a FROM s{')' * n}",
    "rows": lambda n: f"CREATE STREAM s (a INT, t TIMESTAMP) SOURCE rows({'(' * n}1{')' * n}) ORDERED BY t",
}


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("levels", [MAX_DEPTH + 2, 5_000])
def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack(shape: str, levels: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse(DEEP[shape](levels))
    assert caught.value.code == "too-deep"
    assert caught.value.span is not None


@pytest.mark.parametrize("shape", DEEP)
def test_reasonable_nesting_is_accepted(shape: str) -> None:
    assert len(parse(DEEP[shape](40))) == 1


def test_long_chains_and_lists_are_not_deep() -> None:
    assert parse(f"SELECT a FROM s WHERE {' AND '.join(['a = 1'] * 3_000)}")
    assert parse(f"SELECT a FROM s WHERE {' OR '.join(['a = 1'] * 3_000)}")
    assert parse(f"SELECT a FROM s WHERE a IN ({', '.join(['1'] * 3_000)})")
    assert parse(" UNION ALL ".join(["SELECT a FROM s"] * 500))
