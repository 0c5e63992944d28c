"""JSON in texts: operators, paths, and what both databases say about documents."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import polars as pl
import pytest

import strandline as sl
from functions.test_judged_functions import bound
from strandline.apps.verify.compare import differences
from strandline.apps.verify.oracle import OracleDatabase
from strandline.core.types import BIGINT, VARCHAR, Column
from strandline.functions.evaluate import evaluate
from strandline.functions.jsons import path_of, steps_of
from strandline.runtime.expressions.compile import evaluate_columns

KEYS = ("a", "b", "x y", "é", "0", "")
PATHS = ("$.a", "$.a.b", "$.a[0]", "$.a[-1].b", "$[0]", "$[1].a", '$."x y"', "$['é'].a", '$."0"', "$.a.b.a", "$.b[2]")
FUNCTIONS = ("json_extract", "json_extract_string", "json_value", "json_array_length", "json_elements", "json_keys")
ODD = (
    None, "", "bad", "{", "[1, 2", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "nul", '{"a": 1} x', '"a"', "3",
    '{"a": 1.50}', '{"a": 12345678901234567890123}', '{"a": -0.0}', '{"a": "1.50"}', '{"a": 1, "a": {"b": 2}}',
    ' {"a" : [ 1 , {"b": "\\u00e9\\n"} ] } ', '{"a": "null"}', '{"a": null}', '{"a": "[1]"}', '{"a": "x\\ty"}',
)  # fmt: skip


def document(dice: Random, depth: int = 3) -> Any:
    match dice.randint(0, 5 if depth else 3):
        case 0:
            return dice.choice((None, True, False))
        case 1:
            return dice.choice((0, 1, -7, 12, 2.5))
        case 2 | 3:
            return dice.choice(("", "text", "é", "a\nb", "null", "[x", "12", "\\", '"'))
        case 4:
            return [document(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return {dice.choice(KEYS): document(dice, depth - 1) for _ in range(dice.randint(0, 4))}


def documents(count: int, odd: bool) -> list[str | None]:
    dice = Random(3)
    drawn = [json.dumps(document(dice), ensure_ascii=dice.random() < 0.5, separators=(",", ":")) for _ in range(count)]
    return [*(ODD if odd else ()), *drawn, *drawn[:5]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_over_columns_as_over_each_document(function: str, path: str) -> None:
    expression = bound(f"{function}(text, '{path.replace(chr(39), chr(39) * 2)}')")
    texts = documents(300, odd=True)
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String)})
    columns = evaluate_columns(frame, [("result", expression)])["result"].to_list()
    single = [evaluate(expression, {"text": text}) for text in texts]
    assert columns == [list(value) if isinstance(value, tuple) else value for value in single]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("judge", ["duckdb", "postgresql"])
def test_what_databases_say(judge: str, function: str, request: pytest.FixtureRequest) -> None:
    database: OracleDatabase = request.getfixturevalue(judge)
    texts = documents(300, odd=False)
    if judge == "postgresql":  # it looks for a key of digits in an array, too, and keeps escapes as they are written
        texts = [text for text in texts if text is None or ('"0"' not in text and "\\u" not in text)]
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String)})
    number = pl.Series("t", range(len(texts)), dtype=pl.Int64)
    database.load("documents", (Column("text", "text", VARCHAR), Column("t", "t", BIGINT)), frame.with_columns(number))
    for path in PATHS:
        if judge == "postgresql" and path == '$."0"':
            continue
        expression = bound(f"{function}(text, '{path.replace(chr(39), chr(39) * 2)}')")
        ours = evaluate_columns(frame, [("result", expression)])["result"]
        places = (Column("t", "t", BIGINT), Column("c1", "c1", expression.type))
        theirs = database.ask(f"SELECT t, {database.dialect.sql(expression)} AS c1 FROM documents", places)
        found = differences(pl.DataFrame([number, ours.alias("c1")]), theirs)
        assert [(texts[each.instant], path, each) for each in found] == []


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("text -> 'a'", """json_extract(text, '$."a"')"""),
        ("text ->> 'a'", """json_extract_string(text, '$."a"')"""),
        ("text -> 'a' -> 0 ->> 'x y'", """json_extract_string(text, '$."a"[0]."x y"')"""),
        ("text -> -1", "json_extract(text, '$[-1]')"),
        ("text #>> '{a,1,b}'", """json_extract_string(text, '$."a"[1]."b"')"""),
        ("text #> '{a}'", """json_extract(text, '$."a"')"""),
        ("text ->> '$.a.b'", """json_extract_string(text, '$."a"."b"')"""),
        ("text ->> 'a' = 'b'", """json_extract_string(text, '$."a"') = 'b'"""),
    ],
)
def test_operators(written: str, means: str) -> None:
    assert bound(written) == bound(means)


@pytest.mark.parametrize("path", ["$", "$.a", '$."x y"[0]', "$['it''s']", r'$."q\"\\"', "$[-3].b"])
def test_paths_are_read_as_they_are_written(path: str) -> None:
    steps = steps_of(path.replace("''", "\\'"))
    assert steps is not None
    assert steps_of(path_of(steps)) == steps


@pytest.mark.parametrize("path", ["", "a", "$a", "$.", "$[", "$[x]", "$..a", "$[*]"])
def test_what_is_no_path(path: str) -> None:
    assert steps_of(path) is None
    with pytest.raises(sl.StrandlineError, match="is not a path"):
        bound(f"json_value(text, '{path}')")


@pytest.mark.parametrize("written", ["text -> text2", "text #>> 'a'", "text ->> 1.5"])
def test_only_literals_are_paths(written: str) -> None:
    with pytest.raises(sl.StrandlineError, match="not supported"):
        bound(written)
