"""A Kafka broker for tests: the mock cluster of librdkafka, which other processes can connect to as well."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

# The extension module depends on librdkafka, so its symbols are found through it wherever the wheel put the library.
_lib = ctypes.CDLL(cimpl.__file__)
_lib.rd_kafka_conf_new.restype = ctypes.c_void_p
_lib.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
_lib.rd_kafka_new.restype = ctypes.c_void_p
_lib.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
_lib.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
_lib.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
_lib.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
_lib.rd_kafka_mock_cluster_destroy.argtypes = [ctypes.c_void_p]
_lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
_lib.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
_lib.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
_lib.rd_kafka_mock_partition_delete_records.argtypes = [
    ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
]  # fmt: skip


class Broker:
    """One broker with topics of our choice; lives until `close`."""

    def __init__(self) -> None:
        said = ctypes.create_string_buffer(512)
        conf = _lib.rd_kafka_conf_new()
        _lib.rd_kafka_conf_set(conf, b"log_level", b"0", said, 512)
        self._handle = _lib.rd_kafka_new(0, conf, said, 512)
        self._cluster = _lib.rd_kafka_mock_cluster_new(self._handle, 1)
        self.servers = _lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 2, "log_level": 0})

    def close(self) -> None:
        self._producer.flush()
        del self._producer
        _lib.rd_kafka_mock_cluster_destroy(self._cluster)
        _lib.rd_kafka_destroy(self._handle)

    def create(self, topic: str, partitions: int) -> str:
        assert _lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0
        return topic

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        assert _lib.rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), partition, offset) == 0

    def send(self, topic: str, partition: int, values: Iterable[bytes | Mapping[str, Any] | None], **more: Any) -> None:
        """Messages in order; a mapping is sent as JSON."""
        for value in values:
            data = json.dumps(value).encode() if isinstance(value, Mapping) else value
            while True:
                try:
                    self._producer.produce(topic, data, partition=partition, **more)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(20) == 0
