"""The runs that are attacked: queries of `tests/queries/*.case` and queries over every kind of source.

A scenario lives in one directory: `in/` with its input, `out/` with results and checkpoint. `start` is the same for the
first start and for every restart.
"""

from __future__ import annotations

import functools
import gzip
import json
import random
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from kafka_broker import Broker
from source_testing import free_port
from strandline.core.temporal import to_datetime
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script, start_script

CASES: Final = Path(__file__).parent.parent / "queries"
SECOND: Final = 1_000_000
BEGIN: Final = 1_700_000_000 * SECOND


@dataclass(frozen=True)
class Scenario:
    """Input, queries, and how they start."""

    name: str
    batch_rows: int
    prepare: Callable[[Path], None]  # writes the input below a directory
    start: Callable[[Database, Path], list[Query]]
    feed: Callable[[], None] | None = None  # sends what is not in files, once the first run has started
    own_checkpoint: bool = False  # whether the database gets the checkpoint, as for events()
    is_given: bool = False  # whether rows are given by a program: `in/given` says that all are


def run_as_script(text: Callable[[Path], str]) -> Callable[[Database, Path], list[Query]]:
    """What `strandline run script.sql --out out` does."""

    def start(database: Database, directory: Path) -> list[Query]:
        return start_script(database, read_script(database, text(directory)), directory / "out", None)

    return start


def _nothing(directory: Path) -> None:
    (directory / "in").mkdir(parents=True, exist_ok=True)


# ---- queries of the cases --------------------------------------------------------------------------------------------

# Which cases of each file: filters, joins, outer joins, aggregates, DISTINCT, count and session windows, late and
# rejected rows, unions, top-k, several streams.
_CHOSEN: Final[dict[str, tuple[int, ...]]] = {
    "aggregates": (0, 2, 8, 10),
    "arrivals": (0, 1, 2, 3),
    "forms": (2, 3, 4, 7),
    "intervals": (0, 1, 2),
    "joins": (0, 7, 12, 13),
    "nesting": (0, 2, 5, 8),
    "ranks": (0, 1, 5, 7),
    "sets": (0, 1, 4, 6),
    "subqueries": (0, 2, 4),
    "windows": (0, 2, 9, 11),
}


# Queries that tie the streams of a file into one pipeline: others would have started when one is refused.
_TIES: Final = {"arrivals": ("SELECT x FROM s UNION ALL SELECT x FROM strict UNION ALL SELECT x FROM dirty",)}


def case_script(file: str, chosen: Sequence[int]) -> str:
    streams, *parts = (CASES / f"{file}.case").read_text().split("\n-- ")
    queries = [part.partition("\n")[2].partition("\n----")[0] for part in parts]
    chosen_queries = [queries[i % len(queries)] for i in chosen]
    texts = [*chosen_queries, *_TIES.get(file, ())]
    return ";\n".join([streams, *(f"CREATE STREAM case{i} AS {text}" for i, text in enumerate(texts))])


def _case_scenario(file: str) -> Scenario:
    text = case_script(file, _CHOSEN[file])
    return Scenario(f"case-{file}", 1, _nothing, run_as_script(lambda _: text))


# ---- files -----------------------------------------------------------------------------------------------------------


def _rows(seed: int, count: int) -> list[tuple[int, float, str, int]]:
    """Rows out of order by up to two seconds; the last of ten is later than that."""
    dice = random.Random(seed)
    rows = []
    for number in range(count):
        late = 6 * SECOND if number % 10 == 9 else 0
        at = BEGIN + number * SECOND // 4 + dice.randrange(SECOND) - late
        rows.append((dice.randrange(5), round(dice.random(), 3), f"s{dice.randrange(20)}", at))
    return rows


_COLUMNS: Final = "(k BIGINT, v DOUBLE, s VARCHAR, ts BIGINT)"
_FILE_QUERIES: Final = """
CREATE STREAM per_key AS SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(s) AS last
  FROM t WINDOW(RANGE 3 SECONDS) GROUP BY k;
CREATE STREAM pairs AS SELECT a.k, a.v AS one, b.v AS two
  FROM t WINDOW(RANGE 1 SECOND) a, t WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) b WHERE a.k = b.k AND a.v < b.v;
CREATE STREAM cheap AS SELECT DISTINCT s FROM t WHERE v < 0.4;
CREATE STREAM sessions AS SELECT k, COUNT(*) AS n FROM t WINDOW(SESSION 2 SECONDS) GROUP BY k;
"""


def _script_of_files(ending: str, queries: str = _FILE_QUERIES) -> Callable[[Path], str]:
    def text(directory: Path) -> str:
        return (
            f"CREATE STREAM t {_COLUMNS} SOURCE file('{directory}/in/*.{ending}') ORDERED BY ts WITHIN 2 SECONDS;"
            + queries
        )

    return text


script_over_csv: Final = _script_of_files("csv")


def write_csv(directory: Path) -> None:
    _nothing(directory)
    for number in range(8):
        lines = ["k,v,s,ts", *(f"{k},{v},{s},{ts}" for k, v, s, ts in _rows(number, 12))]
        lines.append(f"x,{number},bad,{BEGIN}")  # a malformed row in every file
        (directory / "in" / f"{number}.csv").write_text("\n".join(_later(lines, number)) + "\n")


def _later(lines: list[str], number: int) -> list[str]:
    """The same rows in the time of file `number`."""
    head, *rows = lines
    shifted = []
    for row in rows:
        front, _, at = row.rpartition(",")
        shifted.append(f"{front},{int(at) + number * 3 * SECOND}")
    return [head, *shifted]


def _write_json(directory: Path) -> None:
    _nothing(directory)
    for number in range(7):
        lines = [
            json.dumps({"k": k, "v": v, "s": s, "ts": ts + number * 3 * SECOND}) for k, v, s, ts in _rows(number, 12)
        ]
        data = ("\n".join([*lines, '{"k": "one", "ts": 1}', "{"]) + "\n").encode()
        (directory / "in" / f"{number}.jsonl").write_bytes(data)


def _write_parquet(directory: Path) -> None:
    _nothing(directory)
    for number in range(7):
        k, v, s, ts = zip(*_rows(number, 12), strict=True)
        table = pa.table({"k": k, "v": v, "s": s, "ts": [t + number * 3 * SECOND for t in ts]})
        pq.write_table(table, directory / "in" / f"{number}.parquet")


def gzip_copy(path: Path) -> Path:
    """The file compressed, beside it; the plain one is gone."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return target


_TWO_STREAMS: Final = """
CREATE STREAM matched AS SELECT t.k, t.v, r.name FROM t [RANGE 5 SECONDS] LEFT JOIN r [RANGE 8 SECONDS] ON t.k = r.k;
CREATE STREAM best AS SELECT k, v FROM t WINDOW(ROWS 6) ORDER BY v DESC LIMIT 2;
"""


def _script_of_two(directory: Path) -> str:
    rows = ", ".join(f"({k}, 'name{k}', {BEGIN + k * 3 * SECOND})" for k in range(6))
    other = f"CREATE STREAM r (k BIGINT, name VARCHAR, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts;"
    return other + _script_of_files("csv", _TWO_STREAMS)(directory)


def _script_to_sqlite(directory: Path) -> str:
    return (
        _script_of_files("csv", "")(directory)
        + f"CREATE SINK totals INTO sqlite('{directory}/out/totals.sqlite', table => 'totals') AS"
        + " SELECT k, COUNT(*) AS n FROM t WINDOW(RANGE 3 SECONDS) GROUP BY k;"
        + "CREATE STREAM cheap AS SELECT s, v FROM t WHERE v < 0.4;"
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def _script_with_tables(directory: Path) -> str:
    """A stream beside tables that statements of the script change, each once however often the script is started."""

    def at(seconds: int) -> str:
        return f"AT TIMESTAMP '{to_datetime(BEGIN + seconds * SECOND).replace(tzinfo=None)}';"

    rows = ", ".join(f"({k}, 'name{k}', {k * 10})" for k in range(4))
    return (
        _script_of_files("csv", "")(directory)
        + "CREATE TABLE names (k BIGINT, name VARCHAR, n BIGINT, PRIMARY KEY (k));"
        + "CREATE TABLE looked (k BIGINT, name VARCHAR) NON RETROACTIVE;"
        + f"INSERT INTO names VALUES {rows} {at(0)} INSERT INTO looked SELECT k, name FROM names; "
        + f"UPDATE names SET n = n + 1 WHERE k > 1 {at(5)} DELETE FROM looked WHERE k = 2;"
        + "INSERT INTO names VALUES (4, 'new', 0), (1, 'other', 7)"
        + f" ON CONFLICT DO UPDATE SET name = excluded.name {at(9)}"
        + f"INSERT INTO names VALUES (5, 'same', 0) {at(12)} INSERT INTO names VALUES (6, 'same', 0) {at(12)}"
        + f"MERGE INTO names USING looked ON names.k = looked.k WHEN MATCHED THEN UPDATE SET n = 99 {at(15)}"
        + "CREATE STREAM joined AS SELECT t.k, t.v, names.name, names.n FROM t [RANGE 4 SECONDS]"
        + " LEFT JOIN names ON t.k = names.k;"
        + "CREATE STREAM found AS SELECT t.k, looked.name FROM t [ROWS 5] JOIN looked ON t.k = looked.k;"
        + "CREATE STREAM counted AS SELECT names.name, COUNT(*) AS n FROM t [RANGE 3 SECONDS]"
        + " JOIN names ON t.k = names.k GROUP BY names.name;"
    )


# ---- streams without files -------------------------------------------------------------------------------------------


def _events() -> Scenario:
    rows = [(k, v, s, ts) for k, v, s, ts in _rows(5, 60)]

    def start(database: Database, directory: Path) -> list[Query]:
        database.sql(f"CREATE STREAM e {_COLUMNS} SOURCE events() ORDERED BY ts WITHIN 2 SECONDS")
        if not (directory / "in" / "given").exists():
            for first in range(0, len(rows), 6):
                database.append("e", rows[first : first + 6])
            database.end("e")
            (directory / "in" / "given").touch()
        text = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM e WINDOW(RANGE 3 SECONDS) GROUP BY k"
        query = database.sql(text, sink=sl.Parquet(directory / "out" / "totals"), name="totals")
        assert isinstance(query, Query)
        return [query]

    return Scenario("events", 10, _nothing, start, own_checkpoint=True, is_given=True)


token = ["first"]  # of the http stream: a trial may change it between two runs


def _http() -> Scenario:
    port = free_port()
    rows = _rows(6, 60)

    def text(directory: Path) -> str:
        return (
            f"CREATE STREAM h {_COLUMNS} SOURCE http('127.0.0.1:{port}', end_marker => 'END', token => '{token[0]}')"
            " ORDERED BY ts WITHIN 2 SECONDS;"
            "CREATE STREAM totals AS SELECT k, COUNT(*) AS n FROM h WINDOW(RANGE 3 SECONDS) GROUP BY k"
        )

    def feed() -> None:
        for first in range(0, len(rows), 6):
            lines = [
                json.dumps(dict(zip("kvs", row[:3], strict=True)) | {"ts": row[3]}) for row in rows[first : first + 6]
            ]
            _post(port, "\n".join(lines).encode())
        _post(port, b"END\n")

    return Scenario("http", 10, _nothing, run_as_script(text), feed, is_given=True)


def _post(port: int, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {token[0]}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


_topics: list[str] = []


@functools.cache
def _broker() -> Broker:
    return Broker()


def _kafka() -> Scenario:
    def text(directory: Path) -> str:
        return (
            f"CREATE STREAM m {_COLUMNS} SOURCE kafka('{_broker().servers}', topic => 'attacked', until => 'latest')"
            " ORDERED BY ts WITHIN 2 SECONDS;"
            "CREATE STREAM totals AS SELECT k, COUNT(*) AS n FROM m WINDOW(RANGE 3 SECONDS) GROUP BY k"
        )

    def prepare(directory: Path) -> None:
        _nothing(directory)
        broker = _broker()
        if _topics:
            return
        _topics.append(broker.create("attacked", 2))
        for partition in range(2):
            messages = [dict(zip(("k", "v", "s", "ts"), row, strict=True)) for row in _rows(partition, 30)]
            broker.send("attacked", partition, messages)

    return Scenario("kafka", 10, prepare, run_as_script(text))


@functools.cache
def scenarios() -> dict[str, Scenario]:
    """All of them, by name."""
    made = [
        *(_case_scenario(file) for file in _CHOSEN),
        Scenario("csv", 5, write_csv, run_as_script(script_over_csv)),
        Scenario("json", 5, _write_json, run_as_script(_script_of_files("jsonl"))),
        Scenario("parquet", 12, _write_parquet, run_as_script(_script_of_files("parquet"))),
        Scenario("two-streams", 5, write_csv, run_as_script(_script_of_two)),
        Scenario("sqlite", 5, write_csv, run_as_script(_script_to_sqlite)),
        Scenario("tables", 5, write_csv, run_as_script(_script_with_tables)),
        _events(),
        _http(),
        _kafka(),
    ]
    return {scenario.name: scenario for scenario in made}
