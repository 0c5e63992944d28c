"""The feeds by the name that users write: systems whose rows are read as a whole, and all sources of streams."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from strandline.connectors.sources.base import confine_source, source_schema
from strandline.connectors.tables.feeds.base import TableFeed
from strandline.connectors.tables.feeds.source_feed import SourceFeed
from strandline.core.errors import Span, at_place
from strandline.core.security.allow import Allow, secrets_in
from strandline.logical.catalog import ConnectorCall, SourceSchema

# Imported when a table has one.
SYSTEMS: Final = {"postgresql": "PostgreSQLFeed", "sqlite": "SQLiteFeed", "delta": "DeltaFeed"}


def feed_class(call: ConnectorCall) -> type[TableFeed]:
    name = call.function.lower()
    if name not in SYSTEMS:
        return SourceFeed
    found: type[TableFeed] = getattr(import_module(f"strandline.connectors.tables.feeds.{name}"), SYSTEMS[name])
    return found


def confine_feed(call: ConnectorCall, allow: Allow | None, span: Span | None) -> None:
    """Reject a source of a table with resources that are not allowed, before it is created."""
    kind = feed_class(call)
    if kind is SourceFeed:
        confine_source(call, allow, span)
    elif allow is not None:
        allow.check(call.function, False, secrets_in([*call.arguments, *call.options.values()]), span)
        with at_place(span):
            allow.check(call.function, False, kind.reaches(call), span)


def feed_schema(call: ConnectorCall, span: Span | None) -> SourceSchema | None:
    """Columns that the source of a table provides itself, if it does."""
    kind = feed_class(call)
    if kind is SourceFeed:
        return source_schema(call, span)
    with at_place(span):
        return kind.knows(call)
