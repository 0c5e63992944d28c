-- The answer of an aggregate without groups begins with the first element of any stream that the query reads, also of
-- one that is read only for a column that nobody uses. Found by seed 218 of an earlier generator.
CREATE STREAM s0 (d INT, ts TIMESTAMP) SOURCE rows((1, '1970-01-01 00:00:00.000005')) ORDERED BY ts;
CREATE STREAM s1 (d INT, ts TIMESTAMP) SOURCE rows((1, '1970-01-01 00:00:00.000001')) ORDERED BY ts;
SELECT COUNT(t1.c1) AS n
  FROM (SELECT t2.d AS c1, EXISTS (SELECT 1 FROM s1 t3) AS c2 FROM s0 [RANGE 8 MICROSECONDS] t2) AS t1;
