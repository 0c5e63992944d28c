"""Verification of results by an oracle, another database: `strandline verify`.

    script ─ run ─ record ─ translate ─ ask ─ compare ─ shrink ─ report

The query is translated from its syntax tree (`translate`), so that the database itself resolves joins, subqueries,
grouping and set operators. Only the typing of scalar expressions is shared with the engine, never their evaluation.
"""
