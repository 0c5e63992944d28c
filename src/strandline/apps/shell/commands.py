"""The dot commands. To add one, write a function under `@command`: help, completion and the test of the docs see it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from rich.table import Table
from rich.text import Text

from strandline.apps.shell.graph import draw, draw_all
from strandline.apps.shell.inputs import functions
from strandline.apps.shell.session import MAX_PRINTED_ROWS, Session, SessionQuery
from strandline.apps.shell.views import FORMS, Form
from strandline.core.errors import QueryError, Span, StrandlineError
from strandline.core.table import TextTable
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, instant, show_instant
from strandline.database.introspection.progress_meter import show_bytes, show_rate
from strandline.database.introspection.show import show_streams, show_views
from strandline.database.introspection.text import shorten_line
from strandline.database.statements import Explained
from strandline.sql import ast
from strandline.sql.parser.statements import parse

# Completions for an argument.
Takes: TypeAlias = Literal["query", "form", "switch", "stream", "command", "sql"]
Action: TypeAlias = Callable[[Session, "Rest"], None]


@dataclass(frozen=True, slots=True)
class Rest:
    """Arguments of a command, with their place in the input."""

    text: str
    start: int = 0

    def __bool__(self) -> bool:
        return bool(self.words())

    def words(self) -> list[str]:
        return self.text[self.start :].rstrip("; \t\n").split()

    def plain(self) -> str:
        return self.text[self.start :].strip().rstrip(";").rstrip()

    def span(self, number: int = 0) -> Span:
        places = list(re.finditer(r"[^\s;]+", self.text[self.start :]))
        if number >= len(places):
            return Span(self.text, len(self.text), len(self.text))
        return Span(self.text, self.start + places[number].start(), self.start + places[number].end())


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    usage: str
    summary: str
    takes: tuple[Takes, ...]
    act: Action


COMMANDS: Final[dict[str, Command]] = {}


def command(name: str, usage: str, summary: str, *takes: Takes) -> Callable[[Action], Action]:
    """Make a function a dot command."""

    def register(act: Action) -> Action:
        COMMANDS[name] = Command(name, f"{name} {usage}".rstrip(), summary, takes, act)
        return act

    return register


def perform(session: Session, text: str) -> None:
    """Run a dot command."""
    name = text.split(maxsplit=1)[0].rstrip(";")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        raise StrandlineError(
            f"unknown command {name}",
            code="unknown-command",
            hint=f"Did you mean {near[0]}?" if near else "`.help` lists the commands; SQL ends with a semicolon.",
            span=Span(text, 0, len(name)),
        )
    command.act(session, Rest(text, len(name)))


_HOW: Final = (
    "SQL ends with a semicolon and may span lines. A SELECT starts a query and shows its result live: Tab switches "
    "the format, Ctrl-C leaves it running, and other input goes to the prompt. [q] is the id or the name of a query; "
    "the default is the latest. At the prompt, Tab completes and the arrow keys browse the history."
)


# ---- help and leaving ------------------------------------------------------------------------------------------------


@command(".help", "[command]", "list commands", "command")
def help_(session: Session, arguments: Rest) -> None:
    names = [word if word.startswith(".") else f".{word}" for word in arguments.words()]
    commands = [COMMANDS[word] for word in names if word in COMMANDS] or list(COMMANDS.values())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for item in commands:
        table.add_row(Text(item.usage, style="bold"), item.summary)
    session.show(table)
    if not names:
        session.show(Text("\n" + _HOW))


@command(
    ".quit", "", "stop all queries and exit; also Ctrl-D, or Ctrl-C at an empty prompt, which asks while queries run"
)
def quit_(session: Session, arguments: Rest) -> None:
    session.leaving = True


# ---- what there is ---------------------------------------------------------------------------------------------------


@command(".queries", "", "list queries with state, rates and progress")
def queries(session: Session, arguments: Rest) -> None:
    rows = [_query_row(entry) for entry in session.entries]
    names: tuple[str, ...] = ("id", "name", "state", "in", "out", "rate in", "progress", "query")
    since = [entry.query.kept_since for entry in session.entries]
    if any(at > BEFORE_ALL for at in since):  # a column that most have no use for
        names = (*names[:-1], "retained from", names[-1])
        rows = [(*row[:-1], _reached(at), row[-1]) for row, at in zip(rows, since, strict=True)]
    if rows:
        session.list(TextTable.text(names, rows))
    else:
        session.say("no query was started")


def _query_row(entry: SessionQuery) -> tuple[str, ...]:
    entry.meter.look()
    rate = entry.meter.rates()[0] if entry.query.is_running else 0.0
    return (
        entry.id,
        entry.query.name,
        entry.query.state,
        f"{entry.meter.rows_in:,}",
        f"{entry.meter.rows_out:,}",
        show_rate(rate) if rate else "",
        _reached(entry.query.progress),
        shorten_line(entry.text, 60),
    )


def _reached(progress: Instant) -> str:
    return {BEFORE_ALL: "", FOREVER: "complete"}.get(progress, show_instant(progress))


@command(".streams", "[name]", "list streams and views, or describe one", "stream")
def streams(session: Session, arguments: Rest) -> None:
    if arguments:
        session.sql(f"DESCRIBE {arguments.words()[0]}", look=False)
        return
    catalog = session.database.catalog
    listings = [listing for listing in (show_streams(catalog), show_views(catalog)) if listing.table.num_rows]
    for number, listing in enumerate(listings):
        if number:
            session.say("")
        session.list(listing)
    if not listings:
        session.say("no stream was declared")


@command(".tables", "[name]", "list tables, or describe one", "stream")
def tables(session: Session, arguments: Rest) -> None:
    if arguments:
        session.sql(f"DESCRIBE {arguments.words()[0]}", look=False)
        return
    session.sql("SHOW TABLES", look=False)


@command(".functions", "[part of a name]", "list functions and aggregates")
def functions_(session: Session, arguments: Rest) -> None:
    part = arguments.plain().lower()
    rows = [(name, doc) for name, doc in sorted(functions().items()) if part in name]
    if rows:
        session.list(TextTable.text(("function", "meaning"), rows))
    else:
        session.say(f'no function name contains "{part}"')


@command(".metrics", "[q]", "show query metrics", "query")
def metrics(session: Session, arguments: Rest) -> None:
    entry = _entry(session, arguments)
    entry.meter.look()
    rates = dict(zip(("rate_in", "rate_out"), map(show_rate, entry.meter.rates()), strict=True))
    rows = []
    for name, value in {**entry.query.metrics(), **rates}.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(name, stream, _shown(name, amount)) for stream, amount in parts]
    session.say(str(TextTable.text(("metric", "stream", "value"), rows)))


def _shown(name: str, value: object) -> str:
    if name == "state_bytes" and isinstance(value, int):
        return show_bytes(value)
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)


@command(".log", "", "show the path of Spark's log")
def log(session: Session, arguments: Rest) -> None:
    path = session.database.log_file
    if path is not None:
        session.say(str(path))
    elif session.startup.engine_name == "local":
        session.say("the local engine has no log")
    else:
        session.say(f"Spark is not ready yet: {session.startup.phase}")


# ---- plans -----------------------------------------------------------------------------------------------------------


@command(".explain", "[q | SELECT …]", "show the plan of a running query or of a SELECT", "query", "sql")
def explain(session: Session, arguments: Rest) -> None:
    if len(arguments.words()) <= 1:
        entry = _entry(session, arguments)
        session.say_all(entry.query.explain())
        return
    try:  # blanks in place of the command: positions in the statement are then positions in the input
        for statement in parse(" " * arguments.start + arguments.text[arguments.start :]):
            explained = ast.Explain(cast(Explained, statement), span=statement.span)
            session.say_all(str(session.database.execute(explained)))
    except StrandlineError as error:
        if error.span is not None:
            error.span = replace(error.span, text=arguments.text)
        raise


@command(".graph", "[q]", "draw the graphs that run, or the plan of a query, with row counts", "query")
def graph(session: Session, arguments: Rest) -> None:
    running = session.running()
    if arguments or not running:
        entry = _entry(session, arguments)
        session.show(draw(entry.query, entry.meter))
    else:
        session.show(draw_all([(entry.query, entry.meter) for entry in running]))


# ---- results ---------------------------------------------------------------------------------------------------------


_TAILED: Final = "[q] [table | changes | rows | AT TIMESTAMP t]"


@command(".tail", _TAILED, "show a result, live or at a past instant", "query", "form")
def tail(session: Session, arguments: Rest) -> None:
    words = arguments.words()
    named = bool(words) and words[0].lower() not in (*FORMS, "at")
    entry = session.find(words[0], arguments.span()) if named else session.latest()
    remaining = words[1:] if named else words
    if not remaining:
        session.follow(session, lambda: entry, entry.form)
    elif remaining[0].lower() == "at":
        _look_back(session, entry, arguments, 2 if named else 1)
    elif remaining[0].lower() in FORMS and len(remaining) == 1:
        session.follow(session, lambda: entry, cast(Form, remaining[0].lower()))
    else:
        raise StrandlineError(
            f'unknown result format "{remaining[0]}"',
            code="unknown-form",
            hint="Formats are table, changes, rows, and AT TIMESTAMP 'YYYY-MM-DD hh:mm:ss' for a past instant.",
            span=arguments.span(1 if named else 0),
        )


def _look_back(session: Session, entry: SessionQuery, arguments: Rest, first: int) -> None:
    span = arguments.span(first).to(arguments.span(len(arguments.words()) - 1))
    try:
        session.print_at(entry, _instant(arguments, first, span))
    except QueryError as error:  # an instant that is not there yet, or no longer
        error.span = error.span or span
        raise


def _instant(arguments: Rest, first: int, span: Span) -> Instant:
    """`TIMESTAMP '…'`, a text in or without quotes, or microseconds."""
    words = arguments.words()[first:]
    text = re.sub(r"(?i)^timestamp\b\s*", "", " ".join(words)).strip("'\" ")
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else instant(text)
    except ValueError:
        raise QueryError(
            f"invalid instant {text!r}" if text else "AT needs an instant",
            code="bad-instant",
            hint="Write AT TIMESTAMP '2024-01-31 23:59:59', or microseconds since 1970.",
            span=span,
        ) from None


@command(".last", "[q]", "print the latest result in full", "query")
def last(session: Session, arguments: Rest) -> None:
    entry = _entry(session, arguments)
    session.print_now(entry, entry.form, session.screen(MAX_PRINTED_ROWS))


@command(".expand", "[q | on | off]", "print the latest result with a line for each column; on: all results", "query")
def expand(session: Session, arguments: Rest) -> None:
    word = arguments.plain().lower()
    if word in ("on", "off"):
        session.expanded = word == "on"
        session.say(f"expanded display is {word}")
        return
    entry = _entry(session, arguments)
    session.print_now(entry, entry.form, session.screen(MAX_PRINTED_ROWS, expanded=True))


@command(".pager", "[on | off]", "show output that is longer than the terminal in a pager, $PAGER or less", "switch")
def pager(session: Session, arguments: Rest) -> None:
    session.paging = _switched(arguments, ".pager", session.paging)
    session.say(f"pager is {'on' if session.paging else 'off'}")


@command(".why", "[q]", "explain an empty result: idle sources, a stalled watermark, filters and joins", "query")
def why(session: Session, arguments: Rest) -> None:
    session.say(_entry(session, arguments).query.why())


# ---- running ---------------------------------------------------------------------------------------------------------


@command(".start", "stream", "run the query behind CREATE STREAM … AS, and show its result", "stream")
def start(session: Session, arguments: Rest) -> None:
    if not arguments:
        raise _usage(arguments, ".start needs the name of a stream", "`.streams` lists them.")
    name = arguments.words()[0].strip('"')
    session.database.catalog.get(name, arguments.span())
    session.follow(session, lambda: session.start_named(name), None)


@command(".stop", "q", "stop a query; its results stay available", "query")
def stop(session: Session, arguments: Rest) -> None:
    if not arguments:
        raise _usage(arguments, ".stop needs a query", "`.queries` lists them, `.stop all` stops all.")
    everything = arguments.words() == ["all"]
    for entry in session.running() if everything else [session.find(arguments.words()[0], arguments.span())]:
        if not entry.query.is_running:
            session.say(f"{entry.label} is not running: it is {entry.query.state}")
            continue
        with session.console.status(f"stopping {entry.label}"):
            entry.query.stop()
        entry.announced = True
        session.say(f"{entry.label} is stopped")


@command(".read", "file.sql", "run the statements of a file, its queries in the background")
def read(session: Session, arguments: Rest) -> None:
    if not arguments:
        raise _usage(arguments, ".read needs a file")
    session.read(Path(arguments.plain().strip("'\"")))


@command(".timing", "[on | off]", "toggle statement timing", "switch")
def timing(session: Session, arguments: Rest) -> None:
    session.timing = _switched(arguments, ".timing", session.timing)
    session.say(f"timing is {'on' if session.timing else 'off'}")


def _switched(arguments: Rest, name: str, before: bool) -> bool:
    """The value of a switch: as it is said, or the other one."""
    word = arguments.plain().lower()
    if word not in ("", "on", "off"):
        raise _usage(arguments, f"{name} must be on or off")
    return word == "on" if word else not before


def _usage(arguments: Rest, message: str, hint: str | None = None) -> StrandlineError:
    return StrandlineError(message, code="usage", hint=hint, span=arguments.span())


def _entry(session: Session, arguments: Rest) -> SessionQuery:
    words = arguments.words()
    return session.find(words[0], arguments.span()) if words else session.latest()
