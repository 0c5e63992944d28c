"""From what Spark says to what the user should read: our errors pass through the JVM as text."""

from __future__ import annotations

import base64
import pickle
import re

from strandline.errors import QueryError, StrandlineError

_MARK = "STRANDLINE-ERROR "


def guarded(error: StrandlineError) -> str:
    """An error as a message that `explain_failure` finds again in whatever Spark makes of it."""
    data = base64.b64encode(pickle.dumps(error)).decode()
    return f"{_MARK}{data} {error}"


def explain_failure(text: str, log_file: str | None) -> StrandlineError:
    """Our own error if one travelled through the JVM, else the last Python line of the trace."""
    marked = re.search(re.escape(_MARK) + r"([A-Za-z0-9+/=]+)", text)
    if marked:
        error = pickle.loads(base64.b64decode(marked.group(1)))
        if isinstance(error, StrandlineError):
            return error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)\b", line)]
    summary = (python or lines or ["no message"])[-1 if python else 0]
    return QueryError(
        f"the query has failed: {summary[:300]}",
        code="query-failed",
        hint=f"The whole story is in {log_file}." if log_file else "Run with --debug for the whole trace.",
        detail=None,
    )
