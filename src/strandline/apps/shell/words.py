"""The words of the language, for completion and colours."""

from __future__ import annotations

from functools import cache
from typing import Final

from strandline.core.temporal import UNITS
from strandline.sql.binder.scaled_aggregates import SCALED
from strandline.sql.lexer import RESERVED, words
from strandline.sql.parser.statements import LISTS, STATEMENTS
from strandline.sql.parser.types import TYPE_NAMES

# Words of the grammar in docs/language.md other than reserved words, statements, types and units; a test compares.
_FURTHER: Final = words(
    """ANTI ASC BY CASCADE CUBE DATE DESC DSTREAM EXPLAIN FIRST FILTER GRANULARITY GROUPING IDLE AFTER IF INTERVAL INTO
        ISTREAM LAST MAX MINUS NOW NULLS ORDERED OUTER OVER PARTITION RANGE RANK REPLACE RESTRICT ROLLUP ROW ROWS
        RSTREAM SEMI SESSION SETS SINK SINKS SLIDE SOURCE STREAM STREAMS STRICT TIES TIMESTAMP UNBOUNDED UNTIL VALID
        VIEW VIEWS QUERIES WITHIN BETWEEN SYMMETRIC ILIKE SIMILAR TO IS ALLOW SHEDDING UP PERCENT SET CAPACITY MEASURED
        OFF ANALYZE WHY SECRET BAD INPUT SKIP STOP"""
)
KEYWORDS: Final = frozenset(
    {*RESERVED, *STATEMENTS, *LISTS, *TYPE_NAMES, *_FURTHER, *UNITS, *(f"{unit}S" for unit in UNITS)}
)


@cache
def functions() -> dict[str, str]:
    """Function-like names with their descriptions: scalars and aggregates."""
    from strandline.functions.aggregates import AGGREGATES
    from strandline.functions.registry import ALIASES, FUNCTIONS

    named = {f.name: f.doc for f in FUNCTIONS.values() if f.usage.startswith(f"{f.name}(")}
    named |= {alias: named[name] for alias, name in ALIASES.items() if name in named and alias.isidentifier()}
    return named | {name: aggregate.doc for name, aggregate in AGGREGATES.items()} | SCALED
