"""Webhook sink: results by HTTP POST."""

from __future__ import annotations

import base64
import json
import random
import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from strandline.connectors.sinks.base import ResumePoint, Sink, SinkArguments, SinkBatch, SinkWriter, refuse_duplicates
from strandline.connectors.sinks.http_exchange import Address, HttpExchange, Interrupted, Response
from strandline.connectors.sinks.row_format import iso_instant, json_rows
from strandline.connectors.traits import Traits
from strandline.core.errors import SinkError
from strandline.core.log import SINK, WARNING, log_event
from strandline.core.security.allow import Allow, Host, Reach
from strandline.core.security.redaction import redact
from strandline.core.security.secret import Secret, concealed, reveal
from strandline.core.types import Schema
from strandline.runtime.result import result_schema

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds; the pause doubles from one attempt to the next
_GRACE = 1.0  # seconds for a request on its way when the query is stopped
_RETRIED_STATUSES: Final = (408, 425, 429, 500, 502, 503, 504)
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_OURS: Final = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "idempotency-key",
    "expect",
    "upgrade",
    "te",
]


@dataclass(frozen=True, slots=True, repr=False)
class Webhook(Sink):
    """POST the elements of every non-empty batch, as JSON.

    Delivery is at least once. A repeated request has the same `Idempotency-Key`. `token` is sent as `Authorization:
    Bearer …`, a user and a password in the URL as `Basic`. Up to `redirects` redirections are followed; other hosts
    than that of the URL get no credentials and no `headers`.
    """

    kind: ClassVar[str] = "webhook"
    traits: ClassVar[Traits] = Traits(
        False, True, False, "at least once; a repeated request has the same Idempotency-Key"
    )

    url: str | Secret
    rows: int = 1000  # maximum per request
    attempts: int = 6
    timeout: float = 10.0  # for the whole exchange
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    redirects: int = 0  # maximum number that is followed
    token: str | Secret | None = None
    allow: Allow | None = None  # confinement of redirections

    def __repr__(self) -> str:
        return f"Webhook({self.display_location})"

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        url = arguments.required_or_secret(0, "url")
        rows = arguments.option("rows", int, 1000)
        attempts = arguments.option("attempts", int, 6)
        timeout = arguments.option("timeout", int, 10)
        headers = arguments.option("headers", list, None)
        redirects = arguments.option("redirects", int, 0)
        token = arguments.secret(arguments.option("token", (str, Secret), None), "token")
        arguments.done(most=1)
        if min(rows, attempts, timeout) < 1 or redirects < 0:
            raise arguments.error("rows, attempts and timeout of webhook() must be at least 1, redirects at least 0")
        try:
            if not isinstance(url, Secret):
                Address.parse(url)
        except ValueError as error:
            raise arguments.error(f"invalid url of webhook(): {error}") from None
        try:
            parsed = {} if headers is None else _headers(headers)
        except ValueError as error:
            raise arguments.error(f"invalid headers of webhook(): {error}") from None
        return cls(url, rows, attempts, float(timeout), parsed, redirects, token)

    def open(self, query: str, columns: Schema) -> SinkWriter:
        refuse_duplicates(result_schema(columns).names)
        return _WebhookWriter(self, query)

    def reaches(self) -> list[Reach]:
        try:
            address = Address.parse(reveal(self.url))
        except ValueError as error:
            raise _unusable(str(error)) from None
        return [Host(address.host, address.port)]

    def confined(self, allow: Allow) -> Self:
        return replace(self, allow=allow)

    @property
    def display_location(self) -> str:
        return repr(self.url) if isinstance(self.url, Secret) else redact(self.url)


def _headers(lines: list[object]) -> dict[str, str | Secret]:
    """The headers of `('Name: value', secret('env:LINE'), …)`; a secret is a whole line, and is read later."""
    headers: dict[str, str | Secret] = {}
    for number, line in enumerate(lines):
        if isinstance(line, Secret):
            headers[f"secret {number}"] = line
            continue
        name, value = _header(str(line))
        headers[name] = value
    return headers


def _header(line: str) -> tuple[str, str]:
    """The name and the value of a line; raises ValueError without showing it."""
    name, between, value = line.partition(":")
    name, value = name.strip(" \t"), value.strip(" \t")
    if not between or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise ValueError("headers must have the form 'Name: value'")
    if name.lower() in _OURS:
        raise ValueError(f"the header {name} cannot be overridden")
    return name, value


def _unusable(reason: str) -> SinkError:
    return SinkError(
        f"invalid URL or header of a webhook: {reason}",
        code="sink-argument",
        hint="Correct the secret or the argument that it comes from.",
    )


class _WebhookWriter(SinkWriter):
    def __init__(self, sink: Webhook, query: str) -> None:
        self._sink, self._query = sink, query
        self._owner = ""
        self._exchange: HttpExchange | None = None
        self._address: Address | None = None
        self._credentials: dict[str, str] = {}

    def prepare(self, resume_point: ResumePoint) -> None:
        self._owner = resume_point.owner
        try:
            self._address, self._credentials = self._revealed()
        except ValueError as error:
            raise _unusable(str(error)) from None

    def _revealed(self) -> tuple[Address, dict[str, str]]:
        """Target of requests, and the headers for this host only."""
        url = reveal(self._sink.url)
        headers: dict[str, str] = {}
        parts = urllib.parse.urlsplit(url)
        if parts.username is not None or parts.password is not None:
            user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        if self._sink.token is not None:
            name, value = _header(f"Authorization: Bearer {concealed(self._sink.token).reveal()}")
            headers[name] = value
        for given, content in self._sink.headers.items():
            is_line = isinstance(content, Secret) and given.startswith("secret ")
            name, value = _header(reveal(content) if is_line else f"{given}: {reveal(content)}")
            headers = {other: kept for other, kept in headers.items() if other.lower() != name.lower()}
            headers[name] = value
        return Address.parse(url), headers

    def write(self, sink_batch: SinkBatch) -> None:
        rows = json_rows(sink_batch.table)
        parts = [rows[first : first + self._sink.rows] for first in range(0, len(rows), self._sink.rows)]
        for number, part in enumerate(parts):
            facts = {
                "query": self._query,
                "batch": sink_batch.batch,
                "part": number + 1,
                "parts": len(parts),
                "complete_until": iso_instant(sink_batch.complete_until),
            }
            # The rows are JSON already.
            body = f'{json.dumps(facts)[:-1]}, "rows": [{", ".join(part)}]}}'
            # A name may have signs that a header cannot have.
            query = urllib.parse.quote(self._query, safe=" !#$&'()*+,/:;=?@[]~")
            self._post(body.encode(), f"{self._owner}-{query}-{sink_batch.batch}-{number + 1}")

    def _post(self, body: bytes, key: str) -> None:
        pause = _FIRST_PAUSE
        for attempt in range(1, self._sink.attempts + 1):
            if self.stopping.is_set():
                raise self.interruption(self._sink.display_location)
            try:
                response = self._exchanged(body, key)
                if 200 <= response.status < 300:
                    return
                problem = f"the response was {response.status} {response.reason}"
                if response.status not in _RETRIED_STATUSES:
                    break
                pause = max(pause, _asked_pause(response))
            except Interrupted:
                raise self.interruption(self._sink.display_location) from None
            except OSError as error:  # no connection, a connection that broke, or no response in time
                problem = str(error) or type(error).__name__
            if attempt < self._sink.attempts:
                # Not all senders that one receiver has thrown out come back at the same moment.
                wait = min(pause, _LONGEST_PAUSE) * random.uniform(0.75, 1.0)
                about = {"attempt": attempt + 1, "attempts": self._sink.attempts, "pause_s": wait}
                log_event(SINK, WARNING, "sink retried", location=self._sink.display_location, message=problem, **about)
                self.stopping.wait(wait)
                pause *= 2
        if self.stopping.is_set():
            raise self.interruption(self._sink.display_location)
        raise SinkError(
            f"cannot send a batch of {self._query} to {self._sink.display_location}",
            code="sink-failed",
            detail=f"After {attempt} attempts {problem}.",
            hint="Fix the cause and restart the query; the batch is sent again.",
        )

    def _exchanged(self, body: bytes, key: str) -> Response:
        """Response to one attempt, after the allowed redirections."""
        assert self._address is not None, "prepare was called"
        deadline = time.monotonic() + self._sink.timeout
        address, credentials = self._address, self._credentials
        for _ in range(self._sink.redirects + 1):
            headers = {"Content-Type": "application/json", **credentials, "Idempotency-Key": key}
            self._exchange = HttpExchange(deadline)
            response = self._exchange.post(address, body, headers)
            if response.status not in _REDIRECTS:
                return response
            following = self._following(address, response)
            if following.origin != address.origin:
                credentials = {}
            address = following
        raise self._redirected(f"there were more than {self._sink.redirects}", address)

    def _following(self, address: Address, response: Response) -> Address:
        """Target of a redirection, if it may be followed."""
        following, allow = address.follow(response.location), self._sink.allow
        if not self._sink.redirects:
            raise self._redirected(f"the response was {response.status}", following)
        if following is None:
            raise self._redirected("its location is missing or not an HTTP URL", following)
        if address.scheme == "https" and following.scheme != "https":
            raise self._redirected("it leads from https to http", following)
        if allow is not None and not allow.permits_host(following.host, following.port):
            raise self._redirected("it leads to a host that is not allowed", following)
        return following

    def _redirected(self, reason: str, following: Address | None) -> SinkError:
        target = "nowhere" if following is None else str(following)
        return SinkError(
            f"{self._sink.display_location} redirects a batch of {self._query}",
            code="webhook-redirect",
            detail=f"The redirect to {target[:200]} was not followed: {reason}.",
            hint="Use the final address, or redirects => 1 to follow. The batch is then sent again.",
        )

    def interrupt(self) -> None:
        super().interrupt()
        if self._exchange is not None:
            self._exchange.interrupt(_GRACE)

    def close(self) -> None:
        self.interrupt()


def _asked_pause(response: Response) -> float:
    """Retry-After of the receiver in seconds, if given."""
    asked = response.retry_after
    return float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0.0
