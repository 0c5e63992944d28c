"""Judging answers by a database of somebody else: `strandline verify`.

    script ─ run ─ record ─ translate ─ ask ─ compare ─ shrink ─ report

The query is translated from its syntax tree (`translate`), so that the database itself resolves joins, subqueries,
grouping and set operators. Of the product only the typing of scalar expressions is used, never its evaluation.
"""
