"""What the correctness tests share: streams drawn at random, ways to feed them, and the judge.

Two levels. An operator is driven directly with interval streams (`drive`), cut into slices at any instants, with its
state kept, saved and restored, or taken through files. A plan runs on the local engine (`run_plan`) over streams that
arrive in batches of any size. Both are held against snapshots: how intervals are cut is not part of an answer.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import polars as pl
import psutil
import pyarrow as pa
from hypothesis import strategies as st

import user_functions as users
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.core.errors import Span
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    Column,
    Schema,
    Type,
    array_of,
    decimal,
)
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, Catalog, ConnectorCall, Table
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan, Scan
from strandline.logical.reference.change_feed import ChangeRow, FoldedFeed, fold_changes
from strandline.logical.reference.interpreter import Element, RawStreams, bag, change_instants, snapshot
from strandline.logical.schema import schema
from strandline.logical.tree import transform_up
from strandline.planner.coalescing import coalesce_everywhere
from strandline.planner.physical.forms import ALL_CHANGES, ALL_INTERVALS, BY_RULE, FormStrategy
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline, StreamForm
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, frame_schema
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result_buffer import ResultBuffer
from strandline.runtime.scheduling.budget import WorkBudget
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from strandline.runtime.scheduling.policies import POLICIES
from strandline.runtime.scheduling.strategies import STRATEGIES
from strandline.runtime.state import store
from strandline.sql import ast
from strandline.sql.binder.binder import bind_derived_stream, bind_query, bind_view
from strandline.sql.parser.statements import parse

LONG = os.environ.get("STRANDLINE_LONG") == "1"
EPOCH = datetime(1970, 1, 1)


def kill_tree(process: subprocess.Popen[Any]) -> None:
    """kill -9 for the process and everything below it, the JVM and its workers included."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for member in [*root.children(recursive=True), root]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


def heed_interrupts() -> None:
    """For the start of a process: what runs in the background of a shell ignores Ctrl-C, and passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def examples(count: int) -> int:
    """How many examples a property gets: few by default, many where there is time."""
    return count * 20 if LONG else max(1, count // 6)


# ---- values ----------------------------------------------------------------------------------------------------------

MONEY = decimal(10, 2)
KINDS: tuple[Type, ...] = (INT, BIGINT, DOUBLE, MONEY, VARCHAR, BOOLEAN, DATE, TIMESTAMP)
ARRAYS: tuple[Type, ...] = tuple(map(array_of, (INT, DOUBLE, MONEY, VARCHAR, BOOLEAN)))

# Few values, so that rows meet; among them those at which arithmetic and comparison are most easily wrong.
DOMAIN: dict[str, tuple[Value, ...]] = {
    "INT": (0, 1, 2, -1, 2**31 - 1, -(2**31)),
    "BIGINT": (0, 1, 2, -7, 2**63 - 1, -(2**63)),
    "DOUBLE": (0.0, -0.0, 1.0, 1.5, 0.1, 0.2, -3.0, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan")),
    "DECIMAL": tuple(map(Decimal, ("0.00", "1.00", "1.01", "-2.50", "99999999.99", "-99999999.99"))),
    "VARCHAR": ("a", "b", "", "ab", "ä😀", "\uffff", "a\0"),
    "BOOLEAN": (True, False),
    "DATE": (date(2024, 2, 29), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)),
    "TIMESTAMP": (EPOCH, datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(1, 1, 1), datetime(9999, 12, 31)),
}


def values(kind: Type) -> st.SearchStrategy[Value]:
    """A value of the type; about one in six is NULL."""
    if kind.element is not None:
        return st.none() | st.lists(values(kind.element), max_size=3).map(tuple)
    return st.sampled_from((*DOMAIN[kind.name], *([None] * max(1, len(DOMAIN[kind.name]) // 5))))


def any_decimal(kind: Type) -> st.SearchStrategy[Decimal]:
    """Every value that the type has."""
    top = 10**kind.precision - 1
    return st.integers(-top, top).map(lambda n: Decimal(n).scaleb(-kind.scale, Context(prec=60)))


# ---- interval streams and operators ----------------------------------------------------------------------------------

Payload: TypeAlias = tuple[Value, ...]
Interval: TypeAlias = tuple[Payload, Instant, Instant]
Elements: TypeAlias = list[Interval]

TEXT: Schema = (Column("x", "x", VARCHAR),)


def columns(*kinds: Type, prefix: str = "c") -> Schema:
    """A schema with ids c0, c1, …"""
    return tuple(Column(f"{prefix}{i}", f"{prefix}{i}", kind) for i, kind in enumerate(kinds))


def line(text: str) -> Elements:
    """A time line of one text column: `a[0,8) b[5,∞)`, where `NULL` is no value."""
    found = re.findall(r"(\S+?)\[(-?\d+),(-?\d+|∞)\)", text)
    return [((None if x == "NULL" else x,), int(s), FOREVER if e == "∞" else int(e)) for x, s, e in found]


def show(elements: Iterable[Interval]) -> str:
    """The opposite of `line`, in order of start; several values of a payload are separated by commas."""
    shown = (
        (start, f"{','.join(map(_show_value, payload))}[{start},{'∞' if end == FOREVER else end})")
        for payload, start, end in elements
    )
    return " ".join(text for _, text in sorted(shown))


def _show_value(value: Value) -> str:
    return "NULL" if value is None else str(value)


def batch(columns: Schema, elements: Sequence[Interval]) -> Batch:
    rows = [(*payload, start, end) for payload, start, end in elements]
    return Batch(pl.DataFrame(rows, schema=frame_schema(columns), orient="row"))


def elements_of(frame: pl.DataFrame) -> Elements:
    assert frame.columns[-2:] == [FROM, UNTIL], "a batch is the payload, then the interval"
    return [(row[:-2], row[-2], row[-1]) for row in frame.rows()]


def at(elements: Iterable[Interval], t: Instant) -> list[Payload]:
    """The snapshot of an interval stream."""
    return [payload for payload, start, end in elements if start <= t < end]


def edges(*streams: Iterable[Interval]) -> list[Instant]:
    """Every instant at which something may change, and the ones just before and after."""
    ends = {t for stream in streams for _, start, end in stream for t in (start, end) if t < FOREVER}
    return sorted({t + d for t in ends for d in (-1, 0, 1)})


def intervals(
    payloads: st.SearchStrategy[Payload], *, most: int = 12, low: int = -20, high: int = 40, endless: bool = False
) -> st.SearchStrategy[Elements]:
    """An interval stream, ordered by start: a small domain of time, so that edges coincide."""
    lengths: st.SearchStrategy[int] = st.integers(1, 12)
    if endless:
        lengths = lengths | st.just(FOREVER)
    element = st.tuples(payloads, st.integers(low, high), lengths)
    return st.lists(element, max_size=most).map(
        lambda drawn: sorted(
            ((p, s, FOREVER if n == FOREVER else s + n) for p, s, n in drawn), key=lambda element: element[1]
        )
    )


def payloads(*kinds: Type) -> st.SearchStrategy[Payload]:
    return st.tuples(*(values(kind) for kind in kinds))


Carry: TypeAlias = Literal["keep", "save", "store"]


@dataclass(frozen=True)
class Slicing:
    """Where the input is cut, what happens to the state in between, and in which order the elements of a slice come;
    and the form of the output, whether it is computed by panes and whether it is coalesced, for operators that have a
    choice. `changes` are the inputs, by position, that come in the form of changes; with `announces`, every slice
    begins as after a restart.

    `keep`: the operator goes on. `save`: another operator goes on from its state. `store`: the state goes through files
    that are opened anew, as when another worker takes over.
    """

    cuts: tuple[Instant, ...] = ()
    carry: Carry = "keep"
    backwards: bool = False
    form: StreamForm = "intervals"
    panes: bool = False
    coalesces: bool = False
    changes: tuple[bool, bool] = (False, False)
    announces: bool = False

    @property
    def input_forms(self) -> tuple[StreamForm, StreamForm]:
        left, right = self.changes
        return "changes" if left else "intervals", "changes" if right else "intervals"


WHOLE = Slicing()


def slicings(low: int = -25, high: int = 60, takes_changes: bool = False) -> st.SearchStrategy[Slicing]:
    cuts = st.lists(st.integers(low, high), max_size=6).map(lambda drawn: tuple(sorted(drawn)))
    carry: st.SearchStrategy[Carry] = st.sampled_from(("keep", "save", "save", "store"))
    forms = st.sampled_from(get_args(StreamForm))
    inputs = st.tuples(st.booleans(), st.booleans()) if takes_changes else st.just((False, False))
    announces = st.sampled_from((False, False, True)) if takes_changes else st.just(False)
    return st.builds(Slicing, cuts, carry, st.booleans(), forms, st.booleans(), st.booleans(), inputs, announces)


def drive(
    make: Callable[[], Operator],
    inputs: Sequence[tuple[Schema, Elements]],
    slicing: Slicing = WHOLE,
    origin: Instant = FOREVER,
    sliced: bool = True,
) -> Elements:
    """Feed an operator slice by slice until the end of time; what it emits must itself come in slices.

    An element that is emitted without an end must be emitted again, once, in the slice in which it ends.
    """
    with tempfile.TemporaryDirectory() as directory:
        keeper = store.StateStore(Path(directory), 1, 0)
        operator, out, before = make(), [], BEFORE_ALL
        opened: list[str] = []
        for number, until in enumerate((*slicing.cuts, FOREVER)):
            slices = [
                (
                    c,
                    as_changes(stream, before, until, slicing.announces)
                    if as_change
                    else [e for e in stream if before <= e[1] < until],
                )
                for (c, stream), as_change in zip(inputs, (*slicing.changes, *(False for _ in inputs)), strict=False)
            ]
            parts = [batch(c, part[::-1] if slicing.backwards else part) for c, part in slices]
            emitted = elements_of(operator.step(parts, Watermark(until, origin, announces=slicing.announces)).frame)
            repeated = [_identity(element) for element in emitted if element[1] < before and element[2] == OPEN]
            assert slicing.announces or not repeated, "what stays open is sent again after a restart only"
            emitted = [element for element in emitted if element[1] >= before or element[2] != OPEN]
            again = [(p, s, e) for p, s, e in emitted if s < before and sliced]
            assert all(before <= end for _, _, end in again), "an element ends in the slice in which that is said"
            for key in [_identity(element) for element in again]:
                assert key in opened, "a slice emits what starts in it, or the end of what was open"
                opened.remove(key)
            assert not slicing.announces or sorted(opened) == sorted(repeated), "all that is open is announced again"
            assert not sliced or all(start < until for _, start, _ in emitted), "a slice emits what starts in it"
            assert all(start < end for _, start, end in emitted), "no interval is empty"
            opened += [_identity(element) for element in emitted if element[2] == OPEN]
            out += [element for element in emitted if element[2] != OPEN]
            operator, before = _handed_over(operator, make, slicing.carry, keeper, number), until
    assert not opened, "everything has an end at the end of time"
    return out


def as_changes(stream: Elements, before: Instant, until: Instant, announces: bool = False) -> Elements:
    """A slice of a stream in the form of changes. Of some elements the end is known from the beginning; one that ends
    with the slice is said to end in it, or in the next. With `announces` those that stay open come again."""
    slice_: Elements = []
    for number, (payload, start, end) in enumerate(stream):
        is_late = number % 2 == 1 and end < FOREVER
        ends = before <= end < until if is_late else before < end <= until
        is_open = number % 3 < 2
        if before <= start < until:
            over = end < until if is_late else end <= until
            slice_.append((payload, start, OPEN if is_open and not over else end))
        elif start < before and is_open and ends:
            slice_.append((payload, start, end))
        elif announces and start < before and is_open and (end >= until if is_late else end > until):
            slice_.append((payload, start, OPEN))
    return slice_


def _identity(element: Interval) -> str:
    """An open element, whatever its end: by payload, where -0.0 is 0.0, and start."""
    return f"{bag([element[0]])} {element[1]}"


def _handed_over(
    operator: Operator, make: Callable[[], Operator], carry: Carry, keeper: store.StateStore, number: int
) -> Operator:
    if carry == "keep":
        return operator
    state = operator.save()
    if carry == "store":
        version = keeper.write(number, {"a": state})
        store._opened.clear()  # nothing stays in memory: the files must do
        state = keeper.read(version.manifest, version.digest)["a"]
    operator = make()
    operator.restore(state)
    return operator


def same_snapshots(actual: Elements, expected: Callable[[Instant], list[Payload]], instants: Iterable[Instant]) -> None:
    """The law of an operator: at every instant its output is what the relational operator gives."""
    for t in sorted({*instants, *edges(actual)}):
        assert bag(at(actual, t)) == bag(expected(t)), f"at instant {t}"


# ---- streams as they arrive ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrivals:
    """A stream in order of arrival, with the disorder that it admits to. Its time is the column `ts`; with `intervals`
    its rows are valid until the time in the column `te`, which is the last one then. With `changes` its rows are those
    of a change feed. With `table` queries see a table, whose history the intervals are."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    elements: tuple[Element, ...]
    disorder_us: int = 0
    intervals: bool = False
    changes: ChangeFeed | None = None
    table: Table | None = None

    @property
    def declared(self) -> BaseStream:
        end = "te" if self.intervals else None
        call = ConnectorCall("test")
        return BaseStream(self.name, self.columns, call, "ts", self.disorder_us, end_column=end, changes=self.changes)

    @property
    def folded(self) -> FoldedFeed:
        """What a change feed means."""
        assert self.changes is not None
        hidden = (self.changes.op_column, "ts")
        rows = [
            ChangeRow(
                e.time,
                str(e.values[self.changes.op_column]),
                {name: value for name, value in e.values.items() if name not in hidden},
            )
            for e in self.elements
        ]
        return fold_changes(rows, self.changes)


def moment(t: Instant) -> datetime:
    return EPOCH + timedelta(microseconds=t)


Row = TypeVar("Row", bound=tuple[Any, ...])


def _in_order(drawn: Sequence[Row], disorder: int) -> list[Row]:
    return sorted(drawn, key=lambda row: row[0] + min(row[1], disorder))


def arrange(
    name: str, columns: Mapping[str, Type], drawn: Sequence[tuple[Instant, int, Payload]], disorder: int
) -> Arrivals:
    """A stream out of rows with a time and a delay each: out of order, but never by more than the disorder.

    Whoever comes first by time + delay is behind nobody by more than the largest delay.
    """
    in_order = _in_order(drawn, disorder)
    rows = (Element(t, {**dict(zip(columns, row, strict=True)), "ts": moment(t)}) for t, _, row in in_order)
    return Arrivals(name, (*columns.items(), ("ts", TIMESTAMP)), tuple(rows), disorder)


def arrange_intervals(
    name: str, columns: Mapping[str, Type], drawn: Sequence[tuple[Instant, int, Payload, int | None]], disorder: int
) -> Arrivals:
    """The same with rows that are valid as long as their last part says; None is for ever."""
    plain = arrange(name, columns, [row[:3] for row in drawn], disorder)
    rows = []
    for element, (*_, length) in zip(plain.elements, _in_order(drawn, disorder), strict=True):
        until = FOREVER if length is None else element.time + length
        rows.append(Element(element.time, {**element.values, "te": None if length is None else moment(until)}, until))
    return Arrivals(name, (*plain.columns, ("te", TIMESTAMP)), tuple(rows), disorder, intervals=True)


def arrivals(
    name: str, columns: Mapping[str, Type], *, most: int = 8, low: int = -5, high: int = 30, disorder: int = 6
) -> st.SearchStrategy[Arrivals]:
    """A stream whose elements come out of order, but within its bound; now and then it is empty."""
    payload = st.tuples(*(values(kind) for kind in columns.values()))
    row = st.tuples(st.integers(low, high), st.integers(0, disorder), payload)
    rows, bound = st.lists(row, max_size=most), st.sampled_from((0, 0, 1, disorder))
    return st.builds(lambda drawn, bound: arrange(name, columns, drawn, bound), rows, bound)


class MemorySource(Source):
    """A stream fed from memory: batch after batch takes the next of `sizes` rows, then all the rest.

    The end is announced once the sizes are used up, perhaps some batches after the last row.
    """

    def __init__(self, arrivals: Arrivals, sizes: Sequence[int]) -> None:
        super().__init__(arrivals.declared, None)
        self.elements = arrivals.elements
        self.sizes = list(sizes)

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        if self.sizes:
            return min(position + self.sizes.pop(0), len(self.elements)), False
        return len(self.elements), True

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        middle = (start + end) // 2
        for part in (self.elements[start:middle], self.elements[middle:end]):
            names = [name for name, _ in self.stream.columns]
            rows = [(*(e.values[name] for name in names), e.time, e.end) for e in part]
            kinds = [Column(name, name, kind) for name, kind in self.stream.columns]
            frame = pl.DataFrame(rows, schema=frame_schema(tuple(kinds)), orient="row")
            frame = frame if self.stream.has_intervals else frame.drop(UNTIL)
            yield Chunk(frame, pl.DataFrame(schema=REJECT_SCHEMA))

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        return tuple(sorted({start + (end - start) * task // tasks for task in range(1, tasks)} - {start}))

    def latest(self, start: int, end: int) -> Instant:
        return max(element.time for element in self.elements[start:end])


@dataclass(frozen=True)
class Cuts:
    """How a run is cut: the batch sizes of each stream by position, and the number of buckets, which is also that of
    the pieces in which a batch of a stream is read; the form of the result, and whether plans coalesce all they can;
    and how the forms of the edges within the plan are chosen, see `form_strategy`."""

    sizes: tuple[tuple[int, ...], ...] = ()
    shards: int = 1
    form: StreamForm = "intervals"
    coalesces: bool = False
    forms: int = 0
    budgets: int | None = None  # the seed of random budgets for the work of shared joins; None lets nothing wait


class RandomBudgets(BudgetPlanner):
    """Budgets of any size, each with any policy; all with one strategy, or without."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        super().__init__(target=1.0, strategy=self.dice.choice((None, *STRATEGIES)))

    def decide(self, rows: int, parts: int, *, has_work: bool) -> WorkBudget:
        units = self.dice.choice((None, 0, 0, 1, 5_000, 20_000, 150_000, 400_000, 1_000_000))
        return WorkBudget(units, self.dice.choice(sorted(POLICIES)))


def form_strategy(number: int) -> FormStrategy:
    """0 by rule, 1 intervals everywhere, 2 changes everywhere; any other is the seed of a choice for every edge."""
    if number < 3:
        return (BY_RULE, ALL_INTERVALS, ALL_CHANGES)[number]
    dice = Random(number)
    return FormStrategy(lambda _, __: dice.choice(get_args(StreamForm)))


def cuts(streams: int) -> st.SearchStrategy[Cuts]:
    sizes = st.lists(st.integers(0, 4), max_size=5).map(tuple)
    forms = st.sampled_from(get_args(StreamForm))
    every = st.tuples(*(sizes for _ in range(streams)))
    return st.builds(Cuts, every, st.integers(1, 3), forms, st.booleans(), st.integers(0, 50))


@dataclass
class Answer:
    """What a run produced."""

    elements: Elements = field(default_factory=list)
    late: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    late_count: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    rejected_count: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    waited: int = 0  # in how many of them some of the work was put off
    watermarks: list[Instant] = field(default_factory=list)  # before each of them
    begins: list[Instant] = field(default_factory=list)  # the earliest start of what came in each


def run_plan(plan: Plan, streams: Sequence[Arrivals], cut: Cuts = Cuts(), *, optimised: bool = True) -> Answer:  # noqa: B008
    """Run a plan on the local engine until its streams end."""
    return run_plans([plan], streams, cut, optimised=optimised)[0]


def run_plans(
    plans: Sequence[Plan],
    streams: Sequence[Arrivals],
    cut: Cuts = Cuts(),  # noqa: B008
    *,
    optimised: bool = True,
) -> list[Answer]:
    """Run plans together, in one pipeline, on the local engine until their streams end."""
    names = ["q"] if len(plans) == 1 else [f"q{number}" for number in range(len(plans))]
    declared = [s.declared for s in streams]
    parts: list[Pipeline] = []
    for name, plan in zip(names, plans, strict=True):
        chosen = _with_tables_as_streams(optimize(plan) if optimised else plan, streams)
        part = lower(name, chosen, declared, cut.shards, form=cut.form, strategy=form_strategy(cut.forms))
        parts.append(coalesce_everywhere(part) if cut.coalesces else part)
    pipeline = combine(parts, declared, [""] * len(parts))
    answers = [Answer() for _ in plans]
    sent = [ResultBuffer(schema(plan), None) for plan in plans]
    sizes = dict(zip((s.name for s in streams), cut.sizes, strict=False))
    read = {s.name for s in pipeline.streams}
    sources = {s.name: MemorySource(s, sizes.get(s.name, ())) for s in streams if s.name in read}
    running = RunningPipeline(pipeline)
    if cut.budgets is not None:
        running.budgets = RandomBudgets(cut.budgets)
    begins = running.metrics.watermarks()
    for report in LocalRun(running, sources=sources, tasks=cut.shards * len(sources)).batches():
        for name, buffer, answer in zip(names, sent, answers, strict=True):
            answer.batches += 1
            answer.waited += name in running.metrics.reaches
            answer.watermarks.append(begins[name])
            starts = [table.column("valid_from").cast(pa.int64()) for table in report.results.get(name, ())]
            answer.begins.append(min([time for column in starts for time in column.to_pylist()], default=FOREVER))
            buffer.add(report.results.get(name, ()), begins[name])
            for stream, late in report.late.items():
                answer.late.setdefault(stream, []).extend(row for rows in late for row in rows.table.to_pylist())
            for stream, rejected in report.rejected.items():
                answer.rejected.setdefault(stream, []).extend(row for table in rejected for row in table.to_pylist())
        begins = running.metrics.watermarks()
    for plan, buffer, answer in zip(plans, sent, answers, strict=True):
        answer.rejected_count = {name: status.rejected for name, status in running.metrics.statuses.items()}
        answer.late_count = {name: status.late for name, status in running.metrics.statuses.items()}
        answer.elements = elements_of(buffer.chunks(0, FOREVER).frame(schema(plan)))
        assert all(end != OPEN for _, _, end in answer.elements), "everything has an end at the end of time"
    return answers


def _with_tables_as_streams(plan: Plan, streams: Sequence[Arrivals]) -> Plan:
    """The plan that reads the histories of tables as streams whose rows bring their intervals."""
    tables = {stream.name for stream in streams if stream.table is not None}
    return transform_up(
        plan, lambda node: replace(node, table=None) if isinstance(node, Scan) and node.stream in tables else node
    )


def bind(text: str, streams: Sequence[Arrivals]) -> Plan:
    """The plan of the last statement of a script, which is a query; statements before it declare derived streams."""
    catalog = Catalog()
    users.bring(catalog)
    for stream in streams:
        catalog.add(stream.table or stream.declared)
    for statement in parse(text):
        match statement:
            case ast.CreateStreamAs():
                catalog.add(bind_derived_stream(statement, catalog))
            case ast.CreateView():
                catalog.add(bind_view(statement, catalog))
            case ast.Select() | ast.UnionAll() | ast.SetOperation() | ast.With() | ast.Changes() | ast.Ordered():
                return bind_query(statement, catalog)
    raise AssertionError(f"no query in {text}")


def raw(streams: Sequence[Arrivals]) -> RawStreams:
    return {stream.name: stream.elements if stream.changes is None else stream.folded.elements for stream in streams}


def assert_exact(plan: Plan, streams: RawStreams, *answers: Answer) -> int:
    """At every instant each answer is what the plain query returns over the window contents; how many there are."""
    for answer in answers:
        assert all(start < end for _, start, end in answer.elements), "no interval is empty"
    instants = {*change_instants(plan, streams), *edges(*(answer.elements for answer in answers))}
    for t in sorted(instants):
        expected = bag([tuple(row[c.id] for c in schema(plan)) for row in snapshot(plan, streams, t)])
        for number, answer in enumerate(answers):
            assert bag(at(answer.elements, t)) == expected, f"answer {number} at instant {t}"
    return len(instants)
