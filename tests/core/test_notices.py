"""The one channel of notices: listed, shown once, and nothing of a statement that failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.core.notices import Notice, NoticeLog, show_in_program
from strandline.database.database import Database

ONE, TWO = Notice("one", "first", "do this"), Notice("two", "second")
ARRIVAL = (
    'notice[arrival-time]: the rows of "s" have the time of their arrival, not that of column "ts"; '
    "declare ORDERED BY ts, with WITHIN where rows come out of order"
)
DECLARED = "CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE rows()"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        yield database


def recording(log: NoticeLog) -> list[str]:
    shown: list[str] = []
    log.show = lambda notice: shown.append(str(notice))
    return shown


def test_a_notice_is_one_line_with_its_remedy() -> None:
    assert str(ONE) == "notice[one]: first; do this"
    assert str(TWO) == "notice[two]: second"
    assert "\n" not in str(Notice("three", "a\nb", "c\nd"))


def test_each_is_shown_once_per_statement_and_listed_once() -> None:
    log = NoticeLog()
    shown = recording(log)
    for notices in ((ONE, TWO, ONE), (ONE,)):
        with log.collect():
            for notice in notices:
                log.add(notice)
    assert shown == [str(ONE), str(TWO), str(ONE)]
    assert log.all() == [ONE, TWO]


def test_a_subject_identifies_a_notice_whose_text_changes() -> None:
    log = NoticeLog()
    for subject, text in (("s", "3 rows"), ("t", "1 row"), ("s", "7 rows")):
        log.publish([Notice("late", text, subject=subject)])
    assert [notice.text for notice in log.all()] == ["7 rows", "1 row"]


def test_without_a_place_to_show_them_they_wait() -> None:
    log = NoticeLog()
    log.show = None
    log.publish([ONE, TWO])
    assert log.take() == [ONE, TWO]
    assert log.take() == []


def test_the_notices_of_a_failed_statement_are_dropped() -> None:
    log = NoticeLog()
    shown = recording(log)
    with pytest.raises(ValueError, match="broken"), log.collect():
        log.add(ONE)
        raise ValueError("broken")
    assert not shown
    with log.collect() as outer:
        with log.collect() as inner:
            log.add(ONE)
            log.add(ONE)
        assert not shown
    assert inner == outer == [ONE]
    assert shown == [str(ONE)]


def test_other_threads_are_not_collected() -> None:
    log = NoticeLog()
    shown = recording(log)
    with log.collect() as collected:
        other = threading.Thread(target=log.add, args=(TWO,))
        other.start()
        other.join()
        log.add(ONE)
    assert (collected, shown) == ([ONE], [str(TWO), str(ONE)])


def test_a_program_has_them_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # the test runner has some, a program mostly not
    show_in_program(ONE)
    assert capsys.readouterr() == ("", "notice[one]: first; do this\n")


def test_a_program_that_has_configured_logging_has_them_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}")

    monkeypatch.setattr(logging.getLogger(), "handlers", [Lines()])
    NoticeLog().add(ONE)
    assert capsys.readouterr().err == ""
    assert lines == ['strandline.notice: notice code=one text=first remedy="do this"']


def test_a_statement_shows_its_notices_when_it_has_succeeded(db: Database) -> None:
    shown = recording(db.catalog.notices)
    with pytest.raises(StrandlineError):
        db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE file('no/such/file.csv')")
    assert not shown
    db.sql(DECLARED)
    assert shown == [ARRIVAL]
    assert [notice.code for notice in db.notices()] == ["arrival-time"]


def test_a_stream_with_its_order_needs_no_notice(db: Database) -> None:
    db.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE rows() ORDERED BY ts; CREATE STREAM t (x INT) SOURCE rows()")
    assert db.notices() == []
