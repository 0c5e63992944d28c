"""The queries of the golden plans, run by the local engine: at every instant the result of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from plan_cases import Case, declare_streams, read_plan_cases
from random_streams import cut
from strandline.core.temporal import SECOND
from strandline.core.types import Type
from strandline.logical.catalog import BaseStream, Catalog, ConnectorCall
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse
from support import DOMAIN, Arrivals, Cuts, assert_exact, moment, raw, run_plan
from table_testing import some_tables

CASES = read_plan_cases()
ROWS = 7
LONGEST_US = 90 * SECOND  # of a stream: the windows of the cases take seconds to minutes


@dataclass(frozen=True)
class Rows(Arrivals):
    """Random rows of a stream as its case declares it."""

    stream: BaseStream | None = None

    @property
    def declared(self) -> BaseStream:
        assert self.stream is not None
        return self.stream


def draw_rows(dice: Random, stream: BaseStream) -> Rows:
    """Rows in order of time, with few values, so that rows meet."""
    times = sorted(dice.randrange(0, LONGEST_US, SECOND) for _ in range(ROWS))
    elements = tuple(_draw_row(dice, stream, t) for t in times)
    known = replace(stream, source=ConnectorCall("test"))
    order = (stream.disorder_us, stream.has_intervals, stream.changes)
    return Rows(stream.name, stream.columns, elements, *order, stream=known)


def _draw_row(dice: Random, stream: BaseStream, t: int) -> Element:
    until = t + dice.choice((1, 20 * SECOND, 60 * SECOND)) if stream.has_intervals else None
    given: dict[str | None, Value] = {stream.time_column: moment(t)}
    if until is not None:
        given[stream.end_column] = moment(until)
    if stream.changes is not None:
        given[stream.changes.op_column] = dice.choice(("insert", "insert", "delete"))
    values = {name: given[name] if name in given else _draw_value(dice, kind) for name, kind in stream.columns}
    return Element(t, values) if until is None else Element(t, values, until)


def _draw_value(dice: Random, kind: Type) -> Value:
    return dice.choice((*DOMAIN[kind.name][:3], None))


def bind_queries(case: Case, catalog: Catalog) -> Iterator[Plan]:
    for statement in parse(case.query):
        query = statement.query if isinstance(statement, ast.QueryWithShedding) else statement
        assert isinstance(query, ast.Query), f"a case has queries, found {type(statement).__name__}"
        yield bind_query(query, catalog)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_engine_and_reference_agree(case: Case) -> None:
    catalog = declare_streams(case.declarations)
    dice = Random(case.name)
    streams: list[Arrivals] = [draw_rows(dice, stream) for stream in catalog if isinstance(stream, BaseStream)]
    streams += some_tables(0)
    row_by_row = Cuts(((1,) * ROWS,) * len(streams), shards=2)
    for plan in bind_queries(case, catalog):
        runs = [run_plan(plan, streams, each) for each in (Cuts(), row_by_row, cut(dice, streams))]
        assert_exact(plan, raw(streams), *runs)
