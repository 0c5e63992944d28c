"""Kinds of trials with hostile names, hostile data and hostile peers, mostly on the local engine."""

from __future__ import annotations

import base64
import http.client
import http.server
import itertools
import json
import os
import pickle
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

import strandline as sl
from attack.kind import Kind, Run
from attack.tree import files_of
from attack.verdict import INTERNAL, Verdict, has_trace
from attack.world import World, watched_screen
from source_testing import free_port
from strandline.core.errors import StrandlineError
from strandline.database.script import read_script, start_script

# ---- names -----------------------------------------------------------------------------------------------------------

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "upwards": ("../../x", "..", "../x", "a/../../b", "./../x", "x/..", "..\\x"),
    "absolute": ("/ABS/x", "//ABS/x", "file:///ABS/x", "~/x", "~root"),
    "control": ("a\0b", "a\nb", "a\rb", "\t", "a\x1b[2Jb", "\x7f", "a\u202eb", "\ud800"),
    "long": ("n" * 200, "n" * 256, "ä" * 130, "n" * 5000, "x/" * 400),
    "dots and spaces": (".", "...", ".hidden", " ", "a b", " a", "a ", "a.", "a.parquet", "-rf"),
    "unicode": ("ä", "a\u0308", "😀", "İ", "ﬀ", "\u200b", "Ａ", "ß"),
    "reserved": (
        "_late",
        "_rejected",
        ".strandline",
        "CON",
        "aux.txt",
        "lock",
        "_strandline.json",
        "checkpoint",
        "sys",
    ),
    "quotes": ('a"b', "a'b", "a`b", "a;DROP STREAM s", "a--b", "$(touch x)", "%s%n", "{0.__class__}", "a*b?", "[a]"),
}
_PLACES: Final = ("stream", "query", "sink", "script query", "events")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_ROWS: Final = "rows((1, 1000000), ('x', 2000000), (2, 9000000), (3, 1000000))"  # one malformed, one late


def _use_name(name: str, place: str, inner: Path) -> int:
    """Run a query that has the name somewhere; how many rows its results have."""
    q = _quoted(name)
    checkpoint = None if place == "script query" else inner / "checkpoint"
    with sl.connect(engine="local", checkpoint=checkpoint) as database:
        match place:
            case "stream":
                database.sql(f"CREATE STREAM {q} (n INT, ts BIGINT) SOURCE {_ROWS} ORDERED BY ts")
                query = database.sql(f"SELECT n FROM {q}", sink=sl.Parquet(inner / "out" / "r"), name="r")
            case "query":
                database.sql(f"CREATE STREAM s (n INT, ts BIGINT) SOURCE {_ROWS} ORDERED BY ts")
                query = database.sql("SELECT n FROM s", sink=sl.Parquet(inner / "out" / "r"), name=name)
            case "sink":
                database.sql(f"CREATE STREAM s (n INT, ts BIGINT) SOURCE {_ROWS} ORDERED BY ts")
                query = database.sql(f"CREATE SINK {q} INTO parquet('{inner}/out/r') AS SELECT n FROM s")
            case "events":
                database.sql(f"CREATE STREAM {q} (n INT, ts BIGINT) SOURCE events() ORDERED BY ts")
                database.append(name, [(1, 1_000_000), (2, 9_000_000)])
                database.end(name)
                query = database.sql(f"SELECT n FROM {q}", sink=sl.Parquet(inner / "out" / "r"), name="r")
            case _:
                text = f"CREATE STREAM s (n INT, ts BIGINT) SOURCE {_ROWS} ORDERED BY ts;"
                script = read_script(database, f"{text} CREATE STREAM {q} AS SELECT n FROM s")
                (query,) = start_script(database, script, inner / "out", None)
        assert query.await_end(30), "the query has not ended"
        query.stop()
    found = [file for file in (inner / "out").rglob("*.parquet") if not {"_late", "_rejected"} & set(file.parts)]
    return sum(pq.read_metadata(file).num_rows for file in found if file.is_file())  # a query may be called a.parquet


def name_things(group: str) -> Run:
    def trial(world: World, dice: random.Random) -> Verdict:
        name, place = dice.choice(_NAMES[group]), dice.choice(_PLACES)
        with tempfile.TemporaryDirectory(prefix="strandline-names-") as directory:
            inner = Path(directory) / "one" / "two" / "three"
            inner.mkdir(parents=True)
            (Path(directory) / "abs").mkdir()
            name = name.replace("/ABS", f"{directory}/abs")
            what = f"{place} {name[:60]!r}"
            with watched_screen() as screen:
                verdict = _judge_name(name, place, inner)
            outside = [path for path in files_of(Path(directory)) if not path.startswith("one/two/three/")]
            outside += [path for path in files_of(inner) if path.split("/")[0] not in ("out", "checkpoint")]
            if outside:
                return Verdict("escaped", f"{what}: {', '.join(outside[:4])}")
            if has_trace(screen()):
                return Verdict("trace", f"{what}: {screen()[-300:]}")
            return Verdict(verdict.name, f"{what}: {verdict.note}")

    return trial


def _judge_name(name: str, place: str, inner: Path) -> Verdict:
    try:
        rows = _use_name(name, place, inner)
    except StrandlineError as error:
        text = error.render()
        if error.code in INTERNAL:
            return Verdict("internal", text[:300])
        if "\x1b" in text or "\0" in text:
            return Verdict("escaped", f"control characters in the message: {text[:200]!r}")
        return Verdict("refused", text.splitlines()[0][:200])
    except Exception as error:
        return Verdict("internal", f"{type(error).__name__}: {error}"[:300])
    return Verdict("exact") if rows == 2 else Verdict("wrong", f"{rows} rows instead of 2")


def name_alike(world: World, dice: random.Random) -> Verdict:
    """Two queries whose names differ in little keep their results apart, or the second one is refused."""
    one, two = dice.choice(
        (("a", "A"), ("ä", "a\u0308"), ("a", "a "), ("a.", "a"), ("x" * 250 + "1", "x" * 250 + "2"), ("a/b", "a_b"))
    )
    with tempfile.TemporaryDirectory(prefix="strandline-names-") as directory:
        out = Path(directory) / "out"
        try:
            with sl.connect(engine="local") as database:
                text = f"CREATE STREAM s (n INT, ts BIGINT) SOURCE {_ROWS} ORDERED BY ts;"
                text += f"CREATE STREAM {_quoted(one)} AS SELECT n FROM s;"
                text += f"CREATE STREAM {_quoted(two)} AS SELECT n + 1 AS m FROM s"
                for query in start_script(database, read_script(database, text), out, None):
                    assert query.await_end(30)
        except StrandlineError as error:
            return Verdict("internal" if error.code in INTERNAL else "refused", error.render()[:300])
        columns = sorted(
            tuple(pq.read_schema(file).names)
            for folder in out.iterdir()
            if folder.name[0] not in "._"
            for file in itertools.islice(folder.glob("*.parquet"), 1)
        )
        same = columns == [("m", "valid_from", "valid_until"), ("n", "valid_from", "valid_until")]
        return Verdict("exact") if same else Verdict("wrong", f"{one!r} and {two!r}: {columns}")


# ---- code in data ----------------------------------------------------------------------------------------------------


class _Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def payloads(marker: str) -> list[str]:
    """Texts that some reader might execute."""
    pickled = base64.b64encode(pickle.dumps(_Touch(marker))).decode()
    sealed = base64.b64encode(json.dumps({"class": "SetupError", "message": "x", "code": "y"}).encode()).decode()
    return [
        f"STRANDLINE-ERROR {pickled}",
        f"STRANDLINE-ERROR {'0' * 64} {pickled}",
        f"STRANDLINE-ERROR {'0' * 64} {sealed} x",
        f"{{__import__('os').mkdir('{marker}')}}",
        f"$(mkdir {marker})",
        f"`mkdir {marker}`",
        f"'; COPY (SELECT 1) TO '{marker}'; --",
        "%n%s%s%s{0.__class__.__mro__}",
        "\x1b]0;owned\x07\x1b[2J",
        "\u202e\u2066gnp.exe",
        f"!!python/object/apply:os.mkdir ['{marker}']",
    ]


def inject(place: str) -> Run:
    def trial(world: World, dice: random.Random) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="strandline-code-") as directory:
            marker = os.path.join(directory, "executed")
            text = dice.choice(payloads(marker))
            with watched_screen() as screen:
                verdict = _inject(world, place, text, Path(directory))
            time.sleep(0.02)
            if os.path.exists(marker):
                return Verdict("escaped", f"{place}: {text[:120]!r} was executed")
            if "\x1b" in screen():
                return Verdict("escaped", f"{place}: control characters on the screen: {screen()[-200:]!r}")
            return Verdict(verdict.name, f"{place}, {text[:60]!r}: {verdict.note}")

    return trial


def _inject(world: World, place: str, text: str, directory: Path) -> Verdict:
    literal = "'" + text.replace("'", "''") + "'"
    rows = f"CREATE STREAM s (x VARCHAR, ts BIGINT) SOURCE rows(({literal}, 1), ('b', 2)) ORDERED BY ts"

    def fail(column: Any) -> Any:
        raise ValueError(column[0].as_py())

    try:
        match place:
            case "row in a failing function":
                with sl.connect(spark=world.spark, shards=1) as database:
                    database.function("boom", fail, arguments=["VARCHAR"], returns="VARCHAR")
                    database.sql(rows)
                    query = database.sql("SELECT boom(x) AS y FROM s")
                    query.await_end(60)
                return Verdict("wrong", "no error")
            case "name of a query on Spark":
                with sl.connect(spark=world.spark, shards=1) as database:
                    database.function("boom", fail, arguments=["VARCHAR"], returns="VARCHAR")
                    database.sql(rows)
                    query = database.sql("SELECT boom(x) AS y FROM s", name=text)
                    query.await_end(60)
                return Verdict("wrong", "no error")
            case "answer of a webhook":
                with receiver(lambda handler, body: answer(handler, 400, text.encode())) as server:
                    return _deliver_local(server, rows)
            case "CSV file":
                file = directory / "a.csv"
                file.write_text('x,ts\n"' + text.replace('"', '""') + '",1\n' + text + "\n")
                with sl.connect(engine="local") as database:
                    database.sql(f"CREATE STREAM s (x VARCHAR, ts BIGINT) SOURCE file('{file}') ORDERED BY ts")
                    query = database.sql("SELECT x FROM s")
                    query.await_end(30)
                    found = [row["x"] for row in query.results().to_pylist()]
                return Verdict("exact") if text in found or "\n" in text else Verdict("wrong", repr(found)[:200])
        raise AssertionError(place)
    except StrandlineError as error:
        shown = error.render()
        if "\x1b" in shown:
            return Verdict("escaped", f"control characters in the message {shown[:200]!r}")
        if error.code not in ("function-failed", "sink-failed", "query-name"):
            return Verdict("misnamed", shown[:300])
        return Verdict("refused", shown[:200])


# ---- receivers of webhooks -------------------------------------------------------------------------------------------


class Receiver(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behave: Callable[[Any, bytes], None]) -> None:
        self.behave = behave
        self.rows: list[dict[str, Any]] = []  # that came by POST and were answered well
        self.secrets: list[str] = []  # Authorization headers
        self.gets = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Peers hang up; that is what this is about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/in"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if value := self.headers.get("Authorization"):
            self.server.secrets.append(value)
        self.server.behave(self, body)

    def do_GET(self) -> None:
        self.server.gets += 1
        if value := self.headers.get("Authorization"):
            self.server.secrets.append(value)
        answer(self, 200, b"{}")

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def answer(handler: Any, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def receiver(behave: Callable[[Any, bytes], None]) -> Iterator[Receiver]:
    server = Receiver(behave)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _accept(handler: Any, body: bytes) -> None:
    handler.server.rows += _rows_of(body)
    answer(handler, 200, b"{}")


def _rows_of(body: bytes) -> list[dict[str, Any]]:
    try:
        data = json.loads(body)
    except ValueError:
        data = [json.loads(line) for line in body.splitlines() if line.strip()]
    found = data if isinstance(data, list) else data.get("rows", data.get("elements", [data]))
    return list(found)


def _deliver_local(server: Receiver, rows: str | None = None) -> Verdict:
    """Send results to a receiver; the error or what arrived."""
    url = server.url
    with sl.connect(engine="local") as database:
        database.sql(rows or "CREATE STREAM s (x VARCHAR, ts BIGINT) SOURCE rows(('a', 1), ('b', 2)) ORDERED BY ts")
        sink = sl.Webhook(url, attempts=2, timeout=2.0, headers={"Authorization": "Bearer secret"})
        query = database.sql("SELECT x FROM s", sink=sink)
        if not query.await_end(25):
            return Verdict("hang", "the receiver holds the query up for more than 25 s")
    return Verdict("exact")


def meet_receiver(kind: str) -> Run:
    def trial(world: World, dice: random.Random) -> Verdict:
        with receiver(_accept) as other, receiver(_behaviour(kind, other, dice)) as server:
            try:
                verdict = _deliver_local(server)
            except StrandlineError as error:
                shown = error.render()
                right = error.code.startswith(("sink", "webhook"))
                verdict = Verdict("refused" if right else "misnamed", shown[:300])
            if other.secrets:
                return Verdict("escaped", "the Authorization header went to another host")
            got = {row.get("x") for row in [*server.rows, *other.rows]}
            if verdict.name == "exact" and got != {"a", "b"}:
                return Verdict(
                    "wrong", f"delivered, but the receivers have {sorted(map(str, got))}; GETs: {other.gets}"
                )
            return verdict

    return trial


def _behaviour(kind: str, other: Receiver, dice: random.Random) -> Callable[[Any, bytes], None]:
    once = itertools.count()

    def behave(handler: Any, body: bytes) -> None:
        first = next(once) == 0
        if kind.startswith("redirect"):
            answer(handler, int(kind.split()[1]), b"", Location=other.url)
        elif kind == "endless answer":
            handler.send_response(200)
            handler.send_header("Content-Length", str(3 * 2**30))
            handler.end_headers()
            handler.server.rows += _rows_of(body)
            for _ in range(3 * 2**10):
                handler.wfile.write(bytes(2**20))
        elif kind == "dripping answer":
            handler.server.rows += _rows_of(body)
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            for _ in range(100):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.4)
        elif kind == "hangs up" and first:
            handler.connection.shutdown(socket.SHUT_RDWR)
        elif kind == "not HTTP" and first:
            handler.wfile.write(dice.randbytes(80) + b"\r\n\r\n")
            handler.connection.shutdown(socket.SHUT_RDWR)
        elif kind == "busy at first" and first:
            answer(handler, 503, b"", Retry_After="0")
        else:
            _accept(handler, body)

    return behave


_RECEIVERS: Final = (
    *(f"redirect {status}" for status in (301, 302, 303, 307, 308)),
    "endless answer",
    "dripping answer",
    "hangs up",
    "not HTTP",
    "busy at first",
)


# ---- senders of http() -----------------------------------------------------------------------------------------------

_ROW: Final = b'{"n": 1, "ts": 1}\n'


def _request(*headers: bytes, body: bytes = _ROW) -> bytes:
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: x", *headers, b"", body])


# Requests that must not be taken: their length is said in two ways, or not at all.
_BAD_REQUESTS: Final[dict[str, bytes]] = {
    "two lengths": _request(b"Content-Length: 18", b"Content-Length: 5"),
    "length and chunks": _request(
        b"Content-Length: 18", b"Transfer-Encoding: chunked", body=b"12\r\n" + _ROW + b"\r\n0\r\n\r\n"
    ),
    "negative length": _request(b"Content-Length: -1"),
    "length with a sign": _request(b"Content-Length: +18"),
    "length of two numbers": _request(b"Content-Length: 18, 18"),
    "no length": _request(),
    "chunks in disguise": _request(b"Transfer-Encoding: xchunked", b"Content-Length: 18"),
    "space before colon": _request(b"Content-Length : 18"),
    "length too large": _request(b"Content-Length: 99999999999999999999"),
    "header without end": b"POST / HTTP/1.1\r\nX: " + b"x" * 100_000,
    "many headers": _request(*(b"X-%d: y" % i for i in range(2000)), b"Content-Length: 18"),
    "not HTTP": bytes(range(256)) * 4,
}


def meet_sender(kind: str) -> Run:
    def trial(world: World, dice: random.Random) -> Verdict:
        port = free_port()
        with sl.connect(engine="local") as database:
            database.sql(
                f"CREATE STREAM s (n INT, ts BIGINT) SOURCE http('127.0.0.1:{port}', end_marker => 'END') ORDERED BY ts"
            )
            query = database.sql("SELECT n FROM s")
            statuses = [_send_raw(port, _BAD_REQUESTS[kind]) for _ in range(2)]
            sender = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            sender.request("POST", "/", _ROW)
            good = sender.getresponse()
            good.read()
            sender.request("POST", "/", b"END\n")
            sender.getresponse().read()
            if not query.await_end(20):
                return Verdict("hang", str(query.metrics()))
            rows = query.metrics()["rows_in"]["s"]
        if any(status == 200 for status in statuses):
            return Verdict("wrong", f"{kind}: taken with status 200")
        if good.status != 200 or rows != 1:
            return Verdict("wrong", f"{kind}: {rows} rows instead of 1, status {good.status}")
        return Verdict("exact", f"answered with {statuses}")

    return trial


def _send_raw(port: int, data: bytes) -> int | None:
    """The status of the answer; None if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
        try:
            connection.sendall(data)
            said = connection.recv(200)
        except OSError:
            return None
    words = said.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def drip(world: World, dice: random.Random) -> Verdict:
    """Clients that send a byte now and then do not keep others out."""
    port = free_port()
    with sl.connect(engine="local") as database:
        database.sql(
            f"CREATE STREAM s (n INT, ts BIGINT) SOURCE http('127.0.0.1:{port}', end_marker => 'END') ORDERED BY ts"
        )
        query = database.sql("SELECT n FROM s")
        dripping = []
        for _ in range(150):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=2)
                connection.sendall(b"POST / HTTP/1.1\r\nContent-")
                dripping.append(connection)
            except OSError:
                break
        try:
            sender = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
            sender.request("POST", "/", _ROW)
            taken = sender.getresponse().status
            sender.close()
        except OSError as error:
            return Verdict("hang", f"150 dripping clients keep others out: {error}")
        finally:
            for connection in dripping:
                connection.close()
        query.stop()
    return Verdict("exact") if taken == 200 else Verdict("wrong", f"status {taken}")


def _inject_kinds() -> list[Kind]:
    places: dict[str, tuple[int, str]] = {
        "row in a failing function": (12, "spark"),
        "name of a query on Spark": (12, "spark"),
        "answer of a webhook": (11, "local"),
        "CSV file": (22, "local"),
    }
    return [
        Kind(f"code/{name}", inject(name), trials, "spark" if place == "spark" else "local")
        for name, (trials, place) in places.items()
    ]


KINDS: Final = [
    *(Kind(f"names/{group}", name_things(group), 30, "local") for group in _NAMES),
    Kind("names/alike", name_alike, 12, "local"),
    *_inject_kinds(),
    *(Kind(f"webhook/{kind}", meet_receiver(kind), 4, "local") for kind in _RECEIVERS),
    *(Kind(f"http/{kind}", meet_sender(kind), 3, "local") for kind in _BAD_REQUESTS),
    Kind("http/dripping clients", drip, 3, "local"),
]
