"""Operator state: sorted and hashed segments, and their versions on disk."""
