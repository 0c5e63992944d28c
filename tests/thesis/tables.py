"""The example streams of Krämer's thesis, and how its tables are held against what we have.

The thesis counts time in units; here a unit is a microsecond. Its tables come in two forms. A *logical* table says
which bag of rows is valid at each instant: here a text with the rows between blanks, by instant. A *physical* table
lists elements with their intervals: here a time line `c[1,8) a[5,11)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from strandline.core.temporal import Instant
from strandline.core.types import TIMESTAMP, VARCHAR
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import Element, snapshot
from strandline.logical.schema import schema
from support import Arrivals, Cuts, Elements, Payload, at, bind, line, moment, raw, run_plan

Logical: TypeAlias = Mapping[Instant, str]

# Instants at which a table is looked at: all that the tables name, some before, and enough after that windows empty.
INSTANTS = range(-2, 75)

# ---- chapter 8: logical streams --------------------------------------------------------------------------------------

# Table 8.1. Several rows may be valid at one instant.
LOGICAL_S1 = {1: "c", 2: "a a a", 3: "a a a b", 4: "a a a b c", 5: "b b", 6: "b b"}
LOGICAL_S2 = {2: "b b", 3: "b b", 4: "a b c", 5: "a a b", 6: "a c c"}

# Table 8.11. Where the text prints the table once more that is right for 8.12, this is the only stream with one row per
# instant from which 8.12 and 8.13 follow.
LOGICAL_S3 = {1: "c", 2: "a", 3: "b", 4: "b", 5: "a", 6: "c"}

# ---- chapter 11: physical streams ------------------------------------------------------------------------------------

# Table 11.1.
S1 = "c[1,8) a[5,11) d[6,14) a[9,10) b[12,17)"
S2 = "b[1,7) d[3,9) a[4,5) b[7,15) e[10,18)"

# Table 11.11(a): a chronon stream.
S3 = "b[1,2) a[3,4) c[4,5) a[7,8) b[10,11)"

# What a letter is worth where letters are added up: each sum says which letters are in it, and how often.
WORTH = {"a": 1, "b": 10, "c": 100, "d": 1000}
WORTH_SQL = "CASE x WHEN 'a' THEN 1 WHEN 'b' THEN 10 WHEN 'c' THEN 100 ELSE 1000 END"


def total(letters: str) -> str:
    """What `a + a + b` is as a number."""
    return str(sum(WORTH[letter.strip()] for letter in letters.split("+")))


# ---- tables as streams that a query can read -------------------------------------------------------------------------


def arriving(name: str, rows: Iterable[tuple[str, Instant]]) -> Arrivals:
    """A base stream with the one column x."""
    elements = tuple(Element(t, {"x": x, "ts": moment(t)}) for x, t in rows)
    return Arrivals(name, (("x", VARCHAR), ("ts", TIMESTAMP)), elements)


def chronons(name: str, table: Logical) -> Arrivals:
    """A logical table as a base stream: each row is valid for one instant."""
    return arriving(name, [(x, t) for t, rows in table.items() for x in rows.split()])


def with_intervals(name: str, table: str) -> tuple[list[Arrivals], str]:
    """A physical table as a derived stream: each element comes from a stream of its own, whose window is as long as
    the element is valid."""
    streams, queries = [], []
    for number, ((x,), start, end) in enumerate(line(table)):
        streams.append(arriving(f"{name}_{number}", [(str(x), start)]))
        queries.append(f"SELECT x FROM {name}_{number} WINDOW(RANGE {end - start} MICROSECONDS)")
    return streams, f"CREATE STREAM {name} AS {' UNION ALL '.join(queries)};"


# ---- the judge -------------------------------------------------------------------------------------------------------


def shown(payload: Payload) -> str:
    return ",".join("NULL" if value is None else str(value) for value in payload)


def logical(elements: Elements) -> dict[Instant, str]:
    """Which rows are valid when: the logical table of a stream with intervals."""
    return _table({t: [shown(payload) for payload in at(elements, t)] for t in INSTANTS})


def _table(rows: Mapping[Instant, Sequence[str]]) -> dict[Instant, str]:
    return {t: " ".join(sorted(found)) for t, found in rows.items() if found}


def meaning(plan: Plan, streams: Sequence[Arrivals]) -> dict[Instant, str]:
    """The logical table that the algebra gives, snapshot by snapshot."""
    ids = [column.id for column in schema(plan)]
    known = raw(streams)
    return _table({t: [shown(tuple(row[i] for i in ids)) for row in snapshot(plan, known, t)] for t in INSTANTS})


def check_query(script: str, streams: Sequence[Arrivals], expected: Logical) -> None:
    """The query means the table, and the engine answers it, however its input is cut."""
    plan = bind(script, streams)
    wanted = _table({t: rows.split() for t, rows in expected.items()})
    assert meaning(plan, streams) == wanted
    for cut in (Cuts(), Cuts(tuple((1,) * 4 for _ in streams), shards=2)):
        assert logical(run_plan(plan, streams, cut).elements) == wanted
