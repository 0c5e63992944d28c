"""Hammad and others, *Scheduling for Shared Window Joins Over Data Streams*, 2003: policies of a shared join."""
