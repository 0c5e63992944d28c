"""Scalar functions and aggregates: signatures, meaning, and their evaluation over arrays."""
