"""Functions, columns, types and characters of other dialects."""

from __future__ import annotations

from typing import Final

CATALOGUE: Final = (
    "SHOW TABLES and SHOW STREAMS list what there is, DESCRIBE its columns. As a query, write SELECT name, rows FROM"
    " sys.tables."
)
_CLOCK: Final = "Write now(); in a continuous query, WHERE ts > now() - INTERVAL '1 hour' is a window of an hour."
_RANDOM: Final = "Rows are the same in every run; take the column random of SOURCE rate(), or md5(k)."
_PERCENTILE: Final = "It is exact here: PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a)."
_DISTINCT: Final = "It is exact here: COUNT(DISTINCT k)."
_FORMAT: Final = "Write to_char(ts, 'YYYY-MM-DD HH24:MI:SS')."
_BIN: Final = (
    "Write date_bin(INTERVAL '10 minutes', ts, TIMESTAMP '2024-01-01'), or read the stream through"
    " WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES)."
)
_JSON: Final = "Write doc->>'name', or doc->'a'->>'b' for what is nested."
_SHIFT: Final = "Add an interval: ts + INTERVAL '1 day'."
_DISTANCE: Final = "Subtract: epoch(later) - epoch(earlier) is in seconds."
_LAST: Final = "Write LAST(a), or LAST(a ORDER BY ts)."
_COALESCE: Final = "Write coalesce(a, 0)."
_PARSE: Final = "Write CAST(k AS TIMESTAMP), or k::DATE."
_TUMBLE: Final = "In GROUP BY: TUMBLE(ts, INTERVAL '5 minutes')."
_NO_SESSION: Final = "Leave it out: there are no users and no sessions."

# Functions that do not exist here, in lower case. One that is added to the language is not looked up any more.
FUNCTIONS: Final[dict[str, str]] = {
    "mz_now": _CLOCK,
    "getdate": _CLOCK,
    "getutcdate": _CLOCK,
    "sysdate": _CLOCK,
    "sysdatetime": _CLOCK,
    "systimestamp": _CLOCK,
    "unix_timestamp": "Write epoch(ts).",
    "to_unixtime": "Write epoch(ts).",
    "unixepoch": "Write epoch(ts).",
    "from_unixtime": "Write to_timestamp(a).",
    "to_timestamp_ltz": "Write to_timestamp(a).",
    "timestamp_seconds": "Write to_timestamp(a).",
    "julianday": _DISTANCE,
    "proctime": "Declare the stream without ORDERED BY: its rows have the time of their arrival.",
    "current_watermark": "SHOW QUERIES has the watermark of each query as its progress.",
    "strftime": _FORMAT,
    "date_format": _FORMAT,
    "format_timestamp": _FORMAT,
    "to_varchar": _FORMAT,
    "formatdatetime": _FORMAT,
    "str_to_date": _PARSE,
    "to_date": _PARSE,
    "parse_timestamp": _PARSE,
    "strptime": _PARSE,
    "timestamp_trunc": "Write date_trunc('hour', ts).",
    "datetime_trunc": "Write date_trunc('hour', ts).",
    "tostartofhour": "Write date_trunc('hour', ts).",
    "time_bucket": _BIN,
    "tumble_start": _BIN,
    "tumble_end": _BIN,
    "hop_start": _BIN,
    "hop_end": _BIN,
    "dateadd": _SHIFT,
    "date_sub": "Subtract an interval: ts - INTERVAL '1 day'.",
    "adddate": _SHIFT,
    "timestampadd": _SHIFT,
    "timestamp_add": _SHIFT,
    "add_months": "Months vary in length; add days: ts + INTERVAL '30 days'.",
    "datediff": _DISTANCE,
    "timestamp_diff": _DISTANCE,
    "months_between": _DISTANCE,
    "age": _DISTANCE,
    "isnull": "Write coalesce(a, 0), or a IS NULL.",
    "zeroifnull": _COALESCE,
    "nvl2": "Write CASE WHEN a IS NOT NULL THEN b ELSE 0 END.",
    "decode": "Write CASE a WHEN 1 THEN 'one' ELSE 'other' END.",
    "iif": "Write CASE WHEN a > b THEN a ELSE b END.",
    "iff": "Write CASE WHEN a > b THEN a ELSE b END.",
    "if": "Write CASE WHEN a > b THEN a ELSE b END.",
    "choose": "Write CASE a WHEN 1 THEN 'one' ELSE 'other' END.",
    "safe_divide": "Write a / b: a quotient by zero is NULL.",
    "div0": "Write coalesce(a / b, 0): a quotient by zero is NULL.",
    "safe_cast": "Write CAST(k AS INT): a text that is no number is NULL.",
    "try_cast": "Write CAST(k AS INT): a text that is no number is NULL.",
    "try_to_number": "Write CAST(k AS INT): a text that is no number is NULL.",
    "to_number": "Write CAST(k AS DECIMAL(18, 2)).",
    "convert": "Write CAST(k AS INT).",
    "countif": "Write COUNT(*) FILTER (WHERE a > 1).",
    "count_if": "Write COUNT(*) FILTER (WHERE a > 1).",
    "sumif": "Write SUM(a) FILTER (WHERE a > 1).",
    "total": "Write coalesce(SUM(a), 0).",
    "approx_count_distinct": _DISTINCT,
    "approx_distinct": _DISTINCT,
    "ndv": _DISTINCT,
    "uniq": _DISTINCT,
    "hll": _DISTINCT,
    "percentile_approx": _PERCENTILE,
    "approx_percentile": _PERCENTILE,
    "approx_quantile": _PERCENTILE,
    "approx_quantiles": _PERCENTILE,
    "percentile": "Write PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a).",
    "quantile": "Write PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a).",
    "quantile_cont": "Write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a).",
    "quantile_disc": "Write PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a).",
    "latest_by_offset": _LAST,
    "last_value": _LAST,
    "argmax": "Write LAST(k ORDER BY a).",
    "arg_max": "Write LAST(k ORDER BY a).",
    "max_by": "Write LAST(k ORDER BY a).",
    "argmin": "Write FIRST(k ORDER BY a).",
    "arg_min": "Write FIRST(k ORDER BY a).",
    "min_by": "Write FIRST(k ORDER BY a).",
    "earliest_by_offset": "Write FIRST(a), or FIRST(a ORDER BY ts).",
    "any_value": "Write MIN(a): it does not depend on the order of rows.",
    "group_concat": "Write STRING_AGG(k, ', ' ORDER BY k).",
    "collect_list": "Write ARRAY_AGG(k ORDER BY ts).",
    "collect_set": "Write ARRAY_AGG(DISTINCT k).",
    "topk": "Write ORDER BY a DESC LIMIT 10 at the end of the query.",
    "rand": _RANDOM,
    "random": _RANDOM,
    "uuid": _RANDOM,
    "newid": _RANDOM,
    "gen_random_uuid": _RANDOM,
    "generate_uuid": _RANDOM,
    "row_number": "Write RANK() OVER (PARTITION BY k ORDER BY a DESC).",
    "explode": "Write it in FROM: FROM s, unnest(string_to_array(k, ' ')) AS x.",
    "flatten": "Write it in FROM: FROM s, unnest(string_to_array(k, ' ')) AS x.",
    "substring_index": "Write split_part(k, '/', 1).",
    "locate": "Write strpos(k, 'x').",
    "charindex": "Write strpos(k, 'x').",
    "regexp_extract": "Write substring(k FROM 'x(.*)').",
    "format": "Write concat(k, ' ', a).",
    "printf": "Write concat(k, ' ', a).",
    "json_extract_path_text": _JSON,
    "parse_json": _JSON,
    "struct": "Select the fields as columns of their own.",
    "named_struct": "Select the fields as columns of their own.",
    "map": "Select the entries as columns of their own.",
    "version": "Write strandline --version on the command line.",
    "current_database": _NO_SESSION,
    "current_schema": _NO_SESSION,
    "last_insert_id": "INSERT says which rows it has inserted.",
    "nextval": "Write the number in INSERT.",
    "sleep": "Leave it out: a query runs until its sources end.",
    "pg_sleep": "Leave it out: a query runs until its sources end.",
    "sha2": "Write md5(k).",
    "hash": "Write md5(k).",
    "columns": "Name the columns, or leave some out: SELECT * EXCLUDE (a) FROM s.",
    "tumbling": _TUMBLE,
    "tumblingwindow": _TUMBLE,
    "hoppingwindow": _TUMBLE.replace("TUMBLE(ts,", "HOP(ts, INTERVAL '1 minute',"),
}

# Words that other dialects read like columns, in lower case: the feature and what to write.
COLUMNS: Final[dict[str, str]] = {
    "rownum": "Write SELECT k, a FROM s LIMIT 5.",
    "rowid": "Rows have no addresses; declare a PRIMARY KEY: CREATE TABLE x (k VARCHAR PRIMARY KEY, a INT).",
    "sysdate": _CLOCK,
    "systimestamp": _CLOCK,
    "rowtime": "Write the time column of the stream, as in SELECT k, ts FROM s.",
    "windowstart": "Write SELECT date_bin(INTERVAL '10 minutes', ts, TIMESTAMP '2024-01-01') AS start FROM s.",
    "windowend": (
        "Write SELECT date_bin(INTERVAL '10 minutes', ts, TIMESTAMP '2024-01-01') + INTERVAL '10 minutes' AS"
        " stop FROM s."
    ),
    "stream": "Leave the word out: a query over a stream is continuous. Write SELECT * FROM s.",
    "proctime": (
        "Write the time column of the stream: SELECT s.k, t.a FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k."
    ),
    "current_time": _CLOCK,
    "localtime": _CLOCK,
    "localtimestamp": _CLOCK,
    "current_user": _NO_SESSION,
    "session_user": _NO_SESSION,
    "current_schema": _NO_SESSION,
}

# Tables of system catalogues, in lower case.
RELATIONS: Final = dict.fromkeys(
    ("sqlite_master", "sqlite_schema", "pg_tables", "pg_class", "pg_stat_activity", "duckdb_tables", "all_tables"),
    CATALOGUE,
)

# Types, in upper case.
TYPES: Final[dict[str, str]] = {
    "TINYINT": "Write INT.",
    "SMALLINT": "Write INT.",
    "MEDIUMINT": "Write INT.",
    "INT2": "Write INT.",
    "INT4": "Write INT.",
    "INT8": "Write BIGINT.",
    "INT64": "Write BIGINT.",
    "LONG": "Write BIGINT.",
    "HUGEINT": "Write DECIMAL(38, 0).",
    "SERIAL": "Write INT, and the number in INSERT.",
    "BIGSERIAL": "Write BIGINT, and the number in INSERT.",
    "NUMBER": "Write INT, BIGINT, DOUBLE or DECIMAL(18, 2).",
    "MONEY": "Write DECIMAL(18, 2).",
    "FLOAT4": "Write DOUBLE.",
    "FLOAT8": "Write DOUBLE.",
    "FLOAT64": "Write DOUBLE.",
    "CHAR": "Write VARCHAR.",
    "NCHAR": "Write VARCHAR.",
    "NVARCHAR": "Write VARCHAR.",
    "NVARCHAR2": "Write VARCHAR.",
    "VARCHAR2": "Write VARCHAR.",
    "CLOB": "Write VARCHAR.",
    "UUID": "Write VARCHAR.",
    "INET": "Write VARCHAR.",
    "ENUM": "Write VARCHAR.",
    "BYTEA": "Write VARCHAR, with the bytes as text.",
    "BYTES": "Write VARCHAR, with the bytes as text.",
    "BINARY": "Write VARCHAR, with the bytes as text.",
    "VARBINARY": "Write VARCHAR, with the bytes as text.",
    "BLOB": "Write VARCHAR, with the bytes as text.",
    "BIT": "Write BOOLEAN.",
    "VARIANT": "Write VARCHAR, and read it by doc->>'name'.",
    "DATETIME": "Write TIMESTAMP.",
    "DATETIME2": "Write TIMESTAMP.",
    "SMALLDATETIME": "Write TIMESTAMP.",
    "TIMESTAMPTZ": "Write TIMESTAMP, which is in UTC.",
    "TIMESTAMP_LTZ": "Write TIMESTAMP, which is in UTC.",
    "TIMESTAMP_NTZ": "Write TIMESTAMP, which is in UTC.",
    "TIME": "Write TIMESTAMP, or VARCHAR.",
    "INTERVAL": "Write BIGINT, and count microseconds or seconds.",
    "STRUCT": "Declare the fields as columns of their own.",
    "ROW": "Declare the fields as columns of their own.",
    "RECORD": "Declare the fields as columns of their own.",
    "MAP": "Declare the entries as columns of their own, or VARCHAR for a JSON text.",
    "ARRAY": "Declare VARCHAR, and split it by string_to_array(k, ' ').",
    "LIST": "Declare VARCHAR, and split it by string_to_array(k, ' ').",
}

# Characters that begin no token here.
CHARACTERS: Final[dict[str, str]] = {
    "“": "Use straight quotes: 'text', \"name\".",
    "”": "Use straight quotes: 'text', \"name\".",
    "‘": "Use straight quotes: 'text', \"name\".",
    "’": "Use straight quotes: 'text', \"name\".",
    "{": "A window is written WINDOW(RANGE 10 SECONDS) or [RANGE 10 SECONDS], and a sequence of events (as with"
    " MATCH_RECOGNIZE) by joins: a JOIN b ON b.k = a.k AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '10 seconds'.",
    "\\": "Write SHOW STREAMS, SHOW TABLES or DESCRIBE name; in the shell, .help lists commands.",
    "!": "Write NOT, or <> for not equal.",
}
