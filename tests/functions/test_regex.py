"""Regular expressions mean the same to Python, which defines them, and to Rust, which runs them."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import VARCHAR
from strandline.functions.evaluate import evaluate
from strandline.functions.regex import RegexError, regex, similar_regex
from strandline.functions.registry import resolve
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal
from strandline.runtime.expressions.compile import evaluate_columns
from support import examples

# ---- one meaning -----------------------------------------------------------------------------------------------------

CHARACTERS = "aAbBkKäÄßsSıİiIσςΣ 0_-\n\\.^$]é日😀\u212a\u017f"

atoms = st.one_of(
    st.sampled_from(list("aAbBkKäßsiIσ 0_-日😀")),
    st.sampled_from([".", "^", "$", r"\d", r"\W", r"\s", r"\y", r"\.", r"\\", r"\n", r"\x41", r"\u00e4", r"\A", r"\Z"]),
    st.sampled_from(
        ["[ab]", "[^ab]", "[a-k]", "[^A-Z]", "[]a]", "[^]a]", "[[:upper:]_]", r"[\w-]", r"[\d\n]", "[ä-ü]"]
    ),
)


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    often = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "{1,2}?"])
    grouped = st.sampled_from(["({})", "(?:{})"])
    return st.one_of(
        st.tuples(grouped, inner, often).map(lambda parts: parts[0].format(parts[1]) + parts[2]),
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        inner.map(lambda text: f"({text})"),
    )


patterns = st.recursive(atoms, repeated, max_leaves=6)
texts = st.text(CHARACTERS, max_size=8)


def call(name: str, *arguments: Expression) -> Expression:
    found = resolve(name, [argument.type for argument in arguments])
    return Call(found.function, arguments, found.result)


TEXT = ColumnRef("s", VARCHAR)


def check(expression: Expression, content: list[str]) -> None:
    fast = evaluate_columns(pl.DataFrame({"s": content}, schema={"s": pl.String}), [("r", expression)])["r"].to_list()
    for text, got in zip(content, fast, strict=True):
        want = evaluate(expression, {"s": text})
        assert got == want, f"{expression}\nover {text!r} is {got!r}, not {want!r}"


@settings(max_examples=examples(150), deadline=None)
@given(patterns, st.sampled_from(["", "i", "n", "in"]), st.lists(texts, min_size=1, max_size=6))
def test_python_and_rust_find_the_same(pattern: str, flags: str, content: list[str]) -> None:
    try:
        regex(pattern, flags)
    except RegexError:
        return
    literal, option = Literal(f"(?{flags}){pattern}" if flags else pattern, VARCHAR), Literal(flags, VARCHAR)
    check(call("regexp_like", TEXT, Literal(pattern, VARCHAR), option), content)
    check(call("regexp_substr", TEXT, literal), content)
    check(call("regexp_count", TEXT, literal), content)
    check(call("match", TEXT, literal), content)
    new = Literal(r"<\1|\2>", VARCHAR)
    check(call("regexp_replace", TEXT, Literal(pattern, VARCHAR), new, Literal(f"g{flags}", VARCHAR)), content)
    check(call("regexp_replace", TEXT, Literal(pattern, VARCHAR), new, option), content)


@settings(max_examples=examples(100), deadline=None)
@given(st.text("ab%_|*+?(){}2,[]^-\\.$", max_size=7), st.sampled_from(["\\", "#", ""]), st.lists(texts, min_size=1))
def test_similar_patterns_too(pattern: str, escape: str, content: list[str]) -> None:
    try:
        similar_regex(pattern, escape)
    except RegexError:
        return
    check(call("similar", TEXT, Literal(pattern, VARCHAR), Literal(escape, VARCHAR)), content)


@settings(max_examples=examples(250), deadline=None)
@given(st.text("ab^$.|*+?(){}2,[]:-\\dwxu0i😀", max_size=10))
def test_every_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        read = regex(pattern)
    except RegexError as error:
        assert 0 <= error.at <= len(pattern)
        return
    assert re.compile(read.python).groups == read.groups
    pl.select(pl.lit("a").str.contains(read.rust))


# ---- the dialect -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("a.b", "a(?s:.)b"),
        ("^a$", r"\Aa\Z"),
        ("(?n)^.$", "(?m:^)[\\x00-\\x09\\x0b-\U0010ffff](?m:$)"),
        (r"\d+", "[0-9]+"),
        ("[[:digit:]a-c]", "[0-9a-c]"),
        ("(?i)k", "[Kk]"),
        ("(?i)ß", "ß"),
        ("a{2,}?b", "a{2,}?b"),
        ("a{x", r"a\x7bx"),
        ("(a)|(?:b)", "(a)|(?:b)"),
        (r"\ya\y", r"(?a:\b)a(?a:\b)"),
    ],
)
def test_patterns_are_written_anew(pattern: str, written: str) -> None:
    assert regex(pattern).python == written


@pytest.mark.parametrize(
    ("pattern", "message", "at"),
    [
        ("a**", "quantifier without an operand", 0),
        ("*a", "quantifier without an operand", 0),
        ("^*", "quantifier without an operand", 0),
        ("(a", "parentheses () not balanced", 0),
        ("a)", "parentheses () not balanced", 1),
        ("[a", "brackets [] not balanced", 0),
        ("[b-a]", "invalid character range", 1),
        ("[[:foo:]]", "invalid character class [:foo:]", 1),
        ("a\\", "unexpected end", 2),
        (r"(a)\1", "backreferences are not supported", 3),
        ("a(?=b)", "(? is not supported here: lookahead, lookbehind or an option", 1),
        (r"\q", r"invalid escape sequence \q", 0),
        ("a{256}", "invalid repetition count: expected {min,max}, at most 255", 1),
        ("a{1,x}", "invalid repetition count: expected {min,max}", 1),
        ("a{2", "braces {} not balanced", 1),
        ("((a{200}){200}){200}", "too large after its repetitions are expanded", 1),
        ("(a?)*", "a repeated part that may be empty cannot have a capturing group; use (?:…)", 0),
        ("(?z)a", "unknown option z", 2),
        ("(" * 60, "nested too deeply", 50),
    ],
)
def test_what_is_no_pattern_says_why_and_where(pattern: str, message: str, at: int) -> None:
    with pytest.raises(RegexError) as caught:
        regex(pattern)
    assert (caught.value.message, caught.value.at) == (message, at)
