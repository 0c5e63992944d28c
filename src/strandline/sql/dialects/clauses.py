"""Clauses and operators of other dialects.

`<name>`, `<text>` and `<number>` stand for any token of the kind; `{2}` in a hint is the token at that place of the
phrase, counted from 0, and a function writes a hint from the tokens on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from strandline.sql.dialects.names import CATALOGUE
from strandline.sql.lexer import Token

Hint: TypeAlias = str | Callable[[Sequence[Token]], str]

_SOURCE: Final = "Name the source by a function: SOURCE file('data.csv') ORDERED BY ts WITHIN 5 SECONDS."
_STORED: Final = "Leave it out: a table keeps its rows itself, or reads a SOURCE such as file('data.csv')."
_PARTITIONS: Final = "Leave it out: the planner partitions by the keys of joins and groups."
_LOCKS: Final = "Leave it out: a query reads all its tables as of one instant, and locks nothing."
_FINISHED: Final = (
    "For one result per window, let it slide by its length: SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1"
    " HOUR SLIDE 1 HOUR) GROUP BY k."
)
_SAMPLE: Final = (
    "Choose rows by a condition, as in SELECT k, a FROM s WHERE a % 10 = 0. ALLOW SHEDDING at the end of a"
    " query drops rows under load."
)
_UNNEST: Final = "Write it in FROM: SELECT k, x FROM s, unnest(string_to_array(k, ' ')) AS x."
PIVOT: Final = (
    "Write one aggregate per column: SELECT COUNT(*) FILTER (WHERE k = 'x') AS x, COUNT(*) FILTER (WHERE k = 'y') AS y"
    " FROM s WINDOW(RANGE 1 HOUR)."
)
UNPIVOT: Final = (
    "Write a branch per column: SELECT k, 'a' AS name, a AS value FROM s UNION ALL SELECT k, 'b', b FROM s."
)
_RECURSION: Final = (
    "Join as often as there are levels: SELECT x.k, y.a FROM t x JOIN t y ON x.a = y.a. WITH names only queries before."
)
_NEXT_PAGE: Final = "Say where the next page begins: SELECT k, a FROM t WHERE a > 5 ORDER BY a LIMIT 10."
_TIES: Final = (
    "Write SELECT k, a FROM s WINDOW(RANGE 1 HOUR) ORDER BY a LIMIT {1}; all ties of the last row are returned."
)
_CHANGES: Final = (
    "Leave it out: a query over streams is continuous. ISTREAM(SELECT …) has the new rows of a result only."
)
_INTO: Final = (
    "Write CREATE TABLE x AS SELECT k, a FROM t. Of a stream: CREATE MATERIALIZED VIEW y AS SELECT k, a FROM s."
)
_LATERAL: Final = "Join the rows: SELECT s.k, t.a FROM s JOIN t ON s.k = t.k."
_REGEXP: Final = "Write SELECT k FROM s WHERE k ~ '^x'."
_PAST: Final = "Write SELECT k, a FROM t AT TIMESTAMP '2024-01-01'."
_LATEST: Final = (
    "For the latest row of each k, write SELECT * FROM s WINDOW(PARTITION BY k ROWS 1). For the greatest,"
    " write SELECT k, MAX(a) AS a FROM s WINDOW(RANGE 1 HOUR) GROUP BY k."
)
_ROLLUP: Final = "Write SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY ROLLUP (k)."


_COMMENT: Final = "Leave it out. A comment is written -- text, or /* text */."
_ALIKE: Final = "Write CREATE TABLE x AS SELECT k, a FROM t WHERE FALSE; a key is declared by naming the columns."
_INDEX: Final = "Leave it out: a PRIMARY KEY is looked up. Write CREATE TABLE x (k VARCHAR PRIMARY KEY, a INT)."
_AS_OF: Final = (
    "The table as it was at the time of each row: write SELECT s.k, t.a FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts"
    " ON s.k = t.k."
)
_HISTORY: Final = (
    "Rows with their periods are db.table('t').history() in Python. At one instant, write SELECT k, a FROM t AT"
    " TIMESTAMP '2024-01-01'; the changes as a stream are SELECT k, a FROM ISTREAM(t)."
)
_UPSERT: Final = "Write INSERT INTO t VALUES ('x', 1) ON CONFLICT DO UPDATE SET a = excluded.a."
_MERGE_ALL: Final = (
    "Name the columns: MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET a = u.a WHEN NOT MATCHED THEN"
    " INSERT VALUES (u.k, u.a)."
)
_ARRAY: Final = "Write ARRAY[1, 2, 3], as in SELECT ARRAY[a, b] AS ab FROM s."


def _write_distance(tokens: Sequence[Token]) -> str:
    """`WITHIN 10 SECONDS`, or `WITHIN (10 SECONDS, …)` of ksqlDB, as a condition of the join."""
    number, unit = tokens[1:3] if tokens[1].keyword != "(" else tokens[2:4]
    distance = f"INTERVAL '{number} {unit.value.lower()}'"
    return (
        "Write the distance as a condition: SELECT x.k, y.a FROM s x JOIN s y ON x.k = y.k AND y.ts BETWEEN"
        f" x.ts - {distance} AND x.ts + {distance}."
    )


def _write_watermark(tokens: Sequence[Token]) -> str:
    """`WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`: the time column, and how late rows may be."""
    column = tokens[2].value
    within = ""
    after = [token.keyword for token in tokens[:10]]
    if "INTERVAL" in after:
        at = after.index("INTERVAL") + 1
        words = [token.value for token in tokens[at : at + 2] if token.value and token.keyword not in (")", ",")]
        within = f" WITHIN {_plural(words)}"
    declared = f"CREATE STREAM x (k VARCHAR, {column} TIMESTAMP) SOURCE file('data.csv')"
    return f"Write {declared} ORDERED BY {column}{within}."


def _write_window(tokens: Sequence[Token]) -> str:
    """`WINDOW HOPPING (SIZE 10 MINUTES, ADVANCE BY 1 MINUTE)` as a window of the stream."""
    words = [token.keyword or token.value for token in tokens[:14]]
    kind = words[1]

    def after(*names: str) -> str | None:
        at = next((at for at in range(len(words)) if tuple(words[at : at + len(names)]) == names), None)
        return None if at is None else " ".join(words[at + len(names) : at + len(names) + 2])

    if kind == "SESSION":
        window = f"SESSION {after('(') or '5 MINUTES'}"
    else:
        size = after("SIZE") or "10 MINUTES"
        window = f"RANGE {size} SLIDE {after('ADVANCE', 'BY') or size}"
    return f"Write the window right after its stream: FROM s WINDOW({window})."


def _plural(words: list[str]) -> str:
    """'5' SECOND, or '5 seconds' in one text."""
    text = " ".join(words).upper() if len(words) > 1 else "".join(words).upper()
    return text if text.endswith("S") or text.startswith("1 ") else f"{text}S"


CLAUSES: Final[dict[str, Hint]] = {
    # declarations
    "WATERMARK FOR": _write_watermark,
    "WITH ( <text>": _SOURCE,
    "WITH ( KAFKA_TOPIC": "Write SOURCE kafka('broker:9092', topic => 'name') ORDERED BY kafka_timestamp.",
    "WITH ( VALUE_FORMAT": "Write SOURCE kafka('broker:9092', topic => 'name') ORDERED BY kafka_timestamp.",
    "WITH ( CONNECTOR": _SOURCE,
    "WITH ( <name> = <text>": _SOURCE,
    "FROM KAFKA": _SOURCE,
    "FORMAT PLAIN": _SOURCE,
    "FORMAT JSON": "Results are Arrow, pandas or Polars in Python, and files by CREATE SINK.",
    "TBLPROPERTIES (": "Leave it out. Statistics for the planner are WITH (rate = 5000, distinct(k) = 100).",
    "OPTIONS (": _SOURCE,
    "USING DELTA": _STORED,
    "USING PARQUET": _STORED,
    "USING ICEBERG": _STORED,
    "USING CSV": _STORED,
    "USING JSON": _STORED,
    "STORED AS": _STORED,
    "ROW FORMAT": _STORED,
    "LOCATION <text>": "Write SOURCE file({1}).",
    "ENGINE =": _STORED,
    "PARTITIONED BY": _PARTITIONS,
    "PARTITION BY RANGE": _PARTITIONS,
    "PARTITION BY LIST": _PARTITIONS,
    "PARTITION BY HASH": _PARTITIONS,
    "CLUSTERED BY": _PARTITIONS,
    "CLUSTER BY": _PARTITIONS,
    "DISTRIBUTE BY": _PARTITIONS,
    "DISTRIBUTED BY": _PARTITIONS,
    "SORT BY": "Write ORDER BY a LIMIT 10: the first ten rows at every instant.",
    "NOT ENFORCED": (
        "Leave it out: a PRIMARY KEY holds at every instant. Write CREATE TABLE x (k VARCHAR PRIMARY KEY, a INT)."
    ),
    "COMMENT <text>": _COMMENT,
    "COMMENT =": _COMMENT,
    "LIKE <name>": _ALIKE,
    "( LIKE <name>": _ALIKE,
    "KEY (": _INDEX,
    "INDEX (": _INDEX,
    "INDEX <name> (": _INDEX,
    "AUTO_INCREMENT": "Write the number in INSERT.",
    "AUTOINCREMENT": "Write the number in INSERT.",
    "IDENTITY (": "Write the number in INSERT.",
    # FROM
    "LATERAL VIEW": _UNNEST,
    "CROSS APPLY": _LATERAL,
    "OUTER APPLY": "Join the rows: SELECT s.k, t.a FROM s LEFT JOIN t ON s.k = t.k.",
    "ARRAY JOIN": _UNNEST,
    "PIVOT (": PIVOT,
    "UNPIVOT (": UNPIVOT,
    "TABLESAMPLE <name>": _SAMPLE,
    "TABLESAMPLE (": _SAMPLE,
    "TABLESAMPLE <number>": _SAMPLE,
    "SAMPLE <number>": _SAMPLE,
    "SAMPLE (": _SAMPLE,
    "USING SAMPLE": _SAMPLE,
    "WITH ( NOLOCK": _LOCKS,
    "VERSION AS OF": _PAST,
    "TIMESTAMP AS OF": _PAST,
    "AS OF TIMESTAMP": _PAST,
    "AS OF SYSTEM TIME": _PAST,
    "AS OF <text>": _PAST,
    "SYSTEM_TIME AS OF PROCTIME": _AS_OF,
    "SYSTEM_TIME BETWEEN": _HISTORY,
    "SYSTEM_TIME FROM": _HISTORY,
    "SYSTEM_TIME ALL": _HISTORY,
    "SYSTEM_TIME CONTAINED": _HISTORY,
    "WITHIN <number> <name> ON": _write_distance,
    "WITHIN ( <number>": _write_distance,
    "INFORMATION_SCHEMA . <name>": CATALOGUE,
    "PG_CATALOG . <name>": CATALOGUE,
    "SYS . OBJECTS": CATALOGUE,
    "WINDOW TUMBLING (": _write_window,
    "WINDOW HOPPING (": _write_window,
    "WINDOW SESSION (": _write_window,
    "generate_series (": (
        "Let a source make rows: CREATE STREAM x (value BIGINT, ts TIMESTAMP) SOURCE rate(total => 10, pace =>"
        " false) ORDERED BY ts."
    ),
    "range ( <number>": (
        "Let a source make rows: CREATE STREAM x (value BIGINT, ts TIMESTAMP) SOURCE rate(total => 10, pace =>"
        " false) ORDERED BY ts."
    ),
    # SELECT
    "STREAM * FROM": "Leave the word out: a query over a stream is continuous. Write SELECT * FROM s.",
    "ORDER BY ALL": "Name the columns: SELECT k, a FROM t ORDER BY k, a.",
    "TOP <number>": _TIES,
    "TOP ( <number>": _TIES.replace("{1}", "{2}"),
    "DISTINCT ON": _LATEST,
    "INTO <name>": _INTO,
    "INTO OUTFILE": "Write CREATE SINK x INTO parquet('directory') AS SELECT k, a FROM s.",
    "WITH RECURSIVE": _RECURSION,
    "START WITH": _RECURSION,
    "CONNECT BY": _RECURSION,
    "PREWHERE": "Write WHERE.",
    "WITH ROLLUP": _ROLLUP,
    "WITH CUBE": _ROLLUP.replace("ROLLUP", "CUBE"),
    "OFFSET <number>": _NEXT_PAGE,
    "LIMIT <number> ,": _NEXT_PAGE,
    "FOR UPDATE": _LOCKS,
    "FOR SHARE": _LOCKS,
    "FOR XML": "Results are Arrow, pandas or Polars in Python, and files by CREATE SINK.",
    "FOR JSON": "Results are Arrow, pandas or Polars in Python, and files by CREATE SINK.",
    "OPTION (": "Leave it out. EXPLAIN WHY shows the plans that were rejected.",
    "SETTINGS <name>": "Leave it out. EXPLAIN WHY shows the plans that were rejected.",
    "EMIT CHANGES": _CHANGES,
    "EMIT FINAL": _FINISHED,
    "EMIT ON": _FINISHED,
    "EMIT AFTER": _FINISHED,
    "ON DUPLICATE KEY": _UPSERT,
    "AS <name> ON DUPLICATE": _UPSERT,
    "UPDATE SET *": _MERGE_ALL,
    "UPDATE *": _MERGE_ALL,
    "INSERT *": _MERGE_ALL,
    "INSERT ROW": _MERGE_ALL,
    # expressions
    "SELECT [ <number>": _ARRAY,
    "SELECT [ <text>": _ARRAY,
    "( [ <number>": _ARRAY,
    "( [ <text>": _ARRAY,
    ", [ <number>": _ARRAY,
    ", [ <text>": _ARRAY,
    "= [ <number>": _ARRAY,
    "= [ <text>": _ARRAY,
    "IN [ <number>": "Write SELECT k FROM s WHERE a IN (1, 2, 3).",
    "IN [ <text>": "Write SELECT a FROM s WHERE k IN ('x', 'y').",
    "( + )": "Write an outer join: SELECT s.k, t.a FROM s LEFT JOIN t ON s.k = t.k.",
    "REGEXP <text>": _REGEXP,
    "RLIKE <text>": _REGEXP,
    "GLOB <text>": "Write SELECT k FROM s WHERE k LIKE 'x%'.",
    "DIV <name>": "Write SELECT div(a, b) AS q FROM s.",
    "DIV <number>": "Write SELECT div(a, 2) AS q FROM s.",
    "MOD <name>": "Write SELECT a % b AS r FROM s.",
    "MOD <number>": "Write SELECT a % 2 AS r FROM s.",
    "<= >": "Write a IS NOT DISTINCT FROM b.",
    "= *": "Write an outer join: SELECT s.k, t.a FROM s LEFT JOIN t ON s.k = t.k.",
    "SAFE_CAST ( <name> AS": "Write CAST(k AS INT): a text that is no number is NULL.",
    ": <name>": "Write doc->>'name' for a field of a JSON text, and x::INT for a cast.",
    ":": "There are no parameters: write the value itself.",
    "@": "There are no variables: write the value itself.",
    "?": "There are no parameters: write the value itself.",
    "$": "There are no parameters: write the value itself.",
    "NEXT VALUE": "Write the number in INSERT.",
    "PRIOR <name>": _RECURSION,
    "#": "A comment is written -- text, or /* text */.",
    "[ <name> ]": 'Quote names with double quotes: "{1}".',
    "& &": "Write AND.",
}
