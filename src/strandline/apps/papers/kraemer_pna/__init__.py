"""Krämer, *Continuous Queries over Data Streams*, 2007, chapter 14: elements with intervals, or with signs."""
