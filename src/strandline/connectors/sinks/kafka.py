"""Kafka sink: results as messages of a topic.

A batch is one Kafka transaction. Its number goes into the same transaction, as a message of the topic
`strandline_batches` under the name of the query: its committed messages list the batches in the topic.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors.sinks.base import ResumePoint, Sink, SinkArguments, SinkBatch, SinkWriter, refuse_duplicates
from strandline.connectors.sinks.row_format import iso_instant, json_rows
from strandline.connectors.traits import Needs, Traits
from strandline.core.errors import SinkError
from strandline.core.security.allow import Reach
from strandline.core.security.kafka import kafka_reaches
from strandline.core.security.redaction import HIDDEN, is_sensitive
from strandline.core.security.secret import Secret, reveal
from strandline.core.types import Schema
from strandline.runtime.result import result_schema

BATCHES: Final = "strandline_batches"
_SECONDS: Final = 60.0  # timeout of a broker request
_STEP: Final = 0.5  # seconds for which one call waits: nothing can interrupt it
_TOPIC_TIMEOUT_S: Final = 5.0  # for a topic to be made, which not every broker does
_HANDED_OVER: Final = 10_000  # messages queued in the library before a flush


@dataclass(frozen=True, slots=True)
class Kafka(Sink):
    """Send each element of the result as a JSON message; readers with `read_committed` see it exactly once.

    `key` is the column that decides on the partition. `settings` are those of librdkafka. Brokers without transactions
    need `transactional=False`: then a batch may be repeated after a crash.
    """

    kind: ClassVar[str] = "kafka"
    traits: ClassVar[Traits] = Traits(
        True, True, True, "a batch and its number are one transaction; without transactions at least once"
    )
    needs: ClassVar[Needs] = Needs("confluent_kafka", "kafka")

    servers: str
    topic: str
    key: str | None = None
    transactional: bool = True
    settings: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        servers, topic = arguments.required(0, "servers"), arguments.required(1, "topic")
        key = arguments.option("key", str, None)
        transactional = arguments.option("transactional", bool, True)
        settings = arguments.option("settings", list, None)
        dotted = arguments.dotted()
        arguments.done(most=2)
        return cls(servers, topic, key, transactional, {**_parse_settings(arguments, settings or []), **dotted})

    def reaches(self) -> list[Reach]:
        return kafka_reaches(self.servers, self.settings)

    def open(self, query: str, columns: Schema) -> SinkWriter:
        names = result_schema(columns).names
        refuse_duplicates(names)
        if self.key is not None and self.key not in names:
            raise SinkError(
                f'the message key "{self.key}" is not a column of the query',
                code="sink-columns",
                hint=f"Columns are {', '.join(names)}.",
            )
        return _KafkaWriter(self.needs.load(), self, query)

    @property
    def location(self) -> str:
        return f"kafka {self.topic}"

    @property
    def display_location(self) -> str:
        return f"{self.servers}, topic {self.topic}"


def _parse_settings(arguments: SinkArguments, pairs: list[object]) -> dict[str, str | Secret]:
    """The option `settings => ('name=value', …)`."""
    settings: dict[str, str | Secret] = {}
    for pair in pairs:
        name, between, content = str(pair).partition("=")
        if isinstance(pair, Secret) or not between or not name.strip():
            shown = HIDDEN if is_sensitive(str(pair)) else repr(pair)
            raise arguments.error(f"option settings has texts of the form 'name= value', not {shown}")
        settings[name.strip()] = content.strip()
    return settings


class _KafkaWriter(SinkWriter):
    def __init__(self, library: Any, sink: Kafka, query: str) -> None:
        self._library, self._sink, self._query = library, sink, query
        self._name = ""
        self._producer: Any = None
        self._last = -1

    def validate(self, resume_point: ResumePoint) -> None:
        self._name = f"strandline-{resume_point.owner}-{self._query}"
        if self._sink.transactional:
            last_batch = self._last_batch()
            # A topic may delete old messages. Then the last batch is unknown.
            expected = -1 if last_batch < 0 else resume_point.last_result_batch
            resume_point.check(f"topic {self._sink.topic}", last_batch, expected=expected)

    def prepare(self, resume_point: ResumePoint) -> None:
        settings: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 5}
        if self._sink.transactional:
            settings["transactional.id"] = self._name
        with self._failures():
            self._producer = self._library.Producer(self._settings(settings))
            self._patiently(lambda: self._producer.list_topics(self._sink.topic, timeout=_STEP))
            if self._sink.transactional:
                # This also aborts an open transaction of an earlier process, and fences it.
                self._patiently(lambda: self._producer.init_transactions(_STEP))
                self._last = self._last_batch()

    def write(self, sink_batch: SinkBatch) -> None:
        if not sink_batch.table.num_rows or sink_batch.batch <= self._last:
            return
        with self._failures():
            if not self._sink.transactional:
                self._send(sink_batch.table)
                return
            self._producer.begin_transaction()
            try:
                until = iso_instant(sink_batch.complete_until)
                mark = {"topic": self._sink.topic, "batch": sink_batch.batch, "complete_until": until}
                self._producer.produce(BATCHES, json.dumps(mark), self._name, partition=0)
                self._send(sink_batch.table)
                self._patiently(lambda: self._producer.commit_transaction(_STEP))
            except self._library.KafkaException:
                self._patiently(lambda: self._producer.abort_transaction(_STEP))
                raise
        self._last = sink_batch.batch

    def _send(self, table: pa.Table) -> None:
        """The library takes messages one by one and sends them in bulk."""
        keys = [None] * table.num_rows
        if self._sink.key is not None:
            keys = pc.cast(table[self._sink.key], pa.string()).to_pylist()
        failed: list[Any] = []

        def sent(error: Any, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number, (key, value) in enumerate(zip(keys, json_rows(table), strict=True)):
            self._producer.produce(self._sink.topic, value, key, on_delivery=sent)
            if number % _HANDED_OVER == _HANDED_OVER - 1:
                self._flush()
        if self._flush() or failed:
            raise self._library.KafkaException(failed[0] if failed else "timed out while sending messages")

    def _flush(self) -> int:
        """Wait until queued messages are sent; returns the number of unsent ones after a minute."""
        deadline = time.monotonic() + _SECONDS
        while (left := int(self._producer.flush(_STEP))) and time.monotonic() < deadline:
            self._refuse_if_stopping()
        return left

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Call the library in short steps for up to a minute: a call of its own can neither be interrupted nor, on the
        main thread, be left by Ctrl-C."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return call()
            except self._library.KafkaException as error:
                cause = error.args[0] if error.args else None
                codes = (self._library.KafkaError._TIMED_OUT, self._library.KafkaError._TRANSPORT)
                waits = isinstance(cause, self._library.KafkaError) and (cause.retriable() or cause.code() in codes)
                if not waits or time.monotonic() > deadline:
                    raise
            self._refuse_if_stopping()

    def _refuse_if_stopping(self) -> None:
        if self.stopping.is_set():
            raise self.interruption(f"topic {self._sink.topic}")

    def _last_batch(self) -> int:
        """Last batch whose transaction was committed; -1 without one."""
        reading = {"group.id": self._name, "enable.auto.commit": False, "enable.partition.eof": True}
        last = -1
        with self._failures():
            consumer = self._library.Consumer(self._settings({**reading, "isolation.level": "read_committed"}))
            try:
                self._ensure_batches(consumer)
                consumer.assign([self._library.TopicPartition(BATCHES, 0, self._library.OFFSET_BEGINNING)])
                while (message := self._next(consumer)) is not None:
                    if message.key() == self._name.encode():
                        last = int(json.loads(message.value())["batch"])
            finally:
                consumer.close()
        return last

    def _next(self, consumer: Any) -> Any:
        """The next message of the topic of batches; None at its end."""
        deadline = time.monotonic() + _SECONDS
        while (message := consumer.poll(_STEP)) is None and time.monotonic() < deadline:
            self._refuse_if_stopping()
        if message is None:
            raise self._library.KafkaException(f"timed out while reading {BATCHES}")
        if message.error() is None:
            return message
        if message.error().code() == self._library.KafkaError._PARTITION_EOF:
            return None
        raise self._library.KafkaException(message.error())

    def _ensure_batches(self, consumer: Any) -> None:
        """Make the topic of batches such that it keeps the last message of every query."""
        if BATCHES in self._patiently(lambda: consumer.list_topics(timeout=_STEP)).topics:
            return
        admin = Needs("confluent_kafka.admin", "kafka").load()
        topic = admin.NewTopic(BATCHES, 1, config={"cleanup.policy": "compact"})
        made = admin.AdminClient(self._settings({})).create_topics([topic], request_timeout=_TOPIC_TIMEOUT_S)
        with suppress(self._library.KafkaException):  # another process creates it, or the broker on first use
            made[BATCHES].result()

    def _settings(self, own: dict[str, Any]) -> dict[str, Any]:
        settings = {name: reveal(value) for name, value in self._sink.settings.items()}
        return {"bootstrap.servers": self._sink.servers, "log_level": 2, **own, **settings}

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (self._library.KafkaException, BufferError) as error:
            raise SinkError(
                f"cannot write a batch to topic {self._sink.topic} of {self._sink.servers}",
                code="sink-failed",
                detail=str(error),
                hint="The batch was aborted. Fix the cause and restart the query; it resumes from this batch.",
            ) from None

    def close(self) -> None:
        self._producer = None
