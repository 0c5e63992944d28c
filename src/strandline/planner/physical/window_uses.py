"""Uses of a shared window join: which pairs belong to one, and for how long rows are kept for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.core.identity_cache import cached_by_identity
from strandline.core.temporal import FOREVER
from strandline.planner.physical.plan import Pipeline, SharedWindowJoin, WindowExtent, WindowUse, numbered


def bound(extent: WindowExtent) -> int:
    """All pairs of a window have a distance below this: the exact one, unless the window slides."""
    range_us, slide_us, _ = extent
    return FOREVER if range_us is None else range_us + slide_us - 1


def bounds(use: WindowUse) -> tuple[int, int]:
    return bound(use.left), bound(use.right)


def living(uses: Sequence[WindowUse]) -> list[WindowUse]:
    """Uses without those that are gone."""
    return [use for use in uses if not use.is_gone]


def classes(uses: Sequence[WindowUse]) -> dict[tuple[str, str], int]:
    """The classes of selections, with the bits of words that stand for them: in the order in which uses have them."""
    return {selections: bit for bit, selections in enumerate(dict.fromkeys(use.selections for use in uses))}


@cached_by_identity  # each of a hundred queries over a join asks for it
def extents_by_bits(uses: Sequence[WindowUse], side: int) -> Mapping[int, int]:
    """How long rows of a side (0 left, 1 right) are kept, with the bits of the classes that need them so long;
    the shortest first. A row is kept for the largest of the classes that it is in."""
    numbers = classes(uses)
    largest = dict.fromkeys(numbers, 0)
    for use in uses:
        largest[use.selections] = max(largest[use.selections], bounds(use)[side])
    bits: dict[int, int] = {}
    for selections, bit in numbers.items():
        bits[largest[selections]] = bits.get(largest[selections], 0) | 1 << bit
    return dict(sorted(bits.items()))


@cached_by_identity
def count_shared_joins(pipeline: Pipeline) -> int:
    """How many joins of a pipeline are shared."""
    nodes = {node for fragment in pipeline.fragments for node in numbered(fragment.root)}
    return sum(isinstance(node, SharedWindowJoin) for node in nodes)


def ends_in_order(node: SharedWindowJoin, side: int) -> bool:
    """True if all rows of a side are kept equally long."""
    word = (node.left_word, node.right_word)[side]
    return word is None or len(extents_by_bits(node.uses, side)) == 1
