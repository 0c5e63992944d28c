"""The parts of the shell, without a terminal."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from terminal import ROOT

import strandline as sl
from strandline.apps.shell.completion import Words
from strandline.apps.shell.feed import ResultFollower
from strandline.apps.shell.highlight import coloured
from strandline.apps.shell.inputs import KEYWORDS, is_whole, split
from strandline.apps.shell.session import Session
from strandline.apps.shell.startup import Startup
from strandline.core.temporal import FOREVER, instant
from strandline.core.types import INT, VARCHAR
from strandline.database.introspection.progress_meter import ProgressMeter, show_bytes
from strandline.database.query import Query
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import CHANGE, TIME


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        (".tail q1", True),
        ("exit", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- so", True),
        ("SELECT ';", False),
        ("SELECT /* ;", False),
        ("SELECT ` FROM s;", False),  # a name in backticks goes on
        ("SELECT \\ FROM s;", True),  # a mistake that does not go away by typing on
        ("-- only a comment", True),
        ("SELECT 1; SELECT 2", False),
    ],
)
def test_when_an_input_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


def test_a_file_falls_into_inputs() -> None:
    text = "SELECT a\n  FROM s;\n.tail q1\nSELECT b\n.5 FROM s;\n"
    assert list(split(text)) == ["SELECT a\n  FROM s;", ".tail q1", "SELECT b\n.5 FROM s;"]


def test_the_keywords_are_those_of_the_grammar() -> None:
    page = (ROOT / "docs" / "language.md").read_text()
    grammar = page.split("## Grammar")[1].split("```")[1]
    words = set(re.findall(r"\b[A-Z]{2,}\b", grammar))
    assert words - KEYWORDS == set(), "completion and colours do not know these"


@pytest.mark.parametrize("text", ["SELECT 'a;' -- b\n, count(*)", "SELECT 'open\nline", "x ` y", "/* open", ".tail q"])
def test_colours_change_no_text(text: str) -> None:
    assert "".join(piece[1] for piece in coloured(text)) == text


def test_colours() -> None:
    styles = {piece[1]: piece[0] for piece in coloured("SELECT count(*), 'a', 5 FROM t -- c")}
    assert styles["SELECT"] == "class:keyword" and styles["count"] == "class:function"
    assert styles["'a'"] == "class:text" and styles["5"] == "class:number" and styles[" -- c"] == "class:comment"


STREAMS = """
CREATE STREAM trades (sym VARCHAR, price DOUBLE, ts BIGINT) SOURCE rows(('a', '1.5', 0)) ORDERED BY ts;
CREATE STREAM quotes (sym VARCHAR, bid DOUBLE, ts BIGINT) SOURCE rows(('a', '1.5', 0)) ORDERED BY ts;
CREATE VIEW dear AS SELECT sym AS symbol, price FROM trades WHERE price > 1;
"""


@pytest.fixture
def session() -> Iterator[Session]:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        startup = Startup(engine="local")
        startup.ready.set()
        yield Session(database, startup)


def offered(session: Session, before: str, after: str = "") -> list[str]:
    document = Document(before + after, len(before))
    event = CompleteEvent(completion_requested=True)
    return [completion.text for completion in Words(session).get_completions(document, event)]


def test_completion_knows_where_it_is(session: Session) -> None:
    assert offered(session, "SELECT * FROM ") == ["trades", "quotes", "dear", "sys."]
    assert offered(session, "select * from d") == ["dear"]
    assert offered(session, "SELECT t.", " FROM trades [RANGE 5 SECONDS] AS t") == ["sym", "price", "ts"]
    assert offered(session, "SELECT q.b", " FROM trades t, quotes WINDOW(RANGE 1 DAY) q") == ["bid"]
    assert offered(session, "SELECT sy", " FROM dear") == ["symbol", "symmetric", "system_time"]
    assert "bid" not in offered(session, "SELECT b", " FROM trades")
    assert offered(session, "SELECT b")[0] == "bid", "no stream is named yet: all are meant"
    assert offered(session, "DESCRIBE q") == ["quotes"]
    assert offered(session, "SELECT * FROM sys.op") == ["operators"]
    assert offered(session, "SELECT us", " FROM sys.operators") == ["us_per_row", "using"]
    assert offered(session, "SELECT o.sel", " FROM sys.operators o") == ["selectivity"]
    assert offered(session, "SELECT string_a") == ["string_agg("]
    assert offered(session, "sel")[0] == "select" and offered(session, "SEL")[0] == "SELECT"
    assert offered(session, ".ti") == [".timing"]
    session.sql("SELECT sym FROM trades;", look=False)
    assert offered(session, ".tail ")[0] == "q1" and "changes" in offered(session, ".tail q1 ")


def test_completion_offers_the_tables_that_a_statement_may_change(session: Session) -> None:
    session.database.catalog.add(Table("stock", (("sym", VARCHAR), ("shares", INT))))
    for before in ("INSERT INTO ", "UPDATE ", "DELETE FROM ", "MERGE INTO ", "TRUNCATE TABLE ", "SHOW TABLES; UPDATE "):
        assert offered(session, before) == ["stock"], before
    assert "stock" in offered(session, "DROP TABLE ") and "dear" in offered(session, "DROP MATERIALIZED VIEW ")
    assert offered(session, "UPDATE stock SET sh")[0] == "shares"
    assert offered(session, "SELECT s.", " FROM stock s") == ["sym", "shares"]


def test_a_query_that_cannot_start_takes_no_id(session: Session) -> None:
    session.run("SELECT nothing FROM trades;")
    session.sql("SELECT sym FROM trades;", look=False)
    session.database.sql("CREATE STREAM named AS SELECT sym FROM trades")
    entry = session.start_named("named")
    assert [each.id for each in session.entries] == ["q1", "q2"]
    assert session.find("q2") is session.find("NAMED") is entry


def test_a_past_that_is_forgotten_is_named_with_a_caret(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ", ".join(f"({n}, {n * 1_000_000})" for n in range(40))
    startup = Startup(engine="local", batch_rows=2, keep=8)
    startup.begin()
    session = startup.session()
    session.sql(f"CREATE STREAM s (v INT, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts;", look=False)
    session.sql("SELECT v FROM s WINDOW(RANGE 2 SECONDS);", look=False)
    session.latest().query.await_end(30)
    capsys.readouterr()
    session.run(".queries")
    session.run(".tail q1 AT TIMESTAMP '1970-01-01 00:00:03'")
    session.run(".tail q1 AT TIMESTAMP '1970-01-01 00:00:39'")
    said = capsys.readouterr().out
    session.database.close()
    assert "retained from" in said
    assert "the result of q1 at 1970-01-01 00:00:03 is no longer retained" in said
    assert re.search(r"\.tail q1 AT TIMESTAMP '1970-01-01 00:00:03'\n +\^+", said)
    assert "Memory keeps 8 elements" in said and "2 rows" in said
    meter = ProgressMeter([session.entries[0].query])
    meter.look()
    assert "│ retained from 1970-01-01 00:00:" in meter.line()


# ---- following an answer ---------------------------------------------------------------------------------------------

ROWS = ", ".join(f"('{'abc'[n * 7 % 3]}', {n * 5 % 4}, {n * 3 + n % 2})" for n in range(40))
FOLLOWED = (
    "SELECT k, COUNT(*) AS n FROM s [RANGE 7 MICROSECONDS] GROUP BY k",
    "SELECT k, v FROM s [RANGE 20 MICROSECONDS]",  # pieces that end long after the progress
    "SELECT k, v FROM s",
    "SELECT COUNT(*) AS n FROM s [RANGE 7 MICROSECONDS]",  # an answer without an end
    "SELECT DISTINCT v FROM s [ROWS 3]",
)


@pytest.mark.parametrize("sql", FOLLOWED)
def test_following_is_reading_all_again(sql: str) -> None:
    """Whenever one looks, the feed has what the whole answer has: snapshot, changes, rows."""
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql(f"CREATE STREAM s (k VARCHAR, v INT, ts BIGINT) SOURCE rows({ROWS}) ORDERED BY ts")
        query = database.sql(sql)
        feed = ResultFollower(query)
        looks = 0
        while not feed.query.ended or looks == 0:
            feed.look()
            looks += 1
            if feed.progress < FOREVER and feed.progress > 0:
                assert Counter(feed.snapshot().rows()) == snapshot_rows(query, feed.progress - 1)
        query.await_end()
        feed.look()
        names = [*feed.ids, TIME, CHANGE]
        ours, earlier = feed.changes(1_000)
        theirs = [(*row[:-2], instant(row[-2]), row[-1]) for row in query.changes("polars").rows()]
        assert earlier == 0 and ours.select(names).rows() == theirs
        rows, earlier = feed.rows(1_000)
        whole = [(*row[:-2], instant(row[-2]), ending(row[-1])) for row in query.results("polars").rows()]
        assert earlier == 0 and Counter(rows.select(*feed.ids, FROM, UNTIL).rows()) == Counter(whole)


@pytest.mark.parametrize("sql", FOLLOWED)
def test_what_is_shown_of_too_much_is_exact(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more comes than is looked at closely, the latest changes and rows are still those of the whole answer."""
    monkeypatch.setattr("strandline.apps.shell.feed.CLOSE_LOOK", 12)
    with sl.connect(engine="local", batch_rows=13) as database:
        database.sql(f"CREATE STREAM s (k VARCHAR, v INT, ts BIGINT) SOURCE rows({ROWS}) ORDERED BY ts")
        query = database.sql(sql)
        query.await_end()
        feed = ResultFollower(query)
        feed.look()
        assert feed.passed_over
        shown, _ = feed.changes(5)
        theirs = [(*row[:-2], instant(row[-2]), row[-1]) for row in query.changes("polars").rows()]
        assert shown.select(*feed.ids, TIME, CHANGE).rows() == theirs[-5:]
        rows, _ = feed.rows(3)
        whole = [(*row[:-2], instant(row[-2]), ending(row[-1])) for row in query.results("polars").rows()]
        assert set(rows.select(*feed.ids, FROM, UNTIL).rows()) <= set(whole)
        assert [row[-2] for row in rows.select(*feed.ids, FROM, UNTIL).rows()] == [row[-2] for row in whole[-3:]]


def snapshot_rows(query: Query, at: int) -> Counter[tuple[object, ...]]:
    return Counter(query.snapshot(at, form="polars").rows())


def ending(value: object) -> int:
    return FOREVER if value is None else instant(value)  # type: ignore[arg-type]


# ---- how far it is ---------------------------------------------------------------------------------------------------


def test_sources_tell_how_many_rows_are_left() -> None:
    with sl.connect(engine="local", batch_rows=100_000) as database:
        database.sql("""CREATE STREAM r (value BIGINT, ts TIMESTAMP)
            SOURCE rate(total => 900000000, start => '2024-01-01', pace => false) ORDERED BY ts""")
        query = database.sql("SELECT COUNT(*) AS n FROM r [RANGE 1 SECOND SLIDE 1 SECOND]")
        meter = ProgressMeter([query])
        left: list[int] = []
        phase = ""
        deadline = time.monotonic() + 30
        while not (phase.startswith("catching up, about ") and len(set(left)) > 3):
            assert time.monotonic() < deadline, phase
            assert not query.await_end(0.01)
            meter.look()
            left += [meter.rows_left] if meter.rows_left is not None else []
            phase = meter.phase() or ""
        assert left == sorted(left, reverse=True) and left[0] <= 900_000_000, "less and less"


def test_nothing_is_left_of_what_has_ended() -> None:
    with sl.connect(engine="local") as database:
        database.sql("""CREATE STREAM r (value BIGINT, ts TIMESTAMP)
            SOURCE rate(total => 10, start => '2024-01-01', pace => false) ORDERED BY ts""")
        query = database.sql("SELECT value FROM r")
        assert query.await_end(30)
        assert query.metrics()["rows_left"] is None


def test_sizes_are_read_at_a_glance() -> None:
    assert [show_bytes(n) for n in (0, 999, 1_500, 23_400, 5_600_000)] == ["0 B", "999 B", "1.5 KB", "23 KB", "5.6 MB"]
