"""Whatever a user writes is accepted or refused with a place in the text: no other exception, no hang.

Through the whole front end: parse, bind, optimize, choose, and the text of the plans. What once broke it stays below as
an example of its own.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

import user_functions as users
from mutations import Seed, mutated
from strandline import connect
from strandline.connectors.sources.file import FileSource
from strandline.connectors.tables.feeds.feeder import TableFeeder
from strandline.core.errors import Span, StrandlineError
from strandline.database.database import Database
from strandline.database.script import DeferredStatements
from strandline.logical.catalog import Table
from strandline.sql import ast
from strandline.sql.parser.statements import parse

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def files_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files there are is not about the text."""
    monkeypatch.setattr(FileSource, "check", lambda *_: None)
    monkeypatch.setattr(TableFeeder, "start", lambda *_: None)


BLOCK = 250
FAST, ALL = 1_000, 20_000


@contextmanager
def patience(text: str) -> Iterator[None]:
    """A text that takes the processor for longer is a hang; what others run beside does not count."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"more than {PATIENCE_S} s for {text[:200]!r}")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@cache
def declared(declarations: str) -> Database:
    database = connect(engine="local")
    take(declarations, database)
    return database


def take(text: str, database: Database) -> None:
    """What the engine does with a text before anything runs."""
    script = DeferredStatements(database)
    for statement in parse(text):
        if isinstance(statement, ast.CreateStreamAs | ast.CreateView | ast.CreateSink | ast.QueryWithShedding):
            script.execute(ast.Explain(statement, span=statement.span))
        elif isinstance(statement, ast.Query) and not ast.reads_system(statement):
            statement = ast.Explain(statement, span=statement.span)
        script.execute(statement)


def outcome(seed: Seed) -> str:
    """`accepted`, or the code of the refusal, whose place is looked at."""
    database = connect(engine="local")
    users.bring(database.catalog)
    for stream in declared(seed.declarations).catalog:
        database.catalog.add(stream)
        if isinstance(stream, Table):
            database.tables.open(stream)
    try:
        with patience(seed.text):
            take(seed.text, database)
    except StrandlineError as error:
        check_place(error, seed.text)
        return error.code
    return "accepted"


def check_place(error: StrandlineError, text: str) -> None:
    assert isinstance(error.span, Span), f"{error.code} without a place"
    assert error.span.text == text, f"{error.code} points into another text"
    assert 0 <= error.span.start <= error.span.end <= len(text), f"{error.code} points beside the text"
    rendered = error.render()
    assert rendered.encode(), "any terminal can show it"
    assert re.fullmatch(r"  .*|  line \d+: .*", rendered.split("\n")[1]), "the line of the place follows the statement"
    assert re.fullmatch(r" +\^+", rendered.split("\n")[2]), "and then the caret"


def check(first: int) -> Counter[str]:
    codes: Counter[str] = Counter()
    for number in range(first, first + BLOCK):
        seed = mutated(number)
        try:
            codes[outcome(seed)] += 1
        except BaseException as error:
            error.add_note(f"mutation {number}:\n{seed.text[:2_000]}")
            raise
    return codes


@pytest.mark.parametrize("first", range(0, FAST, BLOCK))
def test_every_text_is_accepted_or_refused_with_a_place(first: int) -> None:
    codes = check(first)
    # The damage is neither harmless nor hopeless: all phases see some of the texts.
    assert codes["accepted"] > BLOCK // 20
    assert codes["syntax"] > BLOCK // 10
    assert len(codes) > 15


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FAST, ALL, BLOCK))
def test_every_further_text_is_accepted_or_refused_with_a_place(first: int) -> None:
    assert len(check(first)) > 15


# ---- texts that grow -------------------------------------------------------------------------------------------------

DECLARED = "CREATE STREAM s (a INT, b VARCHAR, ts TIMESTAMP) SOURCE rows() ORDERED BY ts;"


def tower(levels: int, query: str) -> str:
    """Named queries, each over the one before."""
    named = [f"CREATE STREAM v{level} AS {query.format(f'v{level - 1}')}" for level in range(1, levels)]
    return ";".join(["CREATE STREAM v0 AS SELECT a, b FROM s", *named])


# Short texts whose plans would be larger than any machine, and long texts that need not be.
GROWING: dict[str, tuple[str, str]] = {
    "a query that reads the one below it twice": (tower(40, "SELECT x.a, x.b FROM {0} AS x, {0} AS y"), "too-large"),
    "a union with itself": (tower(40, "SELECT a, b FROM {0} UNION ALL SELECT a, b FROM {0}"), "too-large"),
    "all columns twice": (tower(40, "SELECT *, * FROM {0}"), "too-large"),
    "a thousand stars": (f"SELECT {', '.join(['*'] * 1_000)} FROM s", "too-large"),
    "a union of large queries": (
        tower(9, "SELECT x.a, x.b FROM {0} AS x, {0} AS y") + ";SELECT a FROM v8" + " UNION ALL SELECT a FROM v8" * 300,
        "too-large",
    ),
    # A predicate that is pushed down through maps gets their expressions in place of their columns.
    "a predicate that doubles": (tower(14, "SELECT a * a AS a, b FROM {0} WHERE a > 1"), "accepted"),
    "a case that triples": (
        tower(10, "SELECT CASE WHEN a > 1 THEN a ELSE a + 1 END AS a, b FROM {0} WHERE a > 1"),
        "accepted",
    ),
    "sums of sums": (tower(9, f"SELECT a{' + 1' * 85} AS a, b FROM {{0}}"), "accepted"),
    "one column a thousand times": (f"SELECT {', '.join('a' for _ in range(1_000))} FROM s", "accepted"),
    "a long list": (f"SELECT a FROM s WHERE a IN ({', '.join(map(str, range(5_000)))})", "accepted"),
    "a long union": ("SELECT a FROM s" + " UNION ALL SELECT a FROM s" * 300, "accepted"),
}


@pytest.mark.parametrize("shape", GROWING)
def test_a_text_does_not_grow_beyond_measure(shape: str) -> None:
    text, expected = GROWING[shape]
    assert outcome(Seed(DECLARED, text)) == expected


# ---- texts that broke something --------------------------------------------------------------------------------------

KEPT = {
    "a text of two lines in the statement": "SELECT 'two\nlines' - 'x' AS x FROM s",
    "half of a surrogate pair beside the place": "SELECT \ud800",
    "a mark that turns the writing round": "SELECT '\u202e' FROM nowhere",
    "a control character beside the place": "SELECT a\x1b[2J FROM s",
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    assert outcome(Seed(DECLARED, KEPT[name])) != "accepted"


def test_the_caret_stands_below_its_place_whatever_stands_before_it() -> None:
    with pytest.raises(StrandlineError) as caught:
        take("SELECT '\t\0\ud83d' AS x", connect(engine="local"))
    assert caught.value.render().split("\n")[1:3] == ["  SELECT ' \ufffd\ufffd' AS x", "         ^^^^^"]
