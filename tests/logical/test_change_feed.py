"""The meaning of a change feed."""

from __future__ import annotations

from strandline.core.temporal import FOREVER
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.reference.change_feed import ChangeRow, FoldedFeed, fold_changes


def folded(text: str, *key: str) -> FoldedFeed:
    """`+a1@3` inserts the row with k = a and v = 1 at 3."""
    rows = []
    for word in text.split():
        change, _, time = word.partition("@")
        rows.append(ChangeRow(int(time), change[0], {"k": change[1], "v": change[2:]}))
    return fold_changes(rows, ChangeFeed("op", key))


def shown(feed: FoldedFeed) -> str:
    elements = sorted((e.time, e.end, f"{e.values['k']}{e.values['v']}") for e in feed.elements)
    return " ".join(f"{row}[{start},{'∞' if end == FOREVER else end})" for start, end, row in elements)


def test_a_row_is_there_from_its_insertion_until_its_deletion() -> None:
    assert shown(folded("+a1@1 +b1@2 -a1@5")) == "a1[1,5) b1[2,∞)"


def test_of_equal_rows_the_oldest_ends_first() -> None:
    assert shown(folded("+a1@1 +a1@3 -a1@5 -a1@6")) == "a1[1,5) a1[3,6)"


def test_what_happens_at_one_instant_counts_as_a_sum() -> None:
    feed = folded("+a1@1 -a1@4 +a1@4 -b1@6 +b1@6")
    assert shown(feed) == "a1[1,∞)"
    assert feed.unmatched == []


def test_a_deletion_of_what_is_not_there_has_no_effect() -> None:
    feed = folded("-a1@1 +a1@2 -a2@3 -a1@4 -a1@4")
    assert shown(feed) == "a1[1,1) a1[2,4)"
    assert feed.unmatched == [0, 2, 4]


def test_with_a_key_a_row_replaces_that_of_its_key() -> None:
    assert shown(folded("+a1@1 ua2@4 +b1@5 -a9@7", "k")) == "a1[1,4) a2[4,7) b1[5,∞)"


def test_with_a_key_the_last_row_of_an_instant_counts() -> None:
    feed = folded("+a1@1 -a1@4 +a2@4 ua3@4 -b1@4 +a3@5", "k")
    assert shown(feed) == "a1[1,4) a3[4,∞)"
    assert feed.unmatched == [4]
