"""Streams and tables without declared columns: names, types and the time are read from the files."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.apps.inspect_files import inspect_files
from strandline.connectors.sources.inferred_types import choose_time, null_mark, type_of_texts
from strandline.core.errors import StrandlineError
from strandline.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR
from strandline.database.database import Database
from strandline.logical.catalog import BaseStream

START = datetime(2024, 1, 1, 9)
END = "2030-01-01"


@pytest.fixture
def db() -> Any:
    with sl.connect(engine="local") as database:
        database.catalog.notices.show = None
        yield database


def declared(db: Database, statement: str) -> BaseStream:
    db.sql(statement)
    stream = list(db.catalog)[-1]
    assert isinstance(stream, BaseStream)
    return stream


def columns_of(stream: BaseStream) -> dict[str, str]:
    return {name: str(kind) for name, kind in stream.columns}


def all_rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    query = db.sql(text)
    query.await_end()
    return [tuple(row.values()) for row in query.snapshot(END).to_pylist()]


def test_csv_by_its_header_and_a_sample(db: Database, tmp_path: Path) -> None:
    lines = [f"S{n % 3},{n / 4},{START + timedelta(seconds=n)},{n},true" for n in range(20_000)]
    (tmp_path / "trades.csv").write_text("sym,price,ts,n,ok\n" + "\n".join(lines) + "\n")
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/trades.csv')")
    expected = {"sym": "VARCHAR", "price": "DOUBLE", "ts": "TIMESTAMP", "n": "BIGINT", "ok": "BOOLEAN"}
    assert columns_of(stream) == expected
    assert (stream.time_column, stream.disorder_us) == ("ts", 0)
    (notice,) = [notice for notice in db.notices() if notice.code == "inferred-columns"]
    assert notice.text.startswith("columns of trades.csv: sym VARCHAR, price DOUBLE, ts TIMESTAMP (time), n BIGINT")
    assert notice.text.endswith(" of 20,000 rows") and "; from " in notice.text
    assert all_rows(db, "SELECT COUNT(*) AS n, SUM(n) AS s FROM t WINDOW(RANGE UNBOUNDED)") == [(20_000, 199_990_000)]


@pytest.mark.parametrize("place", ["beginning", "middle", "end"])
def test_values_of_every_part_of_a_file_decide(db: Database, tmp_path: Path, place: str) -> None:
    values = ["7"] * 100_000
    values[{"beginning": 5, "middle": 50_100, "end": -5}[place]] = "x"
    lines = [f"{value},{START + timedelta(seconds=n)}" for n, value in enumerate(values)]
    (tmp_path / "a.csv").write_text("code,ts\n" + "\n".join(lines))
    assert columns_of(declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv')"))["code"] == "VARCHAR"


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", None, "-20"], BIGINT),
        (["1", "2.5", "1e3"], DOUBLE),
        (["1.5", "nan"], DOUBLE),
        (["99999999999999999999"], VARCHAR),  # a DOUBLE would lose digits
        (["99999999999999999999", "1.5"], VARCHAR),
        (["02134", "10001"], VARCHAR),  # a code, and no number
        (["0.5", "0"], DOUBLE),
        (["true", "FALSE"], BOOLEAN),
        (["yes", "no"], VARCHAR),
        (["2024-01-02"], DATE),
        (["2024-01-02", "2024-01-02 10:00:00"], TIMESTAMP),
        (["2024-01-02T10:00:00Z", "2024-01-02T10:00:00.5+02:00"], TIMESTAMP),
        (["2024-13-02"], VARCHAR),
        (["nan"], VARCHAR),
        ([None], VARCHAR),
        ([], VARCHAR),
    ],
)
def test_types_of_texts(texts: list[str | None], kind: object) -> None:
    assert type_of_texts(pl.Series(texts, dtype=pl.String)) == kind


def test_marks_of_missing_values() -> None:
    assert null_mark(pl.Series(["1", "NA", "2"])) == "NA"
    assert null_mark(pl.Series(["a", "NA"])) is None, "a text is no reason to drop another"
    assert null_mark(pl.Series(["NA", "NA"])) is None


def test_delimiter_missing_values_and_epochs(db: Database, tmp_path: Path) -> None:
    micros = int(START.replace(tzinfo=UTC).timestamp() * 1000)
    lines = [f"{n if n % 3 else 'NA'};{micros + 250 * n}" for n in range(100)]
    (tmp_path / "a.csv").write_text("n;event_time\n" + "\n".join(lines))
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv')")
    assert dict(stream.source.options) == {"delimiter": ";", "nulls": "NA", "epoch": "ms"}
    assert columns_of(stream) == {"n": "BIGINT", "event_time": "TIMESTAMP"}
    rows = all_rows(db, "SELECT n, event_time FROM t WINDOW(RANGE UNBOUNDED)")
    assert sorted(rows, key=lambda row: row[1])[:3] == [
        (None, START),
        (1, START + timedelta(milliseconds=250)),
        (2, START + timedelta(milliseconds=500)),
    ]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_declared_epochs(db: Database, tmp_path: Path, unit: str, per_second: int, kind: str) -> None:
    seconds = int(START.replace(tzinfo=UTC).timestamp())
    numbers = [seconds * per_second, (seconds + 1) * per_second]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"ts": numbers}), path)
    elif kind == "csv":
        path.write_text("ts\n" + "\n".join(map(str, numbers)))
    else:
        path.write_text("\n".join(json.dumps({"ts": number}) for number in numbers))
    db.sql(f"CREATE STREAM t (ts TIMESTAMP) SOURCE file('{path}', epoch => '{unit}') ORDERED BY ts")
    rows = all_rows(db, "SELECT ts FROM t WINDOW(RANGE UNBOUNDED)")
    assert sorted(rows) == [(START,), (START + timedelta(seconds=1),)]


def test_parquet_by_its_schema(db: Database, tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int32()),
            "u": pa.array([1], pa.uint32()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "day": pa.array([date(2024, 1, 1)]),
            "word": pa.array(["a"]).dictionary_encode(),
            "who": pa.array([{"name": "ann", "home": {"city": "Ulm"}}]),
            "raw": pa.array([b"x"]),
            "at": pa.array([START], pa.timestamp("ns", "Europe/Berlin")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.parquet')")
    assert columns_of(stream) == {
        "i": "INT",
        "u": "BIGINT",
        "d": "DECIMAL(9,2)",
        "day": "DATE",
        "word": "VARCHAR",
        "who.name": "VARCHAR",
        "who.home.city": "VARCHAR",
        "at": "TIMESTAMP",
    }
    assert any('column "raw" is left out' in notice.text for notice in db.notices())
    assert all_rows(db, 'SELECT d, "who.name", "who.home.city" FROM t WINDOW(RANGE UNBOUNDED)') == [
        (Decimal("1.50"), "ann", "Ulm")
    ]


def test_objects_of_json_are_dotted_columns(db: Database, tmp_path: Path) -> None:
    rows = [
        {"user": {"name": f"u{n}", "address": {"zip": "02134"}}, "score": n if n % 2 else n + 0.5, "tags": ["a"],
         "ts": f"2024-01-01T09:00:{n:02}Z", "mixed": {"a": 1} if n % 2 else "text"}
        for n in range(10)
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nno json\n")
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.jsonl')")
    assert columns_of(stream) == {
        "user.name": "VARCHAR",
        "user.address.zip": "VARCHAR",
        "score": "DOUBLE",
        "tags": "VARCHAR",
        "ts": "TIMESTAMP",
        "mixed": "VARCHAR",
    }
    answer = all_rows(db, 'SELECT "user.name", "user.address.zip", score FROM t WINDOW(RANGE UNBOUNDED)')
    assert sorted(answer)[:2] == [("u0", "02134", 0.5), ("u1", "02134", 1.0)]


def test_a_time_that_is_not_clear(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("start,stop\n2024-01-01 10:00:00,2024-01-01 10:05:00\n")
    with pytest.raises(StrandlineError, match="start or stop may be the time") as caught:
        db.sql(f"CREATE STREAM t SOURCE file('{path}')")
    assert caught.value.code == "unclear-time" and "ORDERED BY start" in str(caught.value.hint)
    assert declared(db, f"CREATE STREAM t SOURCE file('{path}') ORDERED BY stop").time_column == "stop"
    assert declared(db, f"CREATE STREAM u SOURCE file('{path}') VALID FROM start UNTIL stop").end_column == "stop"


def test_the_choice_of_the_time() -> None:
    assert choose_time({"a": TIMESTAMP}) == ("a", ())
    assert choose_time({"ts": TIMESTAMP, "seen": TIMESTAMP}) == ("ts", ())
    assert choose_time({"b": TIMESTAMP, "a": TIMESTAMP}) == (None, ("b", "a"))
    assert choose_time({"day": DATE, "n": BIGINT}) == ("day", ())
    assert choose_time({"born": DATE}) == (None, ())


def test_rows_out_of_order_are_kept(db: Database, tmp_path: Path) -> None:
    seconds = [0, 5, 130, 3, 131, 0]
    lines = [str(START + timedelta(seconds=second)) for second in seconds]
    (tmp_path / "a.csv").write_text("ts\n" + "\n".join(lines))
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv')")
    assert stream.disorder_us == 3 * 60_000_000  # 131 s, in whole minutes
    assert len(all_rows(db, "SELECT ts FROM t WINDOW(RANGE UNBOUNDED)")) == 6
    assert "(time, out of order within 3 MINUTES)" in db.notices()[0].text
    assert declared(
        db, f"CREATE STREAM u SOURCE file('{tmp_path}/a.csv') ORDERED BY ts WITHIN 1 SECOND"
    ).disorder_us == (1_000_000)


def test_a_restart_has_the_same_columns_though_the_file_has_grown(tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    (source / "1.csv").write_text("n,ts\n1,2024-01-01 09:00:00\n2,2024-01-01 09:00:01\n")
    statement = f"CREATE STREAM t SOURCE file('{source}/*.csv', follow => true)"
    with sl.connect(engine="local", checkpoint=checkpoint) as db:
        stream = declared(db, statement)
        assert columns_of(stream)["n"] == "BIGINT"
        db.sql("SELECT n FROM t", name="q").stop()
    (source / "2.csv").write_text("n,ts\n" + "x,2024-01-01 09:00:02\n" * 50)
    with sl.connect(engine="local", checkpoint=checkpoint) as db:
        assert declared(db, statement) == stream, "as the checkpoint has it"
        assert "as a checkpoint here has them" in db.notices()[0].text
        db.sql("DROP STREAM t")
        assert columns_of(declared(db, statement))["n"] == "VARCHAR", "it was dropped"
    with sl.connect(engine="local", checkpoint=tmp_path / "other") as db:
        assert columns_of(declared(db, statement))["n"] == "VARCHAR"


def test_tables(db: Database, tmp_path: Path) -> None:
    (tmp_path / "airports.csv").write_text("code,city,opened\nULM,Ulm,1990-01-01\nTXL,Berlin,1974-11-01\n")
    db.sql(f"CREATE TABLE airports SOURCE file('{tmp_path}/airports.csv') CONSTANT")
    assert "opened DATE" in db.notices()[0].text
    answer = db.sql("SELECT city FROM airports WHERE opened < DATE '1980-01-01'").results("polars")
    assert answer.rows() == [("Berlin",)]
    db.sql(f"CREATE TABLE keyed (PRIMARY KEY (code)) SOURCE file('{tmp_path}/airports.csv')")
    assert db.sql("SELECT COUNT(*) AS n FROM keyed").results("polars").rows() == [(2,)]


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("1,2024-01-01 09:00:00\n2,2024-01-01 09:00:01\n", "csv-header", "no header"),
        ("a,b\n", "columns-missing", "no row yet"),
        ("", "columns-missing", "empty"),
    ],
)
def test_files_that_say_too_little(db: Database, tmp_path: Path, content: str, code: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(StrandlineError, match=words) as caught:
        db.sql(f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv')")
    assert caught.value.code == code


def test_a_file_without_a_header(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2024-01-01 09:00:00\n2,2024-01-01 09:00:01\n")
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv', header => false)")
    assert columns_of(stream) == {"column1": "BIGINT", "column2": "TIMESTAMP"}
    assert all_rows(db, "SELECT SUM(column1) AS s FROM t WINDOW(RANGE UNBOUNDED)") == [(3,)]


def test_a_directory_that_is_still_empty(db: Database, tmp_path: Path) -> None:
    with pytest.raises(StrandlineError, match="needs a column list"):
        db.sql(f"CREATE STREAM t SOURCE file('{tmp_path}/*.csv', follow => true)")


def test_files_with_different_columns(db: Database, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,ts\n1,2024-01-01 09:00:00\n")
    (tmp_path / "2.csv").write_text("b,ts\n1.5,2024-01-01 09:00:01\n")
    stream = declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/*.csv')")
    assert columns_of(stream) == {"ts": "TIMESTAMP"}
    assert sum("is left out: not all files have it" in notice.text for notice in db.notices()) == 2


def test_times_that_are_not_iso(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,when\n1,01/02/2024 10:00\n")
    declared(db, f"CREATE STREAM t SOURCE file('{tmp_path}/a.csv')")
    assert any("'01/02/2024 10:00', which are not ISO 8601" in notice.text for notice in db.notices())


def test_a_file_that_is_not_there(db: Database, tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text("ts\n")
    with pytest.raises(StrandlineError) as caught:
        db.sql(f"CREATE STREAM t SOURCE file('{tmp_path}/trads.csv')")
    assert caught.value.code == "missing-file" and "trades.csv" in str(caught.value.hint)
    with pytest.raises(StrandlineError) as caught:
        db.sql(f"CREATE STREAM t (x INT) SOURCE file('{tmp_path}/quotes.json')")
    assert caught.value.code == "missing-file" and "The directory has trades.csv" in str(caught.value.hint)


def test_nothing_is_listed_where_little_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("ts\n")
    allow = sl.Allow.parse([f"dir:{tmp_path}", "connector:file"])
    with sl.connect(engine="local", allow=allow) as db, pytest.raises(StrandlineError) as caught:
        db.sql(f"CREATE STREAM t SOURCE file('{tmp_path}/secret2.csv')")
    assert caught.value.code == "missing-file" and "secret.csv" not in str(caught.value.hint)


# ---- columns that files lack -----------------------------------------------------------------------------------------


def test_a_column_that_the_file_lacks(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sym,price,ts\nA,1,2024-01-01 09:00:00\n")
    text = f"CREATE STREAM t (sym VARCHAR, prise DOUBLE, ts TIMESTAMP) SOURCE file('{tmp_path}/a.csv') ORDERED BY ts"
    with pytest.raises(StrandlineError) as caught:
        db.sql(text)
    error = caught.value
    assert error.code == "missing-column" and error.span is not None
    assert text[error.span.start : error.span.end] == "prise DOUBLE"
    assert error.hint == 'Did you mean "price"? The file has sym, price, ts.'


def test_a_column_that_occurs_twice(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,n,ts\n1,2,2024-01-01 09:00:00\n")
    with pytest.raises(StrandlineError, match='column "n" occurs 2 times in') as caught:
        db.sql(f"CREATE STREAM t (n INT, ts TIMESTAMP) SOURCE file('{tmp_path}/a.csv') ORDERED BY ts")
    assert caught.value.code == "duplicate-column"


def test_a_key_that_no_object_has(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"user": {"name": "ann"}, "ts": "2024-01-01 09:00:00"}\n')
    db.sql(
        'CREATE STREAM t (user VARCHAR, "user.name" VARCHAR, "user.nam" VARCHAR, x INT, ts TIMESTAMP) '
        f"SOURCE file('{tmp_path}/a.jsonl') ORDERED BY ts"
    )
    notices = {str(notice).partition(" of ")[0]: notice.remedy for notice in db.notices()}
    assert notices == {
        'notice[missing-key]: column "user.nam"': 'write "user.name"',
        'notice[missing-key]: column "x"': "they have user, user.name, ts",
    }


# ---- files in FROM ---------------------------------------------------------------------------------------------------


def write_trades(tmp_path: Path, count: int = 100) -> Path:
    lines = [f"{'ABC'[n % 3]},{n},{START + timedelta(seconds=n)}" for n in range(count)]
    path = tmp_path / "trades.csv"
    path.write_text("sym,qty,ts\n" + "\n".join(lines))
    return path


def test_a_file_is_a_stream(db: Database, tmp_path: Path) -> None:
    path = write_trades(tmp_path)
    answer = [("A", 34), ("B", 33), ("C", 33)]
    for name in (f"'{path}'", f"read_csv('{path}')", f"file('{path}')", f"read_csv('{path}', delim = ',')"):
        text = f"SELECT sym, COUNT(*) AS n FROM {name} WINDOW(RANGE UNBOUNDED) GROUP BY sym"
        assert sorted(all_rows(db, text)) == answer
    joined = f"SELECT trades.sym FROM '{path}', '{path}' WINDOW(RANGE UNBOUNDED) AS o WHERE trades.qty = o.qty + 99"
    assert db.sql(joined).await_end()


def test_a_file_that_has_changed_is_read_again(db: Database, tmp_path: Path) -> None:
    path = write_trades(tmp_path)
    text = f"SELECT COUNT(*) AS n FROM '{path}' WINDOW(RANGE UNBOUNDED)"
    assert all_rows(db, text) == [(100,)]
    write_trades(tmp_path, 200)
    assert all_rows(db, text) == [(200,)]


def test_a_file_without_a_time_is_a_table(db: Database, tmp_path: Path) -> None:
    path = write_trades(tmp_path)
    airports = tmp_path / "names.csv"
    airports.write_text("code,name\nA,Acme\nB,Bolt\n")
    for _ in range(2):
        answer = db.sql(f"SELECT name FROM '{airports}' WHERE code = 'B'").results("polars")
        assert answer.rows() == [("Bolt",)]
    joined = f"'{path}' WINDOW(RANGE UNBOUNDED) JOIN '{airports}' ON sym = code"
    text = f"SELECT name, COUNT(*) AS n FROM {joined} GROUP BY name"
    assert sorted(all_rows(db, text)) == [("Acme", 34), ("Bolt", 33)]
    airports.write_text("code,name\nB,Bell\n")
    answer = db.sql(f"SELECT name FROM '{airports}'").results("polars")
    assert answer.rows() == [("Bell",)]


def test_describe_a_file(db: Database, tmp_path: Path) -> None:
    assert "qty   BIGINT" in str(db.sql(f"DESCRIBE '{write_trades(tmp_path)}'"))


def test_files_in_derived_streams_and_scripts(db: Database, tmp_path: Path) -> None:
    path = write_trades(tmp_path)
    db.sql(f"CREATE VIEW v AS SELECT qty FROM '{path}' WHERE qty > 97")
    assert sorted(all_rows(db, "SELECT qty FROM v WINDOW(RANGE UNBOUNDED)")) == [(98,), (99,)]
    assert "Scan" in db.sql(f"EXPLAIN SELECT qty FROM '{path}'")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM 'no/such.csv'", "missing-file"),
        ("SELECT * FROM read_csv()", "source-argument"),
        ("SELECT * FROM read_csv('a.csv', wrong = 1)", "source-argument"),
        ("SELECT * FROM other('a.csv')", "not-supported"),
    ],
)
def test_mistakes_in_files(db: Database, text: str, code: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        db.sql(text)
    assert caught.value.code == code and caught.value.span is not None


def test_confined_files(tmp_path: Path) -> None:
    path = write_trades(tmp_path)
    (tmp_path / "inside").mkdir()
    with sl.connect(engine="local", allow=sl.Allow.parse([f"dir:{tmp_path}/inside", "connector:file"])) as db:
        for text in (f"SELECT * FROM '{path}'", f"DESCRIBE '{path}'", f"CREATE STREAM t SOURCE file('{path}')"):
            with pytest.raises(StrandlineError) as caught:
                db.sql(text)
            assert caught.value.code == "not-allowed"


# ---- strandline inspect ----------------------------------------------------------------------------------------------


def test_inspect_writes_a_statement_that_works(db: Database, tmp_path: Path) -> None:
    seconds = [0, 700, 29, 701, 30]
    lines = [f"S;{second};{START + timedelta(seconds=second)}" for second in seconds]
    (tmp_path / "a.csv").write_text("sym;n;ts\n" + "\n".join(lines))
    text = inspect_files([f"{tmp_path}/a.csv"])
    assert "5 rows from 2024-01-01 09:00:00 to 2024-01-01 09:11:41, 11 min 41 s" in text
    assert "2 rows come after a later one, by up to 11 min 11 s" in text
    assert "sym: 1 value (S)" in text and "delimiter => ';'" in text
    assert "ORDERED BY ts WITHIN 12 MINUTES" in text and "distinct(sym) = 1" in text
    db.sql(text)
    assert len(all_rows(db, "SELECT n FROM a WINDOW(RANGE UNBOUNDED)")) == 5


def test_inspect_chooses_the_time_of_the_order(tmp_path: Path) -> None:
    lines = [f"{START + timedelta(seconds=n)},{START + timedelta(seconds=n * 7 % 13)}" for n in range(20)]
    (tmp_path / "a.csv").write_text("arrived,asked\n" + "\n".join(lines))
    text = inspect_files([f"{tmp_path}/a.csv"])
    assert "arrived or asked may be the time: rows are nearest to the order of arrived" in text
    assert "ORDERED BY arrived\n" in text


def test_inspect_of_several_files_and_of_a_table(db: Database, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"code,name\nA{number},x\n")
    paths = [f"{tmp_path}/{number}.csv" for number in range(3)]
    text = inspect_files(paths, is_table=True, name="names")
    assert f"file('{tmp_path}/*.csv') CONSTANT" in text
    db.sql(text)
    assert len(db.sql("SELECT code FROM names").results("polars")) == 3
    assert inspect_files(paths[:2]).count("CREATE STREAM") == 2


def test_files_of_several_formats_are_named_apart(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "a.json").write_text('{"k": 1}\n')
    with pytest.raises(StrandlineError, match="several formats") as caught:
        inspect_files([str(tmp_path)])
    assert caught.value.hint == "Name the files of one format by a pattern, as in file('directory/*.csv')."


def test_inspect_of_a_file_without_a_header(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x,2024-01-01 09:00:00\n2,y,2024-01-01 09:00:05\n")
    text = inspect_files([f"{tmp_path}/a.csv"])
    assert "-- the first line is no header" in text and "header => false" in text and "ORDERED BY column3" in text
    db.sql(text)
    assert all_rows(db, "SELECT column1, column2 FROM a WINDOW(RANGE UNBOUNDED)") == [(1, "x"), (2, "y")]


def test_inspect_of_results_declares_their_periods(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01'), (2, '2024-01-02')) ORDERED BY ts")
    counts = db.sql("SELECT count(*) AS n FROM s WINDOW(RANGE 3 DAYS)")
    assert counts.await_end(60)
    pq.write_table(counts.results(), tmp_path / "counts.parquet")
    path = f"{tmp_path}/counts.parquet"
    as_stream, as_table = inspect_files([path]), inspect_files([path], is_table=True, name="kept")
    assert "\n  VALID FROM valid_from UNTIL valid_until\n" in as_stream
    assert as_table.endswith("VALID FROM valid_from UNTIL valid_until;") and "are the time in which" in as_table
    db.sql(as_stream)
    db.sql(as_table)
    again = db.sql("SELECT n FROM counts")
    assert again.await_end(60) and again.results() == counts.results()
    for day in range(1, 7):
        at = f"2024-01-0{day} 12:00:00"
        kept = db.sql(f"SELECT n FROM kept AT TIMESTAMP '{at}'").results()
        assert kept.to_pylist() == counts.snapshot(at).to_pylist()


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """Opening one waits for its writer, who may never come."""
    os.mkfifo(tmp_path / "pipe.csv")
    with sl.connect(engine="local") as db, pytest.raises(StrandlineError, match="no regular file"):
        db.sql(f"CREATE STREAM s SOURCE file('{tmp_path}/pipe.csv')")
