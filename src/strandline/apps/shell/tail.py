"""Live tail: a result as it grows, with a status line; Ctrl-C leaves it, and the query keeps running.

The terminal is in raw mode here, so Ctrl-C is a key and not a signal: it cannot hit a call to the JVM or a running
computation.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI, FormattedText
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from rich.console import Group, RenderableType
from rich.text import Text

from strandline.apps.console import SafeConsole
from strandline.apps.shell.session import Session, SessionQuery, failure, named_error, rows_of
from strandline.apps.shell.style import STYLE
from strandline.apps.shell.views import FORMS, Form, Screen, show
from strandline.core.errors import StrandlineError
from strandline.core.notices import Notice
from strandline.core.temporal import BEFORE_ALL
from strandline.database.introspection.progress_meter import spinner

_LOOK_SECONDS: Final = 0.2
_DIAGNOSE_AFTER_S: Final = 8.0  # seconds without rows until a hint is shown
_OTHER_LINES: Final = 7  # lines of the screen that are not rows: title, head, hidden columns, phase, status, a blank


def follow(session: Session, begin: Callable[[], SessionQuery], form: Form | None) -> None:
    """Start a query, or show a running one, until the user leaves or it ends."""
    Tail(session, begin, form).run()


class Tail:
    def __init__(self, session: Session, begin: Callable[[], SessionQuery], form: Form | None) -> None:
        self.session = session
        self.form = form
        self.entry: SessionQuery | None = None
        self.error: StrandlineError | None = None
        self._begin = begin
        self._given_up = False
        self._began = time.monotonic()
        self._body: Any = ""
        self._status = ""
        self._shown_notices: list[Notice] = []
        self._next_notices = 0.0
        self._app: Application[None] = self._application()

    def run(self) -> None:
        worker = threading.Thread(target=self._work, name="strandline-begin", daemon=True)
        worker.start()
        worker.join(0.05)  # an immediate outcome, such as a syntax error, needs no screen
        over = self.entry is not None and not self.entry.query.is_running
        if self.error is None and not over:
            with self.session.startup.ending.screen(self._app), contextlib.suppress(EOFError):
                self._app.run(pre_run=self._watch_along)
        if self.entry is None and self.error is None and self.session.startup.ready.is_set():
            worker.join()  # it is being planned: a moment
        self._given_up = True
        if self.error is not None:
            raise self.error
        if self.entry is None:
            self.session.say("not started: the engine is not ready")
        else:
            self._show_outcome(self.entry)

    def _work(self) -> None:
        try:
            while not self.session.startup.ready.wait(0.1):
                if self._given_up:
                    return
            self.entry = self._begin()
            self.form = self.form or self.entry.form
        except Exception as error:
            self.error = named_error(error)

    # ---- while it is shown -------------------------------------------------------------------------------------------

    def _watch_along(self) -> None:
        self._app.create_background_task(self._watch())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not await loop.run_in_executor(None, self._look):
                self._app.invalidate()
                await asyncio.sleep(_LOOK_SECONDS)
        except Exception as error:
            self.error = named_error(error)
        if self._app.is_running:
            self._app.exit()

    def _look(self) -> bool:
        """Refresh the view; true if there is nothing more to come."""
        if self.error is not None:
            return True
        entry = self.entry
        if entry is None:
            startup = self.session.startup
            self._wait("planning" if startup.ready.is_set() else startup.phase)
            return False
        over = entry.query.state != "running"
        entry.meter.look()
        if entry.first_batch is None and entry.query.progress > BEFORE_ALL:
            entry.first_batch = time.monotonic()
        self._status = f"{entry.label} │ {entry.meter.line()}"
        phase = entry.meter.phase()
        if entry.query.progress == BEFORE_ALL:
            self._wait((phase or "waiting for the first rows") + self._advice(entry))
        else:
            self._draw(entry, phase)
        return over

    def _advice(self, entry: SessionQuery) -> str:
        waits_long = entry.meter.metrics[0]["batches"] and time.monotonic() - self._began > _DIAGNOSE_AFTER_S
        return f" (Ctrl-C, then .why {entry.id} shows the cause)" if waits_long else ""

    def _wait(self, phase: str) -> None:
        self._body = f"{spinner()} {phase}  {time.monotonic() - self._began:.0f} s"

    def _draw(self, entry: SessionQuery, phase: str | None) -> None:
        if entry.feed is None:
            self._body = f"the result of {entry.label} goes to its sink; {rows_of(entry)} so far"
            return
        entry.feed.look()
        size = self._app.output.get_size()
        notices = [Text(str(notice), style="yellow") for notice in self._notices(entry)]
        lines = size.rows - _OTHER_LINES - sum(1 + len(notice) // size.columns for notice in notices)
        screen = Screen(max(lines, 3), size.columns, self.session.expanded)
        shown = as_ansi(Group(show(entry.feed, self.form or "table", screen), *notices), size.columns)
        self._body = ANSI(shown.rstrip("\n") + (f"\n{spinner()} {phase}" if phase else ""))

    def _notices(self, entry: SessionQuery) -> list[Notice]:
        """What there is to know of the query, looked up once a second."""
        now = time.monotonic()
        if now >= self._next_notices:
            self._shown_notices, self._next_notices = entry.query.notices(), now + 1.0
        return self._shown_notices

    def _application(self) -> Application[None]:
        body = Window(FormattedTextControl(lambda: self._body), wrap_lines=False, dont_extend_height=True)
        status = Window(FormattedTextControl(self._status_line), height=1, style="class:bottom-toolbar")
        layout = Layout(HSplit([body, status]))
        return Application(layout, key_bindings=self._keys(), style=STYLE, erase_when_done=True)

    def _status_line(self) -> FormattedText:
        keys = " Ctrl-C leaves" if self.entry is None else " Tab: format, Ctrl-C leaves"
        facts = f" {self._status}" if self._status else ""
        whole = f"{facts} │{keys}" if facts else keys
        width = self._app.output.get_size().columns - 1
        return FormattedText([("", whole if len(whole) <= width else facts[:width])])

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("c-d")
        @keys.add("q")
        def _(event: KeyPressEvent) -> None:
            event.app.exit()

        @keys.add("tab")
        def _(event: KeyPressEvent) -> None:
            self.form = FORMS[(FORMS.index(self.form or "table") + 1) % len(FORMS)]

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            return

        @keys.add(Keys.Any)
        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            # Other keys belong to the prompt: none is lost.
            if event.data.isprintable() or event.key_sequence[0].key == Keys.BracketedPaste:
                self.session.typed += event.data
                event.app.exit()

        return keys

    # ---- when it is over ---------------------------------------------------------------------------------------------

    def _show_outcome(self, entry: SessionQuery) -> None:
        """Leave the last view on the screen, and report the state."""
        session, query = self.session, entry.query
        state = query.state
        if state == "failed":
            entry.announced = True
            session.failures += 1
            session.say(failure(query), style="red")
            return
        if query.progress > BEFORE_ALL and entry.feed is not None:
            screen = session.screen(max(session.console.height - _OTHER_LINES, 3))
            session.print_now(entry, self.form or "table", screen)
        if state == "running":
            session.say(f"{entry.label} is still running: .tail {entry.id} shows it again, .stop {entry.id} ends it")
        else:
            entry.announced = True
            session.say(self._ended(entry, state))
        if session.timing:
            first = f", first batch after {entry.first_batch - entry.asked:.3f} s" if entry.first_batch else ""
            session.say(f"time: planned and started in {entry.planned - entry.asked:.3f} s{first}")

    def _ended(self, entry: SessionQuery, state: str) -> str:
        if state == "stopped":
            return f"{entry.label} was stopped, {rows_of(entry)}"
        if entry.feed is not None and not entry.feed.rows_seen:
            return f"{entry.label} ended, 0 rows"  # a notice says why
        more = {
            "table": f"this was its result after the last row; .tail {entry.id} rows shows all of it",
            "changes": f".tail {entry.id} table shows the result after the last row",
            "rows": f".tail {entry.id} changes shows the changes",
        }[self.form or "table"]
        return f"{entry.label} ended, {rows_of(entry)}: {more}"


def as_ansi(shown: RenderableType, width: int) -> str:
    out = io.StringIO()
    SafeConsole(file=out, force_terminal=True, color_system="standard", width=width, highlight=False).print(shown)
    return out.getvalue()
