"""Stored plans that were altered, by accident or on purpose: refused as damaged, or the plan that was stored.

A hostile file has a right digest. Then it is refused, or it is some plan of well-formed parts: nothing is executed by
reading it, and no other exception comes of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import user_functions as users
from plan_cases import plan_queries, read_plan_cases
from strandline.core import durable
from strandline.core.errors import CheckpointError
from strandline.core.security.secret import Secret
from strandline.core.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR
from strandline.logical.catalog import BaseStream, ConnectorCall, StreamStatistics
from strandline.logical.udf import Definition
from strandline.planner.physical import plan as physical
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan_json import FORMAT, decode_pipeline, encode_pipeline
from strandline.planner.physical.tags import TAGS
from strandline.planner.stages import optimize
from support import Arrivals, bind, examples

FUNCTIONS: dict[str, Definition] = {each.name: each for each in users.DEFINITIONS}
COLUMNS = (("k", BIGINT), ("v", DOUBLE), ("s", VARCHAR), ("ts", TIMESTAMP))
TEXTS = (
    "SELECT k, tally(k) AS n, in_line(s ORDER BY v) AS l FROM a [RANGE 5 SECONDS] WHERE halved(v) > 1 GROUP BY k",
    "SELECT a.k, CASE WHEN a.v > 1.25 THEN 2.5 ELSE b.v END AS w, DATE '2024-01-01' AS d, ARRAY[1, 2] AS r "
    "FROM a [RANGE 9 SECONDS SLIDE 3 SECONDS OFFSET 1 SECOND] LEFT JOIN b [ROWS 5] ON a.k = b.k AND a.s < b.s",
    "SELECT k, lag(v) OVER (PARTITION BY k ORDER BY ts) AS p FROM a",
)


FILE = Path("graph/e000000001.json")


def decode(value: Any) -> physical.Pipeline:
    return decode_pipeline(value, FUNCTIONS, path=FILE, allow=None)


@cache
def stored_text() -> str:
    """A pipeline with most kinds of fields."""
    streams = [Arrivals(name, COLUMNS, ()) for name in "ab"]
    secret = ConnectorCall("http", (":80", ["x", 1.5]), {"token": Secret("env", "HOOK"), "follow": True})
    declared = [
        BaseStream("a", COLUMNS, secret, "ts", 5, statistics=StreamStatistics(2.5, {"k": 10.0})),
        BaseStream("b", COLUMNS, ConnectorCall("table", ("t",)), None, table="changing"),
    ]
    parts = [lower(f"q{n}", optimize(bind(text, streams)), declared, 2, first=9 * n) for n, text in enumerate(TEXTS)]
    return json.dumps(encode_pipeline(combine(parts, declared, [""] * len(parts))))


def stored() -> Any:
    return json.loads(stored_text())


def sealed(value: Any) -> Any:
    """With the digest of its rows, as somebody writes it who knows how."""
    content = json.dumps([FORMAT, value["rows"]], separators=(",", ":"))
    return {**value, "digest": durable.digest(content.encode())}


# ---- alterations -----------------------------------------------------------------------------------------------------

ODD = (
    None, True, False, 0, 1, -1, 2**70, 0.0, 1.5, "", "x", [], {}, [0], ["float", "nan"], ["decimal", "NaN"],
    ["array", ["array"]], ["secret", "env", "HOME"], "DECIMAL(38,2)", "INT[]", "0x1p+9999", "intervals", {"k": 1},
    *sorted(TAGS.values()),
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a JSON value with every key in it."""
    found, left = [], [value]
    while left:
        each = left.pop()
        keys = range(len(each)) if isinstance(each, list) else each.keys() if isinstance(each, dict) else ()
        found += [(each, key) for key in keys]
        left += [each[key] for key in keys]
    return found


def alter(value: Any, dice: Random) -> None:
    """Alter a JSON value at one place."""
    some = places(value)
    holder, key = dice.choice(some)
    match dice.randrange(7):
        case 0:
            holder[key] = deepcopy(dice.choice(ODD))
        case 1:
            del holder[key]
        case 2:
            other, its_key = dice.choice(some)
            holder[key] = deepcopy(other[its_key])
        case 3 if isinstance(holder, list):
            holder.insert(key, deepcopy(dice.choice((holder[key], *ODD))))
        case 4 if isinstance(holder, list):
            other_key = dice.randrange(len(holder))
            holder[key], holder[other_key] = holder[other_key], holder[key]
        case 5 if type(holder[key]) is int:
            holder[key] += dice.choice((-1, 1, 1000))
        case 6 if isinstance(holder, dict):
            holder[dice.choice(("format", "extra", "k"))] = deepcopy(holder[key])
        case _:
            holder[key] = [holder[key]]


BLOCK = 250
MOST = range(0, examples(4) * BLOCK, BLOCK)


@pytest.mark.parametrize("first", MOST)
def test_altered_plans_are_damaged_or_the_same(first: int) -> None:
    original = decode(stored())
    damaged = 0
    for seed in range(first, first + BLOCK):
        dice, value = Random(seed), stored()
        for _ in range(dice.randint(1, 3)):
            alter(value, dice)
        try:
            assert decode(value) == original, seed
        except CheckpointError as error:
            assert error.code in ("checkpoint-damaged", "checkpoint-version"), seed
            damaged += 1
    assert damaged > 0.9 * BLOCK


@pytest.mark.parametrize("first", MOST)
def test_hostile_plans_are_refused_or_well_formed(first: int) -> None:
    refused = 0
    for seed in range(first, first + BLOCK):
        dice, value = Random(seed), stored()
        for _ in range(dice.randint(1, 2)):
            alter(value["rows"], dice)
        try:
            again = encode_pipeline(decode(sealed(value)))
        except CheckpointError as error:
            assert error.code in ("checkpoint-damaged", "function-missing", "function-changed", "secret-not-stored")
            refused += 1
        else:
            assert encode_pipeline(decode(json.loads(json.dumps(again)))) == again, seed
    assert BLOCK > refused > BLOCK // 2


@pytest.mark.parametrize("path", sorted({case.file for case in read_plan_cases()}), ids=lambda path: path.stem)
def test_hostile_golden_plans_are_refused_or_well_formed(path: Path) -> None:
    dice = Random(path.stem)
    for case in read_plan_cases():
        if case.file != path:
            continue
        text = json.dumps(encode_pipeline(plan_queries(case).physical))
        for _ in range(examples(20)):
            value = json.loads(text)
            alter(value["rows"], dice)
            try:
                again = encode_pipeline(decode(sealed(value)))
            except CheckpointError as error:
                assert error.code == "checkpoint-damaged"
            else:
                assert encode_pipeline(decode(again)) == again


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(sorted(TAGS.values())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=examples(200))
@given(JSON | st.fixed_dictionaries({"format": JSON, "rows": JSON, "digest": JSON}), JSON)
def test_any_other_value_is_damaged(value: Any, row: Any) -> None:
    for each in (value, sealed({"format": FORMAT, "rows": [row]}), sealed({"format": FORMAT, "rows": row})):
        with pytest.raises(CheckpointError) as refused:
            decode(each)
        assert refused.value.code in ("checkpoint-damaged", "checkpoint-version")


# ---- what is refused, one by one -------------------------------------------------------------------------------------


def row_of(value: Any, tag: str) -> list[Any]:
    row: list[Any] = next(row for row in value["rows"] if row[0] == tag)
    return row


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = ["array", value]
    return value


def set_field(tag: str, position: int, form: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        row_of(value, tag)[position] = form

    return change


def _alter_tables(value: Any) -> None:
    (row,) = (row for row in value["rows"] if row[0] == "stream" and "changing" in row)
    row[row.index("changing")] = "moving"


REFUSED: dict[str, Callable[[Any], None]] = {
    "unknown tag": set_field("literal", 0, "eval"),
    "name of a class": set_field("literal", 0, "Literal"),
    "name of a module": set_field("literal", 0, "subprocess.Popen"),
    "tag that is no text": set_field("literal", 0, 1),
    "tag that is a list": set_field("literal", 0, ["literal"]),
    "field too many": lambda value: row_of(value, "literal").append(0),
    "field too few": lambda value: row_of(value, "literal").pop() and None,
    "default that is left out": lambda value: next(
        row for row in value["rows"] if row[0] == "TimeWindow" and len(row) == 4
    ).append(0),
    "row that is an object": lambda value: value["rows"].insert(0, {"literal": 1}),
    "row that is empty": lambda value: value["rows"].insert(0, []),
    "no rows": lambda value: value["rows"].clear(),
    "row that nothing refers to": lambda value: value["rows"].insert(
        len(value["rows"]) - 1, ["column", "nowhere", "INT"]
    ),
    "end that is no pipeline": lambda value: value["rows"].pop() and None,
    "pipeline after the pipeline": lambda value: value["rows"].append(value["rows"][-1]),
    "cycle": lambda value: set_field("Filter", 2, value["rows"].index(row_of(value, "Filter")))(value),
    "reference to a later row": lambda value: set_field("Filter", 2, len(value["rows"]) - 1)(value),
    "reference from the end": set_field("Filter", 2, -1),
    "reference to nothing": set_field("Filter", 2, 10**9),
    "reference that is TRUE": set_field("Filter", 2, True),
    "reference that is a float": set_field("Filter", 2, 1.0),
    "reference to another kind": lambda value: set_field("Filter", 2, row_of(value, "Filter")[1])(value),
    "duration that is a text": set_field("TimeWindow", 2, "1"),
    "duration that is TRUE": set_field("TimeWindow", 2, True),
    "unknown kind of a join": set_field("OuterHashJoin", 1, "cross"),
    "one structure of two": lambda value: row_of(value, "OuterHashJoin")[9].pop() and None,
    "set in another order": set_field("Fragment", 6, ["b", "a"]),
    "set with an element twice": set_field("Fragment", 6, ["a", "a"]),
    "set of numbers": set_field("Fragment", 6, [1]),
    "unknown type": set_field("literal", 2, "OBJECT"),
    "type with zeros": set_field("literal", 2, "DECIMAL(010,2)"),
    "type with spaces": set_field("literal", 2, "INT "),
    "type with other digits": set_field("literal", 2, "DECIMAL(١,٢)"),
    "type of many dimensions": set_field("literal", 2, "INT" + "[]" * 100_000),
    "literal that is an object": set_field("literal", 1, {"x": 1}),
    "literal that is a JSON float": set_field("literal", 1, 1.5),
    "literal of an unknown kind": set_field("literal", 1, ["object", "x"]),
    "literal in some lists": set_field("literal", 1, nested(600)),
    "literal in many lists": set_field("literal", 1, nested(100_000)),
    "float in decimal digits": set_field("literal", 1, ["float", "1.5"]),
    "float that is too large": set_field("literal", 1, ["float", "0x1p+999999"]),
    "decimal with spaces": set_field("literal", 1, ["decimal", " 1"]),
    "decimal that is none": set_field("literal", 1, ["decimal", "x"]),
    "decimal with a huge exponent": set_field("literal", 1, ["decimal", "1E+99999999999999999999"]),
    "timestamp with a zone": set_field("literal", 1, ["timestamp", "2024-01-01T00:00:00+00:00"]),
    "timestamp of the 30th of February": set_field("literal", 1, ["timestamp", "2024-02-30T00:00:00"]),
    "date in another style": set_field("literal", 1, ["date", "20240101"]),
    "literal secret": lambda value: row_of(value, "connector")[3].update(token=["secret", "text", "x"]),
    "secret from elsewhere": lambda value: row_of(value, "connector")[3].update(token=["secret", "exec", "x"]),
    "concealed part of an argument": lambda value: row_of(value, "connector")[2].append(
        ["list", ["secret", "text", ""]]
    ),
    "option that is an object": lambda value: row_of(value, "connector")[3].update(token={}),
    "function without types": lambda value: row_of(value, "user_call")[1].pop() and None,
    "function by number": set_field("user_call", 1, 0),
    "inverse that is a number": lambda value: row_of(value, "aggregate")[7].__setitem__(3, 1),
    "unknown kind of table": _alter_tables,
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_writing_would_not_write_is_damaged(what: str) -> None:
    value = stored()
    REFUSED[what](value)
    try:
        altered = sealed(value)
    except RecursionError:
        altered = value
    with pytest.raises(CheckpointError) as refused:
        decode(altered)
    assert refused.value.code == "checkpoint-damaged"
    assert str(FILE) in str(refused.value)


@pytest.mark.parametrize(
    "more", [{"extra": 1}, {"format": True}, {"format": "1"}, {"digest": ""}, {"digest": None}, {"rows": {}}]
)
def test_other_envelopes_are_damaged(more: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError) as refused:
        decode({**stored(), **more})
    assert refused.value.code == "checkpoint-damaged"


def test_another_format_is_named() -> None:
    with pytest.raises(CheckpointError) as refused:
        decode({"format": FORMAT + 1, "nodes": []})
    assert refused.value.code == "checkpoint-version"
    assert f"format {FORMAT + 1}" in str(refused.value)
