"""Where the answers of queries go: what users write, and the list of all sinks."""

from __future__ import annotations

from strandline.catalog import SourceCall
from strandline.errors import SinkError, Span
from strandline.plugins import brought_along, is_foreign
from strandline.security.allow import Allow, secrets_in
from strandline.sinks.base import Arguments, Delivered, Outlet, Sink, Standing
from strandline.sinks.callback import Callback
from strandline.sinks.console import Console
from strandline.sinks.delta import Delta
from strandline.sinks.kafka import Kafka
from strandline.sinks.memory import Memory
from strandline.sinks.parquet import Parquet
from strandline.sinks.postgresql import PostgreSQL
from strandline.sinks.sqlite import SQLite
from strandline.sinks.webhook import Webhook

__all__ = [
    "Callback",
    "Console",
    "Delivered",
    "Delta",
    "Kafka",
    "Memory",
    "Outlet",
    "Parquet",
    "PostgreSQL",
    "SQLite",
    "Sink",
    "Standing",
    "Webhook",
    "known_sinks",
    "make_sink",
]

OURS: tuple[type[Sink], ...] = (Memory, Parquet, Delta, PostgreSQL, SQLite, Kafka, Webhook, Console, Callback)


def known_sinks() -> dict[str, type[Sink]]:
    """The sinks by the name that users write: ours, and those of installed packages."""
    return {**brought_along("strandline.sinks"), **{sink.kind: sink for sink in OURS}}


def make_sink(
    call: SourceCall, function: Span | None = None, span: Span | None = None, allow: Allow | None = None
) -> Sink:
    """The sink that a statement names, if it is allowed; `function` is the place of its name, `span` that of the whole
    call."""
    known = known_sinks()
    if call.function.lower() not in known:
        raise SinkError(
            f'there is no sink "{call.function}"',
            code="unknown-sink",
            hint=f"Sinks are {', '.join(sorted(known))}.",
            span=function,
        )
    kind = known[call.function.lower()]
    if allow is None:
        return kind.from_arguments(Arguments(call, span))
    secrets = secrets_in([*call.arguments, *call.options.values()])
    allow.check(call.function, is_foreign(kind), secrets, span)
    sink = kind.from_arguments(Arguments(call, span))
    allow.check(call.function, is_foreign(kind), sink.reaches(), span)
    return sink.confined(allow)
