"""Answers sent to a web address."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from strandline.errors import SinkError
from strandline.execution.answers import answer_schema
from strandline.plugins import Traits
from strandline.sinks.base import Arguments, Delivered, Outlet, Sink, Standing, refuse_twice
from strandline.sinks.rows import iso_instant, json_rows
from strandline.types import Schema

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds; the pause doubles from one attempt to the next
_WORTH_ANOTHER_TRY: Final = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Webhook(Sink):
    """POST the elements of every batch that brings some, as JSON.

    Delivery is at least once. A request that is repeated has the same `Idempotency-Key`, so that the receiver can tell.
    """

    kind: ClassVar[str] = "webhook"
    traits: ClassVar[Traits] = Traits(
        False, True, False, "at least once; what is sent again has the same Idempotency-Key"
    )

    url: str
    rows: int = 1000  # at most so many in a request
    attempts: int = 6
    timeout: float = 10.0
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_arguments(cls, arguments: Arguments) -> Self:
        url = arguments.required(0, "url")
        rows = arguments.option("rows", int, 1000)
        attempts = arguments.option("attempts", int, 6)
        timeout = arguments.option("timeout", int, 10)
        headers = arguments.option("headers", list, None)
        arguments.done(most=1)
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise arguments.error(f"url of webhook() begins with http:// or https://, not {url!r}")
        if min(rows, attempts, timeout) < 1:
            raise arguments.error("rows, attempts and timeout of webhook() are at least 1")
        return cls(url, rows, attempts, float(timeout), pairs(arguments, "headers", headers, ":"))

    def open(self, query: str, columns: Schema) -> Outlet:
        refuse_twice(answer_schema(columns).names)
        return _Posting(self, query)

    @property
    def shown(self) -> str:
        return self.url


def pairs(arguments: Arguments, option: str, values: list[object] | None, separator: str) -> dict[str, str]:
    """An option such as `('name: value', …)`."""
    found = {}
    for value in values or []:
        name, between, content = str(value).partition(separator)
        if not between or not name.strip():
            raise arguments.error(f"option {option} has texts of the form 'name{separator} value', not {value!r}")
        found[name.strip()] = content.strip()
    return found


class _Posting(Outlet):
    def __init__(self, sink: Webhook, query: str) -> None:
        self._sink, self._query = sink, query
        self._owner = ""

    def begin(self, standing: Standing) -> None:
        self._owner = standing.owner

    def take(self, delivered: Delivered) -> None:
        rows = json_rows(delivered.table)
        parts = [rows[first : first + self._sink.rows] for first in range(0, len(rows), self._sink.rows)]
        for number, part in enumerate(parts):
            facts = {
                "query": self._query,
                "batch": delivered.batch,
                "part": number + 1,
                "parts": len(parts),
                "complete_until": iso_instant(delivered.complete_until),
            }
            # The rows are JSON already.
            body = f'{json.dumps(facts)[:-1]}, "rows": [{", ".join(part)}]}}'
            self._post(body.encode(), f"{self._owner}-{self._query}-{delivered.batch}-{number + 1}")

    def _post(self, body: bytes, key: str) -> None:
        headers = {"Content-Type": "application/json", **self._sink.headers, "Idempotency-Key": key}
        request = urllib.request.Request(self._sink.url, body, headers, method="POST")
        pause = _FIRST_PAUSE
        for attempt in range(1, self._sink.attempts + 1):
            try:
                with urllib.request.urlopen(request, timeout=self._sink.timeout) as response:
                    response.read()
                    return
            except urllib.error.HTTPError as error:
                problem = f"the answer was {error.code} {error.reason}"
                if error.code not in _WORTH_ANOTHER_TRY:
                    break
                pause = max(pause, _asked_pause(error))
            except OSError as error:  # no connection, a connection that broke, or no answer in time
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt < self._sink.attempts:
                time.sleep(min(pause, _LONGEST_PAUSE))
                pause *= 2
        raise SinkError(
            f"{self._sink.url} did not take a batch of {self._query}",
            code="sink-failed",
            detail=f"After {attempt} attempts {problem}.",
            hint="Mend it and start the same query again: the batch is sent again.",
        )


def _asked_pause(error: urllib.error.HTTPError) -> float:
    """What the receiver asks for, if it says so in seconds."""
    asked = error.headers.get("Retry-After", "") if error.headers is not None else ""
    return float(asked) if asked.isdigit() else 0.0
