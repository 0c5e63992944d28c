"""What SQL may reach: `connect(allow=…)`, `--allow`, secrets, and what is shown of them."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import typer

import strandline as sl
from source_testing import free_port
from strandline.apps.cli import app
from strandline.connectors.sinks import Sink, known_sinks
from strandline.connectors.sources.base import Source, known_sources
from strandline.core.errors import Span, StrandlineError
from strandline.core.security.allow import Allow
from strandline.core.security.redaction import is_sensitive, redact
from strandline.core.security.secret import MAX_BYTES, Secret, parse_reference
from strandline.database.script import DeferredStatements
from strandline.logical.catalog import ConnectorCall

ROWS = "CREATE STREAM r (k INT, ts BIGINT) SOURCE rows((1, 1)) ORDERED BY ts;"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A directory that is allowed, one that is not, and links between them."""
    for name in ("in", "out", "in/deep"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("k,ts\n1,1\n")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "in2").mkdir()  # begins like the one that is allowed
    (tmp_path / "in2" / "a.csv").write_text("k,ts\n1,1\n")
    return tmp_path


def refused(allow: Allow, statement: str) -> StrandlineError:
    with sl.connect(engine="local", allow=allow) as database, pytest.raises(StrandlineError) as caught:
        database.sql(ROWS)
        database.sql(statement)
    return caught.value


def stream(call: str) -> str:
    return f"CREATE STREAM s (k INT, ts BIGINT) SOURCE {call} ORDERED BY ts"


def sink(call: str) -> str:
    return f"CREATE SINK x INTO {call} AS SELECT k FROM r"


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["in/a.csv", "in/*.csv", "in", "in/**/*.csv", "in/./deep/../a.csv", "in2/../in/a.csv"])
def test_files_below_a_root(world: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "in/**/*.csv":
        (world / "in" / "link").unlink()
    monkeypatch.chdir(world)
    for allow in (Allow(roots=(world / "in",)), Allow(roots=("in",))):
        with sl.connect(engine="local", allow=allow) as database:
            for written in (path, str(world / path)):
                database.sql("DROP STREAM IF EXISTS s")
                database.sql(stream(f"file('{written}')"))
            query = database.sql("SELECT k FROM s")
            assert query.await_end(20) and query.results().num_rows >= 1


@pytest.mark.parametrize(
    "path",
    [
        "out/a.csv",
        "in2/a.csv",
        "in/../out/a.csv",
        "in/link/a.csv",
        "in/link/*.csv",
        "in/*/../../out/a.csv",
        "in*/a.csv",
        "*/a.csv",
        "in/l*/a.csv",
        "in/**/a.csv",
        "/etc/passwd",
        "/proc/self/environ",
        "../**/*.csv",
        "[io]n/a.csv",
        "",
        ".",
    ],
)
def test_files_elsewhere(world: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    error = refused(Allow(roots=(world / "in",)), stream(f"file('{path}', format => 'csv', follow => true)"))
    assert error.code == "not-allowed", error
    assert error.span is not None and error.span.text[error.span.start :].startswith("file(")


def test_a_link_that_comes_later_is_not_followed(world: Path) -> None:
    (world / "in" / "link").unlink()
    with sl.connect(engine="local", allow=Allow(roots=(world / "in",))) as database:
        database.sql(stream(f"file('{world}/in/*.csv', follow => true)"))
        query = database.sql("SELECT k FROM s")
        while not query.metrics()["rows_in"].get("s"):
            time.sleep(0.01)
        (world / "in" / "b.csv").symlink_to(world / "out" / "a.csv")
        with pytest.raises(StrandlineError) as caught:
            query.await_end(20)
        assert caught.value.code == "not-allowed"


@pytest.mark.parametrize("call", ["parquet('{}')", "delta('{}')", "delta('file://{}')", "sqlite('{}', table => 't')"])
def test_sinks_write_below_a_root(world: Path, call: str) -> None:
    allow = Allow(roots=(world / "in",))
    for path in ("out/x", "in/../x", "in/link/x", "inx"):
        error = refused(allow, sink(call.format(world / path)))
        assert error.code == "not-allowed" and error.span is not None
        assert error.span.text[error.span.start :].startswith(call.partition("(")[0])
    assert not list(world.glob("**/x*"))
    with sl.connect(engine="local", allow=allow) as database:
        database.sql(ROWS)
        assert database.sql(sink(call.format(world / "in" / "results"))).await_end(20)


def test_the_files_beside_a_parquet_sink_are_inside_too(world: Path) -> None:
    assert refused(Allow(roots=(world / "in",)), sink(f"parquet('{world}/in')")).code == "not-allowed"


def test_directories_of_events(world: Path) -> None:
    allow = Allow(roots=(world / "in",))
    assert refused(allow, stream(f"events('{world}/out/e')")).code == "not-allowed"
    with sl.connect(engine="local", allow=allow) as database:
        database.sql(stream(f"events('{world}/in/e')"))
        database.sql("CREATE STREAM own (k INT) SOURCE events()")


# ---- hosts -----------------------------------------------------------------------------------------------------------

HOSTS = Allow(hosts=("db.example", "*.hooks.example", "broker:9092", "[::1]:80", "127.0.0.1"))


@pytest.mark.parametrize(
    "call",
    [
        "webhook('http://evil.example/x')",
        "webhook('http://hooks.example/')",
        "webhook('http://a.hooks.example.evil/')",
        "webhook('http://xhooks.example/')",
        "webhook('http://db.example@evil.example/')",
        "webhook('http://evil.example#@db.example/')",
        "webhook('http://evil.example\\@db.example/')",
        "webhook('https://[::1]:443/')",
        "webhook(secret('env:URL'))",
        "kafka('broker:9093', topic => 't')",
        "kafka('broker:9092,evil:9092', topic => 't')",
        "kafka('broker', topic => 't', settings => ('bootstrap.servers=evil:9092'))",
        "kafka('broker:9092', topic => 't', settings => ('plugin.library.paths=/tmp/x.so'))",
        "kafka('broker:9092', topic => 't', \"sasl.kerberos.kinit.cmd\" => 'touch /tmp/x')",
        "kafka('broker:9092', topic => 't', \"ssl.ca.location\" => '/etc/ssl/x')",
        "kafka('broker:9092', topic => 't', \"SSL.key.location\" => '/etc/ssl/x')",
        "postgresql('postgresql://evil/x', table => 't')",
        "postgresql('host=db.example,evil dbname=x', table => 't')",
        "postgresql('host=db.example hostaddr=192.0.2.1', table => 't')",
        "postgresql('host=/var/run/postgresql', table => 't')",
        "postgresql('host=@abstract', table => 't')",
        "postgresql('service=other', table => 't')",
        "postgresql('dbname=x', table => 't')",
        "postgresql('host=db.example sslkey=/etc/x', table => 't')",
        "postgresql('postgresql://db.example/x?host=evil', table => 't')",
        "postgresql('postgresql://db.example/x?service=evil', table => 't')",
        "delta('s3://bucket/x')",
    ],
)
def test_hosts_elsewhere(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "http://evil.example/")
    monkeypatch.delenv("PGHOST", raising=False)
    error = refused(HOSTS, sink(call))
    assert error.code in ("not-allowed", "sink-argument") and error.span is not None


@pytest.mark.parametrize(
    "call",
    [
        "webhook('http://DB.example./x')",
        "webhook('https://a.b.hooks.example:8443/x')",
        "webhook('http://[::1]/x')",
        "kafka('broker:9092', topic => 't', \"security.protocol\" => 'SSL', settings => ('linger.ms=1'))",
        "postgresql('postgresql://me:pw@db.example:5432/x', table => 't')",
        "postgresql('host=db.example port=6543', table => 't')",
    ],
)
def test_hosts_that_are_listed(call: str) -> None:
    with sl.connect(engine="local", allow=HOSTS) as database:
        from strandline.sql import ast
        from strandline.sql.parser.statements import parse_one

        database.sql(ROWS)
        statement = parse_one(sink(call))
        assert isinstance(statement, ast.CreateSink)
        DeferredStatements(database).execute(statement)


def test_addresses_of_sources() -> None:
    for call in ("http('127.0.0.2:1')", "socket('evil:1')", "kafka('evil:1', topic => 't')", "http('[::1]:81')"):
        assert refused(HOSTS, stream(call)).code == "not-allowed"
    with sl.connect(engine="local", allow=HOSTS) as database:
        database.sql(stream(f"http('127.0.0.1:{free_port()}')"))


# ---- connectors, functions, secrets ----------------------------------------------------------------------------------


def test_connectors_by_name(world: Path) -> None:
    allow = Allow(roots=(world,), connectors=("file", "rows", "memory"))
    assert refused(allow, stream("rate(rows_per_second => 1)")).code == "not-allowed"
    assert refused(allow, sink("console()")).code == "not-allowed"
    with sl.connect(engine="local", allow=allow) as database:
        database.sql(stream(f"file('{world}/in/a.csv')"))


def test_connectors_of_other_packages_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(known_sources()["rows"]):  # type: ignore[misc]
        pass

    Foreign.__module__ = "theirs.sources"
    monkeypatch.setattr("strandline.connectors.sources.base.load_plugins", lambda group: {"theirs": Foreign})
    assert refused(Allow(), stream("theirs((1, 1))")).code == "not-allowed"
    with sl.connect(engine="local", allow=Allow(connectors=("theirs",))) as database:
        database.sql(stream("theirs((1, 1))"))


def test_functions_by_name() -> None:
    def registered(allow: Allow | None) -> Any:
        database = sl.connect(engine="local", allow=allow)
        for name in ("good", "bad"):
            database.function(name, lambda x: x, arguments=["INT"], returns="INT")
        database.sql(ROWS)
        return database

    with registered(Allow(functions=("good",))) as database:
        assert database.sql("SELECT GOOD(k) FROM r").await_end(20)
        for text in (
            "SELECT bad(k) FROM r",
            "CREATE VIEW v AS SELECT good(bad(k)) AS x FROM r",
            "EXPLAIN SELECT bad(k) FROM r",
        ):
            with pytest.raises(StrandlineError) as caught:
                database.sql(text)
            assert caught.value.code == "not-allowed" and caught.value.span is not None
    with registered(Allow()) as database:
        assert database.sql("SELECT bad(k) FROM r").await_end(20)


def test_secrets_by_name(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "x")
    monkeypatch.setenv("AWS_KEY", "x")
    (world / "in" / "token").write_text("x")
    (world / "out" / "token").write_text("x")
    allow = Allow(roots=(world / "in",), hosts=("127.0.0.1",), secrets=("env:HOOK_*",))
    call = "http('127.0.0.1:1', token => secret('{}'))"
    for reference in ("env:AWS_KEY", f"file:{world}/out/token", f"file:{world}/in/link/token", "file:/etc/shadow"):
        assert refused(allow, stream(call.format(reference))).code == "not-allowed"
    for reference in ("env:HOOK_TOKEN", f"file:{world}/in/token"):
        with sl.connect(engine="local", allow=allow) as database:
            database.sql(stream(call.format(reference)))
    header = f"webhook('http://127.0.0.1:1/', headers => (secret('file:{world}/out/token')))"
    assert refused(allow, sink(header)).code == "not-allowed"


def test_without_allow_all_is_allowed(world: Path) -> None:
    with sl.connect(engine="local") as database:
        database.sql(stream(f"file('{world}/in/link/*.csv')"))


def test_nothing_is_reached_when_nothing_is_listed(world: Path) -> None:
    for statement in (stream(f"file('{world}/in/a.csv')"), stream("http('1')"), sink("webhook('http://127.0.0.1/')")):
        assert refused(Allow(), statement).code == "not-allowed"
    with sl.connect(engine="local", allow=Allow()) as database:
        database.sql(ROWS + "CREATE STREAM s (value BIGINT, ts BIGINT) SOURCE rate(rows_per_second => 1) ORDERED BY ts")
        assert database.sql("SELECT k FROM r").await_end(20)


def test_every_connector_of_ours_says_what_it_reaches() -> None:
    """A new connector must either say it, or be entered here as one that reaches nothing."""
    silent = {name for name, kind in known_sources().items() if _defines_reaches(kind) is Source}
    assert silent == {"rows", "rate", "dataframe", "nexmark"}
    silent = {name for name, kind in known_sinks().items() if _defines_reaches(kind) is Sink}
    assert silent == {"memory", "console", "callback", "table"}  # a table is of the same database


def _defines_reaches(connector: type) -> type:
    return next(kind for kind in connector.__mro__ if "reaches" in vars(kind))


@pytest.mark.parametrize("rule", ["data", "dir:", "path:/x", "host", ""])
def test_rules_that_cannot_be_read(rule: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        Allow.parse([rule])
    assert caught.value.code == "usage"


def test_a_text_is_no_list_of_rules() -> None:
    with pytest.raises(StrandlineError):
        Allow(roots="/data")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["run", "explain", "test", "verify"])
def test_the_command_line_confines(world: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    script = world / "script.sql"
    text = f"{stream(f'file({chr(39)}{world}/out/a.csv{chr(39)})')}; CREATE STREAM q AS SELECT k FROM s;"
    script.write_text(f"-- sql\n{text}" if command != "test" else text)
    arguments = [command, str(script), "--allow", f"dir:{world}/in", "--allow", "connector:file"]
    arguments += ["--out", str(world / "results")] if command == "run" else []
    arguments += ["--engine", "local"] if command in ("run", "test") else []
    with pytest.raises(StrandlineError) as caught:
        typer.main.get_command(app)(arguments, standalone_mode=False)
    assert caught.value.code == "not-allowed"


# ---- secrets and what is shown ---------------------------------------------------------------------------------------


def test_a_reference_is_all_that_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "hunter2")
    reference = parse_reference("env:X")
    assert reference is not None and reference.reveal() == "hunter2"
    call = ConnectorCall("http", ("1",), {"token": reference})
    assert b"hunter2" not in pickle.dumps(call) and "secret('env:X')" in repr(call)
    assert repr(Secret("text", "hunter2")) == "***" and f"{Secret('text', 'hunter2')}" == "***"


@pytest.mark.parametrize("text", ["env:", "X", "file:", "vault:x", "env:A=B", "file:a\0b", ""])
def test_references_that_cannot_be(text: str) -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError) as caught:
        database.sql(stream(f"http('1', token => secret('{text}'))"))
    assert caught.value.code == "secret-reference" and caught.value.span is not None
    with pytest.raises(StrandlineError):
        sl.secret(text)


def test_files_with_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content, value in ((b"abc", "abc"), (b"abc\r\n", "abc"), (b" a b \n", " a b ")):
        file.write_bytes(content)
        assert Secret("file", str(file)).reveal() == value
    for content in (b"", b"\n", b"\xff", b"x" * (MAX_BYTES + 1)):
        file.write_bytes(content)
        with pytest.raises(StrandlineError) as caught:
            Secret("file", str(file)).reveal()
        assert caught.value.code == "secret-missing"
    with pytest.raises(StrandlineError, match="secret-missing"):
        Secret("file", str(tmp_path / "none")).reveal()


def test_a_name_may_still_be_secret() -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM secret (secret INT, ts BIGINT) SOURCE rows((1, 1)) ORDERED BY ts")
        assert database.sql("SELECT secret FROM secret").await_end(20)


PLAIN = [
    "http('127.0.0.1:1', token => 'hunter2')",
    "http('127.0.0.1:1', token = 'hunter2''s')",
    "socket('127.0.0.1:1', listen => true, token => 'hunter2')",
]


@pytest.mark.parametrize("call", PLAIN)
def test_a_plain_secret_is_shown_nowhere(call: str, tmp_path: Path) -> None:
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(stream(call.replace("127.0.0.1:1", f"127.0.0.1:{free_port()}")))
        query = database.sql("SELECT k FROM s", name="q")
        shown = [
            database.sql(text) for text in ("DESCRIBE s", "SHOW STREAMS", "SELECT * FROM sys.streams", "SHOW QUERIES")
        ]
        shown += [database.sql("EXPLAIN SELECT k FROM s"), query.explain(), query.why(), repr(query)]
        query.stop()
    assert "hunter2" not in "".join(map(str, shown)) and "***" in str(shown[0])
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"hunter2" not in path.read_bytes(), path


@pytest.mark.parametrize(
    "call",
    [
        "http('0.0.0.0:1', path => 'x', max_body => 'a', token => 'hunter2')",
        "http('127.0.0.1:1', token => 'hunter2', path => 'x')",
        "http('127.0.0.1:1', token => ('hunter2'))",
        "kafka('127.0.0.1:1', \"sasl.password\" => 'hunter2')",
        "socket('127.0.0.1:1', token => 'hunter2')",
        "nosuch('http://u:hunter2@h/')",
        "file('http://u:hunter2@h/x.csv')",
    ],
)
def test_errors_quote_a_statement_without_its_secrets(call: str) -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError) as caught:
        database.sql(stream(call))
    text = str(caught.value)
    assert "hunter2" not in text and "***" in text
    line, caret = text.split("\n")[1:3]
    assert line[caret.index("^") : caret.rindex("^") + 1].startswith(call.partition("(")[0]), text


def test_the_caret_stays_below_its_place() -> None:
    text = "x(token => 'hunter2', password => 'a', bad => 1)"
    error = StrandlineError("m", code="c", span=Span(text, text.index("bad"), text.index("bad") + 3))
    _, line, caret = error.render().split("\n")
    assert line[caret.index("^") :][:3] == "bad" and line == "  x(token => '***', password => '***', bad => 1)"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@db/x",
        "https://me:hun@hunter2@db/x",
        "host=h password=hunter2 user=u",
        "host=h password='hunter2 x' user=u",
        "password = hunter2",
        "sslpassword=hunter2",
        "'Authorization: Bearer hunter2'",
        "Proxy-Authorization: Basic hunter2",
        "'Cookie: sid=hunter2; b=hunter2'",
        "X-Api-Key: hunter2",
        "X-Auth-Token: hunter2",
        "https://h/x?access_token=hunter2&y=1",
        "https://h/x?api_key=hunter2",
        "settings => ('sasl.password=hunter2', 'ssl.key.password=hunter2')",
        "\"sasl.password\" => 'hunter2'",
        "\"ssl.key.pem\" => '-----BEGIN\nhunter2\n-----END'",
        "TOKEN=>'hunter2'",
    ],
)
def test_redaction(text: str) -> None:
    assert "hunter2" not in redact(text) and "***" in redact(text)
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.token FROM s WHERE a.token = b.token",
        "password authentication failed for user",
        "the token is missing or wrong",
        "http://localhost:8080/path",
        "token => secret('env:X')",
        "kafka('a:1', key => 'sym')",
        "2024-01-02 09:00:00",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_redaction_of_long_texts_takes_no_time() -> None:
    began = time.monotonic()
    for text in (
        "a" * 300_000,
        "token" * 40_000,
        "token=" * 40_000,
        "'" * 300_000,
        "x-" * 100_000,
        "password " * 30_000,
    ):
        redact(text)
    assert time.monotonic() - began < 10


def test_names_of_options() -> None:
    assert all(map(is_sensitive, ("token", "sasl.password", "ssl.key.pem", "client_secret", "API_KEY")))
    assert not any(map(is_sensitive, ("key", "topic", "path", "sasl.username")))
