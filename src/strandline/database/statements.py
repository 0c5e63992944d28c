"""The one interpreter of statements: the API, scripts, the shell and `verify` execute them here.

`Statements` executes at once. A script is a deferred database: `DeferredStatements` (`database/script.py`) declares at
once and collects queries, to start them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from strandline.connectors.sinks import Sink, TableSink, make_sink
from strandline.connectors.sources.base import confine_source, is_live, open_source, source_schema
from strandline.connectors.tables.feeds.registry import confine_feed, feed_class, feed_schema
from strandline.connectors.tables.groups import CommittedChange
from strandline.core.errors import CatalogError, QueryError, SinkError, SourceError, Span, at_place
from strandline.core.notices import Notice
from strandline.core.security.redaction import HIDDEN, redact
from strandline.core.table import TextTable
from strandline.core.temporal import Instant
from strandline.database.at_once import execute_as_table
from strandline.database.inferred_schemas import schema_notices
from strandline.database.introspection import listing, show
from strandline.database.introspection.system_tables import SystemTables
from strandline.database.peek import take_rows
from strandline.database.query import Query
from strandline.logical.catalog import (
    BaseStream,
    Catalog,
    ConnectorCall,
    DependentQuery,
    DerivedStream,
    SourceSchema,
    Stream,
    Table,
)
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.logical.tree import reads_changes, streams_read, tables_read
from strandline.runtime.checkpoint.versions import GraphQuery
from strandline.sql import ast
from strandline.sql.binder.binder import (
    allowed_shedding,
    bind_derived_stream,
    bind_materialized_view,
    bind_reading,
    bind_view,
)
from strandline.sql.binder.create_stream import bind_connector, bind_create_stream, written
from strandline.sql.binder.create_table import bind_create_table
from strandline.sql.binder.dml import bind_change, bind_create_table_as, unknown_table
from strandline.sql.binder.notices import stream_notices
from strandline.sql.binder.scope import suggestion
from strandline.sql.binder.stored import is_stored_query
from strandline.sql.parser.statements import parse_one

if TYPE_CHECKING:
    from strandline.database.database import Database

# The value of a statement: a query that runs, a table (SHOW, DESCRIBE, a SELECT that is executed at once), what has
# changed in a table, a text (EXPLAIN), or nothing.
StatementResult: TypeAlias = Query | TextTable | CommittedChange | str | None
InferSchema: TypeAlias = Callable[[ConnectorCall, Span | None], SourceSchema | None]
# What EXPLAIN explains.
Explained: TypeAlias = (
    ast.Query
    | ast.QueryWithShedding
    | ast.QueryWithStart
    | ast.CreateStreamAs
    | ast.CreateView
    | ast.CreateMaterializedView
    | ast.CreateSink
)


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query whose names and types are resolved, ready to be planned and started.

    `reads` are the streams and views that its text names. `sink` is where its results go; None leaves it to the caller
    that starts it. With the `start` now, the result is over the rows that come from now on. `shedding` is the share of
    rows that may be dropped where not all can be read. `pipeline` is where it goes by SET PIPELINE, empty for the
    default. In a script `name` is empty until the end, if the user gave it none.
    """

    name: str
    plan: Plan
    reads: frozenset[str] = frozenset()
    sink: Sink | None = None
    shedding: float | None = None
    statement: ast.Statement | None = None
    notices: tuple[Notice, ...] = ()
    start: ast.Start | None = None
    pipeline: str = ""


class Statements:
    """Executes statements against a database, one after the other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._catalog = database.catalog
        self._free_names = database.free_names()

    def execute(
        self, statement: ast.Statement, *, sink: Sink | None = None, name: str | None = None
    ) -> StatementResult:
        """Execute one statement; a query gets the name and the sink, if they are given."""
        with self._catalog.notices.collect():
            self._declare_files(statement)
            return self._execute(statement, sink, name)

    def _execute(self, statement: ast.Statement, sink: Sink | None, name: str | None) -> StatementResult:
        match statement:
            case ast.CreateStream():
                self._create_stream(statement)
            case ast.CreateStreamAs():
                self._create_derived_stream(statement)
            case ast.CreateView():
                self._create_view(statement)
            case ast.CreateTable():
                self._create_table(statement)
            case ast.CreateTableAs():
                return self._create_filled_table(statement)
            case ast.CreateMaterializedView():
                return self._create_materialized_view(statement)
            case ast.Insert() | ast.Update() | ast.Delete() | ast.Merge() | ast.Truncate():
                return self.change_table(statement)
            case ast.Drop():
                self._drop(statement)
            case ast.CreateSink():
                return self._create_sink(statement)
            case ast.DropSink():
                self._drop_sink(statement)
            case ast.Explain(inner, why):
                return self._database.explain(self._bind(inner, "query"), why=why)
            case ast.ExplainAnalyze(named):
                return self._find_query(named).explain(analyze=True)
            case ast.Show() | ast.ShowColumns() | ast.Describe():
                return self._list(statement)
            case ast.Set("CAPACITY", value):
                self._database.capacity = value
            case ast.Set(_, value):
                self._database.shedding = value
            case ast.SetPipeline(named):
                self._database.pipeline = "" if named is None else named.name
            case ast.QueryWithShedding() | ast.QueryWithStart():
                return self._start(replace(self._bind(statement, name), sink=sink))
            case _:
                if sink is None and name is None and self.is_stored(statement):
                    return self._execute_at_once(statement)
                if sink is None and (looked := ast.looked_at(statement)) is not None:
                    return self._take_rows(statement, *looked)
                return self._start(replace(self._bind(statement, name), sink=sink))
        return None

    # ---- tables ------------------------------------------------------------------------------------------------------

    def _create_table(self, statement: ast.CreateTable) -> None:
        """Declare a table, and open its log: it may have rows of an earlier run. Its source must be allowed, and is
        read as far as it goes now."""
        name = statement.name
        if self._skips(statement):
            return
        if not statement.replace:
            self._catalog.refuse_taken(name.name, name.span)
        if statement.source is None:
            table, span = bind_create_table(statement), name.span
        else:
            call, span, allow = bind_connector(statement.source), statement.source.span, self._catalog.allow
            confine_feed(call, allow, span)
            schema = None if statement.columns else self._infer_schema(name, statement.source, feed_schema)
            table = bind_create_table(statement, schema)
            if schema is not None:
                for notice in schema_notices(schema, table):
                    self._catalog.notices.add(notice)
            source = replace(self._database.push.with_directory(table.origin).source, allow=allow)
            table = replace(table, source=source)
        with at_place(span):
            if statement.replace and table.source is not None:
                feed_class(table.source).check(table, span)
            self._make_room(statement, "TABLE")
            self._catalog.add(self._database.tables.create(table, span), name.span)
        self._database.schemas.pin([name.name])

    def _create_filled_table(self, statement: ast.CreateTableAs) -> CommittedChange | None:
        """Declare a table with the result of a query, all or nothing: where the query fails, there is no table."""
        name, tables = statement.name, self._database.tables
        if self._skips(statement):
            return None
        insertion = bind_create_table_as(statement, self._readable(statement))
        if not statement.replace:
            self._catalog.refuse_taken(name.name, name.span)
        with at_place(name.span):
            rows = tables.evaluate(insertion, self._database.stored.read)  # it may read the table that it replaces
            self._make_room(statement, "TABLE")
            table, change = tables.create_filled(insertion, rows)
            self._catalog.add(table, name.span)
        return change

    def _create_materialized_view(self, statement: ast.CreateMaterializedView) -> Query | None:
        """Declare a view, and start its query: both, or neither."""
        name = statement.name
        if self._skips(statement):
            return None
        view = bind_materialized_view(statement, self._catalog)
        self._make_room(statement, "MATERIALIZED VIEW", view.reads)
        self._catalog.add(view, name.span)
        try:
            query = replace(self._bind(statement, None), plan=view.plan, sink=self._view_sink(view))
            return self._start(query)
        except BaseException:
            self._catalog.drop(view.name)
            raise

    def _view_sink(self, view: DerivedStream) -> Sink | None:
        return self._database.make_view_sink(view)

    def change_table(self, statement: ast.TableChange, at: Instant | None = None) -> CommittedChange:
        """Change a table by a statement; `at` is its instant, if neither its text nor the clock says it."""
        with at_place(statement.table.span):
            change = bind_change(statement, self._readable(statement))
            change = change if at is None else replace(change, at=at)
            return self._database.tables.change(change, self._database.stored.read, self._mark(statement))

    def _mark(self, statement: ast.Statement) -> str | None:
        """What identifies a statement that must have one effect however often it is executed; None for none."""
        return None

    def is_stored(self, query: ast.Query) -> bool:
        """Whether a query is executed at once."""
        self._declare_files(query)
        return ast.reads_system(query) or is_stored_query(query, self._catalog)

    def _execute_at_once(self, query: ast.Query) -> TextTable:
        plan, _ = bind_reading(query, self._readable(query), stored=True)
        return execute_as_table(plan, self._database.stored.read)

    def _take_rows(self, statement: ast.Query, query: ast.Query, limit: int) -> TextTable | None:
        """Run a query until so many rows have come."""
        return take_rows(self._database, self._bind(query, None), limit)

    def _readable(self, statement: ast.Statement) -> Catalog:
        """The names of a statement that is executed at once: with system tables, if it reads some."""
        return SystemTables(self._catalog) if ast.reads_system(statement) else self._catalog

    # ---- queries -----------------------------------------------------------------------------------------------------

    def _start(self, query: BoundQuery) -> Query | None:
        """Start a query, under the next free number if it has no name."""
        if not query.name:
            query = replace(query, name=next(self._free_names))
        return self._database.run(query)

    def _bind(self, statement: Explained, name: str | None) -> BoundQuery:
        """The query of a statement; `name` is for one that has none in its text."""
        sink = self._make_sink(statement) if isinstance(statement, ast.CreateSink) else None
        start = statement.start if isinstance(statement, ast.CreateSink | ast.CreateStreamAs) else None
        clause: ast.Shedding | None = None
        match statement:
            case ast.CreateStreamAs(named, query, clause) | ast.CreateSink(named, _, query, clause):
                name = named.name
            case ast.CreateView(named, _, query) | ast.CreateMaterializedView(named, _, query):
                name = named.name
            case ast.QueryWithShedding(query, clause):
                pass
            case ast.QueryWithStart(query, start):
                pass
            case query:
                pass
        with self._catalog.notices.collect() as notices:
            plan, reads = bind_reading(query, self._catalog)
        reads |= {sink.name} if isinstance(sink, TableSink) else set()  # a table must not be dropped below it
        if start is not None:
            self._check_start(start, plan, statement.span)
        is_whole = start is not None or isinstance(statement, ast.CreateView)
        max_dropped = None if is_whole else self._default_shedding(plan)
        if clause is not None:
            max_dropped = allowed_shedding(plan, clause)
        pipeline = self._database.pipeline
        return BoundQuery(name or "", plan, reads, sink, max_dropped, statement, tuple(notices), start, pipeline)

    def _check_start(self, start: ast.Start, plan: Plan, span: Span) -> None:
        """Refuse a beginning that a query cannot have."""
        names = sorted(streams_read(plan) - tables_read(plan))
        if start == "now" and not names:
            raise QueryError(
                "a query over tables alone cannot be started now",
                code="starting-now-table",
                hint="Leave out STARTING NOW: the query begins with what the tables have.",
                span=span,
            )
        read = [self._catalog.get(name) for name in names]
        live = [stream.name for stream in read if isinstance(stream, BaseStream) and is_live(stream)]
        if start == "earliest" and live:
            raise QueryError(
                f'stream "{live[0]}" cannot be read again from its beginning',
                code="starting-earliest-live",
                detail="What its source has sent before is gone.",
                hint="Write STARTING NOW, which is the default for such a stream.",
                span=span,
            )

    def bind_stored(self, stored: GraphQuery, sink: Sink | None, pipeline: str) -> BoundQuery:
        """A query as the checkpoint of a pipeline has it, bound again."""
        statement = parse_one(stored.text) if stored.text else None
        if statement is None or isinstance(statement, ast.CreateStreamAs):
            query = self.bind_stream(stored.name)
        else:
            assert isinstance(statement, Explained), "a checkpoint has the texts of queries"
            if isinstance(statement, ast.CreateSink) and HIDDEN in statement.target.text and sink is None:
                raise QueryError(
                    f"the sink of {stored.name} has a literal secret, which a checkpoint does not store",
                    code="secret-not-stored",
                    hint=f'Write secret(…) in its statement, or pass it: db.recover(sinks={{"{stored.name}": …}}).',
                )
            query = self._bind(statement, stored.name)
        bound = replace(query, sink=sink or query.sink, statement=statement, pipeline=pipeline)
        if stored.sink is not None and bound.sink is None:
            raise QueryError(
                f"the sink of {stored.name} is not known",
                code="recover-sink",
                hint=f'Pass it: db.recover(sinks={{"{stored.name}": …}}).',
            )
        return bound

    def sink_of(self, text: str) -> Sink | None:
        """The sink that a statement names; None for one without."""
        statement = parse_one(text) if text else None
        if not isinstance(statement, ast.CreateSink) or HIDDEN in statement.target.text:
            return None
        return self._make_sink(statement)

    def bind_stream(self, name: str) -> BoundQuery:
        """The query behind a derived stream."""
        stream = self._catalog.get(name)
        if not isinstance(stream, DerivedStream) or stream.is_view:
            raise CatalogError(
                f'{stream.word} "{stream.name}" is not a query',
                code="not-a-query",
                hint=f"Use SELECT * FROM {stream.name}.",
            )
        shedding = stream.shedding
        if shedding is None and stream.start is None:
            shedding = self._default_shedding(stream.plan)
        reads = stream.reads | {stream.name}
        pipeline = self._database.pipeline
        return BoundQuery(
            stream.name,
            stream.plan,
            reads,
            shedding=shedding,
            notices=stream.notices,
            start=stream.start,
            pipeline=pipeline,
        )

    def _default_shedding(self, plan: Plan) -> float | None:
        """The share of rows that a query may lose if it does not say so itself."""
        return None if reads_changes(plan) else self._database.shedding

    def _readers(self) -> list[DependentQuery]:
        """The queries that a stream may not be taken away from."""
        queries = (query for query in self._database.queries if query.is_running)
        # The query of a materialized view goes with it.
        return [DependentQuery(query.name, query.reads) for query in queries if not self._is_view(query.name)]

    def _is_view(self, name: str) -> bool:
        stream = self._catalog.get(name) if name in self._catalog else None
        return isinstance(stream, DerivedStream) and stream.is_materialized

    def _find_query(self, name: ast.Identifier) -> Query:
        """The query of a name; of several the newest."""
        queries = self._database.queries
        for query in reversed(queries):
            if name.matches(query.name):
                return query
        names = [query.name for query in queries]
        raise QueryError(
            f'unknown query "{name.name}"',
            code="unknown-query",
            hint=suggestion(name.name, names, "Queries are") if names else "No query was started.",
            span=name.span,
        )

    # ---- files -------------------------------------------------------------------------------------------------------

    def _declare_files(self, statement: ast.Statement) -> None:
        """Declare the files that a statement names."""
        self._database.files.declare(statement, self._create_stream, self._create_table, self._has_time)

    def _has_time(self, name: ast.Identifier, source: ast.Connector) -> bool:
        schema = self._infer_schema(name, source, source_schema)
        if schema is None:
            return True
        self._database.schemas.keep_for_declaration(name.name, schema)
        if schema.times:
            times = " or ".join(map(written, schema.times))
            hint = (
                f"Declare it: CREATE STREAM name SOURCE file('{schema.place}') ORDERED BY {written(schema.times[0])}."
            )
            raise source.error(f"{times} may be the time of a row of {schema.place}", "unclear-time", hint)
        return schema.time_column is not None

    def _infer_schema(self, name: ast.Identifier, source: ast.Connector, infer: InferSchema) -> SourceSchema | None:
        """The schema that a source provides itself, if it does: as a checkpoint has it, else as it is now."""
        call, span = replace(bind_connector(source), allow=self._catalog.allow), source.span
        return self._database.schemas.find(name.name, call, lambda: infer(call, span))

    # ---- streams and views -------------------------------------------------------------------------------------------

    def _create_stream(self, statement: ast.CreateStream) -> None:
        """Declare a base stream: its source must be allowed, and it is opened once to see whether it can be read."""
        if self._skips(statement):
            return
        call, span, allow = bind_connector(statement.source), statement.source.span, self._catalog.allow
        confine_source(call, allow, span)
        schema = None if statement.columns else self._infer_schema(statement.name, statement.source, source_schema)
        stream = self._database.push.with_directory(bind_create_stream(statement, schema))
        stream = replace(stream, source=replace(stream.source, allow=allow))
        with at_place(span):
            source = open_source(stream, span=span)
            try:
                source.check(span)
            except SourceError as error:
                error.span = _place_of(error, statement)
                raise
        for notice in () if schema is not None else source.remarks():
            self._catalog.notices.add(notice)
        stream = replace(stream, source_statistics=source.statistics())
        if schema is not None:
            for notice in schema_notices(schema, stream):
                self._catalog.notices.add(notice)
        self._make_room(statement, "STREAM")
        self.add_stream(stream, statement)

    def add_stream(self, stream: BaseStream, statement: ast.CreateStream) -> None:
        """Make a base stream known, with what was measured of it before."""
        self._catalog.add(stream, statement.name.span)
        for notice in stream_notices(stream):
            self._catalog.notices.add(notice)
        self._database.statistics_store.recall(stream)

    def _create_derived_stream(self, statement: ast.CreateStreamAs) -> None:
        if self._skips(statement):
            return
        with self._catalog.notices.collect() as notices:
            stream = bind_derived_stream(statement, self._catalog)
        if stream.start is not None:
            self._check_start(stream.start, stream.plan, statement.span)
        self._make_room(statement, "STREAM", stream.reads)
        self._catalog.add(replace(stream, notices=tuple(notices)), statement.name.span)

    def _create_view(self, statement: ast.CreateView) -> None:
        if self._skips(statement):
            return
        view, span = bind_view(statement, self._catalog), statement.name.span
        if statement.replace:
            self._catalog.replace_view(view, self._readers(), span)
        else:
            self._catalog.add(view, span)

    def _skips(self, statement: ast.Creation) -> bool:
        """Whether IF NOT EXISTS finds that the name is taken."""
        return statement.if_not_exists and statement.name.name in self._catalog

    def _make_room(self, statement: ast.Creation, kind: str, reads: frozenset[str] = frozenset()) -> None:
        """Drop what CREATE OR REPLACE replaces, if nothing reads it; what takes its place has been checked."""
        name = statement.name
        if not statement.replace or name.name not in self._catalog:
            return
        if name.name.lower() in {read.lower() for read in reads}:
            message = f'{kind.lower()} "{name.name}" cannot refer to itself'
            hint = "REPLACE removes the old one: write its query into the new one."
            raise CatalogError(message, code="recursive-query", hint=hint, span=name.span)
        self._drop(ast.Drop(kind, name, True, False, span=statement.span))

    def _drop(self, statement: ast.Drop) -> list[Stream]:
        """Drop a stream or view, and with CASCADE what reads it; returns what is gone."""
        name, kind = statement.name, statement.kind.lower()
        if statement.if_exists and name.name not in self._catalog:
            return []
        if kind == "table" and name.name not in self._catalog:
            raise unknown_table(name.name, self._catalog, name.span)
        stream = self._catalog.get(name.name, name.span)
        if stream.word != kind:
            raise CatalogError(
                f'"{stream.name}" is a {stream.word}, not a {kind}',
                code="other-kind",
                hint=f"Write DROP {stream.word.upper()} {stream.name}.",
                span=name.span,
            )
        gone = self._catalog.drop(name.name, name.span, cascade=statement.cascade, running=self._readers())
        for dropped in gone:
            self._database.schemas.forget(dropped.name)
            if isinstance(dropped, Table):
                self._database.tables.drop(dropped)
            elif isinstance(dropped, DerivedStream) and dropped.is_materialized:
                self._database.drop_view(dropped.name)
        return gone

    # ---- sinks -------------------------------------------------------------------------------------------------------

    def _create_sink(self, statement: ast.CreateSink) -> Query | None:
        name, target = statement.name, statement.target
        try:
            self._make_sink(statement)  # first: whether it exists matters more than the name
            taken = {taken.lower() for taken in self._taken_names()}
            if statement.if_not_exists and name.name.lower() in taken:
                return None
            if statement.replace:
                self._bind(statement, None)
                self._drop_sink(ast.DropSink(name, True, span=statement.span))
            if name.name.lower() in {taken.lower() for taken in self._taken_names()}:
                raise CatalogError(
                    f'a stream, view or query "{name.name}" already exists',
                    code="sink-exists",
                    hint="Choose another name for the sink, or drop the other first.",
                    span=name.span,
                )
            return self._start(self._bind(statement, None))
        except SinkError as error:
            error.span = error.span or target.span
            raise

    def _make_sink(self, statement: ast.CreateSink) -> Sink:
        target = statement.target
        sink = make_sink(bind_connector(target), target.function.span, target.span, self._catalog.allow)
        if isinstance(sink, TableSink):
            table = self._catalog.get(sink.name, target.span)
            sink = replace(sink, table=table if isinstance(table, Table) else None)
        return sink

    def _taken_names(self) -> list[str]:
        running = [query.name for query in self._database.queries if query.is_running]
        return [stream.name for stream in self._catalog] + running

    def _drop_sink(self, statement: ast.DropSink) -> None:
        """Stop a sink. What it has written stays, and its checkpoint, too: the same CREATE SINK goes on."""
        sinks = [query for query in self._database.queries if query.has_sink]
        dropped = [query for query in sinks if statement.name.matches(query.name)]
        if not dropped and not statement.if_exists:
            raise unknown_sink(statement.name, [query.name for query in sinks])
        for query in dropped:
            query.stop()
            self._database.queries.remove(query)

    # ---- SHOW and DESCRIBE -------------------------------------------------------------------------------------------

    def _list(self, statement: ast.Show | ast.ShowColumns | ast.Describe) -> TextTable:
        match statement:
            case ast.Show(what):
                return listing.show_objects(self._database, what, self._waiting())
            case ast.ShowColumns(ast.Identifier() as name):
                return show.show_columns(listing.find_relation(self._catalog, name))
            case ast.ShowColumns(query):
                assert not isinstance(query, ast.Identifier), "that is the case above"
                plan, _ = bind_reading(query, self._readable(query), stored=self.is_stored(query))
                return show.show_schema(schema(plan))
            case ast.Describe(name):
                return listing.describe_relation(self._database, name)

    def _waiting(self) -> Sequence[BoundQuery]:
        """The queries that are going to be started."""
        return ()


def unknown_sink(name: ast.Identifier, sinks: Sequence[str]) -> CatalogError:
    return CatalogError(
        f'sink "{name.name}" does not exist',
        code="unknown-sink",
        hint=suggestion(name.name, sinks, "Sinks are") if sinks else "There is none.",
        span=name.span,
    )


def stored_text(statement: ast.Statement) -> str:
    """The text of a statement as a checkpoint stores it: without literal secrets of its sink."""
    if not isinstance(statement, ast.CreateSink):
        return statement.text
    whole, target = statement.span, statement.target.span
    return whole.text[whole.start : target.start] + redact(statement.target.text) + whole.text[target.end : whole.end]


def _place_of(error: SourceError, statement: ast.CreateStream) -> Span | None:
    """Where a source is to blame: in the declaration of a column that it lacks, or where the source is written."""
    named = [column for column in statement.columns if error.message.startswith(f'column "{column.name.name}" ')]
    return named[0].span if named and error.code == "missing-column" else error.span
