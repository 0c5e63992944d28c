"""Reserved words."""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    """A set of keywords, written as one text."""
    return frozenset(text.split())


# Words that cannot be names unless quoted: each of them could follow a name with a meaning of its own.
RESERVED: Final = words(
    """ALL AND AS BETWEEN CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FROM FULL GROUP HAVING
        IN INNER INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER QUALIFY RIGHT SELECT THEN TRUE
        UNION USING WHEN WHERE WINDOW WITH"""
)

# Those of them that people call columns, and that do not end a list.
LIKELY_NAMES: Final = words("ALL CREATE CROSS END FETCH FULL GROUP INNER LEFT LIMIT OFFSET ORDER RIGHT WINDOW")
