"""Bad input gets a clear error or goes aside, counted; nothing is lost and nothing is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.core.errors import CatalogError, CheckpointError, ParseError, SinkError, SourceError, StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query

COLUMNS = "(k INT, v DOUBLE, ts TIMESTAMP)"


@pytest.fixture
def database() -> Database:
    return sl.connect(engine="local", batch_rows=3)


def ask(database: Database, file: Path | str, options: str = "", columns: str = COLUMNS) -> Query:
    database.sql(f"CREATE STREAM s {columns} SOURCE file('{file}'{options}) ORDERED BY ts WITHIN 1 SECOND")
    query: Query = database.sql("SELECT k, v FROM s WINDOW(RANGE 1 SECOND)")
    query.await_end(60)
    return query


def reasons(query: Query) -> list[tuple[int, str]]:
    rows = query.rejected("s").to_pylist()
    return [(row["row"], row["reason"]) for row in rows]


def test_malformed_csv_rows_go_aside(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text(
        "k,v,ts\n"
        "1,1.5,2024-01-01 00:00:00\n"
        "x,1.5,2024-01-01 00:00:01\n"
        "2,,2024-01-01 00:00:02\n"
        "3,1.5,\n"
        "4,1.5,0001-01-01 00:00:00\n"
        "5,1.5\n"
        "6,abc,2024-01-01 00:00:03\n"
        '7,"2.5",2024-01-01T00:00:04Z\n'
    )
    query = ask(database, file)
    assert sorted(query.results()["k"].to_pylist()) == [1, 2, 7]
    assert query.metrics()["rejected"] == {"s": 5}
    assert sorted(reasons(query)) == [
        (3, "k: 'x' is not INT"),
        (5, "ts: the time is NULL"),
        (6, "ts: the time is outside of the years 1678 to 2261"),
        (7, "2 fields instead of 3"),
        (8, "v: 'abc' is not DOUBLE"),
    ]
    assert query.metrics()["rows_in"] == {"s": 3}


def test_malformed_json_lines_go_aside(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(
        '{"k": 1, "v": 1.5, "ts": "2024-01-01 00:00:00"}\n'
        "not json\n"
        '{"k": "2", "v": null, "ts": "2024-01-01 00:00:01"}\n'
        "\n"
        '{"k": 2147483648, "v": 1, "ts": "2024-01-01 00:00:02"}\n'
        "[1, 2]\n"
        '{"k": 3, "ts": "2024-01-01 00:00:03", "more": true}\n'
    )
    query = ask(database, file)
    assert sorted(query.results()["k"].to_pylist()) == [1, 2, 3]
    assert sorted(row for row, _ in reasons(query)) == [2, 5, 6]
    assert {"not a JSON object"} <= {reason for _, reason in reasons(query)}


def test_parquet_values_that_do_not_fit_go_aside_even_if_nobody_asks_for_them(
    database: Database, tmp_path: Path
) -> None:
    table = pa.table(
        {
            "k": pa.array([1, 2**40, 3], pa.int64()),
            "v": pa.array(["1.5", "2.5", "oops"]),
            "unused": pa.array([1.0, 2.0, 3.0]),
            "ts": pa.array([0, 1, 2], pa.timestamp("s", tz="Europe/Berlin")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    query = ask(database, tmp_path / "in.parquet", columns="(k INT, v DOUBLE, unused BIGINT, ts TIMESTAMP)")
    assert query.results()["k"].to_pylist() == [1]
    assert reasons(query) == [(2, "k: '1099511627776' is not INT"), (3, "v: 'oops' is not DOUBLE")]


def test_a_file_that_is_not_parquet_is_one_reject(database: Database, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    table = pa.table({"k": [1], "v": [1.0], "ts": pa.array([0], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "b.parquet")
    query = ask(database, tmp_path / "*.parquet")
    assert query.results()["k"].to_pylist() == [1]
    assert len(reasons(query)) == 1 and "cannot be read as parquet" in reasons(query)[0][1]


def test_late_rows_are_kept_apart(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("k,v,ts\n" + "".join(f"{i},1,2024-01-01 00:00:{s:02d}\n" for i, s in enumerate((5, 4, 3, 9, 8, 7))))
    query = ask(database, file)
    assert query.late("s")["k"].to_pylist() == [2, 5]
    assert query.metrics()["late"] == {"s": 2}
    assert query.metrics()["rows_in"] == {"s": 4}


@pytest.mark.parametrize(
    ("statement", "kind", "code"),
    [
        (f"CREATE STREAM s {COLUMNS} SOURCE file('nowhere/*.csv') ORDERED BY ts", SourceError, "missing-file"),
        (f"CREATE STREAM s {COLUMNS} SOURCE file('*.csv') ORDERED BY ts", SourceError, "missing-file"),
        (f"CREATE STREAM s {COLUMNS} SOURCE files('x') ORDERED BY ts", SourceError, "unknown-source"),
        (f"CREATE STREAM s {COLUMNS} SOURCE file() ORDERED BY ts", SourceError, "source-argument"),
        (f"CREATE STREAM s {COLUMNS} SOURCE rate(rows_per_second => 0) ORDERED BY ts", SourceError, "source-argument"),
        (f"CREATE STREAM s {COLUMNS} SOURCE rows((1, 2)) ORDERED BY ts", SourceError, "source-argument"),
        ("SELECT * FROM nobody", CatalogError, "unknown-stream"),
        ("SELECT FROM", ParseError, None),
    ],
)
def test_statements_that_cannot_work_point_at_the_place(
    database: Database,
    statement: str,
    kind: type[StrandlineError],
    code: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        database.sql(statement)
    assert code is None or caught.value.code == code
    assert caught.value.span is not None and "^" in caught.value.render()


def test_a_column_that_the_file_lacks_is_named(database: Database, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k,ts\n1,2024-01-01\n")
    with pytest.raises(SourceError, match='column "v" of stream "s" is not in') as caught:
        ask(database, tmp_path / "in.csv")
    assert caught.value.code == "missing-column"


ROWS = "rows((1, 1.0, '2024-01-01 00:00:00'), (2, 2.0, '2024-01-01 00:00:01'))"


def run_once(checkpoint: Path, out: Path, sql: str) -> Query:
    with sl.connect(engine="local", checkpoint=checkpoint) as database:
        database.sql(f"CREATE STREAM s {COLUMNS} SOURCE {ROWS} ORDERED BY ts")
        query: Query = database.sql(sql, sink=sl.Parquet(out / "q"), name="q")
        query.await_end(60)
        return query


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the lease, which counts the writers, also those that were refused."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lease.json")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_a_checkpoint_of_another_query_is_refused_and_untouched(tmp_path: Path) -> None:
    run_once(tmp_path / "c", tmp_path / "out", "SELECT k FROM s WINDOW(RANGE 1 SECOND)")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        run_once(tmp_path / "c", tmp_path / "out", "SELECT k FROM s WINDOW(RANGE 2 SECONDS)")
    assert caught.value.code == "checkpoint-foreign"
    assert contents(tmp_path) == before


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c" / "q").mkdir(parents=True)
    (tmp_path / "c" / "q" / "thesis.txt").write_text("precious")
    with pytest.raises(CheckpointError) as caught:
        run_once(tmp_path / "c", tmp_path / "out", "SELECT k FROM s")
    assert caught.value.code == "checkpoint-foreign"
    assert (tmp_path / "c" / "q" / "thesis.txt").read_text() == "precious"


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError) as caught:
        run_once(tmp_path / "file" / "c", tmp_path / "out", "SELECT k FROM s")
    assert caught.value.code == "checkpoint-unwritable"


def test_results_without_their_checkpoint_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    run_once(tmp_path / "c", tmp_path / "out", "SELECT k FROM s")
    with pytest.raises(SinkError) as caught:
        run_once(tmp_path / "other", tmp_path / "out", "SELECT k FROM s")
    assert caught.value.code == "results-exist"


def test_a_sink_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError) as caught:
        run_once(tmp_path / "c", tmp_path / "file", "SELECT k FROM s")
    assert caught.value.code == "sink-unwritable"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "strandline", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def test_the_command_line_says_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(f"CREATE STREAM s {COLUMNS} SOURCE {ROWS} ORDERED BY ts;\nSELECT kk FROM s;\n")
    done = command("run", script, "--out", tmp_path / "out", "--engine", "local")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        'error[unknown-column]: column "kk" does not exist in "s"',
        "  line 2: SELECT kk FROM s;",
        "                 ^^",
        'hint: Did you mean "k"?',
    ]
    assert not (tmp_path / "out").exists()
    assert command("run", tmp_path / "none.sql", "--out", tmp_path / "out").returncode == 1
    assert command("run").returncode == 2
    assert command("nonsense").returncode == 2


def test_the_command_line_runs_a_script_and_keeps_bad_rows_aside(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(
        "k,v,ts\n1,1,2024-01-01 00:00:05\nx,1,2024-01-01 00:00:06\n2,1,2024-01-01 00:00:01\n"
    )
    script = tmp_path / "script.sql"
    script.write_text(
        f"CREATE STREAM s {COLUMNS} SOURCE file('{tmp_path}/in.csv') ORDERED BY ts;\n"
        "CREATE STREAM counted AS SELECT COUNT(*) AS n FROM s WINDOW(RANGE 10 SECONDS);\n"
        "SELECT k FROM s;"
    )
    out = tmp_path / "out"
    done = command("run", script, "--out", out, "--engine", "local")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(out / "q1")["k"].to_pylist() == [1]
    counted = pq.read_table(out / "counted")
    assert counted.column_names == ["n", "valid_from", "valid_until"]
    assert counted["n"].to_pylist() == [1, 0] and counted["valid_until"].to_pylist()[1] is None
    assert pq.read_table(out / "_late" / "s")["k"].to_pylist() == [2]
    assert pq.read_table(out / "_rejected" / "s")["reason"].to_pylist() == ["k: 'x' is not INT"]
    assert [path.name for path in (out / ".strandline/checkpoint/counted/batches").iterdir()] == [
        "000000000-000001.json"
    ]
