"""Read this first: from text to a running query.

    Database.sql ─ parse ─ Statements.execute ─ bind ─ Database.start ─ planner.plan ─ RunningPipeline.open ─ Engine.run
                                                                  ╰─ batch after batch: RunningPipeline.commit

`statements.py` says what each statement does, `planner/planner.py` how a query is planned, `engines/` where it runs,
and `runtime/pipeline.py` what a batch changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.connectors.push import PushStreams
from strandline.connectors.sinks import Memory, Sink
from strandline.connectors.sinks.stored_view import StoredView
from strandline.connectors.sources.base import is_live
from strandline.connectors.tables.groups import CommittedChange
from strandline.core.arguments import checked, parse_instant, refuse_text, require_range
from strandline.core.durable import encode_name, query_directory
from strandline.core.errors import ArgumentError, QueryError, SetupError, StrandlineError, at_place
from strandline.core.faults import named_faults
from strandline.core.log import log_failure, log_query_end
from strandline.core.notices import Notice
from strandline.core.security.allow import Allow
from strandline.database.file_tables import FileTables
from strandline.database.inferred_schemas import InferredSchemas
from strandline.database.introspection.explain import explain_beside, explain_choice, explain_query
from strandline.database.prepared_changes import PreparedChanges
from strandline.database.query import Query, stop_all
from strandline.database.replacement import Replacement
from strandline.database.statements import BoundQuery, StatementResult, Statements, stored_text
from strandline.database.stored_relations import StoredRelations
from strandline.database.tables import Moment, TableHandle, Tables, compose_delete, compose_update, quoted_values
from strandline.engines.base import Engine, Note
from strandline.engines.local import LocalEngine
from strandline.engines.spark.engine import SparkEngine
from strandline.logical.catalog import BaseStream, Catalog, DerivedStream, SourceSchema, Stream
from strandline.logical.schema import schema
from strandline.logical.tree import streams_read, tables_read
from strandline.planner import planner
from strandline.planner.physical.lowering import KEPT_SHARE
from strandline.planner.planner import PlannedPipeline, PlanningInputs
from strandline.planner.prices import load_prices
from strandline.runtime.checkpoint.identity import Checkpoint, declarations_of, identify_query, stored_graphs
from strandline.runtime.checkpoint.verify import must_repeat
from strandline.runtime.checkpoint.versions import GraphQuery, Start
from strandline.runtime.graph_changes import Addition, add_query, finish_batches, preview, replace_queries
from strandline.runtime.pipeline import BATCH_ROWS, RunningPipeline, log_resumed
from strandline.runtime.result_buffer import DEFAULT_LIMIT
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from strandline.runtime.scheduling.policies import PolicyName
from strandline.runtime.scheduling.strategies import StrategyName
from strandline.runtime.statistics_store import StatisticsStore
from strandline.shedding.controller import make_shedding_controller
from strandline.sql import ast
from strandline.sql.binder.create_function import define, define_aggregate
from strandline.sql.binder.create_stream import bind_create_stream, declaration
from strandline.sql.binder.create_table import bind_create_table, table_declaration
from strandline.sql.parser.statements import parse, parse_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EngineName = Literal["spark", "local"]
JOIN_SECONDS = 10.0  # for the end of a batch, until a query that may have a pipeline of its own gets one
LONGEST_BATCH: Final = 86_400  # seconds


class Database:
    """Streams and the queries over them."""

    @checked("connect")
    def __init__(
        self,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        engine: EngineName = "spark",
        checkpoint: str | os.PathLike[str] | None = None,
        shards: int | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_seconds: float | None = None,
        policy: PolicyName = "Greedy",
        strategy: StrategyName | None = None,
        keep: int | None = DEFAULT_LIMIT,
        shedding: float | None = None,
        capacity: float | None = None,
        config: Mapping[str, str] | None = None,
        take_over: bool = False,
        allow: Allow | None = None,
        tables: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_ranges(shards, batch_rows, batch_seconds, keep, shedding, capacity)
        _check_strategy(strategy, batch_seconds)
        _check_engine(engine, spark, master, config)
        self._is_closed = False
        self.catalog = Catalog()
        self.catalog.allow = allow  # what statements may reach
        self.queries: list[Query] = []
        self.checkpoint = Path(checkpoint).absolute() if checkpoint is not None else None
        self.take_over = take_over  # whether queries go on from checkpoints that another run is writing
        self.batch_rows = batch_rows
        self.batch_seconds = batch_seconds  # how long a batch takes: what joins cannot do meanwhile waits
        self.policy = policy  # the order of what waits
        self.strategy = strategy  # the order in which fragments take their input; None lets none of it wait
        self.pipeline = ""  # where queries go, by SET PIPELINE
        self.shedding = shedding  # the share of rows that queries may lose, if they do not say it themselves
        self.capacity = capacity  # the share of the machine that they may use; None for all of it
        self.memory = Memory(keep)  # the sink of queries without one
        self.push = PushStreams(self.checkpoint / "events" if self.checkpoint is not None else None)
        if tables is None and self.checkpoint is not None:
            tables = self.checkpoint / "tables"
        self.schemas = InferredSchemas(self.checkpoint or (None if tables is None else Path(tables).absolute().parent))
        self.tables = Tables(self.catalog, None if tables is None else Path(tables).absolute())
        self.files = FileTables(self.catalog, self.tables)
        self.stored = StoredRelations(self.catalog, self.tables, self.queries)
        self.statistics_store = StatisticsStore(self.catalog, self.checkpoint)
        self._statements = Statements(self)
        self._prepared = PreparedChanges(self.catalog)
        self._engine: Engine = SparkEngine(spark, master, config, shards) if engine == "spark" else LocalEngine(shards)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- statements and queries --------------------------------------------------------------------------------------

    @checked()
    def sql(self, text: str, *, sink: Sink | None = None, name: str | None = None) -> Any:
        """Run statements. The value is that of the last one: a `Query` for SELECT and CREATE SINK, a text for EXPLAIN,
        a `TextTable` for SHOW, DESCRIBE and a SELECT over tables only, a `CommittedChange` for a statement that changes
        a table, else None. It depends on the text, so it has no static type here; that of `execute` is
        `StatementResult`."""
        self._require_open()
        if (prepared := self._prepared.find(text)) is not None:
            table, change, span = prepared
            with at_place(span):
                return self.tables.store(table).commit(change)
        result: StatementResult = None
        statements = parse(text)
        for statement in statements:
            result = self.execute(statement, sink=sink, name=name)
        if len(statements) == 1 and isinstance(statements[0], ast.Insert | ast.Update | ast.Delete):
            self._prepared.learn(text, statements[0], self.stored.read)
        return result

    def execute(
        self, statement: ast.Statement, *, sink: Sink | None = None, name: str | None = None
    ) -> StatementResult:
        """Run one statement; its value is as for `sql`."""
        self._require_open()
        refuse_text("execute", statement, "db.sql(text), which runs statements")
        return self._statements.execute(statement, sink=sink, name=name)

    def is_stored(self, query: ast.Query) -> bool:
        """Whether a query reads tables, materialized views and system tables only, and is executed at once."""
        return self._statements.is_stored(query)

    @checked()
    def query(self, name: str, *, sink: Sink | None = None) -> Query:
        """Start the query behind a derived stream."""
        self._require_open()
        if name not in self.catalog and len(name.split()) > 1:
            hint = "Write db.sql(text), which runs statements."
            raise ArgumentError("query() takes the name of a stream, no statement", code="bad-argument", hint=hint)
        return self.run(replace(self._statements.bind_stream(name), sink=sink))

    @checked()
    def notices(self) -> list[Notice]:
        """What there is to know of the statements and queries so far, each with a remedy; all were shown once."""
        current = {notice.key: notice for query in self.queries for notice in query.notices()}
        return list(({notice.key: notice for notice in self.catalog.notices.all()} | current).values())

    @checked()
    def recover(self, sinks: Mapping[str, Sink] | None = None) -> list[Query]:
        """Start the queries again that the checkpoints have and that do not run: by name, with their own texts, each
        pipeline with all of its queries. Streams, functions and tables must be declared; `sinks` are those of queries
        that were not started by CREATE SINK, by query."""
        self._require_open()
        running = {query.name.lower() for query in self.queries if query.is_running}
        started: list[Query] = []
        for graph in () if self.checkpoint is None else stored_graphs(self.checkpoint):
            for failed in graph.failed:
                name, text = failed.query.name, f"{failed.query.name} had failed, and is not started: {failed.message}"
                remedy = "its statement starts it again"
                self.catalog.notices.add(Notice("failed-earlier", text, remedy, subject=name))
            if graph.has_begun and graph.queries and not running & {query.name.lower() for query in graph.queries}:
                bound = [
                    self._statements.bind_stored(query, (sinks or {}).get(query.name), graph.pipeline)
                    for query in graph.queries
                ]
                started += self.start(bound, graph.checkpoint)
        return started

    def start(
        self,
        queries: Sequence[BoundQuery],
        checkpoint: Path | None,
        side_outputs: Path | None = None,
        replacement: Replacement | None = None,
    ) -> list[Query]:
        """Start queries together in one pipeline, with its checkpoint in a directory (None: a temporary one).

        Late and rejected rows are kept as files in `side_outputs`, or beside the first result that is a directory. With
        a `replacement` the graph of the checkpoint is changed before: `queries` are those of it that go on.
        """
        assert len({query.pipeline for query in queries}) <= 1, "queries of one pipeline start together"
        names = [query.name for query in queries]
        if replacement is not None and checkpoint is not None:
            names += [added.query.name for added in replacement.added]
            if must_repeat(checkpoint):
                self._finish_batches(queries, checkpoint, side_outputs, replacement)
        self._refuse_taken_names(names)
        claimed = Checkpoint(checkpoint, take_over=self.take_over) if checkpoint is not None else Checkpoint.temporary()
        try:
            with named_faults():
                return self._start(queries, claimed, side_outputs, replacement)
        except BaseException as error:
            if isinstance(error, Exception):
                log_failure("query not started", "+".join(names), error)
            claimed.close()
            raise

    def _start(
        self,
        queries: Sequence[BoundQuery],
        checkpoint: Checkpoint,
        side_outputs: Path | None,
        replacement: Replacement | None,
    ) -> list[Query]:
        """Plan, open, run."""
        _refuse_taken_column(queries)
        sinks = {query.name: query.sink or self.memory for query in queries}
        max_dropped = {query.name: query.shedding for query in queries}
        replaced = () if replacement is None else tuple(replacement.dropped)
        planned, pipeline = self._open(queries, sinks, checkpoint, side_outputs, replaced)
        try:
            if replacement is not None:
                queries = [*queries, *self._replace_queries(pipeline, replacement)]
                sinks |= {query.name: query.sink or self.memory for query in queries}
            planned = replace(planned, physical=pipeline.physical)
            if not checkpoint.is_temporary:
                self.schemas.pin(stream.name for stream in planned.physical.streams)
            if planned.inputs.shedding:
                fresh, fixed = pipeline.last_batch < 0, self._engine.batch_seconds
                pipeline.shedding_controller = make_shedding_controller(
                    planned, max_dropped, self.capacity, fresh, fixed, self.batch_rows
                )
            if not queries:
                pipeline.stop()
            elif pipeline.is_finished:
                log_resumed(pipeline)
                log_query_end(pipeline.name, None, ended=True, last_batch=pipeline.last_batch)
            else:
                pipeline.driver = self._engine.run(pipeline)
        except BaseException:
            pipeline.stop()
            raise
        return [self._keep(query, sinks[query.name], pipeline) for query in queries]

    def _open(
        self,
        queries: Sequence[BoundQuery],
        sinks: Mapping[str, Sink],
        checkpoint: Checkpoint,
        side_outputs: Path | None,
        replaced: Collection[str],
    ) -> tuple[PlannedPipeline, RunningPipeline]:
        """Plan queries, and open what they write to."""
        max_dropped = {query.name: query.shedding for query in queries}
        inputs = self._planning_inputs(max_dropped, checkpoint.shards() or self._engine.default_shards())
        inputs = replace(inputs, appends=frozenset(name for name, sink in sinks.items() if not sink.takes_changes))
        plans = {query.name: query.plan for query in queries}
        described = None if checkpoint.is_temporary else planner.plan(plans, inputs.by_rules())
        # A restart goes on with the graph that it finds.
        planned = planner.plan(plans, inputs) if described is None or not checkpoint.has_graph else described
        pipeline = RunningPipeline.open(
            planned,
            sinks,
            checkpoint,
            self.statistics_store,
            side_outputs,
            self.batch_rows,
            described=None if described is None else described.physical,
            queries=[_identify(query, sinks[query.name], None if described is None else inputs) for query in queries],
            allow=self.catalog.allow,
            functions=self.catalog.functions,
            replaced=replaced,
            group=next((query.pipeline for query in queries), None),
        )
        pipeline.inputs = inputs
        known = inputs.statistics, inputs.prices
        pipeline.budgets = BudgetPlanner(self.batch_seconds, self.policy, self.strategy, *known)
        return replace(planned, inputs=inputs), pipeline

    def _finish_batches(
        self, queries: Sequence[BoundQuery], checkpoint: Path, side_outputs: Path | None, replacement: Replacement
    ) -> None:
        """Run once more what was interrupted, with all queries that the graph has: what it reads decides from when on
        queries that are added have rows."""
        sinks = {**{query.name: query.sink or self.memory for query in queries}, **replacement.former_sinks()}
        claimed = Checkpoint(checkpoint, take_over=self.take_over)
        try:
            _, pipeline = self._open(queries, sinks, claimed, side_outputs, tuple(replacement.dropped))
            try:
                pipeline.driver = self._engine.run(pipeline)
                finish_batches(pipeline)
            finally:
                pipeline.stop()
        except BaseException:
            claimed.close()
            raise

    def _replace_queries(self, pipeline: RunningPipeline, replacement: Replacement) -> list[BoundQuery]:
        """Change the graph of a pipeline that does not run yet; returns the queries that it has got."""
        self._engine.check_restart(pipeline)
        additions = [self._addition(a.query, pipeline, a.start, a.replaces) for a in replacement.added]
        replace_queries(pipeline, tuple(replacement.dropped), additions)
        return [added.query for added in replacement.added]

    def _addition(self, query: BoundQuery, pipeline: RunningPipeline, start: Start, replaces: bool = False) -> Addition:
        """A query as it is added to a graph."""
        sink = query.sink or self.memory
        inputs = self._planning_inputs({query.name: None}, pipeline.physical.shards)
        inputs = replace(inputs, appends=frozenset() if sink.takes_changes else frozenset((query.name,)))
        plans = planner.plan_to_share(query.name, query.plan, inputs)
        described = replace(_identify(query, sink, inputs), start=start, replaces=replaces)
        return Addition(described, plans[0].physical, inputs.sharing_scope(query.name), sink, plans)

    def describe(self, query: BoundQuery) -> GraphQuery:
        """A query as the graph of a checkpoint has it."""
        sink = query.sink or self.memory
        inputs = self._planning_inputs({query.name: query.shedding}, 1)
        inputs = replace(inputs, appends=frozenset() if sink.takes_changes else frozenset((query.name,)))
        return _identify(query, sink, inputs)

    def former_sink(self, stored: GraphQuery, default: Sink | None) -> Sink | None:
        """Where a query of a checkpoint has written, by its statement or by default; None if it cannot be made here."""
        try:
            sink = self._statements.sink_of(stored.text) or default
        except StrandlineError:
            return None
        return sink if sink is not None and sink.identity == stored.sink else None

    def run(self, query: BoundQuery) -> Query:
        """Start a query: in the pipeline that reads a stream of it, if there is one that takes it, else in one of its
        own."""
        if (found := self.running_pipeline(query)) is not None:
            try:
                return self.join(query, *found)
            except QueryError as error:
                if error.code not in ("pipeline-ended", "pipeline-busy") or query.start is not None:
                    raise
        return self.start([query], self.checkpoint_of(query.name, query.pipeline))[0]

    def running_pipeline(self, query: BoundQuery) -> tuple[RunningPipeline, Start] | None:
        """The pipeline that a query is added to, which reads a stream of it, and where it begins; None if it gets one
        of its own.

        A query begins now if it says so, or if one of its streams cannot be read again; else from the beginning. One
        that does not say so is not added to a checkpoint that stays: the same statements find what they have started.
        Rows that have the time of their arrival have another one when they are read again.
        """
        read = {name for name in streams_read(query.plan) - tables_read(query.plan) if name in self.catalog}
        streams = {name: stream for name in read if isinstance(stream := self.catalog.get(name), BaseStream)}
        live = {name for name, stream in streams.items() if is_live(stream)}
        if query.shedding is not None:
            return None
        start: Start = "now" if query.start == "now" or live else "beginning"
        if start == "beginning" and any(stream.time_column is None for stream in streams.values()):
            return None
        wanted = live if live and query.start is None else streams.keys()
        pipelines = {id(other._pipeline): other._pipeline for other in self.queries if other.is_running}
        shared = {
            key: wanted & {stream.name for stream in pipeline.physical.streams}
            for key, pipeline in pipelines.items()
            if pipeline.group == query.pipeline
            and not pipeline.is_over
            and pipeline.shedding_controller is None
            and (live or query.start is not None or pipeline.is_temporary)
        }
        best = max(shared, key=lambda key: len(shared[key]), default=None)
        return (pipelines[best], start) if best is not None and shared[best] else None

    def join(self, query: BoundQuery, pipeline: RunningPipeline, start: Start) -> Query:
        """Add a query to a pipeline that runs."""
        self._refuse_taken_names([query.name])
        sink = query.sink or self.memory
        try:
            with named_faults():
                addition = self._addition(query, pipeline, start)
                patience = JOIN_SECONDS if start == "beginning" and query.start is None else None
                add_query(pipeline, addition, patience)
                if not pipeline.is_temporary:
                    self.schemas.pin(stream.name for stream in addition.part.streams)
        except Exception as error:
            if getattr(error, "code", None) not in ("pipeline-ended", "pipeline-busy"):  # it may get one of its own
                log_failure("query not started", query.name, error)
            raise
        return self._keep(query, sink, pipeline)

    def _keep(self, query: BoundQuery, sink: Sink, pipeline: RunningPipeline) -> Query:
        """The handle of a query that runs."""
        started = Query(query.name, sink, pipeline, query.reads, query.notices, self.catalog.notices)
        self.queries.append(started)
        pipeline.subscriptions.add((), started.show_notices, every=1.0)
        started.show_notices()  # what came before the subscription
        return started

    def _planning_inputs(self, max_dropped: Mapping[str, float | None], shards: int) -> PlanningInputs:
        """What plans are made with now, for queries that may lose these shares of their rows."""
        capacity = shards * (1.0 if self.capacity is None else self.capacity)
        tables = list(self.tables.inputs())
        return PlanningInputs(
            [*(stream for stream in self.catalog if isinstance(stream, BaseStream)), *tables],
            {**self.catalog.statistics(), **{table.name: table.statistics for table in tables}},
            load_prices(),
            shards,
            {name: None if share is None else capacity for name, share in max_dropped.items()},
            frozenset(name for name, share in max_dropped.items() if share is not None),
            changes=frozenset(max_dropped),
        )

    def explain(self, query: BoundQuery, *, why: bool = False) -> str:
        """The logical plan as written, as optimised, and the physical plan; or the plan and why it is not another."""
        refuse_text("explain", query, "db.sql('EXPLAIN SELECT …')")
        inputs = self._planning_inputs({query.name: query.shedding}, self._engine.likely_shards())
        planned = planner.plan_query(query.name, query.plan, inputs, compare=why)
        if why:
            return explain_choice(planned)
        shown = explain_query(planned, self._engine.cores(), query.shedding)
        runs = any(other.is_running for other in self.queries)
        if not runs or (found := self.running_pipeline(query)) is None:
            return shown
        (pipeline, start), running = found, found[0].physical
        if query.name in {other.name for other in running.queries}:
            return shown
        extended = preview(pipeline, self._addition(query, pipeline, start))
        return f"{shown}\n{explain_beside(extended, query.name, running)}"

    def is_free(self, name: str) -> bool:
        """Whether nothing is called so: then a query whose user gave it no name may be."""
        return name not in self.catalog and name.lower() not in {query.name.lower() for query in self.queries}

    def free_names(self) -> Iterator[str]:
        """Names for queries whose user gave them none: q1, q2, …, without those that are taken by then."""
        return (name for number in count(1) if self.is_free(name := f"q{number}"))

    def checkpoint_of(self, name: str, pipeline: str = "") -> Path | None:
        """The directory for the checkpoint of a query in a pipeline; None for a temporary one."""
        return query_directory(self.checkpoint, name, pipeline) if self.checkpoint is not None else None

    def make_view_sink(self, view: DerivedStream) -> Memory:
        """Where a materialized view is kept: in memory, and with a checkpoint also beside it."""
        keep = self.memory.keep if view.keep_us is None else None
        if self.checkpoint is None:
            return Memory(keep, view.keep_us)
        return StoredView(keep, view.keep_us, self._view_directory(view.name))

    def drop_view(self, name: str) -> None:
        """Stop the query of a materialized view, and remove what is kept of it."""
        dropped = [query for query in self.queries if query.name == name]
        for query in dropped:
            query.stop()
            self.queries.remove(query)
        if self.checkpoint is not None:
            shutil.rmtree(self._view_directory(name), ignore_errors=True)
            for pipeline in {"", *(query.runs_in.group for query in dropped)}:
                shutil.rmtree(query_directory(self.checkpoint, name, pipeline), ignore_errors=True)

    def _view_directory(self, name: str) -> Path:
        assert self.checkpoint is not None, "without one, a view is in memory only"
        return self.checkpoint / "views" / encode_name(name)

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

    # ---- rows and functions of the program ---------------------------------------------------------------------------

    @checked()
    def append(self, stream: str, rows: Any) -> int:
        """Give rows to a stream of `events()`: a table of Arrow, Polars or pandas, tuples or dicts; returns how many.

        They are on disk when this returns. Rows that do not fit the types of the stream are kept aside by the queries
        that read them, as rejected rows of every source are.
        """
        return self.push.append(self._stream(stream), rows)

    @checked()
    def advance(self, stream: str, to: datetime | str | int) -> None:
        """Promise that no row of a stream of `events()` follows with a time before `to`; those that do are late."""
        self.push.advance(self._stream(stream), parse_instant("advance", "to", to))

    @checked()
    def end(self, stream: str) -> None:
        """Say that no row of a stream of `events()` follows."""
        self.push.end(self._stream(stream))

    def _stream(self, name: str) -> Stream:
        self._require_open()
        return self.catalog.get(name)

    @checked()
    def table(self, name: str) -> TableHandle:
        """A table, to change it from the program and to read it."""
        self._require_open()
        return self.tables.handle(name)

    @checked()
    def insert(self, table: str, rows: Any, *, at: Moment | None = None) -> CommittedChange:
        """Insert rows into a table, all or none: a table of Arrow, Polars or pandas, tuples or dicts."""
        return self.table(table).insert(rows, at=at)

    @checked()
    def upsert(self, table: str, rows: Any, *, at: Moment | None = None) -> CommittedChange:
        """Insert rows into a table; those whose primary key it has replace its row."""
        return self.table(table).upsert(rows, at=at)

    @checked()
    def update(
        self, table: str, assignments: Mapping[str, str], where: str | None = None, *, at: Moment | None = None
    ) -> CommittedChange:
        """Update rows of a table: `db.update("stock", {"price": "price * 1.1"}, where="sym = 'ACME'")`."""
        text = compose_update(self.table(table).name, assignments, where)
        with quoted_values(assignments):
            return self._change(text, at)

    @checked()
    def delete(self, table: str, where: str | None = None, *, at: Moment | None = None) -> CommittedChange:
        """Delete the rows of a table for which the condition is true; without one, all."""
        return self._change(compose_delete(self.table(table).name, where), at)

    def _change(self, text: str, at: Moment | None) -> CommittedChange:
        statement = parse_one(text)
        assert isinstance(statement, ast.TableChange), "it was composed as one"
        return self._statements.change_table(statement, None if at is None else parse_instant("update", "at", at))

    @checked()
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
        to the next (within one they are sorted), with `until` rows are valid from `ordered_by` until that column,
        and without `ordered_by` they have the time of their arrival. `trigger` goes to Spark's query over the
        DataFrame: with `{"availableNow": True}` the stream ends with what is there now. A DataFrame that is not
        streaming is a stream that ends.
        """
        from strandline.engines.spark.dataframe import FrameFeed, check_frame, columns_of

        self._require_open()
        columns = columns_of(name, check_frame(name, frame))
        statement = parse_one(declaration(name, ordered_by, until, within, idle_after))
        assert isinstance(statement, ast.CreateStream), "it was written here"
        stream = bind_create_stream(statement, SourceSchema(columns, None))
        feed = FrameFeed(name, frame, columns, stream.time_column, trigger or {}, lambda: self.log_file)
        self._statements.add_stream(replace(stream, feed=feed), statement)

    @checked()
    def register_table(self, name: str, frame: DataFrame, *, key: str | Sequence[str] = ()) -> TableHandle:
        """Make a DataFrame of Spark a table, with its columns: `db.register_table("airports", frame, key="faa")`.

        The table has the rows of a DataFrame that is not streaming as they are now; what an earlier run has loaded is
        compared with them. Rows of a streaming one are inserted as they come or, with a key, replace one another.
        """
        from strandline.engines.spark.dataframe import FrameFeed, check_frame, columns_of

        self._require_open()
        columns = columns_of(name, check_frame(name, frame))
        keys, is_streaming = (key,) if isinstance(key, str) else tuple(key), frame.isStreaming
        statement = parse_one(table_declaration(name, columns, keys, "dataframe" if is_streaming else None))
        assert isinstance(statement, ast.CreateTable), "it was written here"
        table = bind_create_table(statement)
        self.catalog.refuse_taken(table.name, statement.name.span)
        if is_streaming:
            table = replace(table, feed=FrameFeed(name, frame, columns, None, {}, lambda: self.log_file))
        self.catalog.add(self.tables.create(table))
        handle = self.table(name)
        if not is_streaming:
            handle.replace(frame.toArrow())
        return handle

    @checked()
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
        self._require_open()
        if body is None:
            return lambda decorated: self.function(name, decorated, arguments=arguments, returns=returns)
        self.catalog.add_function(define(name or body.__name__, body, arguments, returns))
        return body

    @checked()
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

    # ---- the engine --------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The Spark session that queries run on."""
        if not isinstance(self._engine, SparkEngine):
            raise SetupError(
                "this database runs on the local engine", code="no-spark", hint='Use connect(engine="spark").'
            )
        self._require_open()
        return self._engine.session()[0]

    @checked()
    def warm(self, note: Note | None = None) -> None:
        """Start Spark now instead of with the first query; `note` receives the present phase."""
        self._require_open()
        self._engine.warm(note or (lambda phase: None))

    @property
    def engine_lost(self) -> StrandlineError | None:
        """Why Spark is gone, if it is: killed, say, or out of memory. The next query starts it again."""
        return self._engine.lost()

    @property
    def log_file(self) -> Path | None:
        """Where Spark's own log goes, if we started it."""
        return self._engine.log_file()

    @checked()
    def close(self) -> None:
        """Stop all queries, and Spark if it was started here."""
        self._is_closed = True
        stop_all(self.queries)
        self.queries.clear()
        self.push.close()
        self.tables.close()
        self._engine.close()

    def _require_open(self) -> None:
        if self._is_closed:
            hint = "Open another one: db = sl.connect(…)."
            raise SetupError("this database is closed", code="database-closed", hint=hint)


def _identify(query: BoundQuery, sink: Sink, inputs: PlanningInputs | None) -> GraphQuery:
    """A query as a graph has it; with `inputs` as one in a checkpoint that stays."""
    text = "" if query.statement is None else stored_text(query.statement)
    if inputs is None:
        return GraphQuery(query.name, text=text)
    alone = planner.plan_query(query.name, query.plan, inputs.by_rules()).physical
    declarations = declarations_of(alone, query.name, sink)
    identity = identify_query(alone, sink)
    return GraphQuery(query.name, identity=identity, text=text, sink=sink.identity, declarations=declarations)


def _check_ranges(
    shards: int | None,
    batch_rows: int,
    batch_seconds: float | None,
    keep: int | None,
    shedding: float | None,
    capacity: float | None,
) -> None:
    require_range("connect", "shards", shards, 1)
    require_range("connect", "batch_rows", batch_rows, 1)
    require_range("connect", "batch_seconds", batch_seconds, 0, LONGEST_BATCH, excluded=True)
    require_range("connect", "keep", keep, 1)
    require_range("connect", "shedding", shedding, 0, 1)
    require_range("connect", "capacity", capacity, 0, excluded=True)


def _check_strategy(strategy: StrategyName | None, batch_seconds: float | None) -> None:
    """Refuse an order of what is put off where nothing is."""
    if strategy is not None and batch_seconds is None:
        raise ArgumentError(
            "strategy of connect() is the order of what does not fit into a batch, and batches have no limit",
            code="bad-argument",
            hint="Pass batch_seconds, too.",
        )


def _check_engine(engine: EngineName, spark: object, master: str | None, config: Mapping[str, str] | None) -> None:
    """Refuse what the engine would ignore, and a session that is none."""
    for name, value in (("spark", spark), ("master", master), ("config", config)):
        if engine == "local" and value is not None:
            raise ArgumentError(
                f"{name} of connect() is for Spark, and the engine is local",
                code="bad-argument",
                hint=f'Leave out {name}, or engine="local".',
            )
    if spark is not None and not hasattr(spark, "sparkContext"):
        raise ArgumentError(
            f"spark of connect() must be a SparkSession of this process, not a {type(spark).__qualname__}",
            code="bad-argument",
            hint="Pass SparkSession.builder.getOrCreate(), or leave it out to start an embedded one.",
        )


def _refuse_taken_column(queries: Sequence[BoundQuery]) -> None:
    for query in queries:
        if query.shedding is not None and any(column.name == KEPT_SHARE.name for column in schema(query.plan)):
            raise QueryError(
                f'duplicate column {KEPT_SHARE.name} in "{query.name}": shedding adds it',
                code="duplicate-column",
                hint="Rename the column of the query with AS.",
            )
