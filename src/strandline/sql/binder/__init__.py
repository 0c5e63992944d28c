"""Binder, from the syntax tree to a logical plan: names are resolved, types are checked, subqueries become joins."""
