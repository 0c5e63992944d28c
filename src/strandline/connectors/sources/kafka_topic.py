"""The conversation with Kafka's brokers about one topic: partitions, offsets, messages."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from strandline.connectors.sources.kafka_offsets import PartitionRead
from strandline.core.errors import SetupError, SourceError
from strandline.core.log import INPUT
from strandline.core.security.secret import Secret, reveal

RESPONSE_SECONDS = 5.0
STALLED_SECONDS = 30.0  # how long messages that must be there may fail to come
AT_ONCE = 10_000
GLANCE_SECONDS = 0.1
_CONSUMER_ONLY = ("enable.auto.commit", "enable.partition.eof", "auto.offset.reset", "fetch.wait.max.ms", "group.id")

# Pool of idle consumers of this process: connecting for each batch would cost more than reading it. A consumer in use
# is out of the pool, so that no two threads share one.
_waiting: dict[tuple[object, ...], list[Any]] = {}

_log = INPUT.getChild("kafka")  # librdkafka's own log lines; our error reports the same once


def kafka() -> Any:
    """The package that talks to Kafka, which not everybody has."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError:
        raise SetupError(
            "kafka() needs the package confluent-kafka",
            code="package-missing",
            hint="Run `pip install 'strandline[kafka]'`.",
        ) from None


class Messages:
    """The messages of one partition, in order."""

    def __init__(self, messages: Sequence[Any], offsets: pl.Series) -> None:
        self.found = messages
        self.offsets = offsets

    @property
    def are_tombstones(self) -> pl.Series:
        """Which of them have no content: in a compacted topic, the row of the key is gone."""
        return pl.Series([message.value() is None for message in self.found], dtype=pl.Boolean)

    def lines(self, key: Sequence[str] | None = None) -> bytes:
        """Their contents, one per line. With the names of a key, that of a message without content is its key."""
        # One call per message and column is the interface of the package; the rest is array code.
        values = [message.value() or b"" for message in self.found]
        if key is not None:
            for number in np.flatnonzero(self.are_tombstones.to_numpy()).tolist():
                values[number] = _key_object(self.found[number].key(), key)
        lines = b"\n".join(values)
        if lines.count(b"\n") >= len(values):
            # JSON has no line break within texts, so those between its parts are insignificant.
            lines = b"\n".join(value.replace(b"\n", b" ") for value in values)
        return lines

    def keys(self) -> pl.Series:
        raw = pl.Series([message.key() for message in self.found], dtype=pl.Binary)
        try:
            return raw.cast(pl.String)
        except pl.exceptions.PolarsError:
            return pl.Series([None if key is None else key.decode(errors="replace") for key in raw], dtype=pl.String)

    def timestamps(self) -> pl.Series:
        # Milliseconds; -1 marks a message without a time.
        raw = pl.Series([message.timestamp()[1] for message in self.found], dtype=pl.Int64)
        return raw.replace(-1, None).cast(pl.Datetime("ms")).cast(pl.Datetime("us"))

    def headers(self) -> pl.Series:
        """The headers of each message as a JSON object; the last of equal names counts."""
        shown = [
            None
            if (headers := message.headers()) is None
            else json.dumps({k: None if v is None else v.decode(errors="replace") for k, v in headers})
            for message in self.found
        ]
        return pl.Series(shown, dtype=pl.String)


def _key_object(data: bytes | None, names: Sequence[str]) -> bytes:
    """The key of a message as a JSON object: what it is, or a single value. `names` are those that no other column of
    the message gives."""
    if not names:
        return b"{}"
    text = (data or b"").decode(errors="replace")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        return json.dumps({name: value.get(name) for name in names}).encode()
    return json.dumps({names[0]: value if len(names) == 1 and data is not None else None}).encode()


class Topic:
    """Client of one topic in one process; connects on first use."""

    def __init__(self, servers: str, name: str, settings: Mapping[str, str | Secret]) -> None:
        self.servers = servers
        self.name = name
        self.settings = settings
        self._admin: Any = None
        self._recent_errors: list[str] = []

    def _configuration(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # missing messages must not be skipped
            "fetch.wait.max.ms": 10,  # the messages exist; a broker that waits for more only delays the batch
            **{name: reveal(value) for name, value in self.settings.items()},
            "error_cb": self._record_error,
            "logger": _log,
        }

    def _record_error(self, error: Any) -> None:
        self._recent_errors = [*self._recent_errors[-4:], error.str()]

    # Metadata.

    def partitions(self) -> list[int]:
        module = kafka()
        try:
            with self._consumer() as consumer:
                metadata = consumer.list_topics(self.name, timeout=RESPONSE_SECONDS).topics[self.name]
        except module.KafkaException as error:
            raise self._unreachable(error) from None
        if metadata.error is not None and metadata.error.code() == module.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SourceError(
                f'unknown topic "{self.name}" at {self.servers}',
                code="kafka-topic",
                hint="Create it first; names of topics are case-sensitive.",
            )
        if metadata.error is not None:
            raise self._unreachable(module.KafkaException(metadata.error))
        return sorted(metadata.partitions)

    def offsets(self, what: str | int, partitions: Iterable[int]) -> dict[int, int]:
        """The first ("earliest") or next ("latest") offset of each partition, or that of the first message with a time
        in milliseconds or later; where there is none, the next one."""
        module, admin = kafka(), importlib.import_module("confluent_kafka.admin")
        spec = {"earliest": admin.OffsetSpec.earliest(), "latest": admin.OffsetSpec.latest()}
        kind = admin.OffsetSpec.for_timestamp(what) if isinstance(what, int) else spec[what]
        try:
            if self._admin is None:
                settings = {k: v for k, v in self._configuration().items() if k not in _CONSUMER_ONLY}
                self._admin = admin.AdminClient(settings)
            asked = self._admin.list_offsets(
                {module.TopicPartition(self.name, partition): kind for partition in partitions},
                isolation_level=self._isolation(module),
                request_timeout=RESPONSE_SECONDS,
            )
            partition_offsets = {where.partition: future.result().offset for where, future in asked.items()}
        except module.KafkaException as error:
            raise self._unreachable(error) from None
        beyond = [partition for partition, offset in partition_offsets.items() if offset < 0]
        return partition_offsets | self.offsets("latest", beyond) if beyond else partition_offsets

    def _isolation(self, module: Any) -> Any:
        committed = self.settings.get("isolation.level", "read_committed") == "read_committed"
        return module.IsolationLevel.READ_COMMITTED if committed else module.IsolationLevel.READ_UNCOMMITTED

    # Reading.

    def read(self, readings: Sequence[PartitionRead]) -> Iterator[tuple[int, Messages]]:
        """The messages of each reading, whatever the order in which the brokers send them."""
        if not readings:
            return
        with self._consumer() as consumer:
            messages, partitions, offsets = self._collect(
                consumer, {reading.partition: reading for reading in readings}
            )
        for reading in readings:
            chosen = np.flatnonzero((partitions == reading.partition) & (offsets < reading.end))
            if len(chosen):
                yield reading.partition, Messages([messages[i] for i in chosen.tolist()], pl.Series(offsets[chosen]))

    def _collect(self, consumer: Any, left: dict[int, PartitionRead]) -> tuple[list[Any], Any, Any]:
        module = kafka()
        assigned = [module.TopicPartition(self.name, reading.partition, reading.begin) for reading in left.values()]
        consumer.assign(assigned)
        messages: list[Any] = []
        partitions: list[int] = []
        offsets: list[int] = []
        reached = {reading.partition: reading.begin for reading in left.values()}
        heard = time.monotonic()
        try:
            while left:
                rows = sum(reading.end - reached[reading.partition] for reading in left.values())
                came = consumer.consume(min(AT_ONCE, max(rows, 1)), GLANCE_SECONDS)
                errors = [message for message in came if message.error() is not None]
                if errors:
                    came = [message for message in came if message.error() is None]
                    reached |= self._ends_among(errors, left, module)
                new_partitions = [message.partition() for message in came]
                new_offsets = [message.offset() for message in came]
                reached |= {
                    partition: offset + 1 for partition, offset in zip(new_partitions, new_offsets, strict=True)
                }
                messages += came
                partitions += new_partitions
                offsets += new_offsets
                done = [partition for partition, reading in left.items() if reached[partition] >= reading.end]
                if came or done:
                    heard = time.monotonic()
                elif time.monotonic() - heard > STALLED_SECONDS:
                    raise self._stalled(left, reached)
                for partition in done:
                    del left[partition]
                if done and left:  # further messages of these are for the next batch
                    consumer.pause([module.TopicPartition(self.name, partition) for partition in done])
            consumer.resume(assigned)  # a pause would outlive the assignment
            consumer.unassign()
        except module.KafkaException as error:
            raise self._unreachable(error) from None
        return messages, np.array(partitions, np.int64), np.array(offsets, np.int64)

    def _ends_among(self, errors: list[Any], left: Mapping[int, PartitionRead], module: Any) -> dict[int, int]:
        """Ends of partitions: after the last message there may be transaction markers, which are never delivered."""
        ends: dict[int, int] = {}
        for message in errors:
            code, reading = message.error().code(), left.get(message.partition())
            if code == module.KafkaError._PARTITION_EOF:
                if reading is not None and message.offset() >= reading.end:
                    ends[reading.partition] = message.offset()
            elif code in (module.KafkaError._AUTO_OFFSET_RESET, module.KafkaError.OFFSET_OUT_OF_RANGE):
                partition = message.partition()
                raise self.gone(partition, reading.begin if reading else 0, None)
            elif not (
                message.error().retriable()
                or code in (module.KafkaError._TRANSPORT, module.KafkaError._ALL_BROKERS_DOWN)
            ):
                raise self._unreachable(module.KafkaException(message.error()))
        return ends

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Any]:
        """A consumer for as long as it is needed; one that had trouble is not used again."""
        idle = _waiting.setdefault(self._key, [])
        consumer = idle.pop() if idle else kafka().Consumer(self._configuration())
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        idle.append(consumer)

    @property
    def _key(self) -> tuple[object, ...]:
        # A process that was forked has none of the threads that its parent's consumers live from.
        return (os.getpid(), self.servers, tuple(sorted(self.settings.items())))

    def close(self) -> None:
        for consumer in _waiting.pop(self._key, []):
            consumer.close()
        self._admin = None

    # Errors.

    def gone(self, partition: int, offset: int, first: int | None) -> SourceError:
        there = f"; what is left begins at {first}" if first is not None else ""
        return SourceError(
            f"messages of {self.name}/{partition} from offset {offset} on were deleted before they were read{there}",
            code="kafka-offsets-gone",
            detail="The retention of the topic is shorter than the lag of the query, or the topic was recreated.",
            hint="Start over with a new checkpoint, and increase the retention of the topic.",
        )

    def _stalled(self, left: Mapping[int, PartitionRead], reached: Mapping[int, int]) -> SourceError:
        partition, reading = next(iter(left.items()))
        return SourceError(
            f"{self.name}/{partition} has not sent offset {reached[partition]} for {STALLED_SECONDS:.0f} seconds,"
            f" although it reached {reading.end} before",
            code="kafka-unreachable",
            detail=self._last_error(),
            hint=f"Check that the brokers {self.servers} are up, then restart the query; it resumes here.",
        )

    def _unreachable(self, error: Any) -> SourceError:
        if error.args[0].code() in (kafka().KafkaError._INVALID_ARG, kafka().KafkaError._CONFLICT):
            return SourceError(
                f"invalid Kafka options of topic {self.name}: {error.args[0].str()}",
                code="source-argument",
                hint="Write options of librdkafka, which have a dot in their name, in double quotes.",
            )
        return SourceError(
            f"cannot reach Kafka at {self.servers}: {error.args[0].str()}",
            code="kafka-unreachable",
            detail=self._last_error(),
            hint="Check the address, and options such as \"security.protocol\" => 'SSL'.",
        )

    def _last_error(self) -> str | None:
        return f"Last error: {self._recent_errors[-1]}." if self._recent_errors else None
