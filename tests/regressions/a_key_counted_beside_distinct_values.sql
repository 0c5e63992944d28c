-- Rows and distinct values went two ways to one aggregation, and both brought the key: what aggregates the key itself
-- saw it twice.
CREATE STREAM s (k VARCHAR, v INT, ts TIMESTAMP)
  SOURCE rows(('a', 1, '2024-01-01 00:00:00'), ('a', 1, '2024-01-01 00:00:01'), ('b', 2, '2024-01-01 00:00:01'))
  ORDERED BY ts;
SELECT k, COUNT(k) AS n, STRING_AGG(k, '+' ORDER BY v) AS texts, COUNT(DISTINCT v) AS vs, COUNT(DISTINCT k) AS one
  FROM s [RANGE 5 SECONDS] GROUP BY k;
