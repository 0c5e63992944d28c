"""Regular expressions mean the same to Python, which defines them, and to Rust, which runs them."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.algebra.evaluate import evaluate
from strandline.algebra.expressions import Call, ColumnRef, Expression, Literal
from strandline.algebra.functions import resolve
from strandline.algebra.regex import RegexError, regex
from strandline.execution.expressions import evaluate_columns
from strandline.types import VARCHAR

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


@settings(max_examples=300, deadline=None)
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
