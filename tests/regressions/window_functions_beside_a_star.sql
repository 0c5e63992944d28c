-- The judge left stars beside window functions unjudged, and window functions over grouping sets in windows.
CREATE STREAM s (k INT, v INT, ts BIGINT) SOURCE rows((1, 5, 0), (1, 5, 0), (2, 3, 1), (1, NULL, 2), (2, 8, 4), (1, 1, 6)) ORDERED BY ts;
CREATE STREAM r (k INT, w INT, ts BIGINT) SOURCE rows((1, 7, 0), (2, 9, 1), (2, 4, 4), (1, 6, 6)) ORDERED BY ts;
SELECT q.*, RANK() OVER (PARTITION BY q.k ORDER BY q.v DESC) AS place FROM s [RANGE 4 MICROSECONDS] q;
SELECT *, RANK() OVER (ORDER BY v) AS place FROM s;
SELECT *, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM s WHERE v IS NOT NULL;
SELECT s.*, SUM(v) OVER (ORDER BY ts RANGE 3 PRECEDING) AS total FROM s;
SELECT * EXCLUDE (ts) REPLACE (k + 1 AS k), ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM s WHERE k = 2;
SELECT *, RANK() OVER (ORDER BY w) AS place FROM s [NOW] JOIN r [NOW] USING (k, ts);
SELECT k, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS place FROM s [RANGE 3 MICROSECONDS] GROUP BY ROLLUP (k);
