"""Whole queries against an independent judge: DuckDB answers the plain SQL over the window contents at every instant.

All times are whole seconds, so answers can change only at a whole second, one microsecond before it (slides) or one
after it (streams without a window): these instants are all compared. One DuckDB query asks about all of them at once:
`FROM instants i, LATERAL (query)`, where each stream with a window stands for its rows in the window at `i.t`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pytest

import strandline as sl
from strandline.core.temporal import FOREVER, SECOND
from strandline.database.database import Database

SECONDS = 100
BEGIN = datetime(2024, 1, 1)
BEGIN_US = int((BEGIN - datetime(1970, 1, 1)).total_seconds()) * SECOND
DISORDER = 6

STREAMS = {
    "trade": "sym VARCHAR, price DOUBLE, qty INT, fee DECIMAL(10,2), buy BOOLEAN, day DATE, ts TIMESTAMP",
    "quote": "sym VARCHAR, bid DOUBLE, ask DOUBLE, size BIGINT, ts TIMESTAMP",
    "news": "topic VARCHAR, sym VARCHAR, score INT, ts TIMESTAMP",
    "silence": "sym VARCHAR, price DOUBLE, ts TIMESTAMP",
    "stay": "sym VARCHAR, guests INT, ts TIMESTAMP, til TIMESTAMP",
}

# Where the two dialects differ, the second text is DuckDB's.
QUERIES: dict[str, str | tuple[str, str]] = {
    # filters and expressions
    "everything": "SELECT * FROM trade [RANGE 5 SECONDS]",
    "now": "SELECT sym, qty FROM trade",
    "arithmetic": "SELECT sym, price * qty AS value, qty + 1 AS more, fee * 2 AS fees FROM trade [RANGE 4 SECONDS]",
    "whole division": (
        "SELECT qty / 3 AS thirds, qty % 3 AS rest, -qty / 2 AS half FROM trade [RANGE 3 SECONDS]",
        "SELECT qty // 3, qty % 3, -(qty // 2) FROM trade [RANGE 3 SECONDS]",
    ),
    "case": """SELECT sym, CASE WHEN price > 50 THEN 'high' WHEN price > 20 THEN 'middle' ELSE 'low' END AS level
               FROM trade [RANGE 6 SECONDS] WHERE buy OR qty IS NULL""",
    "three values": "SELECT sym, qty FROM trade [RANGE 6 SECONDS] WHERE NOT (price > 50 AND qty < 5)",
    "not in": "SELECT sym FROM trade [RANGE 5 SECONDS] WHERE qty NOT IN (1, 2, 3)",
    "not in with null": "SELECT sym FROM trade [RANGE 5 SECONDS] WHERE qty NOT IN (1, NULL)",
    "between": "SELECT sym, day FROM trade [RANGE 5 SECONDS] WHERE day BETWEEN DATE '2024-01-02' AND DATE '2024-01-04'",
    "texts": """SELECT upper(sym) || '-' || length(sym) AS label, coalesce(sym, '?') AS known
                FROM trade [RANGE 5 SECONDS] WHERE sym LIKE 'a%' OR sym IS NULL""",
    "dates": "SELECT day + 1 AS tomorrow, year(day) AS y, nullif(qty, 3) AS q FROM trade [RANGE 3 SECONDS]",
    "mathematics": """SELECT sqrt(price) AS r, ln(price + 1) AS l, log10(price + 1) AS d, exp(qty) AS e,
                      sin(price) AS s, atan2(price, qty) AS a, power(qty, 2) AS p, degrees(price) AS g,
                      cbrt(price) AS c,
                      trunc(price) AS t, sign(price - 50) AS up, pi() AS pi FROM trade [RANGE 3 SECONDS]""",
    "bits": (
        "SELECT qty & 5 AS a, qty | 8 AS o, qty # 3 AS x, qty << 2 AS l, qty >> 1 AS r, ~qty AS n, gcd(qty, 12) AS g, "
        "lcm(qty, 4) AS m FROM trade [RANGE 3 SECONDS]",
        "SELECT qty & 5, qty | 8, xor(qty, 3), qty << 2, qty >> 1, ~qty, gcd(qty, 12), lcm(qty, 4) "
        "FROM trade [RANGE 3 SECONDS]",
    ),
    "parts of texts": """SELECT left(sym, 1) AS l, right(sym, 1) AS r, lpad(sym, 4, '*-') AS lp,
                         rpad(sym, 3, '.') AS rp, reverse(sym) AS b, repeat(sym, 2) AS t, strpos(sym, 'b') AS p,
                         position('b' IN sym) AS q,
                         split_part(sym || ',x', ',', 1) AS f, translate(sym, 'ab', 'xy') AS tr, ascii(sym) AS c,
                         chr(97 + qty) AS ch, md5(sym) AS h, concat_ws('-', sym, qty, buy) AS w,
                         trim(BOTH 'a' FROM sym) AS tm, substring(sym FROM 2 FOR 1) AS s, ends_with(sym, 'b') AS e,
                         contains(sym, 'a') AS k, starts_with(sym, 'a') AS z FROM trade [RANGE 3 SECONDS]""",
    "regular expressions": (
        "SELECT sym ~ '^a' AS a, regexp_replace(sym, '[ab]', '<\\&>', 'g') AS r, regexp_like(sym, 'B', 'i') AS i, "
        "substring(sym FROM '(a)b') AS m, regexp_count(sym, '.') AS n FROM trade [RANGE 3 SECONDS] WHERE sym !~ 'c'",
        "SELECT regexp_matches(sym, '^a'), regexp_replace(sym, '[ab]', '<\\0>', 'g'), regexp_matches(sym, 'B', 'i'), "
        "nullif(regexp_extract(sym, '(a)b', 1), ''), len(regexp_extract_all(sym, '.')) FROM trade [RANGE 3 SECONDS] "
        "WHERE NOT regexp_matches(sym, 'c')",
    ),
    "similar": "SELECT sym, sym SIMILAR TO 'a|b' AS s, sym LIKE 'a!b' ESCAPE '!' AS e FROM trade [RANGE 3 SECONDS]",
    "symmetric": (
        "SELECT sym, qty FROM trade [RANGE 4 SECONDS] WHERE qty BETWEEN SYMMETRIC 6 AND 2",
        "SELECT sym, qty FROM trade [RANGE 4 SECONDS] WHERE qty BETWEEN 2 AND 6",
    ),
    "parts of times": """SELECT EXTRACT(year FROM day) AS y, EXTRACT(dow FROM ts) AS w, EXTRACT(second FROM ts) AS s,
                         date_part('doy', day) AS d, EXTRACT(epoch FROM ts) AS e, week(day) AS k, quarter(day) AS q,
                         make_date(2024, qty, 1) AS m, date_trunc('decade', ts) AS t FROM trade [RANGE 2 SECONDS]
                         WHERE qty > 0""",
    # windows
    "slide": "SELECT sym, qty FROM trade WINDOW(RANGE 9 SECONDS SLIDE 3 SECONDS)",
    "slide beside the range": """SELECT sym, COUNT(*) AS n FROM trade WINDOW(RANGE 7 SECONDS SLIDE 3 SECONDS)
                                 GROUP BY sym""",
    "slide beyond the range": "SELECT sym, qty FROM trade WINDOW(RANGE 2 SECONDS SLIDE 5 SECONDS)",
    "tumbling": "SELECT sym, SUM(qty) AS total FROM trade WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) GROUP BY sym",
    # aggregates
    "count": "SELECT COUNT(*) AS n, COUNT(price) AS prices FROM trade [RANGE 5 SECONDS]",
    "every aggregate": """SELECT COUNT(*) AS n, SUM(qty) AS s, AVG(price) AS a, MIN(fee) AS lo, MAX(fee) AS hi,
                          SUM(fee) AS fees, MIN(sym) AS first, MAX(day) AS last, AVG(qty) AS m
                          FROM trade [RANGE 6 SECONDS]""",
    "count of now": "SELECT COUNT(*) AS n, MAX(price) AS top FROM trade",
    "grouped": """SELECT sym, COUNT(*) AS n, AVG(price) AS mean, MIN(price) AS lo, MAX(price) AS hi
                  FROM trade [RANGE 8 SECONDS] GROUP BY sym""",
    "two keys": "SELECT sym, buy, SUM(qty) AS q, MAX(ts) AS latest FROM trade [RANGE 12 SECONDS] GROUP BY sym, buy",
    "computed key": "SELECT qty % 3 AS k, COUNT(*) AS n FROM trade [RANGE 9 SECONDS] GROUP BY qty % 3",
    "having": """SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 SECONDS] GROUP BY sym
                 HAVING COUNT(*) > 2 AND SUM(qty) > 10""",
    "having alone": "SELECT MAX(price) AS top FROM trade [RANGE 4 SECONDS] HAVING COUNT(*) > 3",
    "expression of aggregates": """SELECT sym, MAX(price) - MIN(price) AS spread,
                                   CASE WHEN COUNT(*) > 1 THEN SUM(qty) END AS q
                                   FROM trade [RANGE 7 SECONDS] GROUP BY sym""",
    "big sums": "SELECT SUM(size) AS s, AVG(size) AS a FROM quote [RANGE 10 SECONDS]",
    "nothing": "SELECT COUNT(*) AS n, MAX(price) AS top FROM trade [RANGE 5 SECONDS] WHERE qty > 1000000",
    "distinct values": """SELECT sym, COUNT(*) AS n, COUNT(DISTINCT qty) AS kinds, SUM(DISTINCT qty) AS s,
                          AVG(DISTINCT price) AS a, COUNT(DISTINCT buy) AS b
                          FROM trade [RANGE 9 SECONDS] GROUP BY sym""",
    "distinct values of all": """SELECT COUNT(DISTINCT sym) AS n, SUM(fee) AS s
                                 FROM trade [RANGE 9 SECONDS SLIDE 2 SECONDS]""",
    "deviations": """SELECT sym, STDDEV(price) AS s, VARIANCE(qty) AS v, STDDEV_POP(fee) AS p, VAR_POP(price) AS q
                     FROM trade [RANGE 8 SECONDS] GROUP BY sym""",
    "percentiles": """SELECT buy, MEDIAN(price) AS m, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY qty) AS c,
                      PERCENTILE_CONT(0.3) WITHIN GROUP (ORDER BY price DESC) AS e
                      FROM trade [RANGE 12 SECONDS] GROUP BY buy""",
    "discrete percentiles": """SELECT PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY qty) AS d,
                               PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY sym) AS s FROM trade [RANGE 6 SECONDS]""",
    "mode": (
        "SELECT sym, MODE() WITHIN GROUP (ORDER BY qty) AS m FROM trade [RANGE 9 SECONDS] GROUP BY sym",
        """SELECT sym, (SELECT c.qty FROM (SELECT u AS qty, count(*) AS n FROM unnest(list(qty)) t(u)
           WHERE u IS NOT NULL GROUP BY u) c ORDER BY n DESC, qty LIMIT 1) FROM trade [RANGE 9 SECONDS] GROUP BY sym""",
    ),
    "first and last": (
        """SELECT sym, FIRST(price) AS f, LAST(qty) AS l, LAST(sym ORDER BY price) AS p
           FROM trade [RANGE 7 SECONDS] GROUP BY sym""",
        """SELECT sym, first(price ORDER BY ts, price) FILTER (WHERE price IS NOT NULL),
           last(qty ORDER BY ts, qty) FILTER (WHERE qty IS NOT NULL),
           last(sym ORDER BY price) FILTER (WHERE sym IS NOT NULL)
           FROM trade [RANGE 7 SECONDS] GROUP BY sym""",
    ),
    "joined texts": (
        """SELECT buy, STRING_AGG(sym, '-') AS t, STRING_AGG(DISTINCT sym, '' ORDER BY sym DESC) AS d,
           STRING_AGG(sym, ',' ORDER BY price DESC NULLS LAST) FILTER (WHERE qty > 2) AS f
           FROM trade [RANGE 5 SECONDS] GROUP BY buy""",
        """SELECT buy, string_agg(sym, '-' ORDER BY sym), string_agg(DISTINCT sym, '' ORDER BY sym DESC),
           string_agg(sym, ',' ORDER BY price DESC NULLS LAST, sym) FILTER (WHERE qty > 2)
           FROM trade [RANGE 5 SECONDS] GROUP BY buy""",
    ),
    "arrays": (
        """SELECT buy, ARRAY_AGG(sym) AS t, ARRAY_AGG(DISTINCT qty ORDER BY qty DESC NULLS LAST) AS d,
           ARRAY_AGG(qty ORDER BY price DESC NULLS LAST) FILTER (WHERE qty > 2 OR qty IS NULL) AS f,
           ARRAY_AGG(fee ORDER BY day, fee NULLS FIRST) AS m, ARRAY_AGG(DISTINCT sym) AS s
           FROM trade [RANGE 5 SECONDS] GROUP BY buy""",
        """SELECT buy, list(sym ORDER BY sym NULLS LAST), list(DISTINCT qty ORDER BY qty DESC NULLS LAST),
           list(qty ORDER BY price DESC NULLS LAST, qty NULLS LAST) FILTER (WHERE qty > 2 OR qty IS NULL),
           list(fee ORDER BY day NULLS LAST, fee NULLS FIRST), list(DISTINCT sym ORDER BY sym NULLS LAST)
           FROM trade [RANGE 5 SECONDS] GROUP BY buy""",
    ),
    "array of nothing": (
        "SELECT ARRAY_AGG(sym) AS a, COUNT(*) AS n FROM trade [RANGE 2 SECONDS] WHERE qty > 5",
        "SELECT list(sym ORDER BY sym NULLS LAST), count(*) FROM trade [RANGE 2 SECONDS] WHERE qty > 5",
    ),
    "elements of arrays": (
        """SELECT sym, a[1] AS one, a[3] AS three, cardinality(a) AS n, array_contains(a, 3) AS has,
           array_to_string(a, '-', '?') AS t FROM (SELECT sym, ARRAY_AGG(qty ORDER BY ts) AS a
           FROM trade [RANGE 8 SECONDS] GROUP BY sym) q""",
        """SELECT sym, a[1], a[3], len(a), CASE WHEN list_contains(a, 3) THEN true WHEN len(a) > list_count(a) THEN NULL
           ELSE false END, array_to_string(list_transform(a, lambda x: coalesce(x::VARCHAR, '?')), '-')
           FROM (SELECT sym, list(qty ORDER BY ts, qty NULLS LAST) AS a FROM trade [RANGE 8 SECONDS] GROUP BY sym) q""",
    ),
    "groups by arrays": (
        """SELECT a, COUNT(*) AS n FROM (SELECT qty, ARRAY_AGG(DISTINCT sym) AS a FROM trade [RANGE 6 SECONDS]
           GROUP BY qty) q GROUP BY a""",
        """SELECT a, COUNT(*) FROM (SELECT qty, list(DISTINCT sym ORDER BY sym NULLS LAST) AS a
           FROM trade [RANGE 6 SECONDS] GROUP BY qty) q GROUP BY a""",
    ),
    "sets of arrays": (
        """SELECT ARRAY_AGG(sym) AS a FROM trade [RANGE 3 SECONDS] GROUP BY qty
           EXCEPT SELECT ARRAY_AGG(sym) FROM quote [RANGE 9 SECONDS] GROUP BY size""",
        """SELECT list(sym ORDER BY sym NULLS LAST) FROM trade [RANGE 3 SECONDS] GROUP BY qty
           EXCEPT SELECT list(sym ORDER BY sym NULLS LAST) FROM quote [RANGE 9 SECONDS] GROUP BY size""",
    ),
    "joined arrays": (
        """SELECT t.sym, t.a, q.b FROM (SELECT sym, ARRAY_AGG(qty) AS a FROM trade [RANGE 5 SECONDS] GROUP BY sym) t
           LEFT JOIN (SELECT sym, ARRAY_AGG(bid) AS b FROM quote [RANGE 2 SECONDS] GROUP BY sym) q ON t.sym = q.sym""",
        """SELECT t.sym, t.a, q.b FROM
           (SELECT sym, list(qty ORDER BY qty NULLS LAST) AS a FROM trade [RANGE 5 SECONDS] GROUP BY sym) t LEFT JOIN
           (SELECT sym, list(bid ORDER BY bid NULLS LAST) AS b FROM quote [RANGE 2 SECONDS] GROUP BY sym) q
           ON t.sym = q.sym""",
    ),
    "rollup": """SELECT sym, buy, COUNT(*) AS n, SUM(qty) AS q, GROUPING(sym, buy) AS g
                 FROM trade [RANGE 5 SECONDS] GROUP BY ROLLUP (sym, buy) HAVING COUNT(*) > 0""",
    "rollup of nothing": "SELECT sym, COUNT(*) AS n FROM trade [RANGE 2 SECONDS] WHERE qty > 99 GROUP BY ROLLUP (sym)",
    "cube": """SELECT sym, buy, AVG(price) AS a FROM trade [RANGE 6 SECONDS] GROUP BY CUBE (sym, buy)
               HAVING COUNT(*) > 1""",
    "grouping sets": """SELECT sym, qty % 2 AS odd, COUNT(DISTINCT price) AS n FROM trade [RANGE 7 SECONDS]
                        GROUP BY GROUPING SETS ((sym, qty % 2), (sym), ())""",
    "first rows": (
        "SELECT sym, price FROM trade [RANGE 6 SECONDS] ORDER BY price DESC NULLS LAST LIMIT 3",
        """SELECT sym, price FROM (SELECT sym, price, rank() OVER (ORDER BY price DESC NULLS LAST) AS r
           FROM trade [RANGE 6 SECONDS]) q WHERE r <= 3""",
    ),
    "first groups": (
        "SELECT sym, COUNT(*) AS n FROM trade [RANGE 9 SECONDS] GROUP BY sym ORDER BY SUM(qty), 1 LIMIT 2",
        """SELECT sym, n FROM (SELECT sym, n, rank() OVER (ORDER BY s NULLS LAST, sym NULLS LAST) AS r
           FROM (SELECT sym, COUNT(*) AS n, SUM(qty) AS s FROM trade [RANGE 9 SECONDS] GROUP BY sym) g) q
           WHERE r <= 2""",
    ),
    # duplicates and unions
    "distinct": "SELECT DISTINCT sym, buy FROM trade [RANGE 6 SECONDS]",
    "distinct numbers": "SELECT DISTINCT fee, price FROM trade [RANGE 9 SECONDS SLIDE 2 SECONDS] WHERE qty < 4",
    "union": "SELECT sym, price FROM trade [RANGE 4 SECONDS] UNION ALL SELECT sym, bid FROM quote [RANGE 2 SECONDS]",
    "union of types": """SELECT qty AS x FROM trade [RANGE 3 SECONDS] UNION ALL SELECT price FROM trade
                         UNION ALL SELECT fee FROM trade WINDOW(RANGE 2 SECONDS SLIDE 2 SECONDS)""",
    "count of a union": """SELECT k, COUNT(*) AS n FROM (SELECT sym AS k FROM trade [RANGE 5 SECONDS]
                           UNION ALL SELECT sym FROM quote [RANGE 5 SECONDS]) u GROUP BY k""",
    "union without copies": "SELECT sym FROM trade [RANGE 4 SECONDS] UNION SELECT sym FROM quote [RANGE 2 SECONDS]",
    "except": "SELECT sym, buy FROM trade [RANGE 6 SECONDS] EXCEPT SELECT sym, buy FROM trade [RANGE 2 SECONDS]",
    "except all": "SELECT sym FROM trade [RANGE 5 SECONDS] EXCEPT ALL SELECT sym FROM quote [RANGE 3 SECONDS]",
    "intersect": """SELECT sym FROM trade [RANGE 4 SECONDS] INTERSECT
                    SELECT sym FROM quote [RANGE 4 SECONDS SLIDE 2 SECONDS]""",
    "intersect all": "SELECT sym FROM trade [RANGE 7 SECONDS] INTERSECT ALL SELECT sym FROM quote [RANGE 5 SECONDS]",
    "set operators in a row": """SELECT sym FROM trade [RANGE 3 SECONDS] UNION SELECT sym FROM quote [RANGE 5 SECONDS]
                                 INTERSECT SELECT sym FROM trade [RANGE 9 SECONDS] EXCEPT SELECT sym FROM quote""",
    "filter": """SELECT sym, COUNT(*) FILTER (WHERE buy) AS bought, SUM(qty) FILTER (WHERE price > 10) AS dear,
                 MAX(price) FILTER (WHERE qty < 3) AS top FROM trade [RANGE 5 SECONDS] GROUP BY sym""",
    "truth values": """SELECT sym, BOOL_AND(buy) AS all_bought, BOOL_OR(qty > 4) AS many
                       FROM trade [RANGE 4 SECONDS] GROUP BY sym""",
    "distinct from": """SELECT sym, price FROM trade [RANGE 3 SECONDS]
                        WHERE buy IS DISTINCT FROM TRUE AND sym IS NOT DISTINCT FROM sym
                        AND NULL IS DISTINCT FROM qty""",
    "ilike": "SELECT sym, sym ILIKE 'A%' AS a, 'AbC' ILIKE 'abc' AS b FROM trade [RANGE 3 SECONDS]",
    # subqueries
    "exists": """SELECT sym, price FROM trade [RANGE 4 SECONDS] t
                 WHERE EXISTS (SELECT 1 FROM quote [RANGE 2 SECONDS] q WHERE q.sym = t.sym AND q.bid < t.price)""",
    "not exists": """SELECT sym, price FROM trade [RANGE 4 SECONDS] t
                     WHERE NOT EXISTS (SELECT * FROM quote [RANGE 2 SECONDS] q WHERE q.sym = t.sym) AND qty > 1""",
    "in": "SELECT sym, qty FROM trade [RANGE 5 SECONDS] t WHERE sym IN (SELECT sym FROM quote [RANGE 1 SECOND] q)",
    "not in a subquery": """SELECT sym, qty FROM trade [RANGE 5 SECONDS] t
                 WHERE sym NOT IN (SELECT sym FROM quote [RANGE 1 SECOND] q)""",
    "any": """SELECT sym, price FROM trade [RANGE 5 SECONDS] t
              WHERE price > ANY (SELECT ask FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym)""",
    "all": """SELECT sym, price FROM trade [RANGE 5 SECONDS] t
              WHERE price >= ALL (SELECT ask FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym)""",
    "in anywhere": """SELECT sym, sym IN (SELECT sym FROM quote [RANGE 2 SECONDS] q) AS quoted
                      FROM trade [RANGE 4 SECONDS] t
                      WHERE qty > 3 OR price < ALL (SELECT bid FROM quote [RANGE 3 SECONDS] q)""",
    "in of groups": """SELECT sym, price FROM trade [RANGE 5 SECONDS] t
                       WHERE sym IN (SELECT sym FROM quote [RANGE 4 SECONDS] q GROUP BY sym HAVING COUNT(*) > 1)""",
    "nested twice": """SELECT sym FROM trade [RANGE 5 SECONDS] t WHERE EXISTS (SELECT 1 FROM quote [RANGE 3 SECONDS] q
                       WHERE q.sym = t.sym
                       AND q.size IN (SELECT size FROM quote [RANGE 1 SECOND] r WHERE r.sym <> q.sym))""",
    "value": """SELECT sym, price, (SELECT MAX(bid) FROM quote [RANGE 3 SECONDS] q) AS top
                FROM trade [RANGE 4 SECONDS] t WHERE price > (SELECT AVG(price) FROM trade [RANGE 9 SECONDS] u)""",
    "tied value": """SELECT sym, price, (SELECT COUNT(*) FROM quote [RANGE 6 SECONDS] q WHERE q.sym = t.sym) AS quotes,
                     (SELECT SUM(size) + t.qty FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym AND size < 9) AS sizes
                     FROM trade [RANGE 4 SECONDS] t""",
    "value by comparison": """SELECT sym, price,
                              (SELECT COUNT(*) FROM trade [RANGE 5 SECONDS] u WHERE u.price > t.price) AS r,
                              (SELECT MIN(u.qty + t.qty) FROM trade [RANGE 2 SECONDS] u WHERE u.sym = t.sym) AS m
                              FROM trade [RANGE 5 SECONDS] t""",
    "value with having": """SELECT sym, (SELECT MAX(bid) FROM quote [RANGE 4 SECONDS] q WHERE q.sym = t.sym
                            HAVING COUNT(*) <> 1) AS top FROM trade [RANGE 3 SECONDS] t""",
    "values above groups": """SELECT sym, SUM(qty) AS s,
                              (SELECT COUNT(*) FROM quote [RANGE 4 SECONDS] q WHERE q.sym = t.sym) AS n
                              FROM trade [RANGE 6 SECONDS] t GROUP BY sym
                              HAVING SUM(qty) > (SELECT AVG(qty) FROM trade [RANGE 6 SECONDS] u)
                              OR sym IN (SELECT sym FROM quote [RANGE 1 SECOND] r)""",
    "exists above groups": """SELECT sym, COUNT(*) AS n,
                              EXISTS (SELECT 1 FROM quote [RANGE 1 SECOND] q WHERE q.sym = t.sym) AS e
                              FROM trade [RANGE 6 SECONDS] t GROUP BY sym""",
    # subqueries that read a query further out than the one around them
    "two levels out": """SELECT sym, price FROM trade [RANGE 5 SECONDS] t WHERE EXISTS (
                         SELECT 1 FROM quote [RANGE 4 SECONDS] q WHERE q.sym = t.sym AND EXISTS (
                         SELECT 1 FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym AND n.score < q.bid))""",
    "two levels out only": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE EXISTS (
                              SELECT 1 FROM quote [RANGE 2 SECONDS] q WHERE NOT EXISTS (
                              SELECT 1 FROM news [RANGE 7 SECONDS] n WHERE n.sym = t.sym))""",
    "two levels out, no equality": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE NOT EXISTS (
                              SELECT 1 FROM quote [RANGE 3 SECONDS] q WHERE q.bid > t.price AND NOT EXISTS (
                              SELECT 1 FROM news [RANGE 9 SECONDS] n WHERE n.score < t.qty AND n.sym <> q.sym))""",
    "two levels out in both": """SELECT sym, qty FROM trade [RANGE 5 SECONDS] t WHERE t.sym NOT IN (
                                 SELECT q.sym FROM quote [RANGE 3 SECONDS] q WHERE t.qty > ANY (
                                 SELECT n.score FROM news [RANGE 9 SECONDS] n WHERE n.sym = q.sym OR n.sym = t.sym))""",
    "two levels out of all": """SELECT sym, price FROM trade [RANGE 4 SECONDS] t WHERE price >= ALL (
                                SELECT ask FROM quote [RANGE 3 SECONDS] q WHERE q.size NOT IN (
                                SELECT n.score FROM news [RANGE 9 SECONDS] n WHERE n.score <> t.qty))""",
    "two levels out of a value": """SELECT sym, qty, (SELECT COUNT(*) FROM quote [RANGE 4 SECONDS] q WHERE q.bid > (
                                    SELECT AVG(n.score) FROM news [RANGE 9 SECONDS] n WHERE n.score >= t.qty)) AS n
                                    FROM trade [RANGE 4 SECONDS] t""",
    "two levels out of a tied value": """SELECT sym, qty, (SELECT MAX(q.bid) FROM quote [RANGE 5 SECONDS] q
                                    WHERE q.sym = t.sym AND q.bid > (SELECT COUNT(*) FROM news [RANGE 9 SECONDS] n
                                    WHERE n.sym = t.sym AND n.sym = q.sym)) AS top FROM trade [RANGE 4 SECONDS] t""",
    "two levels out with null": """SELECT sym, qty FROM trade [RANGE 5 SECONDS] t WHERE EXISTS (
                                   SELECT 1 FROM quote [RANGE 3 SECONDS] q WHERE EXISTS (
                                   SELECT 1 FROM news [RANGE 9 SECONDS] n
                                   WHERE n.sym IS NOT DISTINCT FROM t.sym AND n.score IS DISTINCT FROM t.qty))""",
    "two levels out in the list": """SELECT t.sym, t.qty, t.qty IN (SELECT n.score FROM news [RANGE 9 SECONDS] n
                                     WHERE EXISTS (SELECT 1 FROM quote [RANGE 2 SECONDS] q
                                     WHERE q.sym = n.sym AND q.bid < t.price)) AS found
                                     FROM trade [RANGE 4 SECONDS] t""",
    "two levels out above groups": """SELECT sym, COUNT(*) AS n, (SELECT COUNT(*) FROM news [RANGE 8 SECONDS] n
                                      WHERE EXISTS (SELECT 1 FROM quote [RANGE 2 SECONDS] q
                                      WHERE q.sym = t.sym AND q.bid > n.score)) AS m
                                      FROM trade [RANGE 5 SECONDS] t GROUP BY sym
                                      HAVING sym IS NULL OR EXISTS (SELECT 1 FROM news [RANGE 9 SECONDS] n
                                      WHERE NOT EXISTS (SELECT 1 FROM quote [RANGE 1 SECOND] q WHERE q.sym > t.sym))""",
    "two levels out under OR": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE qty > 8 OR EXISTS (
                                  SELECT 1 FROM quote [RANGE 3 SECONDS] q WHERE q.sym > t.sym OR q.bid < (
                                  SELECT SUM(n.score) + t.qty FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym))""",
    "three levels out": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE EXISTS (
                           SELECT 1 FROM quote [RANGE 3 SECONDS] q WHERE NOT EXISTS (
                           SELECT 1 FROM news [RANGE 9 SECONDS] n WHERE n.sym = q.sym AND n.score IN (
                           SELECT u.qty FROM trade [RANGE 2 SECONDS] u WHERE u.sym = t.sym AND u.price > q.bid)))""",
    "three levels out only": """SELECT sym, qty, (SELECT COUNT(*) FROM quote [RANGE 3 SECONDS] q WHERE q.sym <> ALL (
                           SELECT n.sym FROM news [RANGE 9 SECONDS] n WHERE n.score < (
                           SELECT MAX(u.qty) FROM trade [RANGE 2 SECONDS] u WHERE u.qty < t.qty))) AS n
                           FROM trade [RANGE 4 SECONDS] t""",
    "three levels out by equalities": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE EXISTS (
                           SELECT 1 FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym AND EXISTS (
                           SELECT 1 FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym AND EXISTS (
                           SELECT 1 FROM trade [RANGE 2 SECONDS] u WHERE u.sym = t.sym AND u.price > q.bid)))""",
    "every topic": """SELECT DISTINCT t.sym FROM trade [RANGE 6 SECONDS] t WHERE NOT EXISTS (
                      SELECT 1 FROM news [RANGE 9 SECONDS] n WHERE NOT EXISTS (
                      SELECT 1 FROM trade [RANGE 6 SECONDS] u WHERE u.sym = t.sym AND u.qty >= n.score))""",
    # subqueries that group and read the query around them
    "tied groups": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE EXISTS (
                      SELECT n.topic FROM news [RANGE 9 SECONDS] n WHERE n.score < t.qty
                      GROUP BY n.topic HAVING COUNT(*) > 1)""",
    "tied by having": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE sym NOT IN (
                         SELECT q.sym FROM quote [RANGE 5 SECONDS] q GROUP BY q.sym HAVING COUNT(*) + 3 > t.qty)""",
    "tied arguments": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE qty < ANY (
                         SELECT SUM(n.score + t.qty) FROM news [RANGE 9 SECONDS] n GROUP BY n.topic, n.sym = t.sym)""",
    "tied to the whole": """SELECT sym, qty, qty > ALL (SELECT COUNT(*) + 2 FROM news [RANGE 6 SECONDS] n
                            WHERE n.sym = t.sym) AS few, EXISTS (SELECT MAX(n.score) FROM news [RANGE 3 SECONDS] n
                            WHERE n.sym = t.sym HAVING COUNT(*) < 1) AS none FROM trade [RANGE 4 SECONDS] t""",
    "tied grouping sets": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE qty IN (
                            SELECT COUNT(*) FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym
                            GROUP BY GROUPING SETS ((n.topic), (n.score)))""",
    "subqueries in the list of one": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE qty > ANY (
                            SELECT (SELECT COUNT(*) FROM quote [RANGE 3 SECONDS] q WHERE q.sym = n.sym OR q.sym = t.sym)
                            FROM news [RANGE 9 SECONDS] n WHERE n.score < 7)""",
    # DuckDB fails on these as they are written (an internal error).
    "a subquery in a value": (
        """SELECT sym, qty, (SELECT COUNT(*) + (SELECT MAX(n.score) FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym)
           FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym) AS a FROM trade [RANGE 4 SECONDS] t""",
        """SELECT sym, qty, (SELECT COUNT(*) FROM quote [RANGE 3 SECONDS] q WHERE q.sym = t.sym)
           + (SELECT MAX(n.score) FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym)
           FROM trade [RANGE 4 SECONDS] t""",
    ),
    "a subquery in the HAVING of a value": (
        """SELECT sym, qty, (SELECT MAX(q.bid) FROM quote [RANGE 3 SECONDS] q HAVING COUNT(*) NOT IN (
           SELECT n.score FROM news [RANGE 9 SECONDS] n WHERE n.score < t.qty)) AS b FROM trade [RANGE 4 SECONDS] t""",
        """SELECT sym, qty, CASE WHEN (SELECT COUNT(*) FROM quote [RANGE 3 SECONDS] q) NOT IN (
           SELECT n.score FROM news [RANGE 9 SECONDS] n WHERE n.score < t.qty)
           THEN (SELECT MAX(q.bid) FROM quote [RANGE 3 SECONDS] q) END FROM trade [RANGE 4 SECONDS] t""",
    ),
    "groups two levels out": """SELECT sym, qty FROM trade [RANGE 4 SECONDS] t WHERE EXISTS (
                            SELECT 1 FROM quote [RANGE 5 SECONDS] q GROUP BY q.sym HAVING COUNT(*) < (
                            SELECT SUM(n.score) FROM news [RANGE 9 SECONDS] n WHERE n.sym = t.sym OR n.sym = q.sym))""",
    # joins
    "left join": """SELECT t.sym, t.price, q.bid FROM trade [RANGE 5 SECONDS] t
                    LEFT JOIN quote [RANGE 2 SECONDS] q ON t.sym = q.sym AND t.price < q.ask""",
    "right join": """SELECT t.sym, t.price, q.bid FROM trade [RANGE 2 SECONDS] t
                     RIGHT JOIN quote [RANGE 3 SECONDS SLIDE 2 SECONDS] q ON t.sym = q.sym""",
    "full join": """SELECT sym, t.qty, q.bid FROM trade [RANGE 3 SECONDS] t
                    FULL JOIN quote [RANGE 3 SECONDS] q USING (sym)""",
    "full join on a condition": """SELECT t.qty, n.score FROM trade [RANGE 2 SECONDS] t
                                   FULL JOIN news [RANGE 5 SECONDS] n ON t.qty > n.score""",
    "semi join": """SELECT t.sym, t.qty FROM trade [RANGE 5 SECONDS] t
                    SEMI JOIN quote [RANGE 1 SECOND] q ON t.sym = q.sym""",
    "anti join": """SELECT t.sym, t.qty FROM trade [RANGE 5 SECONDS] t
                    ANTI JOIN quote [RANGE 1 SECOND] q ON t.sym = q.sym""",
    "count of what is missing": """SELECT t.sym, COUNT(*) AS n, COUNT(q.bid) AS quoted FROM trade [RANGE 4 SECONDS] t
                                   LEFT JOIN quote [RANGE 1 SECOND] q ON t.sym = q.sym GROUP BY t.sym""",
    "equi-join": """SELECT t.sym, t.price, q.bid FROM trade [RANGE 3 SECONDS] t, quote [RANGE 4 SECONDS] q
                    WHERE t.sym = q.sym""",
    "join and more": """SELECT t.sym, t.price, q.ask FROM trade [RANGE 4 SECONDS] t JOIN quote [RANGE 4 SECONDS] q
                        ON t.sym = q.sym AND t.price < q.ask WHERE t.buy""",
    "theta": "SELECT t.qty, n.score FROM trade [RANGE 2 SECONDS] t JOIN news [RANGE 9 SECONDS] n ON t.qty > n.score",
    "cross": "SELECT t.sym, n.topic FROM trade t CROSS JOIN news [RANGE 7 SECONDS] n",
    "now joins window": "SELECT t.sym, q.bid FROM trade t JOIN quote [RANGE 5 SECONDS] q ON t.sym = q.sym",
    "now joins now": "SELECT t.sym, q.bid FROM trade t, quote q WHERE t.sym = q.sym",
    "self-join": """SELECT a.sym, a.price - b.price AS up FROM trade [RANGE 4 SECONDS] a, trade [RANGE 4 SECONDS] b
                    WHERE a.sym = b.sym AND a.ts < b.ts""",
    "three streams": """SELECT t.sym, n.topic, q.bid FROM trade [RANGE 3 SECONDS] t, news [RANGE 9 SECONDS] n,
                        quote [RANGE 3 SECONDS] q WHERE t.sym = n.sym AND n.sym = q.sym AND t.price > q.bid""",
    "join on two keys": """SELECT a.sym, a.qty, b.price FROM trade [RANGE 9 SECONDS] a JOIN trade [RANGE 9 SECONDS] b
                           ON a.sym = b.sym AND a.qty = b.qty AND a.ts <> b.ts""",
    "join on expressions": """SELECT a.qty, b.score FROM trade [RANGE 5 SECONDS] a JOIN news [RANGE 9 SECONDS] b
                              ON a.qty + 1 = b.score AND upper(a.sym) = upper(b.sym)""",
    "join on decimals": """SELECT a.fee, b.qty FROM trade [RANGE 6 SECONDS] a JOIN trade [RANGE 6 SECONDS] b
                           ON a.fee = b.qty""",
    "joined windows that slide": """SELECT t.sym, q.bid FROM trade WINDOW(RANGE 6 SECONDS SLIDE 4 SECONDS) t
                                    JOIN quote WINDOW(RANGE 5 SECONDS SLIDE 3 SECONDS) q ON t.sym = q.sym""",
    "count of a join": """SELECT t.sym, COUNT(*) AS n, AVG(q.ask - q.bid) AS spread FROM trade [RANGE 5 SECONDS] t
                          JOIN quote [RANGE 5 SECONDS] q ON t.sym = q.sym GROUP BY t.sym""",
    "count of a product": "SELECT COUNT(*) AS n FROM trade [RANGE 3 SECONDS] t, news [RANGE 8 SECONDS] n",
    "joined with silence": """SELECT t.sym, s.price FROM trade [RANGE 5 SECONDS] t
                              JOIN silence [RANGE 5 SECONDS] s ON t.sym = s.sym""",
    "count of silence": """SELECT COUNT(*) AS n, COUNT(s.price) AS p
                           FROM silence [RANGE 5 SECONDS] s, trade [RANGE 1 SECOND] t""",
    # windows without a bound
    "unbounded": "SELECT sym, qty FROM trade [RANGE UNBOUNDED] WHERE price > 80",
    "unbounded that jumps": "SELECT sym, qty FROM trade WINDOW(RANGE UNBOUNDED SLIDE 7 SECONDS) WHERE price > 80",
    "totals of all time": """SELECT sym, COUNT(*) AS n, SUM(qty) AS s, MIN(price) AS lo, MAX(fee) AS hi
                             FROM trade [RANGE UNBOUNDED] GROUP BY sym""",
    "one total of all time": "SELECT COUNT(*) AS n, AVG(price) AS mean, MAX(ts) AS latest FROM trade [RANGE UNBOUNDED]",
    "all that ever came": "SELECT DISTINCT sym, buy FROM trade [RANGE UNBOUNDED]",
    "joined with the past": """SELECT t.sym, t.price, n.topic FROM trade [RANGE 2 SECONDS] t
                               JOIN news [RANGE UNBOUNDED] n ON t.sym = n.sym AND t.qty = n.score""",
    "never seen before": """SELECT t.sym, t.qty FROM trade [RANGE 3 SECONDS] t
                            ANTI JOIN news [RANGE UNBOUNDED] n ON t.sym = n.sym AND t.qty = n.score""",
    # rows that bring their intervals
    "intervals": "SELECT * FROM stay",
    "filtered intervals": "SELECT sym, guests + 1 AS more FROM stay WHERE guests > 2",
    "count of intervals": "SELECT COUNT(*) AS n, SUM(guests) AS g, MAX(guests) AS most FROM stay",
    "groups of intervals": "SELECT sym, COUNT(*) AS n, AVG(guests) AS g FROM stay GROUP BY sym",
    "distinct intervals": "SELECT DISTINCT sym FROM stay",
    "intervals joined": """SELECT s.sym, s.guests, t.price FROM stay s JOIN trade [RANGE 3 SECONDS] t
                           ON s.sym = t.sym AND s.guests < t.qty""",
    "intervals and now": "SELECT t.sym, t.price, s.guests FROM trade t LEFT JOIN stay s ON s.sym = t.sym",
    "intervals with each other": """SELECT a.sym, a.guests, b.guests AS others FROM stay a JOIN stay b
                                    ON a.sym = b.sym AND a.ts < b.ts""",
    "except intervals": "SELECT sym FROM trade [RANGE 6 SECONDS] EXCEPT SELECT sym FROM stay WHERE guests < 3",
    "no interval": """SELECT sym, price FROM trade [RANGE 3 SECONDS] t
                      WHERE NOT EXISTS (SELECT 1 FROM stay s WHERE s.sym = t.sym AND s.guests > 3)""",
    # queries with a name
    "with": """WITH x AS (SELECT sym, price * qty AS value FROM trade [RANGE 5 SECONDS] WHERE buy),
               top (sym, best) AS (SELECT sym, MAX(value) FROM x GROUP BY sym)
               SELECT x.sym, x.value FROM x JOIN top ON x.sym = top.sym AND x.value = top.best""",
    "with inside of a subquery": """SELECT sym, price FROM trade [RANGE 4 SECONDS] t WHERE price > ALL (
                                    WITH bids AS (SELECT bid FROM quote [RANGE 3 SECONDS] q WHERE size > 1)
                                    SELECT bid FROM bids)""",
    "with inside of a value": """SELECT sym, (WITH x AS (SELECT sym, bid FROM quote [RANGE 3 SECONDS] q)
                                 SELECT MAX(bid) FROM x WHERE x.sym = t.sym) AS bid FROM trade [RANGE 2 SECONDS] t""",
    # queries in FROM
    "filtered subquery": """SELECT x.sym, x.value FROM (SELECT sym, price * qty AS value FROM trade [RANGE 5 SECONDS]
                            WHERE buy) x WHERE x.value > 100""",
    "average of counts": """SELECT AVG(x.n) AS mean, MAX(x.n) AS most FROM (SELECT sym, COUNT(*) AS n
                            FROM trade [RANGE 8 SECONDS] GROUP BY sym) x""",
    "above the average": """SELECT t.sym, t.price FROM trade [RANGE 6 SECONDS] t,
                            (SELECT AVG(price) AS mean FROM trade [RANGE 6 SECONDS]) m WHERE t.price > m.mean""",
    "best of its group": """SELECT t.sym, t.price FROM trade [RANGE 6 SECONDS] t JOIN (SELECT sym, MAX(price) AS top
                            FROM trade [RANGE 6 SECONDS] GROUP BY sym) m ON t.sym = m.sym AND t.price = m.top""",
    "distinct counted": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT sym, qty FROM trade [RANGE 9 SECONDS]) d",
    "groups of groups": """SELECT g.n, COUNT(*) AS groups FROM (SELECT sym, buy, COUNT(*) AS n
                           FROM trade [RANGE 9 SECONDS] GROUP BY sym, buy) g GROUP BY g.n""",
}  # fmt: skip
ALWAYS_EMPTY = ("not in with null", "joined with silence")


# ---- data ------------------------------------------------------------------------------------------------------------


def rows(dice: Random, stream: str, count: int) -> list[tuple[object, ...]]:
    """Rows at whole seconds with ties and NULLs, in order of arrival: out of order, but within the bound."""
    made: list[tuple[int, tuple[object, ...]]] = []
    for number in range(count):
        second = dice.randrange(SECONDS) if number else 0  # every stream begins with the world
        ends = (until(dice, second),) if stream == "stay" else ()
        made.append((second, (*payload(dice, stream), BEGIN + timedelta(seconds=second), *ends)))
    made.sort(key=lambda pair: pair[0] + dice.randint(0, DISORDER))
    return [row for _, row in made]


def until(dice: Random, second: int) -> datetime | None:
    """An end; at times none, and at times one that is not after the start, which makes the row malformed."""
    if dice.random() < 0.05:
        return None
    return BEGIN + timedelta(seconds=second + dice.choice((1, 2, 3, 5, 8, 0, -4)))


def payload(dice: Random, stream: str) -> tuple[object, ...]:
    def maybe(value: object) -> object:
        return None if dice.random() < 0.08 else value

    sym = maybe(dice.choice(("a", "ab", "b", "c")))
    match stream:
        case "trade":
            price, qty = maybe(dice.randrange(4000) / 40), maybe(dice.randrange(9))
            fee = Decimal(dice.randrange(900)) / 100 if dice.random() < 0.8 else Decimal(dice.randrange(9))
            return sym, price, qty, maybe(fee), maybe(dice.random() < 0.6), maybe(date(2024, 1, dice.randint(1, 5)))
        case "quote":
            bid = dice.randrange(4000) / 40
            return sym, maybe(bid), maybe(bid + dice.random()), maybe(dice.choice((1, 2**40, -(2**62), 2**62, 7)))
        case "news":
            return dice.choice(("x", "y")), sym, maybe(dice.randrange(9))
        case "stay":
            return sym, maybe(dice.randrange(6))
    raise AssertionError(f"no rows for {stream}")


@dataclass(frozen=True)
class World:
    """The same streams here and there."""

    ours: Database
    duck: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("streams")
    dice = Random(7)
    duck = duckdb.connect()
    duck.execute("SET threads = 1")
    with sl.connect(engine="local", shards=2, batch_rows=70) as ours:
        for (name, columns), count in zip(STREAMS.items(), (300, 220, 60, 0, 90), strict=True):
            duck.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows(dice, name, count):
                duck.execute(f"INSERT INTO {name} VALUES ({', '.join('?' for _ in row)})", row)
            path = directory / f"{name}.parquet"
            # Many row groups: the stream comes in many batches.
            duck.table(name).pl().write_parquet(path, row_group_size=23)
            order = "VALID FROM ts UNTIL til" if name == "stay" else "ORDERED BY ts"
            bound = f"{order} WITHIN {DISORDER} SECONDS"
            ours.sql(f"CREATE STREAM {name} ({columns}) SOURCE file('{path}') {bound}")
        duck.execute("CREATE TABLE instants AS SELECT unnest(?) AS t", [INSTANTS])
        yield World(ours, duck)


# From the first second on: a scalar aggregate has no row before the first element, and SQL knows no such time.
INSTANTS = [BEGIN_US + second * SECOND + d for second in range(SECONDS + 15) for d in (-1, 0, 1)][1:]

WINDOW = r"RANGE (\d+|UNBOUNDED)(?: SECONDS?)?(?: SLIDE (\d+) SECONDS?)?"
ALIAS = r"(?!WHERE|GROUP|HAVING|UNION|EXCEPT|INTERSECT|LEFT|RIGHT|FULL|SEMI|ANTI|JOIN|CROSS|ON)(\w+)"
REFERENCE = re.compile(rf"\b({'|'.join(STREAMS)}|large)\b(?: WINDOW\({WINDOW}\)| \[{WINDOW}\])?(?: {ALIAS})?")


def at_every_instant(query: str) -> str:
    """The plain SQL at all instants: each stream with its window is replaced by the rows that it holds at `i.t`."""

    def replace(found: re.Match[str]) -> str:
        stream, alias = found[1], found[6] or found[1]
        length, slide = found[2] or found[4], found[3] or found[5]
        time = "epoch_us(ts)"
        if stream == "stay":
            held = f"{time} <= i.t AND (til IS NULL OR i.t < epoch_us(til))"
        elif length is None:
            held = f"{time} = i.t"
        elif length == "UNBOUNDED":
            jump = int(slide) * SECOND if slide else 1
            held = f"{time} < ((i.t + 1) // {jump}) * {jump}"
        elif slide is None:
            held = f"{time} <= i.t AND i.t < {time} + {int(length) * SECOND}"
        else:
            last = f"((i.t + 1) // {int(slide) * SECOND}) * {int(slide) * SECOND}"
            held = f"{last} - {int(length) * SECOND} <= {time} AND {time} < {last}"
        return f"(SELECT * FROM {stream} WHERE {held}) AS {alias}"

    return f"SELECT i.t, q.* FROM instants i, LATERAL ({REFERENCE.sub(replace, query)}) q"


# ---- comparison ------------------------------------------------------------------------------------------------------


def plain(value: object) -> object:
    """Numbers as numbers: DuckDB may give a whole number where we give a DECIMAL, and the other way round."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return float(value)
    return value


def sort_key(row: tuple[object, ...]) -> str:
    return repr([f"{value:.8e}" if isinstance(value, float) else value for value in row])


def same(one: tuple[object, ...], two: tuple[object, ...]) -> bool:
    return len(one) == len(two) and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(one, two, strict=True)
    )


Bags = dict[int, list[tuple[object, ...]]]


def bags(pairs: list[tuple[object, ...]]) -> Bags:
    """Rows that begin with an instant, as a bag for each instant, in a fixed order."""
    found: Bags = {}
    for t, *row in pairs:
        assert isinstance(t, int)
        found.setdefault(t, []).append(tuple(map(plain, row)))
    return {t: sorted(rows, key=sort_key) for t, rows in found.items()}


def our_bags(world: World, query: str) -> Bags:
    """The elements of our answer that are valid at each instant."""
    answer = world.ours.sql(query)
    answer.await_end()
    frame: pl.DataFrame = answer.results("polars")
    payload = [pl.col(c).cast(pl.Float64) if frame.schema[c].is_decimal() else pl.col(c) for c in frame.columns[:-2]]
    times = [pl.col(c).dt.epoch("us").fill_null(FOREVER) for c in ("valid_from", "valid_until")]
    found: list[tuple[object, ...]] = []
    for *row, start, end in frame.select(*payload, *times).rows():
        found += [(t, *row) for t in INSTANTS if start <= t < end]
    return bags(found)


compared: dict[str, tuple[int, int]] = {}  # query -> instants compared, instants with rows


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_at_every_instant_is_what_duckdb_says(world: World, name: str) -> None:
    text = QUERIES[name]
    ours, theirs = text if isinstance(text, tuple) else (text, text)
    actual = our_bags(world, ours)
    expected = bags(world.duck.execute(at_every_instant(theirs)).fetchall())
    for t in INSTANTS:
        one, two = actual.get(t, []), expected.get(t, [])
        assert len(one) == len(two) and all(map(same, one, two)), f"at {t - BEGIN_US} µs: {one} is not {two}"
    compared[name] = (len(INSTANTS), len(expected))
    assert expected or name in ALWAYS_EMPTY, "there is something to compare"


def test_most_instants_have_answers() -> None:
    if len(compared) < len(QUERIES):
        pytest.skip("not all queries were asked")
    instants, answered = (sum(count[i] for count in compared.values()) for i in range(2))
    print(f"{len(compared)} queries, {instants} instants compared, {answered} of them with rows")
    assert answered > instants / 2


# ---- more rows -------------------------------------------------------------------------------------------------------

LARGE = {
    "grouped": """SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi FROM large [RANGE 40 SECONDS]
                  GROUP BY k HAVING COUNT(*) > 1""",
    "joined": """SELECT a.k, COUNT(*) AS n, SUM(a.v - b.v) AS d FROM large [RANGE 9 SECONDS] a
                 JOIN large [RANGE 30 SECONDS] b ON a.k = b.k AND a.v > b.v GROUP BY a.k""",
    "distinct": "SELECT COUNT(*) AS n, SUM(d.v) AS s FROM (SELECT DISTINCT k, v FROM large [RANGE 50 SECONDS]) d",
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_state_of_many_segments(tmp_path: Path, name: str) -> None:
    """Enough rows for state that is merged several times; compared at some instants in every batch."""
    made = pl.select(
        k=pl.int_range(30_000).hash(1) % 3_000,
        v=pl.int_range(30_000).hash(2).mod(50).cast(pl.Int32),
        ts=(pl.lit(BEGIN) + pl.duration(milliseconds=pl.int_range(30_000) * 4)).dt.cast_time_unit("us"),
    ).with_columns(pl.col("k").cast(pl.Int64))
    made.write_parquet(tmp_path / "large.parquet", row_group_size=500)
    with sl.connect(engine="local", shards=2, batch_rows=1_000) as ours, duckdb.connect() as duck:
        ours.sql(f"""CREATE STREAM large (k BIGINT, v INT, ts TIMESTAMP) SOURCE file('{tmp_path / "large.parquet"}')
                     ORDERED BY ts""")
        answer = ours.sql(LARGE[name])
        answer.await_end()
        instants = [BEGIN_US + second * SECOND + 1 for second in range(1, 170, 6)]
        duck.execute("SET threads = 1")
        duck.register("large", made)
        duck.execute("CREATE TABLE instants AS SELECT unnest(?) AS t", [instants])
        expected = bags(duck.execute(at_every_instant(LARGE[name])).fetchall())
        assert len(expected) > 20, "there is something to compare"
        for t in instants:
            found = bags([(t, *row) for row in answer.snapshot(t, "polars").rows()]).get(t, [])
            assert found == expected.get(t, []), f"at {t - BEGIN_US} µs"
