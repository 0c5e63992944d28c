"""Scripts: statements in a file, run together until their sources end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from strandline.connectors.sinks import Sink
from strandline.core.errors import QueryError
from strandline.core.lease import refuse_busy
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script_changes import Placement, place_queries
from strandline.database.statements import BoundQuery, Statements, unknown_sink
from strandline.logical.catalog import DependentQuery, DerivedStream, Stream
from strandline.sql import ast
from strandline.sql.binder.stored import names_read
from strandline.sql.parser.statements import parse


class DeferredStatements(Statements):
    """Declares at once and collects queries, until all of them are started together.

    `CREATE STREAM name AS …` and `CREATE SINK name …` are queries with that name; a bare SELECT is named q1, q2, … in
    order, at the end. `outputs` is what the other statements gave (EXPLAIN, SHOW, DESCRIBE), in order.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.queries: list[BoundQuery] = []
        self.outputs: list[str] = []
        self.looks: list[ast.Query] = []  # SELECT … LIMIT n, to be shown before the queries start
        self._executed: Counter[str] = Counter()

    def run(self, statements: Iterable[ast.Statement]) -> None:
        """Execute all statements of a script, and give names to the queries that have none."""
        for statement in statements:
            if (result := self.execute(statement)) is not None:
                self.outputs.append(str(result))
        self.queries = [query if query.name else replace(query, name=next(self._free_names)) for query in self.queries]

    def _start(self, query: BoundQuery) -> Query | None:
        self.queries.append(query)
        return None

    def _take_rows(self, statement: ast.Query, query: ast.Query, limit: int) -> None:
        self._bind(query, None)
        self.looks.append(statement)

    def _mark(self, statement: ast.Statement) -> str:
        """The text of a statement, and how often it has occurred: statements that are added to a script, before or
        after it, leave its mark as it is."""
        self._executed[statement.text] += 1
        return f"{self._executed[statement.text]} {statement.text}"

    def _waiting(self) -> Sequence[BoundQuery]:
        return self.queries

    def _create_derived_stream(self, statement: ast.CreateStreamAs) -> None:
        if self._skips(statement):
            return
        super()._create_derived_stream(statement)
        self._start(replace(self.bind_stream(statement.name.name), statement=statement))

    def _view_sink(self, view: DerivedStream) -> Sink | None:
        return None  # its result goes where those of the other queries go

    def is_stored(self, query: ast.Query) -> bool:
        # A materialized view of the script has not started: a query that reads it is one of the queries.
        waiting = {name.lower() for name in (query.name for query in self.queries) if self._is_view(name)}
        return super().is_stored(query) and not waiting & names_read(query)

    def _readers(self) -> list[DependentQuery]:
        # A query that was created goes with its stream. A SELECT has nothing to go with, and a sink stays.
        staying = [query for query in self.queries if not query.name or query.sink is not None]
        return super()._readers() + [DependentQuery(query.name or "SELECT", query.reads) for query in staying]

    def _drop(self, statement: ast.Drop) -> list[Stream]:
        dropped = super()._drop(statement)
        names = {stream.name for stream in dropped}
        self.queries = [query for query in self.queries if query.name not in names or query.sink is not None]
        return dropped

    def _taken_names(self) -> list[str]:
        return super()._taken_names() + [query.name for query in self.queries if query.name]

    def _drop_sink(self, statement: ast.DropSink) -> None:
        sinks = [query for query in self.queries if query.sink is not None]
        dropped = [query for query in sinks if statement.name.matches(query.name)]
        if not dropped and not statement.if_exists:
            raise unknown_sink(statement.name, [query.name for query in sinks])
        self.queries = [query for query in self.queries if query not in dropped]


def read_script(database: Database, text: str) -> DeferredStatements:
    """Declare the streams of a script and collect its queries."""
    script = DeferredStatements(database)
    script.run(parse(text))
    return script


def start_script(
    database: Database,
    script: DeferredStatements,
    out: Path | None,
    checkpoint: Path | None,
    sink: Sink | None = None,
    *,
    update: bool = False,
) -> list[Query]:
    """Start all queries; results go to their sinks or to `out/<query>/`, checkpoints to `checkpoint` (default
    `out/.strandline`), side outputs to `out`. Without `out` results go to `sink`, and checkpoints are temporary. Where
    the script has changed since its checkpoints were written, only with `update`."""
    return start_placed(database, place_script(database, script, out, checkpoint, sink), out, update=update)


def place_script(
    database: Database, script: DeferredStatements, out: Path | None, checkpoint: Path | None, sink: Sink | None = None
) -> Placement:
    """Where the queries of a script go, and what has changed since its checkpoints were written."""
    if not script.queries:
        raise QueryError(
            "the script has no query", code="no-query", hint="Add a SELECT, CREATE STREAM name AS SELECT … or a sink."
        )
    return place_queries(database, script.queries, checkpoint_root(out, checkpoint), out, sink)


def start_placed(
    database: Database, placement: Placement, side_outputs: Path | None, *, update: bool = False
) -> list[Query]:
    """Start the queries of a script where they belong."""
    placement.check(update=update)
    started: list[Query] = []
    for group in placement.groups:
        replacement = group.replacement if update else None
        if group.queries or replacement is not None:
            started += database.start(group.queries, group.directory, side_outputs, replacement)
    return started


def refuse_busy_checkpoints(placement: Placement) -> None:
    """Refuse a script whose checkpoints another run is writing, before anything is started."""
    for group in placement.groups:
        if group.directory is not None:
            refuse_busy(group.directory)


def checkpoint_root(out: Path | None, checkpoint: Path | None) -> Path | None:
    """The directory of the checkpoints of a run; None if they are temporary."""
    if checkpoint is not None:
        return checkpoint.absolute()
    return out / ".strandline" / "checkpoint" if out is not None else None
