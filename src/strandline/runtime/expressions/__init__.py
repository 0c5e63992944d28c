"""Scalar expressions over arrays: compiled to Polars, with expensive subexpressions evaluated once."""
