"""From what Spark says to what the user should read: our errors pass through the JVM as text."""

from __future__ import annotations

import base64
import pickle
import re

from strandline.errors import QueryError, StrandlineError
from strandline.faults import explain_fault_text

_MARK = "STRANDLINE-ERROR "
_LONGEST = 300  # characters of a message


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
    if (fault := explain_fault_text(text)) is not None:
        return fault
    return QueryError(
        f"the query has failed: {summary(text)}",
        code="query-failed",
        hint=f"The whole story is in {log_file}." if log_file else "Run with --debug for the whole trace.",
        detail=None,
    )


def summary(text: str) -> str:
    """The one line of what Spark says that tells most: that of its own error with a name, else the last Python line."""
    lines = [line.strip() for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    if lines and re.match(r"\[[A-Z][A-Z_.0-9]+\]", lines[0]):
        return lines[0].split(" SQLSTATE:")[0][:_LONGEST]
    python = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)\b", line)]
    return (python or lines or ["no message"])[-1 if python else 0][:_LONGEST]
