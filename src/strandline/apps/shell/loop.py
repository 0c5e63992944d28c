"""Prompt loop. Imports little, so that the prompt appears immediately."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, DynamicCompleter, get_common_complete_suffix
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import DynamicLexer, Lexer
from prompt_toolkit.patch_stdout import patch_stdout

from strandline.apps.shell.startup import Startup
from strandline.apps.shell.style import STYLE
from strandline.core.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.apps.shell.session import Session

_PROMPT = "strandline> "
STOPPED = 130  # the exit code of every command that a signal ends


def run_shell(startup: Startup, first: Path | None) -> int:
    """The shell, on a terminal or on a pipe; returns the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _run_piped(startup, first)
    on = "Spark is starting" if startup.engine_name == "spark" else "on the local engine"
    print(f"strandline, {on}. SQL ends with a semicolon; .help lists commands, Ctrl-D exits.")
    try:
        with startup.ending.handle_signals():
            code = _Prompt(startup, first).run()
        return STOPPED if startup.ending.requested else code
    finally:
        _leave(startup)


class _Prompt:
    def __init__(self, startup: Startup, first: Path | None) -> None:
        self.startup = startup
        self.first = first
        self._first_read = threading.Event()
        self.prompt: PromptSession[str] = PromptSession(
            history=_history(),
            multiline=True,
            prompt_continuation=lambda width, line, soft: [("class:continuation", ". ".rjust(width))],
            completer=_late_completer(startup),
            complete_while_typing=True,
            lexer=_late_lexer(startup),
            style=STYLE,
            key_bindings=_keys(),
            bottom_toolbar=self._toolbar,
            refresh_interval=0.5,
            include_default_pygments_style=False,
            reserve_space_for_menu=6,
        )
        startup.changed = self.prompt.app.invalidate

    def run(self) -> int:
        self.prompt.app.after_render += self._begin
        while True:
            try:
                # Output of a file that is read meanwhile goes above the prompt.
                with self.startup.ending.screen(self.prompt.app), patch_stdout(raw=True):
                    text = self.prompt.prompt([("class:prompt", _PROMPT)], default=self._typed())
            except KeyboardInterrupt:
                if self._leaves():
                    return 0
                continue
            except EOFError:
                return 0
            if self._done(text) or self.startup.ending.requested:
                return 0

    def _leaves(self) -> bool:
        """Ctrl-C at an empty prompt leaves; while queries run, after a question. A second Ctrl-C is a yes."""
        if not self.startup.loaded.is_set() or self.startup.failed or self.startup.ending.requested:
            return True
        running = [entry.label for entry in self.startup.session().running()]
        if not running:
            return True
        queries = f"{running[0]} is" if len(running) == 1 else f"{', '.join(running)} are"
        question: PromptSession[str] = PromptSession(history=InMemoryHistory())
        try:
            with self.startup.ending.screen(question.app):
                reply = question.prompt(f"{queries} running. Stop and leave? [y/N] ")
        except (EOFError, KeyboardInterrupt):
            return True
        return reply.strip().lower() in ("y", "yes")

    def _begin(self, _: Any) -> None:
        """Loading takes the interpreter away from the prompt, so that is drawn first."""
        self.prompt.app.after_render.remove_handler(self._begin)
        self.startup.begin()
        threading.Thread(target=self._read_first, name="strandline-first", daemon=True).start()

    def _read_first(self) -> None:
        try:
            if self.first is not None:
                self.startup.session().read(self.first)
        except StrandlineError as error:
            print(error.render())
        finally:
            self._first_read.set()

    def _done(self, text: str) -> bool:
        """Run an input; whether it was the last."""
        try:
            session = self._session()
            if text.strip():
                session.run(text)
            for notice in session.notices():
                session.say(notice)
            session.show_notices()
            return session.leaving
        except StrandlineError as error:
            print(error.render())
        except KeyboardInterrupt:
            print()
        return False

    def _typed(self) -> str:
        """Type-ahead."""
        if not self.startup.loaded.is_set() or self.startup.failed:
            return ""
        session = self.startup.session()
        typed, session.typed = session.typed, ""
        return typed

    def _session(self) -> Session:
        from strandline.apps.shell.tail import follow

        session = self.startup.session()
        session.follow = follow
        # The file comes first, up to the first of its queries that must wait for the engine.
        while not self._first_read.wait(0.02) and not self.startup.awaited.is_set():
            pass
        return session

    def _toolbar(self) -> str:
        startup = self.startup
        if not startup.loaded.is_set() or startup.failed or not startup.ready.is_set():
            return " Spark did not start: run a query for the reason" if startup.failed else f" {startup.phase} …"
        session = startup.session()
        if (lost := session.database.engine_lost) is not None:
            return f" {lost.message}: the next query starts Spark again"
        running = session.running()
        if not running:
            return f" {startup.engine_name}: ready"
        latest = running[-1]
        latest.meter.look()
        if (waiting := latest.query.waiting_for) is not None:
            return f" {latest.label} waits for {waiting}"
        others = f" and {len(running) - 1} more running" if len(running) > 1 else ""
        width = self.prompt.app.output.get_size().columns
        return f" {latest.label}{others} │ {latest.meter.line()}"[: width - 1]


def _keys() -> KeyBindings:
    """Enter ends an input that is whole; Ctrl-C clears one that is begun and else leaves."""
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        from strandline.apps.shell.inputs import is_whole

        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        _complete(event.current_buffer)

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def _complete(buffer: Buffer) -> None:
    """Tab: insert what is certain; list several completions, and choose with the next Tab.

    Immediately, without waiting for the list that appears while typing.
    """
    state = buffer.complete_state
    if state is not None and state.complete_index is not None:
        buffer.complete_next()
        return
    completions = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
    if len(completions) == 1:
        buffer.complete_state = None
        buffer.apply_completion(completions[0])
    elif common := get_common_complete_suffix(buffer.document, completions):
        buffer.insert_text(common)
    elif state is not None:
        buffer.complete_next()
    elif completions:
        buffer.start_completion(select_first=False)


def _late_completer(startup: Startup) -> Completer:
    """Completes once the vocabulary is loaded."""

    @cache
    def words() -> Completer:
        from strandline.apps.shell.completion import Words

        return Words(startup.session())

    return DynamicCompleter(lambda: words() if startup.loaded.is_set() else None)


def _late_lexer(startup: Startup) -> Lexer:
    """Colours the input once the vocabulary is loaded."""

    @cache
    def colours() -> Lexer:
        from strandline.apps.shell.highlight import Colours

        return Colours()

    return DynamicLexer(lambda: colours() if startup.loaded.is_set() else None)


def history_file() -> Path:
    """History file, in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(Path.home(), ".local", "state")
    return Path(base) / "strandline" / "history"


def _history() -> History:
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:  # a home that cannot be written is no reason not to work
        return InMemoryHistory()
    return FileHistory(str(path))


def _leave(startup: Startup) -> None:
    """Stop the running queries, by name. An engine that is still starting ends with this process."""
    if not startup.loaded.is_set() or not startup.ready.is_set():
        return
    with contextlib.suppress(StrandlineError):
        session = startup.session()
        running = ", ".join(entry.label for entry in session.running())
        if running:
            session.say(f"stopping {running}")
        with session.console.status("leaving"):
            session.database.close()


def _run_piped(startup: Startup, first: Path | None) -> int:
    """Inputs from a pipe: queries are awaited, and their rows printed; the first error ends it."""
    from strandline.apps.shell.inputs import split

    startup.begin()
    session = startup.session()
    try:
        if first is not None:
            session.read(first)
        for text in split(sys.stdin.read()):
            session.run(text)
            if session.leaving or session.failures:
                break
        return 1 if session.failures else 0
    except StrandlineError as error:
        print(error.render())
        return 1
    finally:
        startup.ready.wait()
        session.database.close()
