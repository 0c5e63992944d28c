"""Resources of librdkafka settings: brokers, files of keys and certificates, and settings that no rule bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from strandline.core.security.allow import FilePath, Host, Reach, Unconfined
from strandline.core.security.secret import Secret, reveal

# Settings that name neither a file nor a host nor a command. Others load libraries (plugin.library.paths) or run
# commands (sasl.kerberos.kinit.cmd), and newer versions of the library may bring more: only these pass.
_HARMLESS: Final = re.compile(
    r"(security\.protocol|sasl\.(mechanisms?|username|password)|ssl\.(key\.password|(key|certificate|ca)\.pem"
    r"|cipher\.suites|curves\.list|sigalgs\.list|endpoint\.identification\.algorithm)"
    r"|enable\.ssl\.certificate\.verification|isolation\.level|client\.(id|rack)|group\.instance\.id"
    r"|(fetch|queued|queue|message|receive\.message|session|heartbeat|max|socket|reconnect|retry|request|batch|linger"
    r"|compression|metadata\.max|topic\.metadata|connections\.max|broker\.address|transaction|delivery|acks)[\w.]*)"
)
_FILES: Final = re.compile(r"ssl\.[\w.]*location|sasl\.kerberos\.keytab|https\.ca\.location")


def kafka_reaches(servers: str, settings: Mapping[str, object]) -> list[Reach]:
    """The brokers of `host:port, …`, and the resources of the settings."""
    reaches: list[Reach] = [_broker(server) for server in servers.split(",") if server.strip()]
    for name, value in settings.items():
        text = reveal(value) if isinstance(value, Secret) else str(value)
        folded = name.lower()
        if _FILES.fullmatch(folded):
            reaches.append(FilePath(text))
        elif folded.startswith("sasl.oauthbearer.") and folded.endswith("url"):
            reaches.append(Host(urlsplit(text).hostname or text))
        elif not _HARMLESS.fullmatch(folded):
            reaches.append(Unconfined(f"the setting {name} of Kafka's library"))
    return reaches


def _broker(server: str) -> Host:
    address = server.strip().rpartition("://")[2]  # PLAINTEXT://host:port is a form of it
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        return Host(address.strip("[]"), 9092)
    return Host(host.strip("[]"), int(port))
