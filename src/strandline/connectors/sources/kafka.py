"""Kafka source: offsets are stored with the checkpoint, watermarks are per partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from strandline.connectors.sources.base import Chunk, Source, SourceArguments, split_evenly
from strandline.connectors.sources.json_lines import conform_lines
from strandline.connectors.sources.kafka_offsets import OffsetLog, PartitionRead, ReadRound, fair_shares
from strandline.connectors.sources.kafka_topic import Messages, Topic
from strandline.connectors.traits import Needs, Traits
from strandline.core.errors import Span, at_place, damaged
from strandline.core.security.allow import Reach
from strandline.core.security.kafka import kafka_reaches
from strandline.core.temporal import SECOND, instant
from strandline.logical.catalog import BaseStream, ConnectorCall

NEW_PARTITIONS_SECONDS = 5.0  # interval of metadata requests: partitions and low offsets
QUIET_SECONDS = 0.05  # interval of polls where nothing was new
TASK_ROWS = 20_000  # fewer are not worth a task of their own
# Column of the feed of a table with a key: a message without content deletes the row of its key.
MESSAGE_OP = "@op"
_OURS = ("bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "enable.partition.eof")


class KafkaSource(Source):
    """`kafka('host:port,…', topic => 'trades', start => 'earliest', until => NULL, max_rows => NULL, …)`.

    Messages hold a JSON object each. Their offsets are logged with the checkpoint and nowhere else: a consumer group is
    only a name to the brokers. Further options with a dot in their name go to librdkafka as they are:
    `"security.protocol" => 'SSL'`.
    """

    needs = Needs("confluent_kafka", "kafka")
    traits = Traits(
        replayable=True,
        ordered=True,
        idempotent=True,
        note="offsets are kept with the checkpoint; in order within a partition; deleted messages stop the query",
    )

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = SourceArguments(stream.source)
        servers = str(arguments.positional(0, "the brokers, as in kafka('localhost:9092', topic => 'trades')"))
        name = arguments.option("topic", str, None)
        self.format = arguments.option("format", str, "json")
        self.start = arguments.option("start", str, "earliest")
        self.until = arguments.option("until", str, None)
        self.max_rows = arguments.option("max_rows", int, None)
        group = arguments.option("group_id", str, "strandline")
        self.settings = arguments.dotted()
        arguments.done(most=1)
        if name is None:
            raise arguments.error("kafka() needs a topic: kafka('localhost:9092', topic => 'trades')")
        self.topic = Topic(servers, name, {"group.id": group, **self.settings})
        self.log = OffsetLog(directory)
        self._last_empty_poll = self._asked_partitions = -1e9
        self._last_row_times: dict[int, float] = {}

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        settings = {name: value for name, value in call.options.items() if "." in name}
        return kafka_reaches(str(next(iter(call.arguments), "")), settings)

    def identity(self) -> dict[str, object]:
        return {
            "function": "kafka",
            "topic": self.topic.name,
            "format": self.format,
            "start": self.start,
            "until": self.until,
            "isolation.level": self.settings.get("isolation.level", "read_committed"),
        }

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        if self.format != "json":
            raise arguments.error(f"format of kafka() must be 'json', not '{self.format}'")
        if self.until not in (None, "latest"):
            raise arguments.error(f"until of kafka() must be 'latest' or NULL, not '{self.until}'")
        if self.max_rows is not None and self.max_rows < 1:
            raise arguments.error("max_rows of kafka() must be greater than 0")
        for name in _OURS:
            if name in self.settings:
                raise arguments.error(f"option {name} of kafka() cannot be overridden")
        try:
            self._start_time()
        except ValueError:
            message = f"start of kafka() must be 'earliest', 'latest' or '2024-01-01 00:00:00', not '{self.start}'"
            raise arguments.error(message) from None
        try:
            with at_place(span):
                self.topic.partitions()
        finally:
            self.topic.close()

    def _start_time(self) -> int | None:
        return None if self.start in ("earliest", "latest") else instant(self.start) // 1_000

    def close(self) -> None:
        self.topic.close()

    # On the driver.

    def seal(self, position: int) -> str:
        return self.log.seal(position)

    def verify(self, position: int, seal: str) -> None:
        self.log.verify(position, seal)

    def resume(self, position: int) -> None:
        self.log.cut(position)

    def check_seal(self, position: int, seal: str) -> None:
        self.log.verify(position, seal)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        if not self.log.rounds:
            self.log.load()
        if position > self.log.end and self.log.path is not None:
            raise damaged(self.log.path)
        if position == self.log.end and not self._is_complete(self.log.rounds[-1:]):
            new_round = self._look(min(limit_rows, self.max_rows or limit_rows))
            if new_round is not None:
                self.log.append(new_round)
        if position == self.log.end:
            return position, self._is_complete(self.log.rounds[-1:])
        here = self.log.round_at(position)
        return here.end, here.end == self.log.end and self._is_complete([here])

    def _is_complete(self, newest: list[ReadRound]) -> bool:
        ends = self.log.ends
        return (
            bool(newest)
            and ends is not None
            and all(newest[0].next[partition] >= ends[partition] for partition in ends)
        )

    def _look(self, limit: int) -> ReadRound | None:
        """New messages since the last round; None if there are none."""
        now = time.monotonic()
        if now - self._last_empty_poll < QUIET_SECONDS:
            return None
        last = self.log.rounds[-1] if self.log.rounds else self._beginning()
        offsets = dict(last.next)
        if now - self._asked_partitions >= NEW_PARTITIONS_SECONDS and self.log.rounds:
            offsets |= self._news_of_partitions(offsets)
            self._asked_partitions = now
        reached = self.log.ends if self.log.ends is not None else self.topic.offsets("latest", offsets)
        waiting = {
            partition: reached[partition] - offset
            for partition, offset in offsets.items()
            if reached[partition] != offset
        }
        for partition, rows in waiting.items():
            if rows < 0:
                raise self.topic.gone(partition, offsets[partition], None)
        shares = fair_shares(waiting, limit)
        reads = tuple(
            PartitionRead(partition, offsets[partition], offsets[partition] + shares[partition])
            for partition in sorted(shares)
        )
        after = offsets | {read.partition: read.end for read in reads}
        new_round = ReadRound(last.end, reads, after, self._resting(last, after, waiting, now))
        if not self.log.rounds:
            new_round = replace(new_round, at=0)
        elif not reads and (new_round.next, new_round.resting) == (last.next, last.resting):
            self._last_empty_poll = now
            return None
        return new_round

    def _beginning(self) -> ReadRound:
        """Start offsets, before anything is read."""
        partitions = self.topic.partitions()
        begin = self.topic.offsets(self.start if (at := self._start_time()) is None else at, partitions)
        if self.until is not None:
            self.log.ends = self.topic.offsets("latest", partitions)
            begin = {partition: min(offset, self.log.ends[partition]) for partition, offset in begin.items()}
        return ReadRound(0, (), begin)

    def _news_of_partitions(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Partitions that were added, from their first message on; checks that no unread message was deleted. A bounded
        read has the partitions of its start, so none is added."""
        partitions = self.topic.partitions()
        first = self.topic.offsets("earliest", partitions)
        for partition, offset in offsets.items():
            if first.get(partition, offset) > offset:
                raise self.topic.gone(partition, offset, first[partition])
        if self.log.ends is not None:
            return {}
        return {partition: first[partition] for partition in partitions if partition not in offsets}

    def _resting(
        self, last: ReadRound, after: Mapping[int, int], waiting: Mapping[int, int], now: float
    ) -> tuple[int, ...]:
        """Idle partitions: those read to their end, and those without a row for as long as IDLE AFTER says. Where that
        is all of them, the stream as a whole is idle."""
        if self.log.ends is not None:
            return tuple(partition for partition, offset in sorted(after.items()) if offset >= self.log.ends[partition])
        idle_after_us = self.stream.idle_after_us
        for partition in after:
            if partition in waiting or partition not in self._last_row_times:
                self._last_row_times[partition] = now
        silent = {
            partition
            for partition in after
            if idle_after_us is not None
            and (partition in last.resting or now - self._last_row_times[partition] >= idle_after_us / SECOND)
        }
        silent -= set(waiting)
        return tuple(sorted(silent)) if len(silent) < len(after) else last.resting

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        return split_evenly(self._rows_between(start, end), start, end, tasks, TASK_ROWS)

    def count_rows(self, start: int, end: int) -> int:
        return sum(self._rows_between(start, end))

    def _rows_between(self, start: int, end: int) -> list[int]:
        return [reading.end - reading.begin for reading in self.log.readings(start, end)]

    def brings_rows(self, start: int, end: int) -> bool:
        return bool(self.log.readings(start, end))

    # On a worker: reading it.

    def partitions(self, end: int) -> Mapping[str, bool]:
        if end == 0:
            return {}
        here = self.log.round_at(end - 1)
        return {str(partition): partition in here.resting for partition in sorted(here.next)}

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        for partition, messages in self.topic.read(self.log.readings(start, end)):
            location = f"{self.topic.name}/{partition}"
            beside = _beside(messages, partition, self.stream)
            lines = messages.lines(self._key_of_content(beside))
            for chunk in conform_lines(lines, self.stream, location, messages.offsets, beside):
                yield replace(chunk, partition=str(partition))

    def _key_of_content(self, beside: pl.DataFrame | None) -> list[str] | None:
        """The columns of the key of a table that are part of the content of a message; None where a message without
        content is no deletion."""
        changes = self.stream.changes
        if changes is None or changes.op_column != MESSAGE_OP or beside is None:
            return None
        return [name for name in changes.key if name not in beside.columns]


def _beside(messages: Messages, partition: int, stream: BaseStream) -> pl.DataFrame | None:
    """Columns of a message apart from its content, as far as the stream declares them."""
    made = {
        "kafka_key": lambda: messages.keys(),
        "kafka_headers": lambda: messages.headers(),
        "kafka_timestamp": lambda: messages.timestamps(),
        "kafka_partition": lambda: pl.repeat(partition, len(messages.offsets), dtype=pl.Int32, eager=True),
        "kafka_offset": lambda: messages.offsets,
        MESSAGE_OP: lambda: messages.are_tombstones.replace_strict({True: "delete", False: "upsert"}),
    }
    names = [name for name, _ in stream.columns if name in made]
    return pl.DataFrame({name: made[name]() for name in names}) if names else None
