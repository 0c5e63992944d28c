"""What other dialects of SQL have and this one has not, with what is written here instead.

`statements.py` and `clauses.py` list phrases, `names.py` functions, columns, types and characters; `explain.py` finds
them where the parser has refused a text. The statements in hints read a stream s (k, a, b, ts), tables t and u (k, a)
and a materialized view v; `tests/sql/test_other_dialects.py` executes them.
"""
