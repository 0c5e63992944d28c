"""The tasks of `tests/tasks`: what people who know other dialects type first works, or its hint does; none is silent.

`python tests/test_tasks.py [part of a title]` prints what happens to each task, and the score.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.sql import ast
from strandline.sql.parser.statements import parse

ROOT = Path(__file__).parent.parent
TASKS = ROOT / "tests" / "tasks"
MAX_PENDING = 0
PENDING = "-- pending: "


@dataclass(frozen=True)
class Attempt:
    """Statements, and the sections that say what is expected of the last of them: a word, its argument, its lines."""

    text: str
    sections: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Task:
    file: str
    title: str
    streams: str
    attempts: tuple[Attempt, ...]  # as first written; then what follows from a hint or a notice
    pending: str | None

    @property
    def is_hinted(self) -> bool:
        return any(word in ("hint", "notice") for word, *_ in self.attempts[0].sections)


class MissedError(AssertionError):
    """A task whose statement does not do what is expected."""


def read_tasks() -> list[Task]:
    return [task for path in sorted(TASKS.glob("*.task")) for task in _read_file(path)]


def _read_file(path: Path) -> Iterator[Task]:
    streams, *parts = path.read_text().split("\n\n-- ")
    for part in parts:
        title, _, rest = part.partition("\n")
        pending = None
        if rest.startswith(PENDING):
            reason, _, rest = rest.partition("\n")
            pending = reason.removeprefix(PENDING)
        yield Task(path.stem, title, streams, tuple(_read_attempts(rest)), pending)


def _read_attempts(text: str) -> Iterator[Attempt]:
    statement, *blocks = text.split("\n---- ")
    sections: list[tuple[str, str, str]] = []
    for block in blocks:
        head, _, body = block.partition("\n")
        word, _, argument = head.partition(" ")
        if word == "then":
            yield Attempt(statement, tuple(sections))
            statement, sections = body, []
        else:
            sections.append((word, argument, body.strip()))
    yield Attempt(statement, tuple(sections))


# ---- what is expected ------------------------------------------------------------------------------------------------


@cache
def oracle(streams: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with the rows of the streams and tables of a file."""
    connection = duckdb.connect()
    with sl.connect(engine="local") as database:
        database.sql(streams)
        for stream in list(database.catalog):
            rows = database.sql(f"SELECT * FROM {stream.name}")
            if isinstance(rows, Query):
                rows.await_end()
            connection.register("arriving", _without_zones(_payloads(rows)))
            connection.sql(f"CREATE TABLE {stream.name} AS FROM arriving")
            if isinstance(rows, Query) and rows.late(stream.name).num_rows:
                connection.register("late", _without_zones(rows.late(stream.name)))
                connection.sql(f"INSERT INTO {stream.name} FROM late")
    return connection


def _payloads(result: Any) -> pa.Table:
    table = result.results("arrow")
    return table.select([name for name in table.column_names if name not in ("valid_from", "valid_until")])


def _without_zones(table: pa.Table) -> pa.Table:
    """Times as those of UTC."""
    kinds = [pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _counted(rows: list[tuple[Any, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: object) -> object:
    """A value as both sides show it: times without zone, numbers with nine digits."""
    match value:
        case bool():
            return value
        case float() | Decimal() | int():
            return f"{float(value):.9g}"
        case datetime():
            return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        case dict():
            return tuple(map(_plain, value.values()))
        case list():
            return tuple(map(_plain, value))
    return value


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


# ---- what happens ----------------------------------------------------------------------------------------------------


def check(task: Task) -> None:
    """Run a task as a user would: each attempt in a new database."""
    for attempt in task.attempts:
        with sl.connect(engine="local") as database:
            database.sql(task.streams)
            _check_attempt(task, attempt, database)


def _check_attempt(task: Task, attempt: Attempt, database: Database) -> None:
    refusals = [(code, body) for word, code, body in attempt.sections if word == "hint"]
    try:
        result = _run(database, attempt.text)
    except StrandlineError as error:
        if not refusals:
            raise MissedError(f"refused:\n{error.render()}") from None
        for code, body in refusals:
            missing = [part for part in body.splitlines() if part not in (error.hint or "")]
            if error.code != code or missing:
                raise MissedError(f"another refusal than {code} with {missing}:\n{error.render()}") from None
        return
    if refusals:
        raise MissedError(f"silent: not refused\n{str(result)[:500]}")
    for word, argument, body in attempt.sections:
        _check_section(oracle(task.streams), result, word, argument, body)


def _run(database: Database, text: str) -> Any:
    """The value of the last statement; a query has ended."""
    result: Any = None
    for statement in parse(text):
        result = database.execute(statement)
        if isinstance(result, Query):
            assert result.await_end(60), "the query has not ended"
        elif isinstance(statement, ast.CreateStreamAs):
            result = database.query(statement.name.name)
            result.await_end(60)
    return result


def _check_section(judge: duckdb.DuckDBPyConnection, result: Any, word: str, argument: str, body: str) -> None:
    if word in ("prints", "notice"):
        notices = "\n".join(map(str, result.notices())) if hasattr(result, "notices") else ""
        text = str(result) if word == "prints" else notices
        for part in body.splitlines():
            if part not in text:
                raise MissedError(f"no {part!r} in:\n{text[:1000]}")
        return
    expected = judge.sql(body).fetchall()
    if word == "at":
        shown = result.snapshot(None if argument == "end" else argument)
    elif word != "some" and isinstance(result, Query) == (word == "table"):
        raise MissedError("it is executed at once" if word == "elements" else "it is a continuous query")
    else:
        shown = _payloads(result)
    found = _rows(shown)
    if word == "some":
        if len(found) != int(argument) or _counted(found) - _counted(expected):
            raise MissedError(f"{len(found)} rows, not {argument} of the stream's")
        return
    _compare(_counted(found), _counted(expected))


def _compare(found: Counter[tuple[object, ...]], expected: Counter[tuple[object, ...]]) -> None:
    if found != expected:
        extra, missing = found - expected, expected - found
        lines = [f"{found.total()} rows, expected {expected.total()}"]
        lines += [f"  not expected: {row}" for row in list(extra)[:3]]
        lines += [f"  missing: {row}" for row in list(missing)[:3]]
        raise MissedError("\n".join(lines))


# ---- tests -----------------------------------------------------------------------------------------------------------

ALL_TASKS = read_tasks()


@pytest.mark.parametrize("task", ALL_TASKS, ids=[f"{task.file}: {task.title}" for task in ALL_TASKS])
def test_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    if task.pending is not None:
        pytest.skip(f"pending: {task.pending}")
    monkeypatch.chdir(ROOT)
    check(task)


def test_few_tasks_are_pending() -> None:
    pending = [task.title for task in ALL_TASKS if task.pending is not None]
    assert len(ALL_TASKS) >= 60
    assert len(pending) <= MAX_PENDING, pending


def test_every_task_says_what_is_expected() -> None:
    words = {"elements", "at", "table", "some", "prints", "notice", "hint"}
    for task in ALL_TASKS:
        assert task.title.endswith(")"), f"{task.title}: without its dialect"
        for attempt in task.attempts:
            assert attempt.sections, task.title
            assert {word for word, *_ in attempt.sections} <= words, task.title
        if any(word == "hint" for word, *_ in task.attempts[0].sections):
            assert len(task.attempts) > 1, f"{task.title}: what the hint says is not followed"


def main(part: str = "") -> None:
    """Print what happens to each task, pending or not."""
    os.chdir(ROOT)
    score: Counter[str] = Counter()
    for task in ALL_TASKS:
        if part not in task.title:
            continue
        try:
            check(task)
            outcome, lines = ("followed" if task.is_hinted else "works"), ""
        except MissedError as missed:
            outcome, lines = "missed", str(missed)
        except Exception as error:
            outcome, lines = "failed", f"{type(error).__name__}: {error}"
        score[outcome] += 1
        mark = "" if task.pending is None else f"  [pending: {task.pending}]"
        print(f"{outcome:<9} {task.file}: {task.title}{mark}")
        if lines:
            print("          " + lines.replace("\n", "\n          "))
    good = score["works"] + score["followed"]
    print(f"\n{good} of {score.total()}: {score['works']} as first written, {score['followed']} after a hint or notice")


if __name__ == "__main__":
    main(*sys.argv[1:])
