"""Topics of Kafka, on the mock broker of librdkafka."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from kafka_broker import Broker
from source_testing import declared, wait_for
from strandline.connectors.sources import kafka as kafka_module
from strandline.connectors.sources import kafka_topic as topic_module
from strandline.connectors.sources.kafka import KafkaSource
from strandline.connectors.sources.kafka_offsets import ROUNDS_KEPT, OffsetLog, PartitionRead, ReadRound, fair_shares
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query

COLUMNS = "(k INT, ts BIGINT)"
_names = (f"topic{number}" for number in count())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    found = Broker()
    yield found
    found.close()


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", batch_rows=1000) as found:
        yield found


def topic(broker: Broker, *partitions: list[Any]) -> str:
    """A topic with these messages; a number is a row with that time."""
    name = broker.create(next(_names), len(partitions))
    for number, values in enumerate(partitions):
        broker.send(name, number, messages(values))
    return name


def messages(values: list[Any]) -> list[Any]:
    return [{"k": value % 7, "ts": value} if isinstance(value, int) else value for value in values]


def ask(
    database: Database, broker: Broker, name: str, options: str = ", until => 'latest'", *,
    columns: str = COLUMNS, clauses: str = "ORDERED BY ts", query: str = "SELECT k, ts FROM s",
) -> Query:  # fmt: skip
    database.sql("DROP STREAM IF EXISTS s")
    database.sql(f"CREATE STREAM s {columns} SOURCE kafka('{broker.servers}', topic => '{name}'{options}) {clauses}")
    found = database.sql(query)
    assert isinstance(found, Query)
    return found


def times(query: Query) -> list[int]:
    return sorted(row["ts"] for row in query.results().to_pylist())


def source(
    broker: Broker, name: str, options: str = "", directory: Path | None = None, clauses: str = ""
) -> KafkaSource:
    found = declared(
        COLUMNS, f"kafka('{broker.servers}', topic => '{name}'{options})", f"ORDERED BY ts {clauses}", directory
    )
    assert isinstance(found, KafkaSource)
    return found


def test_all_partitions_from_the_first_message_to_the_last(broker: Broker, database: Database) -> None:
    name = topic(broker, list(range(0, 5000, 2)), list(range(1, 5000, 2)), [])
    query = ask(database, broker, name)
    assert query.await_end(30)
    assert times(query) == list(range(5000))
    assert query.metrics()["late"] == {"s": 0} and query.metrics()["batches"] > 3


def test_a_query_that_is_added_reads_the_topic_again(broker: Broker, database: Database) -> None:
    name = topic(broker, [1, 3, 5], [2, 4])
    first = ask(database, broker, name, options="")
    wait_for(lambda: first.metrics()["read"] == {"s": 5})
    second = database.sql("SELECT k, ts FROM s WHERE ts > 1", name="second")
    assert second._pipeline is first._pipeline
    broker.send(name, 0, messages([7]))
    broker.send(name, 1, messages([8]))
    wait_for(lambda: first.metrics()["read"] == second.metrics()["read"] == {"s": 7})
    wait_for(lambda: first.progress == second.progress == 7)
    assert times(first) == [1, 2, 3, 4, 5, 7, 8] and times(second) == times(first)[1:]
    assert {stream.reader_of for stream in second.pipeline.streams} == {"", "s"}  # it has a log of its own


def test_a_row_is_late_against_its_own_partition(broker: Broker, database: Database) -> None:
    """One partition is far ahead of the other, and is read first and fastest."""
    name = topic(broker, [*range(10_000, 10_800), 10_100], [*range(50), 20, 51], [5])
    query = ask(database, broker, name, ", until => 'latest', max_rows => 60")
    assert query.await_end(60)
    assert sorted(row["ts"] for row in query.late("s").to_pylist()) == [20, 10_100]
    assert times(query) == sorted([5, *range(50), 51, *range(10_000, 10_800)])


def test_what_a_message_has_beside_its_content(broker: Broker, database: Database) -> None:
    name = topic(broker, [], [])
    broker.send(name, 1, messages([7]), key=b"key", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("n", None)])
    broker.send(name, 1, messages([8]), key=b"\xff")
    columns = (
        "(k INT, ts BIGINT, kafka_key VARCHAR, kafka_partition INT, kafka_offset BIGINT,"
        " kafka_timestamp TIMESTAMP, kafka_headers VARCHAR)"
    )
    query = ask(database, broker, name, columns=columns, query="SELECT * FROM s")
    assert query.await_end(30)
    one, two = sorted(query.results().to_pylist(), key=lambda row: row["ts"])
    assert (one["kafka_key"], one["kafka_partition"], one["kafka_offset"]) == ("key", 1, 0)
    assert one["kafka_timestamp"].isoformat()[:23] == "2023-11-14T22:13:20.123"
    assert one["kafka_headers"] == '{"h": "1", "n": null}'
    assert (two["kafka_key"], two["kafka_offset"], two["kafka_headers"]) == ("�", 1, None)


def test_malformed_messages_go_aside_with_their_place(broker: Broker, database: Database) -> None:
    odd = [1, b"nonsense", None, b"", b'{\n"k": 2,\n"ts":\n2}', {"k": "x", "ts": 3}, b"[]", {"k": 4}, 5, b"\n"]
    query = ask(database, broker, topic(broker, [], odd))
    assert query.await_end(30)
    assert times(query) == [1, 2, 5]
    rejected = [(row["place"], row["row"], row["reason"]) for row in query.rejected("s").to_pylist()]
    place = f"{query.pipeline.streams[0].source.options['topic']}/1"
    no_object = [(place, row, "not a JSON object") for row in (1, 2, 3, 6, 9)]
    assert sorted(rejected) == sorted([*no_object, (place, 5, "k: 'x' is not INT"), (place, 7, "ts: the time is NULL")])


def test_the_latest_is_where_reading_begins_if_so_declared(broker: Broker, tmp_path: Path) -> None:
    name = topic(broker, [1, 2], [3])
    found = source(broker, name, ", start => 'latest'", tmp_path)
    assert found.advance(0, 100) == (1, False) and not found.brings_rows(0, 1)
    broker.send(name, 0, messages([4]))
    again = source(broker, name, ", start => 'latest'", tmp_path)  # the beginning was written down
    wait_for(lambda: again.advance(1, 100)[0] > 1)
    assert [chunk.rows["ts"].to_list() for chunk in again.read(1, 2, frozenset())] == [[4]]
    again.close()


def test_a_time_is_where_reading_begins_if_so_declared(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock broker knows no times, so what is asked of it is looked at."""
    asked: list[object] = []
    found = source(broker, topic(broker, [1, 2]), ", start => '2024-01-01 00:00:00'")
    real = topic_module.Topic.offsets
    monkeypatch.setattr(topic_module.Topic, "offsets", lambda self, *what: asked.append(what[0]) or real(self, *what))
    assert found.advance(0, 100) == (1, False), "no message is as young, so reading begins behind the last"
    assert asked[:2] == [1_704_067_200_000, "latest"]
    found.close()


def test_positions_read_the_same_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    name = topic(broker, list(range(100)), list(range(50)))
    first = source(broker, name, ", max_rows => 60", tmp_path)
    ends = [first.advance(0, 1000)[0]]
    ends.append(first.advance(ends[0], 1000)[0])

    def read(found: KafkaSource, start: int, end: int) -> list[tuple[str | None, list[int]]]:
        return [(chunk.partition, chunk.rows["ts"].to_list()) for chunk in found.read(start, end, frozenset())]

    seen = [read(first, 0, ends[0]), read(first, ends[0], ends[1])]
    assert seen == [
        [("0", list(range(30))), ("1", list(range(30)))],
        [("0", list(range(30, 70))), ("1", [*range(30, 50)])],
    ]
    first.close()
    broker.send(name, 1, messages([50]))
    second = source(broker, name, ", max_rows => 60", tmp_path)
    assert second.advance(0, 1000)[0] == ends[0], "what was decided and perhaps not heard is not decided anew"
    assert [read(second, 0, ends[0]), read(second, ends[0], ends[1])] == seen
    end, _ = second.advance(ends[1], 1000)
    assert read(second, ends[1], end) == [("0", list(range(70, 100))), ("1", [50])]
    second.close()


def test_several_tasks_read_whole_partitions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_module, "TASK_ROWS", 10)
    found = source(broker, topic(broker, [*range(40)], [*range(5)], [*range(35)], [*range(20)]))
    end, _ = found.advance(0, 1000)
    assert end == 4
    assert (
        found.split_points(0, 4, 1) == ()
        and found.split_points(0, 4, 2) == (3,)
        and found.split_points(0, 4, 3) == (1, 3)
    )
    assert found.split_points(0, 4, 50) == (1, 3), "a handful of rows is no task"
    assert found.count_rows(0, 4) == 100
    found.close()


def test_new_partitions_are_noticed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_module, "NEW_PARTITIONS_SECONDS", 0.0)
    name = topic(broker, [1], [2])
    found = source(broker, name, ", start => 'latest'")
    end, _ = found.advance(0, 100)
    partitions = found.topic.partitions
    monkeypatch.setattr(found.topic, "partitions", lambda: [0] if len(found.log.rounds) < 1 else partitions())
    found.log.rounds[0] = ReadRound(0, (), {0: 1})  # as if there had been one partition
    wait_for(lambda: found.advance(end, 100)[0] > end)
    assert found.log.readings(end, found.log.end) == [PartitionRead(1, 0, 1)], (
        "from its first message, not from the latest"
    )
    assert found.partitions(found.log.end) == {"0": False, "1": False}
    found.close()


def test_a_silent_partition_holds_nobody_back_for_longer_than_declared(broker: Broker, database: Database) -> None:
    name = topic(broker, [1], [2])
    query = ask(database, broker, name, "", clauses="ORDERED BY ts IDLE AFTER 1 SECOND")
    wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 2)
    began, sent = time.monotonic(), 10
    while (status := query.heartbeats()["s"]).progress < 10:
        broker.send(name, 0, messages([sent]))
        sent += 1
        time.sleep(0.05)
        assert time.monotonic() - began < 20, "time stands still"
    assert status.resting == ("1",) and not status.idle
    broker.send(name, 1, messages([3, 1000]))  # awake again; 3 has come too late
    wait_for(lambda: query.heartbeats()["s"].late == 1)
    assert query.late("s").to_pylist() == [{"k": 3, "ts": 3}]
    assert "1" not in query.heartbeats()["s"].resting
    wait_for(lambda: query.heartbeats()["s"].idle, 30)  # in the end all of them
    assert query.heartbeats()["s"].progress == 1001


def test_messages_that_were_deleted_before_they_were_read(broker: Broker, database: Database) -> None:
    name = topic(broker, list(range(100)))
    found = source(broker, name, ", max_rows => 10")
    end, _ = found.advance(0, 1000)
    broker.delete_before(name, 0, 50)
    with pytest.raises(StrandlineError) as caught:
        list(found.read(0, end, frozenset()))
    assert caught.value.code == "kafka-offsets-gone" and f"{name}/0 from offset 0" in caught.value.message
    found._asked_partitions = -1e9
    with pytest.raises(StrandlineError) as caught:
        found.advance(end, 1000)
    assert caught.value.code == "kafka-offsets-gone" and "begins at 50" in caught.value.message
    found.close()
    query = ask(database, broker, name)
    assert query.await_end(30) and times(query) == list(range(50, 100)), "the earliest there is"


def test_a_topic_that_was_made_anew_is_not_read_from_the_middle(broker: Broker, tmp_path: Path) -> None:
    name = topic(broker, [1, 2, 3])
    found = source(broker, name, "", tmp_path)
    found.log.append(ReadRound(0, (), {0: 7}))
    with pytest.raises(StrandlineError) as caught:
        found.advance(1, 10)
    assert caught.value.code == "kafka-offsets-gone"
    found.close()


def test_nobody_answers(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "RESPONSE_SECONDS", 0.5)
    with pytest.raises(StrandlineError) as caught:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE kafka('127.0.0.1:1', topic => 't') ORDERED BY ts")
    assert caught.value.code == "kafka-unreachable" and caught.value.span is not None and caught.value.hint
    assert "^^^" in caught.value.render()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("topic => 'there is none'", "kafka-topic"),
        ("format => 'json'", "source-argument"),
        ("topic => 'topic0', format => 'avro'", "source-argument"),
        ("topic => 'topic0', start => 'noon'", "source-argument"),
        ("topic => 'topic0', until => 'noon'", "source-argument"),
        ("topic => 'topic0', max_rows => 0", "source-argument"),
        ("topic => 'topic0', servers => 'x'", "source-argument"),
        ("topic => 'topic0', \"auto.offset.reset\" => 'latest'", "source-argument"),
        ("topic => 'topic0', \"no.such.setting\" => 1", "source-argument"),
    ],
)
def test_arguments_that_cannot_work(broker: Broker, database: Database, options: str, code: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        database.sql(f"CREATE STREAM s {COLUMNS} SOURCE kafka('{broker.servers}', {options}) ORDERED BY ts")
    assert caught.value.code == code and caught.value.span is not None


def test_settings_of_librdkafka_are_passed_on(broker: Broker, database: Database) -> None:
    query = ask(
        database, broker, topic(broker, [1]), ", until => 'latest', \"client.id\" => 'me', \"check.crcs\" => true"
    )
    assert query.await_end(30) and times(query) == [1]


def test_without_the_package(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(StrandlineError) as caught:
        database.sql(f"CREATE STREAM s {COLUMNS} SOURCE kafka('x:1', topic => 't') ORDERED BY ts")
    assert caught.value.code == "package-missing" and "pip install 'strandline[kafka]'" in (caught.value.hint or "")


# ---- what is written down --------------------------------------------------------------------------------------------


def test_the_log_forgets_what_nobody_can_ask_for(tmp_path: Path) -> None:
    log = OffsetLog(tmp_path)
    for number in range(100):
        log.append(
            ReadRound(
                log.end,
                (PartitionRead(0, number, number + 1), PartitionRead(1, 0, 0))[: number % 3],
                {0: number + 1, 1: 0},
            )
        )
    other = OffsetLog(tmp_path)
    other.load()
    assert other == log and len(other.rounds) == ROUNDS_KEPT
    newest = other.rounds[-1]
    assert other.round_at(newest.at) == newest == other.round_at(newest.end - 1)
    with pytest.raises(StrandlineError) as caught:
        other.readings(0, 1)
    assert caught.value.code == "not-replayable"
    with pytest.raises(StrandlineError) as caught:
        other.readings(newest.at, newest.end + 1)
    assert caught.value.code == "checkpoint-damaged"


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 100), min_size=1), st.integers(1, 300))
def test_shares_are_fair(waiting: dict[int, int], limit: int) -> None:
    shares = fair_shares(waiting, limit)
    assert all(1 <= shares[each] <= rows for each, rows in waiting.items()) and shares.keys() == waiting.keys()
    assert sum(shares.values()) <= max(limit, len(waiting))
    assert sum(shares.values()) >= min(limit, sum(waiting.values())), "nothing is left unused"
    largest = max(shares.values())
    short = [shares[each] for each, rows in waiting.items() if shares[each] < rows]
    assert all(share >= largest - 1 for share in short) or limit < len(waiting), "who must wait has as much as anybody"


def test_messages_keep_their_order_within_a_partition(broker: Broker) -> None:
    found = source(broker, topic(broker, *[[1000 * p + n for n in range(300)] for p in range(6)]), ", max_rows => 500")
    seen: dict[Any, Any] = {}
    position, sizes = 0, Counter[str]()
    while position == 0 or sum(sizes.values()) < 1800:
        end, _ = found.advance(position, 10_000)
        for chunk in found.read(position, end, frozenset()):
            seen.setdefault(chunk.partition, []).extend(chunk.rows["ts"].to_list())
            sizes[str(chunk.partition)] += chunk.rows.height
        position = end
    assert seen == {str(p): [1000 * p + n for n in range(300)] for p in range(6)}
    found.close()


def test_a_frame_has_the_columns_that_were_declared(broker: Broker) -> None:
    found = source(broker, topic(broker, [1]))
    end, _ = found.advance(0, 10)
    [chunk] = found.read(0, end, frozenset({"k"}))
    assert chunk.rows.schema == {"k": pl.Int32, "ts": pl.Int64, "@from": pl.Int64}
    found.close()


def test_secrets_are_not_shown(broker: Broker, database: Database) -> None:
    name = topic(broker, [1])
    settings = "\"sasl.password\" => 'pa55', \"client.id\" => 'me'"
    database.sql(
        f"CREATE STREAM s {COLUMNS} SOURCE kafka('{broker.servers}', topic => '{name}', {settings}) ORDERED BY ts"
    )
    told = str(database.sql("DESCRIBE s")) + str(database.sql("SHOW STREAMS"))
    assert "pa55" not in told and "\"sasl.password\" => '***', \"client.id\" => 'me'" in told


def test_why_nothing_comes_names_the_partition(broker: Broker, database: Database) -> None:
    query = ask(
        database, broker, topic(broker, [1, 2, 3], []), "",
        query="SELECT k, COUNT(*) AS n FROM s [RANGE 5 MICROSECONDS] GROUP BY k",
    )  # fmt: skip
    wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 3)
    assert "partition 1 of s has sent no row" in query.why()
    assert "IDLE AFTER" in query.why()
