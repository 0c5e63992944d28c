"""What SHOW and DESCRIBE list of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.core.table import TextTable
from strandline.database.introspection import running_graph, show
from strandline.database.introspection.system_tables import SystemTables
from strandline.logical.catalog import SYSTEM, Catalog, DependentQuery, DerivedStream, Stream
from strandline.sql import ast

if TYPE_CHECKING:
    from strandline.database.database import Database
    from strandline.database.statements import BoundQuery


def show_objects(database: Database, what: str, waiting: Sequence[BoundQuery]) -> TextTable:
    """`SHOW what`; `waiting` are the queries that are going to be started."""
    catalog, queries = database.catalog, database.queries
    match what:
        case "STREAMS":
            return show.show_streams(catalog)
        case "TABLES":
            return show.show_tables(catalog, database.tables.row_counts(), database.tables.feeders())
        case "VIEWS":
            return show.show_views(catalog)
        case "SINKS":
            return show.show_sinks(queries, {query.name: query.sink for query in waiting if query.sink is not None})
        case "SHEDDING":
            return show.show_shedding(queries)
        case "FUNCTIONS":
            return show.show_functions(catalog)
        case "GRAPH":
            return running_graph.show_graph(queries)
    return show.show_queries(
        queries, [DependentQuery(query.name or "SELECT", query.reads, query.pipeline) for query in waiting]
    )


def find_relation(catalog: Catalog, name: ast.Identifier) -> Stream:
    """What has a name, system tables included."""
    readable = SystemTables(catalog) if name.name.lower().startswith(SYSTEM) else catalog
    return readable.get(name.name, name.span)


def describe_relation(database: Database, name: ast.Identifier) -> TextTable:
    """`DESCRIBE name`."""
    query = next((query for query in reversed(database.queries) if name.matches(query.name)), None)
    if query is not None and query.name not in database.catalog:
        return show.describe_query(query)
    stream = find_relation(database.catalog, name)
    is_query = isinstance(stream, DerivedStream) and not stream.is_view
    feeder = database.tables.feeders().get(stream.name)
    return show.describe(stream, query if is_query else None, None if feeder is None else feeder.status)
