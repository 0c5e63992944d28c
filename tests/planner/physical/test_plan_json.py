"""Stored plans: what is read is what was written, whatever the plan; what was not written like that is refused."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
import user_functions as users
from plan_cases import Case, plan_queries, read_plan_cases
from strandline.core import durable
from strandline.core.errors import CheckpointError
from strandline.core.security.allow import Allow
from strandline.core.security.secret import Secret
from strandline.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    TIMESTAMP,
    VARCHAR,
    Column,
    Type,
    array_of,
    decimal,
)
from strandline.logical.catalog import BadInputPolicy, BaseStream, Catalog, ConnectorCall, Stream, StreamStatistics
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.expressions import AggregateCall, Call, Cast, ColumnRef, Expression, Literal, UserCall
from strandline.logical.plan import Plan
from strandline.logical.udf import Definition, UserFunction, user_functions
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import fingerprint_plan
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan_json import FORMAT, decode_pipeline, encode_pipeline
from strandline.planner.physical.tags import TAGS, list_parts
from strandline.planner.stages import optimize
from strategies import Question, question
from support import Arrivals, bind, examples, form_strategy

FUNCTIONS: dict[str, Definition] = {each.name: each for each in users.DEFINITIONS}
FILE = Path("graph/e000000001.json")
STREAMS = [Arrivals(name, (("k", BIGINT), ("v", DOUBLE), ("s", VARCHAR), ("ts", TIMESTAMP)), ()) for name in "ab"]
COLUMN = Column("a.k", "k", BIGINT)


def lower_text(text: str, name: str = "q") -> physical.Pipeline:
    return lower(name, optimize(bind(text, STREAMS)), [stream.declared for stream in STREAMS], 2)


def pipeline_of(root: physical.Node, *streams: BaseStream) -> physical.Pipeline:
    fragment = physical.Fragment("f1", ("q",), 0, root, physical.ResultOf("q"), frozenset({"a"}), True)
    return physical.Pipeline(streams, (fragment,), (physical.QueryPlan("q", (COLUMN,), frozenset({"a"})),), 2)


def pipeline_with(expression: Expression) -> physical.Pipeline:
    return pipeline_of(physical.Filter(expression, physical.Input("source:a", (COLUMN,))))


def decode(value: Any, functions: Mapping[str, Definition] = FUNCTIONS, **more: Any) -> physical.Pipeline:
    return decode_pipeline(value, functions, path=FILE, **{"allow": None, **more})


def through_text(pipeline: physical.Pipeline) -> Any:
    """The stored form as it comes back from a file."""
    return json.loads(json.dumps(encode_pipeline(pipeline), allow_nan=False))


def assert_round_trip(pipeline: physical.Pipeline) -> physical.Pipeline:
    stored = through_text(pipeline)
    restored = decode(stored)
    assert restored == pipeline
    assert fingerprint_plan(restored) == fingerprint_plan(pipeline)
    assert encode_pipeline(restored) == stored
    assert_same_types(restored, pipeline)
    return restored


def assert_same_types(one: physical.Pipeline, two: physical.Pipeline) -> None:
    """1, 1.0 and TRUE are equal in Python, and so are 0.0 and -0.0; their texts are not. That of a set has no order:
    only what has values is compared."""
    kinds = (Literal, AggregateCall, ConnectorCall, StreamStatistics)
    texts = [{repr(part) for part in list_parts(each) if isinstance(part, kinds)} for each in (one, two)]
    assert texts[0] == texts[1]


# ---- what is written is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", read_plan_cases(), ids=lambda case: case.name)
def test_golden_plans_come_back(case: Case) -> None:
    assert_round_trip(plan_queries(case).physical)


def test_everything_with_a_tag_comes_back() -> None:
    """The golden plans have all, but for calls of user-defined functions, what comes of other forms than those of the
    rules, and exchanges, which are only between fragments."""
    parts = [part for case in read_plan_cases() for part in list_parts(plan_queries(case).physical)]
    unseen = {tag for kind, tag in TAGS.items() if kind not in {type(part) for part in parts}}
    assert unseen == {"user_call", "AsChanges", "AsIntervals", "Exchange"}
    source = physical.AsIntervals(physical.AsChanges(physical.Input("source:a", (COLUMN,), "changes")))
    root = physical.Exchange("hash", ("a.k",), source)
    halved = FUNCTIONS["halved"]
    assert isinstance(halved, UserFunction)
    called = UserCall(halved, (ColumnRef("a.v", DOUBLE),))
    assert_round_trip(pipeline_of(physical.Filter(called, root)))


BLOCK = 50


@pytest.mark.parametrize("first", range(0, examples(8) * BLOCK, BLOCK))
def test_random_plans_come_back(first: int) -> None:
    called = 0
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        plan = bind(asked.text, asked.streams)
        optimised = optimize(plan) if dice.random() < 0.8 else plan
        strategy, form = form_strategy(dice.randrange(6)), dice.choice(("intervals", "changes"))
        declared = [stream.declared for stream in asked.streams]
        pipeline = lower("q", optimised, declared, 3, form=form, strategy=strategy)  # type: ignore[arg-type]
        assert_round_trip(pipeline)
        called += len(user_functions(pipeline))
    assert called, "some of them call functions of the user's"


@pytest.mark.parametrize("first", range(0, examples(2) * BLOCK, BLOCK))
def test_random_plans_with_tables_come_back(first: int) -> None:
    tables = 0
    for seed in range(first, first + BLOCK):
        asked = question(Random(seed), with_tables=True)
        plan = bind_with_tables(asked)
        declared = [*(s.declared for s in asked.streams), *(drawn.table.input for drawn in asked.tables)]
        pipeline = assert_round_trip(lower("q", optimize(plan), declared, 3))
        tables += sum(stream.table is not None for stream in pipeline.streams)
    assert tables >= BLOCK, "they read tables"


def bind_with_tables(asked: Question) -> Plan:
    catalog = Catalog()
    catalog.notices.show = None
    users.bring(catalog)
    declared: list[Stream] = [stream.declared for stream in asked.streams]
    for each in (*declared, *(drawn.table for drawn in asked.tables)):
        catalog.add(each)
    return strategies.tested_query(asked.text, catalog).plan


LITERALS: list[tuple[Any, Type]] = [
    (None, NULL),
    (True, BOOLEAN),
    (1, INT),
    (-(2**63), BIGINT),
    (2**200, decimal(38, 0)),
    (1.0, DOUBLE),
    (-0.0, DOUBLE),
    (5e-324, DOUBLE),
    (math.inf, DOUBLE),
    (-math.inf, DOUBLE),
    (Decimal("1.50"), decimal(10, 2)),
    (Decimal("1E+30"), decimal(38, 0)),
    (Decimal("Infinity"), decimal(38, 0)),
    ("", VARCHAR),
    ("ümlaut \ud800 \0 \u2028", VARCHAR),
    (date(1, 1, 1), DATE),
    (datetime(9999, 12, 31, 23, 59, 59, 999999), TIMESTAMP),
    (datetime(2024, 2, 29), TIMESTAMP),
    (10**15, INTERVAL),
    ((), array_of(NULL)),
    ((1, None, 3), array_of(INT)),
    (((1.5, True), (date(2024, 1, 1), Decimal(1))), array_of(array_of(decimal(3, 1)))),
    (("float", "0x1p0"), array_of(VARCHAR)),
]


@pytest.mark.parametrize(("value", "kind"), LITERALS, ids=repr)
def test_literals_come_back(value: Any, kind: Type) -> None:
    assert_round_trip(pipeline_with(Literal(value, kind)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates()
        | st.datetimes().map(lambda moment: moment.replace(fold=0)) | st.decimals(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3).map(tuple),
    )
)  # fmt: skip
@settings(max_examples=examples(200))
def test_any_value_comes_back(value: Any) -> None:
    assert_round_trip(pipeline_with(Literal(value, VARCHAR)))


def test_nan_comes_back_as_nan() -> None:
    """It equals nothing, so plans with it are compared by their fingerprints and forms."""
    pipeline = pipeline_with(Literal(math.nan, DOUBLE))
    restored = decode(through_text(pipeline))
    assert fingerprint_plan(restored) == fingerprint_plan(pipeline)
    assert encode_pipeline(restored) == encode_pipeline(pipeline)


def test_values_that_python_takes_for_equal_are_not_merged() -> None:
    values = [Literal(1, INT), Literal(True, INT), Literal(1.0, INT), Literal(0.0, INT), Literal(-0.0, INT)]
    assert_round_trip(pipeline_with(Call("and", tuple(values), BOOLEAN)))


STREAM = BaseStream(
    "a",
    (("k", BIGINT), ("op", VARCHAR), ("x", array_of(decimal(9, 2)))),
    ConnectorCall("file", ("data/*.csv", 7, -1.5, None, [["x", [True]], []]), {"follow": True, "columns": ["k"]}),
    "ts",
    5,
    7_000_000,
    "te",
    StreamStatistics(100, {"k": 12.5, "x": math.inf}, 0.1, {"k > 1": 0.25}, True, 2.0),
    bad_input=BadInputPolicy(True, 5, 0.1),
    changes=ChangeFeed("op", ("k", "x")),
    source_statistics=StreamStatistics(3.5),
)


@pytest.mark.parametrize(
    "stream",
    [
        STREAM,
        BaseStream("a", (), ConnectorCall("rows"), None),
        BaseStream("t", (("k", INT),), ConnectorCall("table", ("tables/t",)), "f", end_column="u", table="temporal"),
        BaseStream("a", (("k", INT),), ConnectorCall("http", (":1",), {"token": Secret("env", "HOOK")}), None),
    ],
)
def test_streams_come_back(stream: BaseStream) -> None:
    restored = assert_round_trip(pipeline_of(physical.Input("source:a", ()), stream))
    assert restored.streams[0].source_statistics == stream.source_statistics  # not part of the comparison


class Feeding:
    def start(self, directory: Path) -> Any:
        raise AssertionError("nothing is fed here")


def test_a_stream_is_stored_without_its_feed_and_confinement() -> None:
    fed = replace(STREAM, feed=Feeding(), source=replace(STREAM.source, allow=Allow(roots=("/old",))))
    here = Allow(roots=("/new",))
    stored = through_text(pipeline_of(physical.Input("source:a", ()), fed))
    assert "/old" not in json.dumps(stored)
    (restored,) = decode(stored, allow=here).streams
    assert restored == fed
    assert restored.feed is None
    assert restored.source.allow is here


@pytest.mark.parametrize(
    "call",
    [
        ConnectorCall("http", (":80",), {"token": "hunter2"}),
        ConnectorCall("http", (":80",), {"token": Secret("text", "hunter2")}),
        ConnectorCall("postgresql", ("postgresql://me:hunter2@db/x",), {"every": "5 seconds"}),
        ConnectorCall("kafka", ("b",), {"sasl.password": "hunter2"}),
        ConnectorCall("http", (":80",), {"headers": ["A: b", "Authorization: Bearer hunter2"]}),
    ],
)
def test_literal_secrets_are_not_stored(call: ConnectorCall) -> None:
    pipeline = pipeline_of(physical.Input("source:a", ()), replace(STREAM, source=call))
    stored = through_text(pipeline)
    assert "hunter2" not in json.dumps(stored)
    here = Allow(hosts=("*",))
    restored = decode(stored, declared={"a": call}, allow=here)
    assert restored == pipeline
    assert restored.streams[0].source.allow is here
    moved = replace(call, arguments=("elsewhere",))
    for others in ({}, {"b": call}, {"a": moved}, {"a": replace(call, function="file")}):
        with pytest.raises(CheckpointError) as refused:
            decode(stored, declared=others)
        assert refused.value.code == "secret-not-stored"
        assert "hunter2" not in str(refused.value)


# ---- functions of the user's -----------------------------------------------------------------------------------------

CALLING = "SELECT k, tally(k) AS n, in_line(s ORDER BY v) AS l FROM a [RANGE 5 SECONDS] WHERE halved(v) > 1 GROUP BY k"


def test_functions_are_those_that_are_registered() -> None:
    restored = assert_round_trip(lower_text(CALLING))
    assert user_functions(restored) == {name: FUNCTIONS[name] for name in ("tally", "in_line", "halved")}


def test_the_body_of_a_function_may_change() -> None:
    other = replace(FUNCTIONS["halved"], body=users.itself)  # type: ignore[arg-type]
    restored = decode(through_text(lower_text(CALLING)), {**FUNCTIONS, "halved": other})
    assert user_functions(restored)["halved"] is other


@pytest.mark.parametrize("name", ["tally", "in_line", "halved"])
def test_a_missing_function_is_named(name: str) -> None:
    others = {key: value for key, value in FUNCTIONS.items() if key != name}
    with pytest.raises(CheckpointError) as refused:
        decode(through_text(lower_text(CALLING)), others)
    assert refused.value.code == "function-missing"
    assert str(FUNCTIONS[name]) in str(refused.value)


@pytest.mark.parametrize(
    "other",
    [
        UserFunction("halved", (DOUBLE, DOUBLE), DOUBLE, users.halved),
        UserFunction("halved", (DOUBLE,), BIGINT, users.halved),
        replace(FUNCTIONS["tally"], name="halved"),
        replace(FUNCTIONS["tally"], inverse=None),  # type: ignore[arg-type]
        replace(FUNCTIONS["in_line"], inverse=users.taken_out),  # type: ignore[arg-type]
        UserFunction("tally", (BIGINT,), BIGINT, users.itself),
    ],
    ids=str,
)
def test_a_function_of_other_types_is_refused(other: Definition) -> None:
    with pytest.raises(CheckpointError) as refused:
        decode(through_text(lower_text(CALLING)), {**FUNCTIONS, other.name: other})
    assert refused.value.code == "function-changed"
    assert str(other) in str(refused.value)
    assert refused.value.hint


# ---- size, sharing and depth -----------------------------------------------------------------------------------------


def test_what_is_shared_is_written_once_and_shared_again() -> None:
    """A plan whose size doubles with each level of sharing."""
    source: Any = physical.Input("source:a", (COLUMN,))
    for _ in range(200):
        source = physical.UnionAll((COLUMN,), (source, source))
    stored = through_text(pipeline_of(source))
    assert len(stored["rows"]) < 210
    root: Any = decode(stored).fragments[0].root
    for _ in range(200):
        assert root.sources[0] is root.sources[1]
        root = root.sources[0]


def test_equal_parts_that_are_not_the_same_object_are_written_once() -> None:
    one, two = (lower_text("SELECT k, v * 2 AS w FROM a WHERE v > 1.5") for _ in range(2))
    queries = (*one.queries, replace(two.queries[0], name="r"))
    both = replace(one, fragments=(*one.fragments, *two.fragments), queries=queries)
    assert len(encode_pipeline(both)["rows"]) == len(encode_pipeline(one)["rows"]) + 1


@pytest.mark.parametrize("depth", [500, 5_000])
def test_deep_plans_come_back(depth: int) -> None:
    expression: Expression = ColumnRef("a.k", BIGINT)
    for _ in range(depth):
        expression = Cast(expression, BIGINT)
    root: physical.Node = physical.Input("source:a", (COLUMN,))
    for number in range(depth):
        root = physical.Filter(Call("<", (expression, Literal(number, BIGINT)), BOOLEAN), root)
    pipeline = pipeline_of(root)
    assert depth >= sys.getrecursionlimit() // 2, "recursion over nodes and their fields would fail"
    stored = through_text(pipeline)
    restored = decode(stored)
    assert encode_pipeline(restored) == stored
    assert fingerprint_plan(restored) == fingerprint_plan(pipeline)
    inner: Any = restored.fragments[0].root
    for number in reversed(range(depth)):
        assert inner.predicate.arguments[1] == Literal(number, BIGINT)
        inner = inner.source
    assert inner == physical.Input("source:a", (COLUMN,))


def test_documents_have_it(tmp_path: Path) -> None:
    kind = durable.DocumentKind("graph", 1)
    pipeline = lower_text(CALLING)
    durable.write_document(tmp_path / "e1.json", kind, encode_pipeline(pipeline))
    restored = decode(durable.read_document(tmp_path / "e1.json", kind))
    assert restored == pipeline
    # Not compared, since they follow from the plan; a stored plan keeps them all the same.
    assert [f.operators for f in restored.fragments] == [f.operators for f in pipeline.fragments]


# Pinned: stored plans are read by later versions. If the form has to change, raise FORMAT.
DIGESTS = {
    "SELECT k, v * 2 AS w FROM a WHERE v > 1.5": "5199bdf41b0d99c0775771a23f751aca",
    CALLING: "c263a9949b98d57f6ed462fd0f611905",
    "SELECT a.k FROM a WINDOW(RANGE 9 SECONDS), b WINDOW(ROWS 5) WHERE a.k = b.k": "d70412c34cfb9000a8f4c7819c24ba29",
    "SELECT k, v FROM a WINDOW(RANGE 10s SLIDE 5s OFFSET 1s) ORDER BY v LIMIT 3": "3a1b8bc178ad273a59eaae077faa63a8",
}


@pytest.mark.parametrize("text", DIGESTS)
def test_forms_are_pinned(text: str) -> None:
    assert FORMAT == 1
    assert encode_pipeline(lower_text(text))["digest"] == DIGESTS[text]
