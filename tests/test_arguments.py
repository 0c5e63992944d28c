"""Every public parameter refuses what it cannot mean: an error of ours with a hint, never one from the depths."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

import strandline as sl
from strandline.core.arguments import checked, describe
from strandline.core.errors import ArgumentError, StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.tables import TableHandle

ROWS = "rows((1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:02'))"


class Strange:
    """A value that nothing means."""

    def __repr__(self) -> str:
        raise AssertionError("values of users are not printed")


STRANGE: list[Any] = [Strange(), 3.5, True, -1, "☂", b"x", [], {}, ["x", 1], {"a": Strange()}, float("nan"), 10**30]


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.catalog.notices.show = None
        database.sql(f"CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE {ROWS} ORDERED BY ts")
        database.sql("CREATE STREAM e (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        database.sql("CREATE STREAM named AS SELECT x FROM s")
        database.sql("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR)")
        yield database


@pytest.fixture(scope="module")
def query(db: Database) -> Query:
    query: Query = db.sql("SELECT x FROM s", name="q")
    query.await_end(30)
    return query


# ---- everything, with everything -------------------------------------------------------------------------------------

# Arguments with which each call would work; every one is replaced by strange values in turn.
DATABASE: dict[str, dict[str, Any]] = {
    "sql": {"text": "SHOW STREAMS", "sink": None, "name": None},
    "query": {"name": "named", "sink": None},
    "recover": {"sinks": None},
    "append": {"stream": "e", "rows": []},
    "advance": {"stream": "e", "to": "2024-01-01"},
    "end": {"stream": "e"},
    "table": {"name": "t"},
    "insert": {"table": "t", "rows": [], "at": None},
    "upsert": {"table": "t", "rows": [], "at": None},
    "update": {"table": "t", "assignments": {"v": "'x'"}, "where": None, "at": None},
    "delete": {"table": "t", "where": "k = 1", "at": None},
    "register": {
        "name": "f", "frame": None, "ordered_by": None, "until": None, "within": None, "idle_after": None,
        "trigger": None,
    },
    "register_table": {"name": "f", "frame": None, "key": ()},
    "function": {"name": "fn", "body": abs, "arguments": ["DOUBLE"], "returns": "DOUBLE"},
    "aggregate": {
        "name": "agg", "arguments": ["DOUBLE"], "returns": "DOUBLE", "initialize": abs, "merge": max, "evaluate": abs,
        "inverse": None,
    },
    "warm": {"note": None},
}  # fmt: skip
QUERY: dict[str, dict[str, Any]] = {
    "results": {"form": "arrow"},
    "snapshot": {"at": "2024-01-01 00:00:01", "form": "arrow"},
    "changes": {"form": "arrow"},
    "late": {"stream": "s", "form": "arrow"},
    "rejected": {"stream": "s", "form": "arrow"},
    "explain": {"analyze": False},
    "subscribe": {"callback": None, "items": None, "every": 1.0},
    "await_end": {"timeout": 1.0},
    "pieces": {"after": 0},
}
TABLE: dict[str, dict[str, Any]] = {
    "insert": {"rows": [], "at": None},
    "upsert": {"rows": [], "at": None},
    "replace": {"rows": [], "at": None},
    "snapshot": {"at": None, "form": "arrow"},
    "history": {"form": "arrow"},
}
SINKS: dict[str, dict[str, Any]] = {
    "Memory": {"keep": 10, "keep_us": None},
    "Callback": {"function": print},
    "Console": {"stream": None},
    "Parquet": {"directory": "out", "consumed": False},
    "Delta": {"directory": "out"},
    "Kafka": {"servers": "a:1", "topic": "t", "key": None, "transactional": True, "settings": {}},
    "PostgreSQL": {"dsn": "host=a", "table": "t", "shows": "elements", "password": None},
    "SQLite": {"path": "a.db", "table": "t", "shows": "elements"},
    "Webhook": {"url": "https://example.com/hook"},
}
CONNECT: dict[str, Any] = {
    "spark": None, "master": None, "engine": "local", "checkpoint": None, "shards": None, "buckets": None,
    "batch_rows": 1000, "batch_seconds": 1.0, "policy": "SWF", "strategy": "fifo", "keep": 10, "shedding": None,
    "capacity": None, "config": None, "take_over": False, "allow": None, "tables": None,
}  # fmt: skip


def cases(calls: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    return [(call, argument) for call, arguments in calls.items() for argument in arguments]


def feed(call: Callable[..., Any], arguments: dict[str, Any], argument: str) -> None:
    """Call with every strange value in the place of an argument: it works, or an error of ours has code and hint."""
    refused = 0
    for value in STRANGE:
        try:
            call(**{**arguments, argument: value})
        except StrandlineError as error:
            refused += 1
            assert error.code
            assert error.hint or error.detail or error.span is not None
            error.render()
    assert refused >= 1, "no value is strange to it"


@pytest.mark.parametrize(("call", "argument"), cases(DATABASE))
def test_methods_of_a_database(db: Database, call: str, argument: str) -> None:
    feed(getattr(db, call), DATABASE[call], argument)


@pytest.mark.parametrize(("call", "argument"), cases(QUERY))
def test_methods_of_a_query(query: Query, call: str, argument: str) -> None:
    feed(getattr(query, call), QUERY[call], argument)


@pytest.mark.parametrize(("call", "argument"), cases(TABLE))
def test_methods_of_a_table(db: Database, call: str, argument: str) -> None:
    feed(getattr(db.table("t"), call), TABLE[call], argument)


@pytest.mark.parametrize(("call", "argument"), cases(SINKS))
def test_sinks(call: str, argument: str) -> None:
    feed(getattr(sl, call), SINKS[call], argument)


@pytest.mark.parametrize("argument", CONNECT)
def test_connect(argument: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some values are paths
    feed(lambda **arguments: sl.connect(**arguments).close(), CONNECT, argument)


@pytest.mark.parametrize("argument", ["roots", "hosts", "connectors", "functions", "secrets"])
def test_allow(argument: str) -> None:
    feed(sl.Allow, {}, argument)


def test_secret() -> None:
    feed(sl.secret, {}, "reference")


READ = {"directory": "nowhere", "query": None, "at": None, "changes": False}


@pytest.mark.parametrize("argument", READ)
def test_read(argument: str) -> None:
    feed(sl.read, READ, argument)


WIDGETS: dict[str, dict[str, Any]] = {
    "LiveTable": {"query": None, "rows": 20, "every": 0.5},
    "LiveChart": {"query": None, "y": "x", "line": None, "last": None, "every": 0.5},
}


@pytest.mark.parametrize(("call", "argument"), cases(WIDGETS))
def test_widgets(query: Query, call: str, argument: str) -> None:
    notebook = pytest.importorskip("strandline.notebook")
    feed(lambda **arguments: getattr(notebook, call)(**arguments).close(), WIDGETS[call] | {"query": query}, argument)


def public(kind: type) -> set[str]:
    own = {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}
    return {name for name in own if len(inspect.signature(getattr(kind, name)).parameters) > 1}


WITHOUT_ARGUMENTS = [
    (Query, name)
    for name in ("follow", "follow_async", "statistics", "notices", "why", "stop", "metrics", "operators", "check")
] + [(Database, name) for name in ("notices", "close")]


@pytest.mark.parametrize(("kind", "name"), WITHOUT_ARGUMENTS, ids=lambda value: getattr(value, "__name__", value))
def test_methods_without_arguments_refuse_any(db: Database, query: Query, kind: type, name: str) -> None:
    method: Callable[..., Any] = getattr(query if kind is Query else db, name)
    for positional, named in ((("x",), {}), ((), {"since": 1})):
        with pytest.raises(ArgumentError) as caught:
            method(*positional, **named)
        assert caught.value.code == "bad-argument" and caught.value.hint == "It has no argument."


def test_no_public_method_is_left_out() -> None:
    inner = {"execute", "is_stored", "start", "explain", "is_free", "checkpoint_of", "make_view_sink", "drop_view"}
    inner |= {"join", "run", "running_pipeline", "describe", "former_sink"}
    assert public(Database) - inner == set(DATABASE)
    assert public(Query) - {"rows_at"} == set(QUERY)
    assert public(TableHandle) == set(TABLE)
    assert set(inspect.signature(sl.connect).parameters) == set(CONNECT)


def test_texts_are_for_sql(db: Database) -> None:
    with pytest.raises(ArgumentError) as caught:
        db.execute("SELECT 1")  # type: ignore[arg-type]
    assert caught.value.hint == "Write db.sql(text), which runs statements."
    with pytest.raises(ArgumentError) as caught:
        db.explain("SELECT 1")  # type: ignore[arg-type]
    assert caught.value.hint == "Write db.sql('EXPLAIN SELECT …')."


def test_a_table_that_there_is_not_is_named(db: Database) -> None:
    for call in (lambda: db.insert("tt", []), lambda: db.upsert("tt", []), lambda: db.table("tt")):
        with pytest.raises(StrandlineError) as caught:
            call()
        assert caught.value.code == "unknown-table" and caught.value.hint == 'Did you mean "t"?'


@pytest.mark.parametrize("value", ["zz", "two words", "it's"])
def test_a_text_without_quotes_is_no_value(db: Database, value: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        db.update("t", {"v": value}, where="k = 1")
    written = "'" + value.replace("'", "''") + "'"
    assert f"a text is written {{'v': \"{written}\"}}." in str(caught.value.hint)
    db.update("t", {"v": written}, where="k = 1")


# ---- what is said ----------------------------------------------------------------------------------------------------


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(StrandlineError) as caught:
        call()
    return caught.value.render()


def test_engines_are_named() -> None:
    text = refusal(lambda: sl.connect(engine="sprak"))  # type: ignore[arg-type]
    assert text == (
        'error[bad-argument]: engine of connect() must be "spark" or "local", not "sprak"\nhint: Did you mean "spark"?'
    )


def test_arguments_that_there_are_not_are_named() -> None:
    text = refusal(lambda: sl.connect(chekpoint="x"))  # type: ignore[call-arg]
    assert text == 'error[bad-argument]: connect() has no argument "chekpoint"\nhint: Did you mean "checkpoint"?'


def test_arguments_that_are_missing_are_named(db: Database) -> None:
    text = refusal(lambda: db.table())  # type: ignore[call-arg]
    assert "table(): missing a required argument: 'name'" in text and "Its arguments are name." in text


def test_what_an_engine_ignores_is_refused() -> None:
    text = refusal(lambda: sl.connect(engine="local", master="local[2]"))
    assert "master of connect() is for Spark, and the engine is local" in text


@pytest.mark.parametrize("argument", ["shards", "batch_rows", "keep"])
def test_numbers_have_ranges(argument: str) -> None:
    assert f"{argument} of connect() must be at least 1, not 0" in refusal(
        lambda: sl.connect(engine="local", **{argument: 0})  # type: ignore[arg-type]
    )


def test_forms_of_results_are_named(query: Query, db: Database) -> None:
    text = refusal(lambda: query.results("panda"))  # type: ignore[arg-type]
    assert 'form of results() must be "arrow", "pandas" or "polars", not "panda"' in text
    assert 'Did you mean "pandas"?' in text
    assert "polars" in refusal(lambda: db.sql("SHOW STREAMS").results("poles"))


def test_streams_of_side_outputs_are_named(query: Query) -> None:
    text = refusal(lambda: query.late("ss"))
    assert 'stream of late(): q reads no stream "ss"' in text
    assert 'Did you mean "s"?' in text
    assert query.late("S").num_rows == 0
    assert "There is s." in refusal(lambda: query.rejected("completely else"))


@pytest.mark.parametrize("at", ["yesterday", "2024-13-01", "", float("inf"), 2**70])
def test_instants_are_explained(query: Query, db: Database, at: Any) -> None:
    for call in (
        lambda: query.snapshot(at),
        lambda: db.advance("e", at),
        lambda: db.table("t").snapshot(at),
        lambda: db.insert("t", [], at=at),
        lambda: db.delete("t", "k = 1", at=at),
    ):
        text = refusal(call)
        assert "error[bad-instant]" in text or "error[bad-argument]" in text
        assert "datetime" in text


def test_a_datetime_is_an_instant(query: Query) -> None:
    assert query.snapshot(datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)).num_rows == 1


def test_queries_that_there_are_not_are_named(db: Database) -> None:
    assert 'Did you mean "named"?' in refusal(lambda: db.query("nmaed"))


def test_annotations_in_words() -> None:
    assert describe(Literal["a", "b"]) == '"a" or "b"'
    assert describe(str | None) == "a text or None"
    assert describe(int | float | None) == "a whole number, a number or None"


def test_a_checked_function_is_otherwise_as_before() -> None:
    @checked()
    def double(x: int, *, times: Literal[2] = 2) -> int:
        """Twice."""
        return x * times

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    with pytest.raises(ArgumentError, match="x of double"):
        double("4")  # type: ignore[arg-type]


# ---- after the end ---------------------------------------------------------------------------------------------------


def test_a_closed_database_says_so() -> None:
    db = sl.connect(engine="local")
    db.catalog.notices.show = None
    db.sql(f"CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE {ROWS} ORDERED BY ts; CREATE TABLE t (k INT)")
    db.sql("CREATE STREAM e (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts; CREATE STREAM n AS SELECT x FROM s")
    table, query = db.table("t"), db.sql("SELECT x FROM s")
    query.await_end(30)
    db.close()
    db.close()  # twice is no error
    for call in (
        lambda: db.sql("SELECT x FROM s"),
        lambda: db.query("n"),
        lambda: db.append("e", [(1, "2024-01-01")]),
        lambda: db.advance("e", 0),
        lambda: db.end("e"),
        lambda: db.table("t"),
        lambda: db.insert("t", [(1,)]),
        lambda: db.delete("t"),
        lambda: db.function("f", abs, arguments=["DOUBLE"], returns="DOUBLE"),
        lambda: db.warm(),
    ):
        assert "error[database-closed]: this database is closed" in refusal(call)
    for call in (lambda: table.insert([(1,)]), lambda: table.snapshot(), lambda: table.history()):
        assert "error[table-closed]" in refusal(call)
    assert query.results().num_rows == 2  # what is in memory stays
    assert query.notices() == [] and query.why() and query.metrics()
    query.stop()


def test_a_dropped_table_says_so(db: Database) -> None:
    db.sql("CREATE TABLE gone (k INT)")
    table = db.table("gone")
    db.sql("DROP TABLE gone")
    for call in (lambda: table.insert([(1,)]), lambda: table.snapshot(), lambda: table.history()):
        assert "error[table-closed]" in refusal(call)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("pl", 'results("polars")'),
        ("df", 'results("pandas")'),
        ("arrow", "results()"),
        ("fetchall", "results().to_pylist()"),
    ],
)
def test_a_method_of_another_library_names_the_one_here(db: Database, query: Query, method: str, call: str) -> None:
    for owner in (query, db.sql("SHOW STREAMS")):
        with pytest.raises(AttributeError, match=re.escape(call)):
            getattr(owner, method)()
        assert not hasattr(owner, "nothing_of_that_name")
        written: Any = eval(f"owner.{call}", {"owner": owner})
        assert len(written) > 0


def test_a_statement_is_not_the_name_of_a_query(db: Database) -> None:
    assert "db.sql(text)" in refusal(lambda: db.query("SELECT x FROM s"))
