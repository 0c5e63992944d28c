"""Input of the shell: the words of the language, for completion and colours, and whether a text is complete."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from strandline.core.errors import ParseError
from strandline.core.temporal import UNITS
from strandline.sql.binder.scaled_aggregates import SCALED
from strandline.sql.lexer import RESERVED, Kind, Token, tokenize, words
from strandline.sql.parser.statements import SHOW_KINDS, STATEMENTS
from strandline.sql.parser.types import TYPE_NAMES

# Words of the grammar in docs/language.md other than reserved words, statements, types and units; a test compares.
_FURTHER: Final = words(
    """ANTI ASC BY CASCADE CUBE DATE DESC DSTREAM EXPLAIN FIRST FILTER GRANULARITY GROUPING IDLE AFTER IF INTERVAL INTO
        ISTREAM LAST MAX MINUS NOW NULLS ORDERED OUTER OVER PARTITION RANGE RANK REPLACE RESTRICT ROLLUP ROW ROWS
        RSTREAM SEMI SESSION SETS SINK SINKS SLIDE SOURCE STREAM STREAMS STRICT TIES TIMESTAMP UNBOUNDED UNTIL VALID
        VIEW VIEWS QUERIES WITHIN BETWEEN SYMMETRIC ILIKE SIMILAR TO IS ALLOW SHEDDING STARTING UP PERCENT SET CAPACITY
        MEASURED OFF ANALYZE WHY SECRET BAD INPUT SKIP STOP CHANGES PRIMARY KEY TABLE TABLES MATERIALIZED CONSTANT NON
        RETROACTIVE KEEP VALUES DEFAULT CONFLICT DO NOTHING MATCHED AT FOR SYSTEM_TIME OF
        ASOF COLUMNS CUMULATE CURRENT DESCRIPTOR EXCLUDE FOLLOWING HOP IGNORE LATERAL ORDINALITY PRECEDING RESPECT
        PIPELINE TUMBLE UNNEST EARLIEST"""
)
KEYWORDS: Final = frozenset(
    {*RESERVED, *STATEMENTS, *SHOW_KINDS, *TYPE_NAMES, *_FURTHER, *UNITS, *(f"{unit}S" for unit in UNITS)}
)
# Words that end a session or ask for help in shells of all kinds.
QUIT_WORDS = ("exit", "quit", "bye", "\\q", ":q")
HELP_WORDS = ("help", "?", "\\?", "\\h")


@cache
def functions() -> dict[str, str]:
    """Function-like names with their descriptions: scalars and aggregates."""
    from strandline.functions.aggregates import AGGREGATES
    from strandline.functions.registry import ALIASES, FUNCTIONS
    from strandline.functions.spellings import SPELLINGS

    named = {f.name: f.doc for f in FUNCTIONS.values() if f.usage.startswith(f"{f.name}(")}
    named |= {alias: named[name] for alias, name in ALIASES.items() if name in named and alias.isidentifier()}
    named |= {name: f"The same as {spellings[0].means}." for name, spellings in SPELLINGS.items()}
    return named | {name: aggregate.doc for name, aggregate in AGGREGATES.items()} | SCALED


def command_of(text: str) -> str | None:
    """The dot command that an input is, spelled out; None for SQL."""
    stripped = text.strip()
    plain = stripped.rstrip(";").rstrip().lower()
    if plain in QUIT_WORDS:
        return ".quit"
    if plain in HELP_WORDS:
        return ".help"
    return stripped if stripped.startswith(".") and not stripped[1:2].isdigit() else None


def is_whole(text: str) -> bool:
    """True if the input is complete: a dot command is a line, a statement ends with a semicolon."""
    if not text.strip() or command_of(text) is not None:
        return True
    try:
        tokens = tokenize(text)
    except ParseError as error:
        # Inside a quote or a comment a semicolon ends nothing. Any other mistake does not go away by typing on.
        return error.code not in ("unclosed-quote", "unclosed-comment") and text.rstrip().endswith(";")
    if len(tokens) == 1:
        return True  # a comment
    last = tokens[-2]
    return last.kind is Kind.SYMBOL and last.value == ";"


def readable_tokens(text: str) -> tuple[list[Token], int]:
    """The tokens up to the first mistake, and where that is; a text may end in the middle of one."""
    try:
        return tokenize(text)[:-1], len(text)
    except ParseError as error:
        assert error.span is not None, "every lexer error has a span"
        stop = error.span.start
        return (tokenize(text[:stop])[:-1] if stop < len(text) else []), stop


def split(text: str) -> Iterator[str]:
    """The inputs of a text that was not typed: dot commands by line, and the SQL between them."""
    sql: list[str] = []
    for line in text.splitlines():
        waiting = "\n".join(sql)
        if command_of(line) is not None and (not waiting.strip() or is_whole(waiting)):
            if waiting.strip():
                yield waiting
            sql = []
            yield line
        else:
            sql.append(line)
            if is_whole("\n".join(sql)):
                yield "\n".join(sql)
                sql = []
    if "\n".join(sql).strip():
        yield "\n".join(sql)
