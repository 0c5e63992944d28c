"""System tables, SHOW, EXPLAIN ANALYZE, diagnosis and metrics of running queries."""
