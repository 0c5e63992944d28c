"""Scalar functions and aggregates: each is declared in one place, with all that is known of it."""
