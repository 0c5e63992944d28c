"""Statements of other dialects, by their first words. A hint ends with the statement to write, if there is one."""

from __future__ import annotations

from typing import Final

from strandline.sql.dialects.clauses import PIVOT, UNPIVOT

_ALONE: Final = "Leave it out: a statement takes effect at one instant, as a whole or not at all."
_MAINTAINED: Final = "Leave it out: there is nothing to maintain."
_ONE_DATABASE: Final = "Leave it out: names have one part, and a database is what a script or a connection declares."
_STATISTICS: Final = (
    "Leave it out: statistics are measured, or declared by CREATE STREAM … WITH (rate = 5000, distinct(k) = 100)."
)
_ALLOW: Final = "Confine what statements may reach when you start: strandline run --allow dir:/data."
_SCRIPT: Final = "Write the statements in a script, or call db.sql() from Python with the values in the text."
_FUNCTION: Final = "Register a Python function: db.function('vat', body, arguments=['DOUBLE'], returns='DOUBLE')."
_FOLLOW: Final = (
    "A SELECT follows its streams by itself. Write SELECT k, MAX(a) AS a FROM s WINDOW(RANGE 1 HOUR) GROUP BY k."
)
_STREAM: Final = (
    "Write CREATE STREAM x (k VARCHAR, a INT, ts TIMESTAMP) SOURCE file('data.csv') ORDERED BY ts WITHIN 5 SECONDS."
    " Other sources are kafka('broker:9092', topic => 'x'), socket, http and rate."
)
_TABLE_FILE: Final = "Write CREATE TABLE x (k VARCHAR, a INT) SOURCE file('data.csv') CONSTANT."
_TABLE: Final = "Write CREATE TABLE x (k VARCHAR PRIMARY KEY, a INT)."
_VIEW: Final = "Write CREATE MATERIALIZED VIEW x AS SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY k."
_SINK: Final = "Write CREATE SINK x INTO parquet('directory') AS SELECT k, a FROM s."
_UPSERT: Final = "Write INSERT INTO t VALUES ('x', 1) ON CONFLICT DO UPDATE SET a = excluded.a."
_KEY: Final = "Leave it out: a PRIMARY KEY is looked up. Write CREATE TABLE x (k VARCHAR PRIMARY KEY, a INT)."
_REPLACE: Final = "Create it again. Write CREATE OR REPLACE TABLE t (k VARCHAR PRIMARY KEY, a INT, c INT)."
_OPTIONS: Final = (
    "Give it as an option of the command line or of sl.connect(); SET CAPACITY, SET PIPELINE and SET SHEDDING are the"
    " settings of SQL."
)
_QUERIES: Final = "Write SHOW QUERIES."
_STOP: Final = "Stop a query by .stop q1 in the shell, by q.stop() in Python, or a sink by DROP SINK."
_NO_CURSOR: Final = "Leave it out: results arrive by themselves. Write SELECT k, a FROM s."
_EXPLAIN: Final = "Write EXPLAIN SELECT k, a FROM s; of a running query, EXPLAIN ANALYZE q1 has measured figures."
_DESCRIBE: Final = "Write DESCRIBE s."
_EXPLAIN_CHANGE: Final = "A change of a table has no plan, only its query. Write EXPLAIN SELECT k, a FROM t."
_IGNORE: Final = "Write INSERT INTO t VALUES ('x', 1) ON CONFLICT DO NOTHING."
_UTC: Final = (
    "All times are in UTC. For the local time of a zone, write ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'."
)
_SUMMARY: Final = (
    "strandline inspect FILE describes the columns of a file. Of a stream, write SELECT COUNT(*) AS n, MIN(a) AS least,"
    " MAX(a) AS greatest, COUNT(DISTINCT k) AS ks FROM s WINDOW(RANGE 1 HOUR)."
)
_DROP: Final = "Leave it out: there is none to be dropped."

STATEMENTS: Final[dict[str, str]] = {
    # transactions, sessions
    "BEGIN": _ALONE,
    "START TRANSACTION": _ALONE,
    "COMMIT": _ALONE,
    "ROLLBACK": (
        "A statement that fails changes nothing. Change it back by UPDATE, or read the past: SELECT k, a FROM"
        " t AT TIMESTAMP '2024-01-01'."
    ),
    "SAVEPOINT": _ALONE,
    "RELEASE": _ALONE,
    "END": _ALONE,
    "LOCK": _ALONE,
    "USE": _ONE_DATABASE,
    "ATTACH": _ONE_DATABASE,
    "DETACH": _ONE_DATABASE,
    "RESET": _OPTIONS,
    "SET <text>": _OPTIONS,
    "SET <name> =": _OPTIONS,
    "SET <name> TO": _OPTIONS,
    "SET <name> .": _OPTIONS,
    "SET TIME ZONE": _UTC,
    "SET TIMEZONE": _UTC,
    "SET LOCAL": _OPTIONS,
    "SET SESSION": _OPTIONS,
    "GRANT": _ALLOW,
    "REVOKE": _ALLOW,
    "DENY": _ALLOW,
    # procedures
    "CALL": _SCRIPT,
    "EXEC": _SCRIPT,
    "EXECUTE": _SCRIPT,
    "PREPARE": _SCRIPT,
    "DEALLOCATE": _SCRIPT,
    "DECLARE": _SCRIPT,
    "DO": _SCRIPT,
    "WAITFOR": "Leave it out: a query runs until its sources end; q.await_end(10) waits in Python.",
    "PRINT": _SCRIPT,
    "LISTEN": _FOLLOW,
    "NOTIFY": "Insert a row into a table that a query reads. Write INSERT INTO t VALUES ('x', 1).",
    "UNLISTEN": _FOLLOW,
    "FETCH": _NO_CURSOR,
    "CLOSE": _NO_CURSOR,
    "MOVE": _NO_CURSOR,
    "KILL": _STOP,
    "TERMINATE": _STOP,
    "STOP": _STOP,
    "PAUSE": _STOP,
    "RESUME": "Start it again with the same checkpoint: it goes on where it stopped.",
    # maintenance
    "VACUUM": _MAINTAINED,
    "OPTIMIZE": _MAINTAINED,
    "CHECKPOINT": _MAINTAINED,
    "REINDEX": _MAINTAINED,
    "CLUSTER": _MAINTAINED,
    "MSCK": _MAINTAINED,
    "FLUSH": _MAINTAINED,
    "ANALYZE": _STATISTICS,
    "COMMENT ON": "Write a comment: -- text, or /* text */.",
    "PRAGMA": _DESCRIBE,
    "INSTALL": "Leave it out: connectors are Python packages, pip install 'strandline[kafka]'.",
    "LOAD": "Read the file as a stream or a table. " + _TABLE_FILE,
    "ADD JAR": "Leave it out: connectors are Python packages, pip install 'strandline[kafka]'.",
    "IMPORT": "Read the file as a stream or a table. " + _TABLE_FILE,
    "COPY (": _SINK,
    "COPY": "Read the file as a table. " + _TABLE_FILE,
    "UNLOAD": _SINK,
    "EXPORT": _SINK,
    "PUT": _TABLE_FILE,
    # views and subscriptions
    "REFRESH": "Leave it out: a materialized view follows its streams. Write SELECT * FROM v.",
    "CACHE": _VIEW,
    "UNCACHE": "Write DROP MATERIALIZED VIEW v.",
    "SUBSCRIBE": _FOLLOW,
    "TAIL": _FOLLOW,
    # CREATE
    "CREATE SOURCE": _STREAM,
    "CREATE PIPELINE": "Two statements are a pipeline: a stream and a sink. " + _SINK,
    "CREATE CONNECTOR": _STREAM,
    "CREATE CONNECTION": "Name the servers in the source. " + _STREAM,
    "CREATE SECRET": "Refer to it where it is used: token => secret('env:NAME') or secret('file:PATH').",
    "CREATE CATALOG": _ONE_DATABASE,
    "CREATE DATABASE": _ONE_DATABASE,
    "CREATE SCHEMA": _ONE_DATABASE,
    "CREATE KEYSPACE": _ONE_DATABASE,
    "CREATE TYPE": (
        "Declare columns of the built-in types: BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE, TIMESTAMP."
    ),
    "CREATE DOMAIN": (
        "Declare columns of the built-in types: BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE, TIMESTAMP."
    ),
    "CREATE EXTENSION": "Leave it out: functions are built in, or registered by db.function() in Python.",
    "CREATE SEQUENCE": "Write the numbers in INSERT, or let rate() make them: its column value counts from 0.",
    "CREATE TRIGGER": (
        "A continuous query reacts to changes. Write CREATE SINK x INTO parquet('directory') AS SELECT k, a"
        " FROM ISTREAM(t)."
    ),
    "CREATE RULE": (
        "A continuous query reacts to changes. Write CREATE SINK x INTO parquet('directory') AS SELECT k, a"
        " FROM ISTREAM(t)."
    ),
    "CREATE TASK": _VIEW,
    "CREATE EVENT": _VIEW,
    "CREATE PROCEDURE": _SCRIPT,
    "CREATE PROC": _SCRIPT,
    "CREATE FUNCTION": _FUNCTION,
    "CREATE TEMPORARY FUNCTION": _FUNCTION,
    "CREATE TEMP FUNCTION": _FUNCTION,
    "CREATE AGGREGATE": "Register it from Python: db.aggregate('rms', …).",
    "CREATE MACRO": "Write CREATE VIEW x AS SELECT k, a + b AS c FROM s.",
    "CREATE INDEX": _KEY,
    "CREATE UNIQUE": _KEY,
    "CREATE CLUSTERED": _KEY,
    "CREATE NONCLUSTERED": _KEY,
    "CREATE USER": _ALLOW,
    "CREATE ROLE": _ALLOW,
    "CREATE POLICY": _ALLOW,
    "CREATE TEMPORARY VIEW": "Write CREATE VIEW x AS SELECT k, a FROM s.",
    "CREATE TEMP VIEW": "Write CREATE VIEW x AS SELECT k, a FROM s.",
    "CREATE TEMPORARY": "Leave the word out: without a checkpoint nothing is kept. " + _TABLE,
    "CREATE TEMP": "Leave the word out: without a checkpoint nothing is kept. " + _TABLE,
    "CREATE UNLOGGED": "Leave the word out: without a checkpoint nothing is kept. " + _TABLE,
    "CREATE GLOBAL": _TABLE,
    "CREATE EXTERNAL": _TABLE_FILE,
    "CREATE FOREIGN": _TABLE_FILE,
    "CREATE VIRTUAL": _TABLE_FILE,
    "CREATE STAGE": _TABLE_FILE,
    "CREATE DYNAMIC": _VIEW,
    "CREATE LIVE": _VIEW,
    "CREATE STREAMING": _VIEW,
    "CREATE CONTINUOUS": _VIEW,
    "CREATE DICTIONARY": _TABLE_FILE,
    # ALTER, DROP
    "ALTER": _REPLACE,
    "RENAME": _REPLACE,
    "DROP INDEX": _DROP,
    "DROP FUNCTION": _DROP,
    "DROP DATABASE": _ONE_DATABASE,
    "DROP SCHEMA": _ONE_DATABASE,
    "DROP TYPE": _DROP,
    "DROP EXTENSION": _DROP,
    "DROP SOURCE": "A source is a stream. Write DROP STREAM IF EXISTS x.",
    "DROP CONNECTOR": "A source is a stream. Write DROP STREAM IF EXISTS x.",
    "DROP USER": _ALLOW,
    "DROP ROLE": _ALLOW,
    # SHOW, EXPLAIN
    "SHOW CREATE <name> <name>": "Write DESCRIBE {3}.",
    "SHOW CREATE": _DESCRIBE,
    "SHOW DATABASES": _ONE_DATABASE + " Write SHOW STREAMS.",
    "SHOW SCHEMAS": _ONE_DATABASE + " Write SHOW STREAMS.",
    "SHOW CATALOGS": _ONE_DATABASE + " Write SHOW STREAMS.",
    "SHOW SOURCES": "Write SHOW STREAMS.",
    "SHOW TOPICS": "Write SHOW STREAMS.",
    "SHOW CONNECTORS": "Write SHOW STREAMS.",
    "SHOW INDEX": _DESCRIBE,
    "SHOW INDEXES": _DESCRIBE,
    "SHOW PARTITIONS": _DESCRIBE,
    "SHOW PROCESSLIST": _QUERIES,
    "SHOW FULL PROCESSLIST": _QUERIES,
    "SHOW JOBS": _QUERIES,
    "SHOW STATUS": "Write SELECT * FROM sys.queries.",
    "SHOW VARIABLES": _OPTIONS,
    "SHOW ALL": _OPTIONS,
    "SHOW PROPERTIES": _OPTIONS,
    "SHOW WARNINGS": "Errors and notices are shown where they occur.",
    "SHOW TBLPROPERTIES": _DESCRIBE,
    "SHOW TABLES FROM": _ONE_DATABASE + " Write SHOW TABLES.",
    "SHOW TABLES IN": _ONE_DATABASE + " Write SHOW TABLES.",
    "SHOW TABLES LIKE": "Write SELECT name FROM sys.tables WHERE name LIKE 'x%'.",
    "SHOW STREAMS LIKE": "Write SHOW STREAMS.",
    "LIST": "Write SHOW STREAMS.",
    "SUMMARIZE": _SUMMARY,
    "PIVOT": PIVOT,
    "UNPIVOT": UNPIVOT,
    ". <name>": "Commands that begin with a dot are of the shell. Write SHOW STREAMS.",
    "EXPLAIN INSERT": _EXPLAIN_CHANGE,
    "EXPLAIN UPDATE": _EXPLAIN_CHANGE,
    "EXPLAIN DELETE": _EXPLAIN_CHANGE,
    "EXPLAIN MERGE": _EXPLAIN_CHANGE,
    "EXPLAIN ( ANALYZE": _EXPLAIN,
    "EXPLAIN ( VERBOSE": _EXPLAIN,
    "EXPLAIN ( BUFFERS": _EXPLAIN,
    "EXPLAIN ( COSTS": _EXPLAIN,
    "EXPLAIN ( FORMAT": _EXPLAIN,
    "EXPLAIN FORMAT": _EXPLAIN,
    "EXPLAIN ESTIMATED_COST": _EXPLAIN,
    "EXPLAIN CHANGELOG_MODE": _EXPLAIN,
    # INSERT
    "INSERT OVERWRITE": "Write TRUNCATE TABLE t, then INSERT INTO t VALUES ('x', 1).",
    "INSERT OR IGNORE": _IGNORE,
    "INSERT OR": _UPSERT,
    "INSERT IGNORE": _IGNORE,
    "INSERT INTO <name> BY NAME": "Name the columns: INSERT INTO t (k, a) SELECT k, a FROM u.",
    "INSERT INTO <name> SET": "Write INSERT INTO t (k, a) VALUES ('x', 1).",
    "REPLACE INTO": _UPSERT,
    "UPSERT INTO": _UPSERT,
    "UPSERT": _UPSERT,
}
