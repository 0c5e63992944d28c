"""Logging: loggers by area, line format, and handlers on request.

    strandline.engine     queries: started, ended, stopped, failed
    strandline.recovery   checkpoints: resumed, batches that are repeated
    strandline.batch      a line per batch, at DEBUG
    strandline.input      late and rejected rows, connections of sources
    strandline.notice     notices, which a program without handlers has on standard error
    strandline.shedding   changes of the sampling rates
    strandline.sink       attempts that are repeated, locks that are waited for
    strandline.spark      Spark: started, lost, restarted, stopped

A line is an event and its facts, `query started name=totals engine=spark shards=2`, without secrets. Importing the
package installs a NullHandler only: nothing is printed unless the program, an option or STRANDLINE_LOG enables it.
"""

from __future__ import annotations

import json
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from strandline.core.errors import StrandlineError, printable
from strandline.core.security.redaction import redact

ENGINE: Final = logging.getLogger("strandline.engine")
RECOVERY: Final = logging.getLogger("strandline.recovery")
BATCH: Final = logging.getLogger("strandline.batch")
INPUT: Final = logging.getLogger("strandline.input")
NOTICE: Final = logging.getLogger("strandline.notice")
SHEDDING: Final = logging.getLogger("strandline.shedding")
SINK: Final = logging.getLogger("strandline.sink")
SPARK: Final = logging.getLogger("strandline.spark")

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
LEVELS: Final = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
VARIABLE: Final = "STRANDLINE_LOG"  # a level, or level:file

_PLAIN: Final = re.compile(r'[^\s"=]+')
_handlers: Final[dict[Path | None, logging.Handler]] = {}  # by file; None is standard error


# Lines


def log_event(logger: logging.Logger, level: int, event: str, /, **facts: object) -> None:
    """Log one line: the event, then its facts as key=value. Facts that are None are left out."""
    if logger.isEnabledFor(level):
        shown = [f"{key}={_show_fact(value)}" for key, value in facts.items() if value is not None]
        logger.log(level, "%s", " ".join([event, *shown]), stacklevel=2)


def _show_fact(value: object) -> str:
    """A value as one word, or in double quotes: a value cannot imitate another fact or another line."""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = redact(str(value))
    return printable(text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False))


def log_query_end(name: str, failure: BaseException | None, *, ended: bool, last_batch: int) -> None:
    """Log how a query came to its end: it failed, its sources ended, or it was stopped."""
    if failure is not None:
        log_failure("query failed", name, failure, last_batch=last_batch)
    else:
        log_event(ENGINE, INFO, "query ended" if ended else "query stopped", name=name, last_batch=last_batch)


def log_failure(event: str, name: str, failure: BaseException, **facts: object) -> None:
    """Log an error of a query by its code, or by its type if it is not ours."""
    if isinstance(failure, StrandlineError):
        code, message = failure.code, failure.message
    else:
        code, message = type(failure).__name__, str(failure)
    log_event(ENGINE, ERROR, event, name=name, code=code, message=message, **facts)


# Where lines go


def start_log(path: Path | None = None, level: str | None = None) -> None:
    """Install a handler for `path`, or standard error, if an argument or the environment variable enables one.

    An argument precedes its part of the variable. A second call for the same destination changes its level.
    """
    default_level, _, default_path = os.environ.get(VARIABLE, "").partition(":")
    if path is None and default_path:
        path = Path(default_path)
    if path is not None or level or default_level:
        write_log(path, level or default_level or "info")


def start_log_once() -> None:
    """Follow the environment variable, unless lines are written already."""
    if not _handlers:
        start_log()


def write_log(path: Path | None, level: str = "info") -> None:
    """Write lines of `level` and above to a file, or to standard error."""
    number = parse_level(level)
    key = path.absolute() if path is not None else None
    package = logging.getLogger("strandline")
    if key not in _handlers:
        _handlers[key] = _open_handler(path)
        package.addHandler(_handlers[key])
    _handlers[key].setLevel(number)
    package.setLevel(min(handler.level for handler in _handlers.values()))


def parse_level(text: str) -> int:
    """The level of a name, in any case."""
    try:
        return LEVELS[text.strip().lower()]
    except KeyError:
        raise StrandlineError(
            f'unknown log level "{text}"', code="log-level", hint=f"Levels are {', '.join(LEVELS)}."
        ) from None


def _open_handler(path: Path | None) -> logging.Handler:
    try:
        handler = logging.StreamHandler() if path is None else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise StrandlineError(
            f"cannot write the log {path}", code="log-unwritable", detail=str(error), hint="Choose another file."
        ) from None
    handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    return handler


class _LineFormatter(logging.Formatter):
    """One line per record, time in UTC. Records of libraries (py4j, librdkafka) come here unredacted."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)).replace("\n", " "))
