"""State of the shell: a database, the started queries, and the execution of input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, cast, get_args

from rich.console import RenderableType
from rich.text import Text

from strandline.apps.console import SafeConsole, read_file
from strandline.apps.shell.feed import ResultFollower
from strandline.apps.shell.inputs import command_of, split
from strandline.apps.shell.pager import run_pager
from strandline.apps.shell.startup import Startup
from strandline.apps.shell.views import Form, Screen, natural_form, show, show_table
from strandline.connectors.sinks import Memory
from strandline.core.errors import QueryError, Span, StrandlineError
from strandline.core.faults import explain_fault
from strandline.core.table import TextTable
from strandline.core.temporal import FOREVER, Instant
from strandline.database.database import Database
from strandline.database.introspection.progress_meter import ProgressMeter
from strandline.database.introspection.text import count_of, shorten
from strandline.database.query import Query
from strandline.sql import ast
from strandline.sql.parser.statements import parse

_QUERIES: Final = get_args(ast.Query)
MAX_PRINTED_ROWS: Final = 1_000  # rows that are printed at a time


@dataclass(slots=True)
class SessionQuery:
    """A query that was started here, under a short id that all commands take as well as its name."""

    id: str
    query: Query
    text: str
    meter: ProgressMeter
    form: Form
    asked: float
    planned: float
    feed: ResultFollower | None = None
    first_batch: float | None = None
    announced: bool = False

    @property
    def label(self) -> str:
        return self.id if self.query.name == self.id else f"{self.id} ({self.query.name})"


class Session:
    """Runs input. `follow` shows a result live; without it (no terminal) queries are awaited and printed."""

    def __init__(self, database: Database, startup: Startup) -> None:
        self.database = database
        database.catalog.notices.show = None  # they are printed here, when the screen is free
        database.catalog.notices.diagnosis = ".why {query}"
        self.startup = startup
        self.console = SafeConsole(highlight=False)
        self.entries: list[SessionQuery] = []
        self.timing = False
        self.paging = True
        self.expanded = False
        self.leaving = False
        self.failures = 0
        self.typed = ""  # type-ahead during a live result, which belongs to the next input
        self.follow: Callable[[Session, Callable[[], SessionQuery], Form | None], None] = await_and_print

    # ---- inputs ------------------------------------------------------------------------------------------------------

    def run(self, text: str) -> None:
        """Run an input, whatever it is; errors are printed."""
        try:
            command = command_of(text)
            if command is not None:
                from strandline.apps.shell.commands import perform

                perform(self, command)
            else:
                self.sql(text, look=True)
        except Exception as error:  # a defect of ours is no reason to lose the queries that run
            self.failures += 1
            self.say(named_error(error).render(), style="red" if self.console.is_terminal else None)
        self.show_notices()

    def read(self, path: Path) -> None:
        """Run the statements and dot commands of a file. Its queries run in the background."""
        text = read_file(path)
        inputs = list(split(text))
        if any(command_of(item) is not None for item in inputs):
            for item in inputs:
                self.run(item) if command_of(item) is not None else self.sql(item, look=False)
        else:
            self.sql(text, look=False)  # as one text: errors then name the line of the file
        self.show_notices()

    def sql(self, text: str, look: bool) -> None:
        """Run statements; with `look` the result of the last one is shown live."""
        statements = parse(text)
        for number, statement in enumerate(statements):
            began = time.monotonic()
            looks = ast.looked_at(statement) is not None
            if looks or not isinstance(statement, _QUERIES) or self.database.is_stored(statement):
                self._at_once(statement)
                self.show_time(time.monotonic() - began)
                continue
            if look and number == len(statements) - 1:
                self.follow(self, partial(self.start, statement), None)
            else:
                self.say(f"{self.start(statement).label} is running")

    def start(self, statement: ast.Statement) -> SessionQuery:
        """Start the query of a statement, once the engine is there."""
        self.startup.engine()
        asked = time.monotonic()
        own = self.next_id()
        query = self.database.execute(statement, name=own)
        assert isinstance(query, Query), "its statement is a query"
        return self.adopt(own, query, statement.text, asked)

    def start_named(self, name: str) -> SessionQuery:
        """Start the query behind a derived stream."""
        self.startup.engine()
        asked = time.monotonic()
        query = self.database.query(name)
        stream = self.database.catalog.get(name)
        return self.adopt(self.next_id(), query, getattr(stream, "text", name), asked)

    def adopt(self, own: str, query: Query, text: str, asked: float) -> SessionQuery:
        meter, planned = ProgressMeter([query]), time.monotonic()
        entry = SessionQuery(own, query, text, meter, natural_form(query), asked, planned)
        if isinstance(query.sink, Memory):
            entry.feed = ResultFollower(query)
        self.entries.append(entry)
        return entry

    def next_id(self) -> str:
        """A free id, for which no checkpoint has another query."""
        checkpoint, taken = self.database.checkpoint, {entry.id for entry in self.entries}
        free = (name for n in count(1) if (name := f"q{n}") not in taken and self.database.is_free(name))
        return next(name for name in free if not (checkpoint and (checkpoint / name).exists()))

    # ---- what there is -----------------------------------------------------------------------------------------------

    def find(self, word: str, span: Span | None = None) -> SessionQuery:
        """The query of an id or a name; of several with one name the newest."""
        for entry in reversed(self.entries):
            if word.lower() in (entry.id.lower(), entry.query.name.lower()):
                return entry
        labels = ", ".join(entry.label for entry in self.entries)
        hint = (
            f"Queries are {labels}." if labels else "No query was started: type a SELECT, or .start a derived stream."
        )
        raise QueryError(f'unknown query "{word}"', code="unknown-query", hint=hint, span=span)

    def latest(self) -> SessionQuery:
        if not self.entries:
            hint = "Type a SELECT, or .start a derived stream."
            raise QueryError("no query was started", code="unknown-query", hint=hint)
        return self.entries[-1]

    def running(self) -> list[SessionQuery]:
        return [entry for entry in self.entries if entry.query.is_running]

    def notices(self) -> list[str]:
        """Events of queries that are not shown."""
        messages = []
        for entry in self.entries:
            state = entry.query.state
            if not entry.announced and state != "running":
                entry.announced = True
                if state == "failed":
                    messages.append(f"{entry.label} failed:\n{failure(entry.query)}")
                elif state == "ended":
                    messages.append(f"{entry.label} ended, {entry.query.metrics()['rows_out']:,} results")
        return messages

    # ---- output ------------------------------------------------------------------------------------------------------

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(text, markup=False, soft_wrap=True, style=style)

    def show_notices(self) -> None:
        """Print the notices that are new."""
        for notice in self.database.catalog.notices.take():
            self.say(str(notice), style="yellow" if self.console.is_terminal else None)

    def list(self, listing: TextTable) -> None:
        """Print a listing; on a terminal a row has one line, whatever does not fit."""
        lines = str(listing).split("\n")
        if self.console.is_terminal:
            width = self.console.width - 1
            lines = [shorten(line, width) for line in lines]
        self.say("\n".join(lines))

    def show(self, shown: RenderableType) -> None:
        """Print rich output; on a pipe without the blanks that fill the lines of a table."""
        if self.console.is_terminal:
            if not self._page(shown):
                self.console.print(shown)
            return
        with self.console.capture() as captured:
            self.console.print(shown, soft_wrap=True)
        self.say("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))

    def say_all(self, text: str) -> None:
        """Print a text that may be long."""
        if not self.console.is_terminal or not self._page(Text(text)):
            self.say(text)

    def _page(self, shown: RenderableType) -> bool:
        """Show what is longer than the terminal in a pager; false if it is not, or there is none."""
        if not self.paging or threading.current_thread() is not threading.main_thread():
            return False
        with self.console.capture() as captured:
            self.console.print(shown, soft_wrap=isinstance(shown, Text))
        text = captured.get()
        return text.count("\n") >= self.console.height and run_pager(text)

    def show_time(self, seconds: float) -> None:
        if self.timing:
            self.say(f"time: {seconds:.3f} s")

    def screen(self, max_rows: int, expanded: bool = False) -> Screen:
        """What a result may take of the terminal; on a pipe columns are not hidden."""
        width = self.console.width - 1 if self.console.is_terminal else None
        return Screen(max_rows, width, expanded or self.expanded)

    def print_now(self, entry: SessionQuery, form: Form, screen: Screen) -> None:
        """The present result."""
        entry.form = form
        query = entry.query
        if form == "table" and query.ended:
            at = last_row(query)
            self.show(show_table(query, _payload(query, at), at, screen))
        elif entry.feed is not None:
            entry.feed.look()
            self.show(show(entry.feed, form, screen))
        else:
            query.pieces()  # raises that there are none, and why

    def print_at(self, entry: SessionQuery, at: Instant) -> None:
        """The result at a past instant."""
        self.show(show_table(entry.query, _payload(entry.query, at), at, self.screen(MAX_PRINTED_ROWS)))

    def _at_once(self, statement: ast.Statement) -> None:
        """A statement with an immediate result: a declaration, a query of the catalog, or another short one."""
        runs = isinstance(statement, ast.CreateSink | ast.CreateMaterializedView)
        looks = isinstance(statement, _QUERIES) and ast.looked_at(statement) is not None
        if runs or (looks and not self.database.is_stored(cast(ast.Query, statement))):
            self.startup.engine()  # its query runs, and one engine is enough
        asked = time.monotonic()
        result = self.database.execute(statement)
        if isinstance(result, Query):
            self.say(f"{self.adopt(self.next_id(), result, statement.text, asked).label} is running")
            return
        match statement:
            case ast.CreateStreamAs(name):
                self.say(f"{name.name} is declared; SELECT reads it, .start {name.name} runs it")
            case ast.CreateStream(name) | ast.CreateView(name) | ast.CreateTable(name) | ast.CreateTableAs(name):
                self.say(f"{name.name} is declared")
            case ast.Drop(_, name) | ast.DropSink(name):
                self.say(f"{name.name} is dropped")
            case _:
                self.say_all("done" if result is None else str(result))


def named_error(error: Exception) -> StrandlineError:
    """An error as users see it; one that is not ours is explained, or is a defect."""
    if isinstance(error, StrandlineError):
        return error
    return explain_fault(error) or QueryError(f"{type(error).__name__}: {error}", code="internal")


def _payload(query: Query, at: Instant) -> Any:
    frame = query.snapshot(at, form="polars")
    return frame.rename({column.name: column.id for column in query.columns})


def last_row(query: Query) -> Instant:
    """The time of the last row that came: the result at the end of the input, before its windows ran empty."""
    statuses = query.heartbeats().values()
    return min(max((status.high for status in statuses), default=0), FOREVER - 1)


def rows_of(entry: SessionQuery) -> str:
    """Number of rows of a result as displayed: chunks of one row count once."""
    if entry.feed is not None and not entry.feed.passed_over:
        return count_of(entry.feed.rows_seen, "row")
    return count_of(entry.query.metrics()["rows_out"], "row")


def failure(query: Query) -> str:
    try:
        query.await_end(0)
    except StrandlineError as error:
        return error.render()
    return "no reason was recorded"


def await_and_print(session: Session, begin: Callable[[], SessionQuery], form: Form | None) -> None:
    """Without a terminal: wait for the end of a query, and print all its rows."""
    entry = begin()
    query = entry.query
    query.await_end()
    entry.announced = True
    if form == "changes":
        session.print_now(entry, form, session.screen(MAX_PRINTED_ROWS))
        return
    assert entry.feed is not None
    entry.form = "rows"
    entry.feed.look()
    session.show(show(entry.feed, "rows", session.screen(MAX_PRINTED_ROWS)))
    session.show_time(time.monotonic() - entry.asked)
