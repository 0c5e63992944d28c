"""Scripts: statements in a file, run together until their sources end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from strandline.connectors.sinks import Parquet, Sink
from strandline.core.durable import encode_name
from strandline.core.errors import QueryError
from strandline.core.lease import refuse_busy
from strandline.database.database import Database, Wanted, connected_groups, unknown_sink
from strandline.database.query import Query
from strandline.logical.catalog import DerivedStream, Dependent
from strandline.logical.plan import Plan
from strandline.sql import ast
from strandline.sql.binder.binder import bind_reading
from strandline.sql.parser.statements import parse


@dataclass(slots=True)
class Script:
    """What a script asks for: named queries, what each of them names in FROM, and the output of its other statements
    (EXPLAIN, SHOW, DESCRIBE) in their order."""

    queries: list[tuple[str, Plan]] = field(default_factory=list)
    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)  # of those that do not go to Parquet in the output directory
    explanations: list[str] = field(default_factory=list)
    shedding: dict[str, float | None] = field(default_factory=dict)  # the share of rows that a query may lose


@dataclass(frozen=True, slots=True)
class _Pending:
    """A query that waits for the end of the script; a SELECT gets its name there."""

    name: str | None
    plan: Plan
    reads: frozenset[str]
    sink: Sink | None = None
    shedding: float | None = None


def read_script(database: Database, text: str) -> Script:
    """Declare the streams of a script and collect its queries.

    `CREATE STREAM name AS …` and `CREATE SINK name …` are queries with that name; a bare SELECT is named q1, q2, … in
    order.
    """
    script = Script()
    pending: list[_Pending] = []
    for statement in parse(text):
        match statement:
            case ast.CreateStream() | ast.CreateStreamAs() | ast.CreateView() | ast.Drop():
                # A query that was created goes with its stream. A SELECT has nothing to go with, and a sink stays.
                waiting = [
                    Dependent(item.name or "SELECT", item.reads) for item in pending if item.name is None or item.sink
                ]
                gone = {stream.name for stream in database.declare(statement, waiting)}
                pending = [item for item in pending if item.name not in gone or item.sink is not None]
                if isinstance(statement, ast.CreateStreamAs):
                    shedding = database.shed_by(statement.shedding)
                    pending.append(replace(_created(database, statement.name), shedding=shedding))
            case ast.CreateSink():
                wanted = database.bind_sink(statement, [item.name for item in pending if item.name])
                pending.append(_Pending(wanted.name, wanted.plan, wanted.reads, wanted.sink, wanted.shedding))
            case ast.DropSink():
                pending = _without(pending, statement)
            case ast.Explain(inner, why):
                script.explanations.append(database.explain(inner, why))
            case ast.ExplainAnalyze():
                script.explanations.append(str(database.execute(statement)))
            case ast.Show() | ast.Describe():
                waiting = [Dependent(item.name or "SELECT", item.reads) for item in pending]
                sinks = {item.name: item.sink for item in pending if item.name and item.sink is not None}
                script.explanations.append(str(database.tell(statement, waiting, sinks)))
            case ast.Set():
                database.set(statement)
            case ast.Allowing(query, shedding):
                plan, reads = bind_reading(query, database.catalog)
                pending.append(_Pending(None, plan, reads, shedding=shedding.most))
            case _ if ast.reads_system(statement):
                script.explanations.append(str(database.execute(statement)))
            case _:
                plan, reads = bind_reading(statement, database.catalog)
                pending.append(_Pending(None, plan, reads, shedding=database.shedding))
    names = (f"q{number}" for number in count(1))
    for item in pending:
        name = item.name or next(n for n in names if database.is_free(n))
        script.queries.append((name, item.plan))
        script.reads[name] = item.reads
        script.shedding[name] = item.shedding
        if item.sink is not None:
            script.sinks[name] = item.sink
    return script


def _without(pending: list[_Pending], statement: ast.DropSink) -> list[_Pending]:
    name = statement.name
    left = [item for item in pending if item.sink is None or not name.matches(item.name or "")]
    if len(left) == len(pending) and not statement.if_exists:
        raise unknown_sink(name, [item.name for item in pending if item.sink is not None and item.name])
    return left


def _created(database: Database, name: ast.Identifier) -> _Pending:
    stream = database.catalog.get(name.name)
    assert isinstance(stream, DerivedStream)
    return _Pending(stream.name, stream.plan, stream.reads | {stream.name})


def start_script(database: Database, script: Script, out: Path, checkpoint: Path | None) -> list[Query]:
    """Start all queries; answers go to their sinks or to `out/<query>/`, checkpoints to `checkpoint` (default
    `out/.strandline`), rows that are set aside to `out`."""
    if not script.queries:
        raise QueryError(
            "the script has no query", code="no-query", hint="Add a SELECT, CREATE STREAM name AS SELECT … or a sink."
        )
    started: list[Query] = []
    for place, group in _groups(script, out, checkpoint):
        queries = [
            Wanted(
                name,
                plan,
                script.sinks.get(name) or Parquet(out / encode_name(name)),
                script.reads[name],
                script.shedding[name],
            )
            for name, plan in group
        ]
        started += database.start(queries, place, aside=out)
    return started


def _sink(script: Script, name: str, out: Path) -> Sink:
    return script.sinks.get(name) or Parquet(out / encode_name(name))


def refuse_busy_checkpoints(script: Script, out: Path, checkpoint: Path | None) -> None:
    """Refuse a script whose checkpoints another run is writing, before anything is started."""
    for place, _ in _groups(script, out, checkpoint):
        refuse_busy(place)


def _groups(script: Script, out: Path, checkpoint: Path | None) -> Iterator[tuple[Path, list[tuple[str, Plan]]]]:
    """The queries that run together, each group with the place of its checkpoint."""
    root = checkpoint.absolute() if checkpoint is not None else out / ".strandline" / "checkpoint"
    for group in connected_groups(script.queries):
        yield root / encode_name(group[0][0]), group
