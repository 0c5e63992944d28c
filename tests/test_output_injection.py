"""Data and names that would steer a terminal, forge a line or run in a browser if they were printed as they are."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

import strandline as sl
from strandline.apps.console import SafeConsole
from strandline.apps.shell.graph import draw
from strandline.apps.shell.session import _payload
from strandline.apps.shell.tail import as_ansi
from strandline.apps.shell.views import Screen, show_table
from strandline.core.table import TextTable
from strandline.database.introspection.progress_meter import ProgressMeter

HOSTILE = [
    "\x1b[31mred",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b2J",
    "a\rb",
    "a\x08\x08b",
    "\u202eright to left",
    "\x00",
    "[bold]markup[/bold] [link=http://evil.example]x[/link]",
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\" onmouseover='x'",
    "&lt;b&gt;",
]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def database() -> Iterator[Any]:
    with sl.connect(engine="local") as made:
        rows = ", ".join("('{}', {})".format(text.replace("'", "''"), n) for n, text in enumerate(HOSTILE))
        made.sql(f"CREATE STREAM s (t VARCHAR, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts")
        yield made


def named(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_the_console_sink(database: Any) -> None:
    out = io.StringIO()
    query = database.sql(f"SELECT t, t AS {named(HOSTILE[0])} FROM s", sink=sl.Console(out), name="q\x1b[0m")
    assert query.await_end(20)
    assert not CONTROL.search(out.getvalue())
    assert len(out.getvalue().splitlines()) == len(HOSTILE)


def test_a_value_cannot_forge_a_line() -> None:
    out = io.StringIO()
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (t VARCHAR, ts BIGINT) SOURCE rows(('a\nq  [forged', 1)) ORDERED BY ts")
        assert database.sql("SELECT t FROM s", sink=sl.Console(out)).await_end(20)
    assert len(out.getvalue().splitlines()) == 1


def test_listings(database: Any) -> None:
    for text in HOSTILE[:8]:
        if "\x00" not in text:
            database.sql(f"CREATE VIEW {named(text)} AS SELECT t AS {named(text)} FROM s WHERE t = '{text}'")
    for statement in ("SHOW VIEWS", "SHOW STREAMS", f"DESCRIBE {named(HOSTILE[0])}", "SELECT * FROM sys.streams"):
        assert not CONTROL.search(str(database.sql(statement)))
    assert not CONTROL.search(str(TextTable.text([HOSTILE[0]], [[HOSTILE[1]]])))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_console_prints_what_is_seen(text: str) -> None:
    table = Table(text)
    table.add_row(Text(text))
    for shown in (text, Text(text), table):
        out = io.StringIO()
        console = SafeConsole(file=out, highlight=False, force_terminal=True, color_system=None, width=200)
        console.print(shown, markup=False)
        assert not CONTROL.search(out.getvalue())


def test_the_views_of_the_shell(database: Any) -> None:
    text = f"SELECT t, t || '{HOSTILE[0]}' AS {named(HOSTILE[1])} FROM s WINDOW(RANGE UNBOUNDED)"
    query = database.sql(text, name="q\x1b[5m")
    assert query.await_end(20)
    table = show_table(query, _payload(query, 99), 99, Screen(100))
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", as_ansi(each, 300)) for each in (table, draw(query, ProgressMeter([query])))]
    assert not any(map(CONTROL.search, shown)), "but for the shell's own colours"
    assert "[bold]markup[/bold]" in shown[0], "markup in data is text"


def test_errors(database: Any) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        database.sql(f"SELECT {named(HOSTILE[0])} FROM s")
    assert not CONTROL.search(str(caught.value))


def test_html_of_the_notebook(database: Any) -> None:
    from strandline.apps.notebook.html import listing_html, query_html

    query = database.sql(f"SELECT t, t AS {named(HOSTILE[9])} FROM s WINDOW(RANGE UNBOUNDED)", name=HOSTILE[10])
    assert query.await_end(20)
    database.sql(f"CREATE VIEW {named(HOSTILE[9])} AS SELECT t FROM s")
    for html in (
        query_html(query),
        listing_html(database.sql("SHOW VIEWS")),
        listing_html(database.sql("SHOW QUERIES")),
    ):
        tags = set(re.findall(r"<[^>]*>", html))
        assert all(re.fullmatch(r"</?(table|thead|tbody|tr|th|td|p|i|pre)>", tag) for tag in tags), tags
        assert "&lt;script&gt;" in html or "&lt;/script&gt;" in html


def test_what_browsers_get_is_text() -> None:
    """The widgets never make markup out of data."""
    folder = Path(sl.__file__).parent / "notebook" / "static"
    for script in folder.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script.read_text())


def test_what_widgets_send_is_json(database: Any) -> None:
    from strandline.apps.notebook.live import LiveTable

    query = database.sql("SELECT t FROM s WINDOW(RANGE UNBOUNDED)")
    assert query.await_end(20)
    widget = LiveTable(query, rows=100)
    assert sorted(row[0] for row in json.loads(json.dumps(widget.rows))) == sorted(HOSTILE)
    widget.close()
