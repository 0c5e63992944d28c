"""Error translation: our errors pass through the JVM as authenticated text.

Spark's messages contain foreign texts: rows, names of queries, responses of servers. So our errors are marked, are JSON
and not executable, and are authenticated with a secret of the run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets

from strandline.core.errors import QueryError, StrandlineError
from strandline.core.faults import explain_fault_text

_MARK = "STRANDLINE-ERROR"
_LONGEST = 300  # characters of a message


def new_secret() -> str:
    """A secret for one run, shared by the driver and its workers."""
    return secrets.token_hex(32)


def seal_error(error: StrandlineError, secret: str) -> str:
    """An error as a message that `explain_failure` finds again in whatever Spark makes of it."""
    data = base64.b64encode(json.dumps(error.to_json()).encode()).decode()
    return f"{_MARK} {_sign(data, secret)} {data} {error}"


def explain_failure(text: str, secret: str, log_file: str | None) -> StrandlineError:
    """Our own error if one of this run travelled through the JVM, else the last Python line of the trace."""
    for signature, data in re.findall(rf"{_MARK} ([0-9a-f]{{64}}) ([A-Za-z0-9+/=]+)", text):
        if hmac.compare_digest(signature, _sign(data, secret)):
            return StrandlineError.from_json(json.loads(base64.b64decode(data)))
    if (fault := explain_fault_text(text)) is not None:
        return fault
    return QueryError(
        f"the query has failed: {summary(text)}",
        code="query-failed",
        hint=f"See {log_file} for details." if log_file else "Run with --debug for the stack trace.",
        detail=None,
    )


def _sign(data: str, secret: str) -> str:
    return hmac.new(bytes.fromhex(secret), data.encode(), hashlib.sha256).hexdigest()


def summary(text: str) -> str:
    """The most informative line of Spark's message: that of its own named error, else the last Python line."""
    lines = [line.strip() for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    if lines and re.match(r"\[[A-Z][A-Z_.0-9]+\]", lines[0]):
        return lines[0].split(" SQLSTATE:")[0][:_LONGEST]
    python = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)\b", line)]
    return (python or lines or ["no message"])[-1 if python else 0][:_LONGEST]
