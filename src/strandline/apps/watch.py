"""`strandline run --watch`: run a script, and run it again whenever its statements change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import strandline
from strandline.apps.connection import connect_engine, parse_engine, stoppable, to_console
from strandline.apps.console import err_console, read_file
from strandline.apps.run_script import ScriptRun, run_statements, start_over
from strandline.core.errors import ParseError, StrandlineError
from strandline.core.security.allow import Allow

if TYPE_CHECKING:
    from strandline.database.database import Database

_LOOK_SECONDS: Final = 0.1
_SETTLED_SECONDS: Final = 0.2
# What a restart finds that was made by other statements, or cannot be resumed: starting over is the way out.
_OUTDATED: Final = (
    "checkpoint-foreign",
    "script-changed",
    "update-refused",
    "local-restart",
    "results-exist",
    "table-replaced",
)


class WatchedScript:
    """The text of a script, and whether its statements have changed since it was read; blanks and comments do not
    count.

    Editors write a file in two steps, and between them it is empty or cut: a text counts when it has stood for
    `_SETTLED_SECONDS`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.text = read_file(path)
        self._newer = self.text
        self._newer_since = time.monotonic()

    def has_changed(self) -> bool:
        """Whether other statements have been written. If so, `text` has them."""
        try:
            newest = read_file(self._path)
        except StrandlineError:
            return False  # an editor may be replacing it
        if newest != self._newer:
            self._newer, self._newer_since = newest, time.monotonic()
        if newest == self.text or time.monotonic() - self._newer_since < _SETTLED_SECONDS:
            return False
        before, self.text = self.text, newest
        return _statements(newest) != _statements(before)

    def wait(self) -> None:
        while not self.has_changed():
            time.sleep(_LOOK_SECONDS)


def watch_script(run: ScriptRun) -> None:
    """Run a script until Ctrl-C, again and again. Where its plan is the same, it resumes; else it starts over."""
    script = WatchedScript(run.script)
    fresh = run.fresh
    with stoppable(), _engine(run) as connect:
        while True:
            text = script.text
            try:
                if fresh:
                    start_over(run, text)
                with connect() as database:
                    ended = run_statements(run, database, text, script.has_changed)
                fresh = False
            except StrandlineError as error:
                err_console.print(error.render(), markup=False, soft_wrap=True)
                fresh = not fresh and error.code in _OUTDATED and (run.fresh or _asks_to_start_over())
                if fresh:
                    continue
                ended = True
            if ended:
                _say(f"waiting for {run.script} to change; Ctrl-C leaves")
                script.wait()
            _say(f"{run.script} has changed")


@contextmanager
def _engine(run: ScriptRun) -> Iterator[Callable[[], Database]]:
    """How each run connects. Spark is started once."""
    if parse_engine(run.engine) == "local":
        yield lambda: connect_engine("local", run.allow, tables=run.tables, **run.options)
        return
    with connect_engine("spark", run.allow, master=run.options.get("master")) as first:
        options = {name: value for name, value in run.options.items() if name != "master"}
        allow = Allow.parse(run.allow or ())
        yield lambda: to_console(strandline.connect(spark=first.spark, allow=allow, tables=run.tables, **options))


def _statements(text: str) -> list[str] | str:
    """The words of a script; its text, where they cannot be separated."""
    from strandline.sql.lexer import tokenize

    try:
        return [token.value for token in tokenize(text)]
    except ParseError:
        return text


def _asks_to_start_over() -> bool:
    if not sys.stdin.isatty():
        return False
    err_console.print("Start over, and delete the old results? [y/N] ", end="", markup=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    err_console.print(text, markup=False, soft_wrap=True, style="bright_black")
