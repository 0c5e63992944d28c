"""Change feeds: streams whose rows say what is inserted and deleted, as change data capture writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """`CHANGES IN op [PRIMARY KEY (k, …)]`: the column that says what a row does, and those that identify what it does
    it to.

    Without a key, a deletion ends one row that equals it in all columns but the operation and the time. With a key, an
    insertion replaces the row of its key, and a deletion ends it, whatever its other columns are.
    """

    op_column: str
    key: tuple[str, ...] = ()


# Words for the operation, in lower case: those of Flink (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE; +I, -U, +U, -D),
# of Debezium (c, r, u, d) and of the change data feed of Delta tables (update_preimage, update_postimage).
INSERTIONS: Final = ("insert", "+", "+i", "c", "r", "update_after", "+u", "update_postimage")
DELETIONS: Final = ("delete", "-", "-d", "d", "update_before", "-u", "update_preimage")
UPSERTS: Final = ("u", "update", "upsert")  # what they replace is known by its key only

SIGNS: Final = {**dict.fromkeys((*INSERTIONS, *UPSERTS), 1), **dict.fromkeys(DELETIONS, -1)}
