"""Statements of other dialects that are refused: `cases/other_dialects.case`. What their hints say to write works.

A case has the dialect, the statement, and its code and hint. A statement in a hint is executed, an expression too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import strandline as sl
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.sql.dialects.clauses import CLAUSES
from strandline.sql.dialects.names import COLUMNS, FUNCTIONS, TYPES
from strandline.sql.dialects.statements import STATEMENTS
from strandline.sql.parser.statements import parse_type
from syntax_cases import CASES, cases

RELATIONS = (CASES / "other_dialects.sql").read_text()
REFUSED = cases("other_dialects.case")
# The words that begin a statement in a hint, which ends with a full stop, a semicolon or "then".
WRITTEN = re.compile(
    r"(?:[Ww]rite|:|as in|then) "
    r"((?:SELECT|CREATE|INSERT|UPDATE|DELETE|TRUNCATE|SHOW|DESCRIBE|EXPLAIN|DROP) [^…;]*?)"
    r"(?:; |, then |\. |\.$)"
)
EXPRESSION = re.compile(
    r"^(?:Write|It is exact here:|Add an interval:|Subtract an interval:) (.+?)(?:, or .+|: .+)?\.$"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialects")
    (path / "data.csv").write_text("k,a,b,ts\nx,1,2,2024-01-01 00:00:00\ny,3,4,2024-01-01 00:00:01\n")
    return path


@pytest.fixture(autouse=True)
def beside_the_data(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)


@contextmanager
def relations() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(RELATIONS)
        assert database.queries[0].await_end(60)
        yield database


@pytest.fixture
def database(beside_the_data: None) -> Iterator[Database]:
    """For statements that change it."""
    with relations() as database:
        yield database


@pytest.fixture(scope="module")
def unchanged(directory: Path) -> Iterator[Database]:
    """For statements that are refused or only explained."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(directory)
        with relations() as database:
            yield database


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_statement_is_refused_with_a_hint(unchanged: Database, text: str, expected: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        unchanged.sql(text)
    assert f"{caught.value.code}: {caught.value.hint}" == expected


def test_a_hundred_statements() -> None:
    assert len(REFUSED) >= 100


def hinted_statements() -> list[str]:
    hints = {hint for hint in (*STATEMENTS.values(), *CLAUSES.values(), *COLUMNS.values()) if isinstance(hint, str)}
    hints |= {case.values[1].partition(": ")[2] for case in REFUSED}
    found = {statement for hint in hints for statement in WRITTEN.findall(hint)}
    return sorted(statement for statement in found if "{" not in statement)


@pytest.mark.parametrize("statement", hinted_statements())
def test_statement_of_a_hint_works(database: Database, statement: str) -> None:
    result = database.sql(statement)
    if isinstance(result, Query) and not reads_changes(result):
        assert result.await_end(60)


def reads_changes(query: Query) -> bool:
    """Whether it goes on for as long as a table may change."""
    return "t" in query.reads


def expressions_of_hints() -> dict[str, str]:
    """What the hints for functions say to write, by the name of the function; some say no expression."""
    other = ("it in FROM", "ORDER BY", "the number", "strandline", "now()")
    matches = {name: EXPRESSION.match(hint) for name, hint in FUNCTIONS.items()}
    return {name: match[1] for name, match in matches.items() if match and not match[1].startswith(other)}


@pytest.mark.parametrize("name", sorted(expressions_of_hints()))
def test_expression_of_a_hint_works(unchanged: Database, name: str) -> None:
    expression = expressions_of_hints()[name].removesuffix(" at the end of the query")
    unchanged.sql(f"EXPLAIN SELECT {expression.replace('doc', 'k')} AS x FROM s WINDOW(RANGE 1 HOUR)")


@pytest.mark.parametrize("name", sorted(TYPES))
def test_type_of_a_hint_exists(name: str) -> None:
    kind = re.match(r"Write ([A-Z]+(?:\(\d+, \d+\))?)", TYPES[name])
    if kind is not None:
        parse_type(kind.group(1))


@pytest.mark.parametrize(
    ("declared", "statement", "hint"),
    [
        (
            "CREATE TABLE x (k VARCHAR, ts TIMESTAMP)",
            "SELECT k FROM TUMBLE(x, ts, INTERVAL '1 minute')",
            "CREATE STREAM",
        ),
        (
            """CREATE STREAM x ("payload.user" VARCHAR, ts TIMESTAMP) SOURCE rows(('a', '2024-01-01')) ORDERED BY ts""",
            "SELECT payload->>'user' AS k FROM x",
            'its parts are columns: "payload.user".',
        ),
    ],
)
def test_a_hint_about_what_was_declared(declared: str, statement: str, hint: str) -> None:
    with sl.connect(engine="local") as db:
        db.sql(declared)
        with pytest.raises(sl.StrandlineError) as caught:
            db.sql(statement)
    assert hint in str(caught.value.hint)
