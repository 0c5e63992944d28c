"""Files as sources of tables: constant, temporal, keyed, and change feeds with times of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from feed_testing import at, connect, content, declared, history, results

import strandline as sl
from source_testing import wait_for
from strandline.connectors.tables.feeds import feeder
from strandline.core.errors import StrandlineError
from strandline.core.security.allow import Allow

AIRPORTS = """faa,name,lat,lon,tzone
EWR,Newark Liberty Intl,40.6925,-74.168667,America/New_York
JFK,John F Kennedy Intl,40.639751,-73.778925,America/New_York
LGA,La Guardia,40.777245,-73.872608,America/New_York
ORD,Chicago Ohare Intl,41.978603,-87.904842,America/Chicago
"""
FLIGHTS = """flight,origin,ts
1,EWR,2013-01-01 05:00:00
2,JFK,2013-01-01 05:30:00
3,XXX,2013-01-01 05:40:00
4,LGA,2013-01-01 06:00:00
"""


def write_flights(tmp_path: Path) -> str:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    return (
        f"CREATE STREAM flights (flight INT, origin VARCHAR, ts TIMESTAMP) SOURCE file('{tmp_path}/flights.csv')"
        " ORDERED BY ts"
    )


@pytest.mark.parametrize("clause", ["CONSTANT", "", "RETROACTIVE", "NON RETROACTIVE"])
def test_a_stream_is_joined_with_a_csv(tmp_path: Path, clause: str) -> None:
    (tmp_path / "airports.csv").write_text(AIRPORTS)
    with connect() as db:
        db.sql(write_flights(tmp_path))
        db.sql(
            "CREATE TABLE airports (faa VARCHAR PRIMARY KEY, name VARCHAR, lat DOUBLE)"
            f" SOURCE file('{tmp_path}/airports.csv') {clause}"
        )
        assert len(content(db, "airports")) == 4
        query = "SELECT f.flight, a.name FROM flights f JOIN airports a ON f.origin = a.faa"
        assert results(db, query, ["flight", "name"]) == [
            (1, "Newark Liberty Intl"),
            (2, "John F Kennedy Intl"),
            (4, "La Guardia"),
        ]


def write_lines(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def test_a_table_of_a_checkpoint_is_loaded_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_lines(path, "a,b", "1,x", "2,y", "2,z")
    declaration = f"CREATE TABLE t (a INT, b VARCHAR) SOURCE file('{path}')"
    for _ in range(2):
        with connect(tmp_path / "checkpoint") as db:
            db.sql(declaration)
            assert content(db, "t") == [(1, "x"), (2, "y"), (2, "z")]
    path.unlink()
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declaration)
        assert content(db, "t") == [(1, "x"), (2, "y"), (2, "z")]


def test_a_position_belongs_to_its_source(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "t.csv", "a", "1")
    declaration = "CREATE TABLE t (a INT) SOURCE"
    with connect(tmp_path / "checkpoint") as db:
        db.sql(f"{declaration} file('{tmp_path}/here/*.csv')")
    with connect(tmp_path / "checkpoint") as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"{declaration} file('{tmp_path}/here/*.csv', header => false)")
        assert refused.value.code == "source-changed"
        db.sql(f"{declaration} file('{tmp_path}/there/*.csv')")  # data may move
        assert content(db, "t") == [(1,)]
        with pytest.raises(StrandlineError) as refused:
            db.table("t").insert([(2,)])
        assert refused.value.code == "table-has-source"


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_instants_of_changes_do_not_depend_on_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(feeder, "LOAD_ROWS", rows)
    monkeypatch.setattr(feeder, "STEP_ROWS", rows)
    for number, line in enumerate(CHANGES):
        directory = tmp_path / "parts"
        directory.mkdir(exist_ok=True)
        change_feed(tmp_path, [line], "")
        (tmp_path / "changes.csv").rename(directory / f"{number}.csv")
    columns = "op VARCHAR, k INT, v VARCHAR, ts TIMESTAMP, PRIMARY KEY (k)"
    source = f"SOURCE file('{directory}/*.csv') CHANGES IN op ORDERED BY ts WITHIN 5 SECONDS"
    with connect() as db:
        db.sql(f"CREATE TABLE t ({columns}) {source}")
        wait_for(lambda: db.tables.feeders()["t"].status.state == "ended")
        assert (3, "c", at(11), at(15)) in history(db, "t")
        assert len(history(db, "t")) == 5


def test_rows_with_a_key_replace_one_another(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", "a,b", "1,x", "2,y", "1,z", ",w")
    with connect() as db:
        db.sql(f"CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR) SOURCE file('{tmp_path}/t.csv')")
        assert content(db, "t") == [(1, "z"), (2, "y")]
        assert db.tables.feeders()["t"].feed.position.rejected == 1


def test_bad_rows_are_kept_aside_and_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", "a,b", "1,x", "two,y", "3,z")
    with connect(tmp_path / "checkpoint") as db:
        db.sql(f"CREATE TABLE t (a INT, b VARCHAR) SOURCE file('{tmp_path}/t.csv') CONSTANT")
        assert content(db, "t") == [(1, "x"), (3, "z")]
        shown = str(db.sql("SHOW TABLES"))
        assert "rejected" in shown and "ended" in shown
        directory = Path(declared(db, "t").directory)
        rejected = pl.read_parquet(directory / feeder.REJECTED / "*.parquet")
        assert rejected.get_column("reason").to_list() == ["a: 'two' is not INT"]
        assert rejected.get_column("row").to_list() == [3]


def test_rows_with_null_where_there_must_be_a_value_are_rejected(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", "a,b,c", "1,x,1", "2,,2", ",y,3", "4,z,", ",,")
    with connect() as db:
        columns = "a INT PRIMARY KEY, b VARCHAR NOT NULL, c INT NOT NULL"
        db.sql(f"CREATE TABLE t ({columns}) SOURCE file('{tmp_path}/t.csv')")
        assert content(db, "t") == [(1, "x", 1)]
        assert db.tables.feeders()["t"].feed.position.rejected == 4
        rejected = pl.read_parquet(Path(declared(db, "t").directory) / feeder.REJECTED / "*.parquet")
        assert rejected.get_column("reason").to_list() == [
            'column "b" is NULL, and declared NOT NULL',
            "the PRIMARY KEY (a) is NULL",
            'column "c" is NULL, and declared NOT NULL',
            "the PRIMARY KEY (a) is NULL",
        ]
        assert '"a":2' in rejected.get_column("content")[0]


def test_a_deletion_of_a_feed_needs_no_more_than_its_key(tmp_path: Path) -> None:
    with connect() as db:
        declaration = change_feed(tmp_path, (*CHANGES, "insert,5,,21"), ", PRIMARY KEY (k)")
        db.sql(declaration.replace("v VARCHAR", "v VARCHAR NOT NULL").replace("op VARCHAR", "op VARCHAR NOT NULL"))
        assert content(db, "t") == [(1, "d"), (2, "e")]
        assert db.tables.feeders()["t"].feed.position.rejected == 1


def test_a_declared_column_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", "a,b", "1,x")
    with connect(tmp_path / "checkpoint") as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE t (a INT, c VARCHAR) SOURCE file('{tmp_path}/t.csv')")
        assert refused.value.code == "missing-column"
        assert "t" not in db.catalog
        db.sql(f"CREATE TABLE t (a INT, b VARCHAR) SOURCE file('{tmp_path}/t.csv')")


def test_what_is_not_allowed_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", "a", "1")
    with connect(allow=Allow(roots=(tmp_path / "other",))) as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE t (a INT) SOURCE file('{tmp_path}/t.csv')")
        assert refused.value.code == "not-allowed"


def test_a_constant_table_needs_a_source_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "ENDLESS_SECONDS", 0.2)
    write_lines(tmp_path / "t.csv", "a", "1")
    with connect(tmp_path / "checkpoint") as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE t (a INT) SOURCE file('{tmp_path}/*.csv', follow => true) CONSTANT")
        assert refused.value.code == "endless-source"
        db.sql(f"CREATE TABLE t (a INT) SOURCE file('{tmp_path}/*.csv') CONSTANT")
        assert content(db, "t") == [(1,)]


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_lines(path, "a,b", "1,x")
    with connect() as db:
        db.sql(f"CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR) SOURCE file('{tmp_path}/*.csv', follow => true)")
        wait_for(lambda: content(db, "t") == [(1, "x")])
        with path.open("a") as file:
            file.write("2,y\n1,z\n")
        wait_for(lambda: content(db, "t") == [(1, "z"), (2, "y")])


# Periods


PERIODS = """zone,price,a,b
2,7,2024-01-01 00:00:30,
1,5,2024-01-01 00:00:10,2024-01-01 00:00:20
1,6,2024-01-01 00:00:20,2024-01-01 00:00:40
3,1,2024-01-01 00:00:20,2024-01-01 00:00:20
3,2,2024-01-01 00:00:20,2024-01-01 00:00:10
3,3,,2024-01-01 00:00:10
1,9,2024-01-01 00:00:35,2024-01-01 00:00:50
"""


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (zone)"])
def test_rows_of_a_temporal_table_are_valid_in_their_periods(tmp_path: Path, key: str) -> None:
    #  t     0    10    20    30   35   40    50
    #  1          [5====)[6=============)
    #  1                            [9========)      overlaps: rejected where zone is the key
    #  2                      [7==================…
    (tmp_path / "tariff.csv").write_text(PERIODS)
    (tmp_path / "calls.csv").write_text(
        "zone,ts\n" + "".join(f"{zone},2024-01-01 00:00:{s:02}\n" for s in (5, 15, 20, 30, 36, 45) for zone in (1, 2))
    )
    with connect() as db:
        db.sql(
            f"CREATE TABLE tariff (zone INT, price INT, a TIMESTAMP, b TIMESTAMP{key})"
            f" SOURCE file('{tmp_path}/tariff.csv') VALID FROM a UNTIL b"
        )
        db.sql(f"CREATE STREAM calls (zone INT, ts TIMESTAMP) SOURCE file('{tmp_path}/calls.csv') ORDERED BY ts")
        assert db.tables.feeders()["tariff"].feed.position.rejected == (4 if key else 3)
        found = results(db, "SELECT c.ts, c.zone, t.price FROM calls c JOIN tariff t USING (zone)", ["ts", "price"])
        seconds = [(time.second, price) for time, price in found]
        second = [] if key else [(36, 9), (45, 9)]
        assert seconds == sorted([(15, 5), (20, 6), (30, 6), (30, 7), (36, 6), (36, 7), (45, 7), *second])
        now = db.sql("SELECT zone, price FROM tariff FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:32'")
        assert sorted(now.results("polars").rows()) == [(1, 6), (2, 7)]


def test_results_are_read_back_as_a_temporal_table(tmp_path: Path) -> None:
    write_lines(tmp_path / "s.csv", "k,v,ts", *(f"{n % 3},{n * n % 7},2024-01-01 00:00:{n:02}" for n in range(50)))
    query = "SELECT k, SUM(v) AS total FROM s WINDOW(RANGE 4 SECONDS) GROUP BY k"
    lasting = "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k"
    with connect() as db:
        db.sql(f"CREATE STREAM s (k INT, v INT, ts TIMESTAMP) SOURCE file('{tmp_path}/s.csv') ORDERED BY ts")
        for name, text in (("totals", query), ("counts", lasting)):
            running = db.sql(text, sink=sl.Parquet(tmp_path / name), name=name)
            assert running.await_end(30)
    columns = "valid_from TIMESTAMP, valid_until TIMESTAMP"
    clauses = "VALID FROM valid_from UNTIL valid_until"
    with connect() as db:
        db.sql(f"CREATE STREAM s (k INT, v INT, ts TIMESTAMP) SOURCE file('{tmp_path}/s.csv') ORDERED BY ts")
        for name, value, text in (("totals", "total", query), ("counts", "n", lasting)):
            source = f"SOURCE file('{tmp_path}/{name}/*.parquet')"
            db.sql(f"CREATE TABLE {name} (k INT, {value} BIGINT, {columns}) {source} {clauses}")
            shown = ["k", value, "valid_from", "valid_until"]
            again = results(db, f"SELECT DISTINCT k, {value} FROM {name} WHERE k >= 0", shown)
            assert again == results(db, f"SELECT DISTINCT k, {value} FROM ({text}) q", shown)
            assert len(again) > 10


# Changes with times of their own


CHANGES = (
    "insert,1,a,10", "insert,2,b,12", "insert,3,c,11", "u,1,d,14", "delete,2,,15", "insert,2,e,20", "delete,3,,13",
)  # fmt: skip


def change_feed(tmp_path: Path, lines: Sequence[str], key: str, within: str = "WITHIN 5 SECONDS") -> str:
    dated = [f"{line.rpartition(',')[0]},2024-01-01 00:00:{line.rpartition(',')[2]}" for line in lines]
    write_lines(tmp_path / "changes.csv", "op,k,v,ts", *dated)
    columns = f"op VARCHAR, k INT, v VARCHAR, ts TIMESTAMP{key}"
    source = f"SOURCE file('{tmp_path}/changes.csv')"
    return f"CREATE TABLE t ({columns}) {source} CHANGES IN op ORDERED BY ts {within}"


def test_changes_take_effect_at_their_times(tmp_path: Path) -> None:
    #  t   10   11   12   14   15       20
    #  1   [a============)[d===============…
    #  2             [b========)        [e=…
    #  3        [c==(late: 13 comes after 20, and takes effect at 20 − 5)
    with connect() as db:
        db.sql(change_feed(tmp_path, CHANGES, ", PRIMARY KEY (k)"))
        assert content(db, "t") == [(1, "d"), (2, "e")]
        assert history(db, "t") == [
            (1, "a", at(10), at(14)),
            (1, "d", at(14), None),
            (2, "b", at(12), at(15)),
            (2, "e", at(20), None),
            (3, "c", at(11), at(15)),
        ]
        assert db.tables.feeders()["t"].feed.position.late == 1


def test_without_a_key_a_deletion_ends_one_equal_row(tmp_path: Path) -> None:
    lines = ("insert,1,a,10", "insert,1,a,11", "delete,1,a,12", "delete,9,z,12", "delete,1,a,14", "delete,1,a,15")
    with connect() as db:
        db.sql(change_feed(tmp_path, (*lines, "insert,1,a,16"), ""))
        assert history(db, "t") == [(1, "a", at(10), at(12)), (1, "a", at(11), at(14)), (1, "a", at(16), None)]


def test_of_changes_at_one_instant_the_last_counts(tmp_path: Path) -> None:
    lines = ("insert,1,a,10", "u,1,b,10", "delete,2,,10", "insert,2,c,11", "delete,2,,11", "u,1,e,12", "u,1,f,12")
    with connect() as db:
        db.sql(change_feed(tmp_path, lines, ", PRIMARY KEY (k)", ""))
        assert history(db, "t") == [(1, "b", at(10), at(12)), (1, "f", at(12), None)]
