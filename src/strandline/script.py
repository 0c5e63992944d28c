"""Scripts: statements in a file, run together until their sources end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from strandline.algebra.operators import Plan
from strandline.catalog import DerivedStream
from strandline.engine import Database, connected_groups
from strandline.errors import QueryError, SinkError, Span
from strandline.lang import ast
from strandline.lang.binder import bind_query
from strandline.lang.parser import parse
from strandline.query import Query
from strandline.sinks import Parquet


@dataclass(slots=True)
class Script:
    """What a script asks for: named queries, and explanations in the order of its EXPLAIN statements."""

    queries: list[tuple[str, Plan]] = field(default_factory=list)
    explanations: list[str] = field(default_factory=list)


def read_script(database: Database, text: str) -> Script:
    """Declare the streams of a script and collect its queries.

    `CREATE STREAM name AS …` is a query with that name; a bare SELECT is named q1, q2, … in order.
    """
    script = Script()
    for statement in parse(text):
        match statement:
            case ast.CreateStream():
                database.declare(statement)
            case ast.CreateStreamAs(name, _):
                database.declare(statement)
                stream = database.catalog.get(name.name)
                assert isinstance(stream, DerivedStream)
                script.queries.append((_file_name(stream.name, name.span), stream.plan))
            case ast.DropStream(name, _):
                database.declare(statement)
                script.queries = [q for q in script.queries if q[0].lower() != name.name.lower()]
            case ast.Explain(inner):
                script.explanations.append(database.explain(inner))
            case _:
                script.queries.append(("", bind_query(statement, database.catalog)))
    names = (f"q{number}" for number in count(1))
    script.queries = [
        (name or next(n for n in names if n not in database.catalog), plan) for name, plan in script.queries
    ]
    return script


def start_script(database: Database, script: Script, out: Path, checkpoint: Path | None) -> list[Query]:
    """Start all queries; answers go to `out/<query>/`, checkpoints to `checkpoint` (default `out/.strandline`)."""
    if not script.queries:
        raise QueryError(
            "the script has no query", code="no-query", hint="Add a SELECT, or CREATE STREAM name AS SELECT …."
        )
    place = checkpoint.absolute() if checkpoint is not None else out / ".strandline" / "checkpoint"
    started: list[Query] = []
    for group in connected_groups(script.queries):
        queries = [(name, plan, Parquet(out / name)) for name, plan in group]
        started += database.start(queries, place / group[0][0])
    return started


def _file_name(name: str, span: Span) -> str:
    """A query's name is also the name of its directory."""
    if "/" in name or "\\" in name or name.startswith((".", "_")):
        raise SinkError(f'"{name}" cannot be the name of a directory', code="query-name", span=span)
    return name
