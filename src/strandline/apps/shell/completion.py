"""Completion: keywords, functions, streams, their columns, dot commands and query ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from strandline.apps.shell.commands import COMMANDS, Command
from strandline.apps.shell.inputs import KEYWORDS, functions, readable_tokens
from strandline.apps.shell.session import Session
from strandline.apps.shell.views import FORMS
from strandline.database.introspection.show import columns_of
from strandline.database.introspection.system_tables import TABLES, SystemTables
from strandline.database.introspection.text import shorten_line
from strandline.logical.catalog import SYSTEM, Catalog, Stream, Table
from strandline.sql.lexer import Kind, Token

_WORD: Final = re.compile(r"[\w$]*\Z")
_READS: Final = ("FROM", "JOIN", "DESCRIBE")
_WHILE_TYPING: Final = 2  # letters before completions are shown while typing


class Candidate(NamedTuple):
    text: str
    kind: str


class Words(Completer):
    """Completes by the text before the cursor: after FROM streams, after `t.` the columns of t, else everything."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        prefix = _WORD.search(before)[0]  # type: ignore[index]
        asked = complete_event.completion_requested
        if before.lstrip().startswith("."):
            candidates = self.for_verb(before.lstrip())
            prefix = re.search(r"\S*\Z", before)[0]  # type: ignore[index]
        elif not asked and len(prefix) < _WHILE_TYPING and not re.search(r"\w\.\w*\Z", before):
            return
        else:
            candidates = self.for_sql(document.text, before, prefix)
        for text, kind in candidates:
            if text.lower().startswith(prefix.lower()) and text.lower() != prefix.lower():
                yield Completion(text, -len(prefix), display_meta=kind)

    # ---- dot commands ------------------------------------------------------------------------------------------------

    def for_verb(self, before: str) -> Iterable[Candidate]:
        name, blank, arguments = before.partition(" ")
        if not blank:
            return [Candidate(command.name, command.summary) for command in COMMANDS.values()]
        command = COMMANDS.get(name.lower())
        return self._arguments(command, arguments) if command is not None else ()

    def _arguments(self, command: Command, arguments: str) -> Iterator[Candidate]:
        first = " " not in arguments.lstrip()
        for kind in command.takes:
            match kind:
                case "query" if first:
                    yield from (Candidate(entry.id, shorten_line(entry.text, 50)) for entry in self.session.entries)
                    named = (e.query.name for e in self.session.entries if e.query.name != e.id)
                    yield from (Candidate(name, "query") for name in named)
                case "form":
                    yield from (Candidate(form, "form") for form in (*FORMS, "at"))
                case "switch" if first:
                    yield from (Candidate(word, "") for word in ("on", "off"))
                case "stream" if first:
                    yield from self._streams()
                case "command" if first:
                    yield from (Candidate(other.name, other.summary) for other in COMMANDS.values())
                case "sql" if not first:
                    yield from self.for_sql(arguments, arguments, _WORD.search(arguments)[0])  # type: ignore[index]

    # ---- SQL ---------------------------------------------------------------------------------------------------------

    def for_sql(self, text: str, before: str, prefix: str) -> Iterator[Candidate]:
        catalog = self.session.database.catalog
        tokens, _ = readable_tokens(text)
        head, _ = readable_tokens(before[: len(before) - len(prefix)])
        last = head[-1] if head else None
        named = dict(_streams_named(tokens, catalog))
        if last is not None and last.value == "." and len(head) > 1:
            if head[-2].value.lower() == "sys":
                yield from (Candidate(name.removeprefix(SYSTEM), "system table") for name in TABLES)
            yield from _columns(named.get(head[-2].value.lower()))
            return
        if _changes_table(head):
            yield from (Candidate(table.name, table.word) for table in catalog if isinstance(table, Table))
            return
        if last is not None and (last.keyword in _READS or _drops(head)):
            yield from self._streams()
            if last.keyword in _READS:
                yield Candidate(SYSTEM, "system tables")
            return
        # The list is written before FROM: until the text names streams, the columns of all are meant.
        meant = named.values() if named else catalog
        yield from dict.fromkeys(column for stream in meant for column in _columns(stream))
        yield from (Candidate(alias, "alias") for alias, s in named.items() if alias != s.name.lower())
        lower = prefix[:1].islower()
        yield from (Candidate(word.lower() if lower else word, "") for word in sorted(KEYWORDS))
        yield from (Candidate(f"{name}(", doc) for name, doc in sorted(functions().items()))
        yield from (Candidate(f"{name}(", "your function") for name in sorted(catalog.functions))
        yield from self._streams()

    def _streams(self) -> Iterator[Candidate]:
        for stream in self.session.database.catalog:
            yield Candidate(stream.name, stream.word)


def _drops(head: list[Token]) -> bool:
    return _first_words(head) in (
        ["DROP", "STREAM"],
        ["DROP", "TABLE"],
        ["DROP", "VIEW"],
        ["DROP", "MATERIALIZED", "VIEW"],
    )


def _changes_table(head: list[Token]) -> bool:
    """Whether the table that a statement changes comes next."""
    return _first_words(head) in (
        ["INSERT", "INTO"],
        ["UPDATE"],
        ["DELETE", "FROM"],
        ["MERGE", "INTO"],
        ["TRUNCATE", "TABLE"],
    )


def _first_words(head: list[Token]) -> list[str]:
    """The words of the last statement of a text."""
    words = [token.keyword for token in head]
    return words[len(words) - words[::-1].index(";") :] if ";" in words else words


def _streams_named(tokens: list[Token], catalog: Catalog) -> Iterator[tuple[str, Stream]]:
    """The streams that a text reads, by the names it may use for them: their own and aliases."""
    system = SystemTables(catalog)
    for position, token in enumerate(tokens):
        stream: Stream | None = None
        if position > 1 and tokens[position - 1].value == "." and tokens[position - 2].value.lower() == "sys":
            stream = system.get(f"{SYSTEM}{token.value}") if f"{SYSTEM}{token.value}" in system else None
        elif token.kind in (Kind.WORD, Kind.QUOTED) and token.value in catalog:
            stream = catalog.get(token.value)
        if stream is not None:
            yield token.value.lower(), stream
            alias = _alias(tokens, position + 1)
            if alias is not None:
                yield alias.lower(), stream


def _alias(tokens: list[Token], at: int) -> str | None:
    """The name that follows a stream, before or after its window."""
    while at < len(tokens):
        token = tokens[at]
        if token.keyword == "AS":
            at += 1
        elif token.value == "[" or token.keyword in ("WINDOW", "GRANULARITY"):
            closing = "]" if token.value == "[" else ")"
            while at < len(tokens) and tokens[at].value != closing:
                at += 1
            at += 1
        else:
            is_alias = token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.keyword not in KEYWORDS)
            return token.value if is_alias else None
    return None


def _columns(stream: Stream | None) -> Iterator[Candidate]:
    return (Candidate(name, str(kind)) for name, kind in (columns_of(stream) if stream is not None else ()))
