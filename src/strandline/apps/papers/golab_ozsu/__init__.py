"""Golab and Özsu, *Update-Pattern-Aware Modeling and Processing of Continuous Queries*, 2005."""
