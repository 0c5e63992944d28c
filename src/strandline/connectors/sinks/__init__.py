"""Registry of sinks."""

from __future__ import annotations

from strandline.connectors.sinks.base import ResumePoint, Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.sinks.callback import Callback
from strandline.connectors.sinks.console import Console
from strandline.connectors.sinks.delta import Delta
from strandline.connectors.sinks.kafka import Kafka
from strandline.connectors.sinks.memory import Memory
from strandline.connectors.sinks.parquet import Parquet
from strandline.connectors.sinks.postgresql import PostgreSQL
from strandline.connectors.sinks.sqlite import SQLite
from strandline.connectors.sinks.table import TableSink
from strandline.connectors.sinks.webhook import Webhook
from strandline.connectors.traits import is_foreign, load_plugins
from strandline.core.errors import SinkError, Span
from strandline.core.security.allow import Allow, secrets_in
from strandline.logical.catalog import ConnectorCall

__all__ = [
    "Callback",
    "Console",
    "Delta",
    "Kafka",
    "Memory",
    "Parquet",
    "PostgreSQL",
    "ResumePoint",
    "SQLite",
    "Sink",
    "SinkBatch",
    "SinkWriter",
    "TableSink",
    "Webhook",
    "known_sinks",
    "make_sink",
]

OURS: tuple[type[Sink], ...] = (
    Memory,
    Parquet,
    Delta,
    PostgreSQL,
    SQLite,
    TableSink,
    Kafka,
    Webhook,
    Console,
    Callback,
)


def known_sinks() -> dict[str, type[Sink]]:
    """The sinks by the name that users write: ours, and those of installed packages."""
    return {**load_plugins("strandline.sinks"), **{sink.kind: sink for sink in OURS}}


def make_sink(
    call: ConnectorCall, function: Span | None = None, span: Span | None = None, allow: Allow | None = None
) -> Sink:
    """The sink that a statement names, if it is allowed; `function` and `span` are the places of its name and call."""
    sinks = known_sinks()
    if call.function.lower() not in sinks:
        raise SinkError(
            f'unknown sink "{call.function}"',
            code="unknown-sink",
            hint=f"Sinks are {', '.join(sorted(sinks))}.",
            span=function,
        )
    kind = sinks[call.function.lower()]
    if allow is None:
        return kind.from_arguments(SinkArguments(call, span))
    secrets = secrets_in([*call.arguments, *call.options.values()])
    allow.check(call.function, is_foreign(kind), secrets, span)
    sink = kind.from_arguments(SinkArguments(call, span))
    allow.check(call.function, is_foreign(kind), sink.reaches(), span)
    return sink.confined(allow)
