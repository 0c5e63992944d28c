-- not compared once: a window of rows over RSTREAM(…) needs the order of arrival, which was lost on the way to the judge
CREATE STREAM s0 (i INT, ts TIMESTAMP) SOURCE rows(('2', '1970-01-01 00:00:00'), ('1', '1970-01-01 00:00:00'), ('3', '1970-01-01 00:00:00.000002')) ORDERED BY ts WITHIN 0 MICROSECONDS;
SELECT t1.c1 AS c1 FROM (RSTREAM(SELECT t2.i AS c1 FROM s0 t2)) [ROWS 2] AS t1;
