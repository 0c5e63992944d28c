-- The judge took a square that is too small for a DOUBLE for one that is too large.
CREATE STREAM s (d DOUBLE, ts TIMESTAMP)
  SOURCE rows(('-0.0', '1969-12-31 23:59:59.999998'), ('5e-324', '1970-01-01 00:00:00')) ORDERED BY ts;
SELECT COUNT(*) AS n, STDDEV(d) AS spread FROM s [RANGE 8 MICROSECONDS] HAVING STDDEV(d) = 0;
