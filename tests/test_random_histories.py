"""Random histories of a graph: queries come and go between batches, and each result is that of the query alone.

A query that is added begins at an instant, or at the beginning of its streams; its result is the plain query over the
rows from there on, whatever the batches and whatever else runs. One that is dropped has its result up to its watermark.
Tables change meanwhile. What a table has when a query is added was always there for that query; it sees a later change
from its instant on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import test_random_tables as logs
from strandline.connectors.sinks import Memory
from strandline.connectors.sources.base import Source
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.core.types import INT
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import Value
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element, bag, change_instants, snapshot
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline, Route, StreamForm, fragments_of, numbered
from strandline.planner.planner import PlannedQuery, PlanningInputs, plan_to_share
from strandline.planner.prices import built_in
from strandline.planner.stages import optimize
from strandline.runtime import catch_up, fragment_turns, graph_changes
from strandline.runtime.checkpoint.versions import GraphQuery, Start
from strandline.runtime.graph_changes import Addition, add_query, drop_query
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from support import Arrivals, MemorySource, RandomBudgets, arrange, arrivals, at, bind, edges, elements_of, examples
from table_logs import DrawnTable, MemoryStore, MemoryTable

TEXTS = (
    "SELECT k, v FROM a WHERE v > 0",
    "SELECT k, count(*) AS n, sum(v) AS t FROM a WINDOW(RANGE 9 MICROSECONDS) GROUP BY k",
    "SELECT k AS other, count(*) AS m, sum(v) AS s FROM a WINDOW(RANGE 9 MICROSECONDS) GROUP BY k",
    "SELECT count(*) AS n FROM a WINDOW(RANGE 4 MICROSECONDS)",
    "SELECT max(w) AS m FROM b WINDOW(RANGE 6 MICROSECONDS SLIDE 3 MICROSECONDS)",
    "SELECT k, v FROM a WINDOW(ROWS 2)",
    "SELECT a.k, v, w FROM a WINDOW(RANGE 5 MICROSECONDS), b WINDOW(RANGE 7 MICROSECONDS) WHERE a.k = b.k",
    "SELECT x.v, y.v AS z FROM a WINDOW(RANGE 5 MICROSECONDS) x, a WINDOW(RANGE 3 MICROSECONDS) y WHERE x.k = y.k",
    "SELECT DISTINCT k FROM a WINDOW(RANGE 6 MICROSECONDS)",
    "SELECT k FROM a WINDOW(RANGE 4 MICROSECONDS) UNION ALL SELECT k FROM b WINDOW(RANGE 3 MICROSECONDS)",
    "SELECT a.k, v, w FROM a WINDOW(RANGE 5 MICROSECONDS) LEFT JOIN b WINDOW(RANGE 7 MICROSECONDS) ON a.k = b.k",
    "SELECT k, v FROM a WINDOW(RANGE 8 MICROSECONDS) ORDER BY v, k LIMIT 2",
    "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM a WINDOW(RANGE 6 MICROSECONDS) GROUP BY k) GROUP BY n",
)

PULLED = {  # queries, and others over what they compute that a filter selects from
    TEXTS[1]: f"SELECT k, n FROM ({TEXTS[1]}) WHERE k = 1",
    TEXTS[6]: f"SELECT k, w FROM ({TEXTS[6]}) WHERE k = 1",
    TEXTS[8]: f"SELECT k FROM ({TEXTS[8]}) WHERE k > 0",
    TEXTS[10]: f"SELECT k, v FROM ({TEXTS[10]}) WHERE v > 0",
}

STARTS: tuple[Start, ...] = ("now", "beginning")
FORMS: tuple[StreamForm, ...] = ("intervals", "changes")

JOINS = (
    "SELECT a.k, v, w FROM a WINDOW(RANGE 2 MICROSECONDS), b WINDOW(RANGE 9 MICROSECONDS) WHERE a.k = b.k",
    "SELECT a.k, w FROM a WINDOW(RANGE 8 MICROSECONDS), b WINDOW(RANGE 1 MICROSECONDS) WHERE a.k = b.k AND v > 0",
    "SELECT v, count(*) AS n FROM a WINDOW(RANGE 6 MICROSECONDS SLIDE 2 MICROSECONDS), b WINDOW(RANGE 4 MICROSECONDS)"
    " WHERE a.k = b.k AND w > 1 GROUP BY v",
)

OVER_TABLES = (
    "SELECT a.k, a.v, t.v AS name FROM a JOIN t ON a.k = t.k",
    "SELECT a.k, a.v, t.v AS name FROM a WINDOW(RANGE 5 MICROSECONDS) LEFT JOIN t ON a.k = t.k",
    "SELECT t.v, count(*) AS n FROM a WINDOW(RANGE 9 MICROSECONDS) JOIN t ON a.k = t.k GROUP BY t.v",
    "SELECT count(*) AS n FROM b WINDOW(RANGE 6 MICROSECONDS) JOIN t ON b.k = t.k",
    "SELECT b.k, w FROM b WINDOW(RANGE 6 MICROSECONDS) ANTI JOIN t ON b.k = t.k",
    "SELECT t.k, t.v FROM t WHERE t.k IN (SELECT k FROM a WINDOW(RANGE UNBOUNDED))",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM a WINDOW(RANGE UNBOUNDED)",
    "SELECT a.k, t.v AS name, u.v AS other FROM a WINDOW(ROWS 2) JOIN t ON a.k = t.k LEFT JOIN u ON a.k = u.k",
    "SELECT a.k, w, t.v AS name FROM a WINDOW(RANGE 5 MICROSECONDS), b WINDOW(RANGE 7 MICROSECONDS), t"
    " WHERE a.k = b.k AND a.k = t.k",
    "SELECT a.k, a.v, u.v AS name FROM a WINDOW(RANGE 5 MICROSECONDS) JOIN u ON a.k = u.k",
    "SELECT a.k, a.v, t.v AS name FROM a WINDOW(RANGE 5 MICROSECONDS) JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k",
    "SELECT a.k, a.v, p.v AS name FROM a WINDOW(RANGE 3 MICROSECONDS) JOIN p ON a.k = p.k",
    "SELECT b.k, w, c.v AS name FROM b LEFT JOIN c ON b.k = c.k",
)


SELECTIONS = ("", " AND v > 0", " AND v > 0 AND w > 0", " AND w < 2", " AND v <= 1 AND v > -1")
RESULTS = ("a.k, v, w", "w, v + 1 AS v", "a.k, w - 1 AS u", "*", "v, count(*) AS n, max(w) AS m")
CONDITIONS = ("a.k = b.k",) * 3 + ("a.k = b.k AND v < w", "v < w")


def window(dice: Random) -> str:
    if dice.random() < 0.1:
        return dice.choice(("", " WINDOW(RANGE UNBOUNDED)"))
    slide = f" SLIDE {dice.choice((2, 3))} MICROSECONDS" if dice.random() < 0.2 else ""
    return f" WINDOW(RANGE {dice.choice((1, 2, 4, 9, 20))} MICROSECONDS{slide})"


def join(dice: Random) -> str:
    """A query over a window join, of which the others differ in their windows, selections and columns."""
    columns = dice.choice(RESULTS)
    rows = f"a{window(dice)}, b{window(dice)} WHERE {dice.choice(CONDITIONS)}{dice.choice(SELECTIONS)}"
    return f"SELECT {columns} FROM {rows}{' GROUP BY v' if 'count' in columns else ''}"


@dataclass
class Living:
    """A query of a history: from when its rows count, and where its results are. `readers` are the inputs of its
    tables, by table."""

    plan: Plan
    since: Instant
    number: int
    readers: dict[str, str] = field(default_factory=dict)


@dataclass
class History:
    """A pipeline that runs, and the queries that it has or had, by name."""

    streams: Mapping[str, Arrivals]
    shards: int
    dice: Random
    over_tables: float = 0.0  # the share of queries that read some
    budgets: BudgetPlanner = field(default_factory=BudgetPlanner)
    queries: dict[str, Living] = field(default_factory=dict)
    only_joins: bool = False
    shared: int = 0  # joins of which a query that came has become a use

    def __post_init__(self) -> None:
        self.chance = Random(str(self.dice.getstate()))  # of what is about tables
        self.tables = draw_tables(self.chance)
        self.stores = {drawn.name: MemoryStore(drawn) for drawn in self.tables}
        self.bases: dict[str, int] = {}  # by the readers of tables
        self.ends: dict[str, int] = {}  # how far they have read the logs
        self.shares_logs = self.dice.random() < 0.8
        self.form = self.dice.choice(FORMS)
        texts = [self.text() for _ in range(self.dice.choice((1, 1, 2, 4)))]
        if len(texts) > 1:  # of which some share a join
            texts = [self.dice.choice((text, *JOINS)) for text in texts]
        if self.only_joins:
            texts = [join(self.dice) for _ in texts]
        self.texts = list(texts)
        parts = [self.part(f"q{number}", text) for number, text in enumerate(texts)]
        scopes = [str(sorted(part.queries[0].streams)) for part in parts]
        pipeline = combine(parts, self.declared, scopes)
        columns = {query.name: query.columns for query in pipeline.queries}
        buffers = {name: Memory(None).make_buffer(columns[name], in_fragments=True) for name in columns}
        self.pipeline = RunningPipeline(pipeline, buffers=buffers)
        self.pipeline.budgets = self.budgets
        for number, text in enumerate(texts):
            name = f"q{number}"
            self.pipeline.writers[name] = Memory(None).open(name, columns[name])
            self.queries[name] = self.living_query(name, text, BEFORE_ALL, number)
        sources = {stream.name: self.source(stream) for stream in pipeline.streams}
        self.run = LocalRun(self.pipeline, sources=sources, tasks=self.shards)

    @property
    def declared(self) -> list[BaseStream]:
        return [*(stream.declared for stream in self.streams.values()), *(drawn.table.input for drawn in self.tables)]

    def text(self) -> str:
        if self.chance.random() < self.over_tables:
            return self.chance.choice(OVER_TABLES)
        return join(self.dice) if self.only_joins else self.dice.choice(TEXTS)

    def bind(self, text: str) -> Plan:
        tables = [Arrivals(drawn.name, (), (), table=drawn.table) for drawn in self.tables]
        return bind(text, [*self.streams.values(), *tables])

    def living_query(self, name: str, text: str, since: Instant, number: int) -> Living:
        read = self.pipeline.metrics.streams_of(name)
        inputs = [stream for stream in self.pipeline.physical.streams if stream.table and stream.name in read]
        return Living(self.bind(text), since, number, {stream.declared_name: stream.name for stream in inputs})

    def change_tables(self) -> None:
        """Let some changes be in the logs, between two batches."""
        for store in self.stores.values():
            if store.visible and self.chance.random() < 0.3:
                store.promise(store.promised)

    def source(self, stream: BaseStream, directory: object = None) -> Source:
        if stream.table is not None:
            return MemoryTable(stream, self.stores[stream.declared_name])
        sizes = [self.dice.randrange(4) for _ in range(self.dice.randrange(2, 7))]
        arrivals = self.streams[stream.declared_name]
        return MemorySource(replace(arrivals, name=stream.name), sizes)

    def part(self, name: str, text: str) -> Pipeline:
        plan = optimize(self.bind(text))
        form = self.form if self.dice.random() < 0.8 else self.dice.choice(FORMS)
        return lower(name, plan, self.declared, self.shards, form=form)

    def plans(self, name: str, text: str) -> tuple[PlannedQuery, ...]:
        """Plans of which one is chosen beside what runs."""
        changes = frozenset((name,)) if self.form == "changes" else frozenset[str]()
        inputs = PlanningInputs(self.declared, {}, built_in(), self.shards, changes=changes)
        return plan_to_share(name, self.bind(text), inputs)

    @property
    def living(self) -> list[str]:
        return [query.name for query in self.pipeline.graph.version.queries]

    def add(self) -> None:
        # Names of queries that are gone are used again now and then.
        gone = [name for name in self.queries if name not in self.living and name.isalnum()]
        name = self.dice.choice(gone) if gone and self.dice.random() < 0.4 else f"q{len(self.queries)}"
        if name in self.queries:
            before = self.queries.pop(name)
            self.queries[f"{name}, number {before.number}"] = before
        # Often one that others have, so that operators may be shared.
        text = self.dice.choice(self.texts) if self.dice.random() < 0.5 else self.text()
        if self.chance.random() < 0.4 and (known := [text for text in self.texts if text in PULLED]):
            text = PULLED[self.chance.choice(known)]
        self.texts.append(text)
        part = self.part(name, text)
        scope = str(sorted(part.queries[0].streams))
        start = "now" if self.only_joins and self.dice.random() < 0.6 else self.dice.choice(STARTS)
        plans = self.plans(name, text) if self.chance.random() < 0.5 else ()
        add_query(self.pipeline, Addition(GraphQuery(name, start=start), part, scope, Memory(None), plans))
        number = self.pipeline.graph.version.query(name).number
        own = fragments_of(self.pipeline.physical, name)
        nodes = [node for fragment in own for node in numbered(fragment.root)]
        self.shared += any(isinstance(node, Route) and node.since > BEFORE_ALL for node in nodes)
        since = self.pipeline.metrics.plan_of(name).since
        assert start == "now" or since == BEFORE_ALL
        self.queries[name] = self.living_query(name, text, since, number)
        self.change_tables()

    def drop(self, name: str) -> None:
        drop_query(self.pipeline, name)

    def go(self) -> None:
        """Run to the end; between batches queries come and go."""
        for _ in range(200):
            while self.dice.random() < 0.4 and not self.pipeline.ended and len(self.queries) < 12:
                if len(self.living) > 1 and self.dice.random() < 0.4:
                    self.drop(self.dice.choice(self.living))
                else:
                    self.add()
            if self.pipeline.ended:
                return
            self.run.step()
            for stream in self.run.physical.streams:
                if stream.table is not None:
                    position = self.run.positions[stream.name]
                    assert stream.base in (-1, position.base)
                    self.bases[stream.name], self.ends[stream.name] = position.base, position.at
        raise AssertionError("the streams do not end")

    def check(self) -> int:
        """Compare each result with the plain query over the rows that count, at every instant."""
        instants = 0
        for name, query in self.queries.items():
            own = name.split(",")[0]
            left = self.pipeline.left.get(query.number)
            results = (left or self.pipeline).results
            chunks = results.read(own)
            columns = schema(query.plan)
            elements = elements_of(chunks.frame(columns))
            raw = {
                stream.name: tuple(element for element in stream.elements if element.time >= query.since)
                for stream in self.streams.values()
            }
            raw |= {
                table.name: replace(table, base=self.bases[reader]).elements(self.ends[reader])
                for table in self.tables
                if (reader := query.readers.get(table.name)) in self.bases
            }
            assert left is not None or chunks.watermark == FOREVER
            for t in sorted({*change_instants(query.plan, raw), *edges(elements)}):
                if t < chunks.watermark:
                    expected = bag([tuple(row[c.id] for c in columns) for row in snapshot(query.plan, raw, t)])
                    assert bag(at(elements, t)) == expected, f"{name} from {query.since} on, at {t}"
                    instants += 1
        return instants


@given(
    a=arrivals("a", {"k": INT, "v": INT}, most=12),
    b=arrivals("b", {"k": INT, "w": INT}, most=8),
    shards=st.integers(1, 2),
    seed=st.integers(0, 2**32),
    over_tables=st.sampled_from((0.0, 0.4, 0.9)),
)
@example(  # a query is added over a stream that has ended, and then those over other streams are dropped
    a=arrange("a", {"k": INT, "v": INT}, [], 0),
    b=arrange("b", {"k": INT, "w": INT}, [], 0),
    shards=1,
    seed=58253,
    over_tables=0.0,
)
@example(  # a query takes the name of one that is gone, and goes before it has had a batch
    a=arrange("a", {"k": INT, "v": INT}, [(0, 0, (0, 0)), (1, 0, (0, 0))], 0),
    b=arrange("b", {"k": INT, "w": INT}, [], 0),
    shards=1,
    seed=50949,
    over_tables=0.0,
)
@settings(max_examples=examples(60), deadline=None)
def test_queries_that_come_and_go_are_those_alone(
    a: Arrivals, b: Arrivals, shards: int, seed: int, over_tables: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small = [replace(stream, elements=_small(stream)) for stream in (a, b)]
        history = History({stream.name: stream for stream in small}, shards, Random(seed), over_tables)
        patch.setattr(graph_changes, "open_source", history.source)
        # Some readers share a log, others have one of their own, as those of topics.
        patch.setattr(catch_up, "shares_log", lambda stream: history.shares_logs)
        history.go()
        history.check()


@given(
    a=arrivals("a", {"k": INT, "v": INT}, most=12),
    b=arrivals("b", {"k": INT, "w": INT}, most=8),
    shards=st.integers(1, 2),
    seed=st.integers(0, 2**32),
    over_tables=st.sampled_from((0.0, 0.4)),
)
@example(  # a join of one query becomes shared while rows wait in front of it, and its streams are over
    a=arrange("a", {"k": INT, "v": INT}, [(0, 0, (0, 0))] * 4 + [(1, 0, (0, 0))] * 2, 0),
    b=arrange("b", {"k": INT, "w": INT}, [], 0),
    shards=1,
    seed=14103,
    over_tables=0.0,
)
@settings(max_examples=examples(40), deadline=None)
def test_queries_come_and_go_while_work_waits(
    a: Arrivals, b: Arrivals, shards: int, seed: int, over_tables: float
) -> None:
    """Work that some put off is done before operators are shared in another way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedWindowJoinOperator, "chunk_rows", 2)
        patch.setattr(fragment_turns, "PART_ROWS", 1)
        small = [replace(stream, elements=_small(stream)) for stream in (a, b)]
        history = History(
            {stream.name: stream for stream in small}, shards, Random(seed), over_tables, RandomBudgets(seed)
        )
        patch.setattr(graph_changes, "open_source", history.source)
        patch.setattr(catch_up, "shares_log", lambda stream: history.shares_logs)
        history.go()
        history.check()


def draw_tables(dice: Random) -> list[DrawnTable]:
    """t and u, which change; p has rows with periods, c is constant."""
    t, u, c = (logs.draw_table(dice, name, retroactive=name != "u") for name in "tuc")
    return [t, u, replace(c, table=replace(c.table, kind="constant")), logs.draw_temporal(dice, "p")]


def _small(stream: Arrivals) -> tuple[Element, ...]:
    """The rows with few keys, so that many match."""

    def few(key: Value) -> Value:
        return key % 3 if isinstance(key, int) else None

    return tuple(
        replace(element, values={**element.values, "k": few(element.values["k"])}) for element in stream.elements
    )


@pytest.mark.parametrize("first", range(0, examples(10) * 10, 10))
def test_uses_of_joins_that_come_and_go_are_those_alone(first: int) -> None:
    """Queries come to a join that runs, or a join of one query becomes shared with them, and others go."""
    shared = sum(draw_history(seed, only_joins=True)[0].shared for seed in range(first, first + 10))
    assert shared


def draw_history(seed: int, *, only_joins: bool = False, over_tables: float = 0.0) -> tuple[History, int]:
    """A history that was checked, and at how many instants."""
    dice = Random(seed)

    def stream(name: str, value: str) -> Arrivals:
        rows = [
            (dice.randint(0, 30), dice.randint(0, 5), (dice.choice((0, 1, 1, None)), dice.randint(-1, 3)))
            for _ in range(dice.randint(4, 16))
        ]
        return arrange(name, {"k": INT, value: INT}, rows, dice.choice((0, 0, 3)))

    streams = {"a": stream("a", "v"), "b": stream("b", "w")}
    budgets = dice.choice((BudgetPlanner(), RandomBudgets(seed)))
    shards = dice.randint(1, 2)
    history = History(streams, shards, dice, over_tables, budgets, only_joins=only_joins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_changes, "open_source", history.source)
        patch.setattr(catch_up, "shares_log", lambda stream: history.shares_logs)
        patch.setattr(SharedWindowJoinOperator, "chunk_rows", 2)
        patch.setattr(fragment_turns, "PART_ROWS", 1)
        try:
            history.go()
            return history, history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def main(histories: int, first: int) -> None:
    instants, queries, shared, over_tables, began = 0, 0, 0, 0, Counter[str]()
    for seed in range(first, first + histories):
        history, checked = draw_history(seed, only_joins=seed % 3 == 0, over_tables=(0.0, 0.0, 0.4, 0.9)[seed % 4])
        instants += checked
        queries += len(history.queries)
        shared += history.shared
        over_tables += sum(bool(query.readers) for query in history.queries.values())
        began.update("now" if query.since > BEFORE_ALL else "beginning" for query in history.queries.values())
    print(f"{histories:,} histories, {queries:,} queries, {instants:,} instants, 0 wrong")
    print(f"began: {dict(began)}; over tables: {over_tables:,}; became uses of joins that ran: {shared:,}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
