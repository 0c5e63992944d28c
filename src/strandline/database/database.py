"""Read this first: from text to a running query.

    text ─ parse ─ bind ─ optimize ─ choose ─ run
           lang    lang   optimizer  physical  spark (or engines/local.py)

`Database.sql` is the walk; `backends` say where a query runs, `checkpoint` where its memory lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from strandline.connectors.push import Feeds
from strandline.connectors.sinks import Memory, Sink, Standing, make_sink
from strandline.connectors.sources.base import confine_source, known_rows, open_source
from strandline.core.durable import encode_name
from strandline.core.errors import CatalogError, QueryError, SetupError, SinkError, StrandlineError, at_place
from strandline.core.faults import named_faults
from strandline.core.log import log_failure, log_query_end
from strandline.core.security.allow import Allow
from strandline.core.table import Listing
from strandline.core.temporal import instant
from strandline.database.introspection.diagnose import write_flow
from strandline.database.introspection.show import (
    describe,
    show_queries,
    show_shedding,
    show_sinks,
    show_streams,
    show_views,
)
from strandline.database.introspection.statistics_store import Learned
from strandline.database.introspection.system_tables import SystemTables, ask
from strandline.database.query import Group, Query, stop_all
from strandline.engines.backends import Backend, LocalBackend, Note, SparkBackend, Start, log_resumed
from strandline.logical.catalog import (
    SYSTEM,
    BaseStream,
    Catalog,
    DerivedStream,
    KnownRows,
    Reader,
    Stream,
    StreamStatistics,
)
from strandline.logical.explain import show_plan
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.logical.tree import size, streams_read
from strandline.planner.estimate import estimate, how_much_faster
from strandline.planner.explain_costs import show_assumed, show_costs, show_needs
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.lowering import KEPT_SHARE, choose
from strandline.planner.physical.plan import has_whole_elements
from strandline.planner.planner import Planner, show_choice
from strandline.planner.prices import constants, remembered
from strandline.planner.unbounded_state import growing_state
from strandline.runtime.checkpoint.examine import write_outputs
from strandline.runtime.checkpoint.identity import Checkpoint, indent
from strandline.runtime.checkpoint.replay import replayed_until
from strandline.runtime.checkpoint.verify import (
    OutputDirectories,
    VerifiedChain,
    make_ready,
    verify_chain,
    verify_delivered,
    verify_sources,
)
from strandline.runtime.commit import Delivery, write_to_sink
from strandline.runtime.result_buffer import KEEP, Kept
from strandline.shedding.controller import Allowed, Shedder
from strandline.shedding.load_model import QueryDrops, show_drops
from strandline.sql import ast
from strandline.sql.binder.binder import bind_derived_stream, bind_query, bind_reading, bind_view
from strandline.sql.binder.create_function import define, define_aggregate
from strandline.sql.binder.create_stream import bind_connector, bind_create_stream, declaration
from strandline.sql.binder.scope import suggestion
from strandline.sql.parser.statements import parse, parse_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EngineName = Literal["spark", "local"]
BATCH_ROWS = 1_000_000
LARGE = 400  # nodes of a plan and its expressions


# What EXPLAIN explains.
Explained: TypeAlias = ast.Query | ast.Allowing | ast.CreateStreamAs | ast.CreateView | ast.CreateSink


class Wanted(NamedTuple):
    """A query that is to be started; `reads` are the streams and views that its text names, `shedding` the share of
    their rows that may be dropped where not all can be read."""

    name: str
    plan: Plan
    sink: Sink
    reads: frozenset[str] = frozenset()
    shedding: float | None = None


class Database:
    """Streams and the queries over them."""

    def __init__(
        self,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        engine: EngineName = "spark",
        checkpoint: str | os.PathLike[str] | None = None,
        buckets: int | None = None,
        batch_rows: int = BATCH_ROWS,
        keep: int | None = KEEP,
        shedding: float | None = None,
        capacity: float | None = None,
        config: Mapping[str, str] | None = None,
        take_over: bool = False,
        allow: Allow | None = None,
    ) -> None:
        self.catalog = Catalog()
        self.catalog.allow = allow  # what statements may reach
        self.queries: list[Query] = []
        self.checkpoint = Path(checkpoint).absolute() if checkpoint is not None else None
        self.take_over = take_over  # whether queries go on from checkpoints that another run is writing
        self.batch_rows = batch_rows
        self.shedding = shedding  # the share of rows that queries may lose, if they do not say it themselves
        self.capacity = capacity  # the share of the machine that they may use; None for all of it
        self.memory = Memory(keep)  # where the answers go that nobody gives a sink
        self._feeds = Feeds(self.checkpoint / "events" if self.checkpoint is not None else None)
        self._learned = Learned(self.catalog, self.checkpoint)
        self._numbered = (f"q{number}" for number in count(1))
        self._backend: Backend = (
            SparkBackend(spark, master, config, buckets) if engine == "spark" else LocalBackend(buckets)
        )

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(self, text: str, *, sink: Sink | None = None, name: str | None = None) -> Any:
        """Run statements. The value is that of the last one: a `Query` for SELECT and CREATE SINK, a text for EXPLAIN,
        a `Listing` for SHOW, DESCRIBE and a SELECT from the tables of sys, else None."""
        result: Any = None
        for statement in parse(text):
            result = self.execute(statement, sink=sink, name=name)
        return result

    def execute(self, statement: ast.Statement, *, sink: Sink | None = None, name: str | None = None) -> Any:
        """Run one statement; its value is as for `sql`."""
        match statement:
            case ast.CreateStream() | ast.CreateStreamAs() | ast.CreateView() | ast.Drop():
                self.declare(statement)
                return None
            case ast.CreateSink():
                return self._start_sink(statement)
            case ast.DropSink():
                self.drop_sink(statement)
                return None
            case ast.Explain(inner, why):
                return self.explain(inner, why)
            case ast.ExplainAnalyze(wanted_name):
                return self.find(wanted_name).explain(analyze=True)
            case ast.Show() | ast.Describe():
                return self.tell(statement)
            case ast.Set():
                self.set(statement)
                return None
            case ast.Allowing(query, shedding):
                return self._start_query(query, name, sink, shedding.most)
            case _ if ast.reads_system(statement):
                return ask(statement, self.catalog, self.queries)
            case _:
                return self._start_query(statement, name, sink, self.shedding)

    def _start_query(self, query: ast.Query, name: str | None, sink: Sink | None, shedding: float | None) -> Query:
        plan, reads = bind_reading(query, self.catalog)
        own_name = name or next(n for n in self._numbered if self.is_free(n))
        wanted = Wanted(own_name, plan, sink or self.memory, reads, shedding)
        return self.start([wanted], self._place(wanted.name))[0]

    def set(self, statement: ast.Set) -> None:
        """Settings for the queries that start from now on."""
        if statement.what == "CAPACITY":
            self.capacity = statement.value
        else:
            self.shedding = statement.value

    def append(self, stream: str, rows: Any) -> int:
        """Give rows to a stream of `events()`: a table of Arrow, Polars or pandas, tuples or dicts; returns how many.

        They are on disk when this returns. Rows that do not fit the types of the stream are kept aside by the queries
        that read them, as malformed rows of every source are.
        """
        return self._feeds.append(self.catalog.get(stream), rows)

    def advance(self, stream: str, to: datetime | str | int) -> None:
        """Promise that no row of a stream of `events()` follows with a time before `to`; those that do are late."""
        self._feeds.advance(self.catalog.get(stream), instant(to))

    def end(self, stream: str) -> None:
        """Say that no row of a stream of `events()` follows."""
        self._feeds.end(self.catalog.get(stream))

    def register(
        self,
        name: str,
        frame: DataFrame,
        *,
        ordered_by: str | None = None,
        until: str | None = None,
        within: str | timedelta | None = None,
        idle_after: str | timedelta | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a DataFrame of Spark a stream, with its columns: `db.register("bids", frame, ordered_by="ts")`.

        The rest is what CREATE STREAM says: `within="5 SECONDS"` is how far rows come out of order from one micro-batch
        to the next (inside of one they are sorted), with `until` rows are valid from `ordered_by` until that column,
        and without `ordered_by` they have the time of their arrival. `trigger` goes to Spark's query over the
        DataFrame: with `{"availableNow": True}` the stream ends with what is there now. A DataFrame that is not
        streaming is a stream that ends.
        """
        from strandline.engines.spark.dataframe import FrameFeed, checked, columns_of

        columns = columns_of(name, checked(name, frame))
        statement = parse_one(declaration(name, ordered_by, until, within, idle_after))
        assert isinstance(statement, ast.CreateStream), "it was written here"
        stream = bind_create_stream(statement, KnownRows(columns, None))
        feed = FrameFeed(name, frame, columns, stream.time_column, trigger or {}, lambda: self.log_file)
        self.catalog.add(replace(stream, feed=feed), statement.name.span)

    def function(
        self,
        name: str | None = None,
        body: Callable[..., Any] | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
    ) -> Any:
        """Make a Python function part of the language: it takes an Arrow array per argument and returns one.

        `db.function("vat", lambda x: pc.multiply(x, 1.19), arguments=["DOUBLE"], returns="DOUBLE")`, or as a decorator
        without `body`; then the name may be left out, too. Returns the Python function.
        """
        if body is None:
            return lambda decorated: self.function(name, decorated, arguments=arguments, returns=returns)
        self.catalog.add_function(define(name or body.__name__, body, arguments, returns))
        return body

    def aggregate(
        self,
        name: str,
        *,
        arguments: Sequence[str],
        returns: str,
        initialize: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        evaluate: Callable[[Any], Any],
        inverse: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Make an aggregate part of the language, from functions over Arrow arrays and states.

        `initialize` makes an array of values into a state: an array or a tuple of arrays, with an entry per value.
        `merge` takes two states and combines them entry by entry; `evaluate` takes a state to an array of results.
        `inverse(a, b)` takes `b` out of `a`: with it a value costs something when it comes and when it goes, without it
        whenever its group changes.
        """
        self.catalog.add_function(define_aggregate(name, arguments, returns, initialize, merge, evaluate, inverse))

    def declare(self, statement: ast.Declaration, waiting: Sequence[Reader] = ()) -> list[Stream]:
        """Change the catalog, without taking anything away from queries that run or wait; returns what is gone."""
        match statement:
            case ast.CreateStream():
                confine_source(bind_connector(statement.source), self.catalog.allow, statement.source.span)
                known = (
                    None if statement.columns else known_rows(bind_connector(statement.source), statement.source.span)
                )
                stream = self._feeds.housed(bind_create_stream(statement, known))
                stream = replace(stream, source=replace(stream.source, allow=self.catalog.allow))
                with at_place(statement.source.span):
                    open_source(stream, span=statement.source.span).check(statement.source.span)
                self.catalog.add(stream, statement.name.span)
                self._learned.recall(stream)
            case ast.CreateStreamAs():
                self.catalog.add(bind_derived_stream(statement, self.catalog), statement.name.span)
            case ast.CreateView(name, _, _, replaces):
                view = bind_view(statement, self.catalog)
                if replaces:
                    self.catalog.replace_view(view, [*self._running(), *waiting], name.span)
                else:
                    self.catalog.add(view, name.span)
            case ast.Drop():
                return self._drop(statement, [*self._running(), *waiting])
        return []

    def _drop(self, statement: ast.Drop, running: Sequence[Reader]) -> list[Stream]:
        name, kind = statement.name, statement.kind.lower()
        if statement.if_exists and name.name not in self.catalog:
            return []
        stream = self.catalog.get(name.name, name.span)
        if stream.word != kind:
            raise CatalogError(
                f'"{stream.name}" is a {stream.word}, not a {kind}',
                code="other-kind",
                hint=f"Write DROP {stream.word.upper()} {stream.name}.",
                span=name.span,
            )
        return self.catalog.drop(name.name, name.span, cascade=statement.cascade, running=running)

    def bind_sink(self, statement: ast.CreateSink, waiting: Iterable[str] = ()) -> Wanted:
        """The query that CREATE SINK asks for; `waiting` are the names of queries that a script is going to start."""
        name, target = statement.name, statement.target
        sink = make_sink(bind_connector(target), target.function.span, target.span, self.catalog.allow)
        taken = {each.name.lower() for each in self.catalog} | {each.lower() for each in waiting}
        taken |= {query.name.lower() for query in self.queries if query.is_running}
        if name.name.lower() in taken:
            raise CatalogError(
                f'a stream, view or query "{name.name}" already exists',
                code="sink-exists",
                hint="Choose another name for the sink, or drop the other first.",
                span=name.span,
            )
        plan, reads = bind_reading(statement.query, self.catalog)
        return Wanted(name.name, plan, sink, reads, self.shed_by(statement.shedding))

    def shed_by(self, shedding: ast.Shedding | None) -> float | None:
        """Which share of the rows may be dropped: what the query says, or what holds for all."""
        return self.shedding if shedding is None else shedding.most

    def _start_sink(self, statement: ast.CreateSink) -> Query:
        wanted = self.bind_sink(statement)
        try:
            return self.start([wanted], self._place(wanted.name))[0]
        except SinkError as error:
            error.span = error.span or statement.target.span
            raise

    def drop_sink(self, statement: ast.DropSink) -> None:
        """Stop a sink. What it has written stays, and its checkpoint, too: the same CREATE SINK goes on."""
        name = statement.name
        found = [query for query in self.queries if name.matches(query.name) and query.has_sink]
        if not found and not statement.if_exists:
            raise unknown_sink(name, [query.name for query in self.queries if query.has_sink])
        for query in found:
            query.stop()
            self.queries.remove(query)

    def _running(self) -> list[Reader]:
        return [Reader(query.name, query.reads) for query in self.queries if query.is_running]

    def is_free(self, name: str) -> bool:
        """Whether nothing is called so: then a query whose user gave it no name may be."""
        return name not in self.catalog and name.lower() not in {query.name.lower() for query in self.queries}

    def explain(self, statement: Explained, why: bool = False) -> str:
        """The logical plan as written, as optimised, and the physical plan; or the plan and why it is not another."""
        name, plan, shedding = self._to_explain(statement)
        return self._explain_choice(plan, shedding) if why else self.explain_plan(name, plan, shedding)

    def _to_explain(self, statement: Explained) -> tuple[str, Plan, float | None]:
        """A query's name, its plan, and the share of rows that it may lose."""
        if isinstance(statement, ast.CreateView):
            return statement.name.name, bind_query(statement.query, self.catalog), None
        if isinstance(statement, ast.CreateStreamAs | ast.CreateSink):
            plan = bind_query(statement.query, self.catalog)
            return statement.name.name, plan, self.shed_by(statement.shedding)
        if isinstance(statement, ast.Allowing):
            return "query", bind_query(statement.query, self.catalog), statement.shedding.most
        return "query", bind_query(statement, self.catalog), self.shedding

    def _explain_choice(self, plan: Plan, shedding: float | None) -> str:
        planner = self._planner(self.catalog.statistics(), self._backend.likely_buckets(), shedding)
        return show_choice(planner.choice(plan))

    def _planner(self, known: Mapping[str, StreamStatistics], buckets: int, shedding: float | None) -> Planner:
        return Planner(self._base_streams(), known, buckets, self._limit(shedding, buckets))

    def find(self, name: ast.Identifier) -> Query:
        """The query of a name; of several the newest."""
        for query in reversed(self.queries):
            if name.matches(query.name):
                return query
        known = [query.name for query in self.queries]
        raise QueryError(
            f'unknown query "{name.name}"',
            code="unknown-query",
            hint=suggestion(name.name, known, "Queries are") if known else "No query was started.",
            span=name.span,
        )

    def tell(
        self,
        statement: ast.Show | ast.Describe,
        waiting: Sequence[Reader] = (),
        sinks: Mapping[str, Sink] | None = None,
    ) -> Listing:
        """What SHOW and DESCRIBE show; `waiting` are the queries of a script that have not started, `sinks` theirs."""
        match statement:
            case ast.Describe(name) if name.name.lower().startswith(SYSTEM):
                return describe(SystemTables(self.catalog).get(name.name, name.span))
            case ast.Describe(name):
                return describe(self.catalog.get(name.name, name.span))
            case ast.Show("STREAMS"):
                return show_streams(self.catalog)
            case ast.Show("VIEWS"):
                return show_views(self.catalog)
            case ast.Show("SINKS"):
                return show_sinks(self.queries, sinks or {})
            case ast.Show("SHEDDING"):
                return show_shedding(self.queries)
        return show_queries(self.queries, waiting)

    def explain_plan(self, name: str, plan: Plan, shedding: float | None = None) -> str:
        """The same for a plan, of whose rows a share may be dropped."""
        buckets = self._backend.likely_buckets()
        known, cores = self.catalog.statistics(), self._backend.cores()
        better = self._planner(known, buckets, shedding).plan(plan)
        shed = frozenset({name} if shedding is not None else ())
        pipeline = choose([(name, better)], self._base_streams(), buckets, shed)
        parts = ["logical plan", indent(show_plan(plan))]
        if better != plan:
            parts += ["optimised plan", indent(show_plan(better))]
        parts.append("physical plan")
        if size(better) > LARGE:  # who waits for a plan of thousands of nodes does not wait for its figures, too
            parts.append(indent(show_pipeline(pipeline)))
        else:
            expected, faster = estimate(pipeline, known), how_much_faster(pipeline, known, cores)
            parts += [indent(show_costs(pipeline, expected)), indent(show_needs(expected, cores, faster))]
            if (limit := self._limit(shedding, buckets)) is not None and shedding is not None:
                part = limit / expected.cost if expected.cost > 0 else 1.0
                parts.append(indent(show_drops(QueryDrops(better, known), part, 1.0 - shedding)))
            parts += map(indent, show_assumed(pipeline, known))
        if growing := growing_state(better):
            parts += ["unbounded state", *map(indent, growing)]
        return "\n".join(parts)

    def query(self, name: str, *, sink: Sink | None = None) -> Query:
        """Start the query behind a derived stream."""
        stream = self.catalog.get(name)
        if not isinstance(stream, DerivedStream) or stream.is_view:
            raise CatalogError(
                f'{stream.word} "{stream.name}" is not a query',
                code="not-a-query",
                hint=f"Use SELECT * FROM {stream.name}.",
            )
        shedding = self.shedding if stream.shedding is None else stream.shedding
        wanted = Wanted(stream.name, stream.plan, sink or self.memory, stream.reads | {stream.name}, shedding)
        return self.start([wanted], self._place(stream.name))[0]

    def start(
        self, wanted: Sequence[Wanted | tuple[str, Plan, Sink]], place: Path | None, aside: Path | None = None
    ) -> list[Query]:
        """Start queries together in one pipeline, with its checkpoint at `place` (None: a temporary one).

        Late and malformed rows are kept as files in `aside`, or beside the first answer that is a directory.
        """
        queries = [Wanted(*each) for each in wanted]
        self._refuse_taken_names([query.name for query in queries])
        checkpoint = Checkpoint(place, take_over=self.take_over) if place is not None else Checkpoint.temporary()
        try:
            with named_faults():
                return self._start_on(queries, checkpoint, aside)
        except BaseException as error:
            if isinstance(error, Exception):
                log_failure("query not started", "+".join(query.name for query in queries), error)
            checkpoint.close()
            raise

    def _start_on(self, queries: Sequence[Wanted], checkpoint: Checkpoint, aside: Path | None) -> list[Query]:
        buckets = checkpoint.buckets() or self._backend.default_buckets()
        known = self._statistics(checkpoint)
        with remembered(checkpoint.costs()):  # a restart must find the plan of its checkpoint
            limits = checkpoint.limits() or {q.name: self._limit(q.shedding, buckets) for q in queries}
            plans = [
                (q.name, Planner(self._base_streams(), known, buckets, limits.get(q.name)).plan(q.plan))
                for q in queries
            ]
            checkpoint.note(costs=constants().to_json(), limits=limits)
        shed = {query.name: query.shedding for query in queries if query.shedding is not None}
        self._refuse_taken_column(queries)
        pipeline = choose(plans, self._base_streams(), buckets, frozenset(shed))
        columns = {query.name: query.columns for query in pipeline.queries}
        text = show_pipeline(pipeline)
        sinks = {query.name: identity for query in queries if (identity := query.sink.identity) is not None}
        sources = {stream.name: open_source(stream).identity() for stream in pipeline.streams}
        checkpoint.recognise(pipeline, text, sources, sinks, known)
        verified = verify_chain(checkpoint.path, checkpoint.lease)
        verify_sources(pipeline, checkpoint.path, verified.last_offset)
        aside = aside or next((near for query in queries if (near := query.sink.beside) is not None), None)
        outlets = {q.name: q.sink.open(q.name, columns[q.name]) for q in queries}
        directories = {name: outlet.directory for name, outlet in outlets.items() if outlet.directory is not None}
        delivery = Delivery(pipeline, verified.chain, aside, (), directories)
        group = Group(delivery, checkpoint.path, text, outlets)
        group.answers = {
            q.name: Kept(columns[q.name], q.sink.keep, in_pieces=not has_whole_elements(pipeline, q.name))
            for q in queries
            if isinstance(q.sink, Memory)
        }
        group.expected = lambda: estimate(pipeline, known).steps
        if shed:
            group.shedder = self._shedder(plans, known, shed, delivery)
        group.on_stop.append(checkpoint.close)
        delivery.listeners += [group.take, self._learned.listener(delivery)]
        group.on_stop.append(self._learned.save)
        try:
            self._begin(queries, group, checkpoint, verified)
            if not (delivery.ended and verified.is_committed):
                targets = {n: outlet.target for n, outlet in group.outlets.items() if outlet.target is not None}
                group.run = self._backend.run(
                    Start(pipeline, verified, targets, self.batch_rows, delivery, group.shedder, group.interrupt)
                )
            else:
                log_resumed(delivery.name, verified, delivery)
                log_query_end(delivery.name, None, ended=True, last_batch=delivery.last_batch)
        except BaseException:
            group.stop()
            raise
        started = [Query(query.name, columns[query.name], query.sink, group, query.reads) for query in queries]
        self.queries += started
        return started

    def _begin(self, queries: Sequence[Wanted], group: Group, checkpoint: Checkpoint, verified: VerifiedChain) -> None:
        """Refuse sinks that do not go with the checkpoint while nothing is changed; then make both their own."""
        delivery = group.delivery
        standings = {
            query.name: Standing(
                checkpoint.owner,
                checkpoint.fresh,
                delivery.last_batch,
                delivery.answered.get(query.name, -1),
                checkpoint.lease.epoch,
                replayed_until(checkpoint.path),
            )
            for query in queries
        }
        for name, outlet in group.outlets.items():
            outlet.fit(standings[name])
        consumed = frozenset(name for name, outlet in group.outlets.items() if outlet.consumed)
        outputs = OutputDirectories(delivery.directories, delivery.side_outputs, consumed)
        verify_delivered(verified.chain, outputs)
        # From here on something is changed.
        checkpoint.claim()
        make_ready(verified)
        write_outputs(checkpoint.path, outputs, {q.name: q.sink.kind for q in queries if q.sink.identity is not None})
        write_flow(checkpoint.path, delivery.pipeline)
        for query in queries:
            outlet = group.outlets[query.name]
            outlet.begin(standings[query.name])
            columns = next(each.columns for each in delivery.pipeline.queries if each.name == query.name)
            delivery.listeners.append(write_to_sink(outlet, query.name, columns, delivery))

    def _limit(self, shedding: float | None, buckets: int) -> float | None:
        """The seconds of work per second that a plan must stay within, by dropping rows; None if it may not."""
        return None if shedding is None else buckets * (1.0 if self.capacity is None else self.capacity)

    def _shedder(
        self,
        plans: Sequence[tuple[str, Plan]],
        known: Mapping[str, StreamStatistics],
        shed: Mapping[str, float],
        delivery: Delivery,
    ) -> Shedder:
        """Who decides what the queries do without while they cannot keep up."""
        queries = {name: Allowed(QueryDrops(plan, known), 1.0 - shed.get(name, 0.0)) for name, plan in plans}

        def rows() -> dict[str, int]:
            return {stream: beat.rows + beat.late for stream, beat in delivery.heartbeats.items()}

        fresh, fixed = delivery.last_batch < 0, self._backend.batch_seconds
        return Shedder(queries, rows, self.capacity, fresh, fixed, self.batch_rows)

    def _refuse_taken_column(self, queries: Sequence[Wanted]) -> None:
        for query in queries:
            if query.shedding is not None and any(c.name == KEPT_SHARE.name for c in schema(query.plan)):
                raise QueryError(
                    f'duplicate column {KEPT_SHARE.name} in "{query.name}": shedding adds it',
                    code="duplicate-column",
                    hint="Rename the column of the query with AS.",
                )

    def _refuse_taken_names(self, names: list[str]) -> None:
        """A name is one running query: its checkpoint, its directory, and what SHOW QUERIES lists."""
        running = {query.name.lower() for query in self.queries if query.is_running}
        for number, name in enumerate(names):
            if name.lower() in running or name.lower() in (other.lower() for other in names[:number]):
                raise QueryError(
                    f'query "{name}" is already running',
                    code="query-exists",
                    hint="Stop it first, or give this one another name: sql(…, name=…).",
                )

    def _statistics(self, checkpoint: Checkpoint) -> dict[str, StreamStatistics]:
        """What a query is planned with: what is known by now or, if it goes on from a checkpoint, was known then."""
        return self.catalog.statistics() if (known := checkpoint.statistics()) is None else known

    def _base_streams(self) -> list[BaseStream]:
        return [stream for stream in self.catalog if isinstance(stream, BaseStream)]

    def _place(self, name: str) -> Path | None:
        return self.checkpoint / encode_name(name) if self.checkpoint is not None else None

    @property
    def spark(self) -> SparkSession:
        """The Spark session that queries run on."""
        if not isinstance(self._backend, SparkBackend):
            raise SetupError(
                "this database runs on the local engine", code="no-spark", hint='Use connect(engine="spark").'
            )
        return self._backend.session()[0]

    def warm(self, note: Note | None = None) -> None:
        """Start Spark now instead of with the first query; `note` is told what is being waited for."""
        self._backend.warm(note or (lambda phase: None))

    @property
    def engine_lost(self) -> StrandlineError | None:
        """Why Spark is gone, if it is: killed, say, or out of memory. The next query starts it again."""
        return self._backend.lost()

    @property
    def log_file(self) -> Path | None:
        """Where Spark's own log goes, if we started it."""
        return self._backend.log_file()

    def close(self) -> None:
        """Stop all queries, and Spark if it was started here."""
        stop_all(self.queries)
        self.queries = []
        self._feeds.close()
        self._backend.close()


def unknown_sink(name: ast.Identifier, known: Sequence[str]) -> CatalogError:
    return CatalogError(
        f'sink "{name.name}" does not exist',
        code="unknown-sink",
        hint=suggestion(name.name, known, "Sinks are") if known else "There is none.",
        span=name.span,
    )


def connected_groups(plans: Sequence[tuple[str, Plan]]) -> list[list[tuple[str, Plan]]]:
    """Queries that share a stream, directly or through others, belong into one pipeline: they read it once."""
    groups: list[tuple[set[str], list[tuple[str, Plan]]]] = []
    for name, plan in plans:
        streams = set(streams_read(plan))
        touching = [group for group in groups if group[0] & streams]
        merged = (streams.union(*(g[0] for g in touching)), [q for g in touching for q in g[1]] + [(name, plan)])
        groups = [group for group in groups if group not in touching] + [merged]
    return [queries for _, queries in groups]
