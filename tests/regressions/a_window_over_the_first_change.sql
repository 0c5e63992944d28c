-- The judge did not look: the row of an aggregate without groups comes with the first row of all, here of another
-- stream, and ISTREAM tells of it then.
CREATE STREAM s0 (y INT, ts TIMESTAMP) SOURCE rows() ORDERED BY ts;
CREATE STREAM s1 (d INT, ts TIMESTAMP) SOURCE rows(('1', '1970-01-01 00:00:00.000007')) ORDERED BY ts;
SELECT t1.d AS c1, t2.c1 AS c2
  FROM s1 [RANGE 8 MICROSECONDS] t1 CROSS JOIN (ISTREAM(SELECT COUNT(*) AS c1 FROM s0 t3)) [RANGE 5 MICROSECONDS] AS t2;
